use berth_proto::v1;
use serde::Serialize;

use super::key::{AddressView, ip_type};
use crate::{
    arguments::Pool,
    daemon::Daemon,
    exit::Exit,
    failure::Failure,
    output::Output,
    table::table,
    text::{age, given},
};

/// `summary` of `pool -o json`, and `pool` of `status -o json`.
#[derive(Debug, Serialize)]
pub(super) struct SummaryView {
    ip_type: &'static str,
    capacity: u64,
    available: u64,
    unavailable_reason: Option<String>,
    idle: u64,
    promised: u64,
    leased: u64,
    cooling: u64,
    reserved: u64,
    quarantined: u64,
    draining: u64,
    invalid: u64,
}

impl From<Option<v1::PoolSummary>> for SummaryView {
    fn from(wire: Option<v1::PoolSummary>) -> Self {
        let wire = wire.unwrap_or_default();
        Self {
            ip_type: ip_type(wire.ip_type()),
            capacity: wire.capacity,
            available: wire.available,
            unavailable_reason: given(wire.unavailable_reason),
            idle: wire.idle,
            promised: wire.promised,
            leased: wire.leased,
            cooling: wire.cooling,
            reserved: wire.reserved,
            quarantined: wire.quarantined,
            draining: wire.draining,
            invalid: wire.invalid,
        }
    }
}

impl SummaryView {
    /// `VPCIP: 4090 of 4093 available; 3 leased, 5 idle`.
    pub(super) fn line(&self) -> String {
        let counts = [
            (self.leased, "leased"),
            (self.idle, "idle"),
            (self.promised, "promised"),
            (self.cooling, "cooling"),
            (self.reserved, "reserved"),
            (self.quarantined, "quarantined"),
            (self.draining, "draining"),
            (self.invalid, "invalid"),
        ];
        // What every reader looks for stands there even when it is none.
        let shown: Vec<String> = counts
            .into_iter()
            .filter(|(count, state)| *count > 0 || *state == "leased" || *state == "idle")
            .map(|(count, state)| format!("{count} {state}"))
            .collect();
        let head = format!("{}: {} of {} available", self.ip_type, self.available, self.capacity);
        let why = self.unavailable_reason.as_ref().map(|why| format!(" ({why})"));
        format!("{head}{}; {}", why.unwrap_or_default(), shown.join(", "))
    }
}

#[derive(Debug, Serialize)]
struct SlotView {
    id: String,
    #[serde(flatten)]
    addresses: AddressView,
    state: String,
    owner: Option<String>,
    /// Until the state ends by itself; null where it does not.
    seconds_left: Option<u64>,
    why: Option<String>,
}

impl From<v1::PoolSlot> for SlotView {
    fn from(wire: v1::PoolSlot) -> Self {
        Self {
            id: wire.id,
            addresses: wire.addresses.into(),
            state: wire.state,
            owner: given(wire.owner),
            seconds_left: (wire.seconds_left > 0).then_some(wire.seconds_left),
            why: given(wire.why),
        }
    }
}

/// `pool -o json`.
#[derive(Debug, Serialize)]
struct PoolView {
    summary: SummaryView,
    slots: Vec<SlotView>,
}

pub(super) async fn run(
    daemon: &Daemon,
    arguments: &Pool,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::ListPoolRequest { summary_only: arguments.summary };
    let reply = daemon.ask(daemon.inspect().list_pool(request)).await?;
    let view = PoolView {
        summary: reply.summary.into(),
        slots: reply.slots.into_iter().map(Into::into).collect(),
    };
    let summary_only = arguments.summary;
    output.show(&view, |view| {
        let summary = view.summary.line() + "\n";
        if summary_only {
            return summary;
        }
        let slots = table(
            ["STATE", "IPV4", "IPV6", "LEFT", "OWNER", "WHY"],
            view.slots.iter().map(|slot| {
                [
                    slot.state.clone(),
                    slot.addresses.ipv4.clone().unwrap_or_default(),
                    slot.addresses.ipv6.clone().unwrap_or_default(),
                    slot.seconds_left.map(age).unwrap_or_default(),
                    slot.owner.clone().unwrap_or_default(),
                    slot.why.clone().unwrap_or_default(),
                ]
            }),
        );
        format!("{summary}\n{slots}")
    })?;
    Ok(Exit::Fine)
}
