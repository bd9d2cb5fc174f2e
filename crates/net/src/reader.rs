//! From a stream of bytes to frames.
//!
//! Role: takes bytes as they come, in any pieces, gives whole frames. Assumptions: the bytes may be
//! anything; lengths are checked before memory is taken (invariant 12). Never does: I/O, so that
//! tests and fuzzers can feed it.

use crate::NetError;
use crate::message::Frame;
use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};
use proto::frame::{HEADER_LEN, Header};

/// What is missing of a frame is read straight to its final place when it is this much.
pub const STRAIGHT_MIN: usize = 16 << 10;

struct Payload {
    header: Header,
    bytes: BytesMut,
    need: usize,
}

/// Cuts a stream of bytes into frames.
pub struct FrameReader {
    max_body: usize,
    max_bulk: usize,
    head: [u8; HEADER_LEN],
    have: usize,
    payload: Option<Payload>,
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        FrameReader::new(proto::MAX_BODY as usize, proto::MAX_BULK as usize)
    }
}

impl FrameReader {
    /// A reader that takes frames with at most this many bytes (and never more than the wire's own
    /// limits).
    pub fn new(max_body: usize, max_bulk: usize) -> FrameReader {
        FrameReader { max_body, max_bulk, head: [0; HEADER_LEN], have: 0, payload: None }
    }

    /// Takes all of `input`; `on` gets header, body and bulk of each frame that is now whole.
    ///
    /// # Errors
    /// The bytes are no frames, or `on` failed: the stream cannot be read on.
    pub fn feed(
        &mut self,
        mut input: &[u8],
        mut on: impl FnMut(Header, Bytes, Bytes) -> Result<(), NetError>,
    ) -> Result<(), NetError> {
        while !input.is_empty() {
            if self.payload.is_none() {
                input = self.take_header(input)?;
            }
            if let Some(payload) = &mut self.payload {
                let (now, rest) = input.split_at(input.len().min(payload.missing()));
                payload.bytes.extend_from_slice(now);
                input = rest;
            }
            self.finish(&mut on)?;
        }
        Ok(())
    }

    /// Where the rest of a large frame is to be read to, if one is under way; then call
    /// [`FrameReader::filled`].
    pub fn rest(&mut self) -> Option<Limit<&mut BytesMut>> {
        let payload = self.payload.as_mut()?;
        let missing = payload.missing();
        (missing >= STRAIGHT_MIN).then(|| (&mut payload.bytes).limit(missing))
    }

    /// Bytes were read into [`FrameReader::rest`].
    ///
    /// # Errors
    /// As [`FrameReader::feed`].
    pub fn filled(
        &mut self,
        mut on: impl FnMut(Header, Bytes, Bytes) -> Result<(), NetError>,
    ) -> Result<(), NetError> {
        self.finish(&mut on)
    }

    /// Bytes that make the header, or else the frame, whole; never reaches into the next frame.
    pub fn wants(&self) -> usize {
        self.payload.as_ref().map_or(HEADER_LEN - self.have, Payload::missing)
    }

    /// Whether the stream ended between two frames.
    pub fn is_between(&self) -> bool {
        self.have == 0 && self.payload.is_none()
    }

    fn take_header<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], NetError> {
        let (now, rest) = input.split_at(input.len().min(HEADER_LEN - self.have));
        self.head[self.have..self.have + now.len()].copy_from_slice(now);
        self.have += now.len();
        self.check_magic()?;
        if self.have < HEADER_LEN {
            return Ok(rest);
        }
        let header = *Header::parse(&self.head)?;
        let (body, bulk) = (header.body_len.get() as usize, header.bulk_len.get() as usize);
        if body > self.max_body || bulk > self.max_bulk {
            return Err(NetError::Protocol(format!(
                "{body} bytes of body and {bulk} of bulk, here at most {} and {}",
                self.max_body, self.max_bulk
            )));
        }
        self.have = 0;
        let need = body + bulk;
        self.payload = Some(Payload { header, bytes: BytesMut::with_capacity(need), need });
        Ok(rest)
    }

    /// A peer that speaks something else is told from its first bytes, not waited for.
    fn check_magic(&self) -> Result<(), NetError> {
        let seen = self.have.min(proto::frame::MAGIC.len());
        if self.head[..seen] == proto::frame::MAGIC[..seen] {
            return Ok(());
        }
        let text = format!("not a Pinstripe frame (starts with {:02x?})", &self.head[..seen]);
        Err(NetError::Protocol(text))
    }

    fn finish(
        &mut self,
        on: &mut impl FnMut(Header, Bytes, Bytes) -> Result<(), NetError>,
    ) -> Result<(), NetError> {
        let Some(payload) = self.payload.take_if(|p| p.missing() == 0) else { return Ok(()) };
        let mut bytes = payload.bytes.freeze();
        let body = bytes.split_to(payload.header.body_len.get() as usize);
        payload.header.verify(&body)?;
        on(payload.header, body, bytes)
    }
}

impl Payload {
    fn missing(&self) -> usize {
        self.need - self.bytes.len()
    }
}

/// The bytes of one frame, lengths and checksum set.
pub fn encode_frame(mut header: Header, body: &[u8], bulk: &[u8]) -> Vec<u8> {
    header.seal(body, bulk.len() as u32);
    [zerocopy::IntoBytes::as_bytes(&header), body, bulk].concat()
}

/// A frame without bulk, or with it in one piece.
pub(crate) fn frame(header: Header, body: Bytes, bulk: Bytes) -> Frame {
    Frame { header, body, bulk: if bulk.is_empty() { Vec::new() } else { vec![bulk] } }
}
