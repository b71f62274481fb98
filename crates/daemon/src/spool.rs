//! Releases that the plugin wrote down while the daemon was away.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::{Path, PathBuf},
    time::Duration,
};

use berth_core::{Ipam, Release, ReleaseError};
use berth_types::{SpooledRelease, chain, durable};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::{Interest, unix::AsyncFd};

use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// How long one spooled release waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// The pause before a release that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

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
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        watch.add_watch(&directory, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE)?;
        #[expect(unsafe_code, reason = "the descriptor is the watch's own and lives as long")]
        let watch = unsafe { AsyncFd::register_with_interest(Watch(watch), Interest::READABLE) }?;
        Ok(Self { directory, watch })
    }

    /// Carries out everything that is there, in the order in which it was written. A file that
    /// is not a release is set aside; one whose release failed stays. Answers whether all went.
    pub(crate) async fn drain(&self, ipam: &Ipam) -> io::Result<bool> {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&self.directory)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|it| it == "json") && path.is_file())
            .collect();
        names.sort_unstable();
        let mut all = true;
        for path in names {
            berth_core::fail_point!("daemon::spool::before_release");
            match read(&path) {
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
                Err(problem) => set_aside(&path, &problem),
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
            reason: format!("spooled: {}", spooled.reason),
            only_if_dead: false,
            limit: TURN_LIMIT,
        })
        .await?;
    info!(%key, held = released.addresses.is_some(), "a release that waited in the spool is done");
    Ok(())
}

fn read(path: &Path) -> Result<SpooledRelease, String> {
    let bytes = std::fs::read(path).map_err(|err| err.to_string())?;
    let spooled: SpooledRelease = serde_json::from_slice(&bytes).map_err(|err| err.to_string())?;
    if spooled.version != SpooledRelease::VERSION {
        return Err(format!("version {} is not known", spooled.version));
    }
    if !spooled.is_whole() {
        return Err("it is not as it was written".to_owned());
    }
    Ok(spooled)
}

/// The release is on disk; that its file is gone need not be, since a repeated release is safe.
fn remove(path: &Path) {
    if let Err(err) = std::fs::remove_file(path) {
        warn!(%err, path = %path.display(), "cannot remove a spooled release that is done");
    }
}

/// Kept for a person to look at, out of the way.
fn set_aside(path: &Path, problem: &str) {
    error!(path = %path.display(), problem, "a spooled file is not a release and is set aside");
    let aside = path.with_extension("unreadable");
    let moved = std::fs::read(path)
        .and_then(|bytes| durable::replace(&aside, &bytes, 0o600))
        .and_then(|()| std::fs::remove_file(path));
    if let Err(err) = moved {
        error!(%err, path = %path.display(), "cannot set it aside");
    }
}
