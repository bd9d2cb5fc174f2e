//! The session to a metadata target, and the FIDs it granted.
//!
//! Role: what is sent past the log ([`crate::wb`]). Never does: interpret attributes, retry what the MDT refused.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use crossbeam_channel::Sender;
use net::{NetError, Reply, Session};
use parking_lot::Mutex;
use proto::mds::{Compound, CompoundReply, Cred, Lease, Op, Res};
use proto::wire::List;
use proto::{Errno, Fid, FidRange, Wire, ops};

use crate::counters::Counters;
use crate::leases::Got;
use crate::listener::Told;
use crate::pauses::Pauses;
use crate::promises::Promises;
use crate::wb::Wb;

/// Below this many FIDs in hand the next range is asked for.
const FIDS_LOW: u64 = 1024;

/// The client's own credentials, for what nobody in particular asked for.
pub(crate) fn own_cred() -> Cred {
    Cred { uid: 0, gid: 0, groups: List(Vec::new()) }
}

/// What an application sees when a server cannot be asked.
pub(crate) fn lost(why: &NetError) -> Errno {
    tracing::debug!(%why, "request failed");
    match why {
        NetError::Shutdown => Errno::ESHUTDOWN,
        _ => Errno::EIO,
    }
}

/// The result of the last operation; its failure as an error.
pub(crate) fn last(mut results: Vec<Res>) -> Result<Res, Errno> {
    results.pop().ok_or(Errno::EPROTO).and_then(done)
}

/// A result, or the error it tells.
fn done(res: Res) -> Result<Res, Errno> {
    match res {
        Res::Failed { errno } => Err(Errno(errno.into())),
        res => Ok(res),
    }
}

/// A session to one MDT.
pub(crate) struct Mdt {
    pub(crate) session: Arc<Session>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) wb: Wb,
    /// Wakes who sends the log.
    flusher: Sender<()>,
    pub(crate) promises: Arc<Promises>,
    pub(crate) pauses: Pauses,
    listener: Told,
    fids: Mutex<Fids>,
    pub(crate) this: Weak<Mdt>,
}

#[derive(Default)]
struct Fids {
    ranges: VecDeque<FidRange>,
    asked: bool,
}

impl Fids {
    fn left(&self) -> u64 {
        self.ranges.iter().map(|r| u64::from(r.count)).sum()
    }
    fn take(&mut self) -> Option<Fid> {
        loop {
            if let Some(fid) = self.ranges.front_mut()?.take() {
                return Some(fid);
            }
            self.ranges.pop_front();
        }
    }
}

/// Files that an operation changes by their FID.
pub(crate) fn changed(ops: &[Op]) -> Vec<Fid> {
    let fid = |op: &Op| match op {
        Op::Create { fid, .. }
        | Op::Whiteout { fid, .. }
        | Op::SetAttr { fid, .. }
        | Op::WriteInline { fid, .. }
        | Op::Report { fid, .. }
        | Op::Close { fid, report: Some(_), .. }
        | Op::BeginWrite { fid, .. }
        | Op::DropInline { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. } => Some(*fid),
        _ => None,
    };
    ops.iter().filter_map(fid).collect()
}

/// `changed`: what [`changed`] says of the `sent` operations.
pub(crate) fn results(
    sent: usize,
    changed: &[Fid],
    reply: Result<Reply, NetError>,
    promises: &Promises,
) -> Result<Vec<Res>, Errno> {
    answer(sent, changed, reply, promises).map(|(results, _)| results)
}

/// Results, and the leases that came with them.
pub(crate) fn answer(
    sent: usize,
    changed: &[Fid],
    reply: Result<Reply, NetError>,
    promises: &Promises,
) -> Result<(Vec<Res>, Vec<Lease>), Errno> {
    let reply = reply.map_err(|e| lost(&e))?;
    let h = &reply.header;
    promises.answered(h.epoch.get(), h.transno.get(), h.last_committed.get(), changed);
    reply.status()?;
    let decoded = CompoundReply::from_bytes(&reply.body).map_err(|why| {
        tracing::warn!(%why, "unreadable answer of the MDT");
        Errno::EPROTO
    })?;
    let (List(results), List(leases)) = (decoded.results, decoded.leases);
    let failed = matches!(results.last(), Some(Res::Failed { .. }));
    if results.len() > sent || (results.len() < sent && !failed) {
        return Err(Errno::EPROTO);
    }
    Ok((results, leases))
}

