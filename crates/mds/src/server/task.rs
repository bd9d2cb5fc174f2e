//! A request on its way through the namespace.

use net::{Responder, SessionRef};
use proto::Fid;
use proto::mds::{Compound, Op, Res};

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
    /// Transaction number of the last change (0: none).
    pub transno: u64,
    /// Where the answer goes.
    pub reply: Responder,
}

impl Task {
    /// The operation to run, if any is left.
    pub fn op(&self) -> Option<&Op> {
        self.compound.ops.0.get(self.next)
    }

    /// The answer's body so far.
    pub fn body(&mut self) -> Vec<u8> {
        use proto::Wire;
        let results = proto::wire::List(std::mem::take(&mut self.results));
        proto::mds::CompoundReply { results }.to_bytes()
    }
}

/// What waits for something to be fetched.
pub enum Parked {
    /// A client's request.
    Client(Box<Task>),
    /// A file whose last user may be gone.
    Reap(Fid),
}
