//! The client's side: [`Session`].

pub(crate) mod backoff;
pub(crate) mod core;
pub(crate) mod delivering;
pub(crate) mod dial;
pub(crate) mod heard;
pub(crate) mod intake;
pub(crate) mod options;
pub(crate) mod places;
pub(crate) mod reconnect;
pub(crate) mod runtime;
pub(crate) mod stats;
pub(crate) mod trunk;
pub(crate) mod watch;

use crate::{ConnectOptions, Endpoint, NetError, Patience, Reply, SessionStats};
use bytes::Bytes;
use core::{Core, GOODBYE_WAIT};
use heard::Heard;
use parking_lot::{Condvar, Mutex};
use proto::frame::Header;
use proto::mgs::Welcome;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How late an answer to a ping may be before it is thought that none comes.
const OVERDUE: Duration = Duration::from_secs(3);

/// A session with one target. Any number of threads may use it at once. Dropping it says goodbye.
pub struct Session {
    core: Arc<Core>,
}

impl Session {
    /// Connects, with one attempt. Must not be called from a thread of this crate.
    ///
    /// # Errors
    /// Nobody is there, it takes longer than `connect_timeout`, or the server refuses.
    pub fn connect(endpoint: &Endpoint, options: ConnectOptions) -> Result<Arc<Session>, NetError> {
        let core = Core::new(endpoint, options)?;
        if let Endpoint::Local(server) = endpoint {
            let (generation, _, hello) = core.begin()?;
            reconnect::attach_local(&core, generation, server, &hello)?;
            return Ok(Arc::new(Session { core }));
        }
        let slot = Arc::new(Slot::default());
        let (task_core, task_slot) = (core.clone(), slot.clone());
        core.runtime.spawn(async move { task_slot.put(reconnect::attempt(&task_core).await) });
        slot.take()?;
        Ok(Arc::new(Session { core }))
    }

    /// What the server said when the present (or latest) transport was set up.
    pub fn welcome(&self) -> Welcome {
        self.core.welcome().unwrap_or_else(|| Welcome {
            session: 0,
            epoch: 0,
            version: 0,
            features: 0,
            credits: 0,
            resumed: false,
            data: Vec::new(),
        })
    }

    /// Whether there is a transport now.
    pub fn is_connected(&self) -> bool {
        self.core.is_up()
    }

    /// Whether there is a transport, and the server gives signs of life on it: of one that hangs, or is cut off
    /// without a word, that is known long before its connection is given up.
    pub fn is_answering(&self) -> bool {
        let due = self.core.options.ping_interval + OVERDUE;
        self.is_connected() && self.core.heard.silence() < due
    }

    /// For how long the oldest request that has no answer yet has been waiting, of those with a time-out; none where
    /// no such waits.
    pub fn oldest_wait(&self) -> Option<Duration> {
        self.core.oldest_wait()
    }

    /// Tells when the server last surely knew this session.
    pub fn heard(&self) -> Arc<Heard> {
        self.core.heard.clone()
    }

    /// Whether the target is in this process: its requests run on the caller's thread, and what
    /// they bring never left memory.
    pub fn is_local(&self) -> bool {
        self.core.is_local()
    }

    /// Sends a request, waits for its reply. A status other than 0 is no error here, see
    /// [`Reply::status`].
    ///
    /// # Errors
    /// `Timeout` after `request_timeout`, `Shutdown` when the session is closed, `Protocol` when
    /// the request is larger than [`proto::MAX_BODY`] or [`proto::MAX_BULK`].
    pub fn call(&self, opcode: u16, body: Vec<u8>, bulk: Vec<Bytes>) -> Result<Reply, NetError> {
        self.start(opcode, body, bulk, Patience::Request).wait()
    }

    /// Sends a request, to wait for its reply later. Waits itself as [`Session::submit`] does, but not with
    /// [`Patience::Session`].
    pub fn start(
        &self,
        opcode: u16,
        body: Vec<u8>,
        bulk: Vec<Bytes>,
        patience: Patience,
    ) -> Outstanding {
        let slot = Arc::new(Slot::default());
        let filled = slot.clone();
        let done = Box::new(move |result| filled.put(result));
        self.core.submit(opcode, body, bulk, patience, done);
        Outstanding { core: self.core.clone(), slot }
    }

    /// Like [`Session::call`]; the reply's bulk goes into `into`. Returns the reply, its bulk
    /// empty, and how many bytes of `into` are set.
    ///
    /// # Errors
    /// Those of [`Session::call`]; `Protocol` when the bulk is larger than `into`.
    pub fn call_into(
        &self,
        opcode: u16,
        body: Vec<u8>,
        into: &mut [u8],
    ) -> Result<(Reply, usize), NetError> {
        let mut reply = self.call(opcode, body, Vec::new())?;
        let bulk = std::mem::take(&mut reply.bulk);
        let room = into.get_mut(..bulk.len()).ok_or_else(|| {
            NetError::Protocol(format!("{} bytes came, fewer were asked for", bulk.len()))
        })?;
        room.copy_from_slice(&bulk);
        Ok((reply, bulk.len()))
    }

