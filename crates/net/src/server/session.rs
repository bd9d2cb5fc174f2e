//! A session as the server keeps it: what outlives a transport.
//!
//! Role: each request runs once while this session lives (invariant 4): an xid that is running is
//! not started again, one that was answered lately is answered from the kept reply. What is kept
//! is bounded (invariant 8): by the client's lowest awaited xid, by the credits, by bytes.
//! Never does: call the service or a link with its lock held.

use super::ServerInner;
use super::responder::Responder;
use super::second_look::SecondLook;
use super::service::{Closed, Service};
use super::stats::{add, up};
use crate::keeper::keeper;
use crate::link::Link;
use crate::message::{Frame, join};
use crate::{NetError, Reply, Request, Response};
use bytes::Bytes;
use parking_lot::Mutex;
use proto::frame::{F_CALLBACK, F_RESENT, Header};
use proto::{Errno, ops};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of replies kept per session for requests that are sent again. Replies with bulk are not
/// kept: such requests only read and may run again.
pub(crate) const KEPT_REPLY_BYTES: usize = 256 << 10;
/// For how long a client may put off the answer to a call-back by saying that it works on it.
const PUT_OFF: Duration = Duration::from_secs(300);

type CallDone = Box<dyn FnOnce(Result<Reply, NetError>) + Send>;

struct CallBack {
    frame: Frame,
    deadline: Instant,
    timeout: Duration,
    /// No later deadline is given.
    latest: Instant,
    look: SecondLook,
    done: CallDone,
}

#[derive(Default)]
struct State {
    link: Option<Arc<dyn Link>>,
    /// Counts links, so that a dead one cannot speak for the session.
    generation: u64,
    /// Since when there is no link.
    away_since: Option<Instant>,
    look: SecondLook,
    over: bool,
    /// As many as it has credits for, mostly one or a few.
    running: Vec<u64>,
    /// The client has the answers of all xids below.
    lowest: u64,
    kept: VecDeque<(u64, Frame)>,
    kept_bytes: usize,
    callbacks: BTreeMap<u64, CallBack>,
    next_callback: u64,
}

pub(crate) struct SessionInner {
    pub(crate) id: u64,
    client: [u8; 16],
    description: String,
    pub(crate) service: Arc<dyn Service>,
    epoch: u32,
    server: Weak<ServerInner>,
    state: Mutex<State>,
}

/// A session of a client with one of this server's targets. Equal and hashed by [`SessionRef::id`].
#[derive(Clone)]
pub struct SessionRef(pub(crate) Arc<SessionInner>);

impl SessionRef {
    /// The session's number, unique in the server.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The client instance.
    pub fn client(&self) -> [u8; 16] {
        self.0.client
    }

    /// What the client says of itself.
    pub fn description(&self) -> String {
        self.0.description.clone()
    }

    /// Whether there is a transport now.
    pub fn is_connected(&self) -> bool {
        self.0.state.lock().link.is_some()
    }

    /// Whether the client is in this process: what it sends never left memory.
    pub fn is_local(&self) -> bool {
        self.0.state.lock().link.as_ref().is_some_and(|link| link.is_local())
    }

    /// Ends the session; the client will find that it must open a new one (invariant 5).
    pub fn evict(&self) {
        self.0.end(Closed::Evicted, "evicted");
    }

    /// Whether the session is over and none of its requests is at work any more.
    pub fn is_quiet(&self) -> bool {
        let state = self.0.state.lock();
        state.over && state.running.is_empty()
    }

    /// Cuts the transport; the session stays for its grace.
    pub fn disconnect(&self) {
        self.0.cut("disconnected by the server");
    }

    /// Calls the client. `done` gets its answer on some thread of this crate (or of the client, in
    /// process), [`NetError::Timeout`] after `timeout`, [`NetError::Busy`] above `max_callbacks`,
    /// [`NetError::Shutdown`] when the session ends first. While the client is away the call waits;
    /// it is sent again when the client comes back, so a client may see it twice. A client that says
    /// that it works on it has `timeout` from then on, five minutes longer than without at most.
    pub fn call_back(
        &self,
        opcode: u16,
        body: Vec<u8>,
        timeout: Duration,
        done: Box<dyn FnOnce(Result<Reply, NetError>) + Send>,
    ) {
        self.0.call_back(opcode, body, timeout, done);
    }
}

