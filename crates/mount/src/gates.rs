//! Who attends to the gates before directories whose names are in doubt ([`crate::entries`]).
//!
//! Role: a thread lets the names of such a directory expire, which takes its lock, and then answers who waited for its
//! attributes. Another looks after those who must not wait. Who asks holds the directory's lock if its attributes were
//! dropped between two looks of one system call; then the names cannot expire. Behind an own change everybody passes soon
//! but who is seen to walk: he holds no lock, and waits until the kernel has taken the change in, however long it lets who made
//! it wait for a CPU. Behind another's he passes when names have not expired for [`RESTARTS`] and he is seen to have
//! ended his walk, which waits for the gate: so he began before it stood. Only root sees that. Otherwise he is told
//! ESTALE, upon which the kernel lets the lock go and begins his system call anew; that is told only to who is in a
//! system call that takes this lock and is begun anew, and once in each ([`crate::retries`]). If all that is in vain, a new
//! epoch begins.
//! Assumptions: what holds the lock otherwise waits for a server, and ends. Never does: wait on a thread that
//! serves requests.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fuse::{AttrOut, Reply, Request};
use parking_lot::{Condvar, Mutex};

use crate::caches::Caches;
use crate::calls::{Call, Walk, ran, stack_shows, waits_elsewhere, walk_shows, walks};
use crate::entries::{Entries, Name, Noted, TAKEN_IN, Todo, Wait};
use crate::retries::Retries;
use crate::tellers::Tellers;
use crate::told::{Look, OnTheirWay};

/// How long somebody waits before he passes, or is told to begin anew, because names do not expire.
const RESTARTS: Duration = Duration::from_millis(20);
/// How long who walks waits at most behind an own change that was answered.
const NOT_TAKEN_IN: Duration = Duration::from_secs(1);
/// How long somebody waits whom a signal may have killed.
const INTERRUPTS: Duration = Duration::from_secs(1);
/// How long names may take to expire while nothing of this mount's is on its way.
const PATIENCE: Duration = Duration::from_secs(4);
/// After somebody waited longer than [`BRIEFLY`] for a name on its way to the kernel, none that may be so is kept for this long.
const PAUSE: Duration = Duration::from_secs(20);
const BRIEFLY: Duration = Duration::from_millis(50);
/// How long the thread that looks after gates stays when there is none.
const IDLE: Duration = Duration::from_secs(10);

/// A question for a directory's attributes that waits.
pub struct Asker {
    req: Request,
    reply: Reply<AttrOut>,
    since: Instant,
    /// Who was told to begin anew, here or elsewhere.
    retries: Arc<Retries>,
    /// It was looked at whether he is to be told.
    looked_at: bool,
    /// He was seen to walk.
    walks: bool,
}

/// How somebody is answered.
type Answer = Box<dyn Fn(Request, Reply<AttrOut>, Then) + Send + Sync>;

/// What is next for who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Passes,
    BeginsAnew,
    /// A signal may have killed him.
    Ends,
}

/// See the module.
#[derive(Default)]
pub struct Gates {
    pub entries: Entries<Asker>,
    answer: OnceLock<Answer>,
    threads: Tellers,
    watch: Watch,
    /// What has to expire once more; no more than there are gates.
    later: Mutex<Vec<Later>>,
    /// When somebody waited for names on their way last.
    waited: Mutex<Option<Instant>>,
}

/// Names of a directory that have expired, but some of which were on their way to the kernel.
struct Later {
    since: Instant,
    dir: u64,
    names: Vec<Name>,
    /// What may not have arrived yet.
    left: OnTheirWay,
}

/// The thread that looks after gates.
#[derive(Default)]
struct Watch {
    runs: AtomicBool,
    lock: Mutex<()>,
    more: Condvar,
}

/// Names of this mount that are being changed; until they are dropped others wait.
pub struct Changing<'a> {
    caches: &'a Arc<Caches>,
    /// Directory, name, and whether that was noted for this change only.
    names: Vec<(u64, OsString, bool)>,
    moves: bool,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let entries = &self.caches.gates.entries;
        for (dir, name, new) in &self.names {
            let todo = entries.changed(*dir, name.as_bytes(), *new, self.moves);
            self.caches.attend(*dir, todo);
        }
    }
}

impl Gates {
    /// Whether a thread has taken in all that it was told before.
    pub fn look_at(&self, thread: u32) -> Look {
        // Who waits before a gate asked for that after all he was told.
        let waits = || self.entries.has_waiting(|asker| asker.req.pid() == thread);
        if waits() || waits_elsewhere(thread) { Look::GoneOn } else { Look::Ran(ran(thread)) }
    }

    /// Whether names of files may be kept that the kernel may know, and takes without their directory's lock.
    pub fn keeps_again(&self) -> bool {
        self.waited.lock().is_none_or(|at| at.elapsed() > PAUSE)
    }
}

