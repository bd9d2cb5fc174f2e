//! Names the kernel keeps, and how they are taken back from it.
//!
//! Role: names go with a time under the SOLE lease, those of directories also under the lease on the directory
//! ([`crate::belief`]), and when it goes the kernel can be told so in two ways. A
//! new epoch drops all at once and waits for nobody, but takes names in use out of the tree: what is
//! mounted below them vanishes, and what is open or a working directory is shown as deleted. A name
//! that expires is looked up by its next use, and stays if it leads where it led. For that each must be known,
//! so they are noted here; and it takes the lock of the directory, which may be held by who waits for a
//! server. So a thread of its own does it, for which is waited a limited time; if that was not enough, or names are
//! missing, a new epoch begins after all: that no name is believed goes first (invariant 3).
//! Order: a name is noted, then the lease is looked at, then the kernel is told; who takes the lease away does so
//! before it takes the names. The kernel takes names that it did not know under the directory's lock:
//! what expires then is there. What it asked of a name that it knows it takes without: those expire
//! once more when that answer has come ([`crate::told`]). Who renames takes the time along, under the locks
//! of both directories: the new name is noted before that, and expires after the old one.
//! Never does: wait for the kernel on a thread that serves requests.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fuse::Notifier;
use parking_lot::{Condvar, Mutex};

use crate::below::{self, Device};
use crate::nodes::Nodes;
use crate::told::{Look, OnTheirWay, Told, both};

/// Memory for names, bytes for each inode a client keeps; of more it is only known that they are missing (invariant 8).
const BYTES_OF_INODE: usize = 336;
/// What a name costs beside its own bytes.
const OVERHEAD: usize = 64;
/// Names noted of one node; a file may have many more links (invariant 8).
const MAX_LINKS: usize = 64;
/// Renames noted apart while names expire (invariant 8).
const MAX_MOVED: usize = 4096;
/// How long names may take to expire where something is mounted below them: a client has 20 seconds to give
/// its lease back, and needs some for the rest.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same where nothing is: only what is in use is shown as deleted then.
const BRIEFLY: Duration = Duration::from_millis(200);

/// After names that were called back did not expire in time, none are kept among others for this long: a new epoch
/// must stay rare.
const CALM: Duration = Duration::from_secs(600);
/// How often it is looked whether names have arrived.
const LOOK: Duration = Duration::from_millis(2);
/// After somebody waited longer than [`BRIEFLY`] for a name that was told again, none is kept that is for this long: who changes a thousand
/// directories must not wait a thousand times.
const PAUSE: Duration = Duration::from_secs(60);

/// First minor versions of the protocol whose kernels let a name expire, and have epochs.
const LETS_EXPIRE: u32 = 38;
const HAS_EPOCHS: u32 = 44;

/// A name the kernel was told with a time.
#[derive(Clone, Debug)]
pub struct Name {
    parent: u64,
    name: Box<[u8]>,
    /// Who was told it of a node that the kernel knew; times are since the start of [`Nodes`].
    again: Option<Told>,
}

/// What is noted of all nodes together.
pub struct Tally {
    most: usize,
    bytes: AtomicUsize,
    missing: AtomicBool,
    /// Names expire: renames of what was taken are noted apart.
    expiring: AtomicBool,
    moved: Mutex<Vec<Name>>,
}

impl Tally {
    /// Nothing yet; of a client that keeps so many inodes.
    pub fn within(inodes: usize) -> Tally {
        Tally {
            most: BYTES_OF_INODE * inodes,
            bytes: AtomicUsize::new(0),
            missing: AtomicBool::new(false),
            expiring: AtomicBool::new(false),
            moved: Mutex::default(),
        }
    }

    /// Whether there is room for one more name.
    fn room(&self, name: &[u8]) -> bool {
        let cost = OVERHEAD + name.len();
        let there = self.bytes.fetch_add(cost, Relaxed) + cost <= self.most;
        if !there {
            self.free(name);
            self.missed();
        }
        there
    }

    fn free(&self, name: &[u8]) {
        self.bytes.fetch_sub(OVERHEAD + name.len(), Relaxed);
    }

    /// The kernel has a name that is not noted.
    pub fn missed(&self) {
        self.missing.store(true, SeqCst);
    }

    /// Some names are taken from now on.
    pub fn begin_some(&self) {
        self.expiring.store(true, SeqCst);
    }

    /// Whether the kernel may have names that are not noted.
    pub fn is_missing(&self) -> bool {
        self.missing.load(SeqCst)
    }

    /// Names are taken from now on; whether some were missing.
    pub fn begin(&self) -> bool {
        self.expiring.store(true, SeqCst);
        self.missing.swap(false, SeqCst)
    }

