//! Which names of files, and absent ones, the kernel may keep among several mounts, and which directories it must ask for
//! before it uses them.
//!
//! Role: such names rest on the lease on their directory. To forget one the kernel takes the directory's lock, which may be
//! held by who waits for the very call-back; so nobody waits for that. Instead a *gate* is put before the directory: the
//! kernel's attributes of it are dropped, without which no walk looks at a name there, and who asks for them
//! waits until the names have expired ([`crate::gates`]). The same is done before this mount changes names of a
//! directory that the kernel may keep, unless it alone may change them: others may see the change before the kernel here
//! has taken it in. As that costs something, names are kept only where nobody has changed any for a while ([`QUIET`]),
//! but for changes of who is alone by now.
//! Order: a name is noted, then the lease is looked at, then the kernel is told; who takes the lease away does so before
//! he takes the names, and who puts a gate up does so before the attributes are dropped. Who has walked past
//! before the gate stood began his system call before the change was done, and may see what was so then.
//! Never does: I/O, tell the kernel anything.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::told::{Told, both};

/// Names noted over all directories (invariant 8); about 100 bytes each.
const MAX_NAMES: usize = 200_000;
/// Names noted of one directory: they expire one by one, and somebody may wait for it (invariant 8).
const MAX_OF_ONE: usize = 10_000;
/// Directories of which something is noted (invariant 8).
const MAX_DIRS: usize = 65_536;
/// How long after a change of a directory's names its names are kept again. If they are changed again before
/// [`FORGIVEN`] times that are over, it is doubled, up to [`LOUD`].
const QUIET: Duration = Duration::from_millis(200);
const LOUD: Duration = Duration::from_secs(8);
const FORGIVEN: u32 = 4;
/// How often what is noted is looked through for room.
const SWEEP: Duration = Duration::from_secs(1);
/// How long everybody waits behind an own change once it is answered: the kernel takes it in with the lock held, and
/// somebody may ask who holds it by then.
pub const TAKEN_IN: Duration = Duration::from_millis(5);

/// How long any name may be kept.
const BELIEF: Duration = Duration::from_secs(18);
const SHARDS: usize = 16;

/// A name, and who was told it of something the kernel knew, which it takes in without the lock of its directory.
pub type Name = (Box<[u8]>, Option<Told>);

/// What is known of one directory. `P`: who waits before its gate.
struct Dir<P> {
    /// Names of files, and absent ones, that the kernel may keep.
    names: HashMap<Box<[u8]>, Option<Told>>,
    /// Names of directories, which rest on another lease ([`crate::belief`]).
    dirs: HashSet<Box<[u8]>>,
    /// Until when any of these may be kept.
    until: Duration,
    /// When others changed it last, and when this mount did where others could see it.
    others: Rested,
    own: Rested,
    /// Changes of this mount on their way.
    changing: u32,
    gate: Option<Gate<P>>,
}

/// When something was done to a directory last, and for how long it rested then.
#[derive(Clone, Copy, Default)]
struct Rested(Option<(Duration, Duration)>);

impl Rested {
    /// It is done again.
    fn again(&mut self, now: Duration) {
        let rest = match self.0 {
            Some((at, rest)) if now.saturating_sub(at) < FORGIVEN * rest => (2 * rest).min(LOUD),
            _ => QUIET,
        };
        self.0 = Some((now, rest));
    }

    /// Whether it is not over.
    fn rests(self, now: Duration) -> bool {
        self.0.is_some_and(|(at, rest)| at + rest > now)
    }
}

impl<P> Default for Dir<P> {
    fn default() -> Dir<P> {
        let (names, dirs, until) = (HashMap::default(), HashSet::default(), Duration::ZERO);
        let (others, own) = (Rested::default(), Rested::default());
        Dir { names, dirs, until, others, own, changing: 0, gate: None }
    }
}