impl Caches {
    /// How who waited before a gate is answered.
    pub fn answer_askers(
        &self,
        answer: impl Fn(Request, Reply<AttrOut>, Then) + Send + Sync + 'static,
    ) {
        // Set once per mount.
        let _ = self.gates.answer.set(Box::new(answer));
    }

    /// Names are about to be changed from here, until what is returned is dropped. To be called by who serves the
    /// request, whose caller holds the directories' locks.
    pub fn changing_names(self: &Arc<Caches>, names: &[(u64, &OsStr)]) -> Changing<'_> {
        // Alone nobody can see it, and nothing was kept before that a rename could take along.
        let alone = self.client.is_sole() && self.gates.entries.is_empty();
        if alone || !self.takes_names_back() {
            return Changing { caches: self, names: Vec::new(), moves: false };
        }
        let entries = &self.gates.entries;
        let note = |(dir, name): &(u64, &OsStr)| entries.changing(*dir, name.as_bytes());
        let mut noted: Vec<Noted> = names.iter().map(note).collect();
        let kept = noted.iter().any(|noted| noted.kept);
        // After the note: whoever takes a lease away from now on finds it.
        if !names.iter().all(|(dir, _)| self.client.is_alone_in(self.fid(*dir))) {
            for ((dir, name), noted) in names.iter().zip(&mut noted) {
                match entries.seen(*dir, name.as_bytes(), kept, *noted) {
                    Some(todo) => self.attend(*dir, todo),
                    None => noted.new = false,
                }
            }
        }
        // With a rename a name gets the time of the other.
        let moves = names.len() > 1 && kept;
        let names = names.iter().zip(noted);
        let names = names.map(|((dir, name), noted)| (*dir, (*name).into(), noted.new));
        Changing { caches: self, names: names.collect(), moves }
    }

    /// Another mount changes names of a directory, or may from when this returns.
    pub fn names_called_back(self: &Arc<Caches>, dir: u64) {
        self.attend(dir, self.gates.entries.called_back(dir));
    }

    /// Another mount looks at a directory that this one alone might change.
    pub fn names_shared(self: &Arc<Caches>, dir: u64) {
        self.attend(dir, self.gates.entries.shared(dir));
    }

    /// The same as if all were called back.
    pub fn all_names_called_back(self: &Arc<Caches>) {
        self.gates.entries.all().into_iter().for_each(|dir| self.names_called_back(dir));
    }

    /// Answers who asks for attributes, now or when the gate before that node is gone.
    pub fn pass_gate(
        self: &Arc<Caches>,
        req: &Request,
        node: u64,
        reply: Reply<AttrOut>,
        retries: &Arc<Retries>,
    ) -> Option<Reply<AttrOut>> {
        if !self.gates.entries.is_gated(node) {
            return Some(reply);
        }
        let (req, retries, since) = (req.clone(), Arc::clone(retries), Instant::now());
        let asker = Asker { req, reply, since, retries, looked_at: false, walks: false };
        self.gates.entries.wait(node, asker).map(|asker| asker.reply)
    }

    fn attend(self: &Arc<Caches>, dir: u64, todo: Todo) {
        if todo.drop
            && let Some(n) = self.notifier()
        {
            // Attributes only: this waits for nobody. The kernel holds the inode as long as it holds names in it.
            let _ = n.inval_inode(dir, -1, 0);
            self.watch_gates();
        }
        if todo.attend {
            let caches = Arc::clone(self);
            self.gates.threads.run(move || caches.let_expire(dir));
        }
    }

    /// Lets the names of a directory expire; for good, unless some may still be on their way to the kernel.
    fn let_expire(&self, dir: u64) {
        loop {
            let mut names = self.gates.entries.take(dir);
            // Before they expire: what has arrived by now does so for good.
            let mut left = OnTheirWay::new(names.iter().filter_map(|(_, told)| *told));
            let arrived = self.have_arrived(&mut left);
            self.expire(dir, &names);
            tracing::debug!(dir, count = names.len(), left = left.len(), "names expired");
            self.answer(self.gates.entries.expired(dir));
            if !arrived {
                names.retain(|(_, told)| told.is_some());
                let since = Instant::now();
                return self.gates.later.lock().push(Later { since, dir, names, left });
            }
            if self.end_gate(dir, false) {
                return;
            }
        }
    }

    fn have_arrived(&self, names: &mut OnTheirWay) -> bool {
        let now = self.gates.entries.clock();
        names.have_arrived(now, &|thread| self.gates.look_at(thread))
    }

    /// Lets names expire once more that have arrived by now.
    fn let_expire_again(&self, later: Later) {
        self.gates.entries.again(later.dir);
        self.expire(later.dir, &later.names);
        if !self.end_gate(later.dir, later.since.elapsed() > BRIEFLY) {
            self.let_expire(later.dir);
        }
    }

    /// The gate goes, unless there is more to expire. `late`: who waited did so for names that were long on their way.
    fn end_gate(&self, dir: u64, late: bool) -> bool {
        let Some(waited) = self.gates.entries.end(dir) else { return false };
        if late && !waited.is_empty() {
            *self.gates.waited.lock() = Some(Instant::now());
        }
        self.answer(waited);
        true
    }

    fn expire(&self, dir: u64, names: &[Name]) {
        let Some(n) = self.notifier() else { return };
        for (name, _) in names {
            if let Err(error) = n.expire_entry(dir, OsStr::from_bytes(name)) {
                tracing::warn!(dir, %error, "a name does not expire");
                return self.give_up_names();
            }
        }
    }

    fn answer(&self, askers: Vec<Asker>) {
        let Some(answer) = self.gates.answer.get() else { return };
        askers.into_iter().for_each(|asker| answer(asker.req, asker.reply, Then::Passes));
    }

    /// All names are dropped at once.
    fn give_up_names(&self) {
        self.forget_names();
        self.answer(self.gates.entries.end_all());
    }

    /// Somebody looks after the gates from now on.
    fn watch_gates(self: &Arc<Caches>) {
        let watch = &self.gates.watch;
        if watch.runs.swap(true, SeqCst) {
            let _lock = watch.lock.lock();
            watch.more.notify_one();
            return;
        }
        let caches = Arc::downgrade(self);
        let named = std::thread::Builder::new().name("gates".into());
        if let Err(error) = named.spawn(move || look_after(&caches)) {
            tracing::warn!(%error, "no thread to look after directories whose names are in doubt");
            watch.runs.store(false, SeqCst);
            self.give_up_names();
        }
    }

    /// Looks once at all who wait.
    fn look_at_gates(self: &Arc<Caches>) {
        let arrived = |later: &mut Later| self.have_arrived(&mut later.left);
        let due: Vec<Later> = self.gates.later.lock().extract_if(.., arrived).collect();
        for later in due {
            let caches = Arc::clone(self);
            self.gates.threads.run(move || caches.let_expire_again(later));
        }
        let (leave, longest) = self.gates.entries.look(|asker, wait| asker.leaves(wait));
        for (asker, then) in leave {
            tracing::debug!(
                dir = asker.req.nodeid(),
                thread = asker.req.pid(),
                ?then,
                "waits no longer"
            );
            if let Some(answer) = self.gates.answer.get() {
                answer(asker.req, asker.reply, then);
            }
        }
        if longest > PATIENCE {
            tracing::warn!("names of a directory do not expire");
            self.give_up_names();
        }
    }
}

