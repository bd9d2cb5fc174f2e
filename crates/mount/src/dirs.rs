//! Directory listings. The file system's cookies begin above those of `.` and `..`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuse::{DirBuf, DirPlusBuf, Entry, Errno, Request};
use proto::{Attr, Fid};

use crate::convert::{cred, listed, name_errno};
use crate::fs::PinstripeFs;
use crate::keeps::NO_ATIME;

/// Cookie after `.`; hashes leave the numbers below 16 free.
const DOT: u64 = 1;
/// Cookie after `..`.
const DOT_DOT: u64 = 2;
const DIR_TYPE: u32 = libc::S_IFDIR;

impl PinstripeFs {
    /// Calls `dots` with name, node and cookie of those that are to be listed first; the cookie
    /// to go on from.
    fn dots(
        &self,
        req: &Request,
        node: u64,
        offset: u64,
        mut add: impl FnMut(&str, u64, u64) -> bool,
    ) -> Option<u64> {
        if offset < DOT && !add(".", node, DOT) {
            return None;
        }
        if offset < DOT_DOT {
            let fid = self.caches.fid(node);
            let parent = match node {
                1 => 1,
                // A directory that was removed has no parent any more; itself will do.
                _ => self
                    .client
                    .lookup(&cred(req), fid, b"..")
                    .map_or(node, |a| self.caches.node(a.fid)),
            };
            if !add("..", parent, DOT_DOT) {
                return None;
            }
        }
        Some(if offset <= DOT_DOT { 0 } else { offset })
    }

    /// A part of a directory was read, from that offset on. What the kernel has kept of it is listed without a word:
    /// then it has not changed since it was read, and rarely would its access time move.
    pub(crate) fn looked(&self, (node, fh): (u64, u64), offset: u64, done: bool) {
        if done && offset == 0 && fh & NO_ATIME == 0 {
            self.client.listed_from_beginning(self.caches.fid(node));
        }
    }

    pub(crate) fn list(
        &self,
        req: &Request,
        node: u64,
        offset: u64,
        size: u32,
    ) -> Result<DirBuf, Errno> {
        let mut buf = DirBuf::new(size);
        let dots = |name: &str, ino, next| buf.add(ino, next, DIR_TYPE, OsStr::new(name));
        let Some(mut cookie) = self.dots(req, node, offset, dots) else { return Ok(buf) };
        let dir: Fid = self.caches.fid(node);
        loop {
            let part = self.client.readdir(&cred(req), dir, cookie, ask(size), false);
            // A directory that is gone has no names.
            let part = part.map_err(name_errno)?;
            for e in &part.entries {
                let ino = self.caches.node(e.fid);
                if !buf.add(ino, e.cookie, e.kind.mode_bits(), OsStr::from_bytes(&e.name)) {
                    return Ok(buf);
                }
                cookie = e.cookie;
            }
            if part.end || part.entries.is_empty() {
                return Ok(buf);
            }
        }
    }

    pub(crate) fn list_plus(
        &self,
        req: &Request,
        node: u64,
        offset: u64,
        size: u32,
    ) -> Result<DirPlusBuf, Errno> {
        let mut buf = DirPlusBuf::new(size);
        let bare = |ino, mode| Entry {
            attr: fuse::Attr { ino, mode, ..Default::default() },
            ..Entry::default()
        };
        let dots = |name: &str, ino, next| buf.add(&bare(ino, DIR_TYPE), next, OsStr::new(name));
        let Some(mut cookie) = self.dots(req, node, offset, dots) else { return Ok(buf) };
        let dir = self.caches.fid(node);
        loop {
            let mark = self.caches.mark();
            let part = self.client.readdir(&cred(req), dir, cookie, ask(size), true);
            // A directory that is gone has no names.
            let part = part.map_err(name_errno)?;
            for e in &part.entries {
                let name = OsStr::from_bytes(&e.name);
                // Where one has grown the kernel asks for it.
                let grows = |a: &&Attr| self.caches.grows(self.caches.node(a.fid), a.size);
                let added = match e.attr.as_ref().filter(|a| !grows(a)) {
                    Some(a) => {
                        let known = listed(&self.caches, a, mark, (node, name));
                        let added = buf.add(&known, e.cookie, name);
                        if !added {
                            self.caches.nodes.forget(known.nodeid, 1);
                        }
                        added
                    }
                    None => {
                        buf.add(&bare(self.caches.node(e.fid), e.kind.mode_bits()), e.cookie, name)
                    }
                };
                if !added {
                    return Ok(buf);
                }
                cookie = e.cookie;
            }
            if part.end || part.entries.is_empty() {
                return Ok(buf);
            }
        }
    }
}

/// How much to ask the server for when the kernel wants `size` bytes.
fn ask(size: u32) -> u32 {
    size.clamp(4096, 512 << 10)
}
