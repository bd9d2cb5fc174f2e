//! The target as a service: bodies are decoded, verbs called, answers encoded.
//!
//! Role: decides on which thread a request runs. In process it is the caller's, which may wait for
//! the disk; a thread of the transport (it runs inside a tokio runtime) never waits, so what memory
//! cannot answer goes to a bounded pool. COMMIT, DESTROY and reads that nobody waits for always go
//! there, so that a caller can have several targets at work at once. Never does: anything with bytes.

use std::sync::Arc;

use net::{Closed, Request, Responder, Response, Service, SessionRef};
use proto::mgs::Hello;
use proto::oss::R_BEHIND;
use proto::wire::Wire;
use proto::{Errno, ops::oss as op};

use crate::OstError;
use crate::ost::Ost;
use crate::pool::Pool;

/// Reads up to this many bytes are answered by a transport thread when memory holds them.
pub const HOT_READ_MAX: u32 = 256 << 10;

/// An [`Ost`] that can be added to a [`net::Server`].
pub struct OstService {
    ost: Arc<Ost>,
    pool: Pool,
}

impl OstService {
    /// Starts the pool's threads.
    pub fn new(ost: Arc<Ost>) -> Result<OstService, OstError> {
        let pool = Pool::start(ost.name(), ost.options.workers)
            .map_err(|error| OstError::Io { what: "starting a thread".into(), error })?;
        Ok(OstService { ost, pool })
    }

    /// The target.
    pub fn ost(&self) -> &Arc<Ost> {
        &self.ost
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
    fn open(&self, _: &SessionRef, _: &Hello, _: bool) -> Result<Vec<u8>, String> {
        if self.ost.is_closed() {
            return Err(format!("{} is shutting down", self.ost.name()));
        }
        Ok(Vec::new())
    }
    fn request(&self, _: &SessionRef, request: Request, reply: Responder) {
        let opcode = request.header.opcode.get();
        let transport = tokio::runtime::Handle::try_current().is_ok();
        let apart = matches!(opcode, op::COMMIT | op::DESTROY) || is_behind(&request);
        let quick = matches!(opcode, op::STATFS) || !known(opcode);
        if quick || !(transport || apart) {
            return reply.send(answer(&self.ost, &request));
        }
        if opcode == op::READ
            && let Some(done) = hot(&self.ost, &request)
        {
            return reply.send(done);
        }
        let ost = self.ost.clone();
        self.pool.run(move || reply.send(answer(&ost, &request)));
    }
    fn closed(&self, session: &SessionRef, why: Closed) {
        tracing::debug!(ost = self.ost.name(), ?session, ?why, "session is over");
    }
}

fn known(opcode: u16) -> bool {
    (op::READ..=op::ALLOCATE).contains(&opcode)
}

/// Whether a read was asked for by somebody who does not wait for it.
fn is_behind(request: &Request) -> bool {
    request.header.opcode.get() == op::READ
        && proto::oss::Read::from_bytes(&request.body).is_ok_and(|r| r.flags & R_BEHIND != 0)
}

fn hot(ost: &Ost, request: &Request) -> Option<Response> {
    let req = proto::oss::Read::from_bytes(&request.body).ok()?;
    if req.len > HOT_READ_MAX {
        return None;
    }
    let (body, bulk) = ost.read_hot(&req)?;
    Some(Response::with_bulk(body.to_bytes(), vec![bulk]))
}

fn answer(ost: &Ost, request: &Request) -> Response {
    respond(ost, request).unwrap_or_else(Response::error)
}

fn decode<T: Wire>(request: &Request) -> Result<T, Errno> {
    T::from_bytes(&request.body).map_err(|e| {
        tracing::warn!(opcode = request.header.opcode.get(), error = %e, "bad request");
        Errno::EPROTO
    })
}

fn respond(ost: &Ost, r: &Request) -> Result<Response, Errno> {
    let body = match r.header.opcode.get() {
        op::READ => {
            let (body, bulk) = ost.read(&decode(r)?)?;
            return Ok(Response::with_bulk(body.to_bytes(), vec![bulk]));
        }
        op::WRITE => ost.write(&decode(r)?, &r.bulk)?.to_bytes(),
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
