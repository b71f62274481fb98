//! What this crate reads of the kernel's messages, for the fuzzer in `tests/fuzz`. Each function
//! panics where something does not hold.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;

use crate::{host, seen, tc};

/// One message of rtnetlink, with its header.
pub fn route_message(bytes: &[u8]) {
    let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) else { return };
    let NetlinkPayload::InnerMessage(message) = message.payload else { return };
    let _ = seen::link(&message);
    let _ = seen::address(&message);
    let _ = seen::neighbour(&message);
    let _ = seen::route(&message);
    seen::is_local_route(&message);
    if let RouteNetlinkMessage::NewQueueDiscipline(message)
    | RouteNetlinkMessage::NewTrafficFilter(message) = &message
    {
        let _ = tc::limit_rate(message);
        tc::is_ingress(message);
        let _ = tc::redirected_to(message);
    }
}

/// One read of another netlink socket: several messages, each of a connection.
pub fn datagram(bytes: &[u8]) {
    host::fuzz(bytes);
}
