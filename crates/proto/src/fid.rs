//! File identifiers: Lustre's 128-bit FID (sequence, object id, version).
//!
//! Clients are granted ranges of a sequence and name the files they create themselves, so that a
//! compound request can refer to what it is about to create.

use std::fmt;
use std::str::FromStr;

use crate::wire::{Dec, DecodeError, Enc, Wire};

/// A file identifier; it names one inode for ever and is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Fid {
    /// Sequence: a range granted to one client by one MDT.
    pub seq: u64,
    /// Object id within the sequence.
    pub oid: u32,
    /// Version; 0 in everything stored today.
    pub ver: u32,
}

/// First sequence handed to clients, Lustre's `FID_SEQ_NORMAL`.
pub const SEQ_FIRST: u64 = 0x2_0000_0400;

impl Fid {
    /// No file.
    pub const NONE: Fid = Fid { seq: 0, oid: 0, ver: 0 };
    /// The root directory, as in Lustre.
    pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
    /// In a compound request: the file the operation before resolved or created.
    pub const CURRENT: Fid = Fid { seq: u64::MAX, oid: u32::MAX, ver: 0 };

    /// A FID of version 0.
    pub const fn new(seq: u64, oid: u32) -> Fid {
        Fid { seq, oid, ver: 0 }
    }
    /// Whether this names no file.
    pub fn is_none(&self) -> bool {
        *self == Fid::NONE
    }
    /// The sortable key form: big-endian sequence, oid, version.
    pub fn key(&self) -> [u8; 16] {
        let mut k = [0u8; 16];
        k[..8].copy_from_slice(&self.seq.to_be_bytes());
        k[8..12].copy_from_slice(&self.oid.to_be_bytes());
        k[12..].copy_from_slice(&self.ver.to_be_bytes());
        k
    }
    /// Reads the key form.
    pub fn from_key(k: &[u8]) -> Option<Fid> {
        let k: &[u8; 16] = k.get(..16)?.try_into().ok()?;
        Some(Fid {
            seq: u64::from_be_bytes(k[..8].try_into().ok()?),
            oid: u32::from_be_bytes(k[8..12].try_into().ok()?),
            ver: u32::from_be_bytes(k[12..].try_into().ok()?),
        })
    }
    /// A 64-bit inode number for `stat`, folded as Lustre does; unique and reversible
    /// ([`Fid::from_ino`]) for sequences below 2^40 and object ids below 2^24.
    pub fn ino(&self) -> u64 {
        if *self == Fid::ROOT {
            return 1;
        }
        let ino = (self.seq << 24).wrapping_add((self.seq >> 40) & 0xff_ffff_0000);
        ino.wrapping_add(u64::from(self.oid))
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Fid {
    /// The identifier whose [`Fid::ino`] this is; exact for sequences below 2^40 and object ids
    /// below 2^24, which is all that are handed out.
    pub fn from_ino(ino: u64) -> Fid {
        match ino {
            1 => Fid::ROOT,
            ino => Fid::new(ino >> 24, (ino & 0xff_ffff) as u32),
        }
    }
}

/// A text that is not a FID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a FID (expected [0xSEQ:0xOID:0xVER])")]
pub struct BadFid(pub String);

impl FromStr for Fid {
    type Err = BadFid;
    fn from_str(s: &str) -> Result<Fid, BadFid> {
        let bad = || BadFid(s.to_string());
        let t = s.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(s);
        let mut parts = t.split(':').map(|p| {
            p.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok()).ok_or_else(bad)
        });
        let mut next = || parts.next().ok_or_else(bad)?;
        let (seq, oid, ver) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(bad());
        }
        let small = |v: u64| u32::try_from(v).map_err(|_| bad());
        Ok(Fid { seq, oid: small(oid)?, ver: small(ver)? })
    }
}

impl Wire for Fid {
    fn enc(&self, e: &mut Enc) {
        e.put(&self.seq).put(&self.oid).put(&self.ver);
    }
    fn dec(d: &mut Dec<'_>) -> Result<Fid, DecodeError> {
        Ok(Fid { seq: d.get()?, oid: d.get()?, ver: d.get()? })
    }
}

crate::wire_struct! {
    /// Identifiers a client may hand out itself: `seq`, oids `first..first+count`.
    FidRange {
        /// Sequence.
        seq: u64,
        /// First object id.
        first: u32,
        /// How many.
        count: u32,
    }
}

impl FidRange {
    /// Takes the next identifier.
    pub fn take(&mut self) -> Option<Fid> {
        if self.count == 0 {
            return None;
        }
        let fid = Fid::new(self.seq, self.first);
        self.first += 1;
        self.count -= 1;
        Some(fid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_lustres() {
        let f = Fid::new(0x200000402, 1);
        assert_eq!(f.to_string(), "[0x200000402:0x1:0x0]");
        assert_eq!("[0x200000402:0x1:0x0]".parse(), Ok(f));
        assert_eq!("0x200000402:0x1:0x0".parse(), Ok(f));
        for bad in ["", "[1:2:3]", "[0x1:0x2]", "[0x1:0x2:0x3:0x4]", "[0x1:0x1ffffffff:0x0]"] {
            assert!(bad.parse::<Fid>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn inode_numbers_read_back(seq in SEQ_FIRST..1u64 << 40, oid in 1u32..1 << 24) {
            let f = Fid::new(seq, oid);
            prop_assert_eq!(Fid::from_ino(f.ino()), f);
            prop_assert_eq!(Fid::from_ino(Fid::ROOT.ino()), Fid::ROOT);
        }

        #[test]
        fn forms_round_trip(seq: u64, oid: u32, ver: u32) {
            let f = Fid { seq, oid, ver };
            prop_assert_eq!(Fid::from_key(&f.key()), Some(f));
            prop_assert_eq!(f.to_string().parse::<Fid>().unwrap(), f);
            prop_assert_eq!(Fid::from_bytes(&f.to_bytes()).unwrap(), f);
        }

        #[test]
        fn keys_sort_as_fids(a: (u64, u32, u32), b: (u64, u32, u32)) {
            let a = Fid { seq: a.0, oid: a.1, ver: a.2 };
            let b = Fid { seq: b.0, oid: b.1, ver: b.2 };
            prop_assert_eq!(a.key().cmp(&b.key()), a.cmp(&b));
        }
    }
}
