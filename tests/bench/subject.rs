//! The plugins, as a runtime calls them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use berth_tests::Pod;
use serde_json::{Value, json};

use crate::{
    cell::{Family, Name, Operation},
    spawn::{Timed, execute},
};

const PLUGINS: &str = "/usr/lib/cni";

#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) name: Name,
    pub(crate) program: PathBuf,
    config: Value,
    /// Where the inputs lie.
    directory: PathBuf,
    /// Of host-local, which keeps a file for each address.
    reservations: Option<PathBuf>,
    /// Makes container ids that were never used.
    generation: usize,
}

impl Plugin {
    pub(crate) fn berth(program: &Path, directory: &Path) -> Self {
        let config = json!({"cniVersion": "1.0.0", "name": "berth", "type": "berth"});
        Self::new(Name::Berth, program.to_owned(), config, directory, None)
    }

    /// Debian's, without masquerade: berth's daemon has one rule for all, and rules for each pod
    /// would only make the others slower.
    pub(crate) fn reference(name: Name, family: Family, directory: &Path) -> Self {
        let (third, text) = if name == Name::Ptp { (214, "ptp") } else { (216, "bridge") };
        let reservations = directory.join(format!("host-local-{text}"));
        let mut ranges = vec![json!([{"subnet": format!("10.{third}.0.0/15")}])];
        let mut routes = vec![json!({"dst": "0.0.0.0/0"})];
        if family == Family::Dual {
            ranges.push(json!([{"subnet": format!("fd00:{third}::/64")}]));
            routes.push(json!({"dst": "::/0"}));
        }
        let mut config = json!({
            "cniVersion": "1.0.0", "name": format!("bench-{text}"), "type": text,
            "ipMasq": false, "mtu": 1500,
            "ipam": {
                "type": "host-local", "ranges": ranges, "routes": routes, "dataDir": reservations,
            },
        });
        if name == Name::Bridge {
            config["bridge"] = "bench0".into();
            config["isGateway"] = true.into();
            config["hairpinMode"] = true.into();
        }
        let program = Path::new(PLUGINS).join(text);
        let reservations = Some(reservations.join(format!("bench-{text}")));
        Self::new(name, program, config, directory, reservations)
    }

    fn new(
        name: Name,
        program: PathBuf,
        config: Value,
        directory: &Path,
        reservations: Option<PathBuf>,
    ) -> Self {
        let directory = directory.join(name.as_str());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config"), config.to_string()).unwrap();
        Self { name, program, config, directory, reservations, generation: 0 }
    }

    /// The pods of the calls to come are new ones.
    pub(crate) fn next_generation(&mut self) {
        self.generation += 1;
    }

    /// As many reservations as there would be with `count` pods; from the end of the range, where
    /// host-local looks last.
    pub(crate) fn reserve(&self, count: usize) {
        let Some(directory) = &self.reservations else { return };
        fs::create_dir_all(directory).unwrap();
        let third = if self.name == Name::Ptp { 215 } else { 217 };
        for number in 0..count {
            let (high, low) = (255 - number / 250, number % 250 + 1);
            let path = directory.join(format!("10.{third}.{high}.{low}"));
            fs::write(path, format!("record-{number}\r\neth0")).unwrap();
        }
    }

    /// The calls of `operation` for the pod with this number, from its environment and input.
    pub(crate) fn environment(
        &self,
        operation: Operation,
        index: usize,
        pod: &Pod,
    ) -> Vec<(&'static str, String)> {
        let id = format!("{:032x}{index:032x}", self.generation);
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=pod-{index};\
             K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID=0b7ab4a8-0000-4000-8000-{index:012}"
        );
        let mut environment = vec![
            ("CNI_COMMAND", operation.verb().to_owned()),
            ("CNI_PATH", PLUGINS.to_owned()),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ];
        if operation != Operation::Version {
            environment.extend([
                ("CNI_CONTAINERID", id),
                ("CNI_NETNS", pod.netns_text()),
                ("CNI_IFNAME", "eth0".to_owned()),
                ("CNI_ARGS", arguments),
            ]);
        }
        environment
    }

    /// The file with what the operation reads.
    pub(crate) fn input(&self, operation: Operation, index: usize) -> PathBuf {
        match operation {
            Operation::Check | Operation::Del | Operation::DelAgain => {
                self.directory.join(format!("previous-{index}"))
            }
            Operation::Add | Operation::Version | Operation::AllocRpc => {
                self.directory.join("config")
            }
        }
    }

    pub(crate) fn call(&self, operation: Operation, index: usize, pod: &Pod) -> Timed {
        let environment = self.environment(operation, index, pod);
        execute(&self.program, &environment, Some(&self.input(operation, index)))
    }

    /// What the calls after an ADD get to read with their configuration.
    pub(crate) fn keep_result(&self, index: usize, result: &str) {
        let mut config = self.config.clone();
        config["prevResult"] = serde_json::from_str(result).unwrap();
        fs::write(self.directory.join(format!("previous-{index}")), config.to_string()).unwrap();
    }
}
