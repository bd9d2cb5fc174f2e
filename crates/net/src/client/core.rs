//! A session as the client keeps it: requests, credits, and which transport carries them.
//!
//! Role: every request gets exactly one answer or error, whatever transports come and go
//! (invariant 4: what was sent before carries `F_RESENT`). Requests one thread submits go out in
//! that order. Assumptions: whoever answers may do so on the very thread that sends, so nothing
//! here calls out with the lock held. Never does: sleep, or block a thread that delivers replies.

mod calls;
mod queue;

use super::delivering::Delivering;
use super::heard::Heard;
use super::runtime::{self, Home};
use super::stats::Counts;
use super::watch::Watch;
use crate::keeper::{Kept, keeper};
use crate::link::Link;
use crate::message::{Frame, join};
use crate::{ConnectOptions, Endpoint, NetError, Patience, Reply, SessionStats};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use proto::frame::Header;
use proto::mgs::{FEATURE_TRUNK, Hello, Welcome};
use proto::{WIRE_VERSION, ops};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long [`crate::Session::close`] waits for the server to acknowledge.
pub(crate) const GOODBYE_WAIT: Duration = Duration::from_millis(500);

pub(crate) type Done = Box<dyn FnOnce(Result<Reply, NetError>) + Send>;

struct Pending {
    opcode: u16,
    body: Bytes,
    bulk: Vec<Bytes>,
    done: Done,
    deadline: Option<Instant>,
    /// On the present transport.
    sent: bool,
    /// On any transport.
    ever_sent: bool,
    /// Submitted by [`crate::Events::back`]: goes before everything else.
    replay: bool,
}

enum Phase {
    Down,
    Up(Arc<dyn Link>),
    Closed(NetError),
}

struct State {
    phase: Phase,
    /// Counts attempts, so that a dead transport cannot speak for the session.
    generation: u64,
    endpoint: Endpoint,
    welcome: Option<Welcome>,
    client: [u8; 16],
    /// Evicted: nothing is taken until it has another name.
    expelled: bool,
    next_xid: u64,
    /// All requests without an answer.
    pending: BTreeMap<u64, Box<Pending>>,
    /// Those of them to send, in order.
    queue: VecDeque<u64>,
    /// The thread that runs [`crate::Events::back`]: what it submits is a replay.
    replaying: Option<ThreadId>,
    /// Sent on this transport and timed out here; the server still counts them.
    abandoned: HashSet<u64>,
    outstanding: usize,
    credits: usize,
    /// A thread is sending from the queue.
    pumping: bool,
    callbacks: HashSet<u64>,
    next_tick: Option<Instant>,
    goodbye: bool,
    /// Without what `counts` counts.
    stats: SessionStats,
    counts: Counts,
}

