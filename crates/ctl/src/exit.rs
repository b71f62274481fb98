use std::process::ExitCode;

/// The exit statuses, as `--help` and the README document them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Fine = 0,
    /// The question was answered, and the answer is bad.
    BadNews = 1,
    Usage = 2,
    Unreachable = 3,
    NotAllowed = 4,
    Refused = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
