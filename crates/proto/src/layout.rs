//! Layouts: how a file's bytes are spread over objects (Lustre's plain raid0).
//!
//! Round-robin: stripe `i` of `n` holds the file's chunks `k` with `k mod n == i`, one after the
//! other. Formula as in Lustre's manual, "Lustre File Layout (Striping)".

use crate::fid::Fid;
use crate::wire::{Dec, DecodeError, Enc, List, Wire};

/// Smallest stripe size, and the unit of stripe sizes, in bytes (Lustre's LOV_MIN_STRIPE_SIZE).
pub const MIN_STRIPE_SIZE: u32 = 65536;
/// Most stripes one file may have.
pub const MAX_STRIPES: usize = 2000;
/// Stripe size where nobody chose one, in bytes.
pub const DEFAULT_STRIPE_SIZE: u32 = 4 << 20;
/// Stripe count where nobody chose one; fewer where there are fewer OSTs.
pub const DEFAULT_STRIPE_COUNT: i32 = 4;

crate::wire_struct! {
    /// The name of an object: derived from the file, so that nothing is allocated in advance.
    ObjectId {
        /// The file.
        fid: Fid,
        /// Component of the layout; in a plain layout its generation.
        comp: u16,
        /// Stripe within the component.
        stripe: u16,
    }

    /// A wish for a layout: of `setstripe`, or a directory's default.
    LayoutSpec {
        /// Bytes per stripe; 0: the default.
        stripe_size: u32,
        /// Stripes; 0: the default, -1: all OSTs.
        stripe_count: i32,
        /// Index of the first OST; -1: any.
        stripe_offset: i32,
    }
}

impl LayoutSpec {
    /// No wish at all.
    pub const DEFAULT: LayoutSpec =
        LayoutSpec { stripe_size: 0, stripe_count: 0, stripe_offset: -1 };

    /// Checks ranges; the message names the value and the remedy.
    pub fn check(&self) -> Result<(), String> {
        if !self.stripe_size.is_multiple_of(MIN_STRIPE_SIZE) {
            return Err(format!(
                "stripe size {} is not a multiple of {MIN_STRIPE_SIZE} bytes",
                self.stripe_size
            ));
        }
        if self.stripe_count < -1 || self.stripe_count > MAX_STRIPES as i32 {
            return Err(format!(
                "stripe count {} is not -1 (all OSTs), 0 (default) or 1..{MAX_STRIPES}",
                self.stripe_count
            ));
        }
        if self.stripe_offset < -1 || self.stripe_offset > 0xfffe {
            return Err(format!("OST index {} is not -1 (any) or 0..65534", self.stripe_offset));
        }
        Ok(())
    }
}

/// The layout of one file: OST indexes in stripe order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Changes with the layout.
    pub generation: u32,
    /// Bytes per stripe, a positive multiple of [`MIN_STRIPE_SIZE`].
    pub stripe_size: u32,
    /// OST index of each stripe, at least one.
    pub osts: Vec<u32>,
}

impl Wire for Layout {
    fn enc(&self, e: &mut Enc) {
        e.put(&self.generation).put(&self.stripe_size).put(&List(self.osts.clone()));
    }
    fn dec(d: &mut Dec<'_>) -> Result<Layout, DecodeError> {
        let (generation, stripe_size): (u32, u32) = (d.get()?, d.get()?);
        let List(osts) = d.get::<List<u32>>()?;
        let bad = |what, value: usize| Err(DecodeError::Unknown { what, value: value as u64 });
        if stripe_size == 0 || !stripe_size.is_multiple_of(MIN_STRIPE_SIZE) {
            return bad("stripe size", stripe_size as usize);
        }
        if osts.is_empty() || osts.len() > MAX_STRIPES {
            return bad("stripe count", osts.len());
        }
        Ok(Layout { generation, stripe_size, osts })
    }
}

