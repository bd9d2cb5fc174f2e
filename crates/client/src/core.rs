//! What all parts of a client share.
//!
//! Role: the sessions, the registry of files, the lease and its epoch. Never does: policy.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use crossbeam_channel::Sender;
use parking_lot::{Mutex, RwLock};
use proto::mds::{LS_ATTR, LS_OPEN, LS_READ, LS_WRITE, Op};
use proto::{Attr, Errno, Fid, Layout, TimeSpec};

use crate::behind::Behind;
use crate::budget::{Budget, Held};
use crate::counters::Counters;
use crate::giving::Givers;
use crate::inode::{AsOf, Inode, Place, State};
use crate::leases::{Got, Leases, Mark};
use crate::listener::Told;
use crate::local::Local;
use crate::locks::LockTable;
use crate::looks::Looks;
use crate::mdt::Mdt;
use crate::opening::Openings;
use crate::ost::Ost;
use crate::registry::Registry;
use crate::senders::Senders;
use crate::space::SpaceWatch;
use crate::worker::{Closing, Task};
use crate::{Listener, Options};

/// Directories that have something to tell; of more only syncfs does (invariant 8).
const MAX_LOST_DIRS: usize = 65_536;

pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) mdt: Arc<Mdt>,
    pub(crate) osts: RwLock<BTreeMap<u32, Arc<Ost>>>,
    pub(crate) links: crate::connect::Links,
    pub(crate) counters: Arc<Counters>,
    pub(crate) budget: Budget,
    pub(crate) registry: Registry,
    pub(crate) locks: LockTable,
    pub(crate) local: Local,
    pub(crate) openings: Openings,
    pub(crate) givers: Givers,
    pub(crate) listener: Told,
    pub(crate) sole: Arc<AtomicBool>,
    /// Held by who changes that, and looks whether the session that says so is still the present one.
    pub(crate) sole_turn: Mutex<()>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) epoch: AtomicU64,
    /// Counts sessions with the MDT that were begun anew.
    pub(crate) life: AtomicU64,
    /// Largest inline file, in bytes.
    pub(crate) dom_limit: AtomicU64,
    /// Ticks of the background thread since the start.
    pub(crate) tick: AtomicU64,
    pub(crate) ahead_bytes: Arc<AtomicU64>,
    pub(crate) space: SpaceWatch,
    pub(crate) stopped: AtomicBool,
    /// Inline data failed to arrive: close waits for it from now on.
    pub(crate) careful: AtomicBool,
    /// What syncfs has to tell.
    pub(crate) failed: Mutex<Option<Errno>>,
    /// What fsync of directories, and of files that are opened later, has to tell.
    pub(crate) lost_dirs: Mutex<HashMap<Fid, Errno>>,
    /// Counts single files that were to be forgotten.
    pub(crate) forgets: AtomicU64,
    pub(crate) senders: Senders,
    /// Commits that nobody waits for.
    pub(crate) behind: Mutex<Behind<Arc<Inode>>>,
    pub(crate) closings: Sender<Closing>,
    pub(crate) looks: Looks,
}

/// What was so when something was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) epoch: u64,
    pub(crate) life: u64,
    pub(crate) mark: Mark,
}

impl Asked {
    /// With the leases that came with the answer, for what it told of a file.
    pub(crate) fn under(self, got: &Got, fid: Fid) -> Asked {
        Asked { mark: got.mark(fid, LS_READ | LS_ATTR, self.mark), ..self }
    }

    /// The version of what was answered.
    pub(crate) fn of(self, attr: &Attr) -> AsOf {
        AsOf { life: self.life, version: attr.version }
    }
}

impl Core {
    /// Whether this client is alone: data and attributes may be cached and changed here first.
    pub(crate) fn caching(&self) -> bool {
        self.sole.load(SeqCst) && !self.options.write_through
    }

    /// Whether this client alone may change a file: alone, or under a lease on it. To be asked as
    /// [`Core::knows`].
    pub(crate) fn owns(&self, st: &State) -> bool {
        self.caching() || (self.leases.has(st.attr.fid, LS_WRITE) && self.has_loaded(st))
    }

    /// Whether anything may be believed that is not asked for each time.
    pub(crate) fn believes(&self) -> bool {
        self.caching() || self.leases.on()
    }

    /// Whether the attributes (and, if loaded, place and size) of a file are the truth, now and
    /// until this client changes them. To be asked under the lock of its state: a call-back waits for
    /// that lock before it is answered.
    pub(crate) fn knows(&self, st: &State) -> bool {
        let leased = || self.leases.fresh(st.attr.fid, LS_READ | LS_ATTR, st.mark);
        st.epoch == self.epoch() && (self.caching() || leased())
    }

    /// Whether place and size of a file are the truth, too.
    pub(crate) fn has_loaded(&self, st: &State) -> bool {
        self.knows(st) && !matches!(st.place, Place::Unknown)
    }

