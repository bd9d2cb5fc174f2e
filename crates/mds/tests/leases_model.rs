//! Random operations of several sessions: after each step nobody may hold what another was told to
//! be otherwise, or has changed since.
//!
//! Independent of the rules: every holder caches the answers it got while it had the lease that
//! covers them (attributes under ATTR, names under LOOKUP, data under READ); after every step each
//! cached value must be what the target says to a session that asks without leases.

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{DIR, FILE, Solo};
use holder::Holder;
use pinstripe_mds::MdtOptions;
use pinstripe_mds::leases::EXCLUSIVE;
use proptest::prelude::*;
use proto::attr::{Attr, S_MODE, S_SIZE, SetAttr};
use proto::mds::*;
use proto::{Fid, FileKind};
use store::memory::MemoryDisk;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Act {
    Lookup(usize, usize),
    GetAttr(usize),
    List(usize),
    Create(usize, usize, bool),
    Unlink(usize, usize),
    Rename(usize, usize, usize, usize),
    Link(usize, usize, usize),
    Chmod(usize, u32),
    Resize(usize, u64),
    Open(usize, bool),
    Close(usize),
    Write(usize, u8),
    Read(usize),
    Report(usize),
    Ask(usize, u8),
    Release(usize),
}

fn act() -> impl Strategy<Value = Act> {
    use Act::*;
    let (i, n) = (0..12usize, 0..NAMES.len());
    prop_oneof![
        4 => (i.clone(), n.clone()).prop_map(|(d, n)| Lookup(d, n)),
        2 => i.clone().prop_map(GetAttr),
        2 => i.clone().prop_map(List),
        4 => (i.clone(), n.clone(), any::<bool>()).prop_map(|(d, n, dir)| Create(d, n, dir)),
        2 => (i.clone(), n.clone()).prop_map(|(d, n)| Unlink(d, n)),
        2 => (i.clone(), n.clone(), i.clone(), n.clone()).prop_map(|(a, b, c, d)| Rename(a, b, c, d)),
        1 => (i.clone(), i.clone(), n).prop_map(|(f, d, n)| Link(f, d, n)),
        1 => (i.clone(), 0..0o777u32).prop_map(|(f, m)| Chmod(f, m)),
        1 => (i.clone(), 0..5000u64).prop_map(|(f, s)| Resize(f, s)),
        3 => (i.clone(), any::<bool>()).prop_map(|(f, w)| Open(f, w)),
        2 => i.clone().prop_map(Close),
        2 => (i.clone(), any::<u8>()).prop_map(|(f, b)| Write(f, b)),
        2 => i.clone().prop_map(Read),
        1 => i.clone().prop_map(Report),
        1 => (i.clone(), any::<u8>()).prop_map(|(f, b)| Ask(f, b & 0x7f)),
        1 => i.prop_map(Release),
    ]
}

/// What one holder has seen.
#[derive(Default)]
struct Seen {
    attrs: BTreeMap<Fid, Attr>,
    names: BTreeMap<(Fid, String), Option<Fid>>,
    data: BTreeMap<Fid, Vec<u8>>,
    handles: Vec<(Fid, u64)>,
}

struct World {
    s: Solo,
    truth: common::Client,
    holders: Vec<(Holder, Seen)>,
    /// Everything ever made.
    fids: Vec<Fid>,
}

fn same(a: &Attr, b: &Attr) -> bool {
    // Times of access are not kept coherent; versions nobody looks at.
    let mut a = a.clone();
    (a.atime, a.version) = (b.atime, b.version);
    a == *b
}

impl World {
    fn new(sessions: usize) -> World {
        let options = MdtOptions {
            group_delay: Duration::from_millis(1),
            orphan_grace: Duration::ZERO,
            ..MdtOptions::default()
        };
        let s = Solo::with(&MemoryDisk::new(), options);
        let holders = (0..sessions).map(|_| (Holder::new(&s), Seen::default())).collect();
        // Observers get nothing and change nothing; what they ask would call back exclusive leases,
        // so the truth is asked for only where nobody has one.
        let truth = s.client_with(proto::mgs::FEATURE_OBSERVER, [9; 16]);
        World { s, truth, holders, fids: vec![Fid::ROOT] }
    }

    fn fid(&self, i: usize) -> Fid {
        self.fids[i * 7 % self.fids.len()]
    }

