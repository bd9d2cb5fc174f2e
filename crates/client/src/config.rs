//! What a client is told when it starts, and why it may fail to.

use std::path::PathBuf;
use std::time::Duration;

use net::{ClusterKey, Endpoint, NetError};
use proto::Errno;

use crate::pauses::Pauses;

/// Where the targets of a file system are found.
#[derive(Clone, Debug)]
pub enum Mgs {
    /// Addresses of the management service, tried in order.
    At(Vec<Endpoint>),
    /// The targets themselves, without an MGS (embedded use, tests): name (`MDT0000`, `OST0003`)
    /// and address.
    Targets {
        /// The file system.
        fs: [u8; 16],
        /// One MDT and any number of OSTs.
        targets: Vec<(String, Endpoint)>,
    },
}

/// Inodes a client keeps attributes of where nobody says otherwise.
pub const CACHED_INODES: u32 = 200_000;

/// When reading a file moves its access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Atime {
    /// Never.
    Never,
    /// When it is not newer than mtime or ctime, or a day old (Linux's default).
    #[default]
    Relative,
    /// Always.
    Strict,
}

/// Settings; each limit bounds one queue or cache (invariant 8).
#[derive(Clone, Debug)]
pub struct Options {
    /// Checksums from the caller's buffer to the disk (`osc.*.checksums`).
    pub checksums: bool,
    /// Bytes written but not yet taken by an OST, over all files, in MiB. Where others use it up, those that
    /// go elsewhere may have a quarter of it for each OST, all together as much again.
    pub max_dirty_mb: u32,
    /// Bytes taken by OSTs but not yet committed, kept to be sent again, in MiB; more as above.
    pub max_uncommitted_mb: u32,
    /// Bytes read ahead of their readers, over all files, in MiB; 0: no read-ahead.
    pub max_read_ahead_mb: u32,
    /// Inodes whose attributes are kept (0.2 KiB each), beside twice as many names (0.1 KiB each) and what
    /// must be known to take names back from the kernel of a mount (0.3 KiB each). Where it is less than
    /// [`CACHED_INODES`] less is kept of closed files, too.
    pub max_cached_inodes: u32,
    /// Bytes of one bulk RPC, at most [`proto::MAX_BULK`].
    pub max_rpc_bytes: u32,
    /// Bulk RPCs in flight per OST.
    pub max_rpcs_in_flight: u32,
    /// Written bytes reach their OST at the latest after this long.
    pub dirty_expire: Duration,
    /// How long a request waits for a lost server before it fails with EIO.
    pub request_timeout: Duration,
    /// How long [`crate::Client::connect`] waits for the MGS and all targets.
    pub connect_timeout: Duration,
    /// Access times.
    pub atime: Atime,
    /// No write-behind and no caching at all: as if the client were never alone.
    pub write_through: bool,
    /// Only looks at the state of servers: counts as nobody the files are shared with.
    pub observer: bool,
    /// For tests.
    pub pauses: Pauses,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            checksums: true,
            max_dirty_mb: 64,
            max_uncommitted_mb: 64,
            max_read_ahead_mb: 64,
            max_cached_inodes: CACHED_INODES,
            max_rpc_bytes: 1 << 20,
            max_rpcs_in_flight: 8,
            dirty_expire: Duration::from_secs(5),
            request_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(30),
            atime: Atime::default(),
            write_through: false,
            observer: false,
            pauses: Pauses::default(),
        }
    }
}

/// What a client needs to start.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where the targets are.
    pub mgs: Mgs,
    /// The cluster's key, for TCP.
    pub key: Option<ClusterKey>,
    /// Directory that becomes the root, from the file system's root.
    pub subdir: Option<PathBuf>,
    /// Host and process, for `status`.
    pub description: String,
    /// Settings.
    pub options: Options,
}

/// Why a client did not start; the text says what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// A server could not be reached or refused us.
    #[error("cannot reach {target} at {address}: {why}")]
    Connect {
        /// The target.
        target: String,
        /// Where it was sought.
        address: String,
        /// What happened.
        why: NetError,
    },
    /// The configuration lacks a target.
    #[error("{0}")]
    Config(String),
    /// The sub-directory cannot be used.
    #[error("sub-directory '{path}': {errno}")]
    Subdir {
        /// As given.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// A request failed while starting.
    #[error("{what}: {errno}")]
    Request {
        /// Which.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
}