impl Mdt {
    pub(crate) fn new(
        session: Arc<Session>,
        counters: Arc<Counters>,
        grant: FidRange,
        promises: Arc<Promises>,
        wb: Wb,
        flusher: Sender<()>,
        pauses: Pauses,
        listener: Told,
    ) -> Arc<Mdt> {
        let fids = Fids { ranges: VecDeque::from([grant]), asked: false };
        let fids = Mutex::new(fids);
        Arc::new_cyclic(|this| {
            let this = this.clone();
            Mdt { session, counters, wb, flusher, promises, pauses, listener, fids, this }
        })
    }

    /// Changes of these are about to be sent, of which others may have something.
    pub(crate) fn announce_changes(&self, fids: &[Fid]) {
        if fids.is_empty() {
            return;
        }
        let listener = self.listener.read().clone();
        if let Some(listener) = listener {
            listener.changing(fids);
        }
    }

    pub(crate) fn body(&self, cred: &Cred, ops: Vec<Op>) -> Vec<u8> {
        self.counters.compound(&ops);
        Compound::new(cred.clone(), ops).to_bytes()
    }

    /// The log shall be sent soon.
    pub(crate) fn wake_flusher(&self) {
        // Full: it is awake already.
        let _ = self.flusher.try_send(());
    }

    /// Runs one operation.
    pub(crate) fn one(&self, cred: &Cred, op: Op) -> Result<Res, Errno> {
        match self.here(cred, op) {
            Ok((res, _)) => done(res),
            Err(op) => last(self.there(cred, vec![op])?.0),
        }
    }

    /// As [`Mdt::one`]; also the leases that came with it.
    pub(crate) fn one_got(&self, cred: &Cred, op: Op) -> Result<(Res, Arc<Got>), Errno> {
        match self.here(cred, op) {
            Ok((res, got)) => Ok((done(res)?, got.unwrap_or_default())),
            Err(op) => {
                let (results, got) = self.there(cred, vec![op])?;
                Ok((last(results)?, got))
            }
        }
    }

    /// Runs one operation that may wait at the MDT; None when the request's time ran out.
    pub(crate) fn wait_one(&self, cred: &Cred, op: Op) -> Result<Option<Res>, Errno> {
        self.flush()?;
        let body = self.body(cred, vec![op]);
        match self.session.call(ops::mds::COMPOUND, body, Vec::<Bytes>::new()) {
            Err(NetError::Timeout { .. }) => Ok(None),
            reply => last(results(1, &[], reply, &self.promises)?).map(Some),
        }
    }

    /// Sends past the log, without waiting; `done` runs on some thread and must not block.
    pub(crate) fn submit(
        &self,
        cred: &Cred,
        ops: Vec<Op>,
        done: impl FnOnce(Result<Vec<Res>, Errno>) + Send + 'static,
    ) {
        self.pauses.point();
        let (sent, changed) = (ops.len(), changed(&ops));
        let body = self.body(cred, ops);
        let promises = Arc::clone(&self.promises);
        let done = Box::new(move |reply| done(results(sent, &changed, reply, &promises)));
        self.session.submit(ops::mds::COMPOUND, body, Vec::new(), done);
    }

    /// A new session of a restarted MDT granted another range.
    pub(crate) fn granted(&self, range: FidRange) {
        let mut fids = self.fids.lock();
        fids.ranges.clear();
        fids.ranges.push_back(range);
    }

    /// A fresh FID; asks for more before they run out.
    pub(crate) fn fid(self: &Arc<Mdt>) -> Result<Fid, Errno> {
        let (fid, ask) = {
            let mut fids = self.fids.lock();
            let fid = fids.take();
            let ask = fids.left() < FIDS_LOW && !fids.asked;
            fids.asked |= ask && fid.is_some();
            (fid, ask)
        };
        match fid {
            Some(fid) => {
                if ask {
                    let me = self.clone();
                    self.submit(&own_cred(), vec![Op::AllocFids {}], move |r| {
                        let mut fids = me.fids.lock();
                        fids.asked = false;
                        if let Ok(Res::Fids { range }) = r.and_then(last) {
                            fids.ranges.push_back(range);
                        }
                    });
                }
                Ok(fid)
            }
            None => match self.one(&own_cred(), Op::AllocFids {})? {
                Res::Fids { mut range } => {
                    let fid = range.take().ok_or(Errno::EPROTO)?;
                    self.fids.lock().ranges.push_back(range);
                    Ok(fid)
                }
                _ => Err(Errno::EPROTO),
            },
        }
    }
}
