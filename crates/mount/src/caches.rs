//! What the kernel may cache, and for how long.
//!
//! Role: while the client has the SOLE lease everything stays valid until told otherwise; without
//! it attributes under a lease do ([`crate::belief`]), and nothing else unless less was asked for
//! ([`Consistency`]). What was learned before the lease went must not be cached after it
//! (invariant 3): the epoch is noted before a call and compared after it. Notifications are sent by
//! the client's own thread, which holds no lock a handler may want.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use client::{Client, Listener, OpenFile};
use fuse::Notifier;
use parking_lot::Mutex;
use proto::mds::{LS_ATTR, LS_DIRX, LS_LOOKUP, LS_READ, LS_WRITE, Lease};
use proto::{Attr, Fid};
use rustc_hash::FxHashMap as HashMap;

use crate::belief::{self, Asked};
use crate::below::Device;
use crate::consistency::{BELIEVED, Consistency, LastSeen};
use crate::gates::Gates;
use crate::handles::Handles;
use crate::names::Expiry;
use crate::nodes::Nodes;
use crate::pages::Pages;
use crate::told::Look;

/// "For ever", for caches that are dropped by notification.
const LONG: Duration = Duration::from_secs(86_400);
/// Inodes whose flags are remembered per shard; a full shard starts anew.
const FLAGS_PER_SHARD: usize = 4096;
const SHARDS: usize = 64;

/// The state of the caches when a call began.
#[derive(Clone, Copy)]
pub struct Mark {
    /// Of the lease of who is alone, if it is held.
    epoch: Option<u64>,
    /// How often the kernel's attributes had been dropped.
    pub(crate) drops: u64,
}

struct Shard {
    epoch: u64,
    flags: HashMap<Fid, u32>,
}

/// See the module.
pub struct Caches {
    pub(crate) client: Client,
    /// What the kernel was told of.
    pub nodes: Arc<Nodes>,
    notifier: OnceLock<Notifier>,
    expiry: OnceLock<Arc<Expiry>>,
    times_names: AtomicBool,
    flags: Vec<Mutex<Shard>>,
    root: Fid,
    consistency: Consistency,
    seen: LastSeen,
    /// Pages that others may change.
    pub(crate) pages: Arc<Pages>,
    pub(crate) handles: Arc<Handles>,
    /// Names of files that the kernel keeps among others.
    pub(crate) gates: Gates,
    /// Counts file capabilities that were set here; begins with 1.
    pub capabilities: AtomicU64,
    me: Weak<Caches>,
}

impl Caches {
    /// Caches of a client's mount.
    pub fn new(client: Client, consistency: Consistency) -> Arc<Caches> {
        let root = client.root().fid;
        let shard = || Mutex::new(Shard { epoch: 0, flags: HashMap::default() });
        let flags = (0..SHARDS).map(|_| shard()).collect();
        let nodes = Arc::new(Nodes::within(client.options().max_cached_inodes as usize));
        let (notifier, expiry) = (OnceLock::new(), OnceLock::new());
        let (seen, times_names) = (LastSeen::default(), AtomicBool::new(false));
        let (pages, handles) = (Arc::default(), Arc::default());
        Arc::new_cyclic(|me| Caches {
            client,
            nodes,
            notifier,
            expiry,
            times_names,
            flags,
            root,
            consistency,
            seen,
            pages,
            handles,
            gates: Gates::default(),
            capabilities: AtomicU64::new(1),
            me: me.clone(),
        })
    }

    /// From now on the kernel, which speaks this minor version, can be told; `device`: the mount's.
    pub fn attach(&self, notifier: Notifier, minor: u32, device: Device) {
        self.times_names.store(belief::by_name(minor), Relaxed);
        let me = self.me.clone();
        let look = move |thread| me.upgrade().map_or(Look::GoneOn, |c| c.gates.look_at(thread));
        let expiry = Expiry::new(notifier.clone(), device, minor, look);
        let _ = self.expiry.set(Arc::new(expiry));
        // Set once per mount; a second one would be a second mount of the same caches.
        let _ = self.notifier.set(notifier);
    }

    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    /// Whether attributes that are told beside a name may be kept under a lease.
    pub(crate) fn times_names(&self) -> bool {
        self.times_names.load(Relaxed)
    }

