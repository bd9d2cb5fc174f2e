//! The name space of the file system in memory.

use pinstripe_fuse::*;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

#[derive(Default)]
pub struct Node {
    pub attr: Attr,
    pub data: Vec<u8>,
    pub names: BTreeMap<u64, (OsString, u64)>,
    pub by_name: HashMap<OsString, u64>,
    pub next_cookie: u64,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    pub lookups: u64,
}

#[derive(Default)]
pub struct Tree {
    pub nodes: HashMap<u64, Node>,
    next: u64,
}

pub fn now() -> Time {
    SystemTime::now().into()
}

impl Tree {
    pub fn node(&mut self, id: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or(Errno::ENOENT)
    }

    pub fn find(&mut self, parent: u64, name: &OsStr) -> Result<u64> {
        let dir = self.node(parent)?;
        let cookie = dir.by_name.get(name).ok_or(Errno::ENOENT)?;
        Ok(dir.names[cookie].1)
    }

    pub fn add(&mut self, parent: u64, name: &OsStr, id: u64) {
        let dir = self.nodes.get_mut(&parent).unwrap();
        dir.next_cookie += 1;
        dir.names.insert(dir.next_cookie, (name.to_owned(), id));
        dir.by_name.insert(name.to_owned(), dir.next_cookie);
        dir.attr.mtime = now();
        self.nodes.get_mut(&id).unwrap().attr.nlink += 1;
    }

    pub fn remove(&mut self, parent: u64, name: &OsStr) -> Result<u64> {
        let dir = self.node(parent)?;
        let cookie = dir.by_name.remove(name).ok_or(Errno::ENOENT)?;
        let (_, id) = dir.names.remove(&cookie).unwrap();
        self.node(id)?.attr.nlink -= 1;
        Ok(id)
    }

    pub fn make(&mut self, mode: u32, uid: u32, gid: u32) -> u64 {
        self.next += 1;
        let id = self.next;
        let t = now();
        let attr =
            Attr { ino: id, mode, uid, gid, atime: t, mtime: t, ctime: t, ..Attr::default() };
        let mut node = Node { attr, ..Node::default() };
        if mode & libc::S_IFMT == libc::S_IFDIR {
            node.attr.nlink = 1;
        }
        self.nodes.insert(id, node);
        id
    }
}
