//! Acting as another user, on a thread of its own: credentials of Linux belong to threads.

use anyhow::Result;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Who acts.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

/// Runs `body` as `user`.
pub fn act<T: Send>(user: User, body: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Result<T> {
            let groups: Vec<_> = user.groups.iter().map(|&g| Gid::from_raw(g)).collect();
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            set_thread_groups(&groups)?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)?;
            Ok(body())
        });
        thread.join().unwrap_or_else(|_| anyhow::bail!("the thread of another user panicked"))
    })
}
