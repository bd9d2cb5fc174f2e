//! A check of a stopped target: entries, links, parents, sizes, flags; what it owns on the OSTs.
//!
//! Role: read every record of a snapshot once and say what does not fit. Never does: repair.

use std::collections::HashMap;
use std::path::Path;

use proto::attr::{A_HAS_XATTR, A_INLINE, A_SIZE_LAGS};
use proto::layout::Layout;
use proto::{Fid, FileKind};
use serde::Serialize;
use store::{Snapshot, StoreError};

use crate::format;
use crate::hot::Newest;
use crate::keys;
use crate::record::{self, Dent, Garbage, Inode, Xattrs};
use crate::server::MdtError;

/// Records read at a time.
const SCAN: usize = 4096;

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its kind, one of the names in `docs/operations.md`.
    pub kind: &'static str,
    /// The inode concerned, as text, or the name of the target's own record.
    pub fid: String,
    /// What is wrong, for people.
    pub text: String,
}

/// Objects a file owns.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The file.
    pub fid: Fid,
    /// Where they are.
    pub layout: Layout,
    /// Its size; objects may reach further only while `lags`.
    pub size: u64,
    /// 512-byte blocks of its objects, as last reported.
    pub blocks: u64,
    /// A writer had not reported when the target stopped.
    pub lags: bool,
    /// The file is gone; the objects wait to be destroyed.
    pub garbage: bool,
    /// Data is still inline: the objects are being filled.
    pub inline: bool,
}

/// What a check found.
#[derive(Default, Debug)]
pub struct Report {
    /// Everything that does not fit.
    pub problems: Vec<Problem>,
    /// Inodes seen.
    pub inodes: u64,
    /// Entries seen.
    pub entries: u64,
    /// Owners of objects.
    pub owners: Vec<Owner>,
}

#[derive(Default)]
struct Seen {
    inode: Option<Brief>,
    links: u32,
    subdirs: u32,
    entries: u64,
    parent: Option<Fid>,
    home_found: bool,
    orphan: bool,
    inline: Option<usize>,
    xattrs: bool,
}

struct Brief {
    kind: FileKind,
    nlink: u32,
    size: u64,
    flags: u32,
    blocks: u64,
    home: Option<record::Home>,
}

/// The problem of a target whose store is not there: what it owns is not known.
pub const STORE_LOST: &str = "store-lost";

/// Checks the store of a target's directory without changing it.
pub fn check_dir(dir: &Path) -> Result<Report, StoreError> {
    let Some(store) = format::store(dir)? else { return Ok(lost(dir)) };
    let snapshot = store::fjall_engine::open_read_only(&store)?;
    check(&*snapshot)
}

fn lost(dir: &Path) -> Report {
    let path = dir.join(format::STORE).display().to_string();
    let text = MdtError::StoreLost { path }.to_string();
    let problem = Problem { kind: STORE_LOST, fid: format::STORE.into(), text };
    Report { problems: vec![problem], ..Report::default() }
}

/// Checks a snapshot.
pub fn check(snapshot: &dyn Snapshot) -> Result<Report, StoreError> {
    let mut c = Checker::default();
    let newest = match Newest::of(snapshot) {
        Ok(newest) => Some(newest),
        Err(StoreError::Corrupt(text)) => {
            c.problem("damaged-record", Fid::NONE, text);
            None
        }
        Err(e) => return Err(e),
    };
    let snapshot = newest.as_ref().map_or(snapshot, |n| n as &dyn Snapshot);
    for kind in [
        keys::INODE,
        keys::ENTRY,
        keys::INLINE,
        keys::XATTR,
        keys::LINK,
        keys::ORPHAN,
        keys::GARBAGE,
    ] {
        let end = keys::after(&[kind]);
        let mut from = vec![kind];
        loop {
            let part = snapshot.scan(&from, end.as_deref(), SCAN)?;
            for (k, v) in &part {
                c.record(kind, k, v);
            }
            match part.last() {
                Some((k, _)) if part.len() == SCAN => from = [k, &[0][..]].concat(),
                _ => break,
            }
        }
    }
    // The first opening reserves sequences, then makes the root.
    let opened = snapshot.get(&keys::single("sequence"))?.is_some();
    c.finish(opened);
    Ok(c.report)
}

#[derive(Default)]
struct Checker {
    seen: HashMap<Fid, Seen>,
    links: HashMap<(Fid, Fid, Vec<u8>), bool>,
    report: Report,
}

