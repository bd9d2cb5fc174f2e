//! The kernel's FUSE protocol: requests in, replies and notifications out.
//!
//! A session layer for one mount: [`Mount::new`] attaches it, [`Session::new`] does the INIT exchange, [`Session::run`] serves a
//! [`Filesystem`] until it is unmounted. Speaks 7.31 to 7.45 over /dev/fuse with one cloned descriptor per reader
//! thread. It knows nothing of the file system it serves and never negotiates FUSE_WRITEBACK_CACHE.

mod abi;
mod buf;
pub mod caps;
mod channel;
mod codec;
mod dir;
mod dispatch;
mod fs;
#[doc(hidden)]
pub mod fuzz;
mod interrupt;
mod mount;
mod notify;
mod parse;
mod readers;
mod reply;
mod request;
mod session;
mod types;
mod worker;

pub use buf::{AlignedBuf, POOL_FREE_MAX, WriteData};
pub use dir::{DIR_BUF_MAX, DirBuf, DirPlusBuf};
pub use fs::Filesystem;
pub use interrupt::INTERRUPTED_MAX;
pub use mount::{
    Atime, Mount, MountEntry, MountError, MountOptions, MountState, Mounted, PROBE_TIMEOUT,
    detach_dead, inspect, mount_table, unmount,
};
pub use notify::Notifier;
pub use reply::{Body, Data, Reply, Xattr};
pub use request::Request;
pub use session::{Config, Handle, InitInfo, MAX_WRITE_LIMIT, Running, Session};
pub use types::*;
