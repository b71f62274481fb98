//! Releases that wait for a daemon that is away: one durable file each.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use berth_types::{
    AttachmentKey, HostPrefix, ProcessStart, SpooledRelease, durable, host_interface,
};

use crate::{clock, fail_point};

#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    #[error("the directory {} cannot be used", directory.display())]
    Directory { directory: PathBuf, source: io::Error },
    #[error("{} holds {waiting} releases already, at most {most} may wait", directory.display())]
    Full { directory: PathBuf, waiting: usize, most: usize },
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// On disk when this returns. The daemon does it in the order of the names, and by
/// `process` it sees a release that came too late.
pub(crate) fn write(
    directory: &Path,
    prefix: &HostPrefix,
    key: &AttachmentKey,
    process: &ProcessStart,
    reason: &str,
) -> Result<(), SpoolError> {
    fail_point::reach("cni::before_spool");
    let waiting = prepare(directory)
        .map_err(|source| SpoolError::Directory { directory: directory.to_owned(), source })?;
    if waiting >= SpooledRelease::MOST {
        let (directory, most) = (directory.to_owned(), SpooledRelease::MOST);
        return Err(SpoolError::Full { directory, waiting, most });
    }
    let release = SpooledRelease::new(key.clone(), process.clone(), reason.to_owned());
    let name = format!("{:020}-{}.json", clock::now().as_nanos(), host_interface(prefix, key));
    let path = directory.join(name);
    serde_json::to_vec(&release)
        .map_err(io::Error::from)
        .and_then(|bytes| durable::replace(&path, &bytes, 0o600))
        .map_err(|source| SpoolError::Write { path, source })?;
    fail_point::reach("cni::after_spool");
    Ok(())
}

/// Makes the directory where it is not there, and counts what waits in it.
fn prepare(directory: &Path) -> io::Result<usize> {
    make(directory)?;
    let mut waiting = 0;
    for entry in directory.read_dir()? {
        if entry?.path().extension().is_some_and(|extension| extension == "json") {
            waiting += 1;
        }
    }
    Ok(waiting)
}

/// Each new directory is durable before what is put into it.
fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().ok_or(io::ErrorKind::NotADirectory)?;
    make(parent)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        // Another DEL made it a moment ago.
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
        made => made?,
    }
    durable::sync_directory(parent)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use berth_types::BootTime;

    use super::*;

    fn key(container: &str) -> AttachmentKey {
        AttachmentKey::new("net", container, "eth0").unwrap()
    }

    fn process() -> ProcessStart {
        ProcessStart { boot_id: "b".parse().unwrap(), at: BootTime::from_nanos(7) }
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = directory
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn releases_wait_in_order_and_for_root_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("lib/spool");
        for container in ["zz", "aa"] {
            write(&directory, &HostPrefix::default(), &key(container), &process(), "DEL").unwrap();
        }
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        let waiting: Vec<String> = names(&directory)
            .iter()
            .map(|name| {
                let path = directory.join(name);
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
                let read: SpooledRelease =
                    serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                assert_eq!((read.version, read.process_start), (1, process()));
                read.key.container_id.to_string()
            })
            .collect();
        assert_eq!(waiting, ["zz", "aa"]);
        let (digits, link) = names(&directory)[0]
            .split_once('-')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_eq!(digits.len(), 20);
        assert_eq!(link, format!("{}.json", host_interface(&HostPrefix::default(), &key("zz"))));
    }

    #[test]
    fn a_full_spool_is_an_error_and_takes_nothing_more() {
        let place = tempfile::tempdir().unwrap();
        for n in 0..SpooledRelease::MOST {
            fs::write(place.path().join(format!("{n:020}-x.json")), "").unwrap();
        }
        // What is not a release does not count.
        fs::write(place.path().join(".half.tmp"), "").unwrap();
        let err = write(place.path(), &HostPrefix::default(), &key("a"), &process(), "DEL");
        assert!(matches!(err, Err(SpoolError::Full { waiting: SpooledRelease::MOST, .. })));
        assert_eq!(names(place.path()).len(), SpooledRelease::MOST + 1);
    }

    #[test]
    fn a_spool_that_cannot_be_is_an_error_that_names_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let err = write(&file.join("spool"), &HostPrefix::default(), &key("a"), &process(), "DEL");
        let text = err.unwrap_err().to_string();
        assert!(text.contains("file/spool"), "{text}");
    }
}