    /// Whether names may be kept for the sake of a lease that is called back by itself. `again`: the kernel may know
    /// it.
    pub(crate) fn keeps_leased_names(&self, again: bool) -> bool {
        let calm = || self.expiry.get().is_some_and(|expiry| expiry.is_calm(again));
        !self.nodes.tally.is_missing() && calm()
    }

    /// Whether the kernel may ever be given names to keep that are called back one by one.
    pub(crate) fn takes_names_back(&self) -> bool {
        self.expiry.get().is_some_and(|expiry| expiry.takes_back())
    }

    /// The kernel forgets all names, at once.
    pub(crate) fn forget_names(&self) {
        self.expiry.get().iter().for_each(|expiry| expiry.give_up());
    }

    /// To be taken before the call whose result may be cached.
    pub fn mark(&self) -> Mark {
        let epoch = self.client.cache_epoch();
        Mark { epoch: self.client.is_sole().then_some(epoch), drops: self.nodes.drops() }
    }

    /// How long what a call learned is valid.
    pub fn ttl(&self, mark: Mark) -> Duration {
        match self.consistency {
            _ if self.valid(mark) => LONG,
            Consistency::Posix => Duration::ZERO,
            Consistency::CloseToOpen | Consistency::Relaxed => BELIEVED,
        }
    }

    /// How long attributes are valid that the kernel asked for.
    pub fn attr_ttl(&self, a: &Attr, asked: Asked, mark: Mark) -> Duration {
        let ttl = self.ttl(mark);
        if ttl == LONG { ttl } else { ttl.max(self.leased(a, asked)) }
    }

    /// Whether the kernel may keep pages of files although others may change them.
    pub fn keeps_unleased(&self) -> bool {
        self.consistency != Consistency::Posix
    }

    /// Whether the kernel's pages of a file that others may have changed are new enough for one who
    /// opens it; if not, what it knows of the file's size is dropped.
    pub fn still_good(&self, file: &OpenFile) -> bool {
        let good = self.seen.unchanged(self.consistency, file);
        if !good && let Some(n) = self.notifier.get() {
            // Attributes only: that waits for no page.
            let _ = n.inval_inode(self.node(file.fid()), -1, 0);
        }
        good
    }

    /// Whether what a call learned may be kept.
    pub fn valid(&self, mark: Mark) -> bool {
        mark.epoch.is_some_and(|e| e == self.client.cache_epoch()) && self.client.is_sole()
    }

    /// Remembers the flags of an inode, so that absent attributes and ACLs cost no message.
    pub fn learn(&self, attr: &Attr, mark: Mark) {
        let Some(epoch) = mark.epoch.filter(|_| self.valid(mark)) else { return };
        let mut s = self.flags[attr.fid.oid as usize % SHARDS].lock();
        if s.epoch != epoch || s.flags.len() >= FLAGS_PER_SHARD {
            s.flags.clear();
            s.epoch = epoch;
        }
        s.flags.insert(attr.fid, attr.flags);
    }

    /// What is remembered of an inode's flags.
    pub fn flags(&self, fid: Fid) -> Option<u32> {
        let epoch = self.mark().epoch?;
        let s = self.flags[fid.oid as usize % SHARDS].lock();
        if s.epoch == epoch { s.flags.get(&fid).copied() } else { None }
    }

    /// An inode's flags may have changed.
    pub fn unlearn(&self, fid: Fid) {
        self.flags[fid.oid as usize % SHARDS].lock().flags.remove(&fid);
    }

    /// The node of a file.
    pub fn node(&self, fid: Fid) -> u64 {
        if fid == self.root { 1 } else { fid.ino() }
    }

    /// The file of a node.
    pub fn fid(&self, node: u64) -> Fid {
        if node == 1 { self.root } else { Fid::from_ino(node) }
    }

    /// Everything the kernel holds is dropped.
    fn drop_all(&self) {
        let Some(n) = self.notifier.get() else { return };
        if let Some(expiry) = self.expiry.get() {
            expiry.drop_names(&self.nodes);
        }
        // After the names: what a look-up was about to tell of is there now.
        let nodes = self.nodes.all();
        self.pages.ends.doubt();
        self.doubt_entries();
        tracing::debug!(nodes = nodes.len(), "the kernel's caches are dropped");
        for node in nodes {
            self.pages.ends.dropping(node);
            if let Err(e) = n.inval_inode(node, 0, 0) {
                tracing::debug!(node, error = %e, "cannot drop a node");
            }
        }
    }

