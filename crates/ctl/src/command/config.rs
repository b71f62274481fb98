use std::collections::BTreeMap;

use berth_proto::v1;
use serde::Serialize;
use serde_json::Value;

use crate::{daemon::Daemon, exit::Exit, failure::Failure, output::Output, table::table};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("the daemon's configuration is not JSON")]
    NotJson(#[source] serde_json::Error),
}

/// `config show -o json`.
#[derive(Debug, Serialize)]
pub(super) struct ConfigView {
    pub(super) version: String,
    pub(super) generation: u64,
    config: Value,
    /// Field path to `default`, `file` or `environment`.
    sources: BTreeMap<String, String>,
}

impl ConfigView {
    /// A field at the top that holds a text.
    pub(super) fn text(&self, field: &str) -> Option<String> {
        self.config.get(field)?.as_str().map(str::to_owned)
    }

    /// Every value with its path, objects taken apart: `log.level` and `info`.
    fn fields(&self) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        flatten(String::new(), &self.config, &mut fields);
        fields
    }

    /// Where the value at `path` comes from: named itself, or one of the objects around it is.
    fn source(&self, path: &str) -> String {
        let mut path = path;
        loop {
            if let Some(source) = self.sources.get(path) {
                return source.clone();
            }
            match path.rsplit_once('.') {
                Some((around, _)) => path = around,
                None => return String::new(),
            }
        }
    }
}

impl TryFrom<v1::GetConfigReply> for ConfigView {
    type Error = ConfigError;

    fn try_from(wire: v1::GetConfigReply) -> Result<Self, ConfigError> {
        Ok(Self {
            version: wire.version,
            generation: wire.generation,
            config: serde_json::from_str(&wire.json).map_err(ConfigError::NotJson)?,
            sources: wire.sources.into_iter().collect(),
        })
    }
}

fn flatten(path: String, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(path, value, into);
            }
        }
        Value::String(text) => {
            into.insert(path, text.clone());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            into.insert(path, value.to_string());
        }
    }
}

pub(super) async fn run(daemon: &Daemon, output: &mut Output) -> Result<Exit, Failure> {
    let reply = daemon.ask(daemon.inspect().get_config(v1::GetConfigRequest {})).await?;
    output.show(&ConfigView::try_from(reply)?, |view| {
        let rows = view.fields().into_iter().map(|(path, value)| {
            let source = view.source(&path);
            [path, value, source]
        });
        format!("generation {}\n\n{}", view.generation, table(["FIELD", "VALUE", "FROM"], rows))
    })?;
    Ok(Exit::Fine)
}
