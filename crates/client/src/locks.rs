//! fcntl and flock locks.

use proto::mds::{Cred, LockDesc};
use proto::{Errno, Fid};

use crate::Client;

/// Ends the wait of a [`Client::setlk`] from another thread.
#[derive(Debug, Default)]
pub struct CancelToken {}

impl CancelToken {
    /// A token for one call.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }
    /// The waiting call answers EINTR soon; before or after the wait: no effect.
    pub fn cancel(&self) {}
}

impl Client {
    /// Takes or (F_UNLCK) gives back a lock; with `wait` until it is free: EAGAIN, EDEADLK, EINTR.
    pub fn setlk(
        &self,
        _cred: &Cred,
        _fid: Fid,
        _lock: LockDesc,
        _wait: bool,
        _cancel: Option<&CancelToken>,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// The first lock in the way of `lock`.
    pub fn getlk(
        &self,
        _cred: &Cred,
        _fid: Fid,
        _lock: LockDesc,
    ) -> Result<Option<LockDesc>, Errno> {
        Err(Errno::ENOSYS)
    }
}
