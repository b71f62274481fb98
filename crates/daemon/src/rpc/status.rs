//! The one table from our errors to gRPC's. Every variant is listed, so that a new one does not
//! compile until someone has decided.

use std::{collections::HashMap, time::Duration};

use berth_core::{
    AllocateError, CommitError, ExplainError, GcError, PoolError, ReleaseError, Shortage,
    ports::{NetnsError, SourceError, StoreError},
};
use berth_proto::{BadRequest, DOMAIN, Reason};
use berth_types::chain;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// When nothing better is known.
const RETRY: Duration = Duration::from_secs(1);

/// A daemon that ends over a broken store is back by then.
const AFTER_RESTART: Duration = Duration::from_secs(3);

/// What one error is on the wire.
struct Wire {
    code: Code,
    reason: Reason,
    retry: Option<Duration>,
    metadata: HashMap<String, String>,
}

fn wire(code: Code, reason: Reason, retry: Option<Duration>) -> Wire {
    Wire { code, reason, retry, metadata: HashMap::new() }
}

impl Wire {
    fn with(self, message: String) -> Status {
        let mut details =
            ErrorDetails::with_error_info(self.reason.as_str(), DOMAIN, self.metadata);
        if let Some(retry) = self.retry {
            details.set_retry_info(Some(retry));
        }
        Status::with_error_details(self.code, message, details)
    }
}

fn busy() -> Wire {
    wire(Code::Aborted, Reason::Busy, Some(RETRY))
}

fn store(err: &StoreError) -> Wire {
    match err {
        StoreError::DiskFull { .. } => wire(Code::ResourceExhausted, Reason::DiskFull, Some(RETRY)),
        // The process ends over it and starts again, and that mends it.
        StoreError::Broken(_) | StoreError::Stopped => {
            wire(Code::Unavailable, Reason::StoreFailed, Some(AFTER_RESTART))
        }
        StoreError::BadRow { .. } | StoreError::AddressTaken { .. } => {
            wire(Code::Internal, Reason::Internal, None)
        }
    }
}

fn pool(err: &PoolError) -> Wire {
    match err {
        PoolError::Exhausted(shortage) => exhausted(shortage),
        PoolError::Held { free_in, .. } => {
            let retry = free_in.map_or(RETRY, |it| it.max(RETRY));
            wire(Code::ResourceExhausted, Reason::AddressNotAvailable, Some(retry))
        }
        PoolError::Refused(err) => match err {
            SourceError::Exhausted => wire(Code::ResourceExhausted, Reason::NoAddress, Some(RETRY)),
            SourceError::Taken(_) => {
                wire(Code::ResourceExhausted, Reason::AddressNotAvailable, Some(RETRY))
            }
            SourceError::NotOurs { .. } | SourceError::NoFamily(_) => {
                wire(Code::InvalidArgument, Reason::AddressNotAvailable, None)
            }
        },
        PoolError::Busy => wire(Code::ResourceExhausted, Reason::Busy, Some(RETRY)),
        PoolError::Closed => wire(Code::Unavailable, Reason::Stopping, Some(AFTER_RESTART)),
    }
}

fn exhausted(shortage: &Shortage) -> Wire {
    let retry = shortage.first_free_in.map_or(Duration::from_secs(10), |it| it.max(RETRY));
    let mut answer = wire(Code::ResourceExhausted, Reason::NoAddress, Some(retry));
    let counts = shortage.counts;
    for (name, count) in [
        ("capacity", shortage.capacity),
        ("leased", counts.leased + counts.promised),
        ("cooling", counts.cooling),
        ("reserved", counts.reserved),
        ("quarantined", counts.quarantined),
    ] {
        answer.metadata.insert(name.into(), count.to_string());
    }
    answer
}

fn netns(err: &NetnsError) -> Wire {
    match err {
        NetnsError::Missing { .. }
        | NetnsError::NotANamespace { .. }
        | NetnsError::Refused { .. } => wire(Code::InvalidArgument, Reason::BadRequest, None),
        NetnsError::Unreadable { .. } => wire(Code::Internal, Reason::Internal, None),
    }
}

