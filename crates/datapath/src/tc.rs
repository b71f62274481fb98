//! Requests for traffic control. Token buckets go as raw attributes: the crate has none.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's attributes are many, and those not named say nothing here"
)]

use netlink_packet_core::{DefaultNla, Nla, NlasIterator};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{
        TcAction, TcActionAttribute, TcActionGeneric, TcActionMirror, TcActionMirrorOption,
        TcActionOption, TcActionType, TcAttribute, TcFilterU32, TcFilterU32Option, TcHandle,
        TcMessage, TcMirror, TcMirrorActionType, TcOption, TcU32Key, TcU32Selector,
        TcU32SelectorFlags,
    },
};

use crate::Shape;

// linux/pkt_sched.h: attributes of tbf.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// `struct tc_tbf_qopt`: two `tc_ratespec` of 12 bytes, then limit, buffer and mtu. In a
/// ratespec the link layer is the second byte and the rate the last four.
const TBF_PARMS: usize = 36;
const LINK_LAYER: usize = 1;
const RATE: std::ops::Range<usize> = 8..12;
const LIMIT: std::ops::Range<usize> = 24..28;
const BUFFER: std::ops::Range<usize> = 28..32;

/// Without a link layer the kernel wants a rate table from us.
const TC_LINKLAYER_ETHERNET: u8 = 1;

const INGRESS: TcHandle = TcHandle { major: 0xffff, minor: 0 };

/// linux/if_ether.h: every protocol, in network order within a 16-bit number.
const ETH_P_ALL: u16 = 0x0003_u16.to_be();

fn message(index: u32, kind: &str) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = index.cast_signed();
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

pub(crate) fn limit(index: u32, shape: &Shape) -> TcMessage {
    let mut message = message(index, "tbf");
    message.header.parent = TcHandle::ROOT;
    message.header.handle = TcHandle { major: 1, minor: 0 };
    let mut parameters = vec![0; TBF_PARMS];
    let rate = u32::try_from(shape.rate).unwrap_or(u32::MAX);
    parameters[LINK_LAYER] = TC_LINKLAYER_ETHERNET;
    parameters[RATE].copy_from_slice(&rate.to_ne_bytes());
    parameters[LIMIT].copy_from_slice(&shape.limit.to_ne_bytes());
    parameters[BUFFER].copy_from_slice(&shape.burst_ticks().to_ne_bytes());
    let mut options = vec![raw(TCA_TBF_PARMS, parameters)];
    options.push(raw(TCA_TBF_BURST, shape.burst.to_ne_bytes().to_vec()));
    if shape.rate >= u64::from(u32::MAX) {
        options.push(raw(TCA_TBF_RATE64, shape.rate.to_ne_bytes().to_vec()));
    }
    message.attributes.push(TcAttribute::Options(options));
    message
}

/// The rate of a token bucket at the root of its link; `None` for any other discipline.
pub(crate) fn limit_rate(message: &TcMessage) -> Option<u64> {
    if !is_kind(message, "tbf") || message.header.parent != TcHandle::ROOT {
        return None;
    }
    let (mut rate, mut rate64) = (None, None);
    for nested in options(message) {
        // The options of a kind that the crate does not know come as one attribute.
        let TcOption::Other(nested) = nested else { continue };
        let mut nested_bytes = vec![0; nested.value_len()];
        nested.emit_value(&mut nested_bytes);
        for option in NlasIterator::new(nested_bytes.as_slice()).flatten() {
            let value = option.value();
            if option.kind() == TCA_TBF_PARMS {
                rate = value.get(RATE).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
            } else if option.kind() == TCA_TBF_RATE64 {
                rate64 = value.try_into().ok().map(u64::from_ne_bytes);
            }
        }
    }
    rate64.or(rate.map(u64::from))
}

fn is_kind(message: &TcMessage, kind: &str) -> bool {
    message.attributes.iter().any(|a| matches!(a, TcAttribute::Kind(k) if k == kind))
}

fn options(message: &TcMessage) -> impl Iterator<Item = &TcOption> {
    let lists = message.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    lists.flatten()
}

pub(crate) fn ingress(index: u32) -> TcMessage {
    let mut message = message(index, "ingress");
    message.header.parent = TcHandle::INGRESS;
    message.header.handle = INGRESS;
    message
}

pub(crate) fn is_ingress(message: &TcMessage) -> bool {
    is_kind(message, "ingress")
}

/// Under a fixed preference and handle, so that the same request again replaces it.
pub(crate) fn redirect(from: u32, to: u32) -> TcMessage {
    let mut message = message(from, TcFilterU32::KIND);
    message.header.parent = INGRESS;
    message.header.info = u32::from(TcHandle { major: 1, minor: ETH_P_ALL });
    // The kernel's own first table (800:), and the first handle that it would give.
    message.header.handle = TcHandle { major: 0x8000, minor: 0x0800 };
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    let mut mirror = TcMirror::default();
    mirror.generic = TcActionGeneric::default();
    mirror.generic.action = TcActionType::Stolen;
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(
            mirror,
        ))]),
    ];
    message.attributes.push(TcAttribute::Options(vec![
        TcOption::U32(TcFilterU32Option::Selector(selector)),
        TcOption::U32(TcFilterU32Option::Action(vec![action])),
    ]));
    message
}

/// Where a filter on an ingress sends everything, if that is what it does.
pub(crate) fn redirected_to(message: &TcMessage) -> Option<u32> {
    let actions = options(message).filter_map(|option| match option {
        TcOption::U32(TcFilterU32Option::Action(actions)) => Some(actions),
        _ => None,
    });
    let attributes = actions.flatten().flat_map(|action| &action.attributes);
    let mut options = attributes.filter_map(|attribute| match attribute {
        TcActionAttribute::Options(options) => Some(options),
        _ => None,
    });
    options.find_map(|options| {
        options.iter().find_map(|option| match option {
            TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror)) => Some(mirror.ifindex),
            _ => None,
        })
    })
}

pub(crate) fn dump_qdiscs(index: u32) -> RouteNetlinkMessage {
    let mut message = TcMessage::default();
    message.header.index = index.cast_signed();
    RouteNetlinkMessage::GetQueueDiscipline(message)
}

pub(crate) fn dump_filters(index: u32) -> RouteNetlinkMessage {
    let mut message = TcMessage::default();
    message.header.index = index.cast_signed();
    message.header.parent = INGRESS;
    RouteNetlinkMessage::GetTrafficFilter(message)
}

fn raw(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}
