use berth_proto::v1;
use serde::Serialize;

use super::key::{AddressView, KeyView};
use crate::{arguments::Release, daemon::Daemon, exit::Exit, failure::Failure, output::Output};

/// Why the words of the command line do not name one attachment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectError {
    #[error("no attachment has a container id that begins with {0:?}")]
    None(String),
    #[error("{text:?} names more than one attachment: {}", found.join(", "))]
    Several { text: String, found: Vec<String> },
}

impl SelectError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::None(_) => Exit::BadNews,
            Self::Several { .. } => Exit::Usage,
        }
    }
}

/// `release -o json`.
#[derive(Debug, Serialize)]
struct ReleaseView {
    #[serde(flatten)]
    key: KeyView,
    /// False when it was gone already.
    released: bool,
    #[serde(flatten)]
    addresses: AddressView,
}

pub(super) async fn run(
    daemon: &Daemon,
    arguments: Release,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let Release { container, network, interface, reason, force } = arguments;
    let request = v1::ListAttachmentsRequest { network: network.unwrap_or_default() };
    let listed = daemon.ask(daemon.inspect().list_attachments(request)).await?.attachments;
    let keys = listed
        .into_iter()
        .filter_map(|attachment| attachment.key)
        .filter(|key| interface.as_ref().is_none_or(|interface| key.interface == *interface));
    let key = select(&container, keys.collect())?;

    let request = v1::ReleaseRequest { key: Some(key.clone()), reason, force };
    let reply = daemon.ask(daemon.admin().release(request)).await?;
    let view = ReleaseView {
        key: Some(key).into(),
        released: reply.released,
        addresses: reply.addresses.into(),
    };
    output.show(&view, |view| {
        let KeyView { network, container_id, interface } = &view.key;
        if view.released {
            let addresses = view.addresses.title();
            format!("released {addresses} of {network}/{container_id}/{interface}\n")
        } else {
            format!("{network}/{container_id}/{interface} holds nothing any more\n")
        }
    })?;
    Ok(Exit::Fine)
}

/// A whole id wins over longer ones that begin with it.
fn select(text: &str, keys: Vec<v1::AttachmentKey>) -> Result<v1::AttachmentKey, SelectError> {
    let (whole, longer): (Vec<_>, Vec<_>) = keys
        .into_iter()
        .filter(|key| key.container_id.starts_with(text))
        .partition(|key| key.container_id == text);
    let mut found = if whole.is_empty() { longer } else { whole };
    match (found.pop(), found.as_slice()) {
        (None, _) => Err(SelectError::None(text.to_owned())),
        (Some(only), []) => Ok(only),
        (Some(last), others) => {
            let mut found: Vec<String> = [&last]
                .into_iter()
                .chain(others)
                .map(|key| format!("{}/{}/{}", key.network, key.container_id, key.interface))
                .collect();
            found.sort();
            Err(SelectError::Several { text: text.to_owned(), found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container_id: &str, interface: &str) -> v1::AttachmentKey {
        v1::AttachmentKey {
            network: "net".into(),
            container_id: container_id.into(),
            interface: interface.into(),
        }
    }

    #[test]
    fn a_whole_id_wins_over_a_longer_one() {
        let keys = vec![key("c1", "eth0"), key("c10", "eth0")];
        assert_eq!(select("c1", keys).unwrap(), key("c1", "eth0"));
    }

    #[test]
    fn a_start_that_two_have_is_refused_with_both_named() {
        let keys = vec![key("c10", "eth0"), key("c11", "eth0")];
        let err = select("c1", keys).unwrap_err();
        assert_eq!(
            err.to_string(),
            "\"c1\" names more than one attachment: net/c10/eth0, net/c11/eth0"
        );
        assert_eq!(err.exit(), Exit::Usage);
    }

    #[test]
    fn a_whole_id_with_two_interfaces_is_not_one_attachment() {
        assert!(select("c1", vec![key("c1", "eth0"), key("c1", "eth1")]).is_err());
    }
}
