//! A client that keeps account of its leases as a real one must: a grant is taken only if nothing
//! was called back or released since the request was sent; call-backs are answered when what has to
//! be sent first was sent.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use net::{CallReply, Events, Session};
use parking_lot::Mutex;
use proto::mds::*;
use proto::wire::List;
use proto::{Attr, Errno, Fid, Wire, ops};

use super::common::{Client, Solo};

/// What a holder does when it is called back.
#[derive(Clone)]
pub enum Way {
    /// Answers at once.
    Prompt,
    /// Keeps the call until told.
    Late,
    /// Sends these first (once).
    Before(Vec<Op>),
    /// Keeps what is asked of these files, and the call with it, until told, and gives the rest back.
    PutsOff(Vec<Fid>),
}

struct Book {
    held: BTreeMap<Fid, u8>,
    sole: bool,
    /// Counts what was called back or released.
    moves: u64,
    calls: usize,
    lost: Vec<Lease>,
    glimpses: Vec<Fid>,
    /// What it watches and others wrote; and whether it gives up what is written.
    written: Vec<Fid>,
    unwatches: bool,
    /// Of files others have read: what it was told.
    accessed: Vec<Attr>,
    told: Vec<CallReply>,
    way: Way,
    late: Vec<(LeaseRecall, CallReply)>,
    session: Option<Arc<Session>>,
}

#[derive(Clone)]
struct Ear(Arc<Mutex<Book>>);

/// See the module. Clones are the same client.
#[derive(Clone)]
pub struct Holder {
    pub client: Arc<Client>,
    ear: Ear,
    asks: bool,
}

pub fn cred() -> Cred {
    Cred { uid: 10, gid: 20, groups: List(vec![]) }
}

pub fn call(c: &Client, compound: &Compound) -> CompoundReply {
    try_call(&c.session, compound).unwrap()
}

fn try_call(session: &Session, compound: &Compound) -> Result<CompoundReply, Errno> {
    let r = session.call(ops::mds::COMPOUND, compound.to_bytes(), vec![]).map_err(|e| e.errno())?;
    r.status()?;
    Ok(CompoundReply::from_bytes(&r.body).unwrap())
}

impl Ear {
    fn put_off(&self, call: LeaseRecall, reply: CallReply, fids: &[Fid], session: Arc<Session>) {
        let part = |of_left: bool| LeaseRecall {
            back: List(
                call.back.0.iter().filter(|l| fids.contains(&l.fid) == of_left).cloned().collect(),
            ),
            glimpse: List(vec![]),
            written: List(vec![]),
            call: call.call,
        };
        let (left, given) = (part(true), part(false));
        if left.back.0.is_empty() {
            return self.give_back(&call, reply);
        }
        self.take(&given);
        let fids = left.back.0.iter().map(|l| l.fid).collect();
        let op = Op::PutOff { call: call.call, left: List(fids), unwatched: List(vec![]) };
        self.0.lock().late.push((left, reply));
        // This runs on a thread of the server, which must not wait.
        std::thread::spawn(move || {
            let done = try_call(&session, &Compound::new(cred(), vec![op])).unwrap();
            assert_eq!(done.results.0, [Res::Done {}]);
        });
    }

    fn give_back(&self, call: &LeaseRecall, reply: CallReply) {
        self.take(call);
        let unwatches = self.0.lock().unwatches && !call.written.0.is_empty();
        let unwatched = || Unwatched { fids: call.written.clone() }.to_bytes();
        reply.send(0, if unwatches { unwatched() } else { vec![] });
    }

    fn take(&self, call: &LeaseRecall) {
        let mut book = self.0.lock();
        book.moves += 1;
        for l in &call.back.0 {
            let has = book.held.get(&l.fid).copied().unwrap_or(0);
            if has & l.bits != 0 {
                book.lost.push(Lease { fid: l.fid, bits: has & l.bits });
            }
            match has & !l.bits {
                0 => drop(book.held.remove(&l.fid)),
                left => drop(book.held.insert(l.fid, left)),
            }
        }
        book.glimpses.extend(&call.glimpse.0);
        book.written.extend(&call.written.0);
    }
}

