//! The command line: what can be asked, and how each thing is called.
//!
//! Role: the grammar, its help texts and their ranges. The names of commands and options are a
//! contract with users' scripts. Never does: act.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod lfs;
mod serve;

pub use lfs::{DfArgs, Fid2PathArgs, GetstripeArgs, LfsCommand, Path2FidArgs, SetstripeArgs};
pub use serve::{CACHE_MB, DownArgs, FormatArgs, MOUNT_OPTIONS, MountArgs, ServerArgs, UpArgs};

use crate::logging::LogFilter;

/// Pinstripe: a parallel file system in user space.
///
/// `pinstripe up MOUNTPOINT` gives a striped file system on this machine; `pinstripe down
/// MOUNTPOINT` ends it. `server` and `mount` run the same parts on as many machines as you like.
#[derive(Debug, Parser)]
#[command(name = "pinstripe", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 it did not work, 2 the command line or the \
    configuration makes no sense.")]
pub struct Cli {
    /// What applies to every command.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub struct Common {
    /// Read options from this TOML file; options given as flags win
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub config: Option<PathBuf>,
    /// How much to log: error, warn, info, debug, trace, or a filter such as `net=debug,info`
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Everywhere")]
    pub log_level: Option<LogFilter>,
    /// Log to this file instead of standard error
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub log_file: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// Set in the process that goes to the background.
    #[arg(long, hide = true)]
    pub daemon_child: bool,
}

/// `-v` of the commands that have no other use for it.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Verbosity {
    /// Log more: -v info, -vv debug, -vvv trace
    #[arg(short = 'v', action = clap::ArgAction::Count, help_heading = "Everywhere")]
    pub verbose: u8,
}

/// The cluster key.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArgs {
    /// Cluster key: the 0600 file made by `format`, the same on all servers and clients. Default:
    /// $PINSTRIPE_KEY, else /etc/pinstripe/cluster.key (root) or
    /// ~/.config/pinstripe/cluster.key
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make, start and mount a file system on this machine, in one process
    Up(UpArgs),
    /// End a mount, and the servers `up` started with it
    #[command(visible_alias = "umount")]
    Down(DownArgs),
    /// Run servers: the management service, metadata targets, object storage targets
    Server(ServerArgs),
    /// Mount a file system whose servers run elsewhere
    Mount(MountArgs),
    /// Prepare directories as targets, and make the cluster key
    Format(FormatArgs),
    /// Show targets, their state, space and inodes, clients and processes
    Status(StatusArgs),
    /// Check a stopped file system; repairs nothing
    Fsck(FsckArgs),
    /// Look at stripes and set them, as Lustre's lfs does
    Lfs {
        /// What to do.
        #[command(subcommand)]
        command: LfsCommand,
    },
    /// Show parameters of running servers
    #[command(name = "get_param", visible_alias = "get-param")]
    GetParam(GetParamArgs),
    /// Change parameters of running servers
    #[command(name = "set_param", visible_alias = "set-param")]
    SetParam(SetParamArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArgs),
    /// Show the version
    Version,
}

/// Which running file system is meant.
#[derive(Clone, Debug, Default, Args)]
pub struct WhichArgs {
    /// Where it is mounted; needed when several are
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: Option<PathBuf>,
    /// Ask this management service instead: HOST:PORT or unix:/PATH
    #[arg(long, value_name = "ADDR", conflicts_with = "mountpoint")]
    pub mgs_addr: Option<String>,
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `pinstripe status`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Exit codes: 0 everything is up, 1 something is down or cannot be reached.")]
pub struct StatusArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    #[command(flatten)]
    pub log: Verbosity,
}

/// `pinstripe fsck`
#[derive(Clone, Debug, Default, Args)]
#[command(
    after_help = "Checks directory entries, link counts, parents, sizes, objects without an \
    owner and owners without objects. Nothing is written to the data directory.\n\n\
    Exit codes: 0 clean, 1 damage found or the check could not be done, 2 wrong usage."
)]
pub struct FsckArgs {
    /// Data directory of a file system made by `up`
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Metadata target, for file systems not made by `up`; may be given several times
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub mdt: Vec<PathBuf>,
    /// Object storage target, likewise
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub ost: Vec<PathBuf>,
    /// Management target, likewise; --data includes it
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub mgs: Option<PathBuf>,
    /// Also read all file data and check it against its checksums
    #[arg(long)]
    pub data_too: bool,
    #[command(flatten)]
    pub log: Verbosity,
}

/// `pinstripe get_param`
#[derive(Clone, Debug, Args)]
pub struct GetParamArgs {
    /// Names, or patterns with `*`. One that names a target (OST0000.free) is asked for where that is served; others are
    /// those of the process that is asked
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Show names only
    #[arg(short = 'N', long)]
    pub only_names: bool,
    /// Where the file system is mounted; needed when several are
    #[arg(long, value_name = "MOUNTPOINT")]
    pub mount: Option<PathBuf>,
    /// Ask this management service instead: HOST:PORT or unix:/PATH
    #[arg(long, value_name = "ADDR", conflicts_with = "mount")]
    pub mgs_addr: Option<String>,
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `pinstripe set_param`
#[derive(Clone, Debug, Args)]
pub struct SetParamArgs {
    /// NAME=VALUE; names that do not exist are refused, and then nothing is changed. One that names a target
    /// (OST0000.reads_in_flight_kb) is set where that is served
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub settings: Vec<String>,
    /// Where the file system is mounted; needed when several are
    #[arg(long, value_name = "MOUNTPOINT")]
    pub mount: Option<PathBuf>,
    /// Ask this management service instead: HOST:PORT or unix:/PATH
    #[arg(long, value_name = "ADDR", conflicts_with = "mount")]
    pub mgs_addr: Option<String>,
    #[command(flatten)]
    pub key: KeyArgs,
}

/// `pinstripe man`
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write one file per command into this directory; without it, pinstripe(1) is printed
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
