//! What the runtime wants of an attachment beyond having it: pod, addresses, MAC, bandwidth, dns.
//! Each wish may come by several ways; the more structured one wins.

use std::collections::HashMap;

use berth_types::{AddressSet, Bandwidth, MacAddress, PodIdentity};
use serde_json::{Map, Value};

use crate::{cni_args::CniArgs, config::Config, error::CniError, layout::Dns, settings::refuse};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) pod: PodIdentity,
    pub(crate) addresses: AddressSet,
    pub(crate) mac: Option<MacAddress>,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) dns: Dns,
    /// The pod's annotations that the daemon reads.
    pub(crate) annotations: HashMap<String, String>,
}

/// Whose annotations the daemon reads: ours and Terway's.
const ANNOTATIONS_OF: [&str; 2] = ["berth.dev/", "k8s.aliyun.com/"];

impl Wishes {
    pub(crate) fn of(config: &Config, cni_args: CniArgs) -> Result<Self, CniError> {
        let runtime = section("runtimeConfig", &config.runtime_config)?;
        let args = section("args.cni", config.args.get("cni").unwrap_or(&Value::Null))?;
        Ok(Self {
            addresses: addresses(&runtime, &args, &cni_args)?,
            mac: mac(&runtime, &args, &cni_args)?,
            bandwidth: bandwidth(&runtime)?,
            dns: dns(&runtime, &config.dns)?,
            annotations: annotations(&runtime)?,
            pod: PodIdentity {
                namespace: cni_args.pod_namespace,
                name: cni_args.pod_name,
                uid: cni_args.pod_uid,
            },
        })
    }
}

/// containerd passes a pod's annotations on to plugins with that capability.
fn annotations(runtime: &Section<'_>) -> Result<HashMap<String, String>, CniError> {
    let all = runtime.section("io.kubernetes.cri.pod-annotations")?;
    let ours = |name: &str| ANNOTATIONS_OF.iter().any(|prefix| name.starts_with(prefix));
    let fields = all.fields.into_iter().flatten().filter(|(name, _)| ours(name));
    // An annotation is text by definition; whatever else stands there is nobody's wish.
    let texts = fields.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Ok(texts.collect())
}

/// An object of the configuration with its name, for errors. Null and absent are empty.
struct Section<'a> {
    name: String,
    fields: Option<&'a Map<String, Value>>,
}

fn section<'a>(name: &str, value: &'a Value) -> Result<Section<'a>, CniError> {
    let fields = value.as_object();
    if fields.is_none() && !value.is_null() {
        return Err(refuse(name, value, "an object is needed"));
    }
    Ok(Section { name: name.to_owned(), fields })
}

impl<'a> Section<'a> {
    /// Go programs without JSON tags write `IngressRate` for `ingressRate` and read either: so
    /// do we. Null is absent.
    fn get(&self, key: &str) -> Option<&'a Value> {
        let fields = self.fields?;
        let (first, rest) = key.split_at(1);
        let capital = || fields.get(&format!("{}{rest}", first.to_ascii_uppercase()));
        fields.get(key).or_else(capital).filter(|value| !value.is_null())
    }

    fn section(&self, key: &str) -> Result<Section<'a>, CniError> {
        section(&self.path(key), self.get(key).unwrap_or(&Value::Null))
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, CniError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(value) => Err(refuse(&self.path(key), value, "a string is needed")),
        }
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, CniError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        value
            .as_array()
            .and_then(|list| list.iter().map(|it| it.as_str().map(str::to_owned)).collect())
            .ok_or_else(|| refuse(&self.path(key), value, "a list of strings is needed"))
    }

    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }
}

fn addresses(
    runtime: &Section<'_>,
    args: &Section<'_>,
    cni_args: &CniArgs,
) -> Result<AddressSet, CniError> {
    for from in [runtime, args] {
        let ips = from.texts("ips")?;
        if !ips.is_empty() {
            return address_set(&ips).map_err(|problem| {
                refuse(&from.path("ips"), from.get("ips").unwrap_or(&Value::Null), &problem)
            });
        }
    }
    address_set(&cni_args.ips).map_err(|problem| CniError::Variable {
        name: "CNI_ARGS",
        problem: format!("IP: {problem}"),
    })
}

