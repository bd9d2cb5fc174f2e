//! A model of a POSIX namespace, written from the man pages: maps, nothing clever.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proto::attr::*;
use proto::mds::*;
use proto::{Errno, Fid};

use super::common::Client;

const USERS: (u32, u32) = (10, 20);
const UMASK: u32 = 0o022;

/// What is done; numbers choose among what is there.
#[derive(Clone, Debug)]
pub enum Act {
    Make(u8, u8, u8, u32),
    Link(u8, u8, u8),
    Unlink(u8, u8, bool),
    Rename(u8, u8, u8, u8, u32),
    Write(u8, u16, u16, u8),
    Cut(u8, u16),
    Chmod(u8, u32),
    Chown(u8, u32, u32),
    SetX(u8, u8, u8, u32),
    RemoveX(u8, u8),
    Acl(u8, u8, bool),
    Open(u8, bool),
    Close(u8),
    Lookup(u8, u8),
    Sync,
}

pub fn act() -> impl Strategy<Value = Act> {
    use Act::*;
    let b = any::<u8>;
    let name = || 0u8..9;
    let mode = || 0u32..0o10000;
    prop_oneof![
        6 => (b(), name(), 0u8..8, mode()).prop_map(|(d, n, k, m)| Make(d, n, k, m)),
        2 => (b(), b(), name()).prop_map(|(f, d, n)| Link(f, d, n)),
        3 => (b(), name(), any::<bool>()).prop_map(|(d, n, r)| Unlink(d, n, r)),
        4 => (b(), name(), b(), name(), 0u32..3).prop_map(|(a, n, d, m, f)| Rename(a, n, d, m, f)),
        3 => (b(), 0u16..3000, 0u16..700, b()).prop_map(|(f, o, l, v)| Write(f, o, l, v)),
        2 => (b(), 0u16..5000).prop_map(|(f, s)| Cut(f, s)),
        1 => (b(), mode()).prop_map(|(f, m)| Chmod(f, m)),
        1 => (b(), 0u32..4, 0u32..4).prop_map(|(f, u, g)| Chown(f, u, g)),
        2 => (b(), 0u8..4, b(), 0u32..3).prop_map(|(f, n, l, x)| SetX(f, n, l, x)),
        1 => (b(), 0u8..4).prop_map(|(f, n)| RemoveX(f, n)),
        1 => (b(), 0u8..4, any::<bool>()).prop_map(|(f, a, d)| Acl(f, a, d)),
        2 => (b(), any::<bool>()).prop_map(|(f, t)| Open(f, t)),
        2 => b().prop_map(Close),
        1 => (b(), name()).prop_map(|(d, n)| Lookup(d, n)),
        1 => Just(Sync),
    ]
}

/// user, named user 5 and mask (if extended), group, other
type Perms = (u32, Option<(u32, u32)>, u32, u32);

const ACLS: [Perms; 4] =
    [(7, None, 5, 5), (7, Some((6, 5)), 7, 0), (6, Some((7, 7)), 4, 1), (5, None, 0, 7)];

fn acl_bytes(p: &Perms) -> Vec<u8> {
    let mut e = vec![(1u16, p.0, u32::MAX)];
    e.extend(p.1.map(|(user, _)| (2, user, 5)));
    e.push((4, p.2, u32::MAX));
    e.extend(p.1.map(|(_, mask)| (16, mask, u32::MAX)));
    e.push((32, p.3, u32::MAX));
    let mut b = vec![2, 0, 0, 0];
    for (tag, perm, id) in e {
        b.extend(tag.to_le_bytes());
        b.extend((perm as u16).to_le_bytes());
        b.extend(id.to_le_bytes());
    }
    b
}

fn acl_mode(p: &Perms) -> u32 {
    p.0 << 6 | p.1.map_or(p.2, |(_, mask)| mask) << 3 | p.3
}

