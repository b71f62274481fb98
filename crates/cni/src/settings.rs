//! The keys of the configuration that are ours. Each is read by the verb that needs it: a DEL is
//! not refused for what only concerns ADD.

use std::{path::PathBuf, time::Duration};

use berth_types::HostPrefix;
use serde_json::{Map, Value};

use crate::error::CniError;

const DEFAULT_SOCKET: &str = "/run/berth/berth.sock";
const DEFAULT_SPOOL: &str = "/var/lib/berth/spool";
/// Shorter than the shortest deadline of a runtime for the whole pod (CRI: 4 minutes), so that
/// the plugin gives up by itself and cleans up.
const DEFAULT_ADD_SECONDS: u64 = 110;
/// A daemon restarts in a second or two; a node need not turn NotReady for that.
const DEFAULT_GRACE_SECONDS: u64 = 15;
/// sun_path of unix(7), without its final zero.
const LONGEST_SOCKET_PATH: usize = 107;

#[derive(Debug)]
pub(crate) struct Settings(pub(crate) Map<String, Value>);

impl Settings {
    /// Where the daemon listens.
    pub(crate) fn socket(&self) -> Result<PathBuf, CniError> {
        let path = self.path("socket", DEFAULT_SOCKET)?;
        if path.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(self.refuse("socket", "longer than the 107 bytes of a socket's path"));
        }
        Ok(path)
    }

    /// Where releases wait for a daemon that is away.
    pub(crate) fn spool_dir(&self) -> Result<PathBuf, CniError> {
        self.path("spoolDir", DEFAULT_SPOOL)
    }

    /// Must be the daemon's, or a DEL without the daemon does not find the pod's link.
    pub(crate) fn host_prefix(&self) -> Result<HostPrefix, CniError> {
        match self.present("hostPrefix") {
            None => Ok(HostPrefix::default()),
            Some(Value::String(text)) => text.parse().map_err(|_| {
                self.refuse("hostPrefix", "2 to 5 lower-case letters or digits are allowed")
            }),
            Some(_) => Err(self.refuse("hostPrefix", "a string is needed")),
        }
    }

    pub(crate) fn add_timeout(&self) -> Result<Duration, CniError> {
        self.seconds("addTimeout", 1, DEFAULT_ADD_SECONDS)
    }

    pub(crate) fn status_grace(&self) -> Result<Duration, CniError> {
        self.seconds("statusGrace", 0, DEFAULT_GRACE_SECONDS)
    }

    fn path(&self, key: &'static str, default: &str) -> Result<PathBuf, CniError> {
        match self.present(key) {
            None => Ok(default.into()),
            Some(Value::String(text)) if text.starts_with('/') && !text.contains('\0') => {
                Ok(text.into())
            }
            Some(_) => Err(self.refuse(key, "an absolute path is needed")),
        }
    }

    fn seconds(&self, key: &'static str, least: u64, default: u64) -> Result<Duration, CniError> {
        let most = 3600;
        let seconds = match self.present(key) {
            None => Some(default),
            Some(value) => value.as_u64().filter(|seconds| (least..=most).contains(seconds)),
        };
        seconds.map(Duration::from_secs).ok_or_else(|| {
            self.refuse(key, &format!("whole seconds from {least} to {most} are allowed"))
        })
    }

    fn present(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn refuse(&self, key: &str, problem: &str) -> CniError {
        refuse(key, self.0.get(key).unwrap_or(&Value::Null), problem)
    }
}

/// Names key and value, as the spec wants it; the value cut, since it may be anything.
pub(crate) fn refuse(key: &str, value: &Value, problem: &str) -> CniError {
    let value = value.to_string().chars().take(64).collect();
    CniError::Config { key: key.to_owned(), value, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(value: Value) -> Settings {
        Settings(value.as_object().unwrap().clone())
    }

    #[test]
    fn nothing_set_gives_the_documented_defaults() {
        for empty in [json!({}), json!({"socket": null, "addTimeout": null, "hostPrefix": null})] {
            let settings = settings(empty);
            assert_eq!(settings.socket().unwrap(), PathBuf::from("/run/berth/berth.sock"));
            assert_eq!(settings.spool_dir().unwrap(), PathBuf::from("/var/lib/berth/spool"));
            assert_eq!(settings.host_prefix().unwrap().as_str(), "bth");
            assert_eq!(settings.add_timeout().unwrap(), Duration::from_secs(110));
            assert_eq!(settings.status_grace().unwrap(), Duration::from_secs(15));
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_key_and_value() {
        let long = format!("/{}", "a".repeat(107));
        let bad = [
            ("socket", json!(5)),
            ("socket", json!("run/x")),
            ("socket", json!("/a\0b")),
            ("socket", json!(long)),
            ("spoolDir", json!("")),
            ("hostPrefix", json!("UPPER")),
            ("hostPrefix", json!(["bth"])),
            ("addTimeout", json!(0)),
            ("addTimeout", json!("5")),
            ("addTimeout", json!(1.5)),
            ("statusGrace", json!(-1)),
            ("statusGrace", json!(1e9)),
        ];
        for (key, value) in bad {
            let settings = settings(json!({key: value}));
            let err = match key {
                "socket" => settings.socket().unwrap_err(),
                "spoolDir" => settings.spool_dir().unwrap_err(),
                "hostPrefix" => settings.host_prefix().unwrap_err(),
                "addTimeout" => settings.add_timeout().unwrap_err(),
                _ => settings.status_grace().unwrap_err(),
            };
            assert_eq!(err.code(), 7);
            let text = err.to_string();
            let shown: String = value.to_string().chars().take(64).collect();
            assert!(
                text.starts_with(&format!("{key} in the network configuration is {shown}: ")),
                "{text}"
            );
        }
    }
}
