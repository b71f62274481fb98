use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::{Node, Pod, binary};

/// cnitool 1.3, which is libcni 1.3 with a command line: the code that newer runtimes have inside.
#[derive(Debug)]
pub struct Cnitool {
    lists: PathBuf,
    plugins: String,
}

impl Cnitool {
    /// With `list` alone, as it is, and our plugin beside Debian's.
    pub fn beside(node: &Node, list: &Path) -> Self {
        let (lists, plugins) = (node.directory().join("lists"), node.directory().join("plugins"));
        for directory in [&lists, &plugins] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::copy(list, lists.join("10-berth.conflist")).unwrap();
        std::os::unix::fs::symlink(binary("berth"), plugins.join("berth")).unwrap();
        Self { lists, plugins: format!("{}:/usr/lib/cni", plugins.display()) }
    }

    /// Where `cargo xtask test` puts it.
    fn program() -> PathBuf {
        let daemon = binary("berthd");
        let target = daemon.ancestors().nth(2).expect("programs lie in target/PROFILE");
        let program = target.join("go/bin/cnitool");
        let how = "`cargo xtask test` builds it; it takes Go and the Go module proxy";
        assert!(program.exists(), "cnitool is not at {}: {how}", program.display());
        program
    }

    /// One verb for eth0 of `pod` with what a runtime would hand to the capabilities.
    pub fn output(&self, verb: &str, pod: &Pod, capabilities: &Value) -> Output {
        Command::new(Self::program())
            .args([verb, "berth", &pod.netns_text()])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("NETCONFPATH", &self.lists)
            .env("CNI_PATH", &self.plugins)
            .env("CAP_ARGS", capabilities.to_string())
            .output()
            .unwrap()
    }

    /// A verb that must succeed; its stdout.
    #[track_caller]
    pub fn run(&self, verb: &str, pod: &Pod, capabilities: &Value) -> String {
        let output = self.output(verb, pod, capabilities);
        assert!(output.status.success(), "cnitool {verb}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
