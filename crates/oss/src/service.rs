//! The target as a service: bodies are decoded, verbs called, answers encoded.
//!
//! Role: decides on which thread a request runs. In process it is the caller's, which may wait for
//! the disk; a thread of the transport (it runs inside a tokio runtime) does not wait, so what memory
//! cannot answer goes to a bounded pool. A small WRITE to the page cache whose sender waits for nothing
//! else it does itself, unless such writes took long lately ([`crate::pace`]): to wake two threads costs more than
//! the write. COMMIT, DESTROY, large WRITEs and reads that nobody waits for
//! always go there, so that a caller can have several targets at work at once. Never does: anything
//! with bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{Closed, Request, Responder, Response, Service, SessionRef};
use parking_lot::Mutex;
use proto::mgs::{EVICTED, Hello, incarnation};
use proto::oss::{Fence, R_BEHIND, W_DIRECT, W_SYNC, WriteList, WriteReq};
use proto::wire::Wire;
use proto::{Errno, ops::oss as op};

use crate::OstError;
use crate::ost::Ost;
use crate::pace::Pace;
use crate::pool::Pool;
use crate::sums::crowded;

/// Reads up to this many bytes are answered by a transport thread when memory holds them.
pub const HOT_READ_MAX: u32 = 256 << 10;

/// How long requests of a fenced client may take to end before the MDT has to ask again.
pub const QUIET_WAIT: Duration = Duration::from_secs(10);

/// Writes from this size on do not hold up their sender, bytes.
pub const LONG_WRITE: usize = 256 << 10;

/// Writes up to this size may be done by the thread that received them, bytes.
pub const QUICK_WRITE_MAX: usize = 128 << 10;

/// An [`Ost`] that can be added to a [`net::Server`].
pub struct OstService {
    ost: Arc<Ost>,
    pool: Pool,
    /// To be ended when their client is fenced.
    sessions: Arc<Mutex<HashMap<u64, SessionRef>>>,
    /// Of writes on transport threads, by the time since `begun`.
    pace: Pace,
    begun: Instant,
}

impl OstService {
    /// Starts the pool's threads.
    pub fn new(ost: Arc<Ost>) -> Result<OstService, OstError> {
        let pool = Pool::start(ost.name(), ost.options.workers)
            .map_err(|error| OstError::Io { what: "starting a thread".into(), error })?;
        let (sessions, pace, begun) = (Arc::default(), Pace::default(), Instant::now());
        Ok(OstService { ost, pool, sessions, pace, begun })
    }

    /// The target.
    pub fn ost(&self) -> &Arc<Ost> {
        &self.ost
    }

    /// Does a small write here, if that is quick.
    fn quick_write(&self, request: &Request) -> Option<Response> {
        // A client says with each request which is the first it waits for. Where it waits for several, threads share
        // them.
        let header = &request.header;
        let alone = header.last_committed.get() == header.xid.get();
        // Where checksums take much memory a write may have to wait for a commit.
        if request.bulk.len() > QUICK_WRITE_MAX || !alone || crowded(4) {
            return None;
        }
        let start = self.begun.elapsed();
        if !self.pace.is_quick(start) {
            return None;
        }
        let write = WriteReq::from_bytes(&request.body).ok()?;
        if write.flags & (W_SYNC | W_DIRECT) != 0 {
            return None;
        }
        let done = self.ost.write(&write, &request.bulk);
        let now = self.begun.elapsed();
        self.pace.took(now, now.saturating_sub(start));
        self.ost.count_at_once();
        Some(done.map_or_else(Response::error, |written| Response::ok(written.to_bytes())))
    }
}

impl Service for OstService {
    fn target(&self) -> String {
        self.ost.name().to_string()
    }
    fn fs(&self) -> [u8; 16] {
        self.ost.identity().fs
    }
    fn epoch(&self) -> u32 {
        self.ost.epoch()
    }
    fn open(&self, session: &SessionRef, hello: &Hello, _: bool) -> Result<Vec<u8>, String> {
        if self.ost.is_closed() {
            return Err(format!("{} is shutting down", self.ost.name()));
        }
        // Under the lock: a fence finds this session, or this finds the fence.
        let mut sessions = self.sessions.lock();
        if self.ost.is_fenced(&hello.client) {
            return Err(format!("{EVICTED}{} was told by the MDT", self.ost.name()));
        }
        sessions.insert(session.id(), session.clone());
        Ok(Vec::new())
    }
    fn request(&self, session: &SessionRef, request: Request, reply: Responder) {
        let opcode = request.header.opcode.get();
        let transport = tokio::runtime::Handle::try_current().is_ok();
        if opcode == op::FENCE {
            let (ost, sessions) = (self.ost.clone(), self.sessions.clone());
            return self.pool.run(move || {
                let done = fence(&ost, &sessions, &request);
                reply.send(done.map_or_else(Response::error, |()| Response::ok(Vec::new())));
            });
        }
        let apart = matches!(opcode, op::COMMIT | op::DESTROY)
            || is_behind(&request)
            || (!transport && is_stable(&request))
            || (writes(opcode) && request.bulk.len() >= LONG_WRITE);
        let local = writes(opcode) && session.is_local();
        let quick = matches!(opcode, op::STATFS) || !known(opcode);
        if quick || !(transport || apart) {
            return reply.send(answer(&self.ost, &request, local));
        }
        if opcode == op::READ
            && let Some(done) = hot(&self.ost, &request)
        {
            return reply.send(done);
        }
        if opcode == op::WRITE
            && let Some(done) = self.quick_write(&request)
        {
            return reply.send(done);
        }
        let ost = self.ost.clone();
        self.pool.run(move || reply.send(answer(&ost, &request, local)));
    }
    fn closed(&self, session: &SessionRef, why: Closed) {
        self.sessions.lock().remove(&session.id());
        tracing::debug!(ost = self.ost.name(), ?session, ?why, "session is over");
    }
}

