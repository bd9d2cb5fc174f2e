//! The session to one object storage target.
//!
//! Role: typed calls, checksums (invariant 7), and the limit of bulk RPCs in flight. Never does:
//! know files.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{NetError, Reply, Session};
use parking_lot::{Condvar, Mutex};
use proto::layout::ObjectId;
use proto::oss::{
    Allocate, CommitReq, Committed, Found, Glimpse, Glimpsed, ObjectAttr, Piece, Punch, Read,
    ReadReply, Seek, Statfs, W_NO_SUMS, WriteList, WriteReq, Written, check_sums,
};
use proto::wire::List;
use proto::{CHECKSUM_BLOCK, Errno, Wire, ops};

use crate::counters::{Counters, Kind};
use crate::mdt::lost;
use crate::pauses::Pauses;
use crate::types::Offer;

/// How often a bulk transfer is tried when its checksum does not fit.
pub(crate) const CHECKSUM_TRIES: u32 = 3;

/// How soon who waits for a place sees that the target is lost.
const LOOK: Duration = Duration::from_millis(100);

/// For how long none of the bulk RPCs in flight ends, while there may be no more of them, of a target that hangs: its
/// process answers pings, its disk takes nothing.
const HANGS: Duration = Duration::from_secs(3);

/// As long, where who waits is told of an error then: no slow disk takes that long for a single write.
const HANGS_FOR_GOOD: Duration = Duration::from_secs(20);

/// How long nothing is sent that nobody waits for, once a write was not answered in time: what that brought may be worked on
/// still, and goes again.
const HOLD_OFF: Duration = Duration::from_secs(10);

/// Places among the bulk RPCs in flight.
struct Places {
    free: u32,
    /// When one was taken or given back.
    moved: Instant,
    /// When a write was not answered in time, if none was answered since.
    unanswered: Option<Instant>,
}

impl Places {
    fn take(&mut self) -> bool {
        let taken = self.free > 0;
        if taken {
            self.free -= 1;
            self.moved = Instant::now();
        }
        taken
    }

    fn hang(&self, time: Duration) -> bool {
        let holds_off = self.unanswered.is_some_and(|since| since.elapsed() < HOLD_OFF);
        holds_off || (self.free == 0 && self.moved.elapsed() >= time)
    }
}

/// Counts bulk RPCs in flight.
struct Permits {
    places: Mutex<Places>,
    freed: Condvar,
}

/// One RPC's place among those in flight; given back when dropped.
pub(crate) struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        let mut places = self.0.places.lock();
        places.free += 1;
        places.moved = Instant::now();
        self.0.freed.notify_one();
    }
}

/// A session to one OST.
pub(crate) struct Ost {
    pub(crate) index: u32,
    pub(crate) session: Arc<Session>,
    counters: Arc<Counters>,
    permits: Arc<Permits>,
    checksums: bool,
    pauses: Pauses,
}

/// Checksums of pieces of an object, cut at its blocks, one piece's after the other's. Their bytes lie
/// one after the other in `parts`.
fn sums_of(pieces: &[Piece], parts: &[Bytes]) -> Vec<u32> {
    let block = CHECKSUM_BLOCK as u64;
    let mut parts = parts.iter();
    let (mut sums, mut rest) = (Vec::new(), &[][..]);
    for piece in pieces {
        let (mut at, end) = (piece.offset, piece.offset + u64::from(piece.len));
        let mut crc = 0;
        while at < end {
            if rest.is_empty() {
                let Some(part) = parts.next() else { return sums };
                rest = part;
            }
            let stop = end.min(at / block * block + block);
            let (now, later) = rest.split_at(((stop - at) as usize).min(rest.len()));
            crc = crc32c::crc32c_append(crc, now);
            at += now.len() as u64;
            rest = later;
            if at == stop {
                sums.push(std::mem::take(&mut crc));
            }
        }
    }
    sums
}