pub(super) fn allocate(err: &AllocateError) -> Status {
    let answer = match err {
        AllocateError::Stopping(_) => {
            wire(Code::Unavailable, Reason::Stopping, Some(AFTER_RESTART))
        }
        AllocateError::Busy(_) | AllocateError::Leftovers(_) | AllocateError::TooSlow { .. } => {
            busy()
        }
        AllocateError::Late(_) => wire(Code::FailedPrecondition, Reason::ReleasedMeanwhile, None),
        AllocateError::OtherBoot { .. } => wire(Code::InvalidArgument, Reason::BadRequest, None),
        AllocateError::Netns(err) => netns(err),
        AllocateError::AttachedElsewhere { .. } => {
            wire(Code::FailedPrecondition, Reason::AttachedElsewhere, None)
        }
        AllocateError::OtherAddress { .. } => {
            wire(Code::FailedPrecondition, Reason::AddressNotAvailable, None)
        }
        AllocateError::Pool { source, .. } => pool(source),
        AllocateError::Host(_) => wire(Code::Internal, Reason::Internal, None),
        AllocateError::Store(err) => store(err),
    };
    answer.with(chain(err))
}

pub(super) fn commit(err: &CommitError) -> Status {
    let answer = match err {
        CommitError::Busy(_) => busy(),
        CommitError::Late(_) | CommitError::OtherNetns { .. } => {
            wire(Code::FailedPrecondition, Reason::ReleasedMeanwhile, None)
        }
        CommitError::Store(err) => store(err),
    };
    answer.with(chain(err))
}

pub(super) fn release(err: &ReleaseError) -> Status {
    let answer = match err {
        ReleaseError::Busy(_) => busy(),
        ReleaseError::InUse { .. } | ReleaseError::MayBeInUse { .. } => {
            wire(Code::FailedPrecondition, Reason::InUse, None)
        }
        ReleaseError::Host(_) => wire(Code::Internal, Reason::Internal, None),
        ReleaseError::Store(err) => store(err),
    };
    answer.with(chain(err))
}

pub(super) fn explain(err: &ExplainError) -> Status {
    let answer = match err {
        ExplainError::Store(err) => store(err),
        ExplainError::Pool(err) => pool(err),
    };
    answer.with(chain(err))
}

pub(super) fn collect(err: &GcError) -> Status {
    let answer = match err {
        GcError::Store(err) => store(err),
    };
    answer.with(chain(err))
}

pub(super) fn read(err: &StoreError) -> Status {
    store(err).with(chain(err))
}

pub(super) fn look(err: &PoolError) -> Status {
    pool(err).with(chain(err))
}

pub(super) fn bad_request(err: &BadRequest) -> Status {
    let mut answer = wire(Code::InvalidArgument, Reason::BadRequest, None);
    let field = match err {
        BadRequest::Missing(field) | BadRequest::Field { field, .. } => *field,
    };
    answer.metadata.insert("field".into(), field.into());
    answer.with(chain(err))
}

pub(super) fn unknown(what: &str) -> Status {
    wire(Code::NotFound, Reason::UnknownAttachment, None)
        .with(format!("there is no record of {what}"))
}

pub(super) fn not_allowed(message: String) -> Status {
    wire(Code::PermissionDenied, Reason::NotAllowed, None).with(message)
}

pub(super) fn not_built(what: &str, stage: u32) -> Status {
    wire(Code::Unimplemented, Reason::NotBuiltYet, None)
        .with(format!("{what} is not built yet: it comes in stage {stage}"))
}

pub(super) fn internal(message: String) -> Status {
    wire(Code::Internal, Reason::Internal, None).with(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_node_says_why_and_when_to_come_back() {
        let shortage = Shortage {
            capacity: 4,
            counts: berth_core::pool::Counts { leased: 3, cooling: 1, ..Default::default() },
            room: 0,
            foreign: 0,
            first_free_in: Some(Duration::from_secs(12)),
            refused: None,
        };
        let err = AllocateError::Pool {
            key: berth_types::AttachmentKey::new("net", "c1", "eth0").expect("a key"),
            source: PoolError::Exhausted(Box::new(shortage)),
        };
        let status = allocate(&err);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(
            status.message(),
            "cannot allocate for net/c1/eth0: no address is free: capacity 4, 3 leased, \
             1 cooling (the first for 12 s more), 0 reserved, 0 in quarantine"
        );
        let details = status.get_error_details();
        let info = details.error_info().expect("an ErrorInfo");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("NO_ADDRESS", "berth"));
        assert_eq!(info.metadata["cooling"], "1");
        let retry = details.retry_info().and_then(|it| it.retry_delay);
        assert_eq!(retry, Some(Duration::from_secs(12)));
    }
}