impl Checker {
    fn problem(&mut self, kind: &'static str, fid: Fid, text: String) {
        self.report.problems.push(Problem { kind, fid: fid.to_string(), text });
    }

    fn decode<T: proto::Wire>(&mut self, fid: Fid, key: &[u8], v: &[u8]) -> Option<T> {
        match record::decode(v) {
            Ok(t) => Some(t),
            Err(e) => {
                let text = format!("the record {} cannot be read: {e}", key.escape_ascii());
                self.problem("damaged-record", fid, text);
                None
            }
        }
    }

    fn record(&mut self, kind: u8, key: &[u8], value: &[u8]) {
        let Some(fid) = keys::fid_of(key) else {
            let text = format!("the key {} is too short", key.escape_ascii());
            return self.problem("damaged-record", Fid::NONE, text);
        };
        match kind {
            keys::INODE => self.inode(fid, key, value),
            keys::ENTRY => self.entry(fid, key, value),
            keys::INLINE => self.seen.entry(fid).or_default().inline = Some(value.len()),
            keys::XATTR => {
                self.seen.entry(fid).or_default().xattrs = true;
                self.decode::<Xattrs>(fid, key, value);
            }
            keys::LINK => self.link(fid, key),
            keys::ORPHAN => self.seen.entry(fid).or_default().orphan = true,
            _ => {
                if let Some(g) = self.decode::<Garbage>(fid, key, value) {
                    let layout = g.layout;
                    let o = Owner {
                        fid,
                        layout,
                        size: 0,
                        blocks: 0,
                        lags: false,
                        garbage: true,
                        inline: false,
                    };
                    self.report.owners.push(o);
                }
            }
        }
    }

    fn inode(&mut self, fid: Fid, key: &[u8], value: &[u8]) {
        self.report.inodes += 1;
        let Some(i) = self.decode::<Inode>(fid, key, value) else { return };
        if FileKind::from_mode(i.mode).is_none() {
            self.problem("bad-mode", fid, format!("mode {:o} is of no kind of file", i.mode));
        }
        if let Some(layout) = &i.layout {
            let (lags, inline) = (i.flags & A_SIZE_LAGS != 0, i.flags & A_INLINE != 0);
            let layout = layout.clone();
            let o =
                Owner { fid, layout, size: i.size, blocks: i.blocks, lags, garbage: false, inline };
            self.report.owners.push(o);
        }
        let kind = i.kind();
        let brief = Brief {
            kind,
            nlink: i.nlink,
            size: i.size,
            flags: i.flags,
            blocks: i.blocks,
            home: i.home,
        };
        self.seen.entry(fid).or_default().inode = Some(brief);
    }

    fn entry(&mut self, dir: Fid, key: &[u8], value: &[u8]) {
        self.report.entries += 1;
        let Some((_, hash, name)) = keys::parse_entry(key) else {
            return self.problem("damaged-record", dir, "an entry's key is too short".into());
        };
        let shown = name.escape_ascii().to_string();
        if keys::name_hash(name) != hash || name.is_empty() || name.len() > proto::NAME_MAX {
            self.problem("bad-entry", dir, format!("the entry '{shown}' is misplaced or misnamed"));
        }
        let Some(dent) = self.decode::<Dent>(dir, key, value) else { return };
        let is_dir = dent.kind == FileKind::Dir;
        let d = self.seen.entry(dir).or_default();
        d.entries += 1;
        d.subdirs += u32::from(is_dir);
        let name = name.to_vec();
        let Some(i) = self.seen.get(&dent.fid).and_then(|s| s.inode.as_ref()) else {
            let text = format!("the entry '{shown}' of {dir} names an inode that does not exist");
            return self.problem("entry-without-inode", dent.fid, text);
        };
        let (kind, home) = (i.kind, i.home.clone());
        if kind != dent.kind {
            let text = format!("the entry '{shown}' says {:?}, the inode {kind:?}", dent.kind);
            self.problem("kind-differs", dent.fid, text);
        }
        let at_home = home.as_ref().is_some_and(|h| h.dir == dir && h.name == name);
        let s = self.seen.entry(dent.fid).or_default();
        s.links += 1;
        s.home_found |= at_home;
        if is_dir && s.parent.replace(dir).is_some() {
            self.problem(
                "two-parents",
                dent.fid,
                format!("'{shown}' is a second name of a directory"),
            );
        } else if !at_home && is_dir {
            let text = format!("'{shown}' in {dir} is not where the directory says it is");
            self.problem("wrong-parent", dent.fid, text);
        } else if !at_home {
            self.links.insert((dent.fid, dir, name), false);
        }
    }

