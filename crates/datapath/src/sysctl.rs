use std::{fs, io, io::Write};

use crate::exec::Outcome;

/// Reads a setting of the calling thread's namespace; `path` is below /proc/sys.
pub(crate) fn read(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(file(path))?.trim_end().to_owned())
}

/// Writes only what differs.
pub(crate) fn ensure(path: &str, value: &str) -> io::Result<Outcome> {
    if read(path)? == value {
        return Ok(Outcome::AlreadySo);
    }
    fs::OpenOptions::new().write(true).open(file(path))?.write_all(value.as_bytes())?;
    Ok(Outcome::Changed)
}

fn file(path: &str) -> String {
    format!("/proc/sys/{path}")
}