/// Looks after gates while there are any, and for a while after.
fn look_after(caches: &Weak<Caches>) {
    // Now, while nobody waits for it.
    tracing::debug!(shows = walk_shows(), "who walks");
    let mut idle = Instant::now();
    loop {
        let Some(caches) = caches.upgrade() else { return };
        let watch = &caches.gates.watch;
        if caches.gates.entries.has_gates() {
            caches.look_at_gates();
            idle = Instant::now();
        }
        let mut lock = watch.lock.lock();
        if idle.elapsed() > IDLE {
            watch.runs.store(false, SeqCst);
            // A gate that was put up before that is looked after by nobody else.
            if !caches.gates.entries.has_gates() || watch.runs.swap(true, SeqCst) {
                return;
            }
        }
        // Asked under the lock: who puts one up takes it to wake this.
        let gates = caches.gates.entries.has_gates();
        watch.more.wait_for(&mut lock, if gates { TAKEN_IN } else { IDLE / 10 });
    }
}

impl Asker {
    /// What is next for who must not wait longer.
    fn leaves(&mut self, wait: Wait) -> Option<Then> {
        if self.since.elapsed() >= INTERRUPTS && self.reply.is_interrupted() {
            return Some(Then::Ends);
        }
        match wait {
            Wait::TakenIn(answered) => self.passes(answered).then_some(Then::Passes),
            Wait::Expiry(stuck) => self.begins_anew(stuck),
        }
    }

    /// Whether he may hold the lock that the kernel needs to take in what was changed here, or it takes too long.
    fn passes(&mut self, answered: Duration) -> bool {
        if self.walks {
            return answered >= NOT_TAKEN_IN;
        }
        match walks(self.req.pid()) {
            Some(walk) => self.walks = walk == Walk::Path,
            // Of a thread that has not begun to wait no stack is shown.
            None => return !stack_shows() || self.since.elapsed() >= RESTARTS,
        }
        !self.walks
    }

    /// `stuck`: for how long the kernel has not let names expire; otherwise nobody holds the lock.
    fn begins_anew(&mut self, stuck: Duration) -> Option<Then> {
        let waited = self.since.elapsed();
        if waited.min(stuck) < RESTARTS || std::mem::replace(&mut self.looked_at, true) {
            return None;
        }
        let thread = self.req.pid();
        if let Some(walk) = walks(thread) {
            return (walk == Walk::Ended).then_some(Then::Passes);
        }
        let call = Call::of(thread);
        let told = self.retries.has_call(thread, Instant::now(), call.as_ref());
        let again = !told && call.is_some_and(|call| call.changes_names());
        again.then_some(Then::BeginsAnew)
    }
}