pub(crate) struct Core {
    pub(crate) options: ConnectOptions,
    pub(crate) moved: Arc<Notify>,
    pub(crate) runtime: Handle,
    /// Which of the process's runtimes that is.
    pub(crate) home: usize,
    pub(crate) watch: Arc<Watch>,
    pub(crate) heard: Arc<Heard>,
    this: Weak<Core>,
    local: AtomicBool,
    /// Call-backs that nobody takes up are not answered any more.
    leaving: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Core {
    pub(crate) fn new(endpoint: &Endpoint, options: ConnectOptions) -> Result<Arc<Core>, NetError> {
        let Home { number, runtime, watch } = runtime::home()?;
        let state = State {
            phase: Phase::Down,
            generation: 0,
            endpoint: endpoint.clone(),
            welcome: None,
            client: options.client,
            expelled: false,
            next_xid: 1,
            pending: BTreeMap::new(),
            queue: VecDeque::new(),
            replaying: None,
            abandoned: HashSet::new(),
            outstanding: 0,
            credits: 1,
            pumping: false,
            callbacks: HashSet::new(),
            next_tick: None,
            goodbye: false,
            stats: SessionStats::default(),
            counts: Counts::default(),
        };
        let local = matches!(endpoint, Endpoint::Local(_));
        let core = Arc::new_cyclic(|this| Core {
            options,
            moved: Arc::new(Notify::new()),
            runtime,
            home: number,
            watch,
            heard: Arc::new(Heard::new(local)),
            this: this.clone(),
            local: AtomicBool::new(local),
            leaving: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let kept: Arc<dyn Kept> = core.clone();
        keeper().add(&kept);
        Ok(core)
    }

    /// Starts an attempt to connect: its generation, where to go, what to say.
    pub(crate) fn begin(&self) -> Result<(u64, Endpoint, Hello), NetError> {
        let mut state = self.state.lock();
        if let Phase::Closed(e) = &state.phase {
            return Err(e.clone());
        }
        state.generation += 1;
        let o = &self.options;
        let hello = Hello {
            min_version: WIRE_VERSION,
            max_version: WIRE_VERSION,
            client: state.client,
            fs: o.fs,
            target: o.target.clone(),
            features: o.features | if o.share { FEATURE_TRUNK } else { 0 },
            description: o.description.clone(),
            resume: state.welcome.as_ref().map_or(0, |w| w.session),
        };
        Ok((state.generation, state.endpoint.clone(), hello))
    }

    /// The server let us in; tells [`crate::Events::back`] unless it is the first time.
    pub(crate) fn welcomed(&self, welcome: Welcome) {
        let mut state = self.state.lock();
        let first = state.welcome.replace(welcome.clone()).is_none();
        if first {
            return;
        }
        // A replay for a session that is no more: `back` begins anew.
        let stale = if welcome.resumed { BTreeMap::new() } else { state.take(|p| p.replay) };
        state.replaying = Some(std::thread::current().id());
        drop(state);
        self.fail(stale, &NetError::Lost("lost during the replay".into()));
        self.options.events.back(&welcome);
        self.state.lock().replaying = None;
    }

    /// The transport of attempt `generation` stands: sends what waits.
    pub(crate) fn adopt(&self, generation: u64, link: Arc<dyn Link>) -> Result<(), NetError> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Closed(_)) {
            drop(state);
            link.close("closed");
            return Err(NetError::Shutdown);
        }
        if state.generation != generation {
            drop(state);
            link.close("lost");
            return Err(NetError::Lost("the connection broke while it was set up".into()));
        }
        state.phase = Phase::Up(link);
        state.credits = state.welcome.as_ref().map_or(1, |w| usize::from(w.credits.max(1)));
        state.requeue();
        drop(state);
        self.pump();
        Ok(())
    }

    /// The transport of attempt `generation` is gone.
    pub(crate) fn lost(&self, generation: u64, why: NetError) {
        let mut state = self.state.lock();
        if state.generation != generation {
            return;
        }
        state.generation += 1;
        let phase = std::mem::replace(&mut state.phase, Phase::Down);
        let link = match phase {
            Phase::Up(link) => link,
            other => {
                state.phase = other;
                self.changed.notify_all();
                return;
            }
        };
        state.stats.lost += 1;
        state.abandoned.clear();
        state.callbacks.clear();
        let again = self.options.reconnect;
        let failed = if again {
            state.requeue();
            BTreeMap::new()
        } else {
            state.phase = Phase::Closed(why.clone());
            std::mem::take(&mut state.pending)
        };
        self.changed.notify_all();
        drop(state);
        // Before the next attempt, which may be made on the same connection.
        link.close("lost");
        if again {
            self.runtime.spawn(super::reconnect::run(self.this.clone()));
        }
        self.options.events.lost(&why);
        self.fail(failed, &why);
    }

    fn fail(&self, requests: BTreeMap<u64, Box<Pending>>, why: &NetError) {
        let _delivering = Delivering::enter();
        for request in requests.into_values() {
            (request.done)(Err(why.clone()));
        }
    }

    pub(crate) fn submit(
        &self,
        opcode: u16,
        body: Vec<u8>,
        bulk: Vec<Bytes>,
        patience: Patience,
        done: Done,
    ) {
        if body.len() > proto::MAX_BODY as usize
            || bulk.iter().map(Bytes::len).sum::<usize>() > proto::MAX_BULK as usize
        {
            return done(Err(NetError::Protocol("the request is larger than a frame".into())));
        }
        let mut state = self.state.lock();
        if let Err(e) = self.wait_for_room(&mut state, patience) {
            drop(state);
            return done(Err(e));
        }
        let most = self.options.request_timeout.filter(|_| patience == Patience::Request);
        let deadline = most.map(|t| Instant::now() + t);
        let xid = state.next_xid;
        state.next_xid += 1;
        let (body, sent, ever_sent) = (Bytes::from(body), false, false);
        let replay = state.replaying == Some(std::thread::current().id());
        let request = Pending { opcode, body, bulk, done, deadline, sent, ever_sent, replay };
        state.pending.insert(xid, Box::new(request));
        self.watch(&mut state, deadline);
        if replay {
            return;
        }
        let straight = state.queue.is_empty() && !state.pumping && !Delivering::here();
        state.queue.push_back(xid);
        if straight {
            if let Some((link, frame)) = state.next_frame() {
                drop(state);
                link.send(frame);
            }
            return;
        }
        drop(state);
        self.pump();
    }

    /// Waits below `max_waiting` (invariant 8), except on threads that must not wait.
    fn wait_for_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        patience: Patience,
    ) -> Result<(), NetError> {
        let start = Instant::now();
        let mut blocked = false;
        loop {
            if let Phase::Closed(e) = &state.phase {
                return Err(e.clone());
            }
            if state.expelled {
                return Err(NetError::Evicted { client: state.client });
            }
            let must_not_wait = patience == Patience::Session
                || Delivering::here()
                || state.replaying == Some(std::thread::current().id());
            if must_not_wait || state.pending.len() < self.options.max_waiting.max(1) {
                return Ok(());
            }
            if !blocked {
                state.stats.blocked += 1;
                blocked = true;
            }
            match self.options.request_timeout {
                None => self.changed.wait(state),
                Some(after) => {
                    if self.changed.wait_until(state, start + after).timed_out() {
                        return Err(self.timeout(after));
                    }
                }
            }
        }
    }

