use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use berth_testkit::run;
use serde_json::json;
use sha2::{Digest, Sha256};

pub(crate) const NAME: &str = "berth.test/busybox:1";

/// Packs Debian's static busybox as an image archive that every runtime can load: no registry is
/// asked. Without a command given it sleeps, so it serves as the sandbox's image too.
pub(crate) fn pack(directory: &Path) -> PathBuf {
    let work = directory.join("image");
    let root = work.join("root");
    for path in ["bin", "etc", "proc", "sys", "dev", "tmp", "www"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/busybox"))
        .expect("busybox is installed (Debian: busybox-static)");
    for applet in ["sh", "sleep", "httpd", "ip", "cat", "hostname"] {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").unwrap();
    fs::write(root.join("www/index.html"), "served from a pod\n").unwrap();

    let layer = work.join("layer.tar");
    let (to, from) = (layer.display(), root.display());
    run(&format!(
        "tar --create --file {to} --owner 0 --group 0 --numeric-owner --directory {from} ."
    ));
    let digest = hex(&fs::read(&layer).unwrap());
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "2000000000"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let config = config.to_string();
    let config_name = format!("{}.json", hex(config.as_bytes()));
    fs::write(work.join(&config_name), config).unwrap();
    let manifest = json!([{"Config": config_name, "RepoTags": [NAME], "Layers": ["layer.tar"]}]);
    fs::write(work.join("manifest.json"), manifest.to_string()).unwrap();

    let archive = directory.join("image.tar");
    run(&format!(
        "tar --create --file {} --directory {} manifest.json {config_name} layer.tar",
        archive.display(),
        work.display()
    ));
    archive
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