/// Before a directory whose names are in doubt.
struct Gate<P> {
    /// Those that have to expire.
    names: Vec<Name>,
    /// Another mount changes it: nobody passes before all have expired for good.
    strict: bool,
    /// Otherwise: what was changed here, the kernel has taken in.
    open: bool,
    /// A thread lets the names expire.
    attended: bool,
    /// Since when it waits for the kernel.
    expiring: Option<Duration>,
    /// Since when that, and nothing else, is waited for.
    since: Duration,
    waiting: Vec<P>,
}

/// What a directory was like before a name was noted that is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The kernel may keep the name, or there is a gate already.
    pub kept: bool,
    /// The name was not noted.
    pub new: bool,
}

/// What who waits before a gate waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// That the kernel takes in what was changed here, and was answered for so long, [`TAKEN_IN`] or more.
    TakenIn(Duration),
    /// For something else; for how long the kernel has not let names expire, otherwise nobody holds the lock.
    Expiry(Duration),
}

/// What must happen after something was done to a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Todo {
    /// The kernel's attributes of it must be dropped.
    pub drop: bool,
    /// A thread must let its names expire.
    pub attend: bool,
}

/// See the module.
pub struct Entries<P> {
    shards: Vec<Mutex<HashMap<u64, Dir<P>>>>,
    /// Names noted, directories noted, gates that stand.
    names: AtomicUsize,
    dirs: AtomicUsize,
    gates: AtomicUsize,
    /// Before which directories these are.
    gated: Mutex<HashSet<u64>>,
    swept: Mutex<Duration>,
    /// The time since some moment.
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl<P> Default for Entries<P> {
    fn default() -> Entries<P> {
        let start = Instant::now();
        Entries::with_clock(move || start.elapsed())
    }
}

impl<P> Entries<P> {
    /// Nothing is kept; times are by this clock.
    fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Entries<P> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let none = AtomicUsize::default;
        let (names, dirs, gates) = (none(), none(), none());
        let (gated, swept) = (Mutex::default(), Mutex::default());
        Entries { shards, names, dirs, gates, gated, swept, clock: Box::new(clock) }
    }

    /// Now, as times are noted here.
    pub fn clock(&self) -> Duration {
        (self.clock)()
    }

    /// Whether no name is noted.
    pub fn is_empty(&self) -> bool {
        self.names.load(SeqCst) == 0
    }

    fn shard(&self, dir: u64) -> &Mutex<HashMap<u64, Dir<P>>> {
        &self.shards[(dir ^ (dir >> 24)) as usize % SHARDS]
    }

