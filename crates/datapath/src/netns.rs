use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::mpsc,
};

use berth_types::NetnsId;
use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, setns},
    sys::statfs::{NSFS_MAGIC, fstatfs},
};
use tokio::sync::oneshot;

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
#[derive(Debug)]
pub struct PodNetns {
    file: File,
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
        let (_, own) = open(Path::new("/proc/thread-self/ns/net"))?;
        if id == own {
            return Err(NetnsError::Own(path.to_owned()));
        }
        Ok(Self { file, id })
    }

    pub fn id(&self) -> NetnsId {
        self.id
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
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
    let found = file.metadata().map_err(failed)?;
    Ok((file, NetnsId { device: found.dev(), inode: found.ino() }))
}

/// Whether an open nsfs file is a network namespace and not one of another kind.
fn is_network(namespace: &File) -> bool {
    // linux/nsfs.h: NS_GET_NSTYPE, `_IO(0xb7, 0x3)`; it answers the CLONE_NEW* flag.
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    #[expect(unsafe_code, reason = "an ioctl that takes no argument, on a descriptor that is open")]
    let kind = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_NSTYPE) };
    kind == libc::CLONE_NEWNET
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that has entered a pod's namespace, for the things that follow the thread and not a
/// descriptor: making sockets, and /proc/sys/net. It ends when this is dropped and is never used
/// for anything else.
#[derive(Debug)]
pub(crate) struct Inside {
    jobs: mpsc::Sender<Job>,
}

impl Inside {
    pub(crate) async fn enter(netns: &PodNetns) -> io::Result<Self> {
        let namespace = netns.file.try_clone()?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let (entered, has_entered) = oneshot::channel();
        std::thread::Builder::new().name("pod-netns".to_owned()).spawn(move || {
            let result = setns(&namespace, CloneFlags::CLONE_NEWNET);
            drop(namespace);
            let inside = result.is_ok();
            if entered.send(result).is_ok() && inside {
                queue.iter().for_each(|job| job());
            }
        })?;
        has_entered.await.map_err(io::Error::other)??;
        Ok(Self { jobs })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move || drop(answer.send(job())));
        self.jobs.send(job).map_err(|_| io::Error::other("the namespace's thread has ended"))?;
        answered.await.map_err(io::Error::other)?
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
}
