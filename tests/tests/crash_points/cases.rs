//! Which point is reached by which story.

use Story::{
    Add, AddInNewNamespace, Collect, Delete, DeleteOfUnknown, DeleteWhileAway, LateCommit, Orphan,
    Reboot, Rebuild, Replay, Spool, Start, TakeOver, Unfinished,
};

/// What happens around the crash. The letter C is the container that it happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Story {
    Add,
    /// C's namespace died without a DEL; the same container id comes with a new one.
    AddInNewNamespace,
    /// Another sandbox of C's pod comes after C's namespace died without a DEL.
    TakeOver,
    /// C was released while its plugin was between the daemon's answer and its commit.
    LateCommit,
    Delete,
    /// C's plugin was killed with its wiring made, after C was released; then comes one more DEL.
    DeleteOfUnknown,
    DeleteWhileAway,
    /// The daemon starts and finds C's DEL in its spool.
    Spool,
    /// C's namespace dies, and no DEL comes.
    Collect,
    /// C's plugin was killed with its wiring made, after C was released.
    Orphan,
    /// The daemon starts with nothing left to do.
    Start,
    /// The daemon starts and finds C's link, which it had meant to delete.
    Unfinished,
    /// The daemon starts in another boot, by what it is told, while C's address rests.
    Reboot,
    /// The daemon starts and finds its database damaged, and its log gone.
    Rebuild,
    /// The daemon starts after a kill -9, with commits that are in the log only.
    Replay,
}

/// How the runtime goes on when its call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Delete,
    /// The same ADD once more, then the DEL.
    AddAgain,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) point: &'static str,
    pub(crate) story: Story,
    /// How often the point is passed before it kills.
    pub(crate) passes: u32,
    pub(crate) then: Then,
}

const fn case(point: &'static str, story: Story) -> Case {
    Case { point, story, passes: 0, then: Then::Delete }
}

const fn later(point: &'static str, story: Story) -> Case {
    Case { passes: 1, ..case(point, story) }
}

const fn again(point: &'static str, story: Story) -> Case {
    Case { then: Then::AddAgain, ..case(point, story) }
}

pub(crate) const CASES: &[Case] = &[
    // The daemon, while it allocates.
    case("core::allocate::in_turn", Add),
    case("core::allocate::settled", Add),
    case("core::allocate::reserved", Add),
    again("core::allocate::reserved", Add),
    case("core::allocate::written", Add),
    again("core::allocate::written", Add),
    case("core::allocate::old_life_unhooked", AddInNewNamespace),
    case("core::allocate::old_life_reaped", AddInNewNamespace),
    case("core::allocate::rewritten", AddInNewNamespace),
    again("core::allocate::rewritten", AddInNewNamespace),
    case("core::allocate::predecessor_unhooked", TakeOver),
    case("core::allocate::predecessor_reaped", TakeOver),
    case("core::allocate::taken_over", TakeOver),
    again("core::allocate::taken_over", TakeOver),
    // While it hears that the wiring stands.
    case("core::commit::in_turn", Add),
    case("core::commit::before_write", Add),
    again("core::commit::before_write", Add),
    case("core::commit::written", Add),
    again("core::commit::written", Add),
    // While it releases.
    case("core::release::in_turn", Delete),
    case("core::release::unhooked", Delete),
    case("core::release::written", Delete),
    case("core::release::unknown_unhooked", DeleteOfUnknown),
    case("core::release::unknown_written", DeleteOfUnknown),
    case("core::reaper::deleted", Delete),
    case("core::reaper::written", Delete),
    // While it collects.
    case("core::collect::before_release", Collect),
    case("core::release::unhooked", Collect),
    case("core::release::written", Collect),
    case("core::collect::orphans_unhooked", Orphan),
    case("core::collect::orphans_reaped", Orphan),
    // While it starts.
    case("core::start::unhooked", Unfinished),
    case("core::start::reaped", Unfinished),
    case("core::start::written", Unfinished),
    case("core::start::rebuilt", Start),
    case("core::start::rebased", Reboot),
    case("daemon::start::host_prepared", Start),
    case("daemon::start::spool_drained", Start),
    case("daemon::start::listening", Start),
    case("daemon::spool::before_release", Spool),
    case("core::release::written", Spool),
    case("daemon::spool::released", Spool),
    case("store::moved_aside", Rebuild),
    case("store::before_repair", Rebuild),
    case("store::after_rows", Rebuild),
    case("store::after_flush", Rebuild),
    case("store::after_sync", Rebuild),
    case("store::before_repair", Start),
    case("store::after_flush", Start),
    case("store::after_checkpoint", Start),
    case("store::after_replay", Replay),
    case("store::after_flush", Replay),
    case("store::after_sync", Replay),
    // While it writes: the first commit of an ADD, the second, that of a DEL, and the reaper's.
    case("store::before_log", Add),
    later("store::before_log", Add),
    case("store::after_log", Add),
    later("store::after_log", Add),
    case("store::after_log_sync", Add),
    later("store::after_log_sync", Add),
    case("store::after_apply", Add),
    later("store::after_apply", Add),
    case("store::after_sequence", Add),
    later("store::after_sequence", Add),
    case("store::before_log", Delete),
    later("store::before_log", Delete),
    case("store::after_log", Delete),
    later("store::after_log", Delete),
    case("store::after_log_sync", Delete),
    case("store::after_apply", Delete),
    later("store::after_apply", Delete),
    case("store::after_sequence", Delete),
    // A moment later, when it brings the database to the disk. It does so once as it starts.
    later("store::after_flush", Add),
    later("store::after_sync", Add),
    later("store::after_checkpoint", Add),
    later("store::after_flush", Delete),
    later("store::after_sync", Delete),
    later("store::after_checkpoint", Delete),
    case("store::before_export", Add),
    case("store::before_export", Delete),
    case("store::after_export", Delete),
    // The plugin.
    case("cni::before_connect", Add),
    case("cni::after_alloc", Add),
    again("cni::after_alloc", Add),
    case("cni::after_attach", Add),
    again("cni::after_attach", Add),
    case("cni::after_commit", Add),
    again("cni::after_commit", Add),
    case("cni::after_take_down", LateCommit),
    case("cni::after_give_back", LateCommit),
    case("cni::before_release", Delete),
    case("cni::after_release", Delete),
    case("cni::before_spool", DeleteWhileAway),
    case("cni::after_spool", DeleteWhileAway),
    case("cni::after_unhook", DeleteWhileAway),
];
