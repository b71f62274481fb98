//! Runs the built plugin as a runtime does, and holds every answer to the general rules.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod model;

use std::{
    fs::File,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A node of its own: socket and spool in a directory that ends with it.
pub struct Node {
    pub place: TempDir,
}

pub struct Call {
    command: Command,
    stdin: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Node {
    pub fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap() }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.place.path().join("berth.sock")
    }

    pub fn spool(&self) -> std::path::PathBuf {
        self.place.path().join("spool")
    }

    /// Releases that wait, as JSON, in their order.
    pub fn spooled(&self) -> Vec<Value> {
        let Ok(entries) = self.spool().read_dir() else { return Vec::new() };
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
            .iter()
            .map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
            .collect()
    }

    /// A configuration that points here.
    pub fn config(&self, version: &str) -> Value {
        json!({
            "cniVersion": version, "name": "berth-test", "type": "berth",
            "socket": self.socket(), "spoolDir": self.spool(),
        })
    }

    /// A verb for container `c1` and `eth0` in a namespace that does not exist.
    pub fn call(&self, verb: &str, config: &Value) -> Call {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", "c1")
            .env("CNI_NETNS", "/run/netns/absent")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0");
        Call { command, stdin: config.to_string().into_bytes() }
    }
}

impl Call {
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        bytes.clone_into(&mut self.stdin);
        self
    }

    pub fn stdout_to(mut self, path: &Path) -> Self {
        self.command.stdout(File::options().write(true).open(path).unwrap());
        self
    }

    pub fn run(self) -> Answer {
        self.run_with(Stdio::piped())
    }

    pub fn run_to(self, path: &str) -> Answer {
        self.run_with(File::options().write(true).open(path).unwrap().into())
    }

    fn run_with(mut self, stdout: Stdio) -> Answer {
        let began = tokio::time::Instant::now();
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A plugin that does not read it closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(&self.stdin);
        let output = child.wait_with_output().unwrap();
        let answer = Answer {
            exit: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            took: began.elapsed(),
        };
        answer.hold_to_the_rules();
        answer
    }
}

impl Answer {
    /// stdout is empty or one document, and a failure says so in it with exit status 1.
    fn hold_to_the_rules(&self) {
        if self.exit == Some(1) && !self.stdout.is_empty() {
            let document = self.document();
            assert!(document["code"].as_i64().is_some_and(|code| code > 0), "{self:?}");
            assert!(document["msg"].as_str().is_some_and(|msg| !msg.is_empty()), "{self:?}");
            assert!(document["cniVersion"].is_string(), "{self:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }

    #[track_caller]
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|err| panic!("{err}: {self:?}"))
    }

    #[track_caller]
    pub fn succeeded(&self) -> Value {
        assert_eq!(self.exit, Some(0), "{self:?}");
        self.document()
    }

    #[track_caller]
    pub fn succeeded_silently(&self) {
        assert_eq!((self.exit, self.stdout.as_str()), (Some(0), ""), "{self:?}");
    }

    /// The text of the error: msg and details.
    #[track_caller]
    pub fn failed(&self, code: i64) -> String {
        assert_eq!(self.exit, Some(1), "{self:?}");
        let document = self.document();
        assert_eq!(document["code"], json!(code), "{self:?}");
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        format!("{}; {}", text("msg"), text("details"))
    }
}