    /// A name that is not noted any more became another.
    pub fn moved(&self, (parent, name): (u64, &[u8])) {
        if !self.expiring.load(SeqCst) {
            return;
        }
        let mut moved = self.moved.lock();
        if moved.len() < MAX_MOVED {
            moved.push(Name { parent, name: name.into(), again: None });
        } else {
            self.missed();
        }
    }

    #[cfg(test)]
    pub fn count_moved(&self) -> usize {
        self.moved.lock().len()
    }

    fn end(&self) {
        self.expiring.store(false, SeqCst);
        self.moved.lock().clear();
    }
}

/// What became of a name that was to be noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    New,
    Known,
    /// There is no room for it.
    Missed,
}

/// The names of one node, and those it is known not to have.
#[derive(Default)]
pub struct Names {
    list: Vec<Name>,
    absent: Option<Box<Absent>>,
}

/// Few nodes have any.
#[derive(Default)]
struct Absent {
    names: HashSet<Box<[u8]>>,
}

impl Names {
    /// A name leads to the node.
    pub fn add(
        &mut self,
        tally: &Tally,
        (parent, name): (u64, &[u8]),
        again: Option<Told>,
    ) -> Added {
        if let Some(at) = self.find(parent, name) {
            self.list[at].again = both(self.list[at].again, again);
            return Added::Known;
        }
        if self.list.len() >= MAX_LINKS {
            tally.missed();
            return Added::Missed;
        }
        if !tally.room(name) {
            return Added::Missed;
        }
        if self.list.is_empty() {
            // Few have more than one.
            self.list.reserve_exact(1);
        }
        self.list.push(Name { parent, name: name.into(), again });
        Added::New
    }

    /// A name does not lead to the node any more; who was told it again, if it was noted.
    pub fn remove(&mut self, tally: &Tally, (parent, name): (u64, &[u8])) -> Option<Option<Told>> {
        let gone = self.list.swap_remove(self.find(parent, name)?);
        tally.free(&gone.name);
        Some(gone.again)
    }

    fn find(&self, parent: u64, name: &[u8]) -> Option<usize> {
        self.list.iter().position(|n| n.parent == parent && *n.name == *name)
    }

    /// The directory has no such name.
    pub fn add_absent(&mut self, tally: &Tally, name: &[u8]) {
        let absent = &mut self.absent.get_or_insert_default().names;
        if !absent.contains(name) && tally.room(name) {
            absent.insert(name.into());
        }
    }

    /// The directory has it now.
    pub fn remove_absent(&mut self, tally: &Tally, name: &[u8]) {
        if self.absent.as_mut().is_some_and(|absent| absent.names.remove(name)) {
            tally.free(name);
        }
    }

    /// Moves all to `to`.
    pub fn take(&mut self, node: u64, tally: &Tally, to: &mut Vec<Name>) {
        self.take_leading(tally, to);
        let absent = self.absent.take().map(|absent| absent.names).unwrap_or_default();
        absent.iter().for_each(|name| tally.free(name));
        to.extend(absent.into_iter().map(|name| Name { parent: node, name, again: None }));
    }

    /// Those that lead here.
    pub fn leading(&self) -> &[Name] {
        &self.list
    }

    /// Moves those that lead here to `to`.
    pub fn take_leading(&mut self, tally: &Tally, to: &mut Vec<Name>) {
        self.list.iter().for_each(|name| tally.free(&name.name));
        to.append(&mut self.list);
        self.list = Vec::new();
    }

    /// The kernel has forgotten the node, and with it its names.
    pub fn clear(self, tally: &Tally) {
        let absent = self.absent.iter().flat_map(|absent| absent.names.iter());
        self.list.iter().map(|n| &n.name).chain(absent).for_each(|name| tally.free(name));
    }
}

/// For how long some of the names may still be on their way to the kernel.
fn on_their_way(names: &[Name], now: Duration) -> Option<Duration> {
    names.iter().filter_map(|name| name.again?.left(now)).max()
}

/// Names on their way out.
struct Expiring {
    nodes: Arc<Nodes>,
    notifier: Notifier,
    names: Vec<Name>,
    look_at: Arc<LookAt>,
    /// Nobody waits any more.
    given_up: Arc<AtomicBool>,
}

impl Expiring {
    /// Whether all have expired for good.
    fn all(&self) -> bool {
        // Before they expire: what has arrived by now does so for good.
        let mut left = OnTheirWay::new(self.names.iter().filter_map(|name| name.again));
        let arrived = self.have_arrived(&mut left);
        if !self.names.iter().all(|name| self.one(name)) || !self.those_moved() {
            return false;
        }
        if arrived {
            return true;
        }
        while !self.have_arrived(&mut left) && !self.given_up.load(Relaxed) {
            // Nobody tells when a thread of another process goes on.
            std::thread::sleep(LOOK);
        }
        let mut again = self.names.iter().filter(|name| name.again.is_some());
        again.all(|name| self.one(name)) && self.those_moved()
    }