/// The mode's bits take the place of user, group class and other.
fn acl_chmod(p: &mut Perms, mode: u32) {
    p.0 = mode >> 6 & 7;
    p.3 = mode & 7;
    match &mut p.1 {
        Some((_, mask)) => *mask = mode >> 3 & 7,
        None => p.2 = mode >> 3 & 7,
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, Fid>,
    parent: Option<Fid>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    access: Option<Perms>,
    default: Option<Perms>,
    opens: Vec<u64>,
}

impl Node {
    fn is(&self, kind: FileKind) -> bool {
        FileKind::from_mode(self.mode) == Some(kind)
    }
}

#[derive(Clone, Debug)]
pub struct Posix {
    nodes: BTreeMap<Fid, Node>,
}

/// What of an answer is compared: mode, links, owner, group, size (not of directories).
pub type Seen = (u32, u32, u32, u32, Option<u64>);
pub type Expect = Result<Vec<Seen>, Errno>;

fn seen(a: &Attr) -> Seen {
    let size = (!a.is_dir()).then_some(a.size);
    (a.mode, a.nlink, a.uid, a.gid, size)
}

pub fn outcome(res: &Res) -> Expect {
    match res {
        Res::Failed { errno } => Err(Errno(i32::from(*errno))),
        Res::Attr { attr } | Res::Entry { attr, .. } | Res::Opened { attr, .. } => {
            Ok(vec![seen(attr)])
        }
        Res::Renamed { moved, replaced } => {
            Ok(std::iter::once(moved).chain(replaced).map(seen).collect())
        }
        Res::Done {} => Ok(vec![]),
        other => panic!("{other:?}"),
    }
}

fn name(n: u8) -> Vec<u8> {
    match n {
        8 => vec![0xff; 255],
        n => format!("n{n}").into_bytes(),
    }
}

fn kind_bits(k: u8) -> u32 {
    match k {
        0..3 => FileKind::File,
        3..6 => FileKind::Dir,
        6 => FileKind::Symlink,
        _ => FileKind::Fifo,
    }
    .mode_bits()
}

fn xname(n: u8) -> Vec<u8> {
    [&b"user.a"[..], b"user.b", b"trusted.c", b"bad.d"][n as usize].to_vec()
}

impl Posix {
    pub fn new() -> Posix {
        let root = Node { mode: 0o040755, nlink: 2, ..Node::default() };
        Posix { nodes: BTreeMap::from([(Fid::ROOT, root)]) }
    }

    /// All clients are gone.
    pub fn restart(&mut self) {
        self.nodes.values_mut().for_each(|n| n.opens.clear());
        self.nodes.retain(|_, n| n.nlink > 0);
    }

    fn pick(&self, n: u8, f: impl Fn(&Node) -> bool) -> Option<Fid> {
        let all: Vec<Fid> = self.nodes.iter().filter(|(_, n)| f(n)).map(|(f, _)| *f).collect();
        (!all.is_empty()).then(|| all[n as usize % all.len()])
    }
    fn dir(&self, n: u8) -> Fid {
        self.pick(n, |n| n.is(FileKind::Dir) && n.nlink > 0).unwrap()
    }
    fn file(&self, n: u8) -> Option<Fid> {
        self.pick(n, |n| n.is(FileKind::File))
    }
    fn any(&self, n: u8) -> Fid {
        self.pick(n, |_| true).unwrap()
    }
    fn handle(&self, n: u8) -> Option<(Fid, u64)> {
        let f = self.pick(n, |n| !n.opens.is_empty())?;
        Some((f, self.nodes[&f].opens[0]))
    }

    /// The operation an act is, if it can be done at all.
    pub fn op(&self, act: &Act, fid: Fid) -> Option<Op> {
        let attr = |fid, set| Op::SetAttr { fid, set };
        Some(match *act {
            Act::Make(d, n, k, m) => Op::Create {
                dir: self.dir(d),
                name: name(n),
                fid,
                mode: kind_bits(k) | m,
                umask: UMASK,
                rdev: 0,
                target: if k == 6 { b"some/where".to_vec() } else { vec![] },
                flags: C_EXCL,
                open: 0,
            },
            Act::Link(f, d, n) => Op::Link { fid: self.any(f), dir: self.dir(d), name: name(n) },
            Act::Unlink(d, n, rmdir) => Op::Unlink { dir: self.dir(d), name: name(n), rmdir },
            Act::Rename(a, n, d, m, flags) => Op::Rename {
                from_dir: self.dir(a),
                from: name(n),
                to_dir: self.dir(d),
                to: name(m),
                flags,
            },
            Act::Write(f, offset, len, v) => Op::WriteInline {
                fid: self.file(f)?,
                offset: offset.into(),
                data: vec![v; len as usize].into(),
                cut: None,
                mtime: None,
            },
            Act::Cut(f, size) => attr(self.file(f)?, SetAttr::size(size.into())),
            Act::Chmod(f, mode) => {
                attr(self.any(f), SetAttr { valid: S_MODE, mode, ..SetAttr::none() })
            }
            Act::Chown(f, uid, gid) => {
                attr(self.any(f), SetAttr { valid: S_UID | S_GID, uid, gid, ..SetAttr::none() })
            }
            Act::SetX(f, n, len, flags) => Op::SetXattr {
                fid: self.any(f),
                name: xname(n),
                value: vec![len; len as usize].into(),
                flags,
            },
            Act::RemoveX(f, n) => Op::RemoveXattr { fid: self.any(f), name: xname(n) },
            Act::Acl(f, a, default) => {
                let fid = match default {
                    true => self.dir(f),
                    false => self.pick(f, |n| !n.is(FileKind::Symlink))?,
                };
                let of = if default { "default" } else { "access" };
                Op::SetXattr {
                    fid,
                    name: format!("system.posix_acl_{of}").into_bytes(),
                    value: acl_bytes(&ACLS[a as usize]).into(),
                    flags: 0,
                }
            }
            Act::Open(f, cut) => {
                let flags = O_READ | O_WRITE | if cut { O_TRUNC } else { 0 };
                Op::Open { fid: self.file(f)?, flags, handle: 0 }
            }
            Act::Close(f) => {
                let (fid, handle) = self.handle(f)?;
                Op::Close { fid, handle, report: None }
            }
            Act::Lookup(d, n) => Op::Lookup { dir: self.dir(d), name: name(n) },
            Act::Sync => Op::Sync {},
        })
    }

    /// The handle an open got.
    pub fn opened(&mut self, act: &Act, handle: u64) {
        if let Act::Open(f, _) = act {
            let f = self.file(*f).unwrap();
            self.nodes.get_mut(&f).unwrap().opens.push(handle);
        }
    }

    fn seen(&self, f: Fid) -> Seen {
        let n = &self.nodes[&f];
        let size = (!n.is(FileKind::Dir)).then_some(n.data.len() as u64);
        (n.mode, n.nlink, n.uid, n.gid, size)
    }

    fn at(&self, dir: Fid, n: u8) -> Option<Fid> {
        self.nodes[&dir].entries.get(&name(n)).copied()
    }

    fn node(&mut self, f: Fid) -> &mut Node {
        self.nodes.get_mut(&f).unwrap()
    }

    /// What the act must do.
    pub fn apply(&mut self, act: &Act, fid: Fid) -> Expect {
        match *act {
            Act::Make(d, n, k, m) => self.make(d, n, kind_bits(k) | m, fid),
            Act::Link(f, d, n) => {
                let (f, d) = (self.any(f), self.dir(d));
                if self.at(d, n).is_some() {
                    return Err(Errno::EEXIST);
                }
                if self.nodes[&f].is(FileKind::Dir) {
                    return Err(Errno::EPERM);
                }
                if self.nodes[&f].nlink == 0 {
                    return Err(Errno::ENOENT);
                }
                self.node(d).entries.insert(name(n), f);
                self.node(f).nlink += 1;
                Ok(vec![self.seen(f)])
            }
            Act::Unlink(d, n, rmdir) => {
                let d = self.dir(d);
                let f = self.at(d, n).ok_or(Errno::ENOENT)?;
                let is_dir = self.nodes[&f].is(FileKind::Dir);
                match (rmdir, is_dir) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ if !self.nodes[&f].entries.is_empty() => return Err(Errno::ENOTEMPTY),
                    _ => {}
                }
                self.node(d).entries.remove(&name(n));
                Ok(vec![self.drop_link(f, d)])
            }
            Act::Rename(a, n, d, m, flags) => self.rename((a, n), (d, m), flags),
            Act::Write(f, offset, len, v) => {
                let f = self.file(f).unwrap();
                let (from, to) = (offset as usize, offset as usize + len as usize);
                let data = &mut self.node(f).data;
                if len > 0 {
                    data.resize(data.len().max(to), 0);
                    data[from..to].fill(v);
                }
                Ok(vec![self.seen(f)])
            }
            Act::Cut(f, size) => {
                let f = self.file(f).unwrap();
                self.node(f).data.resize(size.into(), 0);
                Ok(vec![self.seen(f)])
            }
            Act::Chmod(f, mode) => {
                let f = self.any(f);
                let n = self.node(f);
                n.mode = n.mode & !0o7777 | mode;
                if let Some(acl) = &mut n.access {
                    acl_chmod(acl, mode);
                }
                Ok(vec![self.seen(f)])
            }
            Act::Chown(f, uid, gid) => {
                let f = self.any(f);
                (self.node(f).uid, self.node(f).gid) = (uid, gid);
                Ok(vec![self.seen(f)])
            }
            Act::SetX(_, 3, ..) | Act::RemoveX(_, 3) => Err(Errno::EOPNOTSUPP),
            Act::SetX(f, n, len, flags) => {
                let f = self.any(f);
                let has = self.nodes[&f].xattrs.contains_key(&xname(n));
                match flags {
                    1 if has => return Err(Errno::EEXIST),
                    2 if !has => return Err(Errno::ENODATA),
                    _ => {}
                }
                self.node(f).xattrs.insert(xname(n), vec![len; len as usize]);
                Ok(vec![self.seen(f)])
            }
            Act::RemoveX(f, n) => {
                let f = self.any(f);
                self.node(f).xattrs.remove(&xname(n)).ok_or(Errno::ENODATA)?;
                Ok(vec![self.seen(f)])
            }
            Act::Acl(f, a, true) => {
                let f = self.dir(f);
                self.node(f).default = Some(ACLS[a as usize]);
                Ok(vec![self.seen(f)])
            }
            Act::Acl(f, a, false) => {
                let f = self.pick(f, |n| !n.is(FileKind::Symlink)).unwrap();
                let acl = ACLS[a as usize];
                let n = self.node(f);
                n.mode = n.mode & !0o777 | acl_mode(&acl);
                // One without named entries is the mode and nothing more.
                n.access = acl.1.map(|_| acl);
                Ok(vec![self.seen(f)])
            }
            Act::Open(f, cut) => {
                let f = self.file(f).unwrap();
                let n = self.node(f);
                if cut {
                    n.data.clear();
                    n.mode &= if n.mode & 0o10 != 0 { !0o6000 } else { !0o4000 };
                }
                Ok(vec![self.seen(f)])
            }
            Act::Close(f) => {
                let (f, handle) = self.handle(f).unwrap();
                self.node(f).opens.retain(|h| *h != handle);
                let seen = self.seen(f);
                if self.nodes[&f].nlink == 0 && self.nodes[&f].opens.is_empty() {
                    self.nodes.remove(&f);
                }
                Ok(vec![seen])
            }
            Act::Lookup(d, n) => {
                let f = self.at(self.dir(d), n).ok_or(Errno::ENOENT)?;
                Ok(vec![self.seen(f)])
            }
            Act::Sync => Ok(vec![]),
        }
    }

    fn make(&mut self, d: u8, n: u8, mode: u32, fid: Fid) -> Expect {
        let d = self.dir(d);
        if self.at(d, n).is_some() {
            return Err(Errno::EEXIST);
        }
        let parent = self.nodes[&d].clone();
        let kind = FileKind::from_mode(mode).unwrap();
        let mut node = Node { mode, uid: USERS.0, gid: USERS.1, nlink: 1, ..Node::default() };
        if kind == FileKind::Symlink {
            node.mode |= 0o777;
            node.data = b"some/where".to_vec();
        } else if let Some(mut acl) = parent.default {
            let both = acl_mode(&acl) & mode;
            acl_chmod(&mut acl, both);
            node.mode = mode & !0o777 | acl_mode(&acl);
            node.access = acl.1.map(|_| acl);
            node.default = parent.default.filter(|_| kind == FileKind::Dir);
        } else {
            node.mode &= !UMASK;
        }
        if parent.mode & 0o2000 != 0 {
            node.gid = parent.gid;
            node.mode |= if kind == FileKind::Dir { 0o2000 } else { 0 };
        }
        if kind == FileKind::Dir {
            node.nlink = 2;
            node.parent = Some(d);
            self.node(d).nlink += 1;
        }
        self.node(d).entries.insert(name(n), fid);
        self.nodes.insert(fid, node);
        Ok(vec![self.seen(fid)])
    }

    /// A name of `f` in `dir` is gone.
    fn drop_link(&mut self, f: Fid, dir: Fid) -> Seen {
        if self.nodes[&f].is(FileKind::Dir) {
            self.node(dir).nlink -= 1;
            self.node(f).nlink = 0;
        } else {
            self.node(f).nlink -= 1;
        }
        let seen = self.seen(f);
        if self.nodes[&f].nlink == 0 && self.nodes[&f].opens.is_empty() {
            self.nodes.remove(&f);
        }
        seen
    }

    fn below(&self, dir: Fid, top: Fid) -> bool {
        std::iter::successors(Some(dir), |d| self.nodes[d].parent).any(|d| d == top)
    }

    fn rename(&mut self, from: (u8, u8), to: (u8, u8), flags: u32) -> Expect {
        let (a, d) = (self.dir(from.0), self.dir(to.0));
        let f = self.at(a, from.1).ok_or(Errno::ENOENT)?;
        let old = self.at(d, to.1);
        if flags == RN_NOREPLACE && old.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags == RN_EXCHANGE && old.is_none() {
            return Err(Errno::ENOENT);
        }
        let is_dir = |f: Fid| self.nodes[&f].is(FileKind::Dir);
        let crossing =
            |f: Fid, dir: Fid, into: Fid| dir != into && is_dir(f) && self.below(into, f);
        if crossing(f, a, d) {
            return Err(Errno::EINVAL);
        }
        if flags == RN_EXCHANGE {
            let o = old.unwrap();
            if crossing(o, d, a) {
                return Err(Errno::EINVAL);
            }
            for (x, out, into, n) in [(f, a, d, to.1), (o, d, a, from.1)] {
                self.node(into).entries.insert(name(n), x);
                if self.nodes[&x].is(FileKind::Dir) {
                    self.node(out).nlink -= 1;
                    self.node(into).nlink += 1;
                    self.node(x).parent = Some(into);
                }
            }
            return Ok(vec![self.seen(f), self.seen(o)]);
        }
        if old == Some(f) {
            return Ok(vec![self.seen(f)]);
        }
        match old.map(|o| (is_dir(f), is_dir(o), o)) {
            Some((true, false, _)) => return Err(Errno::ENOTDIR),
            Some((false, true, _)) => return Err(Errno::EISDIR),
            Some((.., o)) if !self.nodes[&o].entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let moves_dir = is_dir(f);
        self.node(a).entries.remove(&name(from.1));
        let lost = old.map(|o| self.drop_link(o, d));
        self.node(d).entries.insert(name(to.1), f);
        if moves_dir {
            self.node(a).nlink -= 1;
            self.node(d).nlink += 1;
            self.node(f).parent = Some(d);
        }
        Ok(std::iter::once(self.seen(f)).chain(lost).collect())
    }

    fn all_xattrs(&self, f: Fid) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let n = &self.nodes[&f];
        let mut x = n.xattrs.clone();
        let acl = |k: &str| format!("system.posix_acl_{k}").into_bytes();
        x.extend(n.access.map(|a| (acl("access"), acl_bytes(&a))));
        x.extend(n.default.map(|a| (acl("default"), acl_bytes(&a))));
        x
    }
}

