//! The `lustre.lov` extended attribute: the bytes real Lustre shows and takes.
//!
//! Source: the structures' sizes and offsets observed on Lustre 2.17 (lov_user_md_v1/v3,
//! lov_user_ost_data_v1). Plain raid0 only; composite headers are refused by name.

use crate::fid::Fid;
use crate::layout::{Layout, LayoutSpec};

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
const MAGIC_COMP: u32 = 0x0BD6_0BD0;
const PATTERN_RAID0: u32 = 1;
const ANY: u16 = 0xffff;

/// `lov_user_md_v1`, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lov {
    /// Pattern bits (RAID0 is 1; 0 stands for it in requests).
    pub pattern: u32,
    /// Identifier of the file: object id and sequence.
    pub owner: (u64, u64),
    /// Bytes per stripe.
    pub stripe_size: u32,
    /// Wanted or real stripe count; 0xffff: all.
    pub stripe_count: u16,
    /// First OST wanted, or the generation of a real layout; 0xffff: any.
    pub stripe_offset: u16,
    /// Objects, empty in a wish.
    pub objects: Vec<LovObject>,
}

/// `lov_user_ost_data_v1`, decoded; on the wire the sequence comes first, as in a FID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LovObject {
    /// Object id.
    pub oid: u64,
    /// Its sequence ("group").
    pub seq: u64,
    /// Generation, 0.
    pub generation: u32,
    /// OST index.
    pub ost: u32,
}

/// Why bytes are not a layout we can take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LovError {
    /// Wrong length.
    #[error("lustre.lov of {0} bytes is too short for its header")]
    Short(usize),
    /// Unknown magic.
    #[error("lustre.lov has the unknown magic {0:#010x}")]
    Magic(u32),
    /// Known, but not served yet.
    #[error("lustre.lov holds a {0}, which this version does not take; use a plain layout")]
    Unsupported(&'static str),
    /// A value out of range.
    #[error("lustre.lov: {0}")]
    Value(String),
}

impl Lov {
    /// What a file with a layout shows.
    pub fn of_file(fid: Fid, layout: &Layout) -> Lov {
        let objects = layout.osts.iter().enumerate().map(|(i, ost)| LovObject {
            oid: u64::from(fid.oid) | (i as u64) << 32,
            seq: fid.seq,
            generation: 0,
            ost: *ost,
        });
        Lov {
            pattern: PATTERN_RAID0,
            owner: (u64::from(fid.oid), fid.seq),
            stripe_size: layout.stripe_size,
            stripe_count: layout.osts.len() as u16,
            stripe_offset: (layout.generation & 0xffff) as u16,
            objects: objects.collect(),
        }
    }

    /// What a directory default, or a file without objects, shows.
    pub fn of_spec(spec: &LayoutSpec) -> Lov {
        Lov {
            pattern: PATTERN_RAID0,
            owner: (0, 0),
            stripe_size: spec.stripe_size,
            stripe_count: spec.stripe_count as u16,
            stripe_offset: spec.stripe_offset as u16,
            objects: Vec::new(),
        }
    }

    /// The bytes of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(32 + 24 * self.objects.len());
        b.extend(MAGIC_V1.to_le_bytes());
        b.extend(self.pattern.to_le_bytes());
        b.extend(self.owner.0.to_le_bytes());
        b.extend(self.owner.1.to_le_bytes());
        b.extend(self.stripe_size.to_le_bytes());
        b.extend(self.stripe_count.to_le_bytes());
        b.extend(self.stripe_offset.to_le_bytes());
        for o in &self.objects {
            b.extend(o.seq.to_le_bytes());
            b.extend(o.oid.to_le_bytes());
            b.extend(o.generation.to_le_bytes());
            b.extend(o.ost.to_le_bytes());
        }
        b
    }

    /// Reads a v1 or v3 attribute.
    pub fn decode(b: &[u8]) -> Result<Lov, LovError> {
        let magic = u32_at(b, 0)?;
        let header = match magic {
            MAGIC_V1 => 32,
            MAGIC_V3 => 48,
            MAGIC_SPECIFIC => return Err(LovError::Unsupported("list of OSTs")),
            MAGIC_COMP => return Err(LovError::Unsupported("composite layout")),
            other => return Err(LovError::Magic(other)),
        };
        if b.len() < header {
            return Err(LovError::Short(b.len()));
        }
        if header == 48 && b[32..48].iter().any(|c| *c != 0) {
            return Err(LovError::Unsupported("pool name"));
        }
        let pattern = u32_at(b, 4)?;
        if pattern > PATTERN_RAID0 {
            return Err(LovError::Unsupported("pattern other than raid0"));
        }
        let mut objects = Vec::new();
        for o in b[header..].chunks_exact(24) {
            objects.push(LovObject {
                seq: u64_at(o, 0)?,
                oid: u64_at(o, 8)?,
                generation: u32_at(o, 16)?,
                ost: u32_at(o, 20)?,
            });
        }
        Ok(Lov {
            pattern,
            owner: (u64_at(b, 8)?, u64_at(b, 16)?),
            stripe_size: u32_at(b, 24)?,
            stripe_count: u16_at(b, 28)?,
            stripe_offset: u16_at(b, 30)?,
            objects,
        })
    }

    /// The wish the attribute expresses when it is set; objects in it are not taken over.
    pub fn to_spec(&self) -> Result<LayoutSpec, LovError> {
        let count = match self.stripe_count {
            ANY => -1,
            n => i32::from(n),
        };
        let offset = if self.stripe_offset == ANY || !self.objects.is_empty() {
            -1
        } else {
            i32::from(self.stripe_offset)
        };
        let spec = LayoutSpec {
            stripe_size: self.stripe_size,
            stripe_count: count,
            stripe_offset: offset,
        };
        spec.check().map_err(LovError::Value)?;
        Ok(spec)
    }
}

