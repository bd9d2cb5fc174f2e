//! Bytes that say where they belong: each 8-byte word is a function of a seed, its position in the
//! file and a generation, so that shifted, stale, mixed and foreign data all show.

/// The 64-bit mix of SplitMix64.
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The byte at `pos`.
pub fn byte(seed: u64, generation: u64, pos: u64) -> u8 {
    let word = mix(mix(seed ^ generation.rotate_left(32)) ^ (pos / 8));
    word.to_le_bytes()[(pos % 8) as usize]
}

/// Fills `out` with the bytes of positions from `pos` on.
pub fn fill(out: &mut [u8], seed: u64, generation: u64, pos: u64) {
    let key = mix(seed ^ generation.rotate_left(32));
    let mut at = 0;
    while at < out.len() {
        let here = pos + at as u64;
        let word = mix(key ^ (here / 8)).to_le_bytes();
        let skip = (here % 8) as usize;
        let count = (8 - skip).min(out.len() - at);
        out[at..at + count].copy_from_slice(&word[skip..skip + count]);
        at += count;
    }
}

/// `len` such bytes.
pub fn make(len: usize, seed: u64, generation: u64, pos: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    fill(&mut out, seed, generation, pos);
    out
}

/// Index of the first byte of `data` that is not the one expected.
pub fn mismatch(data: &[u8], seed: u64, generation: u64, pos: u64) -> Option<usize> {
    let want = make(data.len(), seed, generation, pos);
    data.iter().zip(&want).position(|(a, b)| a != b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_depend_on_how_they_are_cut() {
        let whole = make(1000, 5, 9, 123);
        for (start, len) in [(0, 1), (3, 17), (500, 500), (999, 1)] {
            assert_eq!(whole[start..start + len], make(len, 5, 9, 123 + start as u64));
            assert_eq!(byte(5, 9, 123 + start as u64), whole[start]);
        }
        assert_eq!(mismatch(&whole, 5, 9, 123), None);
        assert!(mismatch(&whole, 5, 8, 123).is_some());
        assert!(mismatch(&whole, 5, 9, 124).is_some());
    }
}