/// Fails where the target is not what the model says.
pub fn compare(c: &Client, m: &Posix) {
    assert_eq!(difference(c, m), None);
}

/// What differs first.
pub fn difference(c: &Client, m: &Posix) -> Option<String> {
    let mut todo = vec![Fid::ROOT];
    while let Some(dir) = todo.pop() {
        let entries = c.entries(dir, 3000);
        let got: BTreeMap<_, _> = entries.iter().map(|e| (e.name.clone(), e.fid)).collect();
        if got != m.nodes[&dir].entries {
            return Some(format!("{dir}: {got:?} for {:?}", m.nodes[&dir].entries));
        }
        let dirs = entries.iter().filter(|e| e.kind == FileKind::Dir);
        todo.extend(dirs.map(|e| e.fid));
        for e in entries {
            let listed = seen(&e.attr.expect("attributes were asked for"));
            if listed != m.seen(e.fid) {
                return Some(format!("{}: {listed:?} for {:?}", e.fid, m.seen(e.fid)));
            }
        }
    }
    m.nodes.iter().find_map(|(f, n)| {
        let attr = c.attr(*f).map(|a| seen(&a));
        if attr != Ok(m.seen(*f)) {
            return Some(format!("{f}: {attr:?} for {:?}", m.seen(*f)));
        }
        let x = c.xattrs(*f);
        if x != m.all_xattrs(*f) {
            return Some(format!("{f}: {x:?} for {:?}", m.all_xattrs(*f)));
        }
        if n.is(FileKind::File) {
            let mut data = c.read(*f).unwrap();
            data.resize(n.data.len(), 0);
            return (data != n.data).then(|| format!("data of {f}"));
        }
        let target = n.is(FileKind::Symlink).then(|| c.one(Op::ReadLink { fid: *f }));
        let expect = Ok(Res::Data { data: b"some/where"[..].into() });
        target.filter(|t| *t != expect).map(|t| format!("target of {f}: {t:?}"))
    })
}
