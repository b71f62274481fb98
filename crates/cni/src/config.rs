//! The network configuration, taken apart.

use std::io::Read;

use berth_types::{AttachmentKey, NetworkName};
use serde_json::{Map, Value};

use crate::{
    cni_compat,
    error::CniError,
    settings::{Settings, refuse},
    stdin,
    verb::{SpecVersion, Verb},
};

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) network: NetworkName,
    pub(crate) settings: Settings,
    pub(crate) runtime_config: Value,
    pub(crate) args: Map<String, Value>,
    pub(crate) dns: Value,
    pub(crate) previous: Value,
}

/// The document before anything is known of it but that it is an object.
#[derive(Debug)]
pub(crate) struct Document(Map<String, Value>);

impl Document {
    pub(crate) fn read(stdin: impl Read) -> Result<Self, CniError> {
        let mut bytes = Vec::new();
        let limit = stdin::MOST_BYTES;
        stdin.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(CniError::Stdin)?;
        if bytes.len() > limit {
            return Err(CniError::TooLong(limit));
        }
        match serde_json::from_slice(&bytes).map_err(CniError::Document)? {
            Value::Object(document) => Ok(Self(document)),
            Value::Null => Err(CniError::NotAnObject("null")),
            Value::Bool(_) => Err(CniError::NotAnObject("a boolean")),
            Value::Number(_) => Err(CniError::NotAnObject("a number")),
            Value::String(_) => Err(CniError::NotAnObject("a string")),
            Value::Array(_) => Err(CniError::NotAnObject("a list")),
        }
    }

    /// The version asked for, where it is one of ours.
    pub(crate) fn version(&self) -> Option<SpecVersion> {
        SpecVersion::parse(self.0.get("cniVersion")?.as_str()?)
    }

    pub(crate) fn parse(self, verb: Verb) -> Result<Config, CniError> {
        let version = self.checked_version(verb)?;
        match self.0.get("name") {
            Some(Value::String(_)) => {}
            absent_or_wrong => {
                let value = absent_or_wrong.unwrap_or(&Value::Null);
                return Err(refuse("name", value, "a network needs a name"));
            }
        }
        let parts = cni_compat::parts(self.0, version)?;
        let network = parts.name.parse().map_err(|_| {
            let allowed = "a letter or digit, then letters, digits, `_`, `.` or `-` are allowed";
            refuse("name", &Value::String(parts.name.clone()), allowed)
        })?;
        Ok(Config {
            network,
            settings: Settings(parts.specific),
            runtime_config: parts.runtime_config,
            args: parts.args,
            dns: parts.dns,
            previous: parts.previous,
        })
    }

    /// A configuration without a version is of 0.1.0, to libcni and to us.
    fn checked_version(&self, verb: Verb) -> Result<SpecVersion, CniError> {
        let asked = match self.0.get("cniVersion") {
            None | Some(Value::Null) => "0.1.0",
            Some(Value::String(text)) if text.is_empty() => "0.1.0",
            Some(Value::String(text)) => text,
            Some(value) => return Err(refuse("cniVersion", value, "a string is needed")),
        };
        let version = SpecVersion::parse(asked);
        // libcni's order: the verb's own floor first.
        match version {
            Some(version) if version < verb.since() => Err(CniError::VerbTooNew {
                verb: verb.as_str(),
                since: verb.since().as_str(),
                asked: version.as_str(),
            }),
            Some(version) => Ok(version),
            None => Err(CniError::Version {
                asked: asked.chars().take(64).collect(),
                supported: SpecVersion::ALL.map(SpecVersion::as_str).join(", "),
            }),
        }
    }
}

