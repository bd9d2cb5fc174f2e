//! The frame: a fixed 64-byte header, a small body, bulk bytes.
//!
//! Role: the header is read in place and checked before anything of its body is believed.
//! Assumptions: both lengths are bounded before a byte is allocated. Never does: I/O.
//! The byte map is in `docs/format.md`.

use zerocopy::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{MAX_BODY, MAX_BULK, WIRE_VERSION};

/// First bytes of every frame.
pub const MAGIC: [u8; 3] = *b"PST";
/// Bytes of the header.
pub const HEADER_LEN: usize = 64;

/// The frame is an answer.
pub const F_REPLY: u16 = 1;
/// The frame is a call of the server to the client (a call-back).
pub const F_CALLBACK: u16 = 2;
/// The request was sent before and may have had its effect (invariant 4).
pub const F_RESENT: u16 = 4;

/// The fixed header, in place.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// `PST`.
    pub magic: [u8; 3],
    /// Wire version of the sender.
    pub version: u8,
    /// What is asked; a reply repeats it. See [`crate::ops`].
    pub opcode: U16,
    /// `F_*`.
    pub flags: U16,
    /// Bytes of the body, at most [`MAX_BODY`].
    pub body_len: U32,
    /// Bytes of the bulk part, at most [`MAX_BULK`].
    pub bulk_len: U32,
    /// Request number, unique within a session; the reply repeats it.
    pub xid: U64,
    /// Session the frame belongs to (0 before one exists).
    pub session: U64,
    /// Transaction number of a modifying request (0: none yet).
    pub transno: U64,
    /// In replies: the last transaction number that is durable. In requests: the lowest xid the
    /// client still waits for, so that the reply table can be trimmed.
    pub last_committed: U64,
    /// Epoch (boot) of the target the session was made with.
    pub epoch: U32,
    /// 0, or an errno of [`crate::errno`] in a reply.
    pub status: I16,
    /// In replies: how many requests the client may have outstanding from now on.
    pub credits: U16,
    /// Job the request is charged to.
    pub job: U32,
    /// crc32c of header (this field zero) and body.
    pub crc: U32,
}

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are not ours: a peer that speaks something else.
    #[error("not a Pinstripe frame (starts with {0:02x?})")]
    Magic([u8; 3]),
    /// A newer or unknown wire version.
    #[error("wire version {0} is not spoken here (this side speaks {WIRE_VERSION})")]
    Version(u8),
    /// A length above its limit.
    #[error("{what} of {len} bytes is above the limit of {limit}")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// Announced bytes.
        len: u32,
        /// Its limit.
        limit: u32,
    },
    /// The checksum differs.
    #[error("frame checksum {found:#010x} differs from the computed {computed:#010x}")]
    Checksum {
        /// In the frame.
        found: u32,
        /// From the bytes.
        computed: u32,
    },
    /// Fewer bytes than a header.
    #[error("truncated frame: {0} bytes")]
    Short(usize),
}

impl Header {
    /// A request header; lengths and checksum are set by [`Header::seal`].
    pub fn request(opcode: u16, xid: u64) -> Header {
        Header {
            magic: MAGIC,
            version: WIRE_VERSION,
            opcode: opcode.into(),
            flags: 0.into(),
            body_len: 0.into(),
            bulk_len: 0.into(),
            xid: xid.into(),
            session: 0.into(),
            transno: 0.into(),
            last_committed: 0.into(),
            epoch: 0.into(),
            status: 0.into(),
            credits: 0.into(),
            job: 0.into(),
            crc: 0.into(),
        }
    }

    /// The header of the reply to `self`.
    pub fn reply(&self, status: i16) -> Header {
        let mut h = Header::request(self.opcode.get(), self.xid.get());
        h.flags = (F_REPLY | (self.flags.get() & F_CALLBACK)).into();
        h.session = self.session;
        h.epoch = self.epoch;
        h.status = status.into();
        h
    }

    /// Whether this is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags.get() & F_REPLY != 0
    }

    /// Whether this belongs to a call of the server to the client.
    pub fn is_callback(&self) -> bool {
        self.flags.get() & F_CALLBACK != 0
    }

    /// Sets lengths and checksum.
    pub fn seal(&mut self, body: &[u8], bulk_len: u32) {
        self.body_len = (body.len() as u32).into();
        self.bulk_len = bulk_len.into();
        self.crc = 0.into();
        self.crc = self.checksum(body).into();
    }

    /// Reads a header in place: magic, version and limits are checked, the checksum is not (it
    /// needs the body, see [`Header::verify`]).
    pub fn parse(bytes: &[u8]) -> Result<&Header, FrameError> {
        let (header, _) =
            Header::ref_from_prefix(bytes).map_err(|_| FrameError::Short(bytes.len()))?;
        if header.magic != MAGIC {
            return Err(FrameError::Magic(header.magic));
        }
        if header.version != WIRE_VERSION {
            return Err(FrameError::Version(header.version));
        }
        limit("body", header.body_len.get(), MAX_BODY)?;
        limit("bulk", header.bulk_len.get(), MAX_BULK)?;
        Ok(header)
    }

    /// Checks the checksum against the body (invariant 7).
    pub fn verify(&self, body: &[u8]) -> Result<(), FrameError> {
        let mut bare = *self;
        bare.crc = 0.into();
        let computed = bare.checksum(body);
        if computed != self.crc.get() {
            return Err(FrameError::Checksum { found: self.crc.get(), computed });
        }
        Ok(())
    }

    fn checksum(&self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(self.as_bytes()), body)
    }
}

fn limit(what: &'static str, len: u32, limit: u32) -> Result<(), FrameError> {
    if len > limit {
        return Err(FrameError::TooLong { what, len, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_header() {
        let mut h = Header::request(0x0201, 7);
        h.flags = F_RESENT.into();
        h.session = 0x1122.into();
        h.transno = 3.into();
        h.last_committed = 2.into();
        h.epoch = 9.into();
        h.status = (-5i16).into();
        h.credits = 64.into();
        h.job = 0xabcd.into();
        h.seal(b"body", 16);
        let expect: [u8; 60] = [
            b'P', b'S', b'T', 3, 0x01, 0x02, 4, 0, 4, 0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
            0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0,
            0, 0xfb, 0xff, 64, 0, 0xcd, 0xab, 0, 0,
        ];
        assert_eq!(&h.as_bytes()[..60], &expect);
        let mut whole = expect.to_vec();
        whole.extend([0, 0, 0, 0]);
        whole.extend(b"body");
        assert_eq!(h.crc.get(), crc32c::crc32c(&whole));
        assert_eq!(Header::parse(h.as_bytes()).unwrap().verify(b"body"), Ok(()));
        assert!(h.verify(b"bodz").is_err());
    }

    #[test]
    fn bad_headers_are_named() {
        let mut h = Header::request(1, 1);
        h.seal(b"", 0);
        assert_eq!(Header::parse(&h.as_bytes()[..63]), Err(FrameError::Short(63)));
        let mut b = h;
        b.magic = *b"GET";
        assert_eq!(Header::parse(b.as_bytes()), Err(FrameError::Magic(*b"GET")));
        let mut b = h;
        b.version = WIRE_VERSION + 1;
        assert_eq!(Header::parse(b.as_bytes()), Err(FrameError::Version(WIRE_VERSION + 1)));
        let mut b = h;
        b.body_len = (MAX_BODY + 1).into();
        assert!(matches!(
            Header::parse(b.as_bytes()),
            Err(FrameError::TooLong { what: "body", .. })
        ));
    }
}