    fn have_arrived(&self, names: &mut OnTheirWay) -> bool {
        names.have_arrived(self.nodes.clock(), &*self.look_at)
    }

    /// What was renamed meanwhile; what is renamed while its new name expires comes again.
    fn those_moved(&self) -> bool {
        loop {
            let moved = std::mem::take(&mut *self.nodes.tally.moved.lock());
            if moved.is_empty() {
                return !self.nodes.tally.is_missing();
            }
            if !moved.iter().all(|name| self.one(name)) {
                return false;
            }
        }
    }

    fn one(&self, name: &Name) -> bool {
        if self.given_up.load(Relaxed) {
            return false;
        }
        let done = self.notifier.expire_entry(name.parent, OsStr::from_bytes(&name.name));
        if let Err(error) = &done {
            tracing::debug!(parent = name.parent, %error, "a name does not expire");
        }
        done.is_ok()
    }
}

/// What is seen of a thread.
pub type LookAt = dyn Fn(u32) -> Look + Send + Sync;

/// Who lets the kernel's names expire: one thread at a time.
pub struct Expiry {
    notifier: Notifier,
    look_at: Arc<LookAt>,
    device: Device,
    epochs: bool,
    expires: bool,
    /// One after the other: of the lease, and of connections.
    turn: Mutex<()>,
    /// The thread; one that waits for a lock of the kernel may outlive its purpose.
    busy: Arc<Place>,
    /// The same of one that looks for what is mounted below.
    looks: Arc<Place>,
    /// When names that were called back one by one did not expire in time.
    shaken: Mutex<Option<Instant>>,
    /// When somebody had to wait for names on their way to the kernel.
    waited: Mutex<Option<Instant>>,
}

