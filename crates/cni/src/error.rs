//! Everything that can go wrong, and the number the CNI spec gives it.

use std::{error::Error as StdError, io, time::Duration};

use berth_datapath::{AttachError, NetnsError};
use berth_types::chain;
use tonic::Code;

use crate::{
    cni_compat,
    daemon::DaemonError,
    output,
    spool::SpoolError,
    verb::{SpecVersion, Verb},
};

/// An error with what its document needs beside it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) verb: Verb,
    pub(crate) version: SpecVersion,
    pub(crate) error: CniError,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CniError {
    #[error("CNI_COMMAND {0:?} is none that this plugin knows")]
    Command(String),
    #[error("{0} must be set and not empty")]
    MissingVariables(String),
    #[error("{name} cannot be used: {problem}")]
    Variable { name: &'static str, problem: String },
    #[error("the network configuration cannot be read from stdin")]
    Stdin(#[source] io::Error),
    #[error("the network configuration is longer than {0} bytes")]
    TooLong(usize),
    #[error("the network configuration cannot be decoded")]
    Document(#[source] serde_json::Error),
    #[error("the network configuration is {0}, not a JSON object")]
    NotAnObject(&'static str),
    #[error("CNI version {asked:?} is not supported: this plugin speaks {supported}")]
    Version { asked: String, supported: String },
    #[error("{verb} needs CNI version {since} or newer, the configuration says {asked}")]
    VerbTooNew { verb: &'static str, since: &'static str, asked: &'static str },
    #[error("{key} in the network configuration is {value}: {problem}")]
    Config { key: String, value: String, problem: String },
    #[error("CHECK needs the prevResult of the ADD")]
    NoPreviousResult,
    #[error("CNI_NETNS cannot be used")]
    Netns(#[source] NetnsError),
    #[error("{}", told(.0))]
    Daemon(#[source] DaemonError),
    #[error("the pod's interface cannot be wired")]
    Wiring(#[source] AttachError),
    #[error("{what} was not done within {} s", limit.as_secs())]
    TooSlow { what: &'static str, limit: Duration },
    #[error("the pod's network is not what ADD made")]
    Differs(#[source] Differences),
    #[error("the daemon cannot give a pod an address now")]
    NotReady(#[source] Box<dyn StdError + Send + Sync>),
    #[error("the release cannot be written down for the daemon, which is away")]
    Spool(#[source] SpoolError),
    #[error("the result cannot be written to stdout")]
    Stdout(#[source] io::Error),
    #[error("{what}")]
    Io { what: &'static str, source: io::Error },
}

/// Whether berthd is there decides where a person looks next.
fn told(err: &DaemonError) -> &'static str {
    match err {
        DaemonError::Refused { .. } => "berthd refused",
        DaemonError::Unreachable { .. } => "berthd is not there: is its service running?",
        DaemonError::Silent { .. } | DaemonError::Broken { .. } => "berthd did not answer",
        DaemonError::Answer { .. } => "berthd and this plugin do not understand each other",
    }
}

/// One sentence for each thing that CHECK found.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub(crate) struct Differences(pub(crate) Vec<String>);

/// Numbers of our own, from 100 up. docs/errors.md explains them to operators.
mod own {
    pub(super) const DIFFERS: i32 = 100;
    pub(super) const NO_RECORD: i32 = 101;
    pub(super) const REFUSED: i32 = 102;
    pub(super) const NO_PREVIOUS_RESULT: i32 = 103;
    pub(super) const WIRING: i32 = 104;
    pub(super) const DAEMON_FAILED: i32 = 105;
}

impl CniError {
    /// CNI spec 1.1.0, section "Error"; 8 is libcni's for a bad namespace.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::Version { .. } | Self::VerbTooNew { .. } => 1,
            Self::Command(_) | Self::MissingVariables(_) | Self::Variable { .. } => 4,
            Self::Stdin(_) | Self::Stdout(_) | Self::Io { .. } => 5,
            Self::TooLong(_) | Self::Document(_) | Self::NotAnObject(_) => 6,
            Self::Config { .. } => 7,
            Self::TooSlow { .. } => 11,
            Self::NotReady(_) => 50,
            Self::NoPreviousResult => own::NO_PREVIOUS_RESULT,
            Self::Netns(NetnsError::Own(_)) => 8,
            Self::Netns(NetnsError::NotANamespace(_)) => 4,
            Self::Netns(NetnsError::Missing(_) | NetnsError::Open { .. }) => 5,
            Self::Daemon(err) => daemon_code(err),
            Self::Wiring(_) => own::WIRING,
            Self::Differs(_) => own::DIFFERS,
            Self::Spool(SpoolError::Full { .. }) => 11,
            Self::Spool(SpoolError::Directory { .. } | SpoolError::Write { .. }) => 5,
        }
    }
}

fn daemon_code(err: &DaemonError) -> i32 {
    match err {
        DaemonError::Unreachable { .. }
        | DaemonError::Silent { .. }
        | DaemonError::Broken { .. } => 11,
        DaemonError::Answer { .. } => own::DAEMON_FAILED,
        DaemonError::Refused { code, .. } => match code {
            Code::Aborted
            | Code::ResourceExhausted
            | Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled => 11,
            Code::InvalidArgument | Code::OutOfRange => 7,
            Code::NotFound => own::NO_RECORD,
            Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented => own::REFUSED,
            Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => own::DAEMON_FAILED,
        },
    }
}

impl Failure {
    /// The error document on stdout, where libcni looks for it.
    pub(crate) fn report(&self) {
        if let CniError::Stdout(_) = self.error {
            // Half a document may stand there already.
            output::note(&chain(&self.error));
            return;
        }
        let (msg, details) = self.texts();
        let reply = cni_compat::error_reply(self.version, self.error.code(), &msg, details);
        if let Err(err) = output::document(&reply) {
            output::note(&format!("{msg}: {}", reply.details));
            output::note(&chain(&err));
        }
    }

    /// `msg` and `details` of the document.
    pub(crate) fn texts(&self) -> (String, String) {
        let msg = self.error.to_string();
        let details = StdError::source(&self.error).map(chain).unwrap_or_default();
        match self.verb {
            Verb::Del => (without_absence(&msg), without_absence(&details)),
            Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => (msg, details),
        }
    }
}

/// containerd takes a DEL for done when its error says that something was not found
/// (containerd/go-cni#102), so no error of a DEL says it, not even in another's words.
fn without_absence(text: &str) -> String {
    let text = replace(text, "no such file or directory", "ENOENT");
    let text = replace(&text, "no such file", "ENOENT");
    replace(&text, "not found", "missing")
}

/// Case does not count; `what` is lower-case ASCII.
fn replace(text: &str, what: &str, with: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::new();
    let mut done = 0;
    while let Some(at) = lower[done..].find(what) {
        out.push_str(&text[done..done + at]);
        out.push_str(with);
        done += at + what.len();
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_a_del_speaks_of_absence_whoever_worded_it() {
        let source = io::Error::other("Socket Not Found: No such file or directory (os error 2)");
        let error = CniError::Io { what: "x not found, no such file", source };
        let failure = Failure { verb: Verb::Del, version: SpecVersion::NEWEST, error };
        let (msg, details) = failure.texts();
        assert_eq!(msg, "x missing, ENOENT");
        assert_eq!(details, "Socket missing: ENOENT (os error 2)");
    }

    #[test]
    fn other_verbs_keep_the_words_of_the_cause() {
        let source = io::Error::from_raw_os_error(2);
        let error = CniError::Io { what: "x", source };
        let failure = Failure { verb: Verb::Add, version: SpecVersion::NEWEST, error };
        assert_eq!(failure.texts().1, "No such file or directory (os error 2)");
    }

    #[test]
    fn a_status_has_the_code_that_the_table_in_the_docs_gives_it() {
        let refused = |code| {
            CniError::Daemon(DaemonError::Refused {
                call: "AllocIP",
                code,
                reason: None,
                message: String::new(),
            })
            .code()
        };
        for (status, code) in [
            (Code::Aborted, 11),
            (Code::ResourceExhausted, 11),
            (Code::Unavailable, 11),
            (Code::DeadlineExceeded, 11),
            (Code::InvalidArgument, 7),
            (Code::NotFound, 101),
            (Code::FailedPrecondition, 102),
            (Code::PermissionDenied, 102),
            (Code::Unimplemented, 102),
            (Code::Internal, 105),
        ] {
            assert_eq!(refused(status), code, "{status:?}");
        }
    }
}