fn answer<T: Wire>(reply: Result<Reply, NetError>) -> Result<T, Errno> {
    let reply = reply.map_err(|e| lost(&e))?;
    reply.status()?;
    decode(&reply)
}

fn decode<T: Wire>(reply: &Reply) -> Result<T, Errno> {
    T::from_bytes(&reply.body).map_err(|why| {
        tracing::warn!(%why, "unreadable answer of an OST");
        Errno::EPROTO
    })
}

impl Ost {
    pub(crate) fn new(
        index: u32,
        session: Arc<Session>,
        counters: Arc<Counters>,
        options: &crate::Options,
    ) -> Ost {
        let (free, moved) = (options.max_rpcs_in_flight.max(1), Instant::now());
        let places = Places { free, moved, unanswered: None };
        let permits = Arc::new(Permits { places: Mutex::new(places), freed: Condvar::new() });
        let (checksums, pauses) = (options.checksums, options.pauses.clone());
        Ost { index, session, counters, permits, checksums, pauses }
    }

    /// Whether nothing is to be expected of it for now: it is not connected, or hangs.
    pub(crate) fn is_lost(&self) -> bool {
        !self.session.is_answering() || self.permits.places.lock().hang(HANGS)
    }

    /// It is connected again.
    pub(crate) fn came_back(&self) {
        self.permits.places.lock().unanswered = None;
    }

    /// Whether it owes an answer for so long.
    pub(crate) fn owes(&self, time: Duration) -> bool {
        self.session.oldest_wait().is_some_and(|waited| waited >= time)
    }

    /// A place among the bulk RPCs in flight, if one is free.
    pub(crate) fn try_permit(&self) -> Option<Permit> {
        let taken = self.permits.places.lock().take();
        taken.then(|| Permit(self.permits.clone()))
    }

    /// As [`Ost::permit`]; None once the target is lost and this time has come (none: at once).
    pub(crate) fn permit_by(&self, until: Option<Instant>) -> Option<Permit> {
        let hangs = if until.is_some() { HANGS_FOR_GOOD } else { HANGS };
        let mut places = self.permits.places.lock();
        loop {
            let due = until.is_none_or(|until| Instant::now() >= until);
            if due && (places.hang(hangs) || !self.session.is_answering()) {
                return None;
            }
            if places.take() {
                return Some(Permit(self.permits.clone()));
            }
            self.permits.freed.wait_for(&mut places, LOOK);
        }
    }

    /// Waits for a place among the bulk RPCs in flight.
    pub(crate) fn permit(&self) -> Permit {
        let mut places = self.permits.places.lock();
        while !places.take() {
            self.permits.freed.wait(&mut places);
        }
        Permit(self.permits.clone())
    }

    fn call<T: Wire>(&self, kind: Kind, opcode: u16, body: Vec<u8>) -> Result<T, Errno> {
        self.counters.ost(kind);
        answer(self.session.call(opcode, body, Vec::new()))
    }

    /// Writes pieces of an object, whose bytes lie one after the other in `parts`, without waiting;
    /// `done` runs on some thread and must not block. ETIMEDOUT: not answered in time, it may be there or not.
    pub(crate) fn write(
        &self,
        permit: Permit,
        object: ObjectId,
        pieces: Vec<Piece>,
        parts: Vec<Bytes>,
        flags: u8,
        done: impl FnOnce(Result<Written, Errno>) + Send + 'static,
    ) {
        let len: usize = parts.iter().map(Bytes::len).sum();
        let (flags, sums) = match self.checksums {
            true => (flags, sums_of(&pieces, &parts)),
            false => (flags | W_NO_SUMS, Vec::new()),
        };
        let sums = List(sums);
        let (opcode, body) = match pieces[..] {
            [Piece { offset, .. }] => {
                (ops::oss::WRITE, WriteReq { object, offset, flags, sums }.to_bytes())
            }
            _ => {
                let pieces = List(pieces);
                (ops::oss::WRITE_LIST, WriteList { object, flags, pieces, sums }.to_bytes())
            }
        };
        self.pauses.point();
        self.counters.ost(Kind::Write);
        self.counters.bytes_written.fetch_add(len as u64, Relaxed);
        let done = Box::new(move |reply: Result<Reply, NetError>| {
            let late = matches!(reply, Err(NetError::Timeout { .. }));
            permit.0.places.lock().unanswered = late.then(Instant::now);
            drop(permit);
            done(if late { Err(Errno::ETIMEDOUT) } else { answer(reply) });
        });
        self.session.submit(opcode, body, parts, done);
    }

