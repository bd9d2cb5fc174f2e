//! Open files, and which of them the MDT knows.
//!
//! Role: under the lease opens are told to the MDT only before something happens that must know of
//! them. Assumptions: as [`super`]. Never does: I/O.

use proto::Fid;
use rustc_hash::FxHashMap as HashMap;

/// Handles chosen here; those of an MDT never have this bit.
const OWN: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
struct Open {
    handle: u64,
    flags: u32,
    told: bool,
}

/// See the module. Bounded by the open files of the caller.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    map: HashMap<Fid, Vec<Open>>,
    next: u64,
}

impl Opens {
    /// Opens a file here; its handle.
    pub(crate) fn begin(&mut self, fid: Fid, flags: u32) -> u64 {
        self.next += 1;
        let handle = OWN | self.next;
        let opens = self.map.entry(fid).or_insert_with(|| Vec::with_capacity(1));
        opens.push(Open { handle, flags, told: false });
        handle
    }

    /// The MDT opened a file.
    pub(crate) fn opened(&mut self, fid: Fid, handle: u64, flags: u32) {
        if !self.was_told(fid, handle) {
            self.map.entry(fid).or_default().push(Open { handle, flags, told: true });
        }
    }

    /// The MDT was told of an open, by whoever needed that; `false`: it was closed here meanwhile.
    #[must_use]
    pub(crate) fn was_told(&mut self, fid: Fid, handle: u64) -> bool {
        let opens = self.map.get_mut(&fid);
        let open = opens.and_then(|opens| opens.iter_mut().find(|o| o.handle == handle));
        open.map(|open| open.told = true).is_some()
    }

    /// Whether anybody here has a file open.
    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.map.contains_key(&fid)
    }

    /// Whether the MDT does not know this open.
    pub(crate) fn is_own(&self, fid: Fid, handle: u64) -> bool {
        self.map.get(&fid).is_some_and(|o| o.iter().any(|o| o.handle == handle && !o.told))
    }

    /// A handle is closed.
    pub(crate) fn end(&mut self, fid: Fid, handle: u64) {
        let Some(opens) = self.map.get_mut(&fid) else { return };
        opens.retain(|o| o.handle != handle);
        if opens.is_empty() {
            self.map.remove(&fid);
        }
    }

    /// Opens of a file that the MDT does not know: handle and `O_*`.
    pub(crate) fn own(&self, fid: Fid) -> Vec<(u64, u32)> {
        let opens = self.map.get(&fid).into_iter().flatten();
        opens.filter(|o| !o.told).map(|o| (o.handle, o.flags)).collect()
    }

    /// Files with opens that the MDT does not know.
    pub(crate) fn untold(&self) -> Vec<Fid> {
        let own = self.map.iter().filter(|(_, opens)| opens.iter().any(|o| !o.told));
        own.map(|(fid, _)| *fid).collect()
    }

    /// The MDT has forgotten all of them.
    pub(crate) fn untell(&mut self) {
        self.map.values_mut().flatten().for_each(|o| o.told = false);
    }
}