    /// Whether a known file may be opened for reading without a word to the MDT.
    pub(crate) fn opens_here(&self, st: &State) -> bool {
        self.knows(st) && (self.caching() || self.leases.has(st.attr.fid, LS_OPEN))
    }

    /// To be taken before something is asked that may be believed.
    pub(crate) fn asked(&self) -> Asked {
        Asked { epoch: self.epoch(), life: self.life.load(SeqCst), mark: self.leases.mark() }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// What was learned before may be outdated.
    pub(crate) fn new_epoch(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    pub(crate) fn dom_limit(&self) -> u64 {
        self.dom_limit.load(SeqCst)
    }

    /// The session to an OST a layout names.
    pub(crate) fn ost(self: &Arc<Core>, index: u32) -> Result<Arc<Ost>, Errno> {
        if let Some(ost) = self.osts.read().get(&index) {
            return Ok(ost.clone());
        }
        self.find_ost(index)
    }

    /// Whether one of the OSTs that were used is lost, or hangs.
    pub(crate) fn lacks_osts(&self) -> bool {
        self.osts.read().values().any(|ost| ost.is_lost())
    }

    /// Whether one of the OSTs that were used is not connected.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.osts.read().values().any(|ost| !ost.session.is_connected())
    }

    /// Whether an OST is lost, or owes an answer for so long.
    pub(crate) fn waits_for_osts(&self, time: Duration) -> bool {
        self.osts.read().values().any(|ost| ost.is_lost() || ost.owes(time))
    }

    /// Whether an OST of a layout is lost, or hangs.
    pub(crate) fn lacks(&self, layout: &Layout) -> bool {
        let osts = self.osts.read();
        let mut used = layout.osts.iter().filter_map(|index| osts.get(index));
        used.any(|ost| ost.is_lost())
    }

    /// Whether a file has objects on an OST that is lost, or hangs: what is written to it stays here.
    pub(crate) fn lacks_osts_of(&self, inode: &Inode) -> bool {
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => layout.clone(),
            _ => return false,
        };
        self.lacks(&layout)
    }

    /// What files hold that have objects on OSTs that are lost, or hang.
    pub(crate) fn held_for_lost(&self) -> Held {
        let mut held = Held::default();
        if self.lacks_osts() {
            let files = self.registry.all();
            let lacking = files.iter().filter(|inode| !inode.st.lock().is_clean());
            for inode in lacking.filter(|inode| self.lacks_osts_of(inode)) {
                held.add(inode.st.lock().held());
            }
        }
        held
    }

    /// The session to the OST of a stripe.
    pub(crate) fn stripe(
        self: &Arc<Core>,
        layout: &Layout,
        stripe: u16,
    ) -> Result<Arc<Ost>, Errno> {
        self.ost(*layout.osts.get(usize::from(stripe)).ok_or(Errno::EIO)?)
    }

    pub(crate) fn announce(&self, what: impl FnOnce(&dyn Listener)) {
        let listener = self.listener.read().clone();
        if let Some(listener) = listener {
            what(&*listener);
        }
    }

    pub(crate) fn tick_now(&self) -> u64 {
        self.tick.load(SeqCst)
    }

    /// The inode must have its dirty data sent soon.
    pub(crate) fn want_push(self: &Arc<Core>, inode: &Arc<Inode>, st: &mut State) {
        if !st.queued {
            st.queued = true;
            self.senders.push(self, st.lane(), inode.clone());
        }
    }

    pub(crate) fn want_commit(&self, inode: &Arc<Inode>, st: &mut State) {
        if !st.committing {
            st.committing = true;
            self.senders.commit(Task::Commit(inode.clone()));
        }
    }

    /// Tells the MDT something without waiting and without an interest in the answer.
    pub(crate) fn mention(&self, op: Op) {
        self.mdt.mention(op);
    }

    /// Operations that failed after they had been answered: each file and directory concerned
    /// tells it once (invariant 6), and nothing is believed of them any more.
    pub(crate) fn note_lost(&self) {
        for lost in self.mdt.wb.take_lost() {
            *self.failed.lock() = Some(lost.errno);
            for fid in lost.fids {
                self.forgets.fetch_add(1, SeqCst);
                let open = self.registry.find(fid).is_some_and(|inode| {
                    let mut st = inode.st.lock();
                    st.fail(lost.errno);
                    st.epoch = 0;
                    st.opens > 0
                });
                let mut dirs = self.lost_dirs.lock();
                if !open && dirs.len() < MAX_LOST_DIRS {
                    dirs.insert(fid, lost.errno);
                }
                drop(dirs);
                self.senders.other(Task::Forget(fid));
            }
        }
    }

    /// A file changed elsewhere: nothing of it is known any more.
    pub(crate) fn forget(&self, fid: Fid) {
        self.mdt.wb.forget(fid);
        if let Some(inode) = self.registry.find(fid) {
            let mut st = inode.st.lock();
            st.epoch = 0;
            st.ahead.clear();
        }
    }
}

/// Now, by this machine's clock.
pub(crate) fn now() -> TimeSpec {
    SystemTime::now().into()
}
