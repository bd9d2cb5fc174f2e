//! The target as a service of `net`: sessions come and go, compounds arrive.

use std::collections::VecDeque;
use std::time::Instant;

use net::{Closed, Request, Responder, Response, Service, SessionRef};
use proto::frame::F_RESENT;
use proto::mds::{Compound, Grant, MAX_OPS};
use proto::mgs::{EVICTED, FEATURE_OBSERVER, Hello, KIND_MDT, target_name};
use proto::wire::List;
use proto::{Errno, Fid, FidRange, Wire, ops};

use super::Mdt;
use super::exec::Work;
use super::state::Client;
use super::task::{Aside, Task};
use crate::keys;
use crate::record::{self, Replies};

impl Service for Mdt {
    fn target(&self) -> String {
        target_name(KIND_MDT, self.label.index)
    }

    fn fs(&self) -> [u8; 16] {
        self.label.fs
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn open(&self, session: &SessionRef, hello: &Hello, resumed: bool) -> Result<Vec<u8>, String> {
        let observer = hello.features & FEATURE_OBSERVER != 0;
        if !resumed && self.exec.with(|s| s.fencing.refuses(&hello.client)) {
            return Err(format!("{EVICTED}it did not answer {} in time", self.target()));
        }
        let kept = match resumed {
            true => None,
            false => Some(self.kept(&hello.client)?),
        };
        let grant = self.exec.with(|s| {
            let id = session.id();
            if let Some(kept) = kept {
                s.clients.insert(id, Client::new(session.clone(), observer, kept));
            }
            let none = FidRange { seq: 0, first: 0, count: 0 };
            let fids = if observer { None } else { s.ns.grant(id) };
            s.renew_sequences();
            let sole = !observer && s.sole_on_open(id);
            let handles = List(s.ns.opens.handles(id).into_iter().map(|h| h.0).collect());
            let (fids, dom_limit) = (fids.unwrap_or(none), s.ns.dom_limit);
            Grant { fids, sole, dom_limit, handles, recovered: self.store.info().last }
        });
        Ok(grant.to_bytes())
    }

    fn request(&self, session: &SessionRef, request: Request, reply: Responder) {
        let h = request.header;
        if h.opcode.get() != ops::mds::COMPOUND {
            return reply.send(Response::error(Errno::EOPNOTSUPP));
        }
        let compound = match Compound::from_bytes(&request.body) {
            Ok(c) if !c.at.0.is_empty() && c.at.0.len() != c.ops.0.len() => {
                return reply.send(Response::error(Errno::EBADMSG));
            }
            Ok(c) if c.ops.0.len() <= MAX_OPS => c,
            Ok(_) => return reply.send(Response::error(Errno::E2BIG)),
            Err(e) => {
                tracing::warn!(client = %session.description(), error = %e, "malformed request");
                return reply.send(Response::error(Errno::EBADMSG));
            }
        };
        let task = Task {
            session: session.clone(),
            xid: h.xid.get(),
            resent: h.flags.get() & F_RESENT != 0,
            results: Vec::with_capacity(compound.ops.0.len()),
            compound,
            next: 0,
            current: Fid::NONE,
            fetched: (0, 0),
            links: None,
            flushed: false,
            settles: false,
            bytes: 0,
            transno: 0,
            kept: 0,
            aside: Aside::default(),
            granted: Vec::new(),
            reply,
        };
        self.exec.submit(Work::Request(Box::new(task), h.last_committed.get()));
    }

    fn behind_until(&self) -> Option<Instant> {
        self.pace.behind_until(Instant::now())
    }

    fn closed(&self, session: &SessionRef, why: Closed) {
        self.exec.submit(Work::Closed(session.id(), why));
    }
}

impl Mdt {
    /// Answers an earlier boot gave this client (invariant 4).
    fn kept(&self, client: &[u8; 16]) -> Result<VecDeque<record::Kept>, String> {
        let key = keys::replies(client);
        // Asked for first: what leaves it for the store is there before it is not here.
        let newest = self.exec.with(|s| s.ns.cache.hot().get(&key).map(|v| v.cloned()));
        match newest.map_or_else(|| self.store.get(&key), Ok) {
            Ok(None) => Ok(VecDeque::new()),
            Ok(Some(v)) => record::decode::<Replies>(&v)
                .map(|r| r.list.0.into())
                .map_err(|e| format!("the reply table of this client is damaged: {e}")),
            Err(e) => Err(format!("the store cannot be read: {e}")),
        }
    }
}