/// The keys that a runtime says are valid, or `None` when it says nothing. A null is a list with
/// nothing in it: CRI-O with no pods sends it. The second key is that of the spec's first text.
pub(crate) fn valid_attachments(config: &Config) -> Result<Option<Vec<AttachmentKey>>, CniError> {
    let specific = &config.settings.0;
    let key = ["cni.dev/valid-attachments", "cni.dev/attachments"]
        .into_iter()
        .find(|key| specific.contains_key(*key));
    let Some(key) = key else { return Ok(None) };
    let list = &specific[key];
    let entries = match list.as_array() {
        Some(entries) => entries.as_slice(),
        None if list.is_null() => &[],
        None => return Err(refuse(key, list, "a list is needed")),
    };
    let mut valid = Vec::new();
    for entry in entries {
        let text = |field: &str| entry.get(field).and_then(Value::as_str);
        // A list that is not understood must not become a list with less in it.
        let (Some(container), Some(interface)) = (text("containerID"), text("ifname")) else {
            return Err(refuse(key, entry, "an entry needs containerID and ifname"));
        };
        // What cannot be a key holds nothing of ours.
        if let Ok(key) = AttachmentKey::new(config.network.as_str(), container, interface) {
            valid.push(key);
        }
    }
    Ok(Some(valid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(verb: Verb, document: &Value) -> Result<Config, CniError> {
        Document::read(document.to_string().as_bytes())?.parse(verb)
    }

    #[test]
    fn every_verb_is_answered_from_its_own_version_on() {
        for verb in Verb::ALL {
            for version in SpecVersion::ALL {
                let document =
                    json!({"cniVersion": version.as_str(), "name": "n", "type": "berth"});
                match parse(verb, &document) {
                    Ok(_) => assert!(version >= verb.since(), "{verb:?} {version:?}"),
                    Err(err) => {
                        assert!(version < verb.since(), "{verb:?} {version:?}: {err}");
                        assert_eq!(err.code(), 1);
                    }
                }
            }
            for version in [
                json!("0.1.0"),
                json!("0.2.0"),
                json!("1.2.0"),
                json!("1.0"),
                json!(null),
                json!(""),
            ] {
                let document = json!({"cniVersion": version, "name": "n", "type": "berth"});
                assert_eq!(parse(verb, &document).unwrap_err().code(), 1, "{verb:?} {version}");
            }
        }
    }

    #[test]
    fn what_is_not_a_configuration_has_its_code() {
        for (text, code) in [
            ("", 6),
            ("{", 6),
            ("null", 6),
            ("[]", 6),
            ("7", 6),
            ("{\"name\":\"n\",\"type\":\"\u{0}\"}", 6),
            (r#"{"cniVersion":"1.0.0","name":"n","type":"berth"}{}"#, 6),
            (r#"{"cniVersion":"1.0.0","name":"n"}"#, 6),
            (r#"{"cniVersion":1,"name":"n","type":"berth"}"#, 7),
            (r#"{"cniVersion":"1.0.0","type":"berth"}"#, 7),
            (r#"{"cniVersion":"1.0.0","name":null,"type":"berth"}"#, 7),
            (r#"{"cniVersion":"1.0.0","name":"../../etc","type":"berth"}"#, 7),
        ] {
            let err = Document::read(text.as_bytes()).and_then(|it| it.parse(Verb::Add));
            assert_eq!(err.unwrap_err().code(), code, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Document::read(deep.as_bytes()).unwrap_err().code(), 6);
        let long = vec![b' '; stdin::MOST_BYTES + 1];
        assert_eq!(Document::read(long.as_slice()).unwrap_err().code(), 6);
    }

    #[test]
    fn forms_that_runtimes_send_are_taken() {
        for extra in [
            json!({"ipam": {}}),
            json!({"ipam": null, "args": null, "dns": null, "runtimeConfig": null}),
            json!({"capabilities": {"bandwidth": true}, "ipMasq": "yes"}),
            json!({"somethingElse": {"deep": [1, null]}, "bridge": "cni0"}),
            json!({"runtimeConfig": {"aliases": {"n": ["web"]}, "portMappings": [{"HostPort": 1}]}}),
        ] {
            let mut document = json!({"cniVersion": "0.3.1", "name": "n", "type": "berth"});
            document.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            assert!(parse(Verb::Add, &document).is_ok(), "{extra}");
        }
    }

    #[test]
    fn a_gc_list_may_be_absent_null_or_a_list_and_is_never_guessed() {
        let list = |extra: Value| {
            let mut document = json!({"cniVersion": "1.1.0", "name": "n", "type": "berth"});
            document.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            valid_attachments(&parse(Verb::Gc, &document).unwrap())
        };
        let a = json!([{"containerID": "a", "ifname": "eth0"}]);
        let key = AttachmentKey::new("n", "a", "eth0").unwrap();
        assert_eq!(list(json!({})).unwrap(), None);
        assert_eq!(list(json!({"cni.dev/valid-attachments": null})).unwrap(), Some(vec![]));
        assert_eq!(list(json!({"cni.dev/valid-attachments": []})).unwrap(), Some(vec![]));
        assert_eq!(list(json!({"cni.dev/attachments": a})).unwrap(), Some(vec![key.clone()]));
        // Both: the one that the spec names in the end.
        let both = json!({"cni.dev/valid-attachments": a, "cni.dev/attachments": null});
        assert_eq!(list(both).unwrap(), Some(vec![key]));
        let odd = json!({"cni.dev/valid-attachments": [{"containerID": "../x", "ifname": "eth0"}]});
        assert_eq!(list(odd).unwrap(), Some(vec![]));
        for bad in [json!("all"), json!([7]), json!([{"containerID": "a"}]), json!({"a": 1})] {
            let err = list(json!({"cni.dev/valid-attachments": bad})).unwrap_err();
            assert_eq!(err.code(), 7, "{bad}");
        }
    }
}