    fn timeout(&self, after: Duration) -> NetError {
        NetError::Timeout { target: self.options.target.clone(), after }
    }

    /// Sends from the queue what credits allow. One thread at a time, so that order is kept and an
    /// answer given on the sending thread does not nest.
    fn pump(&self) {
        let mut turn = Turn { core: self, mine: false };
        let mut state = self.state.lock();
        if state.pumping {
            return;
        }
        state.pumping = true;
        turn.mine = true;
        while let Some((link, frame)) = state.next_frame() {
            MutexGuard::unlocked(&mut state, || link.send(frame));
        }
        // Under the lock that found the queue empty, so that nothing is left behind.
        state.pumping = false;
        turn.mine = false;
    }

    /// A frame from the transport of attempt `generation`.
    pub(crate) fn receive(&self, generation: u64, frame: Frame) -> Result<(), NetError> {
        let header = frame.header;
        let mut state = self.state.lock();
        if state.generation != generation {
            return Ok(());
        }
        state.stats.bytes_received += (frame.body.len() + frame.bulk_len()) as u64;
        if header.is_callback() {
            return self.called(state, frame);
        }
        if !header.is_reply() {
            return Err(NetError::Protocol("a request from the server".into()));
        }
        state.credits = usize::from(header.credits.get().max(1));
        match header.opcode.get() {
            ops::session::PING => self.heard.answered(header.xid.get()),
            ops::session::DISCONNECT => {
                state.goodbye = true;
                self.changed.notify_all();
            }
            _ => {
                self.answered(state, frame);
                return Ok(());
            }
        }
        drop(state);
        self.pump();
        Ok(())
    }

    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    fn answered(&self, mut state: MutexGuard<'_, State>, frame: Frame) {
        let xid = frame.header.xid.get();
        let request = state.pending.remove(&xid);
        let counted = match &request {
            Some(request) => request.sent,
            None => state.abandoned.remove(&xid),
        };
        if counted {
            state.outstanding = state.outstanding.saturating_sub(1);
        }
        // None: it timed out here, or is answered twice after a reconnect.
        let Some(request) = request else {
            drop(state);
            return self.pump();
        };
        state.counts.of(request.opcode).received += 1;
        let more = !state.queue.is_empty();
        drop(state);
        self.changed.notify_all();
        let reply = Reply { header: frame.header, body: frame.body, bulk: join(frame.bulk) };
        let delivering = Delivering::enter();
        (request.done)(Ok(reply));
        drop(delivering);
        if more {
            self.pump();
        }
    }

    /// See [`crate::Session::attend`].
    pub(crate) fn attend(&self, done: &dyn Fn() -> bool, until: Option<Instant>) {
        if Delivering::here() {
            return;
        }
        let link = match &self.state.lock().phase {
            Phase::Up(link) => link.clone(),
            _ => return,
        };
        link.attend(done, until);
    }

