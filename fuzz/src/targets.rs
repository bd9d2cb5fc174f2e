//! What is fuzzed: each decoder with the valid bytes it starts from.

mod disk;
mod journal;
mod kernel;
mod lov;
mod session;
mod store;
mod wire;

/// One decoder.
pub struct Target {
    pub name: &'static str,
    /// Valid inputs to damage.
    pub corpus: fn() -> Vec<Vec<u8>>,
    /// Returns for any bytes; the answer is whether they were accepted.
    pub decode: fn(&[u8]) -> bool,
}

/// Every decoder of bytes from wire or disk.
pub fn all() -> Vec<Target> {
    let mut all = wire::targets();
    all.extend(lov::targets());
    all.extend(store::targets());
    all.extend(kernel::targets());
    all.extend(disk::targets());
    all.extend(session::targets());
    all.extend(journal::targets());
    all
}

/// Inputs that `decode` accepts among a leading tag byte and zeros of every length up to `longest`.
pub fn tagged_zeros(decode: fn(&[u8]) -> bool, longest: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for tag in 0..=u8::MAX {
        for length in 0..longest {
            let mut input = vec![0; length + 1];
            input[0] = tag;
            if decode(&input) {
                found.push(input);
                break;
            }
        }
    }
    found
}
