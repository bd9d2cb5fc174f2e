//! Grammar of the commands that start, stop and prepare things.

use std::path::PathBuf;

use clap::Args;

use super::{KeyArgs, Verbosity};
use crate::label::check_fsname;

/// What `-o` takes, for `--help` and the manual.
pub const MOUNT_OPTIONS: &str = "\
Like mount(8), it returns when the mount is usable and leaves a process behind; with --foreground it stays.

Mount options (-o), beside those of every file system (ro, noatime, nosuid and so on):
  allow_other            others than who mounts may use it (for root: always)
  nonempty               mount over a directory that is not empty
  consistency=MODE       what of other mounts' work is seen at once: posix (default),
                         close-to-open, relaxed
  flock, localflock      locks hold across mounts (default), or on this one only
  nochecksums            no checksums between this mount and the disks
  write_through          no write-behind and no caching at all
  noforward_sync         sync(2) does not reach the file system (root's mounts: it does)
  io_uring=auto|on|off   how requests come from the kernel
  max_dirty_mb=N         memory for what is written and no OST has taken, MiB (64)
  max_read_ahead_mb=N    memory for what is read ahead, MiB; 0: nothing is (64)
  max_cached_inodes=N    inodes whose attributes and names are kept, 0.7 KiB each (200000)
  max_rpc_kb=N           size of the largest message, KiB (4096; with `up` 1024)
  max_rpcs_in_flight=N   of these, under way to each OST (8)
  request_timeout=N      seconds for which a lost server is waited for (60)
Where the machine, or the control group, has less than 4 GiB of memory, those three that take memory \
are smaller in proportion.";

/// Of `--mdt-cache-mb`.
pub const CACHE_MB: std::ops::RangeInclusive<i64> = 16..=1 << 20;

/// `pinstripe up`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Data lies in --data, by default in $XDG_STATE_HOME/pinstripe/NAME (or ~/.local/state/pinstripe/NAME; \
for root /var/lib/pinstripe/NAME), where NAME is the mount point's path with '-' for '/'. The same \
data directory brings the same files back, also after a crash.

Without --detach it runs until Ctrl-C, which unmounts and stops cleanly; a second Ctrl-C does not \
wait. Nobody but you can reach the servers unless --listen is given. For mount options see \
`pinstripe mount --help`.")]
pub struct UpArgs {
    /// Where to mount: an empty directory (made if it is missing)
    pub mountpoint: PathBuf,
    /// Where files are kept; made on first use
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Metadata targets to make on first use; in this version all names are on the first
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub mdts: Option<u32>,
    /// Object storage targets to make on first use; more than before adds some [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: Option<u32>,
    /// Memory for metadata that is not being changed, MiB [default: 256, less where memory is scarce]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(CACHE_MB))]
    pub mdt_cache_mb: Option<u32>,
    /// Run in the background; returns when the mount is usable
    #[arg(long)]
    pub detach: bool,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTS")]
    pub options: Vec<String>,
    /// Also serve other clients here: HOST:PORT or unix:/PATH; may be given several times
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Allow --listen on an address other machines can reach
    #[arg(long)]
    pub allow_remote: bool,
    /// Name of the file system, used on first use [default: pin]
    #[arg(long, value_name = "NAME", value_parser = check_fsname)]
    pub fsname: Option<String>,
    #[command(flatten)]
    pub log: Verbosity,
}

/// `pinstripe down`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Waits until what was written is stored; when servers do not answer, for about a minute. Fails when some of it could not \
be: the message names the log, which says what.")]
pub struct DownArgs {
    /// Where it is mounted
    pub mountpoint: PathBuf,
    /// Detach the mount even if it is in use, and end processes that do not answer
    #[arg(long, short = 'f')]
    pub force: bool,
    #[command(flatten)]
    pub log: Verbosity,
}

/// `pinstripe server`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Any mix of roles may run in one process, and any number of processes may make up a file system. \
Targets are prepared by `pinstripe format`, or here with --format on first use.

When ready it prints one line, `listening on ADDR` (with --json, an object); SIGTERM or Ctrl-C stops \
it cleanly.")]
pub struct ServerArgs {
    /// Run the management service
    #[arg(long)]
    pub mgs: bool,
    /// Directory of the management service [default: `mgs` beside the first target]
    #[arg(long, value_name = "DIR")]
    pub mgs_dir: Option<PathBuf>,
    /// Directory of a metadata target; may be given several times
    #[arg(long, value_name = "DIR")]
    pub mdt: Vec<PathBuf>,
    /// Memory of each metadata target for what is not being changed, MiB [default: 256, less where memory
    /// is scarce]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(CACHE_MB))]
    pub mdt_cache_mb: Option<u32>,
    /// Directory of an object storage target; may be given several times
    #[arg(long, value_name = "DIR")]
    pub ost: Vec<PathBuf>,
    /// Where to listen: HOST:PORT (port 0: any) or unix:/PATH; may be given several times
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Allow --listen on an address other machines can reach
    #[arg(long)]
    pub allow_remote: bool,
    /// Address other machines should use for this server, when it is not the one it listens on
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// Where the management service is: HOST:PORT or unix:/PATH; not needed with --mgs
    #[arg(long, value_name = "ADDR")]
    pub mgs_addr: Option<String>,
    /// Seconds to wait for the management service [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub mgs_wait: Option<u64>,
    #[command(flatten)]
    pub key: KeyArgs,
    /// Prepare targets whose directories are empty or missing
    #[arg(long)]
    pub format: bool,
    /// With --format: index of the first target of each kind [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=0xfffe))]
    pub index: Option<u32>,
    /// With --format: name of the file system [default: pin]
    #[arg(long, value_name = "NAME", value_parser = check_fsname)]
    pub fsname: Option<String>,
    #[command(flatten)]
    pub log: Verbosity,
}

/// `pinstripe mount`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Like mount(8), it returns when the mount is usable and leaves a process \
    behind; with --foreground it stays.", after_long_help = MOUNT_OPTIONS)]
pub struct MountArgs {
    /// Address of the management service: HOST:PORT or unix:/PATH, and :/SUBDIR to mount less
    #[arg(value_name = "ADDR[:/SUBDIR]")]
    pub address: String,
    /// Where to mount: an empty directory
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTS")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub key: KeyArgs,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(long)]
    pub foreground: bool,
    /// Go to the background (the default)
    #[arg(long, conflicts_with = "foreground")]
    pub detach: bool,
    /// Seconds to wait for the servers [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: Option<u64>,
    /// Say nothing when it is mounted
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub log: Verbosity,
}

/// `pinstripe format`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
All targets of a file system are formatted with the same name and the same cluster key; the key is \
made if its file does not exist. Copy it (mode 0600) to every machine of the file system.

A directory that holds anything is refused.")]
pub struct FormatArgs {
    /// Prepare a management service here
    #[arg(long, value_name = "DIR")]
    pub mgs: Option<PathBuf>,
    /// Prepare a metadata target here; several get consecutive indexes
    #[arg(long, value_name = "DIR")]
    pub mdt: Vec<PathBuf>,
    /// Prepare an object storage target here; several get consecutive indexes
    #[arg(long, value_name = "DIR")]
    pub ost: Vec<PathBuf>,
    /// Name of the file system [default: pin]
    #[arg(long, value_name = "NAME", value_parser = check_fsname)]
    pub fsname: Option<String>,
    /// Index of the first target of each kind [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=0xfffe))]
    pub index: Option<u32>,
    #[command(flatten)]
    pub key: KeyArgs,
    #[command(flatten)]
    pub log: Verbosity,
}
