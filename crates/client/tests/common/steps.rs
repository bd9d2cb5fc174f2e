//! Random operations of a client, and everything it shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use pinstripe_client::{Client, Data, OpenFile, OpenFlags};
use proptest::prelude::*;
use proto::acl;
use proto::attr::{A_INLINE, A_SIZE_LAGS, S_ATIME, S_MODE, S_MTIME, S_MTIME_NOW, S_SIZE, S_UID};
use proto::mds::{C_EXCL, Cred, RN_EXCHANGE, RN_NOREPLACE, RN_WHITEOUT};
use proto::wire::List;
use proto::{Attr, Errno, Fid, FileKind, SetAttr, TimeSpec};

use super::common::root;

pub const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };

#[derive(Clone, Debug)]
pub enum Step {
    Make { dir: usize, name: u8, kind: FileKind, mode: u32, user: u32 },
    Create { dir: usize, name: u8, bytes: usize, keep: bool },
    Unlink { dir: usize, name: u8, rmdir: bool },
    Rename { from: (usize, u8), to: (usize, u8), flags: u32 },
    Link { from: (usize, u8), to: (usize, u8) },
    Set { at: (usize, u8), what: u32, size: u64 },
    Write { at: (usize, u8), offset: u64, bytes: usize },
    Look { at: (usize, u8) },
    Xattr { at: (usize, u8) },
    Acl { at: (usize, u8), mode: Option<u16>, full: bool },
    Hold { at: (usize, u8) },
    List { dir: usize },
    CloseAll,
    Sync,
    Settle,
}

fn place() -> impl Strategy<Value = (usize, u8)> {
    (0usize..6, 0u8..8)
}

pub fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![
        FileKind::Dir,
        FileKind::Dir,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::File,
        FileKind::Char,
    ]);
    let mode = prop::sample::select(vec![0o755u32, 0o2775, 0o640, 0o1777]);
    let flags = prop::sample::select(vec![0, 0, 0, RN_NOREPLACE, RN_EXCHANGE, RN_WHITEOUT]);
    let what = prop::sample::select(vec![S_MODE, S_UID, S_SIZE, S_MTIME | S_ATIME, S_MTIME_NOW, 0]);
    prop_oneof![
        6 => (place(), kind, mode, 0u32..3)
            .prop_map(|((dir, name), kind, mode, user)| Step::Make { dir, name, kind, mode, user }),
        6 => (place(), prop_oneof![0usize..5000, Just(70_000)], any::<bool>())
            .prop_map(|((dir, name), bytes, keep)| Step::Create { dir, name, bytes, keep }),
        5 => (place(), any::<bool>())
            .prop_map(|((dir, name), rmdir)| Step::Unlink { dir, name, rmdir }),
        5 => (place(), place(), flags).prop_map(|(from, to, flags)| Step::Rename { from, to, flags }),
        2 => (place(), place()).prop_map(|(from, to)| Step::Link { from, to }),
        4 => (place(), what, prop_oneof![0u64..9000, Just(100_000)])
            .prop_map(|(at, what, size)| Step::Set { at, what, size }),
        3 => (place(), 0u64..9000, 1usize..3000)
            .prop_map(|(at, offset, bytes)| Step::Write { at, offset, bytes }),
        3 => place().prop_map(|at| Step::Look { at }),
        1 => place().prop_map(|at| Step::Xattr { at }),
        2 => (place(), prop::option::of(0u16..0o1000), prop::bool::weighted(0.2))
            .prop_map(|(at, mode, full)| Step::Acl { at, mode, full }),
        2 => place().prop_map(|at| Step::Hold { at }),
        2 => (0usize..6).prop_map(|dir| Step::List { dir }),
        1 => Just(Step::CloseAll),
        1 => Just(Step::Sync),
        1 => Just(Step::Settle),
    ]
}

fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid + 100, groups: List(vec![]) }
}

