//! A request on its way through the namespace.

use crate::leases::MAX_GRANTS;
use crate::leases::calls::Turn;
use crate::record::Home;
use net::{Responder, SessionRef};
use proto::mds::{
    CF_CONTINUE, CF_FILE_WRITES, CF_LATE, CF_LEASES, CF_NAME_WRITES, CF_SHARED_LEASES, Compound,
    Lease, Op, OpenInfo, Res,
};
use proto::{Enc, Errno, Fid, Layout, MAX_BODY};

/// Bytes of a lease in an answer.
const LEASE_BYTES: usize = 17;
/// Fetches for one operation after which nothing is forgotten until it has run (invariant 8): most need fewer if they
/// find what was fetched before, and a path of many directories just keeps what it went over.
const FETCHES: u32 = 16;

/// A compound being run; it may step aside between operations.
pub struct Task {
    /// Whose.
    pub session: SessionRef,
    /// Its number within the session.
    pub xid: u64,
    /// The client may have had its effect before.
    pub resent: bool,
    /// What is asked.
    pub compound: Compound,
    /// Operations done.
    pub next: usize,
    /// Their results.
    pub results: Vec<Res>,
    /// File the last operation named.
    pub current: Fid,
    /// The operation that was fetched for last, and how often.
    pub fetched: (usize, u32),
    /// Further links of a file that were fetched for it.
    pub links: Option<(Fid, Vec<Home>)>,
    /// It waited until what was there at its beginning is in the store.
    pub flushed: bool,
    /// What it did last must be durable before it goes on; its result is there.
    pub settles: bool,
    /// Bytes of the answer, about.
    pub bytes: usize,
    /// Transaction number of the last change (0: none).
    pub transno: u64,
    /// Up to which change what it has done is kept for its client (0: not yet).
    pub kept: u64,
    /// What it waits for, or has waited for, of others' leases.
    pub aside: Aside,
    /// Leases its operations earned.
    pub granted: Vec<Lease>,
    /// Where the answer goes.
    pub reply: Responder,
}

/// How the operation a task stands at fares with leases of others.
#[derive(Default)]
pub struct Aside {
    /// Inodes that grant nothing until it ran, and up to which turn it waits for call-backs of them.
    pub waits: Vec<(Fid, Turn)>,
    /// Inodes of which leases were called back for it.
    pub asked: Vec<Fid>,
    /// Files whose writers were asked for their size and times for it.
    pub glimpsed: Vec<Fid>,
    /// Files of which those who watch them were told that they are written.
    pub told: Vec<Fid>,
}

impl Task {
    /// Something is fetched for the operation it stands at.
    pub fn fetches(&mut self) {
        match &mut self.fetched {
            (at, times) if *at == self.next => *times += 1,
            other => *other = (self.next, 1),
        }
    }

    /// Whether what was fetched for it was forgotten too often before it had everything.
    pub fn is_starved(&self) -> bool {
        self.fetched.1 > FETCHES
    }

    /// Whether its client wants leases.
    pub fn wants_leases(&self) -> bool {
        self.compound.flags & CF_LEASES != 0
    }

    /// Whether it wants only those that go together with others'.
    pub fn wants_shared(&self) -> bool {
        self.compound.flags & CF_SHARED_LEASES != 0
    }

    /// Whether it wants what excludes others of files it writes.
    pub fn wants_file_writes(&self) -> bool {
        self.compound.flags & CF_FILE_WRITES != 0
    }

    /// Whether it may tell late what it did to files that others have open, too.
    pub fn wants_late(&self) -> bool {
        self.compound.flags & CF_LATE != 0
    }

    /// Whether it wants what excludes others of what it makes and of directories it changes.
    pub fn wants_name_writes(&self) -> bool {
        self.compound.flags & CF_NAME_WRITES != 0
    }

    /// Notes a lease it earned. The answer must stay short enough for a message.
    pub fn earned(&mut self, fid: Fid, bits: u8) {
        self.bytes += LEASE_BYTES;
        self.granted.push(Lease { fid, bits });
    }

    /// Whether one more lease fits the answer.
    pub fn earns_more(&self) -> bool {
        self.granted.len() < MAX_GRANTS && self.bytes + LEASE_BYTES < MAX_BODY as usize - 1024
    }

    /// The operation to run, if any is left.
    pub fn op(&self) -> Option<&Op> {
        self.compound.ops.0.get(self.next)
    }

    /// The answer's body so far, with leases.
    pub fn body(&self, leases: &[Lease]) -> Vec<u8> {
        // As `CompoundReply` is encoded, without taking the results.
        let mut e = Enc::new();
        e.put(&(self.results.len() as u32));
        for r in &self.results {
            e.put(r);
        }
        e.put(&(leases.len() as u32));
        for l in leases {
            e.put(l);
        }
        e.0
    }

    /// Adds a result; whether the compound ends here: with a failure, unless each operation stands
    /// for itself. An answer too long for a message ends it in any case.
    pub fn add(&mut self, res: Res) -> bool {
        self.bytes += bytes(&res);
        let long = self.bytes > MAX_BODY as usize - 1024;
        let res = if long { Res::Failed { errno: Errno::E2BIG.0 as u16 } } else { res };
        let goes_on = self.compound.flags & CF_CONTINUE != 0;
        let ends = long || (matches!(res, Res::Failed { .. }) && !goes_on);
        self.results.push(res);
        ends
    }
}

/// Bytes a result takes in the answer, at most; exact where it matters.
fn bytes(res: &Res) -> usize {
    const FLAT: usize = 512;
    let opened = |o: &OpenInfo| o.inline.as_ref().map_or(0, |d| d.len()) + 32;
    let layout = |l: &Option<Layout>| l.as_ref().map_or(0, |l| l.osts.len() * 4);
    FLAT + match res {
        Res::Data { data } => data.len(),
        Res::Inline { data, layout: l, .. } => data.as_ref().map_or(0, |d| d.len()) + layout(l),
        Res::Opened { open, .. } => opened(open) + layout(&open.layout),
        Res::Entry { open: Some(open), .. } => opened(open) + layout(&open.layout),
        Res::Layout { layout, .. } => layout.osts.len() * 4,
        Res::LayoutInfo { layout: l, .. } => layout(l),
        Res::Paths { paths } => paths.0.iter().map(|p| p.len() + 4).sum(),
        Res::Entries { entries, .. } => {
            entries.0.iter().map(|e| e.name.len() + if e.attr.is_some() { 150 } else { 32 }).sum()
        }
        _ => 0,
    }
}

/// What waits for something to be fetched.
pub enum Parked {
    /// A client's request.
    Client(Box<Task>),
    /// A file whose last user may be gone.
    Reap(Fid),
}