/// The convention writes addresses with a prefix length, podman without; it is ours to choose.
fn address_set(texts: &[String]) -> Result<AddressSet, String> {
    let bare: Vec<String> =
        texts.iter().map(|text| text.split('/').next().unwrap_or(text).to_owned()).collect();
    berth_proto::address_set("ips", &bare).map_err(|err| err.to_string())
}

fn mac(
    runtime: &Section<'_>,
    args: &Section<'_>,
    cni_args: &CniArgs,
) -> Result<Option<MacAddress>, CniError> {
    for from in [runtime, args] {
        if let Some(text) = from.text("mac")? {
            let parsed = text.parse().map(Some);
            return parsed.map_err(|_| {
                refuse(&from.path("mac"), &text.into(), "a unicast MAC address is needed")
            });
        }
    }
    let parsed = cni_args.mac.as_deref().map(str::parse).transpose();
    parsed.map_err(|err| CniError::Variable { name: "CNI_ARGS", problem: format!("MAC: {err}") })
}

/// The convention counts in bits per second, we in bytes. Its bursts are not taken: runtimes
/// send their largest number there (4294967295 bits from containerd), and a shaper's burst
/// follows from its rate.
fn bandwidth(runtime: &Section<'_>) -> Result<Bandwidth, CniError> {
    let limits = runtime.section("bandwidth")?;
    let rate = |key: &str| match limits.get(key) {
        None => Ok(None),
        Some(value) => value
            .as_u64()
            .map(|bits| Some(bits.div_ceil(8)).filter(|bytes| *bytes > 0))
            .ok_or_else(|| refuse(&limits.path(key), value, "whole bits per second are needed")),
    };
    Ok(Bandwidth { ingress: rate("ingressRate")?, egress: rate("egressRate")? })
}

