//! `prevResult`: what the chain made before us (ADD) or in all (CHECK).
//!
//! It stays the document that came, so that no field can be lost that we do not know.

use std::net::IpAddr;

use berth_types::{AddressSet, MacAddress};
use serde_json::{Map, Value};

use crate::{error::CniError, settings::refuse};

#[derive(Debug, Clone, Default)]
pub(crate) struct PreviousResult(Map<String, Value>);

/// One interface as the result has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    index: usize,
    /// `None` where the result says nothing that is a MAC address.
    pub(crate) mac: Option<MacAddress>,
}

impl PreviousResult {
    /// Null and absent are an empty result; null lists are empty lists.
    pub(crate) fn parse(value: Value) -> Result<Self, CniError> {
        let document = if value.is_null() {
            Map::new()
        } else if let Value::Object(document) = value {
            document
        } else {
            return Err(refuse("prevResult", &value, "an object is needed"));
        };
        for key in ["interfaces", "ips", "routes"] {
            match document.get(key) {
                None | Some(Value::Null | Value::Array(_)) => {}
                Some(value) => {
                    return Err(refuse(&format!("prevResult.{key}"), value, "a list is needed"));
                }
            }
        }
        Ok(Self(document))
    }

    pub(crate) fn into_document(self) -> Map<String, Value> {
        self.0
    }

    /// The pod's interface of that name. The sandbox is compared as text, as everybody does.
    pub(crate) fn pod_interface(&self, name: &str, netns: &str) -> Option<Found> {
        let says = |entry: &Value, key: &str, text: &str| {
            entry.get(key).and_then(Value::as_str) == Some(text)
        };
        let index = self
            .list("interfaces")
            .iter()
            .position(|entry| says(entry, "name", name) && says(entry, "sandbox", netns))?;
        let mac = self.list("interfaces")[index].get("mac").and_then(Value::as_str);
        Some(Found { index, mac: mac.and_then(|mac| mac.parse().ok()) })
    }

    /// Those of `expected` that the result does not give to the interface. An address that
    /// names no interface belongs to the container's.
    pub(crate) fn missing_addresses(&self, of: Found, expected: &AddressSet) -> Vec<IpAddr> {
        let index_of = |ip: &Value| ip.get("interface").and_then(Value::as_u64);
        let held: Vec<IpAddr> = self
            .list("ips")
            .iter()
            .filter(|ip| index_of(ip).is_none_or(|index| index == of.index as u64))
            .filter_map(|ip| ip.get("address")?.as_str()?.split('/').next()?.parse().ok())
            .collect();
        expected.iter().filter(|address| !held.contains(address)).collect()
    }

    fn list(&self, key: &str) -> &[Value] {
        self.0.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_and_empty_macs_of_go_plugins_are_taken() {
        let result = json!({"interfaces": [{"name": "eth0", "mac": "", "sandbox": "/n"}], "ips": null, "routes": null});
        let result = PreviousResult::parse(result).unwrap();
        let found = result.pod_interface("eth0", "/n").unwrap();
        assert_eq!(found.mac, None);
        let expected = AddressSet::from("10.0.0.7".parse::<IpAddr>().unwrap());
        assert_eq!(result.missing_addresses(found, &expected).len(), 1);
        assert_eq!(result.pod_interface("eth0", "/other"), None);
        for bad in [json!([]), json!("x"), json!({"ips": {}}), json!({"interfaces": 1})] {
            assert_eq!(PreviousResult::parse(bad).unwrap_err().code(), 7);
        }
    }

    #[test]
    fn an_address_of_another_interface_does_not_count() {
        let result = json!({
            "interfaces": [{"name": "bth1"}, {"name": "eth0", "mac": "02:00:00:00:00:AB", "sandbox": "/n"}],
            "ips": [
                {"address": "10.0.0.7/32", "interface": 0},
                {"address": "fd00::7/128", "interface": 1},
                {"address": "10.0.0.8/32", "interface": null},
            ],
        });
        let result = PreviousResult::parse(result).unwrap();
        let found = result.pod_interface("eth0", "/n").unwrap();
        assert_eq!(found.mac.unwrap().to_string(), "02:00:00:00:00:ab");
        let expect = |v4: &str| AddressSet {
            v4: Some(v4.parse().unwrap()),
            v6: Some("fd00::7".parse().unwrap()),
        };
        let missing = result.missing_addresses(found, &expect("10.0.0.7"));
        assert_eq!(missing, ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        assert!(result.missing_addresses(found, &expect("10.0.0.8")).is_empty());
    }
}
