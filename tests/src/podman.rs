use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    Recorder, image,
    mounts::{remove_control_groups, unmount_below},
    process::{kill_with_children, with_command_line},
};

/// Debian's podman with its CNI backend, all of its state in a directory of its own.
#[derive(Debug)]
pub struct Podman {
    directory: PathBuf,
    cgroup: String,
}

/// podman's locks lie there, of every podman of the machine alike: ours gets its own.
const LOCKS: &str = "mount -t tmpfs tmpfs /dev/shm";

/// Name of podman's network, which is the conflist's.
const NETWORK: &str = "berth";

impl Podman {
    /// Loads the image and installs the plugin `berth` with what records its calls.
    pub fn set_up(directory: &Path, plugin: &Path) -> (Self, Recorder) {
        let directory = directory.join("podman");
        for part in ["root", "run", "tmp", "net.d", "bin"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        berth_testkit::run(LOCKS);
        let recorder = Recorder::install(&directory.join("bin/berth"), plugin);
        fs::write(directory.join("containers.conf"), configuration(&directory)).unwrap();
        let cgroup =
            format!("/berth-podman-{}-{}", std::process::id(), crate::fresh_id().split_at(6).0);
        let this = Self { directory, cgroup };
        let archive = image::pack(&this.directory);
        this.run(&format!("load --quiet --input {}", archive.display()));
        (this, recorder)
    }

    pub fn conf_directory(&self) -> PathBuf {
        self.directory.join("net.d")
    }

    /// Starts a container that serves HTTP; its id.
    #[track_caller]
    pub fn run_server(&self, name: &str, options: &str) -> String {
        let cgroup = &self.cgroup;
        let image = image::NAME;
        let out = self.run(&format!(
            "run --detach --name {name} --network {NETWORK} --cgroup-parent {cgroup} {options} \
             {image} httpd -f -p 80 -h /www"
        ));
        out.trim().to_owned()
    }

    /// What a reboot leaves: every container and its monitor killed, their namespaces gone, and
    /// nothing in the run directories. What lies on disk stays.
    pub fn wipe(&self) {
        let root = self.directory.join("root").display().to_string();
        kill_with_children(&with_command_line(&["conmon", &root]));
        for entry in fs::read_dir("/run/netns").unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            // podman's own are called netns-UUID.
            if name.starts_with("netns-") {
                berth_testkit::ip(&format!("netns delete {name}"));
            }
        }
        unmount_below(&self.directory);
        for part in ["run", "tmp"].map(|part| self.directory.join(part)) {
            fs::remove_dir_all(&part).unwrap();
            fs::create_dir(part).unwrap();
        }
        let _ = fs::remove_dir_all("/run/runc");
        berth_testkit::run("umount /dev/shm");
        berth_testkit::run(LOCKS);
    }

    /// podman with these arguments; its stdout.
    #[track_caller]
    pub fn run(&self, arguments: &str) -> String {
        let output = self.output(arguments);
        assert!(
            output.status.success(),
            "podman {arguments}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn output(&self, arguments: &str) -> Output {
        let part = |name: &str| self.directory.join(name);
        Command::new("podman")
            .arg("--root")
            .arg(part("root"))
            .arg("--runroot")
            .arg(part("run"))
            .arg("--tmpdir")
            .arg(part("tmp"))
            .arg("--network-config-dir")
            .arg(part("net.d"))
            .args(arguments.split_whitespace())
            .env("CONTAINERS_CONF", part("containers.conf"))
            .output()
            .expect("podman is installed (Debian: podman)")
    }
}

impl Drop for Podman {
    /// Whatever the test has left: containers with their conmons, mounts and control groups.
    fn drop(&mut self) {
        let _ = self.output("rm --all --force --time 0");
        unmount_below(&self.directory);
        remove_control_groups(&self.cgroup);
    }
}

fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    // default_ulimits: a machine without CAP_SYS_RESOURCE may not raise them.
    format!(
        r#"[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1000:1000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "cni"
network_config_dir = "{directory}/net.d"
cni_plugin_dirs = ["{directory}/bin", "/usr/lib/cni"]
default_network = "{NETWORK}"
"#
    )
}
