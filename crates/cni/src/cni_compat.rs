//! The only module that knows the crate `cni-plugin`.
//!
//! It is used for three documents: configuration, version and error. The crate stops at CNI 1.0.0
//! and is archived, so verbs, validation, runtime configuration and result layouts are ours, and
//! what its types cannot hold is lifted out before it sees the document.

use cni_plugin::{
    config::NetworkConfig,
    reply::{ErrorReply, VersionReply},
};
use semver::Version;
use serde_json::{Map, Value};

use crate::{error::CniError, verb::SpecVersion};

/// A configuration as the runtime sent it, in parts.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) name: String,
    /// `args`, and all keys that the spec does not know.
    pub(crate) args: Map<String, Value>,
    pub(crate) specific: Map<String, Value>,
    /// Keys that the crate's types refuse or would lose something of, as they came.
    pub(crate) runtime_config: Value,
    pub(crate) dns: Value,
    pub(crate) previous: Value,
}

/// `version` has been checked against the document. A null is the same as an absent key, as it
/// is to Go; only in keys that are not of the spec it may mean something.
pub(crate) fn parts(
    mut document: Map<String, Value>,
    version: SpecVersion,
) -> Result<Parts, CniError> {
    let mut lift = |key: &str| document.remove(key).unwrap_or(Value::Null);
    let (runtime_config, dns, previous) = (lift("runtimeConfig"), lift("dns"), lift("prevResult"));
    // Of others' concern, and the crate is strict about their form.
    for key in ["ipam", "ipMasq", "capabilities"] {
        lift(key);
    }
    if document.get("args").is_some_and(Value::is_null) {
        document.remove("args");
    }
    // An absent version has a meaning to libcni and none to the crate.
    document.insert("cniVersion".to_owned(), version.as_str().into());
    let config: NetworkConfig =
        serde_json::from_value(Value::Object(document)).map_err(CniError::Document)?;
    Ok(Parts {
        name: config.name,
        args: config.args.into_iter().collect(),
        specific: config.specific.into_iter().collect(),
        runtime_config,
        dns,
        previous,
    })
}

pub(crate) fn version_reply(version: SpecVersion) -> VersionReply {
    VersionReply {
        cni_version: semantic(version),
        supported_versions: SpecVersion::ALL.map(semantic).to_vec(),
    }
}

pub(crate) fn error_reply(
    version: SpecVersion,
    code: i32,
    msg: &str,
    details: String,
) -> ErrorReply<'_> {
    ErrorReply { cni_version: semantic(version), code, msg, details }
}

fn semantic(version: SpecVersion) -> Version {
    Version::parse(version.as_str()).expect("the table of versions holds versions")
}
