//! A connection that several sessions of this process share.
//!
//! Role: the first session dials as if it were alone and asks whether others may follow; each of these
//! greets on the same connection, its answer is found by xid. Every session is told of what happens to
//! its part (gone) and to the connection (lost) and comes back by itself. The connection ends with the
//! last session that uses it. Assumptions: everything here runs on one thread, that of the sessions
//! (other threads only send). Never does: let a frame of one session, or of an earlier part of it, reach
//! another.

use super::core::Core;
use super::dial::{self, Dialled, Pulse};
use super::heard::{self, Heard};
use super::places::{Found, Place, place};
use crate::link::Link;
use crate::message::Frame;
use crate::parts::Parts;
use crate::socket::drive::{Peer, drive};
use crate::socket::halves::Reader;
use crate::socket::outbox::Outbox;
use crate::{Endpoint, NetError};
use parking_lot::Mutex;
use proto::frame::Header;
use proto::mgs::{FEATURE_TRUNK, Hello, Welcome};
use proto::{Wire, ops};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Greetings under way at once on one connection; more wait for their turn.
const MAX_GREETINGS: usize = 256;

/// The xid of the ping that ends a connection; no moment of [`heard`].
const LAST: u64 = 0;

/// See the module.
pub(crate) struct Trunk {
    parts: Arc<Parts<Member>>,
    /// Greetings under way, by xid.
    greetings: Mutex<HashMap<u64, Greeting>>,
    turns: Semaphore,
    next_xid: AtomicU64,
    /// Sessions that are here or about to be; once there are none, the connection ends.
    users: AtomicUsize,
    /// Keeps the place known as long as this can be found there.
    _place: Arc<Place>,
}

/// The right to be on a connection; it ends with the last one.
struct Use(Arc<Trunk>);

impl Use {
    /// `None`: the connection ended.
    fn of(trunk: Arc<Trunk>) -> Option<Use> {
        let one_more = |users: usize| users.checked_add(1).filter(|_| users > 0);
        trunk.users.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        trunk.parts.outbox.ended().is_none().then_some(Use(trunk))
    }
}

impl Drop for Use {
    /// The last one asks for a sign of life: once it is answered, the server has read the goodbyes of
    /// all before. If the connection were closed on what is still to be read, it might not.
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Relaxed) == 1 {
            self.0.parts.outbox.send(Frame::bare(Header::request(ops::session::PING, LAST)));
        }
    }
}

/// A session on the connection.
struct Member {
    core: Weak<Core>,
    generation: u64,
    heard: Arc<Heard>,
    /// Since when it is here, as a moment of [`heard`].
    since: u64,
    _user: Use,
}

/// A session that asked to be let in.
struct Greeting {
    core: Arc<Core>,
    generation: u64,
    client: [u8; 16],
    began: u64,
    user: Use,
    done: oneshot::Sender<Result<(), NetError>>,
}

/// One attempt of a session to share a connection; dials if there is none. With a server that lets
/// nobody follow, the session has the connection it dialled for itself.
pub(crate) async fn attempt(
    core: &Arc<Core>,
    generation: u64,
    endpoint: &Endpoint,
    hello: &Hello,
) -> Result<(), NetError> {
    let place = place(core, endpoint);
    let came = Instant::now();
    let mut found = place.lock().await;
    if let Some(user) = found.trunk.upgrade().and_then(Use::of) {
        drop(found);
        return greet(user, core, generation, hello).await;
    }
    if let Some((at, why)) = &found.failed
        && *at >= came
    {
        return Err(why.clone());
    }
    match dial::dial(core, endpoint, hello).await {
        Ok(line) if line.welcome.features & FEATURE_TRUNK != 0 => {
            begin(line, core, generation, &place, &mut found)
        }
        Ok(line) => line.settle(core, generation),
        Err(e) => {
            // A refusal is the session's own.
            let all = matches!(e, NetError::Lost(_));
            found.failed = all.then(|| (Instant::now(), e.clone()));
            Err(e)
        }
    }
}

/// The connection stands, its first session was let in.
fn begin(
    line: Dialled,
    core: &Arc<Core>,
    generation: u64,
    place: &Arc<Place>,
    found: &mut Found,
) -> Result<(), NetError> {
    let Dialled { read, outbox, welcome, began } = line;
    let trunk = Arc::new(Trunk {
        parts: Parts::new(outbox),
        greetings: Mutex::default(),
        turns: Semaphore::new(MAX_GREETINGS),
        next_xid: AtomicU64::new(1),
        users: AtomicUsize::new(1),
        _place: place.clone(),
    });
    found.trunk = Arc::downgrade(&trunk);
    trunk.join(Use(trunk.clone()), core, generation, began, welcome)?;
    core.runtime.spawn(serve(read, Served { trunk, pulse: Pulse::of(core) }));
    Ok(())
}

