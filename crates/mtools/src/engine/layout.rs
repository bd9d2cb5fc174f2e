//! Layouts as Lustre and Pinstripe tell and take them: the extended attribute `lustre.lov`, whose first 32
//! bytes are Lustre's `lov_user_md_v1` (byte map in `docs/format.md`). Never sets one.

use std::fs::File;
use std::path::Path;

pub const LOV: &str = "lustre.lov";
/// Any OST, and all OSTs.
pub const ANY: u16 = 0xffff;

const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;
const RAID0: u32 = 1;
/// Longest value: the kernel has none longer.
const VALUE_MAX: usize = 64 << 10;

/// Stripes and bytes of a stripe; in a wish: 0 for the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub count: u16,
    pub size: u32,
}

/// What `lustre.lov` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Plain(Layout),
    /// Several layouts, each for a part of the file (PFL), or mirrors.
    Composite,
}

impl Told {
    /// Of an open file; none where there is no layout, or one that is not understood.
    pub fn of(file: &File) -> Option<Self> {
        let mut bytes = vec![0; VALUE_MAX];
        let length = rustix::fs::fgetxattr(file, LOV, &mut bytes[..]).ok()?;
        Self::decode(&bytes[..length])
    }

    /// A directory's default.
    pub fn of_directory(dir: &Path) -> Option<Self> {
        let mut bytes = vec![0; VALUE_MAX];
        let length = rustix::fs::getxattr(dir, LOV, &mut bytes[..]).ok()?;
        Self::decode(&bytes[..length])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let magic = word(0)?;
        if magic == MAGIC_COMPOSITE {
            return Some(Self::Composite);
        }
        let plain = matches!(magic, MAGIC_V1 | MAGIC_V3) && word(4)? == RAID0;
        let count = u16::from_le_bytes(bytes.get(28..30)?.try_into().ok()?);
        plain.then_some(Self::Plain(Layout { count, size: word(24)? }))
    }
}

impl Layout {
    /// As it is set: on any OSTs.
    pub fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&MAGIC_V1.to_le_bytes());
        bytes[4..8].copy_from_slice(&RAID0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.size.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.count.to_le_bytes());
        bytes[30..32].copy_from_slice(&ANY.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 32 bytes that real Lustre 2.17 showed of a file of two stripes of 1 MiB, sequence and
    /// identifier apart, which are Lustre's to give.
    #[test]
    fn the_bytes_are_lustres() {
        let layout = Layout { count: 2, size: 1 << 20 };
        let bytes = layout.encode();
        assert_eq!(bytes[..8], [0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0]);
        assert_eq!(bytes[24..], [0, 0, 0x10, 0, 2, 0, 0xff, 0xff]);
        assert_eq!(Told::decode(&bytes), Some(Told::Plain(layout)));
    }

    #[test]
    fn composite_layouts_are_told_apart_and_nothing_else_is_taken_for_one() {
        let mut bytes = Layout { count: 2, size: 1 << 20 }.encode();
        bytes[..4].copy_from_slice(&[0xd0, 0x0b, 0xd6, 0x0b]);
        assert_eq!(Told::decode(&bytes), Some(Told::Composite));
        // Of a directory's default that is a striped directory, of a released file, and of fewer bytes.
        bytes[..4].copy_from_slice(&[0xd0, 0x0c, 0xd6, 0x0b]);
        assert_eq!(Told::decode(&bytes), None);
        assert_eq!(Told::decode(&Layout { count: 2, size: 0 }.encode()[..29]), None);
        assert_eq!(Told::decode(b""), None);
    }
}