impl Events for Ear {
    fn call(&self, opcode: u16, body: Bytes, reply: CallReply) {
        if opcode == ops::callback::RECALL {
            self.0.lock().sole = Recall::from_bytes(&body).unwrap().what == R_SOLE_BEGIN;
            return reply.send(0, vec![]);
        }
        if opcode == ops::callback::ACCESSED {
            let files = Accessed::from_bytes(&body).unwrap().files;
            let mut book = self.0.lock();
            book.accessed.extend(files.0);
            return match book.way {
                Way::Late => book.told.push(reply),
                _ => reply.send(0, vec![]),
            };
        }
        assert_eq!(opcode, ops::callback::LEASES);
        let call = LeaseRecall::from_bytes(&body).unwrap();
        let (way, session) = {
            let mut book = self.0.lock();
            book.calls += 1;
            // From here on no answer to an earlier request counts.
            book.moves += 1;
            let next = match &book.way {
                Way::Late => Way::Late,
                Way::PutsOff(fids) => Way::PutsOff(fids.clone()),
                Way::Prompt | Way::Before(_) => Way::Prompt,
            };
            (std::mem::replace(&mut book.way, next), book.session.clone())
        };
        match way {
            Way::Prompt => self.give_back(&call, reply),
            Way::Late => self.0.lock().late.push((call, reply)),
            Way::PutsOff(fids) => self.put_off(call, reply, &fids, session.unwrap()),
            Way::Before(list) => {
                let (ear, mut compound) = (self.clone(), Compound::new(cred(), list));
                compound.flags = CF_LEASES | CF_CONTINUE;
                // It runs on a thread of the server, which must not wait.
                std::thread::spawn(move || {
                    let reply_of = try_call(&session.unwrap(), &compound).unwrap();
                    let failed = |r: &Res| matches!(r, Res::Failed { .. });
                    assert!(!reply_of.results.0.iter().any(failed), "{reply_of:?}");
                    ear.give_back(&call, reply);
                });
            }
        }
    }
}

impl Holder {
    pub fn new(s: &Solo) -> Holder {
        let book = Book {
            held: BTreeMap::new(),
            sole: false,
            moves: 0,
            calls: 0,
            lost: vec![],
            glimpses: vec![],
            written: vec![],
            unwatches: false,
            accessed: Vec::new(),
            told: Vec::new(),
            way: Way::Prompt,
            late: vec![],
            session: None,
        };
        let ear = Ear(Arc::new(Mutex::new(book)));
        let client = Arc::new(s.listener(Arc::new(ear.clone())));
        {
            let mut book = ear.0.lock();
            book.session = Some(client.session.clone());
            book.sole |= client.grant.sole;
        }
        Holder { client, ear, asks: true }
    }

    /// The same client, without a wish for leases.
    pub fn plain(&self) -> Holder {
        Holder { asks: false, ..self.clone() }
    }

    pub fn try_run(&self, ops: Vec<Op>) -> Result<Vec<Res>, Errno> {
        loop {
            let mut compound = Compound::new(cred(), ops.clone());
            compound.flags = if self.asks { CF_LEASES | CF_CONTINUE } else { CF_CONTINUE };
            let before = self.ear.0.lock().moves;
            let reply = try_call(&self.client.session, &compound)?;
            let mut book = self.ear.0.lock();
            if book.moves == before {
                for l in &reply.leases.0 {
                    *book.held.entry(l.fid).or_default() |= l.bits;
                }
            }
            drop(book);
            let again = Res::Failed { errno: Errno::ERESTART.0 as u16 };
            if reply.results.0.last() != Some(&again) || ops.len() > 1 {
                return Ok(reply.results.0);
            }
            std::thread::yield_now();
        }
    }