/// A run of bytes in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Stripe number.
    pub stripe: u16,
    /// Where it begins in the object.
    pub object_offset: u64,
    /// Where it begins in the file.
    pub file_offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Layout {
    /// Number of stripes.
    pub fn count(&self) -> u64 {
        self.osts.len() as u64
    }

    /// The object of a stripe. The generation is part of its name, so that a file that was emptied
    /// and written anew never meets its old objects.
    pub fn object(&self, fid: Fid, stripe: u16) -> ObjectId {
        ObjectId { fid, comp: self.generation as u16, stripe }
    }

    /// All objects with their OST indexes.
    pub fn objects(&self, fid: Fid) -> impl Iterator<Item = (u32, ObjectId)> + '_ {
        self.osts.iter().enumerate().map(move |(i, ost)| (*ost, self.object(fid, i as u16)))
    }

    /// Where a byte of the file lies: stripe and offset in its object.
    pub fn locate(&self, offset: u64) -> (u16, u64) {
        let size = u64::from(self.stripe_size);
        let chunk = offset / size;
        ((chunk % self.count()) as u16, chunk / self.count() * size + offset % size)
    }

    /// Where a byte of an object lies in the file.
    pub fn file_offset(&self, stripe: u16, object_offset: u64) -> u64 {
        let size = u64::from(self.stripe_size);
        let chunk = (object_offset / size) * self.count() + u64::from(stripe);
        chunk * size + object_offset % size
    }

    /// Cuts `[offset, offset + len)` into runs in file order, each within one chunk.
    pub fn extents(&self, offset: u64, len: u64) -> Extents<'_> {
        Extents { layout: self, at: offset, end: offset.saturating_add(len) }
    }

    /// The size an object has at most when the file has `size` bytes.
    pub fn object_size(&self, stripe: u16, size: u64) -> u64 {
        if size == 0 {
            return 0;
        }
        let unit = u64::from(self.stripe_size);
        let (last, at) = self.locate(size - 1);
        let row = (size - 1) / unit / self.count();
        match stripe.cmp(&last) {
            std::cmp::Ordering::Less => (row + 1) * unit,
            std::cmp::Ordering::Equal => at + 1,
            std::cmp::Ordering::Greater => row * unit,
        }
    }

    /// The file size that objects of these sizes (in stripe order) show.
    pub fn file_size(&self, objects: &[u64]) -> u64 {
        let ends = objects.iter().enumerate().filter(|(_, size)| **size > 0);
        ends.map(|(i, size)| self.file_offset(i as u16, size - 1) + 1).max().unwrap_or(0)
    }
}

/// Iterator of [`Layout::extents`].
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    layout: &'a Layout,
    at: u64,
    end: u64,
}

impl Iterator for Extents<'_> {
    type Item = Extent;
    fn next(&mut self) -> Option<Extent> {
        if self.at >= self.end {
            return None;
        }
        let size = u64::from(self.layout.stripe_size);
        let len = (size - self.at % size).min(self.end - self.at);
        let (stripe, object_offset) = self.layout.locate(self.at);
        let e = Extent { stripe, object_offset, file_offset: self.at, len };
        self.at += len;
        Some(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(units: u32, count: usize) -> Layout {
        Layout {
            generation: 0,
            stripe_size: units * MIN_STRIPE_SIZE,
            osts: (0..count as u32).collect(),
        }
    }

    #[test]
    fn golden_bytes() {
        let l = Layout { generation: 1, stripe_size: 65536, osts: vec![3, 1] };
        let bytes = [1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(l.to_bytes(), bytes);
        assert_eq!(Layout::from_bytes(&bytes), Ok(l));
    }

    proptest! {
        /// Against the obvious model: every byte written into objects one by one.
        #[test]
        fn extents_equal_byte_by_byte(count in 1usize..6, at in 0u64..900_000, len in 0u64..700_000) {
            let l = layout(1, count);
            let mut expect = at;
            for e in l.extents(at, len) {
                prop_assert_eq!(e.file_offset, expect);
                for k in [0, e.len / 2, e.len - 1] {
                    prop_assert_eq!(l.locate(e.file_offset + k), (e.stripe, e.object_offset + k));
                    prop_assert_eq!(l.file_offset(e.stripe, e.object_offset + k), e.file_offset + k);
                }
                expect += e.len;
            }
            prop_assert_eq!(expect, at + len);
        }

        #[test]
        fn object_sizes_add_up(units in 1u32..4, count in 1usize..9, size in 0u64..5_000_000) {
            let l = layout(units, count);
            let sizes: Vec<u64> = (0..count as u16).map(|s| l.object_size(s, size)).collect();
            prop_assert_eq!(sizes.iter().sum::<u64>(), size);
            prop_assert_eq!(l.file_size(&sizes), size);
        }

        #[test]
        fn decoder_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(l) = Layout::from_bytes(&bytes) {
                prop_assert_eq!(l.to_bytes(), bytes);
            }
        }
    }
}
