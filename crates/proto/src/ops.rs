//! Opcodes: the high byte names the service, so that a log line tells who was asked.

/// Session control, answered by `net` itself.
pub mod session {
    /// Opens a session; body: [`crate::mgs::Hello`].
    pub const CONNECT: u16 = 0x0001;
    /// Keeps a session alive; empty body.
    pub const PING: u16 = 0x0002;
    /// Ends a session; empty body.
    pub const DISCONNECT: u16 = 0x0003;
    /// Second half of the keyed challenge.
    pub const PROVE: u16 = 0x0004;
    /// On a connection that carries several sessions: the sender has this one no longer; body: why,
    /// as text. Not answered.
    pub const GONE: u16 = 0x0005;
}

/// Requests to the management service.
pub mod mgs {
    /// A server announces a target; body [`crate::mgs::Register`].
    pub const REGISTER: u16 = 0x0101;
    /// Reads the list of targets; empty body, reply [`crate::mgs::Config`].
    pub const CONFIG: u16 = 0x0102;
}

/// Requests to a metadata target.
pub mod mds {
    /// One or more operations in one message; body [`crate::mds::Compound`].
    pub const COMPOUND: u16 = 0x0201;
}

/// Requests to an object storage target.
pub mod oss {
    /// Reads bytes; body [`crate::oss::Read`], reply [`crate::oss::ReadReply`] + bulk.
    pub const READ: u16 = 0x0301;
    /// Writes bytes; body [`crate::oss::WriteReq`] + bulk, reply [`crate::oss::Written`].
    pub const WRITE: u16 = 0x0302;
    /// Makes earlier writes durable; body [`crate::oss::CommitReq`].
    pub const COMMIT: u16 = 0x0303;
    /// Frees or zeroes a range, or cuts the object; body [`crate::oss::Punch`].
    pub const PUNCH: u16 = 0x0304;
    /// Sizes and times of objects; body [`crate::oss::Glimpse`].
    pub const GLIMPSE: u16 = 0x0305;
    /// Removes objects; body [`crate::oss::Destroy`].
    pub const DESTROY: u16 = 0x0306;
    /// Space and inodes; empty body, reply [`crate::oss::Statfs`].
    pub const STATFS: u16 = 0x0307;
    /// Where data and holes are; body [`crate::oss::Seek`].
    pub const SEEK: u16 = 0x0308;
    /// Copies a range between two objects of this target; body [`crate::oss::CopyReq`].
    pub const COPY: u16 = 0x0309;
    /// Reserves space; body [`crate::oss::Allocate`].
    pub const ALLOCATE: u16 = 0x030a;
    /// Shuts an evicted client out, for good; body [`crate::oss::Fence`]. Answered when nothing of it
    /// is at work any more.
    pub const FENCE: u16 = 0x030b;
    /// Writes bytes to several places of one object; body [`crate::oss::WriteList`] + bulk, reply
    /// [`crate::oss::Written`].
    pub const WRITE_LIST: u16 = 0x030c;
}

/// Calls of a server to a client.
pub mod callback {
    /// Gives back leases; body [`crate::mds::Recall`]. Answered when given back.
    pub const RECALL: u16 = 0x0401;
    /// Gives back leases of inodes; body [`crate::mds::LeaseRecall`]. Answered when given back.
    pub const LEASES: u16 = 0x0402;
    /// Others have read files; body [`crate::mds::Accessed`]. Answered, with nothing, when it is known.
    pub const ACCESSED: u16 = 0x0403;
}
