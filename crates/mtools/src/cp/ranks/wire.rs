//! Little-endian numbers and bounded strings in a frame, as `docs/mcp-mpi.md` maps them. Decoding believes
//! nothing: what is short, long or has something behind it is an error that says what.

/// Bytes of a frame, at most.
pub const FRAME_MOST: usize = 1 << 20;
/// Bytes of a name. Longer ones are not sent; no system call would take them.
pub const NAME_MOST: usize = 4096;
/// Bytes of any other text.
pub const TEXT_MOST: usize = 256 << 10;

#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn u8(&mut self, n: u8) {
        self.bytes.push(n);
    }

    pub fn u16(&mut self, n: u16) {
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    pub fn u32(&mut self, n: u32) {
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    pub fn u64(&mut self, n: u64) {
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    pub fn i64(&mut self, n: i64) {
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A string with its length before it, cut to `most` bytes.
    pub fn text(&mut self, bytes: &[u8], most: usize) {
        let bytes = &bytes[..bytes.len().min(most)];
        self.u32(bytes.len() as u32);
        self.raw(bytes);
    }

    pub fn end(self) -> Vec<u8> {
        self.bytes
    }
}

pub struct Reader<'a> {
    rest: &'a [u8],
}

/// What is wrong with a frame.
pub type Wrong = &'static str;

impl<'a> Reader<'a> {
    pub fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], Wrong> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        self.raw(N)?.try_into().map_err(|_| "it ends too early")
    }

    pub fn u8(&mut self) -> Result<u8, Wrong> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Result<u16, Wrong> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Wrong> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Wrong> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Wrong> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub fn flag(&mut self) -> Result<bool, Wrong> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag is neither 0 nor 1"),
        }
    }

    pub fn text(&mut self, most: usize) -> Result<&'a [u8], Wrong> {
        let n = self.u32()? as usize;
        if n > most {
            return Err("a string is longer than the limit");
        }
        self.raw(n)
    }

    pub fn end(self) -> Result<(), Wrong> {
        if self.rest.is_empty() { Ok(()) } else { Err("there is something behind its end") }
    }
}