    fn link(&mut self, fid: Fid, key: &[u8]) {
        let Some((dir, name)) = key.get(17..33).and_then(Fid::from_key).zip(key.get(33..)) else {
            return self.problem("damaged-record", fid, "a link's key is too short".into());
        };
        match self.links.get_mut(&(fid, dir, name.to_vec())) {
            Some(known) => *known = true,
            None => {
                let text =
                    format!("no entry '{}' in {dir}, but a record of it", name.escape_ascii());
                self.problem("link-without-entry", fid, text);
            }
        }
    }

    fn finish(&mut self, opened: bool) {
        for ((fid, dir, name), known) in std::mem::take(&mut self.links) {
            if !known {
                let text = format!("'{}' in {dir} is not known to the inode", name.escape_ascii());
                self.problem("entry-without-link", fid, text);
            }
        }
        let mut all: Vec<(Fid, Seen)> = std::mem::take(&mut self.seen).into_iter().collect();
        all.sort_by_key(|(f, _)| *f);
        let root = all.iter().any(|(f, s)| *f == Fid::ROOT && s.inode.is_some());
        if opened && !root {
            self.problem("no-root", Fid::ROOT, "there is no root directory".into());
        }
        for (fid, s) in all {
            match &s.inode {
                None => self.loose(fid, &s),
                Some(i) if i.kind == FileKind::Dir => self.dir(fid, i, &s),
                Some(i) => self.file(fid, i, &s),
            }
        }
    }

    fn loose(&mut self, fid: Fid, s: &Seen) {
        if s.entries > 0 {
            let text = format!("{} entries of a directory that does not exist", s.entries);
            self.problem("entries-without-directory", fid, text);
        }
        if s.inline.is_some() || s.xattrs {
            self.problem("data-without-inode", fid, "inline data or attributes of no inode".into());
        }
        if s.orphan {
            self.problem(
                "orphan-without-inode",
                fid,
                "an orphan's record without its inode".into(),
            );
        }
    }

    fn dir(&mut self, fid: Fid, i: &Brief, s: &Seen) {
        if i.nlink == 0 && s.orphan && s.entries == 0 {
            return;
        }
        if i.nlink != s.subdirs + 2 {
            let text =
                format!("link count {} of a directory with {} subdirectories", i.nlink, s.subdirs);
            self.problem("wrong-link-count", fid, text);
        }
        if i.size != s.entries {
            let text = format!("{} entries counted, {} are there", i.size, s.entries);
            self.problem("wrong-entry-count", fid, text);
        }
        if fid != Fid::ROOT && s.links == 0 {
            self.problem("unreachable", fid, "a directory that no entry names".into());
        }
    }

    fn file(&mut self, fid: Fid, i: &Brief, s: &Seen) {
        if i.nlink != s.links {
            let text = format!("link count {}, {} entries name it", i.nlink, s.links);
            self.problem("wrong-link-count", fid, text);
        }
        if s.links == 0 && !s.orphan {
            self.problem("unreachable", fid, "no entry names it and it is no orphan".into());
        }
        if i.home.is_some() && !s.home_found && i.nlink > 0 {
            self.problem("wrong-parent", fid, "it is not where it says it is".into());
        }
        let (inline, data) = (i.flags & A_INLINE != 0, s.inline.unwrap_or(0) as u64);
        if data > 0 && !inline {
            self.problem(
                "data-without-inode",
                fid,
                "inline data of a file that is not inline".into(),
            );
        }
        if inline && i.kind == FileKind::File && data > i.size {
            let text = format!("size {}, but {data} bytes of inline data", i.size);
            self.problem("wrong-size", fid, text);
        }
        if inline && i.blocks != data.div_ceil(512) {
            let text = format!("{} blocks, but {data} bytes of inline data", i.blocks);
            self.problem("wrong-size", fid, text);
        }
        if s.xattrs != (i.flags & A_HAS_XATTR != 0) {
            self.problem("wrong-flags", fid, "extended attributes and their flag differ".into());
        }
    }
}
