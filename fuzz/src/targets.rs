//! What is fuzzed: each decoder with the valid bytes it starts from.

/// One decoder.
pub struct Target {
    pub name: &'static str,
    /// Valid inputs to damage.
    pub corpus: fn() -> Vec<Vec<u8>>,
    /// Must return for any bytes.
    pub decode: fn(&[u8]),
}

/// Every decoder of bytes from wire or disk.
pub const TARGETS: &[Target] = &[];
