//! The guest: Debian's kernel, a root file system of Debian's packages, and what Berth installs.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::step::{check, output, root, target};

/// Beside what every Debian has: what the units need, and the tools that look at the result.
const PACKAGES: &str = "systemd,systemd-sysv,iproute2,iputils-ping,nftables,kmod";

/// What it takes to mount the root file system; all else is loaded when it is asked for.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4"];

/// Everything of the guest is here, and may be removed at any time.
pub(super) fn place() -> PathBuf {
    target().join("vm")
}

fn tree() -> PathBuf {
    place().join("root")
}

pub(super) fn kernel() -> PathBuf {
    place().join("vmlinuz")
}

pub(super) fn initramfs() -> PathBuf {
    place().join("initramfs.gz")
}

pub(super) fn disk() -> PathBuf {
    place().join("root.img")
}

/// The disk anew, with the programs as they are now; what Debian gives is kept from the last time.
pub(super) fn make() -> Result<()> {
    fs::create_dir_all(place())?;
    let release = unpack_kernel()?;
    bootstrap()?;
    install(&release)?;
    make_initramfs(&release)?;
    let image = disk();
    let _ = fs::remove_file(&image);
    File::create(&image)?.set_len(1 << 30)?;
    // Filled without being mounted.
    let mut make = Command::new("/sbin/mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-d"]).arg(tree()).arg(&image);
    check(&mut make)
}

/// Answers the kernel's release.
fn unpack_kernel() -> Result<String> {
    let unpacked = place().join("kernel");
    if !kernel().exists() {
        let depends = output("apt-cache depends linux-image-cloud-amd64")
            .context("the guest runs Debian's cloud kernel, which this machine's apt must know")?;
        let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let package = package.context("linux-image-cloud-amd64 depends on no kernel")?.to_owned();
        let downloads = place().join("downloads");
        let _ = fs::remove_dir_all(&downloads);
        fs::create_dir_all(&downloads)?;
        // apt drops its rights for a download, and may not write here.
        check(
            Command::new("apt-get")
                .args(["download", "-qq", "-o", "APT::Sandbox::User=root", &package])
                .current_dir(&downloads),
        )?;
        let archive = only_entry(&downloads)?;
        check(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&unpacked))?;
        let image = only_entry_like(&unpacked.join("boot"), "vmlinuz-")?;
        fs::copy(image, kernel())?;
    }
    let modules = only_entry(&unpacked.join("lib/modules"))?;
    let release = modules.file_name().context("a directory has a name")?;
    let release = release.to_string_lossy().into_owned();
    check(Command::new("/sbin/depmod").arg("-b").arg(&unpacked).arg(&release))?;
    Ok(release)
}

fn only_entry(directory: &Path) -> Result<PathBuf> {
    only_entry_like(directory, "")
}

fn only_entry_like(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    ensure!(found.len() == 1, "{}: {} files, not one", directory.display(), found.len());
    Ok(found.remove(0))
}

/// In the release of this machine, so that the programs built here run there.
fn bootstrap() -> Result<()> {
    if tree().join("usr/bin/systemctl").exists() {
        return Ok(());
    }
    let _ = fs::remove_dir_all(tree());
    let os = fs::read_to_string("/etc/os-release")?;
    let codename = os.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("/etc/os-release names no VERSION_CODENAME")?;
    let half = place().join("root.half");
    let _ = fs::remove_dir_all(&half);
    let include = format!("--include={PACKAGES}");
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &include, codename]).arg(&half);
    check(&mut debootstrap)?;
    // This one is not broken off in the middle.
    check(Command::new("mv").arg(&half).arg(tree()))
}