fn array<const N: usize>(b: &[u8], at: usize) -> Result<[u8; N], LovError> {
    let s = b.get(at..at + N).ok_or(LovError::Short(b.len()))?;
    s.try_into().map_err(|_| LovError::Short(b.len()))
}
fn u16_at(b: &[u8], at: usize) -> Result<u16, LovError> {
    Ok(u16::from_le_bytes(array(b, at)?))
}
fn u32_at(b: &[u8], at: usize) -> Result<u32, LovError> {
    Ok(u32::from_le_bytes(array(b, at)?))
}
fn u64_at(b: &[u8], at: usize) -> Result<u64, LovError> {
    Ok(u64::from_le_bytes(array(b, at)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes real Lustre 2.17 showed for a file of two stripes of 2 MiB.
    const FILE: [u8; 80] = [
        0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 2, 0, 0, 0, 0, 0,
        0x20, 0, 2, 0, 0xff, 0xff, 1, 4, 0, 0xc0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0, 1, 4, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
    ];
    /// Bytes real Lustre 2.17 showed for `setstripe -c 3 -S 1M` on a directory.
    const DIR: [u8; 32] = [
        0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0x10, 0, 3, 0, 0xff, 0xff,
    ];

    #[test]
    fn bytes_are_lustres() {
        let lov = Lov::decode(&FILE).unwrap();
        assert_eq!((lov.stripe_count, lov.stripe_size, lov.stripe_offset), (2, 2 << 20, 0xffff));
        assert_eq!(lov.owner, (1, 0x200000402));
        assert_eq!(lov.objects.iter().map(|o| o.ost).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((lov.objects[1].oid, lov.objects[1].seq), (2, 0x300000401));
        assert_eq!(lov.encode(), FILE);
        let spec = LayoutSpec { stripe_size: 1 << 20, stripe_count: 3, stripe_offset: -1 };
        assert_eq!(Lov::of_spec(&spec).encode(), DIR);
        assert_eq!(Lov::decode(&DIR).unwrap().to_spec(), Ok(spec));
    }

    #[test]
    fn a_layout_reads_back_as_its_wish() {
        let l = Layout { generation: 0, stripe_size: 1 << 20, osts: vec![2, 0, 1] };
        let lov = Lov::decode(&Lov::of_file(Fid::new(7, 9), &l).encode()).unwrap();
        assert_eq!(lov.objects.iter().map(|o| o.ost).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(lov.to_spec().unwrap().stripe_count, 3);
    }

    #[test]
    fn other_layouts_are_refused_by_name() {
        let mut b = DIR.to_vec();
        b[..4].copy_from_slice(&MAGIC_COMP.to_le_bytes());
        assert_eq!(Lov::decode(&b), Err(LovError::Unsupported("composite layout")));
        b[..4].copy_from_slice(&7u32.to_le_bytes());
        assert_eq!(Lov::decode(&b), Err(LovError::Magic(7)));
        assert_eq!(Lov::decode(&DIR[..31]), Err(LovError::Short(31)));
    }

    proptest! {
        #[test]
        fn decoder_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Lov::decode(&bytes).map(|l| l.to_spec());
        }
    }
}