    fn step(&mut self, who: usize, act: &Act) {
        let who = who % self.holders.len();
        let name = |n: &usize| NAMES[*n].as_bytes().to_vec();
        let holder = self.holders[who].0.clone();
        let op = match act {
            Act::Lookup(d, n) => Op::Lookup { dir: self.fid(*d), name: name(n) },
            Act::GetAttr(f) => Op::GetAttr { fid: self.fid(*f) },
            Act::List(d) => {
                Op::ReadDir { dir: self.fid(*d), cookie: 0, max_bytes: 65536, flags: RD_PLUS }
            }
            Act::Create(d, n, dir) => {
                let fid = holder.client.fid();
                self.fids.push(fid);
                Op::Create {
                    dir: self.fid(*d),
                    name: name(n),
                    fid,
                    mode: if *dir { DIR } else { FILE },
                    umask: 0,
                    rdev: 0,
                    target: vec![],
                    flags: C_EXCL,
                    open: 0,
                }
            }
            Act::Unlink(d, n) => {
                let dir = self.fid(*d);
                let kind = self.kind_of(dir, NAMES[*n]);
                Op::Unlink { dir, name: name(n), rmdir: kind == Some(FileKind::Dir) }
            }
            Act::Rename(a, b, c, d) => Op::Rename {
                from_dir: self.fid(*a),
                from: name(b),
                to_dir: self.fid(*c),
                to: name(d),
                flags: 0,
            },
            Act::Link(f, d, n) => Op::Link { fid: self.fid(*f), dir: self.fid(*d), name: name(n) },
            Act::Chmod(f, mode) => {
                let set = SetAttr { valid: S_MODE, mode: *mode, ..SetAttr::none() };
                Op::SetAttr { fid: self.fid(*f), set }
            }
            Act::Resize(f, size) => {
                let set = SetAttr { valid: S_SIZE, size: *size, ..SetAttr::none() };
                Op::SetAttr { fid: self.fid(*f), set }
            }
            Act::Open(f, write) => {
                let flags = if *write { O_READ | O_WRITE } else { O_READ };
                Op::Open { fid: self.fid(*f), flags, handle: 0 }
            }
            Act::Close(i) => {
                let handles = &mut self.holders[who].1.handles;
                if handles.is_empty() {
                    return;
                }
                let (fid, handle) = handles.remove(i % handles.len());
                Op::Close { fid, handle, report: None }
            }
            Act::Write(f, byte) => Op::WriteInline {
                fid: self.fid(*f),
                offset: u64::from(*byte),
                data: vec![*byte; 10].into(),
                cut: None,
                mtime: None,
            },
            Act::Read(f) => Op::ReadInline { fid: self.fid(*f) },
            Act::Report(f) => {
                let report =
                    SizeReport { size: 0, exact: false, blocks: None, mtime: None, atime: None };
                Op::Report { fid: self.fid(*f), report }
            }
            Act::Ask(f, bits) => Op::Lease { fid: self.fid(*f), bits: *bits },
            Act::Release(i) => {
                let held = holder.held();
                if !held.is_empty() {
                    holder.release(vec![held[i % held.len()].clone()]);
                }
                return;
            }
        };
        let res = holder.run(vec![op.clone()]).remove(0);
        self.note(who, &op, &res);
    }

    fn kind_of(&self, dir: Fid, name: &str) -> Option<FileKind> {
        // By a session of its own kind: it must see through exclusive leases, too.
        self.truth.lookup(dir, name).ok().and_then(|a| FileKind::from_mode(a.mode))
    }

