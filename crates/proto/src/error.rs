use std::fmt;

/// `domain` of every google.rpc.ErrorInfo of ours.
pub const DOMAIN: &str = "berth";

/// `reason` of google.rpc.ErrorInfo: what a program may decide on. Texts may change, these not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Another call has the turn of this attachment or pod.
    Busy,
    /// Nothing can be given out now.
    NoAddress,
    /// The address asked for is held, reserved, or not this node's.
    AddressNotAvailable,
    /// The key was released by a process that began after this one.
    ReleasedMeanwhile,
    /// The key is attached in another namespace that is alive.
    AttachedElsewhere,
    /// The attachment is in use, and the release did not insist.
    InUse,
    /// There is no record of the key.
    UnknownAttachment,
    /// A field is missing or wrong.
    BadRequest,
    /// The daemon is stopping.
    Stopping,
    /// The state directory has no room.
    DiskFull,
    /// The store failed; the daemon restarts.
    StoreFailed,
    /// The daemon refused because the peer may not.
    NotAllowed,
    /// Declared, not built yet.
    NotBuiltYet,
    /// A bug, or the kernel said no.
    Internal,
}

impl Reason {
    pub const ALL: [Self; 14] = [
        Self::Busy,
        Self::NoAddress,
        Self::AddressNotAvailable,
        Self::ReleasedMeanwhile,
        Self::AttachedElsewhere,
        Self::InUse,
        Self::UnknownAttachment,
        Self::BadRequest,
        Self::Stopping,
        Self::DiskFull,
        Self::StoreFailed,
        Self::NotAllowed,
        Self::NotBuiltYet,
        Self::Internal,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "BUSY",
            Self::NoAddress => "NO_ADDRESS",
            Self::AddressNotAvailable => "ADDRESS_NOT_AVAILABLE",
            Self::ReleasedMeanwhile => "RELEASED_MEANWHILE",
            Self::AttachedElsewhere => "ATTACHED_ELSEWHERE",
            Self::InUse => "IN_USE",
            Self::UnknownAttachment => "UNKNOWN_ATTACHMENT",
            Self::BadRequest => "BAD_REQUEST",
            Self::Stopping => "STOPPING",
            Self::DiskFull => "DISK_FULL",
            Self::StoreFailed => "STORE_FAILED",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotBuiltYet => "NOT_BUILT_YET",
            Self::Internal => "INTERNAL",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message from outside that cannot become a domain type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    #[error("field `{field}`: {problem}")]
    Field { field: &'static str, problem: String },
}

impl BadRequest {
    pub fn field(field: &'static str, problem: impl fmt::Display) -> Self {
        Self::Field { field, problem: problem.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_documented_and_read_back() {
        let documented = include_str!("../../../docs/errors.md");
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
            assert!(documented.contains(reason.as_str()), "{reason} is not in docs/errors.md");
        }
    }
}