/// An access ACL, with or without a named user, as Linux keeps it.
pub fn access(mode: u16, full: bool) -> Vec<u8> {
    let perm = |shift: u32| mode >> shift & 7;
    let named: &[_] = if full { &[(2, 6, 1)] } else { &[] };
    let mask: &[_] = if full { &[(16, perm(3), u32::MAX)] } else { &[] };
    let owner = [(1, perm(6), u32::MAX)];
    let group = [(4, perm(3), u32::MAX)];
    let other = [(32, perm(0), u32::MAX)];
    let entry = |&(tag, perm, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let entries = owner.iter().chain(named).chain(&group).chain(mask).chain(&other);
    [2u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(entry)).flatten().collect()
}

fn name(n: u8) -> Vec<u8> {
    format!("n{n}").into_bytes()
}

/// Everything a client shows, by path.
pub type Tree = BTreeMap<Vec<u8>, (u64, Attr)>;

fn walk(c: &Client, dir: Fid, at: &[u8], into: &mut Tree) {
    let mut cookie = 0;
    loop {
        let part = c.readdir(&root(), dir, cookie, 8192, true).unwrap();
        for e in &part.entries {
            cookie = e.cookie;
            let path = [at, b"/", &e.name[..]].concat();
            let attr = c.getattr(&root(), e.fid).unwrap();
            // A file with objects may be reported in the background meanwhile.
            if attr.flags & (A_INLINE | A_SIZE_LAGS) == A_INLINE || attr.kind() != FileKind::File {
                // Data may be told in the background meanwhile, which counts as a version.
                let shown = |a: &Attr| Attr { version: 0, ..a.clone() };
                let listed = e.attr.as_ref().map(shown);
                assert_eq!(Some(shown(&attr)), listed, "listing and getattr differ");
                let found = c.lookup(&root(), dir, &e.name).unwrap();
                assert_eq!(shown(&attr), shown(&found));
            }
            into.insert(path.clone(), (e.cookie, attr.clone()));
            if attr.is_dir() {
                assert_eq!(c.lookup(&root(), e.fid, b"..").unwrap().fid, dir);
                walk(c, e.fid, &path, into);
            }
        }
        if part.end {
            return;
        }
    }
}

pub fn tree(c: &Client) -> Tree {
    let mut tree = Tree::new();
    tree.insert(b"".to_vec(), (0, c.getattr(&root(), Fid::ROOT).unwrap()));
    walk(c, Fid::ROOT, b"", &mut tree);
    // A mark of a writer that is gone ends with its close, which is told behind, and shows nowhere.
    tree.values_mut().for_each(|(_, attr)| attr.flags &= !A_SIZE_LAGS);
    tree
}

/// What the steps of one client need.
pub struct Run {
    pub client: Client,
    pub open: Vec<Arc<OpenFile>>,
    /// Directories by number.
    pub dirs: Vec<Fid>,
}

impl Run {
    fn dir(&self, n: usize) -> Fid {
        self.dirs[n % self.dirs.len()]
    }

    fn find(&self, at: (usize, u8)) -> Result<Attr, Errno> {
        self.client.lookup(&root(), self.dir(at.0), &name(at.1))
    }

    pub fn step(&mut self, s: &Step) -> Result<(), Errno> {
        let c = self.client.clone();
        match s {
            Step::Make { dir, name: n, kind, mode, user: u } => {
                let target: &[u8] = if *kind == FileKind::Symlink { b"to/where" } else { b"" };
                let mode = kind.mode_bits() | mode;
                let made = c.create(
                    &user(*u),
                    self.dir(*dir),
                    &name(*n),
                    mode,
                    0o22,
                    7,
                    target,
                    C_EXCL,
                    None,
                );
                let made = made?;
                if made.attr.is_dir() && self.dirs.len() < 6 {
                    self.dirs.push(made.attr.fid);
                }
            }
            Step::Create { dir, name: n, bytes, keep } => {
                let mode = FileKind::File.mode_bits() | 0o644;
                let made =
                    c.create(&user(1), self.dir(*dir), &name(*n), mode, 0o22, 0, b"", 0, Some(RW))?;
                let Some(file) = made.file else { return Err(Errno::EISDIR) };
                if *bytes > 0 {
                    file.write(0, Data::Slice(&vec![1; *bytes]))?;
                }
                if *keep && self.open.len() < 8 {
                    self.open.push(file);
                } else {
                    file.flush()?;
                    file.release();
                }
            }
            Step::Unlink { dir, name: n, rmdir: true } => {
                let gone = c.rmdir(&root(), self.dir(*dir), &name(*n))?;
                self.dirs.retain(|d| *d != gone.fid);
            }
            Step::Unlink { dir, name: n, rmdir: false } => {
                c.unlink(&root(), self.dir(*dir), &name(*n))?;
            }
            Step::Rename { from, to, flags } => {
                let (a, b) = (self.dir(from.0), self.dir(to.0));
                let (_, over) = c.rename(&root(), a, &name(from.1), b, &name(to.1), *flags)?;
                if let Some(over) = over.filter(|o| o.nlink == 0) {
                    self.dirs.retain(|d| *d != over.fid);
                }
            }
            Step::Link { from, to } => {
                let fid = self.find(*from)?.fid;
                c.link(&root(), fid, self.dir(to.0), &name(to.1))?;
            }
            Step::Set { at, what, size } => {
                let fid = self.find(*at)?.fid;
                let t = TimeSpec { sec: 1_000, nsec: 5 };
                let set = SetAttr {
                    valid: *what,
                    mode: 0o4711,
                    uid: 77,
                    size: *size,
                    atime: t,
                    mtime: t,
                    ..SetAttr::none()
                };
                c.setattr(&root(), fid, set, None)?;
            }
            Step::Write { at, offset, bytes } => {
                let attr = self.find(*at)?;
                if attr.kind() != FileKind::File {
                    return Err(Errno::EISDIR);
                }
                let file = c.open(&root(), attr.fid, RW)?;
                file.write(*offset, Data::Slice(&vec![2; *bytes]))?;
                file.flush()?;
                file.release();
            }
            Step::Look { at } => {
                self.find(*at)?;
            }
            Step::Xattr { at } => {
                let fid = self.find(*at)?.fid;
                c.setxattr(&root(), fid, b"user.x", b"1", 0)?;
            }
            Step::Acl { at, mode, full } => {
                let fid = self.find(*at)?.fid;
                match mode {
                    Some(mode) => {
                        c.setxattr(&root(), fid, acl::ACCESS, &access(*mode, *full), 0)?
                    }
                    None if *full => c.removexattr(&root(), fid, acl::DEFAULT)?,
                    None => c.removexattr(&root(), fid, acl::ACCESS)?,
                };
            }
            Step::Hold { at } => {
                let fid = self.find(*at)?.fid;
                self.open.push(c.open(&root(), fid, OpenFlags::default())?);
            }
            Step::List { dir } => {
                // Known by its number only, it may not be there (yet).
                c.getattr(&root(), self.dir(*dir))?;
                let mut tree = Tree::new();
                walk(&c, self.dir(*dir), b"", &mut tree);
            }
            Step::CloseAll => self.open.drain(..).for_each(|f| f.release()),
            Step::Sync => c.sync_all()?,
            Step::Settle => {}
        }
        Ok(())
    }
}

/// Failures that random operations meet.
pub const PLAIN: [Errno; 8] = [
    Errno::EEXIST,
    Errno::ENOENT,
    Errno::ENOTDIR,
    Errno::EISDIR,
    Errno::ENOTEMPTY,
    Errno::EINVAL,
    Errno::EPERM,
    Errno::EOPNOTSUPP,
];
