//! What callers and services see of a frame.

use bytes::{Bytes, BytesMut};
use proto::Errno;
use proto::frame::Header;

/// A frame on its way: whole, checked, not yet (or no longer) bytes.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) body: Bytes,
    pub(crate) bulk: Vec<Bytes>,
}

impl Frame {
    pub(crate) fn bare(header: Header) -> Frame {
        Frame { header, body: Bytes::new(), bulk: Vec::new() }
    }

    pub(crate) fn bulk_len(&self) -> usize {
        self.bulk.iter().map(Bytes::len).sum()
    }
}

/// One piece of what may have been sent as several; a single piece is passed on, not copied.
pub(crate) fn join(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        0 => Bytes::new(),
        1 => pieces.swap_remove(0),
        _ => {
            let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
            pieces.iter().for_each(|p| all.extend_from_slice(p));
            all.freeze()
        }
    }
}

/// An answer, as the caller gets it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The header: status, transno, last_committed.
    pub header: Header,
    /// The body.
    pub body: Bytes,
    /// Bulk bytes.
    pub bulk: Bytes,
}

impl Reply {
    /// What the service said: `Ok`, or its errno.
    pub fn status(&self) -> Result<(), Errno> {
        Errno::check(self.header.status.get())
    }
}

/// A request, as a service gets it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The header: opcode, xid, `F_RESENT`, job; `last_committed` is the lowest xid the client
    /// still waits for.
    pub header: Header,
    /// The body.
    pub body: Bytes,
    /// Bulk bytes.
    pub bulk: Bytes,
}

/// An answer, as a service gives it.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// 0 or an errno.
    pub status: i16,
    /// Transaction number given to a modifying request (0: none).
    pub transno: u64,
    /// Last durable transaction number.
    pub last_committed: u64,
    /// The body, at most [`proto::MAX_BODY`] bytes.
    pub body: Vec<u8>,
    /// Bulk bytes, together at most [`proto::MAX_BULK`].
    pub bulk: Vec<Bytes>,
}

impl Response {
    /// Success.
    pub fn ok(body: Vec<u8>) -> Response {
        Response { body, ..Response::default() }
    }

    /// Success with bulk bytes.
    pub fn with_bulk(body: Vec<u8>, bulk: Vec<Bytes>) -> Response {
        Response { body, bulk, ..Response::default() }
    }

    /// Failure.
    pub fn error(errno: Errno) -> Response {
        Response { status: errno.status(), ..Response::default() }
    }
}