/// Room for one thread.
#[derive(Default)]
struct Place {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A thread has its place until it ends.
struct Taken(Arc<Place>);

impl Place {
    /// Takes it; waits for so long while another thread has it.
    fn take(self: &Arc<Place>, within: Duration) -> Option<Taken> {
        let mut taken = self.taken.lock();
        self.free.wait_while_for(&mut taken, |taken| *taken, within);
        (!std::mem::replace(&mut *taken, true)).then(|| Taken(Arc::clone(self)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.free.notify_one();
    }
}

impl Expiry {
    /// Of a mount of this device number, whose kernel speaks this minor version of the protocol.
    pub fn new(
        notifier: Notifier,
        device: Device,
        minor: u32,
        look_at: impl Fn(u32) -> Look + Send + Sync + 'static,
    ) -> Expiry {
        let look_at = Arc::new(look_at);
        let (epochs, expires) = (minor >= HAS_EPOCHS, minor >= LETS_EXPIRE);
        let (turn, busy, looks) = (Mutex::new(()), Arc::default(), Arc::default());
        let (shaken, waited) = (Mutex::default(), Mutex::default());
        Expiry { notifier, look_at, device, epochs, expires, turn, busy, looks, shaken, waited }
    }

    /// The kernel believes none of its names any more when this returns.
    pub fn drop_names(&self, nodes: &Arc<Nodes>) {
        let _turn = self.turn.lock();
        let (names, missing) = nodes.take_names();
        let (count, begun) = (names.len(), Instant::now());
        // Without epochs there is no other way.
        let expired = match missing && self.epochs {
            true => Err(true),
            false => self.expire(nodes, names, BRIEFLY),
        };
        nodes.tally.end();
        match expired {
            Ok(()) => tracing::debug!(count, took = ?begun.elapsed(), "the kernel's names expired"),
            Err(below) => self.new_epoch(below),
        }
    }

    /// The kernel does not believe the names that lead to these nodes any more when this returns.
    pub fn drop_leading(&self, nodes: &Arc<Nodes>, to: impl Iterator<Item = u64>) {
        let mut to = to.peekable();
        if to.peek().is_none() {
            return;
        }
        let _turn = self.turn.lock();
        let names = nodes.take_names_of(to);
        let (count, begun) = (names.len(), Instant::now());
        let told_again = on_their_way(&names, nodes.clock()).is_some();
        let expired = self.expire_some(nodes, names);
        nodes.tally.end();
        if told_again && begun.elapsed() > BRIEFLY {
            *self.waited.lock() = Some(Instant::now());
        }
        if count > 0 {
            tracing::debug!(count, took = ?begun.elapsed(), ok = expired.is_ok(), "names were called back");
        }
        if let Err(below) = expired {
            *self.shaken.lock() = Some(Instant::now());
            self.new_epoch(below);
        }
    }

    /// The same as far as no lock is in the way, of who waits for a server that is lost.
    pub fn doubt_leading(&self, nodes: &Arc<Nodes>, to: impl Iterator<Item = u64>) {
        let _turn = self.turn.lock();
        let names = nodes.names_of(to);
        let count = names.len();
        if self.expire_some(nodes, names).is_err() {
            tracing::debug!(count, "names are kept until their time has passed");
        }
    }

    fn expire_some(&self, nodes: &Arc<Nodes>, names: Vec<Name>) -> Result<(), bool> {
        if names.is_empty() {
            return Ok(());
        }
        let left = on_their_way(&names, nodes.clock()).unwrap_or_default();
        self.expire(nodes, names, BRIEFLY + left)
    }

    /// Whether this kernel lets go of names one by one, and of all at once.
    pub fn takes_back(&self) -> bool {
        self.epochs && self.expires
    }

    /// Whether names may be kept that are called back one by one. `again`: the kernel may know it.
    pub fn is_calm(&self, again: bool) -> bool {
        let over = |since: &Mutex<Option<Instant>>, time: Duration| {
            since.lock().is_none_or(|at| at.elapsed() > time)
        };
        let calm = self.takes_back() && over(&self.shaken, CALM);
        calm && (!again || over(&self.waited, PAUSE))
    }

    /// Names that were called back do not expire: all are dropped, and none is kept for a while.
    pub fn give_up(&self) {
        *self.shaken.lock() = Some(Instant::now());
        self.new_epoch(self.is_below());
    }

    /// Lets names expire one by one, within a time; if that failed, whether something is, or may be, mounted below.
    fn expire(&self, nodes: &Arc<Nodes>, names: Vec<Name>, within: Duration) -> Result<(), bool> {
        if !self.expires {
            return Err(true);
        }
        let place = self.place()?;
        let given_up = Arc::<AtomicBool>::default();
        let (nodes, notifier) = (Arc::clone(nodes), self.notifier.clone());
        let (look_at, gives_up) = (Arc::clone(&self.look_at), given_up.clone());
        let expiring = Expiring { nodes, notifier, names, look_at, given_up: gives_up };
        let (say, hear) = channel();
        let run = move || {
            let _place = place;
            let _ = say.send(expiring.all());
        };
        if let Err(error) = std::thread::Builder::new().name("names".into()).spawn(run) {
            tracing::warn!(%error, "no thread lets names expire");
            return Err(true);
        }
        let expired = wait(&hear, within, || !self.epochs || self.is_below());
        given_up.store(true, Relaxed);
        expired
    }

    /// The place of the thread, once the one before has ended; waits for that as [`wait`] does.
    fn place(&self) -> Result<Taken, bool> {
        if let Some(place) = self.busy.take(BRIEFLY) {
            return Ok(place);
        }
        let below = !self.epochs || self.is_below();
        let worth = if below { PATIENCE - BRIEFLY } else { Duration::ZERO };
        self.busy.take(worth).ok_or(below)
    }

    /// Whether something is, or may be, mounted below. A thread of its own looks: where processes are stuck,
    /// that takes long.
    fn is_below(&self) -> bool {
        let Some(place) = self.looks.take(Duration::ZERO) else { return true };
        let device = self.device;
        let (say, hear) = channel();
        let look = move || {
            let _place = place;
            let _ = say.send(below::any(device));
        };
        let named = std::thread::Builder::new().name("below".into());
        named.spawn(look).is_err() || hear.recv_timeout(PATIENCE / 2).unwrap_or(true)
    }

    /// All names are dropped at once, and those in use are taken out of the tree.
    fn new_epoch(&self, below: bool) {
        if below && self.epochs {
            tracing::warn!("not all names expire in time: what is mounted below is detached");
        }
        match self.notifier.inc_epoch() {
            Ok(true) => {}
            Ok(false) => tracing::debug!("the mount has ended"),
            Err(e) => tracing::warn!(error = %e, "cannot drop the kernel's names"),
        }
    }
}

/// Waits for the thread that lets names expire as long as is worth it; if in vain, what `below` says.
fn wait(hear: &Receiver<bool>, within: Duration, below: impl FnOnce() -> bool) -> Result<(), bool> {
    let begun = Instant::now();
    match hear.recv_timeout(within) {
        Ok(true) => return Ok(()),
        Ok(false) | Err(RecvTimeoutError::Disconnected) => return Err(below()),
        Err(RecvTimeoutError::Timeout) => {}
    }
    if !below() {
        return Err(false);
    }
    match hear.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
        Ok(true) => Ok(()),
        _ => Err(true),
    }
}

#[cfg(test)]
mod tests;
