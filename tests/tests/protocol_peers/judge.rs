//! One judge for every plugin.

use berth_tests::Answer;
use serde_json::Value;

/// Codes that say that the call was not understood; any other failure is the plugin's own affair
/// (no namespace, no daemon).
const PROTOCOL: [i64; 5] = [1, 2, 4, 6, 7];

/// What the rules ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Past the protocol: success, or a failure of another kind.
    Understood,
    Refused(Vec<i64>),
}

impl Expected {
    /// As our own table has it: a code of the protocol is common, success and the rest mean that
    /// it was understood.
    pub(crate) fn of_our_code(code: Option<i64>) -> Self {
        match code {
            Some(code) if PROTOCOL.contains(&code) => Self::Refused(vec![code]),
            Some(_) | None => Self::Understood,
        }
    }

    /// A verb is understood in the versions that are listed, from the one on that brought it.
    pub(crate) fn by_version(version: &str, verb: &str, listed: &[String]) -> Self {
        let floor = match verb {
            "CHECK" => (0, 4, 0),
            "GC" | "STATUS" => (1, 1, 0),
            _ => (0, 0, 0),
        };
        let reaches = |version: &str| numbers(version).is_some_and(|numbers| numbers >= floor);
        // libcni takes a version that is left empty for 0.1.0.
        let version = if version.is_empty() { "0.1.0" } else { version };
        if listed.iter().any(|it| it == version) && reaches(version) {
            Self::Understood
        } else if listed.iter().any(|it| reaches(it)) {
            // What is no version at all cannot be decoded, say the reference plugins.
            match numbers(version) {
                Some(_) => Self::Refused(vec![1]),
                None => Self::Refused(vec![1, 6]),
            }
        } else {
            // To a plugin that never has the verb it is unknown.
            Self::Refused(vec![1, 4])
        }
    }
}

fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let numbers = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(numbers)
}

pub(crate) struct Verdict(Vec<String>);

impl Verdict {
    /// The rules that always hold, and what was expected.
    pub(crate) fn on(answer: &Answer, verb: &str, config: &Value, expected: Expected) -> Self {
        let mut faults = Vec::new();
        let document: Option<Value> = serde_json::from_str(&answer.stdout).ok();
        if !answer.stdout.is_empty() && document.is_none() {
            faults.push("stdout is not one JSON document".to_owned());
        }
        let code = match (answer.succeeded(), &document) {
            (true, _) => None,
            (false, Some(document)) if document["msg"].is_string() => document["code"].as_i64(),
            (false, _) => {
                faults.push("it failed without an error object".to_owned());
                None
            }
        };
        match expected {
            Expected::Refused(codes) => match code {
                Some(code) if codes.contains(&code) => (),
                _ => faults.push(format!("code {code:?}, expected one of {codes:?}")),
            },
            Expected::Understood => {
                if code.is_some_and(|code| PROTOCOL.contains(&code)) {
                    faults.push(format!("refused with code {code:?}"));
                }
                if answer.succeeded() && verb == "ADD" {
                    faults.extend(result(document.as_ref(), config));
                }
            }
        }
        if !faults.is_empty() {
            faults.push(format!("{answer:?}"));
        }
        Self(faults)
    }

    pub(crate) fn fault(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }
}

/// What is wrong with the result of an ADD by the layout of the configuration's version.
fn result(result: Option<&Value>, config: &Value) -> Vec<String> {
    let Some(result) = result else { return vec!["ADD printed no result".to_owned()] };
    let mut faults = Vec::new();
    let version = match config["cniVersion"].as_str() {
        Some("") | None => "0.1.0",
        Some(version) => version,
    };
    if result["cniVersion"] != version {
        faults.push(format!("the result is in {}", result["cniVersion"]));
    }
    let Some(numbers) = numbers(version) else { return faults };
    if numbers < (0, 3, 0) {
        // Its layout is of single addresses, which our plugin does not speak.
        return faults;
    }
    let list = |key: &str| result[key].as_array().cloned().unwrap_or_default();
    let interfaces = list("interfaces");
    for ip in list("ips") {
        let six = ip["address"].as_str().unwrap_or_default().contains(':');
        let family = if six { "6" } else { "4" };
        match ip.get("version") {
            Some(version) if numbers < (1, 0, 0) && *version == family => (),
            None if numbers >= (1, 0, 0) => (),
            _ if !config["prevResult"].is_null() => (),
            other => faults.push(format!("ips[].version is {other:?}")),
        }
        if let Some(index) = ip["interface"].as_u64()
            && index >= interfaces.len() as u64
        {
            faults.push(format!("ips[].interface is {index} of {}", interfaces.len()));
        }
    }
    for interface in interfaces {
        let mac = interface["mac"].as_str().unwrap_or_default();
        if mac != mac.to_lowercase() {
            faults.push(format!("the MAC {mac} is in upper case"));
        }
    }
    faults
}