    /// Sends a request; `done` gets its reply or error, once, on a thread of this crate, or one that waits for
    /// an answer of this session (in process: of the server, or this one). Waits only when `max_waiting` requests wait already,
    /// and never when called from such a `done` or from [`crate::Events`].
    pub fn submit(
        &self,
        opcode: u16,
        body: Vec<u8>,
        bulk: Vec<Bytes>,
        done: Box<dyn FnOnce(Result<Reply, NetError>) + Send>,
    ) {
        self.core.submit(opcode, body, bulk, Patience::Request, done);
    }

    /// To be called before waiting for what the answer to a request brings: this thread takes answers from the
    /// socket itself, its own and others', which saves waking it. Returns once `done`, or after some milliseconds, or at
    /// once; `done` is asked often. The caller holds nothing that what is done with an answer may want.
    pub fn attend(&self, done: impl Fn() -> bool) {
        self.core.attend(&done, None);
    }

    /// The target is elsewhere now. A transport to another place is given up, requests go on there.
    pub fn set_endpoint(&self, endpoint: Endpoint) {
        self.core.set_endpoint(endpoint);
    }

    /// The client was evicted: all requests fail with [`NetError::Evicted`], further ones at once,
    /// until [`Session::renew`].
    pub fn expel(&self) {
        self.core.expel();
    }

    /// Comes back as another client, with a new session; [`crate::Events::back`] tells when.
    pub fn renew(&self, client: [u8; 16]) {
        self.core.renew(client);
    }

    /// This client is about to close, and soon takes up no call-backs: those that are dropped unused are not answered from
    /// now on. The end of the session does that, and says why, where `EIO` would be taken for a refusal.
    pub fn leave(&self) {
        self.core.leave();
    }

    /// Says goodbye and waits shortly until the server heard it. All requests fail.
    pub fn close(&self) {
        self.core.close(GOODBYE_WAIT);
    }

    /// Counters.
    pub fn stats(&self) -> SessionStats {
        self.core.stats()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.close(Duration::ZERO);
    }
}

/// The duty to answer a call-back. Dropped unused it answers `EIO`, unless its client is leaving ([`Session::leave`]).
pub struct CallReply {
    core: Weak<Core>,
    call: Header,
    answered: bool,
}

impl CallReply {
    pub(crate) fn new(core: Weak<Core>, call: Header) -> CallReply {
        CallReply { core, call, answered: false }
    }

    /// Whether the session it came in is still the present one: otherwise what it says is no longer so, and
    /// nobody waits for an answer.
    pub fn is_awaited(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.is_in(&self.call))
    }

    /// What tells the server, from any thread, that this is worked on.
    pub fn not_yet(&self) -> NotYet {
        NotYet { core: self.core.clone(), call: self.call }
    }

    /// Answers with a status (0 or an errno) and a body.
    pub fn send(mut self, status: i16, body: Vec<u8>) {
        self.answer(status, body);
    }

    fn answer(&mut self, status: i16, body: Vec<u8>) {
        self.answered = true;
        if let Some(core) = self.core.upgrade() {
            core.answer(&self.call, status, body);
        }
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        if !self.answered && !self.core.upgrade().is_some_and(|core| core.is_leaving()) {
            self.answer(proto::Errno::EIO.status(), Vec::new());
        }
    }
}

/// Puts off the answer to a call-back that takes long for reasons the server cannot know.
pub struct NotYet {
    core: Weak<Core>,
    call: Header,
}

impl NotYet {
    /// Whether the call-back was not answered yet, and its session is the present one.
    pub fn is_awaited(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.is_awaited(&self.call))
    }

    /// The server waits anew. `false`: nobody waits any more, or there is no transport.
    pub fn send(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.not_yet(&self.call))
    }
}

/// A request that was sent. Dropped, it goes on, and nobody hears of its end.
pub struct Outstanding {
    core: Arc<Core>,
    slot: Arc<Slot<Result<Reply, NetError>>>,
}

impl Outstanding {
    /// Waits for its reply, as [`Session::call`].
    ///
    /// # Errors
    /// Those of [`Session::call`], `Timeout` only if it was sent with [`Patience::Request`].
    pub fn wait(self) -> Result<Reply, NetError> {
        self.core.attend(&|| self.slot.is_filled(), None);
        self.slot.take()
    }

    /// The same until then; gives it back when that came first.
    ///
    /// # Errors
    /// It has not ended.
    pub fn wait_until(self, until: Instant) -> Result<Result<Reply, NetError>, Outstanding> {
        self.core.attend(&|| self.slot.is_filled(), Some(until));
        match self.slot.take_until(until) {
            Some(ended) => Ok(ended),
            None => Err(self),
        }
    }
}

/// Where a waiting thread finds its result.
struct Slot<T> {
    value: Mutex<Option<T>>,
    filled: Condvar,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot { value: Mutex::new(None), filled: Condvar::new() }
    }
}

impl<T> Slot<T> {
    fn put(&self, value: T) {
        *self.value.lock() = Some(value);
        self.filled.notify_one();
    }

    fn is_filled(&self) -> bool {
        self.value.lock().is_some()
    }

    fn take(&self) -> T {
        let mut value = self.value.lock();
        loop {
            match value.take() {
                Some(v) => return v,
                None => self.filled.wait(&mut value),
            }
        }
    }

    fn take_until(&self, until: Instant) -> Option<T> {
        let mut value = self.value.lock();
        while value.is_none() && !self.filled.wait_until(&mut value, until).timed_out() {}
        value.take()
    }
}