    fn read_body(&self, object: ObjectId, offset: u64, len: u32, flags: u8) -> Vec<u8> {
        self.pauses.point();
        self.counters.ost(Kind::Read);
        let flags = if self.checksums { flags } else { flags | W_NO_SUMS };
        Read { object, offset, len, flags }.to_bytes()
    }

    fn verify(&self, offset: u64, data: &[u8], reply: &Reply) -> Result<(), Errno> {
        self.counters.bytes_read.fetch_add(data.len() as u64, Relaxed);
        let sums = decode::<ReadReply>(reply)?.sums;
        // What came from this process was compared on its way from the disk, in the same memory.
        if !self.checksums || self.is_local() {
            return Ok(());
        }
        check_sums(offset, data, &sums.0).map_err(|piece| {
            tracing::error!(ost = self.index, offset, piece, "checksum of a read does not fit");
            Errno::EBADMSG
        })
    }

    /// Whether the target is in this process: a read then runs on the thread that waits for it.
    pub(crate) fn is_local(&self) -> bool {
        self.session.is_local()
    }

    /// Reads, and waits; fewer bytes at the end of the object. In this process they may come to lie in the place that is
    /// offered.
    pub(crate) fn read_now(
        &self,
        object: ObjectId,
        (offset, len): (u64, u32),
        flags: u8,
        offer: Offer<'_>,
    ) -> Result<Bytes, Errno> {
        let mut tries = 0;
        loop {
            // In this process the waiting threads are the limit.
            let permit = (!self.is_local()).then(|| self.permit());
            let body = self.read_body(object.clone(), offset, len, flags);
            let place = if self.is_local() { offer() } else { None };
            let call = || self.session.call(ops::oss::READ, body, Vec::new());
            let reply = net::place::offering(place, call);
            drop(permit);
            tries += 1;
            match self.came(reply, offset, len) {
                Err(Errno::EBADMSG) if tries < CHECKSUM_TRIES => continue,
                Err(Errno::EBADMSG) => return Err(Errno::EIO),
                other => return other,
            }
        }
    }

    /// The bytes of an answer to a read.
    fn came(&self, reply: Result<Reply, NetError>, offset: u64, len: u32) -> Result<Bytes, Errno> {
        let reply = reply.map_err(|e| lost(&e))?;
        reply.status()?;
        if reply.bulk.len() > len as usize {
            return Err(Errno::EPROTO);
        }
        self.verify(offset, &reply.bulk, &reply)?;
        Ok(reply.bulk)
    }

    /// Reads without waiting; `done` runs on some thread and must not block.
    pub(crate) fn read(
        self: &Arc<Ost>,
        permit: Permit,
        object: ObjectId,
        offset: u64,
        len: u32,
        flags: u8,
        done: impl FnOnce(Result<Bytes, Errno>) + Send + 'static,
    ) {
        let body = self.read_body(object, offset, len, flags);
        let me = self.clone();
        let done = Box::new(move |reply: Result<Reply, NetError>| {
            drop(permit);
            done(me.came(reply, offset, len));
        });
        self.session.submit(ops::oss::READ, body, Vec::new(), done);
    }