    /// See [`crate::Session::oldest_wait`].
    pub(crate) fn oldest_wait(&self) -> Option<Duration> {
        let deadline = self.state.lock().pending.values().find_map(|p| p.deadline)?;
        let left = deadline.saturating_duration_since(Instant::now());
        Some(self.options.request_timeout?.saturating_sub(left))
    }

    fn watch(&self, state: &mut State, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        if state.next_tick.is_none_or(|next| deadline < next) {
            state.next_tick = Some(deadline);
            keeper().at(deadline);
        }
    }

    pub(crate) fn welcome(&self) -> Option<Welcome> {
        self.state.lock().welcome.clone()
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Up(_))
    }

    pub(crate) fn stats(&self) -> SessionStats {
        let state = self.state.lock();
        let waiting = state.pending.len() as u64;
        state.counts.fill(SessionStats { waiting, ..state.stats.clone() })
    }

    pub(crate) fn is_local(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    pub(crate) fn set_endpoint(&self, endpoint: Endpoint) {
        self.local.store(matches!(endpoint, Endpoint::Local(_)), Ordering::Relaxed);
        let mut state = self.state.lock();
        let old = std::mem::replace(&mut state.endpoint, endpoint.clone());
        let generation = state.generation;
        drop(state);
        let same =
            !matches!(endpoint, Endpoint::Local(_)) && old.to_string() == endpoint.to_string();
        if !same && self.is_up() {
            self.lost(generation, NetError::Lost(format!("the target moved to {endpoint}")));
        }
        self.moved.notify_one();
    }

    /// See [`crate::Session::expel`].
    pub(crate) fn expel(&self) {
        let mut state = self.state.lock();
        state.expelled = true;
        let failed = std::mem::take(&mut state.pending);
        state.queue.clear();
        let client = state.client;
        self.changed.notify_all();
        drop(state);
        self.fail(failed, &NetError::Evicted { client });
    }

    /// See [`crate::Session::renew`].
    pub(crate) fn renew(&self, client: [u8; 16]) {
        let (generation, up) = {
            let mut state = self.state.lock();
            state.client = client;
            state.expelled = false;
            if let Some(welcome) = &mut state.welcome {
                welcome.session = 0;
            }
            (state.generation, matches!(state.phase, Phase::Up(_)))
        };
        if up {
            self.lost(generation, NetError::Lost("this client comes back as another".into()));
        }
        self.moved.notify_one();
    }

    /// Ends the session: all requests fail, the server is told, for `wait` its answer is awaited.
    pub(crate) fn close(&self, wait: Duration) {
        let mut state = self.state.lock();
        let phase = std::mem::replace(&mut state.phase, Phase::Closed(NetError::Shutdown));
        let failed = std::mem::take(&mut state.pending);
        state.queue.clear();
        let session = state.welcome.as_ref().map_or(0, |w| w.session);
        let generation = state.generation;
        self.changed.notify_all();
        drop(state);
        self.moved.notify_one();
        if let Phase::Up(link) = phase {
            let mut header = Header::request(ops::session::DISCONNECT, 0);
            header.session = session.into();
            if link.send(Frame::bare(header)) {
                self.wait_goodbye(generation, wait);
            }
            link.close("closed");
        }
        self.fail(failed, &NetError::Shutdown);
    }

    fn wait_goodbye(&self, generation: u64, wait: Duration) {
        let until = Instant::now() + wait;
        let mut state = self.state.lock();
        while !state.goodbye && state.generation == generation {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

/// Gives the turn to send back even if a service panics on this thread.
struct Turn<'a> {
    core: &'a Core,
    mine: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.mine {
            self.core.state.lock().pumping = false;
        }
    }
}

impl Kept for Core {
    fn tick(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let late = state.take(|p| p.deadline.is_some_and(|d| d <= now));
        let sent = late.iter().filter(|(_, p)| p.sent).map(|(xid, _)| *xid);
        state.abandoned.extend(sent);
        state.next_tick = state.pending.values().filter_map(|p| p.deadline).min();
        let next = state.next_tick;
        drop(state);
        if !late.is_empty() {
            self.changed.notify_all();
            let after = self.options.request_timeout.unwrap_or_default();
            self.fail(late, &self.timeout(after));
        }
        next
    }
}