impl PartialEq for SessionRef {
    fn eq(&self, other: &SessionRef) -> bool {
        self.0.id == other.0.id
    }
}
impl Eq for SessionRef {}
impl std::hash::Hash for SessionRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}
impl std::fmt::Debug for SessionRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:016x} {})", self.0.id, self.0.description)
    }
}

impl SessionInner {
    pub(crate) fn new(
        id: u64,
        hello: &proto::mgs::Hello,
        service: Arc<dyn Service>,
        server: Weak<ServerInner>,
    ) -> SessionInner {
        let epoch = service.epoch();
        let state = State { away_since: Some(Instant::now()), ..State::default() };
        SessionInner {
            id,
            client: hello.client,
            description: hello.description.clone(),
            service,
            epoch,
            server,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn client(&self) -> [u8; 16] {
        self.client
    }

    /// Keeps the grace from ending while the session is being taken up again. `false`: too late.
    pub(crate) fn take_up(&self) -> bool {
        let mut state = self.state.lock();
        if state.over {
            return false;
        }
        state.away_since = Some(Instant::now());
        true
    }

    /// Gives the session a transport; an older one is closed. Returns its generation, or `None`
    /// when the session is over.
    pub(crate) fn attach(&self, link: Arc<dyn Link>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.over {
            return None;
        }
        let old = state.link.replace(link.clone());
        state.generation += 1;
        state.away_since = None;
        let generation = state.generation;
        let again: Vec<Frame> = state.callbacks.values().map(|c| c.frame.clone()).collect();
        for call in state.callbacks.values_mut() {
            call.frame.header.flags = (F_CALLBACK | F_RESENT).into();
        }
        drop(state);
        if let Some(old) = old {
            old.close("the client came back on another connection");
        }
        for frame in again {
            link.send(frame);
        }
        Some(generation)
    }

    /// The transport is gone: from now on the grace runs.
    pub(crate) fn detach(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation != generation || state.link.is_none() {
            return;
        }
        let link = state.link.take();
        let now = Instant::now();
        state.away_since = Some(now);
        drop(state);
        if let Some(server) = self.server.upgrade() {
            keeper().at(now + server.options.session_grace);
        }
        drop(link);
    }

    pub(crate) fn cut(&self, why: &str) {
        let (link, generation) = {
            let state = self.state.lock();
            (state.link.clone(), state.generation)
        };
        if let Some(link) = link {
            link.close(why);
            self.detach(generation);
        }
    }

    /// A frame of the client. An error is the end of the connection, not of the session.
    pub(crate) fn receive(self: &Arc<Self>, generation: u64, frame: Frame) -> Result<(), NetError> {
        let header = frame.header;
        if header.session.get() != self.id {
            return Err(NetError::Protocol(format!(
                "frame of session {:016x} on a connection of session {:016x}",
                header.session.get(),
                self.id
            )));
        }
        if header.is_callback() {
            return self.called_back(frame);
        }
        if header.is_reply() {
            return Err(NetError::Protocol("a reply to nothing".into()));
        }
        match header.opcode.get() {
            ops::session::PING => {
                self.transmit(Frame::bare(header.reply(0)), false);
                Ok(())
            }
            ops::session::DISCONNECT => {
                self.transmit(Frame::bare(header.reply(0)), false);
                self.end(Closed::Goodbye, "goodbye");
                Ok(())
            }
            ops::session::CONNECT | ops::session::PROVE => {
                Err(NetError::Protocol("set-up message on a set-up session".into()))
            }
            _ => self.request(generation, frame),
        }
    }

    fn request(self: &Arc<Self>, generation: u64, frame: Frame) -> Result<(), NetError> {
        let Some(server) = self.server.upgrade() else { return Ok(()) };
        let header = frame.header;
        let xid = header.xid.get();
        let mut state = self.state.lock();
        // What an older transport still delivers was, or will be, sent again on the present one.
        if state.over || state.generation != generation {
            return Ok(());
        }
        state.forget_below(header.last_committed.get());
        if xid < state.lowest {
            return Ok(());
        }
        if state.running.contains(&xid) {
            up(&server.counters.attached);
            return Ok(());
        }
        if let Some(at) = state.kept.iter().position(|(x, _)| *x == xid) {
            let again = state.kept[at].1.clone();
            drop(state);
            up(&server.counters.repeated);
            self.transmit(again, false);
            return Ok(());
        }
        if state.running.len() >= usize::from(server.options.credits.max(1)) {
            return Err(NetError::Protocol(format!(
                "more than the {} requests it has credits for",
                server.options.credits
            )));
        }
        state.running.push(xid);
        drop(state);
        up(&server.counters.requests);
        add(&server.counters.bytes_in, frame.body.len() + frame.bulk_len());
        let request = Request { header, body: frame.body, bulk: join(frame.bulk) };
        let reply = Responder::new(self.clone(), header);
        self.service.request(&SessionRef(self.clone()), request, reply);
        Ok(())
    }

    /// Sends the reply of a request, keeps it in case it gets lost.
    pub(crate) fn answer(&self, request: &Header, response: Response) {
        let mut header = request.reply(response.status);
        header.transno = response.transno.into();
        header.last_committed = response.last_committed.into();
        let frame = fit(Frame { header, body: response.body.into(), bulk: response.bulk });
        let mut state = self.state.lock();
        state.running.retain(|xid| *xid != request.xid.get());
        if state.over {
            return;
        }
        let most = self.server.upgrade().map_or(1, |s| usize::from(s.options.credits.max(1)));
        state.keep(&frame, most);
        // A client that waits for this one reply alone waits for its latency.
        let last = state.running.is_empty();
        drop(state);
        self.transmit(frame, last);
    }

    /// Puts a frame on the transport there is; without one it is dropped (the client asks again).
    fn transmit(&self, mut frame: Frame, now: bool) {
        let Some(link) = self.state.lock().link.clone() else { return };
        let header = &mut frame.header;
        header.session = self.id.into();
        header.epoch = self.epoch.into();
        if let Some(server) = self.server.upgrade() {
            header.credits = server.grant().into();
            up(&server.counters.replies);
            add(&server.counters.bytes_out, frame.body.len() + frame.bulk_len());
        }
        if now {
            link.send_now(frame)
        } else {
            link.send(frame)
        };
    }

    fn call_back(&self, opcode: u16, body: Vec<u8>, timeout: Duration, done: CallDone) {
        let Some(server) = self.server.upgrade() else { return done(Err(NetError::Shutdown)) };
        let mut state = self.state.lock();
        if state.over {
            drop(state);
            return done(Err(NetError::Shutdown));
        }
        if state.callbacks.len() >= server.options.max_callbacks {
            drop(state);
            up(&server.counters.callbacks_busy);
            return done(Err(NetError::Busy));
        }
        state.next_callback += 1;
        let xid = state.next_callback;
        let mut header = Header::request(opcode, xid);
        header.flags = F_CALLBACK.into();
        header.session = self.id.into();
        header.epoch = self.epoch.into();
        let frame = Frame { header, body: Bytes::from(body), bulk: Vec::new() };
        let now = Instant::now();
        let (deadline, latest) = (now + timeout, now + timeout + PUT_OFF);
        let mut kept = frame.clone();
        if state.link.is_some() {
            kept.header.flags = (F_CALLBACK | F_RESENT).into();
        }
        let look = SecondLook::default();
        let call = CallBack { frame: kept, deadline, timeout, latest, look, done };
        state.callbacks.insert(xid, call);
        let link = state.link.clone();
        drop(state);
        up(&server.counters.callbacks);
        keeper().at(deadline);
        if let Some(link) = link {
            link.send(frame);
        }
    }

    fn called_back(&self, frame: Frame) -> Result<(), NetError> {
        if !frame.header.is_reply() {
            return Err(NetError::Protocol("a call-back from the client".into()));
        }
        let xid = frame.header.xid.get();
        let mut state = self.state.lock();
        if frame.header.status.get() == Errno::EINPROGRESS.status() {
            // Not the answer yet. The keeper looks at the old deadline, and from then on at this one.
            if let Some(call) = state.callbacks.get_mut(&xid) {
                call.deadline = (Instant::now() + call.timeout).min(call.latest);
            }
            return Ok(());
        }
        let call = state.callbacks.remove(&xid);
        drop(state);
        // None: answered too late or twice.
        if let Some(call) = call {
            let bulk = join(frame.bulk);
            (call.done)(Ok(Reply { header: frame.header, body: frame.body, bulk }));
        }
        Ok(())
    }

    /// Ends what is over; returns when to look next.
    pub(crate) fn tick(&self, now: Instant, grace: Duration) -> Option<Instant> {
        let mut late = Vec::new();
        let behind = self.service.behind_until();
        let (lost, next) = {
            let mut state = self.state.lock();
            if state.over {
                return None;
            }
            let mut next = Vec::new();
            let mut is_over = |look: &mut SecondLook, deadline, time| {
                look.is_over(now, deadline, time).map_err(|at| next.push(at)).is_ok()
            };
            let callbacks = state.callbacks.iter_mut();
            let due: Vec<u64> = callbacks
                .filter_map(|(xid, c)| {
                    let deadline = behind.map_or(c.deadline, |b| c.deadline.max(b + c.timeout));
                    is_over(&mut c.look, deadline, c.timeout).then_some(*xid)
                })
                .collect();
            let away_since = state.away_since;
            let lost =
                away_since.is_some_and(|since| is_over(&mut state.look, since + grace, grace));
            late.extend(due.iter().filter_map(|xid| state.callbacks.remove(xid)));
            (lost, next.into_iter().min())
        };
        for call in late {
            let target = self.description.clone();
            (call.done)(Err(NetError::Timeout { target, after: call.timeout }));
        }
        if lost {
            self.end(Closed::Lost, "the client stayed away");
            return None;
        }
        next
    }

    /// Ends the session, once.
    pub(crate) fn end(&self, why: Closed, text: &str) {
        let (link, calls) = {
            let mut state = self.state.lock();
            if state.over {
                return;
            }
            state.over = true;
            state.kept.clear();
            (state.link.take(), std::mem::take(&mut state.callbacks))
        };
        let this = self.server.upgrade().and_then(|server| server.forget(self.id, why));
        if let Some(link) = link {
            link.close(text);
        }
        for call in calls.into_values() {
            (call.done)(Err(NetError::Shutdown));
        }
        if let Some(this) = this {
            self.service.closed(&SessionRef(this), why);
        }
    }

    /// Whether the session ended; nothing comes back to life.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().over
    }
}

impl State {
    fn forget_below(&mut self, lowest: u64) {
        if lowest <= self.lowest {
            return;
        }
        self.lowest = lowest;
        let State { kept, kept_bytes, .. } = self;
        kept.retain(|(xid, frame)| {
            let keep = *xid >= lowest;
            if !keep {
                *kept_bytes -= frame.body.len();
            }
            keep
        });
    }

    fn keep(&mut self, frame: &Frame, most: usize) {
        let len = frame.body.len();
        if !frame.bulk.is_empty() || len > KEPT_REPLY_BYTES {
            return;
        }
        while self.kept.len() >= most || self.kept_bytes + len > KEPT_REPLY_BYTES {
            let Some((_, old)) = self.kept.pop_front() else { break };
            self.kept_bytes -= old.body.len();
        }
        self.kept_bytes += len;
        self.kept.push_back((frame.header.xid.get(), frame.clone()));
    }
}

/// A reply larger than a frame can be would close the connection; the caller gets an error instead.
fn fit(frame: Frame) -> Frame {
    if frame.body.len() <= proto::MAX_BODY as usize && frame.bulk_len() <= proto::MAX_BULK as usize
    {
        return frame;
    }
    tracing::error!(
        opcode = frame.header.opcode.get(),
        body = frame.body.len(),
        bulk = frame.bulk_len(),
        "a service's reply is larger than a frame"
    );
    let mut header = frame.header;
    header.status = Errno::EOVERFLOW.status().into();
    Frame::bare(header)
}
