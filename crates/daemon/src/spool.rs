//! Releases that the plugin wrote down while the daemon was away.

mod file;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::{Path, PathBuf},
    time::Duration,
};

use berth_core::{Ipam, Release, ReleaseError};
use berth_types::{SpooledRelease, chain, one_line};
use file::Unreadable;
#[cfg(feature = "fuzz")]
pub(crate) use file::parse;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::{Interest, unix::AsyncFd};

use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// How long one spooled release waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// The pause before a release that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Characters of a spooled reason that are kept.
const LONGEST_REASON: usize = 256;

#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    watch: AsyncFd<Watch>,
}

/// What tokio wants of a descriptor.
#[derive(Debug)]
struct Watch(Inotify);

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Spool {
    /// Makes the directory if need be, and watches it from here on: what comes during the first
    /// drain is not missed.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        // What follows changes its mode: not that of a directory elsewhere.
        if !directory.symlink_metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        watch.add_watch(&directory, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE)?;
        #[expect(unsafe_code, reason = "the descriptor is the watch's own and lives as long")]
        let watch = unsafe { AsyncFd::register_with_interest(Watch(watch), Interest::READABLE) }?;
        Ok(Self { directory, watch })
    }

    /// Carries out everything that is there, in the order in which it was written. A file that
    /// is not a release is set aside; one whose release failed, or that cannot be read now, stays.
    /// Answers whether all went.
    pub(crate) async fn drain(&self, ipam: &Ipam) -> io::Result<bool> {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&self.directory)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|it| it == "json"))
            .collect();
        names.sort_unstable();
        let mut all = true;
        for path in names {
            berth_core::fail_point!("daemon::spool::before_release");
            match file::read(&path) {
                Ok(spooled) => {
                    let key = spooled.key.clone();
                    let released = release(ipam, spooled).await;
                    berth_core::fail_point!("daemon::spool::released");
                    match released {
                        Ok(()) => remove(&path),
                        Err(err) => {
                            all = false;
                            warn!(%key, err = %chain(&err), "a spooled release failed and stays");
                        }
                    }
                }
                Err(Unreadable::NotARelease(problem)) => file::set_aside(&path, &problem),
                Err(Unreadable::Now(err)) => {
                    all = false;
                    warn!(?path, %err, "a spooled release cannot be read and stays");
                }
            }
        }
        Ok(all)
    }

    /// Drains whenever something appears, and what failed before (`all_done`) again after a while.
    pub(crate) async fn run(self, ipam: Ipam, mut all_done: bool, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                ready = self.watch.readable() => match ready {
                    Ok(mut guard) => {
                        // What happened matters less than that something did.
                        while guard.get_inner().0.read_events().is_ok_and(|events| !events.is_empty()) {}
                        guard.clear_ready();
                    }
                    Err(err) => {
                        // Looked at now and then instead.
                        error!(%err, "the spool cannot be watched");
                        tokio::time::sleep(RETRY).await;
                    }
                },
                () = tokio::time::sleep(RETRY), if !all_done => (),
            }
            all_done = self.drain(&ipam).await.unwrap_or_else(|err| {
                error!(%err, directory = %self.directory.display(), "cannot read the spool");
                false
            });
        }
    }
}

async fn release(ipam: &Ipam, spooled: SpooledRelease) -> Result<(), ReleaseError> {
    let key = spooled.key.clone();
    let released = ipam
        .release(Release {
            key: spooled.key,
            started: Some(spooled.process_start),
            reason: format!("spooled: {}", one_line(&spooled.reason, LONGEST_REASON)),
            only_if_dead: false,
            limit: TURN_LIMIT,
        })
        .await?;
    info!(%key, held = released.addresses.is_some(), "a release that waited in the spool is done");
    Ok(())
}

/// The release is on disk; that its file is gone need not be, since a repeated release is safe.
fn remove(path: &Path) {
    if let Err(err) = std::fs::remove_file(path) {
        warn!(%err, path = %path.display(), "cannot remove a spooled release that is done");
    }
}