/// Asks for a session on a connection that stands.
async fn greet(
    user: Use,
    core: &Arc<Core>,
    generation: u64,
    hello: &Hello,
) -> Result<(), NetError> {
    let gone = || NetError::Lost("the connection broke while the session was set up".into());
    let trunk = user.0.clone();
    let _turn = trunk.turns.acquire().await.map_err(|_| gone())?;
    let xid = trunk.next_xid.fetch_add(1, Relaxed);
    let (done, answer) = oneshot::channel();
    let (core, client, began) = (core.clone(), hello.client, heard::now());
    let greeting = Greeting { core, generation, client, began, user, done };
    trunk.greetings.lock().insert(xid, greeting);
    let _waiting = Waiting { trunk: &trunk, xid };
    let header = Header::request(ops::session::CONNECT, xid);
    let frame = Frame { header, body: hello.to_bytes().into(), bulk: Vec::new() };
    if !trunk.parts.outbox.send(frame) {
        return Err(gone());
    }
    answer.await.unwrap_or_else(|_| Err(gone()))
}

/// Forgets a greeting nobody waits for any more.
struct Waiting<'a> {
    trunk: &'a Trunk,
    xid: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let greeting = self.trunk.greetings.lock().remove(&self.xid);
        drop(greeting);
    }
}

impl Trunk {
    /// A session was let in: from here on what comes for it is its own.
    fn join(
        &self,
        user: Use,
        core: &Arc<Core>,
        generation: u64,
        began: u64,
        welcome: Welcome,
    ) -> Result<(), NetError> {
        core.heard.answered(began);
        let part = self.parts.part(welcome.session);
        let (heard, since) = (core.heard.clone(), heard::now());
        let member = Member { core: Arc::downgrade(core), generation, heard, since, _user: user };
        if !self.parts.add(&part, member) {
            return Err(NetError::Protocol("the server gave one session to two".into()));
        }
        core.welcomed(welcome);
        core.adopt(generation, part)
    }

    /// The answer to a greeting.
    fn answered(&self, frame: &Frame) {
        let welcome = || Welcome::from_bytes(&frame.body);
        let greeting = self.greetings.lock().remove(&frame.header.xid.get());
        let Some(greeting) = greeting else {
            // It came too late; the server must not believe that the session is here.
            if frame.header.status.get() == 0
                && let Ok(welcome) = welcome()
            {
                self.parts.tell_gone(welcome.session, "the client did not wait for it");
            }
            return;
        };
        let Greeting { core, generation, client, began, user, done } = greeting;
        let joined = dial::accepted(frame, client)
            .and_then(|()| welcome().map_err(dial::malformed))
            .and_then(|welcome| self.join(user, &core, generation, began, welcome));
        // Nobody waits: then the session was closed, and its part with it.
        let _ = done.send(joined);
    }

    /// The server has a session no longer.
    fn gone(&self, session: u64, why: &[u8]) {
        let Some(member) = self.parts.remove(session) else { return };
        if let Some(core) = member.core.upgrade() {
            let why = String::from_utf8_lossy(why).into_owned();
            core.lost(member.generation, NetError::Lost(why));
        }
    }

    /// What was sent at `moment` was answered, to all that were here by then and still are: a server
    /// says that a session is gone before it draws consequences from that, and in order.
    fn heard(&self, moment: u64) {
        for heard in self.parts.all(|m| (m.since <= moment).then(|| m.heard.clone())) {
            heard.inspect(|h| h.answered(moment));
        }
    }
}

/// The task of the connection.
struct Served {
    trunk: Arc<Trunk>,
    pulse: Pulse,
}

async fn serve(mut read: Reader, mut served: Served) {
    let outbox: Arc<Outbox> = served.trunk.parts.outbox.clone();
    let why = NetError::Lost("the connection ended".into());
    let mut ended = Ended { trunk: served.trunk.clone(), why };
    let first = served.pulse.interval;
    ended.why = drive(Some(&mut read), &outbox, usize::MAX, first, &mut served).await;
}

/// Tells all sessions that the connection ended, even if its task panics in a caller's code.
struct Ended {
    trunk: Arc<Trunk>,
    why: NetError,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.trunk.parts.outbox.end(self.why.clone());
        let greetings = std::mem::take(&mut *self.trunk.greetings.lock());
        drop(greetings);
        for member in self.trunk.parts.end() {
            if let Some(core) = member.core.upgrade() {
                core.lost(member.generation, self.why.clone());
            }
        }
    }
}

impl Peer for Served {
    fn frame(&mut self, frame: Frame) -> Result<(), NetError> {
        let header = &frame.header;
        let (session, opcode) = (header.session.get(), header.opcode.get());
        let control = header.is_reply() && !header.is_callback();
        match opcode {
            ops::session::CONNECT if control => self.trunk.answered(&frame),
            ops::session::PING if control && session == 0 => match header.xid.get() {
                LAST => return Err(NetError::Shutdown),
                moment => self.trunk.heard(moment),
            },
            ops::session::GONE => self.trunk.gone(session, &frame.body),
            _ => {
                let of = |m: &Member| (m.core.upgrade(), m.generation);
                // None: the session left while this was on its way.
                if let Some((Some(core), generation)) = self.trunk.parts.find(session, of) {
                    return core.receive(generation, frame);
                }
            }
        }
        Ok(())
    }

    fn quiet(&mut self, silence: Duration) -> Result<Duration, NetError> {
        self.pulse.beat(silence, &self.trunk.parts.outbox, 0)
    }
}
