//! The kernel's FUSE protocol: requests in, replies and notifications out.
//!
//! A session layer for one mount: [`Mount::new`] attaches it, [`Session::new`] does the INIT exchange, [`Session::run`] serves a
//! [`Filesystem`] until it is unmounted. Speaks 7.31 to 7.45 over /dev/fuse with one cloned descriptor per reader
//! thread, or over io_uring where the kernel offers that ([`IoUring`]). It knows nothing of the file system it serves and never negotiates FUSE_WRITEBACK_CACHE.
//!
//! ```no_run
//! use pinstripe_fuse::*;
//! use std::{path::Path, sync::Arc};
//!
//! struct Empty;
//!
//! impl Filesystem for Empty {
//!     fn getattr(&self, _: &Request, nodeid: u64, _: Option<u64>, reply: Reply<AttrOut>) {
//!         let attr = Attr { ino: nodeid, mode: 0o40755, nlink: 2, ..Attr::default() };
//!         reply.ok(AttrOut { attr, ttl: std::time::Duration::from_secs(1) });
//!     }
//! }
//!
//! let options = MountOptions { source: "none".into(), subtype: "empty".into(), ..Default::default() };
//! let mount = Mount::new(Path::new("/mnt"), &options)?;
//! let running = Session::new(Arc::new(Empty), mount, Config::default())?.spawn()?;
//! running.handle().unmount(false)?;
//! running.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod abi;
mod buf;
pub mod caps;
mod channel;
mod codec;
mod cpus;
mod dir;
mod dispatch;
mod dying;
mod fs;
#[doc(hidden)]
pub mod fuzz;
mod interrupt;
mod mount;
mod near;
mod notify;
mod parse;
mod readers;
mod reply;
mod request;
mod ring;
mod session;
mod transport;
mod types;
mod worker;

pub use buf::{AlignedBuf, POOL_FREE_MAX, WriteData};
pub use dir::{DIR_BUF_MAX, DirBuf, DirPlusBuf};
pub use fs::Filesystem;
pub use interrupt::INTERRUPTED_MAX;
pub use mount::{
    Atime, Mount, MountEntry, MountError, MountOptions, MountState, Mounted, PROBE_TIMEOUT, abort,
    detach_dead, inspect, mount_table, mounted, unmount,
};
pub use notify::Notifier;
pub use reply::{Body, Data, Reply, Xattr};
pub use request::Request;
pub use ring::{
    Landing, RING_ABANDONED_MAX, RING_ENTRIES, RING_ENTRIES_MAX, RING_QUEUE_ENTRIES,
    RING_QUEUE_WAITING,
};
pub use session::{Config, Handle, InitInfo, MAX_WRITE_LIMIT, Running, Session};
pub use transport::{AUTO_IS_RING, IoUring, RING_PARAMETER, UnknownIoUring};
pub use types::*;
