//! The conflist that tells a runtime to use the plugin, written once the daemon serves.

use std::{io, path::Path};

use serde_json::Value;

use crate::{Config, config::read_text};

const BUILT_IN: &str = include_str!("../../../cni-conf/10-berth.conflist");

#[derive(Debug, thiserror::Error)]
pub enum ConflistError {
    #[error("`cni_conf.source`: cannot read {0:?}")]
    Source(std::path::PathBuf, #[source] io::Error),
    #[error("`cni_conf.source`: it is not a JSON object with `plugins`")]
    NotAConflist,
    #[error("`cni_conf.path`: cannot write {0:?}")]
    Write(std::path::PathBuf, #[source] io::Error),
}

/// Whether what is to be installed can be: before anything is served.
pub(crate) fn check(config: &Config) -> Result<(), ConflistError> {
    if config.conflist.is_some() { wanted(config).map(drop) } else { Ok(()) }
}

fn wanted(config: &Config) -> Result<Vec<u8>, ConflistError> {
    let text = match &config.conflist_source {
        Some(source) => {
            read_text(source).map_err(|err| ConflistError::Source(source.clone(), err))?
        }
        None => BUILT_IN.to_owned(),
    };
    adapted(&text, config)
}

/// Writes it where the configuration says, unless the same is there already: runtimes reload on
/// every change.
pub(crate) fn install(config: &Config) -> Result<(), ConflistError> {
    let Some(path) = &config.conflist else { return Ok(()) };
    let bytes = wanted(config)?;
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    write(path, &bytes).map_err(|err| ConflistError::Write(path.clone(), err))
}

/// Tells the plugin of paths that are not its defaults.
fn adapted(text: &str, config: &Config) -> Result<Vec<u8>, ConflistError> {
    let mut document: Value =
        serde_json::from_str(text).map_err(|_| ConflistError::NotAConflist)?;
    let plugins = document
        .get_mut("plugins")
        .and_then(Value::as_array_mut)
        .ok_or(ConflistError::NotAConflist)?;
    let ours = plugins.iter_mut().filter(|plugin| plugin["type"] == "berth");
    for plugin in ours.filter_map(Value::as_object_mut) {
        let spool = config.state_directory.join("spool");
        let paths = [
            ("socket", config.socket.as_path(), Path::new("/run/berth/berth.sock")),
            ("spoolDir", spool.as_path(), Path::new("/var/lib/berth/spool")),
        ];
        for (name, path, default) in paths {
            if path != default {
                plugin.entry(name).or_insert_with(|| path.display().to_string().into());
            }
        }
        if config.host_prefix.as_str() != berth_types::DEFAULT_HOST_PREFIX {
            plugin.entry("hostPrefix").or_insert_with(|| config.host_prefix.as_str().into());
        }
    }
    let mut bytes =
        serde_json::to_vec_pretty(&document).map_err(|_| ConflistError::NotAConflist)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A runtime only notices a rename within the directory: see `durable::replace`.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    berth_types::durable::replace(path, bytes, 0o644)
}
