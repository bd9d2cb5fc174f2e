//! Clients that were evicted, and are refused for good (invariant 5).
//!
//! Role: a small record of its own on disk, written before a fence is answered, so that a restart
//! forgets none. A client that comes back does so as its next incarnation, so a fence is never
//! lifted and one per client is enough. Never does: end sessions.

use std::collections::{BTreeMap, VecDeque};

use proto::mgs::incarnation;

use crate::label::{LabelError, seal, unseal};

/// The record's file.
pub(crate) const FENCES: &str = "fences";
/// Version of the record.
pub(crate) const FENCES_VERSION: u32 = 1;
const FENCES_MAGIC: [u8; 8] = *b"PSTFENCE";
/// Clients remembered; above it those fenced longest ago are forgotten.
pub const FENCES_MAX: usize = 8192;
/// Bytes of the record at most.
pub(crate) const FENCES_BYTES: usize = 8 + 4 + 4 + FENCES_MAX * 16 + 4;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences {
    /// Who, in the order they were fenced first.
    order: VecDeque<[u8; 12]>,
    /// The last incarnation that is refused.
    until: BTreeMap<[u8; 12], u32>,
}

impl Fences {
    /// Whether a client is refused.
    pub fn refuses(&self, client: &[u8; 16]) -> bool {
        let (who, times) = incarnation(client);
        self.until.get(&who).is_some_and(|last| times <= *last)
    }

    /// Refuses a client and its earlier incarnations; whether that is new.
    pub fn add(&mut self, client: &[u8; 16]) -> bool {
        if self.refuses(client) {
            return false;
        }
        let (who, times) = incarnation(client);
        if self.until.insert(who, times).is_none() {
            self.order.push_back(who);
        }
        if self.order.len() > FENCES_MAX
            && let Some(old) = self.order.pop_front()
        {
            self.until.remove(&old);
        }
        true
    }

    /// As it lies on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(FENCES_MAGIC, FENCES_VERSION, |e| {
            e.put(&(self.order.len() as u32));
            for who in &self.order {
                who.iter().for_each(|b| {
                    e.put(b);
                });
                e.put(&self.until.get(who).copied().unwrap_or(0));
            }
        })
    }

    /// Reads what [`Fences::to_bytes`] made; total for any bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Fences, LabelError> {
        let mut d = unseal(bytes, "list of fences", FENCES_MAGIC, FENCES_VERSION)?;
        let count: u32 = d.get()?;
        let mut fences = Fences::default();
        for _ in 0..count {
            let mut who = [0; 12];
            for b in &mut who {
                *b = d.get()?;
            }
            let times: u32 = d.get()?;
            if fences.until.insert(who, times).is_none() {
                fences.order.push_back(who);
            }
        }
        d.end()?;
        Ok(fences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proto::mgs::reborn;

    #[test]
    fn a_client_is_refused_until_it_is_reborn() {
        let (a, b) = ([1; 16], [2; 16]);
        let mut f = Fences::default();
        assert!(f.add(&a) && !f.add(&a));
        assert!(f.refuses(&a) && !f.refuses(&b) && !f.refuses(&reborn(&a)));
        assert!(f.add(&reborn(&a)));
        assert!(f.refuses(&a) && f.refuses(&reborn(&a)) && !f.refuses(&reborn(&reborn(&a))));
    }

    #[test]
    fn golden_bytes() {
        let mut f = Fences::default();
        let mut client = [7; 16];
        client[12..].copy_from_slice(&[3, 0, 0, 0]);
        f.add(&client);
        let mut expect = b"PSTFENCE\x01\0\0\0\x01\0\0\0".to_vec();
        expect.extend([7; 12]);
        expect.extend([3, 0, 0, 0]);
        let crc = crc32c::crc32c(&expect);
        expect.extend(crc.to_le_bytes());
        assert_eq!(f.to_bytes(), expect);
        assert_eq!(Fences::from_bytes(&expect).unwrap(), f);
    }

    #[test]
    fn they_are_bounded() {
        let mut f = Fences::default();
        for i in 0..FENCES_MAX as u128 + 10 {
            f.add(&i.to_le_bytes());
        }
        let bytes = f.to_bytes();
        assert!(bytes.len() <= FENCES_BYTES);
        assert!(!f.refuses(&3u128.to_le_bytes()) && f.refuses(&100u128.to_le_bytes()));
    }

    proptest! {
        #[test]
        fn decoders_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Fences::from_bytes(&bytes);
        }
    }
}
