//! Which session has which file open.
//!
//! Role: an unlinked file lives while it is open, and a file being written has writers. Lives in
//! memory; clients open again after a restart (`O_REOPEN`). Never does: I/O.

use proto::Fid;
use proto::mds::O_WRITE;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// One open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// By which session.
    pub session: u64,
    /// Its handle.
    pub handle: u64,
    /// `O_*`.
    pub flags: u32,
}

/// All opens of a target.
#[derive(Default, Debug)]
pub struct Opens {
    by_fid: HashMap<Fid, Vec<Holder>>,
    by_session: HashMap<u64, HashMap<u64, Fid>>,
    /// Sessions that were told where to write a file and have not reported its final size.
    writing: HashMap<Fid, Vec<u64>>,
    /// Files marked as written by sessions that are all here and report what they write at the
    /// latest when they close.
    marked: HashSet<Fid>,
    next: u64,
}

impl Opens {
    /// Handles count up from `first`, so that those of an earlier boot are not met again.
    pub fn new(first: u64) -> Opens {
        Opens { next: first, ..Opens::default() }
    }

    /// The handle number the next open gets.
    pub fn handle(&self) -> u64 {
        self.next + 1
    }

    /// Notes an open. The same handle again changes nothing.
    pub fn open(&mut self, fid: Fid, h: Holder) {
        self.next += u64::from(h.handle == self.next + 1);
        if self.by_session.entry(h.session).or_default().insert(h.handle, fid).is_none() {
            self.by_fid.entry(fid).or_default().push(h);
        }
    }

    /// Ends an open; whether there was one.
    pub fn close(&mut self, session: u64, handle: u64) -> Option<Fid> {
        let fid = self.by_session.get_mut(&session)?.remove(&handle)?;
        if let Some(v) = self.by_fid.get_mut(&fid) {
            v.retain(|h| h.session != session || h.handle != handle);
            if v.is_empty() {
                self.by_fid.remove(&fid);
            }
        }
        Some(fid)
    }

    /// The file of a handle.
    pub fn fid(&self, session: u64, handle: u64) -> Option<Fid> {
        self.by_session.get(&session)?.get(&handle).copied()
    }

    /// Handles of a session.
    pub fn handles(&self, session: u64) -> Vec<(u64, Fid)> {
        let map = self.by_session.get(&session);
        map.map(|m| m.iter().map(|(h, f)| (*h, *f)).collect()).unwrap_or_default()
    }

    /// Whether anybody has the file open.
    pub fn is_open(&self, fid: Fid) -> bool {
        self.by_fid.contains_key(&fid)
    }

    /// Whether anybody has the file open, apart from one handle.
    pub fn is_open_but(&self, fid: Fid, session: u64, handle: u64) -> bool {
        let v = self.by_fid.get(&fid);
        v.is_some_and(|v| v.iter().any(|h| h.session != session || h.handle != handle))
    }

    /// Whether another session has the file open for writing.
    pub fn written_elsewhere(&self, fid: Fid, session: u64) -> bool {
        let v = self.by_fid.get(&fid);
        v.is_some_and(|v| v.iter().any(|h| h.session != session && h.flags & O_WRITE != 0))
    }

    /// Whether a session still has the file open for writing, apart from one handle.
    pub fn writes(&self, fid: Fid, session: u64, but: u64) -> bool {
        let v = self.by_fid.get(&fid);
        v.is_some_and(|v| {
            v.iter().any(|h| h.session == session && h.handle != but && h.flags & O_WRITE != 0)
        })
    }

    /// A session may now write the objects of a file.
    pub fn begin_write(&mut self, fid: Fid, session: u64) {
        let v = self.writing.entry(fid).or_default();
        if !v.contains(&session) {
            v.push(session);
        }
    }

    /// A session has reported what it wrote.
    pub fn end_write(&mut self, fid: Fid, session: u64) {
        if let Some(v) = self.writing.get_mut(&fid) {
            v.retain(|s| *s != session);
            if v.is_empty() {
                self.writing.remove(&fid);
            }
        }
    }

    /// Whether a session other than this may be writing the objects.
    pub fn writing_elsewhere(&self, fid: Fid, session: u64) -> bool {
        self.writing.get(&fid).is_some_and(|v| v.iter().any(|s| *s != session))
    }

    /// Whether several sessions have a file open, or may be writing it, and one of them writes: none
    /// of them gets leases on it.
    pub fn is_direct(&self, fid: Fid, session: u64) -> bool {
        self.written_elsewhere(fid, session)
            || self.writing_elsewhere(fid, session)
            || (self.open_elsewhere(fid, session) && self.is_writer(fid, session))
    }

    /// Whether a session may be writing anything.
    pub fn writes_any(&self, session: u64) -> bool {
        let open = |(h, f): (&u64, &Fid)| self.flags(*f, session, *h) & O_WRITE != 0;
        self.by_session.get(&session).is_some_and(|m| m.iter().any(open))
            || self.writing.values().any(|v| v.contains(&session))
    }

    /// Whether a session has a file open for writing, or may be writing its objects.
    pub fn is_writer(&self, fid: Fid, session: u64) -> bool {
        self.writes(fid, session, 0) || self.writing.get(&fid).is_some_and(|v| v.contains(&session))
    }

    /// A session is gone: the files it had open.
    pub fn drop_session(&mut self, session: u64) -> Vec<Fid> {
        let handles = self.handles(session);
        for (handle, _) in &handles {
            self.close(session, *handle);
        }
        self.by_session.remove(&session);
        self.writing.retain(|fid, v| {
            if v.contains(&session) {
                self.marked.remove(fid);
            }
            v.retain(|s| *s != session);
            !v.is_empty()
        });
        let mut fids: Vec<Fid> = handles.into_iter().map(|(_, f)| f).collect();
        fids.sort();
        fids.dedup();
        for fid in &fids {
            self.marked.remove(fid);
        }
        fids
    }

    /// All who may have written since the mark was set will report, or have.
    pub fn mark(&mut self, fid: Fid) {
        self.marked.insert(fid);
    }

    /// The mark is gone.
    pub fn unmark(&mut self, fid: Fid) {
        self.marked.remove(&fid);
    }

    /// Whether the size is the truth once the last writer has closed.
    pub fn is_marked(&self, fid: Fid) -> bool {
        self.marked.contains(&fid)
    }

    /// Whether another session has the file open.
    pub fn open_elsewhere(&self, fid: Fid, session: u64) -> bool {
        self.by_fid.get(&fid).is_some_and(|v| v.iter().any(|h| h.session != session))
    }

    /// Sessions that have a file open, or may be writing its objects; some more than once.
    pub fn users(&self, fid: Fid) -> impl Iterator<Item = u64> {
        let open = self.by_fid.get(&fid).into_iter().flatten().map(|h| h.session);
        open.chain(self.writing.get(&fid).into_iter().flatten().copied())
    }

    /// Flags of an open.
    pub fn flags(&self, fid: Fid, session: u64, handle: u64) -> u32 {
        let v = self.by_fid.get(&fid);
        let found = v.and_then(|v| v.iter().find(|h| h.session == session && h.handle == handle));
        found.map_or(0, |h| h.flags)
    }

    /// How many opens there are.
    pub fn len(&self) -> usize {
        self.by_session.values().map(HashMap::len).sum()
    }

    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.by_fid.is_empty()
    }
}