    /// What is noted of a directory; None: there is no room for it.
    fn dir<'a>(&self, shard: &'a mut HashMap<u64, Dir<P>>, dir: u64) -> Option<&'a mut Dir<P>> {
        if !shard.contains_key(&dir) {
            if self.dirs.load(SeqCst) >= MAX_DIRS {
                return None;
            }
            self.dirs.fetch_add(1, SeqCst);
        }
        Some(shard.entry(dir).or_default())
    }

    /// Drops what cannot matter any more, if there is little room, and now and then only.
    fn make_room(&self) {
        let full = self.names.load(SeqCst) >= MAX_NAMES || self.dirs.load(SeqCst) >= MAX_DIRS;
        if !full {
            return;
        }
        let now = self.clock();
        let mut swept = self.swept.lock();
        if now.saturating_sub(*swept) < SWEEP {
            return;
        }
        *swept = now;
        for shard in &self.shards {
            shard.lock().retain(|_, d| {
                let rests = d.others.rests(now) || d.own.rests(now);
                let matters = d.until > now || rests || d.changing > 0 || d.gate.is_some();
                if !matters {
                    self.names.fetch_sub(d.names.len() + d.dirs.len(), SeqCst);
                    self.dirs.fetch_sub(1, SeqCst);
                }
                matters
            });
        }
    }

    /// The kernel may be told a name of a file, or that there is none, to keep for this long; whether it is noted.
    /// `again`: it may know it, and take the answer without the directory's lock, for this thread. `alone`: this mount
    /// alone may change the directory.
    pub fn keep(
        &self,
        (dir, name): (u64, &[u8]),
        again: Option<u32>,
        alone: bool,
        time: Duration,
    ) -> bool {
        self.make_room();
        let now = self.clock();
        let mut shard = self.shard(dir).lock();
        let Some(d) = self.dir(&mut shard, dir) else { return false };
        // Who is alone changes names at no cost.
        let rests = d.others.rests(now) || (!alone && d.own.rests(now));
        if rests || d.changing > 0 || d.gate.is_some() || self.names.load(SeqCst) >= MAX_NAMES {
            return false;
        }
        let told = again.map(|thread| Told::new(now, thread));
        let many = d.names.len() >= MAX_OF_ONE;
        match d.names.get_mut(name) {
            Some(noted) => *noted = both(*noted, told),
            None if many => return false,
            None => {
                d.names.insert(name.into(), told);
                self.names.fetch_add(1, SeqCst);
            }
        }
        d.until = d.until.max(now + time);
        true
    }

    /// The same of a directory's name.
    pub fn keep_dir(&self, dir: u64, name: &[u8], time: Duration) -> bool {
        self.make_room();
        let now = self.clock();
        let mut shard = self.shard(dir).lock();
        let Some(d) = self.dir(&mut shard, dir) else { return false };
        if d.changing > 0 || d.gate.is_some() || self.names.load(SeqCst) >= MAX_NAMES {
            return false;
        }
        if d.dirs.insert(name.into()) {
            self.names.fetch_add(1, SeqCst);
        }
        d.until = d.until.max(now + time);
        true
    }

    /// This mount is about to change a name; ends with [`Entries::changed`]. If others can see it before they call
    /// anything back, which is to be asked after this, [`Entries::seen`] follows.
    pub fn changing(&self, dir: u64, name: &[u8]) -> Noted {
        self.make_room();
        let now = self.clock();
        let mut shard = self.shard(dir).lock();
        // Noted whether there is room or not: what is renamed takes its time there.
        let d = shard.entry(dir).or_insert_with(|| {
            self.dirs.fetch_add(1, SeqCst);
            Dir::default()
        });
        d.changing += 1;
        let new = !d.names.contains_key(name);
        let kept = !new || d.dirs.contains(name) || d.gate.is_some();
        if new {
            d.names.insert(name.into(), None);
            self.names.fetch_add(1, SeqCst);
        }
        d.until = d.until.max(now + BELIEF);
        Noted { kept, new }
    }

    /// Others may see a change of this mount before the kernel here has taken it in. `kept`: the name may be kept, or come
    /// to be with a rename; no other is in doubt. None: nor is this one, and what was noted for it, if `noted` so, is not
    /// any more.
    pub fn seen(&self, dir: u64, name: &[u8], kept: bool, noted: Noted) -> Option<Todo> {
        let now = self.clock();
        let mut shard = self.shard(dir).lock();
        let d = shard.get_mut(&dir)?;
        d.own.again(now);
        if !kept && d.gate.is_none() {
            self.withdraw(d, name, noted.new);
            return None;
        }
        let was_dir = d.dirs.remove(name);
        let taken = d.names.remove_entry(name);
        self.names.fetch_sub(usize::from(taken.is_some()) + usize::from(was_dir), SeqCst);
        let gate = self.gate((dir, d), now);
        gate.names.extend(taken);
        gate.open = false;
        Some(Todo { drop: true, attend: false })
    }

    /// What was noted for a change only is not any more.
    fn withdraw(&self, d: &mut Dir<P>, name: &[u8], new: bool) {
        if new && d.names.remove(name).is_some() {
            self.names.fetch_sub(1, SeqCst);
        }
    }

    /// The kernel was answered, or nobody hears it. `new`: as it was noted. `moved`: the kernel may keep the name, for
    /// another took its place.
    pub fn changed(&self, dir: u64, name: &[u8], new: bool, moved: bool) -> Todo {
        let now = self.clock();
        let mut shard = self.shard(dir).lock();
        let Some(d) = shard.get_mut(&dir) else { return Todo::default() };
        d.changing = d.changing.saturating_sub(1);
        if !moved {
            self.withdraw(d, name, new);
        }
        let last = d.changing == 0;
        let Some(gate) = d.gate.as_mut().filter(|_| last) else { return Todo::default() };
        gate.since = now;
        Todo { drop: false, attend: !std::mem::replace(&mut gate.attended, true) }
    }

    /// Another mount changes names of a directory.
    pub fn called_back(&self, dir: u64) -> Todo {
        let now = self.clock();
        let mut shard = self.shard(dir).lock();
        let Some(d) = shard.get_mut(&dir) else { return Todo::default() };
        d.others.again(now);
        if d.gate.is_none() && d.names.is_empty() {
            return Todo::default();
        }
        self.names.fetch_sub(d.names.len(), SeqCst);
        let taken: Vec<Name> = d.names.drain().collect();
        let gate = self.gate((dir, d), now);
        gate.names.extend(taken);
        if !std::mem::replace(&mut gate.strict, true) {
            gate.since = now;
        }
        Todo { drop: true, attend: !std::mem::replace(&mut gate.attended, true) }
    }

    /// This mount does not change a directory alone any more.
    pub fn shared(&self, dir: u64) -> Todo {
        let changing = self.shard(dir).lock().get(&dir).is_some_and(|d| d.changing > 0);
        // What is on its way others may see from now on.
        if changing { self.called_back(dir) } else { Todo::default() }
    }

    fn gate<'a>(&self, dir: (u64, &'a mut Dir<P>), now: Duration) -> &'a mut Gate<P> {
        dir.1.gate.get_or_insert_with(|| {
            self.gates.fetch_add(1, SeqCst);
            self.gated.lock().insert(dir.0);
            let (names, waiting) = (Vec::new(), Vec::new());
            let (strict, open, attended, expiring) = (false, false, false, None);
            Gate { names, strict, open, attended, expiring, since: now, waiting }
        })
    }

    /// Directories of which names are noted, or that have a gate.
    pub fn all(&self) -> Vec<u64> {
        let of = |shard: &HashMap<u64, Dir<P>>| {
            let noted = shard.iter().filter(|(_, d)| !d.names.is_empty() || d.gate.is_some());
            noted.map(|(dir, _)| *dir).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| of(&shard.lock())).collect()
    }

    /// Whether any gate stands.
    pub fn has_gates(&self) -> bool {
        self.gates.load(SeqCst) > 0
    }

    /// Whether a gate stands before a directory: nothing of it may be told with a time.
    pub fn is_gated(&self, dir: u64) -> bool {
        self.has_gates() && self.shard(dir).lock().get(&dir).is_some_and(|d| d.gate.is_some())
    }

    /// Who asks for a directory's attributes waits, if it has a gate; else he is given back.
    pub fn wait(&self, dir: u64, who: P) -> Option<P> {
        let mut shard = self.shard(dir).lock();
        match shard.get_mut(&dir).and_then(|d| d.gate.as_mut()) {
            Some(gate) if gate.strict || !gate.open => {
                gate.waiting.push(who);
                None
            }
            _ => Some(who),
        }
    }

    /// Names that have to expire now; of who attends to a gate.
    pub fn take(&self, dir: u64) -> Vec<Name> {
        let mut shard = self.shard(dir).lock();
        let Some(gate) = shard.get_mut(&dir).and_then(|d| d.gate.as_mut()) else {
            return Vec::new();
        };
        gate.expiring = Some(self.clock());
        std::mem::take(&mut gate.names)
    }

    /// Names that were taken before have to expire once more.
    pub fn again(&self, dir: u64) {
        if let Some(gate) = self.shard(dir).lock().get_mut(&dir).and_then(|d| d.gate.as_mut()) {
            gate.expiring = Some(self.clock());
        }
    }

    /// All that was taken has expired, if not for good: what was changed here the kernel has taken in. Who may pass.
    pub fn expired(&self, dir: u64) -> Vec<P> {
        let mut shard = self.shard(dir).lock();
        let Some(d) = shard.get_mut(&dir) else { return Vec::new() };
        d.gate.iter_mut().for_each(|gate| gate.expiring = None);
        match &mut d.gate {
            Some(gate) if d.changing == 0 && gate.names.is_empty() => gate.let_pass(),
            _ => Vec::new(),
        }
    }

    /// All that was taken has expired for good. Who waited; None: there is more to expire.
    pub fn end(&self, dir: u64) -> Option<Vec<P>> {
        let mut shard = self.shard(dir).lock();
        let Some(d) = shard.get_mut(&dir) else { return Some(Vec::new()) };
        if d.gate.as_ref().is_some_and(|gate| !gate.names.is_empty()) {
            return None;
        }
        Some(self.remove((dir, d)))
    }

    fn remove(&self, dir: (u64, &mut Dir<P>)) -> Vec<P> {
        let Some(gate) = dir.1.gate.take() else { return Vec::new() };
        self.gates.fetch_sub(1, SeqCst);
        self.gated.lock().remove(&dir.0);
        gate.waiting
    }

    /// Does something with each directory that has a gate.
    fn each_gated(&self, mut f: impl FnMut(u64, &mut Dir<P>)) {
        let gated: Vec<u64> = self.gated.lock().iter().copied().collect();
        for dir in gated {
            if let Some(d) = self.shard(dir).lock().get_mut(&dir) {
                f(dir, d);
            }
        }
    }

    /// Whether somebody like that waits before a gate.
    pub fn has_waiting(&self, like: impl Fn(&P) -> bool) -> bool {
        let mut has = false;
        self.each_gated(|_, d| has |= d.gate.iter().any(|gate| gate.waiting.iter().any(&like)));
        has
    }

    /// Nothing is kept by the kernel any more: all gates go. Who waited.
    pub fn end_all(&self) -> Vec<P> {
        let mut waited = Vec::new();
        self.each_gated(|dir, d| waited.extend(self.remove((dir, d))));
        waited
    }

    /// Those who wait and for whom `leaves` has something else, with that. And for how long strict gates have been waited for
    /// with no change of this mount on its way.
    pub fn look<T>(
        &self,
        mut leaves: impl FnMut(&mut P, Wait) -> Option<T>,
    ) -> (Vec<(P, T)>, Duration) {
        let (now, mut longest, mut leave) = (self.clock(), Duration::ZERO, Vec::new());
        self.each_gated(|_, d| {
            let Some(gate) = &mut d.gate else { return };
            let waited = match d.changing {
                0 => now.saturating_sub(gate.since),
                _ => Duration::ZERO,
            };
            if gate.strict {
                longest = longest.max(waited);
            }
            let stuck = gate.expiring.map(|at| now.saturating_sub(at)).unwrap_or_default();
            let wait = match !gate.strict && waited >= TAKEN_IN {
                true => Wait::TakenIn(waited),
                false => Wait::Expiry(stuck),
            };
            for mut who in std::mem::take(&mut gate.waiting) {
                match leaves(&mut who, wait) {
                    Some(then) => leave.push((who, then)),
                    None => gate.waiting.push(who),
                }
            }
        });
        (leave, longest)
    }
}

impl<P> Gate<P> {
    fn let_pass(&mut self) -> Vec<P> {
        self.open = true;
        if self.strict { Vec::new() } else { std::mem::take(&mut self.waiting) }
    }
}

#[cfg(test)]
mod tests;
