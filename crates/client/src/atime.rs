//! Access times.

use std::sync::Arc;

use crate::config::Atime;
use crate::core::{Core, now};
use crate::inode::Inode;

/// An access time older than this moves with the next read, in seconds (as Linux's relatime).
const DAY: i64 = 24 * 3600;

impl Core {
    /// A file was read.
    pub(crate) fn accessed(&self, inode: &Arc<Inode>) {
        if self.options.atime == Atime::Never {
            return;
        }
        let mut st = inode.st.lock();
        let last = st.atime.unwrap_or(st.attr.atime);
        let mtime = st.mtime.unwrap_or(st.attr.mtime);
        let due = || {
            let now = now();
            last <= mtime || last <= st.attr.ctime || now.sec - last.sec >= DAY
        };
        if self.options.atime == Atime::Strict || due() {
            st.atime = Some(now());
        }
    }
}
