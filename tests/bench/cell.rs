use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    Berth,
    Ptp,
    Bridge,
    Floor,
}

impl Name {
    pub(crate) const ALL: [Self; 4] = [Self::Berth, Self::Ptp, Self::Bridge, Self::Floor];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Berth => "berth",
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Floor => "floor",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Add,
    Check,
    Del,
    /// A repeated DEL: there is nothing any more.
    DelAgain,
    Version,
    /// AllocIP over an open connection, without a plugin.
    AllocRpc,
}

impl Operation {
    /// Of a plugin, in the order in which a pod's life has them.
    pub(crate) const CALLS: [Self; 5] =
        [Self::Version, Self::Add, Self::Check, Self::Del, Self::DelAgain];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Check => "check",
            Self::Del => "del",
            Self::DelAgain => "del_again",
            Self::Version => "version",
            Self::AllocRpc => "alloc_rpc",
        }
    }

    /// CNI_COMMAND.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Check => "CHECK",
            Self::Del | Self::DelAgain => "DEL",
            Self::Version => "VERSION",
            Self::AllocRpc => unreachable!("no plugin is called for it"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Family {
    V4,
    Dual,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::Dual];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::Dual => "dual",
        }
    }

    pub(crate) fn berth_cidrs(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["10.200.0.0/15"],
            Self::Dual => &["10.200.0.0/15", "fd00:be57::/64"],
        }
    }
}

/// What stays the same while subjects and operations change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) family: Family,
    /// Attachments on record before the first call.
    pub(crate) records: usize,
    pub(crate) parallel: usize,
}