/// As README.md says it, step 2.
fn install(release: &str) -> Result<()> {
    let to = tree();
    let programs = [
        ("berthd", "usr/local/bin/berthd"),
        ("berthctl", "usr/local/bin/berthctl"),
        ("berth", "opt/cni/bin/berth"),
    ];
    for (name, path) in programs {
        let path = to.join(path);
        fs::create_dir_all(path.parent().context("a program lies in a directory")?)?;
        // Debug information is of no use there, and most of the file.
        let built = target().join("debug").join(name);
        check(Command::new("strip").arg("-o").arg(&path).arg(built))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let units = to.join("etc/systemd/system");
    for unit in ["berthd.service", "berthd.socket"] {
        fs::copy(root().join("systemd").join(unit), units.join(unit))?;
    }
    let script = |name: &str, text: &str| -> Result<()> {
        let path = to.join("usr/local/bin").join(name);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    };
    script("power.sh", include_str!("power.sh"))?;
    script("units.sh", include_str!("units.sh"))?;
    fs::write(units.join("berth-check.service"), CHECK)?;
    for (unit, wanted_by) in [
        ("berthd.service", "multi-user.target.wants"),
        ("berthd.socket", "sockets.target.wants"),
        ("berth-check.service", "multi-user.target.wants"),
    ] {
        let directory = units.join(wanted_by);
        fs::create_dir_all(&directory)?;
        let link = directory.join(unit);
        let _ = fs::remove_file(&link);
        symlink(Path::new("/etc/systemd/system").join(unit), link)?;
    }
    fs::create_dir_all(to.join("var/lib/berth"))?;
    let modules = to.join("usr/lib/modules");
    fs::create_dir_all(&modules)?;
    if !modules.join(release).exists() {
        let from = place().join("kernel/lib/modules").join(release);
        check(Command::new("cp").arg("-a").arg(from).arg(&modules))?;
    }
    Ok(())
}

/// Type=simple: what it waits for must not wait for it.
const CHECK: &str = "\
[Unit]
Description=the checks of cargo xtask vm
After=berthd.socket

[Service]
ExecStart=/usr/local/bin/units.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
";

/// A busybox that loads the modules and goes over to the disk.
fn make_initramfs(release: &str) -> Result<()> {
    let tree = place().join("initramfs");
    let _ = fs::remove_dir_all(&tree);
    for directory in ["bin", "dev", "proc", "sys", "new", "modules"] {
        fs::create_dir_all(tree.join(directory))?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox"))?;
    symlink("busybox", tree.join("bin/sh"))?;
    let mut load = String::new();
    for (number, module) in modules(release)?.iter().enumerate() {
        let name = format!("{number:02}.ko");
        fs::copy(module, tree.join("modules").join(&name))?;
        load.push_str(&format!("busybox insmod /modules/{name}\n"));
    }
    let init = format!(
        "#!/bin/sh\nbusybox mount -t devtmpfs dev /dev\nbusybox mount -t proc proc /proc\n{load}\
         busybox mount -t ext4 /dev/vda /new || busybox poweroff -f\n\
         for word in $(busybox cat /proc/cmdline); do case $word in go=*) go=${{word#go=}};; esac; done\n\
         busybox umount /proc\nbusybox mount -o move /dev /new/dev\n\
         exec busybox switch_root /new ${{go:-/sbin/init}}\n"
    );
    fs::write(tree.join("init"), init)?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    let pack = format!("find . | cpio -o -H newc --quiet | gzip -1 > {}", initramfs().display());
    check(Command::new("sh").args(["-c", &pack]).current_dir(&tree))
}

/// The files of the modules in the order in which they are loaded, without repetitions.
fn modules(release: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        let shown = Command::new("/sbin/modprobe")
            .arg("-d")
            .arg(place().join("kernel"))
            .args(["-S", release, "--show-depends", module])
            .output()
            .context("cannot run modprobe")?;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let paths = shown.lines().filter_map(|line| line.strip_prefix("insmod "));
        for path in paths.map(|path| PathBuf::from(path.trim())) {
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    ensure!(!files.is_empty(), "no module of {}", MODULES.join(", "));
    Ok(files)
}
