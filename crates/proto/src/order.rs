//! The order of a directory: where a name stands, and the cookie a listing gives it.
//!
//! Role: clients that change directories before the MDT does must give the cookies it will give.
//! Persisted in the keys of directory entries; never changes.

/// Bits of a cookie that tell entries of equal hash apart.
pub const COOKIE_SHIFT: u32 = 4;

/// Position of a name in its directory: 59 bits, never 0 (FNV-1a 64 with a finaliser; persisted).
pub fn name_hash(name: &[u8]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    for b in name {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 32;
    h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^= h >> 32;
    (h >> 5).max(1)
}

/// The cookie of the `index`-th entry (from 0) of those with this hash.
pub fn cookie(hash: u64, index: u64) -> u64 {
    (hash << COOKIE_SHIFT) | index.min((1 << COOKIE_SHIFT) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_hashes() {
        // Persisted: entries would be lost if these ever changed.
        let set: std::collections::HashSet<u64> =
            (0..200_000).map(|i| name_hash(format!("file.{i}").as_bytes())).collect();
        assert_eq!(set.len(), 200_000);
        assert!(set.iter().all(|h| *h > 0 && *h < 1 << 59));
        assert_eq!(name_hash(b"a"), 105_762_614_226_043_771);
        assert_eq!(cookie(5, 3), 0x53);
        assert_eq!(cookie(5, 99), 0x5f);
    }
}
