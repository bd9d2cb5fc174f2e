//! The right to tell the MDT about a file's data: one teller at a time, in order.
//!
//! Role: see [`crate::tell`]. Whoever has it waits for nothing but answers of servers. Never does: tell.

use std::sync::Arc;

use crate::inode::Inode;

/// The right to tell the MDT about a file's data; given back when dropped.
pub(crate) struct Talk(pub(crate) Arc<Inode>);

impl Drop for Talk {
    fn drop(&mut self) {
        {
            let mut st = self.0.st.lock();
            (st.talking, st.exactly) = (false, false);
        }
        self.0.landed.notify_all();
    }
}

/// Waits for the right to talk. The holder waits for nothing but answers of servers.
pub(crate) fn talk(inode: &Arc<Inode>) -> Talk {
    let mut st = inode.st.lock();
    while st.talking {
        inode.landed.wait(&mut st);
    }
    st.talking = true;
    Talk(inode.clone())
}

/// As [`talk`], unless somebody has it.
pub(crate) fn try_talk(inode: &Arc<Inode>) -> Option<Talk> {
    let mut st = inode.st.lock();
    if std::mem::replace(&mut st.talking, true) {
        return None;
    }
    Some(Talk(inode.clone()))
}