    /// Keeps what an answer told.
    fn note(&mut self, who: usize, op: &Op, res: &Res) {
        let seen = &mut self.holders[who].1;
        // Nobody keeps what was removed.
        let mut attr = |a: &Attr| match a.nlink {
            0 => drop((seen.attrs.remove(&a.fid), seen.data.remove(&a.fid))),
            _ => drop(seen.attrs.insert(a.fid, a.clone())),
        };
        match res {
            Res::Attr { attr: a } | Res::Entry { attr: a, .. } | Res::Opened { attr: a, .. } => {
                attr(a);
            }
            Res::Inline { attr: a, .. } => attr(a),
            Res::Renamed { moved, .. } => attr(moved),
            Res::Entries { entries, .. } => {
                entries.0.iter().filter_map(|e| e.attr.as_ref()).for_each(attr);
            }
            _ => {}
        }
        match (op, res) {
            (Op::Lookup { dir, name }, Res::Entry { attr, .. }) => {
                seen.names.insert((*dir, text(name)), Some(attr.fid));
            }
            (Op::Lookup { dir, name }, Res::Failed { errno: 2 }) => {
                seen.names.insert((*dir, text(name)), None);
            }
            (Op::Create { dir, name, fid, .. }, Res::Entry { .. }) => {
                seen.names.insert((*dir, text(name)), Some(*fid));
            }
            (Op::Unlink { dir, name, .. }, Res::Attr { .. }) => {
                seen.names.insert((*dir, text(name)), None);
            }
            (Op::Open { fid, .. }, Res::Opened { open, .. }) => {
                seen.handles.push((*fid, open.handle))
            }
            (Op::ReadInline { fid }, Res::Inline { data: Some(data), .. }) => {
                seen.data.insert(*fid, data.to_vec());
            }
            (Op::WriteInline { fid, .. }, Res::Attr { .. }) => drop(seen.data.remove(fid)),
            (Op::SetAttr { fid, .. }, Res::Attr { .. }) => drop(seen.data.remove(fid)),
            (Op::Rename { from_dir, from, to_dir, to, .. }, Res::Renamed { .. }) => {
                seen.names.remove(&(*from_dir, text(from)));
                seen.names.remove(&(*to_dir, text(to)));
            }
            (Op::Link { dir, name, .. }, Res::Attr { .. }) => {
                seen.names.remove(&(*dir, text(name)));
            }
            _ => {}
        }
        // One's own changes tell one what they changed beside that.
        if !matches!(res, Res::Failed { .. }) {
            match op {
                Op::Create { dir, .. } | Op::Unlink { dir, .. } | Op::Link { dir, .. } => {
                    seen.attrs.remove(dir);
                }
                Op::Rename { from_dir, to_dir, .. } => {
                    seen.attrs.remove(from_dir);
                    seen.attrs.remove(to_dir);
                    if let Res::Renamed { replaced: Some(r), .. } = res {
                        seen.attrs.remove(&r.fid);
                        seen.data.remove(&r.fid);
                    }
                }
                _ => {}
            }
        }
        // What is not covered by a lease is not kept.
        for (h, seen) in &mut self.holders {
            seen.attrs.retain(|f, _| h.has(*f) & LS_ATTR != 0);
            seen.names.retain(|(d, _), _| h.has(*d) & LS_LOOKUP != 0);
            seen.data.retain(|f, _| h.has(*f) & LS_READ != 0);
        }
    }

    fn check(&self) {
        let all: Vec<&Holder> = self.holders.iter().map(|h| &h.0).collect();
        holder::check(&all, &self.s);
        let table = self.s.mdt.leases();
        let hidden = |f: Fid| table.iter().any(|(fid, _, b)| *fid == f && b & EXCLUSIVE != 0);
        for (i, (_, seen)) in self.holders.iter().enumerate() {
            for (fid, a) in seen.attrs.iter().filter(|(f, _)| !hidden(**f)) {
                let now = self.truth.attr(*fid);
                assert!(now.as_ref().is_ok_and(|n| same(a, n)), "session {i} has {a:?}: {now:?}");
            }
            for ((dir, name), fid) in seen.names.iter().filter(|((d, _), _)| !hidden(*d)) {
                // What is behind the name may be hidden; the name is not.
                if fid.is_some_and(hidden) {
                    continue;
                }
                let now = self.truth.lookup(*dir, name).ok().map(|a| a.fid);
                assert_eq!(*fid, now, "session {i}: {name} in {dir}");
            }
            for (fid, data) in seen.data.iter().filter(|(f, _)| !hidden(**f)) {
                assert_eq!(Ok(data), self.truth.read(*fid).as_ref(), "session {i}: {fid}");
            }
        }
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn nobody_holds_what_another_has_changed(
        steps in proptest::collection::vec((0..4usize, act()), 1..120),
        sessions in 2..5usize,
    ) {
        let mut w = World::new(sessions);
        for (who, act) in &steps {
            w.step(*who, act);
            w.check();
        }
        let status = w.truth.status();
        prop_assert_eq!(&status["leases"]["evictions"], 0);
        prop_assert_eq!(&status["leases"]["waiting"], 0);
    }
}