    /// No name of a file is believed before the kernel has asked for it again.
    fn doubt_entries(&self) {
        if let Some(me) = self.me.upgrade() {
            me.all_names_called_back();
        }
    }

    /// Names that rest on leases are asked for again soon: nobody waits for it, as their time is limited, too.
    fn doubt_names(&self, of: Vec<u64>) {
        let Some(expiry) = self.expiry.get().cloned().filter(|_| !of.is_empty()) else { return };
        let nodes = Arc::clone(&self.nodes);
        let doubt = move || expiry.doubt_leading(&nodes, of.into_iter());
        if let Err(error) = std::thread::Builder::new().name("doubt".into()).spawn(doubt) {
            tracing::warn!(%error, "names are kept until their time has passed");
        }
    }

    /// What the kernel knows of a name is asked for again. It is not dropped: what is mounted there would go.
    pub fn drop_name(&self, parent: u64, name: &std::ffi::OsStr) {
        if let Some(n) = self.notifier.get() {
            let _ = n.expire_entry(parent, name);
        }
    }

    /// A name was removed here.
    pub fn unnamed(&self, fid: Fid, name: (u64, &[u8])) {
        self.nodes.unnamed(self.node(fid), name);
    }

    /// A name became another here, and took the place of that or (`exchanged`) gave it its own. To be called
    /// before the kernel hears of it.
    pub fn renamed(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        exchanged: bool,
        (moved, other): &(Attr, Option<Attr>),
    ) {
        match other {
            Some(other) if exchanged => self.nodes.moved(self.node(other.fid), to, from),
            Some(other) => self.nodes.unnamed(self.node(other.fid), to),
            None => {}
        }
        self.nodes.moved(self.node(moved.fid), from, to);
    }

    /// One file's pages are dropped, which were called back, also while they are read. `beside`: writes of this mount
    /// may wait for others. `unkeeps`: see [`Pages::recalled`].
    fn drop_pages(&self, fid: Fid, beside: bool, unkeeps: bool) {
        let node = self.node(fid);
        match beside && self.client.writes(fid) {
            true => self.pages.recalled(node, unkeeps, || self.pages.give_up(node)),
            false => self.pages.recalled(node, unkeeps, || {
                self.drop_one(fid);
                true
            }),
        }
    }

    /// One file's pages and attributes are dropped.
    pub fn drop_one(&self, fid: Fid) {
        if let Some(n) = self.notifier.get() {
            let node = self.node(fid);
            self.pages.ends.dropping(node);
            let _ = n.inval_inode(node, 0, 0);
        }
    }
}

impl Listener for Caches {
    fn sole(&self, now: bool) {
        if !now {
            self.drop_all();
        }
    }

    fn forget(&self, fid: Fid) {
        self.unlearn(fid);
        self.drop_one(fid);
    }

    fn recalled(&self, leases: &[Lease]) {
        // Pages of files that are mapped or executed, or were opened before others came.
        for lease in leases.iter().filter(|l| l.bits & LS_READ != 0) {
            // An owner's writes wait for nobody.
            self.drop_pages(lease.fid, lease.bits & LS_WRITE == 0, false);
        }
        let names = leases.iter().filter(|l| l.bits & (LS_LOOKUP | LS_DIRX) != 0);
        if let Some(me) = self.me.upgrade() {
            names.for_each(|lease| match lease.bits & LS_LOOKUP {
                0 => me.names_shared(self.node(lease.fid)),
                _ => me.names_called_back(self.node(lease.fid)),
            });
        }
        let attrs = || leases.iter().filter(|l| l.bits & LS_ATTR != 0).map(|l| self.node(l.fid));
        self.drop_believed(attrs());
        if let Some(expiry) = self.expiry.get() {
            expiry.drop_leading(&self.nodes, attrs());
        }
    }

    fn changing(&self, fids: &[Fid]) {
        let nodes = fids.iter().map(|fid| self.node(*fid));
        self.drop_believed(nodes);
    }

    fn written(&self, fid: Fid) {
        if self.pages.shows_kept(self.node(fid)) {
            self.drop_pages(fid, true, true);
        }
    }

    fn shows(&self, fid: Fid) -> bool {
        self.pages.keeps(self.node(fid))
    }

    fn doubted(&self) {
        self.doubt_entries();
        let believed = self.nodes.believed();
        self.doubt_names(believed.clone());
        self.drop_attributes(believed);
        self.pages.doubt_kept();
    }

    fn reset(&self) {
        self.drop_all();
    }
}
