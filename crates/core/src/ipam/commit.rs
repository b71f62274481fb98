use std::time::Duration;

use berth_types::{AttachmentKey, AttachmentState, ProcessStart, WiredFacts};
use tracing::{info, instrument};

use super::{EventKind, Ipam, ReleasedMeanwhile};
use crate::{
    fail_point,
    ports::{Change, StoreError},
    turn::{Busy, Subject},
};

#[derive(Debug, Clone)]
pub struct Commit {
    pub key: AttachmentKey,
    pub started: ProcessStart,
    pub wired: WiredFacts,
    /// The namespace that was wired.
    pub netns_inode: u64,
    pub limit: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Late(#[from] ReleasedMeanwhile),
    #[error("{key} was allocated for namespace inode {expected}, not {wired}")]
    OtherNetns { key: AttachmentKey, expected: u64, wired: u64 },
    #[error("cannot record that the wiring stands")]
    Store(#[from] StoreError),
}

impl Ipam {
    /// The plugin says that the wiring of its ADD stands. Refused when the attachment is not
    /// the one it wired any more: then it takes its wiring down again.
    #[instrument(skip_all, fields(key = %request.key))]
    pub async fn commit(&self, request: Commit) -> Result<(), CommitError> {
        let subject = Subject::Attachment(request.key.clone());
        let _turn = self.inner.turns.take(subject, "commit", request.limit).await?;
        fail_point!("core::commit::in_turn");
        self.refuse_late(&request.key, &request.started)?;
        let Some(mut attachment) = self.inner.store.attachment(&request.key)? else {
            return Err(ReleasedMeanwhile { key: request.key }.into());
        };
        let expected = attachment.netns.id.inode;
        if request.netns_inode != expected {
            let wired = request.netns_inode;
            return Err(CommitError::OtherNetns { key: request.key, expected, wired });
        }
        attachment.state = AttachmentState::Committed { wired: request.wired };
        fail_point!("core::commit::before_write");
        // On disk before the plugin says that the pod has its network: GC looks at a committed record
        // with other eyes.
        self.inner.store.commit(vec![Change::PutAttachment(Box::new(attachment.clone()))]).await?;
        fail_point!("core::commit::written");
        self.tell(EventKind::Committed, &attachment, "");
        info!("committed");
        Ok(())
    }
}