    /// Commits without waiting; no object named: the whole target.
    pub(crate) fn commit(
        &self,
        objects: Vec<ObjectId>,
        done: impl FnOnce(Result<u64, Errno>) + Send + 'static,
    ) {
        self.pauses.point();
        self.counters.ost(Kind::Commit);
        let body = CommitReq { objects: List(objects) }.to_bytes();
        let done = Box::new(move |r| done(answer::<Committed>(r).map(|c| c.verifier)));
        self.session.submit(ops::oss::COMMIT, body, Vec::new(), done);
    }

    pub(crate) fn punch(
        &self,
        object: ObjectId,
        offset: u64,
        end: u64,
        how: u8,
        done: impl FnOnce(Result<Written, Errno>) + Send + 'static,
    ) {
        self.counters.ost(Kind::Punch);
        let body = Punch { object, offset, end, how }.to_bytes();
        self.session.submit(ops::oss::PUNCH, body, Vec::new(), Box::new(move |r| done(answer(r))));
    }

    pub(crate) fn allocate(
        &self,
        object: ObjectId,
        offset: u64,
        end: u64,
        keep_size: bool,
        done: impl FnOnce(Result<Written, Errno>) + Send + 'static,
    ) {
        self.counters.ost(Kind::Allocate);
        let body = Allocate { object, offset, end, keep_size }.to_bytes();
        self.session.submit(
            ops::oss::ALLOCATE,
            body,
            Vec::new(),
            Box::new(move |r| done(answer(r))),
        );
    }

    /// Sizes in the order of `objects`, without waiting.
    pub(crate) fn glimpse(
        &self,
        objects: Vec<ObjectId>,
        done: impl FnOnce(Result<Vec<ObjectAttr>, Errno>) + Send + 'static,
    ) {
        let n = objects.len();
        self.pauses.point();
        self.counters.ost(Kind::Glimpse);
        let body = Glimpse { objects: List(objects) }.to_bytes();
        let done = Box::new(move |r| {
            let List(attrs) = match answer::<Glimpsed>(r) {
                Ok(glimpsed) => glimpsed.objects,
                Err(e) => return done(Err(e)),
            };
            done(if attrs.len() == n { Ok(attrs) } else { Err(Errno::EPROTO) });
        });
        self.session.submit(ops::oss::GLIMPSE, body, Vec::new(), done);
    }

    /// Without waiting.
    pub(crate) fn statfs(&self, done: impl FnOnce(Result<Statfs, Errno>) + Send + 'static) {
        self.counters.ost(Kind::Statfs);
        let done = Box::new(move |r| done(answer(r)));
        self.session.submit(ops::oss::STATFS, Vec::new(), Vec::new(), done);
    }

    /// None beyond the end of the object.
    pub(crate) fn seek(
        &self,
        object: ObjectId,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>, Errno> {
        let body = Seek { object, offset, hole }.to_bytes();
        match self.call::<Found>(Kind::Seek, ops::oss::SEEK, body) {
            Ok(found) => Ok(Some(found.offset)),
            Err(Errno::ENXIO) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_pieces_are_those_of_each_wherever_its_bytes_lie(
            pieces in proptest::collection::vec((0u64..20_000, 1usize..9000), 1..6),
            cuts in proptest::collection::vec(0usize..50_000, 0..8),
        ) {
            let (mut at, mut whole, mut places, mut expected) = (0, Vec::new(), Vec::new(), Vec::new());
            for (gap, len) in pieces {
                at += gap;
                let bytes: Vec<u8> = (0..len).map(|i| (i as u64 * 7 + at) as u8).collect();
                expected.extend(proto::oss::sums(at, &bytes));
                places.push(Piece { offset: at, len: len as u32 });
                whole.extend(bytes);
                at += len as u64;
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % (whole.len() + 1)).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let part = |w: &[usize]| Bytes::copy_from_slice(&whole[w[0]..w[1]]);
            let parts: Vec<Bytes> = cuts.windows(2).map(part).collect();
            prop_assert_eq!(sums_of(&places, &parts), expected);
        }
    }
}