/// Shuts a client out: durably, then its sessions end, then what they still had at work is awaited
/// (invariant 5).
fn fence(
    ost: &Ost,
    sessions: &Mutex<HashMap<u64, SessionRef>>,
    request: &Request,
) -> Result<(), Errno> {
    let client = decode::<Fence>(request)?.client;
    ost.fence(&client)?;
    let (who, times) = incarnation(&client);
    let out = |s: &SessionRef| {
        let (w, t) = incarnation(&s.client());
        w == who && t <= times
    };
    let gone: Vec<SessionRef> = sessions.lock().values().filter(|s| out(s)).cloned().collect();
    gone.iter().for_each(SessionRef::evict);
    let until = Instant::now() + QUIET_WAIT;
    while !gone.iter().all(SessionRef::is_quiet) {
        if Instant::now() > until {
            return Err(Errno::EBUSY);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

fn known(opcode: u16) -> bool {
    (op::READ..=op::ALLOCATE).contains(&opcode) || opcode == op::WRITE_LIST
}

fn writes(opcode: u16) -> bool {
    matches!(opcode, op::WRITE | op::WRITE_LIST)
}

/// Whether a read was asked for by somebody who does not wait for it.
fn is_behind(request: &Request) -> bool {
    request.header.opcode.get() == op::READ
        && proto::oss::Read::from_bytes(&request.body).is_ok_and(|r| r.flags & R_BEHIND != 0)
}

/// Whether a write waits for the disk.
fn is_stable(request: &Request) -> bool {
    match request.header.opcode.get() {
        op::WRITE => WriteReq::from_bytes(&request.body).is_ok_and(|w| w.flags & W_SYNC != 0),
        op::WRITE_LIST => WriteList::from_bytes(&request.body).is_ok_and(|w| w.flags & W_SYNC != 0),
        _ => false,
    }
}

fn hot(ost: &Ost, request: &Request) -> Option<Response> {
    let req = proto::oss::Read::from_bytes(&request.body).ok()?;
    if req.len > HOT_READ_MAX {
        return None;
    }
    let (body, bulk) = ost.read_hot(&req)?;
    Some(Response::with_bulk(body.to_bytes(), vec![bulk]))
}

/// `local`: the bytes never left memory.
fn answer(ost: &Ost, request: &Request, local: bool) -> Response {
    respond(ost, request, local).unwrap_or_else(Response::error)
}

fn decode<T: Wire>(request: &Request) -> Result<T, Errno> {
    T::from_bytes(&request.body).map_err(|e| {
        tracing::warn!(opcode = request.header.opcode.get(), error = %e, "bad request");
        Errno::EPROTO
    })
}

fn respond(ost: &Ost, r: &Request, local: bool) -> Result<Response, Errno> {
    let body = match r.header.opcode.get() {
        op::READ => {
            let (body, bulk) = ost.read(&decode(r)?)?;
            return Ok(Response::with_bulk(body.to_bytes(), vec![bulk]));
        }
        op::WRITE if local => ost.write_local(&decode(r)?, &r.bulk)?.to_bytes(),
        op::WRITE => ost.write(&decode(r)?, &r.bulk)?.to_bytes(),
        op::WRITE_LIST if local => ost.write_list_local(&decode(r)?, &r.bulk)?.to_bytes(),
        op::WRITE_LIST => ost.write_list(&decode(r)?, &r.bulk)?.to_bytes(),
        op::COMMIT => ost.commit(&decode(r)?)?.to_bytes(),
        op::PUNCH => ost.punch(&decode(r)?)?.to_bytes(),
        op::GLIMPSE => ost.glimpse(&decode(r)?)?.to_bytes(),
        op::DESTROY => {
            ost.destroy(&decode(r)?)?;
            Vec::new()
        }
        op::STATFS => ost.statfs()?.to_bytes(),
        op::SEEK => ost.seek(&decode(r)?)?.to_bytes(),
        op::COPY => ost.copy(&decode(r)?)?.to_bytes(),
        op::ALLOCATE => ost.allocate(&decode(r)?)?.to_bytes(),
        opcode => {
            tracing::warn!(opcode, "an OST knows no such request");
            return Err(Errno::EOPNOTSUPP);
        }
    };
    Ok(Response::ok(body))
}
