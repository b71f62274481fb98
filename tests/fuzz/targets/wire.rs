//! Every message that is turned into something of the domain, by the daemon or by the plugin. The
//! first byte says which it is to be.

#![no_main]

use berth_proto::{self as wire, v1};
use prost::Message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 8 {
        0 => decoded(bytes, berth_daemon::fuzz::allocate),
        1 => decoded(bytes, berth_daemon::fuzz::gc),
        2 => decoded(bytes, |it: v1::CommitIpRequest| {
            let _ = wire::interface_facts("host", it.host);
            let _ = wire::interface_facts("pod", it.pod);
        }),
        3 => decoded(bytes, key),
        4 => decoded(bytes, |it: v1::PodIdentity| {
            if let Ok(pod) = wire::pod_identity(Some(it)) {
                let shown = pod.to_string();
                assert!(!shown.chars().any(char::is_control), "{shown:?}");
            }
        }),
        5 => decoded(bytes, conf),
        6 => decoded(bytes, |it: v1::ProcessStart| {
            if let Ok(start) = wire::process_start(Some(it.clone())) {
                assert_eq!(v1::ProcessStart::from(&start), it);
            }
        }),
        _ => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                berth_daemon::fuzz::timeout(text);
                let line = berth_types::one_line(text, 256);
                assert!(!line.chars().any(char::is_control) && line.len() <= 256 * 10);
            }
        }
    }
});

fn decoded<M: Message + Default>(bytes: &[u8], then: impl FnOnce(M)) {
    if let Ok(message) = M::decode(bytes) {
        then(message);
    }
}

/// What a key is on the wire, in a row and in a file name: always the same key.
fn key(message: v1::AttachmentKey) {
    let Ok(key) = wire::key(Some(message.clone())) else { return };
    assert_eq!(v1::AttachmentKey::from(&key), message);
    let text = key.to_string();
    assert_eq!(text.parse().as_ref(), Ok(&key));
    assert!(!text.chars().any(|c| c.is_control() || c.is_whitespace()), "{text:?}");
    let link = berth_types::host_interface(&berth_types::HostPrefix::default(), &key);
    assert_eq!(link.as_str().len(), 15);
}

/// What the daemon answers the plugin.
fn conf(message: v1::NetConf) {
    let Ok(conf) = wire::net_conf(v1::IpType::VpcIp, message) else { return };
    let again = wire::net_conf(v1::IpType::VpcIp, v1::NetConf::from(&conf));
    assert_eq!(again.as_ref(), Ok(&conf));
}
