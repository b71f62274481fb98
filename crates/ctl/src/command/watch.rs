use berth_proto::v1::{self, watch_reply::Kind};
use serde::Serialize;

use super::key::{AddressView, KeyView, PodView};
use crate::{
    daemon::{CallError, Daemon},
    exit::Exit,
    failure::Failure,
    output::Output,
    text::{given, one_line},
};

/// One line of `watch -o json`.
#[derive(Debug, Serialize)]
struct ChangeView {
    kind: &'static str,
    #[serde(flatten)]
    key: KeyView,
    pod: PodView,
    #[serde(flatten)]
    addresses: AddressView,
    reason: Option<String>,
}

impl From<v1::WatchReply> for ChangeView {
    fn from(wire: v1::WatchReply) -> Self {
        let kind = match wire.kind() {
            Kind::Unspecified => "unknown",
            Kind::Allocated => "allocated",
            Kind::Committed => "committed",
            Kind::Released => "released",
            Kind::Collected => "collected",
        };
        Self {
            kind,
            key: wire.key.into(),
            pod: wire.pod.into(),
            addresses: wire.addresses.into(),
            reason: given(wire.reason),
        }
    }
}

impl ChangeView {
    fn line(&self) -> String {
        let KeyView { network, interface, .. } = &self.key;
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        one_line(&format!(
            "{:<9}  {}  {}  {network}/{}/{interface}{}",
            self.kind,
            dash(self.pod.title()),
            dash(self.addresses.title()),
            self.key.short_container(),
            self.reason.as_ref().map(|reason| format!("  ({reason})")).unwrap_or_default(),
        ))
    }
}

/// Ends with the reader, or with the daemon: then it is an error.
pub(super) async fn run(daemon: &Daemon, output: &mut Output) -> Result<Exit, Failure> {
    let mut changes = daemon.ask(daemon.inspect().watch(v1::WatchRequest {})).await?;
    while let Some(change) = changes.message().await.map_err(CallError::from)? {
        output.show_line(&ChangeView::from(change), ChangeView::line)?;
    }
    Err(CallError::Lost("it ended the stream".into()).into())
}
