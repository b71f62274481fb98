use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{output::Format, text};

const EXIT_STATUS: &str = "\
Exit status:
  0  fine
  1  the answer is bad news: not serving, nothing found, damage, or a local failure
  2  wrong usage
  3  the daemon cannot be reached or does not answer in time
  4  not allowed
  5  refused, with the reason";

/// Asks and steers berthd, the daemon that gives this node's pods their network.
#[derive(Debug, Parser)]
#[command(name = "berthctl", version, max_term_width = 100, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    /// The daemon's socket
    #[arg(long, global = true, env = "BERTH_SOCKET", default_value = "/run/berth/berth.sock")]
    pub(crate) socket: PathBuf,

    /// Tables for people, JSON for tools
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,

    /// Longest wait for the whole command (`watch`: for its start), such as 500ms, 10s or 2m
    #[arg(long, global = true, default_value = "10s", value_parser = text::parse_duration)]
    pub(crate) timeout: Duration,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Remote(Remote),
    /// The state on disk of a daemon that is stopped
    Db(Db),
    /// Prints the completion script of a shell
    Completion { shell: clap_complete::Shell },
}

/// What the daemon answers.
#[derive(Debug, Subcommand)]
pub(crate) enum Remote {
    /// Whether the daemon serves, and what it has
    Status,
    /// Every attachment: the pod, its addresses, its interface on the host
    Pods(Pods),
    /// The addresses: what there is, who has it, why the rest is not given out
    Pool(Pool),
    /// Why a pod has no address, or why an address is not given out
    #[command(subcommand)]
    Explain(Explain),
    /// Runs one pass of garbage collection, with its evidence
    Gc(Gc),
    /// Releases an attachment by hand
    Release(Release),
    /// The configuration in force
    #[command(subcommand)]
    Config(Config),
    /// Shows changes as they happen, until interrupted
    Watch,
}

#[derive(Debug, Args)]
pub(crate) struct Pods {
    /// Only of this CNI network
    #[arg(long)]
    pub(crate) network: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Pool {
    /// The counts without the single addresses
    #[arg(long)]
    pub(crate) summary: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// Why a pod has, or has not, an address
    Pod {
        /// The pod, as NAMESPACE/NAME, or NAME where there are no namespaces
        pod: String,
    },
    /// Why an address is, or is not, given out
    Ip { address: IpAddr },
}

#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Judge and report only
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The container id, or the start of it that only one attachment has
    pub(crate) container: String,
    /// Only on this CNI network
    #[arg(long)]
    pub(crate) network: Option<String>,
    /// Only this interface
    #[arg(long)]
    pub(crate) interface: Option<String>,
    /// Why; it is logged beside the release
    #[arg(long)]
    pub(crate) reason: String,
    /// Release even though the pod's network namespace is alive
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Every field, its value and where the value comes from
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct Db {
    /// The daemon's state directory
    #[arg(long, env = "BERTH_STATE_DIR", default_value = "/var/lib/berth")]
    pub(crate) state_dir: PathBuf,
    #[command(subcommand)]
    pub(crate) verb: DbVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbVerb {
    /// Reads everything and says what is damaged
    Check,
    /// Prints every record as one JSON document, whatever `-o` says
    Export,
    /// Makes the database out of an exported document
    Import {
        /// What `export` printed, or `export.json` of the state directory; `-` is standard input
        file: PathBuf,
        /// Move a database that holds records aside, instead of refusing
        #[arg(long)]
        move_aside: bool,
    },
}
