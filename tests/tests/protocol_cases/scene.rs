use std::{collections::HashMap, path::PathBuf};

use berth_tests::{Addresses, Call, Node, Pod, Snapshot};
use serde_json::{Value, json};

/// An address of the built-in pod CIDR that the pool does not give out by itself so early.
pub(crate) const FREE_IP: &str = "172.16.240.77";

/// What a case plays on: the node, the pods made for it, and what its placeholders stand for.
pub(crate) struct Scene<'node> {
    pub(crate) node: &'node mut Node,
    /// The kernel before the first call.
    pub(crate) before: Snapshot,
    /// `{ID}` and `{NETNS}`.
    pub(crate) pod: Pod,
    /// The further pods of `given`, by the name that the case has for them.
    pub(crate) others: HashMap<&'static str, Pod>,
    /// The result of the ADD that came before.
    pub(crate) result: Option<Value>,
    /// Where the case wants the plugin to have its spool.
    pub(crate) spool: Option<PathBuf>,
    /// A link that was there before us, as `ip` showed it.
    pub(crate) foreign_link: Option<String>,
    /// `{FILE}`: an ordinary file.
    pub(crate) file: PathBuf,
}

impl<'node> Scene<'node> {
    pub(crate) fn new(node: &'node mut Node, before: Snapshot) -> Self {
        let file = node.directory().join("ordinary-file");
        std::fs::write(&file, "untouched").unwrap();
        Self {
            node,
            before,
            pod: Pod::new(),
            others: HashMap::new(),
            result: None,
            spool: None,
            foreign_link: None,
            file,
        }
    }

    pub(crate) fn add(&mut self) -> Value {
        let result = self.node.add(&self.pod).result();
        self.result = Some(result.clone());
        result
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses::of_result(self.result.as_ref().unwrap())
    }

    pub(crate) fn fill(&self, text: &str) -> String {
        let mut filled = text
            .replace("{ID}", &self.pod.id)
            .replace("{NETNS}", &self.pod.netns_text())
            .replace("{PATH}", "/usr/lib/cni")
            .replace("{FREE_IP}", FREE_IP)
            .replace("{GONE}", "/run/netns/never-was")
            .replace("{FILE}", &self.file.display().to_string());
        for (name, pod) in &self.others {
            filled = filled.replace(&format!("{{{name}}}"), &pod.id);
        }
        assert!(!filled.contains(['{', '}']), "unknown placeholder in {text}");
        filled
    }

    /// Placeholders anywhere in a document; `{RESULT}` stands for a whole one.
    pub(crate) fn fill_all(&self, document: &Value) -> Value {
        match document {
            Value::String(text) if text == "{RESULT}" || text == "{CHAIN_RESULT}" => {
                self.result.clone().unwrap()
            }
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.fill_all(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => document.clone(),
        }
    }

    /// The network configuration of the case with what the scene adds to it.
    pub(crate) fn configure(&self, config: &Value) -> Value {
        let mut config = config.clone();
        if let Some(spool) = &self.spool {
            config["spoolDir"] = json!(spool);
        }
        config
    }

    /// Deletes whatever the case has left on purpose; then nothing may be left.
    pub(crate) fn clean_up(self) {
        if !self.node.is_running() {
            self.node.start();
        }
        for record in self.node.ctl("pods").as_array().unwrap() {
            let text = |name: &str| record[name].as_str().unwrap();
            Call::network("DEL")
                .environment("CNI_CONTAINERID", text("container_id"))
                .environment("CNI_IFNAME", text("interface"))
                .environment("CNI_NETNS", text("netns"))
                .input(&berth_tests::network_config())
                .run()
                .nothing();
        }
        self.node.assert_no_trace_since(&self.before);
    }
}