/// The pod's own dns settings win over the network's as a whole.
fn dns(runtime: &Section<'_>, of_network: &Value) -> Result<Dns, CniError> {
    let pod = runtime.section("dns")?;
    let dns = Dns {
        nameservers: pod.texts("servers")?,
        domain: None,
        search: pod.texts("searches")?,
        options: pod.texts("options")?,
    };
    if !dns.is_empty() {
        return Ok(dns);
    }
    let network = section("dns", of_network)?;
    Ok(Dns {
        nameservers: network.texts("nameservers")?,
        domain: network.text("domain")?.map(str::to_owned),
        search: network.texts("search")?,
        options: network.texts("options")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{config::Document, verb::Verb};

    fn wishes(extra: Value, cni_args: &str) -> Result<Wishes, CniError> {
        let mut document = json!({"cniVersion": "1.0.0", "name": "n", "type": "berth"});
        document.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let config = Document::read(document.to_string().as_bytes())?.parse(Verb::Add)?;
        Wishes::of(&config, CniArgs::parse(cni_args)?)
    }

    #[test]
    fn bandwidth_of_every_runtime_comes_out_in_bytes() {
        let limit = |ingress, egress| Bandwidth { ingress, egress };
        for (bandwidth, expected) in [
            // containerd 1.6.20, recorded.
            (
                json!({"IngressRate": 10000000, "IngressBurst": 4294967295u32, "EgressRate": 20000000, "EgressBurst": 4294967295u32}),
                limit(Some(1_250_000), Some(2_500_000)),
            ),
            // CRI-O.
            (
                json!({"ingressRate": 1000000, "ingressBurst": 34359738359u64, "egressRate": 0, "egressBurst": 0}),
                limit(Some(125_000), None),
            ),
            (json!({"egressRate": 1}), limit(None, Some(1))),
            (json!({"ingressRate": null}), limit(None, None)),
            (json!(null), limit(None, None)),
        ] {
            let wishes = wishes(json!({"runtimeConfig": {"bandwidth": bandwidth}}), "").unwrap();
            assert_eq!(wishes.bandwidth, expected, "{bandwidth}");
        }
        let capital = json!({"runtimeConfig": {"Bandwidth": {"IngressRate": 8}}});
        assert_eq!(wishes(capital, "").unwrap().bandwidth, limit(Some(1), None));
    }

    #[test]
    fn dns_of_the_pod_wins_over_that_of_the_network() {
        let network = json!({"nameservers": ["10.0.0.53"], "domain": "d", "search": null});
        let of_network = wishes(json!({"dns": network}), "").unwrap().dns;
        assert_eq!(of_network.nameservers, ["10.0.0.53"]);
        assert_eq!(of_network.domain.as_deref(), Some("d"));
        // containerd 1.6.20, recorded.
        let pod = json!({"Servers": ["10.210.0.1"], "Searches": null, "Options": null});
        let both = json!({"dns": network, "runtimeConfig": {"dns": pod}});
        let of_pod = wishes(both, "").unwrap().dns;
        assert_eq!(of_pod.nameservers, ["10.210.0.1"]);
        assert_eq!(of_pod.domain, None);
    }

    #[test]
    fn addresses_and_mac_are_taken_from_the_most_structured_place() {
        let podman = "IgnoreUnknown=1;K8S_POD_NAME=w1;MAC=02:00:00:00:00:77;IP=10.212.0.77";
        let asked = wishes(json!({"capabilities": {"ips": true}}), podman).unwrap();
        assert_eq!(asked.addresses.to_string(), "10.212.0.77");
        assert_eq!(asked.mac.unwrap().to_string(), "02:00:00:00:00:77");
        assert_eq!(asked.pod.to_string(), "w1");

        let args = json!({"args": {"cni": {"ips": ["10.1.0.9/16", "fd00::9/64"], "mac": "02:00:00:00:00:AA"}}});
        let asked = wishes(args.clone(), podman).unwrap();
        assert_eq!(asked.addresses.to_string(), "10.1.0.9,fd00::9");
        assert_eq!(asked.mac.unwrap().to_string(), "02:00:00:00:00:aa");

        let mut all = args;
        all["runtimeConfig"] = json!({"ips": ["10.2.0.1"], "mac": "02:00:00:00:00:bb"});
        let asked = wishes(all, podman).unwrap();
        assert_eq!(asked.addresses.to_string(), "10.2.0.1");
        assert_eq!(asked.mac.unwrap().to_string(), "02:00:00:00:00:bb");
    }

    #[test]
    fn a_wish_that_cannot_be_met_is_refused_where_it_stands() {
        for (extra, cni_args, code, names) in [
            (json!({"runtimeConfig": {"ips": ["nowhere"]}}), "", 7, "runtimeConfig.ips"),
            (json!({"runtimeConfig": {"ips": "10.0.0.1"}}), "", 7, "runtimeConfig.ips"),
            (json!({"args": {"cni": {"ips": ["10.0.0.1", "10.0.0.2"]}}}), "", 7, "args.cni.ips"),
            (json!({"args": {"cni": {"mac": "01:00:00:00:00:01"}}}), "", 7, "args.cni.mac"),
            (
                json!({"runtimeConfig": {"bandwidth": {"ingressRate": -1}}}),
                "",
                7,
                "runtimeConfig.bandwidth.ingressRate",
            ),
            (
                json!({"runtimeConfig": {"bandwidth": {"EgressRate": "1M"}}}),
                "",
                7,
                "runtimeConfig.bandwidth.egressRate",
            ),
            (json!({"runtimeConfig": []}), "", 7, "runtimeConfig"),
            (json!({"dns": {"nameservers": [1]}}), "", 7, "dns.nameservers"),
            (json!({}), "IP=nowhere", 4, "CNI_ARGS"),
            (json!({}), "MAC=ff:ff", 4, "CNI_ARGS"),
        ] {
            let err = wishes(extra.clone(), cni_args).unwrap_err();
            assert_eq!(err.code(), code, "{extra} {cni_args}");
            assert!(err.to_string().starts_with(names), "{err}");
        }
    }
}
