use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use berth_types::NetnsId;
use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, setns},
    sys::statfs::{NSFS_MAGIC, fstatfs},
};

#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("network namespace {0:?} does not exist")]
    Missing(PathBuf),
    #[error("{0:?} is not a network namespace")]
    NotANamespace(PathBuf),
    #[error("{0:?} is the host's own network namespace")]
    Own(PathBuf),
    #[error("network namespace {path:?} cannot be opened")]
    Open { path: PathBuf, source: io::Error },
}

/// An open network namespace that is not our own. It lives at least as long as this.
#[derive(Debug, Clone)]
pub struct PodNetns {
    file: Arc<File>,
    id: NetnsId,
}

/// Identity of the namespace at `path`, without entering it. Whatever else is at the path is
/// never opened, so a fifo does not block and a device does not act.
pub fn identify(path: &Path) -> Result<NetnsId, NetnsError> {
    open(path).map(|(_, id)| id)
}

impl PodNetns {
    pub fn open(path: &Path) -> Result<Self, NetnsError> {
        let (file, id) = open(path)?;
        let own = Path::new("/proc/thread-self/ns/net");
        let failed = |source| NetnsError::Open { path: own.to_owned(), source };
        if id == id_of(&own.metadata().map_err(failed)?) {
            return Err(NetnsError::Own(path.to_owned()));
        }
        Ok(Self { file: Arc::new(file), id })
    }

    pub fn id(&self) -> NetnsId {
        self.id
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Runs `job` with the calling thread in this namespace: for the things that follow the thread
    /// and not a descriptor, which are making sockets, and /proc/sys/net.
    ///
    /// No thread goes on in a namespace that is not its own. `job` is a plain call, so no other
    /// task of an event loop comes in between; the way back is open before the thread leaves, is
    /// taken on a panic too, and where the kernel refuses it the process ends at once. Only
    /// the calling thread is ever away. A thread that `job` starts would be as well, and for good:
    /// it must start none.
    pub(crate) fn within<T>(&self, job: impl FnOnce() -> T) -> io::Result<T> {
        let own = File::open("/proc/thread-self/ns/net")?;
        setns(&self.file, CloneFlags::CLONE_NEWNET)?;
        // Only now: whoever may not enter may not come back either, and never left.
        let back = WayBack(own);
        let done = job();
        drop(back);
        Ok(done)
    }
}

fn open(path: &Path) -> Result<(File, NetnsId), NetnsError> {
    let failed = |source: io::Error| {
        let errno = Errno::from_raw(source.raw_os_error().unwrap_or(0));
        // ESRCH: the process whose /proc entry it was has gone between two steps of the lookup.
        if matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH) {
            NetnsError::Missing(path.to_owned())
        } else {
            NetnsError::Open { path: path.to_owned(), source }
        }
    };
    // O_PATH takes hold of the file without opening it.
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
    let place = place.map_err(failed)?;
    let filesystem = fstatfs(&place).map_err(|errno| failed(errno.into()))?;
    if filesystem.filesystem_type() != NSFS_MAGIC {
        return Err(NetnsError::NotANamespace(path.to_owned()));
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(failed)?;
    if !is_network(&file) {
        return Err(NetnsError::NotANamespace(path.to_owned()));
    }
    let id = id_of(&file.metadata().map_err(failed)?);
    Ok((file, id))
}

fn id_of(namespace: &Metadata) -> NetnsId {
    NetnsId { device: namespace.dev(), inode: namespace.ino() }
}

/// Whether an open nsfs file is a network namespace and not one of another kind.
fn is_network(namespace: &File) -> bool {
    // linux/nsfs.h: NS_GET_NSTYPE, `_IO(0xb7, 0x3)`; it answers the CLONE_NEW* flag.
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    #[expect(unsafe_code, reason = "an ioctl that takes no argument, on a descriptor that is open")]
    let kind = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_NSTYPE) };
    kind == libc::CLONE_NEWNET
}

/// Returns the thread that made it to its own namespace when dropped.
struct WayBack(File);

impl Drop for WayBack {
    fn drop(&mut self) {
        if setns(&self.0, CloneFlags::CLONE_NEWNET).is_err() {
            // Nothing that this thread does from here on would be right, on the host or in the pod.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn what_is_not_a_network_namespace_is_told_from_what_is_missing() {
        let directory = std::env::temp_dir().join(format!("berth-netns-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let fifo = directory.join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR).unwrap();
        let file = directory.join("file");
        std::fs::write(&file, "").unwrap();

        let not: [&Path; 6] = [
            &fifo,
            &file,
            &directory,
            Path::new("/dev/null"),
            Path::new("/proc/self/status"),
            Path::new("/proc/self/ns/mnt"),
        ];
        for path in not {
            assert!(matches!(identify(path), Err(NetnsError::NotANamespace(_))), "{path:?}");
        }
        for path in [directory.join("no"), file.join("below"), "/proc/0/ns/net".into()] {
            assert!(matches!(identify(&path), Err(NetnsError::Missing(_))), "{path:?}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn our_own_namespace_is_refused_by_any_of_its_names() {
        let own = format!("/proc/{}/ns/net", std::process::id());
        for path in [own.as_str(), "/proc/self/ns/net", "/proc/thread-self/ns/net"] {
            let err = PodNetns::open(Path::new(path)).unwrap_err();
            assert!(matches!(err, NetnsError::Own(_)), "{err}");
        }
        assert!(identify(Path::new(&own)).is_ok());
    }

    fn here() -> NetnsId {
        identify(Path::new("/proc/thread-self/ns/net")).unwrap()
    }

    fn new_namespace() -> PodNetns {
        let made = std::thread::spawn(|| {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let (file, id) = open(Path::new("/proc/thread-self/ns/net")).unwrap();
            PodNetns { file: Arc::new(file), id }
        });
        made.join().unwrap()
    }

    #[test]
    fn a_thread_is_back_in_its_own_namespace_whatever_the_job_does() {
        let (own, pod) = (here(), new_namespace());
        assert_ne!(own, pod.id());
        assert_eq!(pod.within(here).unwrap(), pod.id());
        assert_eq!(here(), own);
        let job = || pod.within(|| panic!("as a job should not"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err());
        assert_eq!(here(), own);
    }

    #[test]
    fn a_process_whose_thread_cannot_go_back_ends() {
        const IN_CHILD: &str = "BERTH_TEST_WITHOUT_A_WAY_BACK";
        if std::env::var_os(IN_CHILD).is_some() {
            let null = File::open("/dev/null").unwrap();
            let pod = new_namespace();
            let without_way_back = || {
                for descriptor in 3..64 {
                    #[expect(unsafe_code, reason = "a child that ends with this")]
                    unsafe {
                        libc::dup2(null.as_raw_fd(), descriptor)
                    };
                }
            };
            let _ = pod.within(without_way_back);
            #[expect(clippy::exit, reason = "what the parent must not see")]
            std::process::exit(0);
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "netns::tests::a_process_whose_thread_cannot_go_back_ends"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{child:?}");
    }
}
