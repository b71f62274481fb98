use std::{
    io,
    os::{
        fd::{FromRawFd, RawFd},
        unix::net::UnixListener as StdListener,
    },
    path::{Path, PathBuf},
};

use nix::sys::stat::{Mode, umask};
use tokio::net::{UnixListener, UnixStream};
use tracing::info;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another process listens on {0:?}")]
    InUse(PathBuf),
    #[error("{0:?} is there and is not a socket")]
    NotASocket(PathBuf),
    #[error("cannot listen on {path:?}")]
    Listen { path: PathBuf, source: io::Error },
    #[error("systemd listens on {passed:?} and `socket` is {configured:?}: they must be the same")]
    Other { passed: PathBuf, configured: PathBuf },
    #[error("cannot use the socket that systemd passed")]
    Passed(#[source] io::Error),
}

/// systemd's listening socket if one was passed, else one of our own. Nobody but root can reach
/// it from its first moment on.
pub(crate) async fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    if let Some(fd) = passed() {
        info!("listening on the socket that systemd holds");
        let listener = adopt(fd).map_err(SocketError::Passed)?;
        let passed = listener.local_addr().map_err(SocketError::Passed)?;
        // The conflist and everybody who asks goes by the configuration.
        if passed.as_pathname() != Some(path) {
            let passed = passed.as_pathname().unwrap_or(Path::new("")).to_owned();
            return Err(SocketError::Other { passed, configured: path.to_owned() });
        }
        return Ok(listener);
    }
    clear_the_way(path).await?;
    let listen = |source| SocketError::Listen { path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(listen)?;
    }
    // Mode 0600 without a moment of anything else. The mask is the process's: what another thread
    // makes in this moment has fewer rights, never more.
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener.map_err(listen)
}

/// The first descriptor of sd_listen_fds(3), if systemd passed any.
fn passed() -> Option<RawFd> {
    sd_notify::listen_fds().ok()?.next()
}

fn adopt(fd: RawFd) -> io::Result<UnixListener> {
    #[expect(unsafe_code, reason = "systemd handed the descriptor to this process, and once")]
    let listener = unsafe { StdListener::from_raw_fd(fd) };
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Removes a socket that nobody listens on any more. The lock of the state directory is held,
/// so no second daemon does the same at this moment.
async fn clear_the_way(path: &Path) -> Result<(), SocketError> {
    use std::os::unix::fs::FileTypeExt;
    let listen = |source| SocketError::Listen { path: path.to_owned(), source };
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(err) => return Err(listen(err)),
    };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NotASocket(path.to_owned()));
    }
    if UnixStream::connect(path).await.is_ok() {
        return Err(SocketError::InUse(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(listen)
}