    pub fn run(&self, ops: Vec<Op>) -> Vec<Res> {
        self.try_run(ops).unwrap()
    }

    pub fn make(&self, dir: Fid, name: &str, mode: u32) -> Result<Fid, Errno> {
        let Op::Create { fid, target, .. } = self.client.create(dir, name) else { panic!() };
        let op = Op::Create {
            dir,
            name: name.into(),
            fid,
            mode,
            umask: 0,
            rdev: 0,
            target,
            flags: C_EXCL,
            open: 0,
        };
        match &self.run(vec![op])[0] {
            Res::Failed { errno } => Err(Errno(i32::from(*errno))),
            _ => Ok(fid),
        }
    }

    pub fn release(&self, leases: Vec<Lease>) {
        let mut book = self.ear.0.lock();
        book.moves += 1;
        for l in &leases {
            let left = book.held.get(&l.fid).copied().unwrap_or(0) & !l.bits;
            match left {
                0 => drop(book.held.remove(&l.fid)),
                left => drop(book.held.insert(l.fid, left)),
            }
        }
        drop(book);
        self.client.run(vec![Op::Release { leases: List(leases) }]);
    }

    pub fn has(&self, fid: Fid) -> u8 {
        self.ear.0.lock().held.get(&fid).copied().unwrap_or(0)
    }

    pub fn held(&self) -> Vec<Lease> {
        self.ear.0.lock().held.iter().map(|(f, b)| Lease { fid: *f, bits: *b }).collect()
    }

    pub fn lost(&self) -> Vec<Lease> {
        self.ear.0.lock().lost.clone()
    }

    pub fn calls(&self) -> usize {
        self.ear.0.lock().calls
    }

    pub fn glimpses(&self) -> Vec<Fid> {
        self.ear.0.lock().glimpses.clone()
    }

    /// What it was told of files that others have read.
    pub fn accessed(&self) -> Vec<Attr> {
        self.ear.0.lock().accessed.clone()
    }

    /// Answers, with this status, what it was told of files that others have read.
    pub fn answer_told(&self, status: i16) {
        let told = std::mem::take(&mut self.ear.0.lock().told);
        told.into_iter().for_each(|reply| reply.send(status, vec![]));
    }

    /// How often it heard that something it watches was written.
    pub fn written(&self) -> usize {
        self.ear.0.lock().written.len()
    }

    /// From now on it gives up what is written.
    pub fn unwatches(&self) {
        self.ear.0.lock().unwatches = true;
    }

    pub fn sole(&self) -> bool {
        self.ear.0.lock().sole
    }

    pub fn set_way(&self, way: Way) {
        self.ear.0.lock().way = way;
    }

    pub fn answer_all(&self) {
        let late = std::mem::take(&mut self.ear.0.lock().late);
        late.into_iter().for_each(|(call, reply)| self.ear.give_back(&call, reply));
    }
}

/// What clients believe to have, the target knows; and nobody has what excludes another.
pub fn check(holders: &[&Holder], s: &Solo) {
    let table = s.mdt.leases();
    for h in holders {
        let session = h.client.session.welcome().session;
        for l in h.held() {
            let known = table.iter().find(|(f, s, _)| (*f, *s) == (l.fid, session));
            let known = known.map_or(0, |k| k.2);
            // Of what was removed nobody keeps account.
            if l.bits & !known != 0 && h.client.attr(l.fid) == Err(Errno::ESTALE) {
                continue;
            }
            assert_eq!(l.bits & !known, 0, "{:?} of {}: the target knows of {known:x}", l, l.fid);
        }
    }
    for (fid, session, bits) in &table {
        let excludes = bits & (LS_WRITE | LS_DIRX) != 0;
        let others = table.iter().any(|(f, s, _)| f == fid && s != session);
        assert!(!(excludes && others), "{fid}: {table:?}");
    }
}
