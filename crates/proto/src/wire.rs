//! The codec of bodies: little-endian numbers, counted bytes, nothing else.
//!
//! Role: one trait and two macros from which every message gets its encoder and its decoder.
//! Assumptions: a decoder sees hostile bytes; every length is checked against what is left before
//! memory is taken. Never does: panic (invariant 12).

use bytes::Bytes;

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Bytes end too early.
    #[error("truncated: {what} needs {need} more bytes, {left} are left")]
    Short {
        /// What was being read.
        what: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes there are.
        left: usize,
    },
    /// A value nobody defined.
    #[error("{what} has the unknown value {value}")]
    Unknown {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// Bytes after the end.
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    /// A count or length above its limit.
    #[error("{what} of {len} is above the limit of {limit}")]
    TooLong {
        /// Which field.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        limit: usize,
    },
}

/// Collects an encoded body.
#[derive(Default, Debug)]
pub struct Enc(pub Vec<u8>);

impl Enc {
    /// An empty body.
    pub fn new() -> Enc {
        Enc(Vec::with_capacity(128))
    }
    /// Appends raw bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    /// Appends one value.
    pub fn put<T: Wire>(&mut self, v: &T) -> &mut Enc {
        v.enc(self);
        self
    }
}

/// Reads an encoded body.
#[derive(Clone, Debug)]
pub struct Dec<'a> {
    bytes: &'a [u8],
}

impl<'a> Dec<'a> {
    /// Reads from `bytes`.
    pub fn new(bytes: &'a [u8]) -> Dec<'a> {
        Dec { bytes }
    }
    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        if n > self.bytes.len() {
            return Err(DecodeError::Short { what, need: n, left: self.bytes.len() });
        }
        let (head, tail) = self.bytes.split_at(n);
        self.bytes = tail;
        Ok(head)
    }
    /// One value.
    pub fn get<T: Wire>(&mut self) -> Result<T, DecodeError> {
        T::dec(self)
    }
    /// Refuses trailing bytes.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.bytes.len())) }
    }
}

/// A value with a fixed encoding.
pub trait Wire: Sized {
    /// Appends the encoding.
    fn enc(&self, e: &mut Enc);
    /// Reads one value.
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError>;

    /// The encoding as a vector.
    fn to_bytes(&self) -> Vec<u8> {
        let mut e = Enc::new();
        self.enc(&mut e);
        e.0
    }
    /// Reads a value that fills `bytes` exactly.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Dec::new(bytes);
        let v = Self::dec(&mut d)?;
        d.end()?;
        Ok(v)
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn enc(&self, e: &mut Enc) {
                e.0.extend_from_slice(&self.to_le_bytes());
            }
            fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
                let b = d.take(size_of::<$t>(), stringify!($t))?;
                let mut a = [0u8; size_of::<$t>()];
                a.copy_from_slice(b);
                Ok(<$t>::from_le_bytes(a))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, u128, i16, i32, i64);

impl Wire for bool {
    fn enc(&self, e: &mut Enc) {
        e.0.push(u8::from(*self));
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(DecodeError::Unknown { what: "flag", value: v.into() }),
        }
    }
}

/// Counted bytes (u32 length).
impl Wire for Vec<u8> {
    fn enc(&self, e: &mut Enc) {
        (self.len() as u32).enc(e);
        e.raw(self);
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        let n = d.get::<u32>()? as usize;
        Ok(d.take(n, "bytes")?.to_vec())
    }
}

/// Counted bytes (u32 length).
impl Wire for Bytes {
    fn enc(&self, e: &mut Enc) {
        (self.len() as u32).enc(e);
        e.raw(self);
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        let n = d.get::<u32>()? as usize;
        Ok(Bytes::copy_from_slice(d.take(n, "bytes")?))
    }
}

/// Counted UTF-8 (u32 length).
impl Wire for String {
    fn enc(&self, e: &mut Enc) {
        (self.len() as u32).enc(e);
        e.raw(self.as_bytes());
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        let n = d.get::<u32>()? as usize;
        Ok(String::from_utf8_lossy(d.take(n, "text")?).into_owned())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn enc(&self, e: &mut Enc) {
        match self {
            None => e.0.push(0),
            Some(v) => {
                e.0.push(1);
                v.enc(e);
            }
        }
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            0 => Ok(None),
            1 => Ok(Some(d.get()?)),
            v => Err(DecodeError::Unknown { what: "option", value: v.into() }),
        }
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn enc(&self, e: &mut Enc) {
        e.raw(self);
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        let mut a = [0u8; N];
        a.copy_from_slice(d.take(N, "array")?);
        Ok(a)
    }
}

/// A counted list of anything but bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct List<T>(pub Vec<T>);

impl<T: Wire> Wire for List<T> {
    fn enc(&self, e: &mut Enc) {
        (self.0.len() as u32).enc(e);
        for v in &self.0 {
            v.enc(e);
        }
    }
    fn dec(d: &mut Dec<'_>) -> Result<Self, DecodeError> {
        let n = d.get::<u32>()? as usize;
        // Every element takes at least one byte, so a hostile count cannot take memory.
        if n > d.left() {
            return Err(DecodeError::Short { what: "list", need: n, left: d.left() });
        }
        let mut v = Vec::with_capacity(n.min(4096));
        for _ in 0..n {
            v.push(d.get()?);
        }
        Ok(List(v))
    }
}

/// Declares structs whose encoding is their fields in order.
#[macro_export]
macro_rules! wire_struct {
    ($($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $f:ident : $t:ty),* $(,)? })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fm])* pub $f: $t),* }
        impl $crate::wire::Wire for $name {
            #[allow(unused_variables)]
            fn enc(&self, e: &mut $crate::wire::Enc) { $($crate::wire::Wire::enc(&self.$f, e);)* }
            #[allow(unused_variables)]
            fn dec(d: &mut $crate::wire::Dec<'_>) -> Result<Self, $crate::wire::DecodeError> {
                Ok($name { $($f: d.get()?),* })
            }
        }
    )*};
}

/// Declares an enum of messages: a u8 tag, then the fields of the variant.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$m:meta])* $name:ident { $($(#[$vm:meta])* $tag:literal => $v:ident { $($(#[$fm:meta])* $f:ident : $t:ty),* $(,)? }),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vm])* $v { $($(#[$fm])* $f: $t),* }),* }
        impl $crate::wire::Wire for $name {
            fn enc(&self, e: &mut $crate::wire::Enc) {
                match self {
                    $($name::$v { $($f),* } => { e.0.push($tag); $($crate::wire::Wire::enc($f, e);)* })*
                }
            }
            fn dec(d: &mut $crate::wire::Dec<'_>) -> Result<Self, $crate::wire::DecodeError> {
                match d.get::<u8>()? {
                    $($tag => Ok($name::$v { $($f: d.get()?),* }),)*
                    t => Err($crate::wire::DecodeError::Unknown { what: stringify!($name), value: t.into() }),
                }
            }
        }
        impl $name {
            /// The variant's name, for logs and counters.
            pub fn verb(&self) -> &'static str {
                match self { $($name::$v { .. } => stringify!($v)),* }
            }
        }
    };
}
