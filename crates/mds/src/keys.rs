//! Keys of the records a metadata target keeps, and the order of a directory.
//!
//! The byte map is in `docs/format.d/mds.md`. Never does: I/O.

use proto::Fid;
pub use proto::order::{COOKIE_SHIFT, name_hash};

/// Inodes: `i` FID.
pub const INODE: u8 = b'i';
/// Directory entries: `e` FID-of-directory, name hash, name.
pub const ENTRY: u8 = b'e';
/// Inline data: `d` FID.
pub const INLINE: u8 = b'd';
/// Extended attributes: `x` FID.
pub const XATTR: u8 = b'x';
/// Further links of a file: `l` FID, FID-of-directory, name.
pub const LINK: u8 = b'l';
/// Unlinked but open inodes: `o` FID.
pub const ORPHAN: u8 = b'o';
/// Objects to destroy: `g` FID, layout generation.
pub const GARBAGE: u8 = b'g';
/// Reply table: `r` client.
pub const REPLIES: u8 = b'r';
/// Logs of hot records: `h` number of its place.
pub const LOG: u8 = b'h';
/// Singletons of the target: `s` name.
pub const SINGLE: u8 = b's';
/// Name of the singleton that counts inodes (u64).
pub const COUNT: &str = "inodes";

/// Sequences each MDT has to itself: FIDs of different MDTs never meet.
pub const SEQUENCES_PER_MDT: u64 = 1 << 32;

/// The first sequence an MDT grants.
pub fn first_sequence(index: u32) -> u64 {
    proto::fid::SEQ_FIRST + u64::from(index) * SEQUENCES_PER_MDT
}

/// The key of a record that belongs to one inode.
pub fn of(kind: u8, fid: Fid) -> Vec<u8> {
    hot(kind, fid.key()).to_vec()
}

/// The key of a record of this kind that may be hot: of a FID ([`Fid::key`]), or a client.
pub fn hot(kind: u8, of: [u8; 16]) -> [u8; 17] {
    let mut k = [kind; 17];
    k[1..].copy_from_slice(&of);
    k
}

/// The key of a directory entry.
pub fn entry(dir: Fid, hash: u64, name: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(25 + name.len());
    k.push(ENTRY);
    k.extend(dir.key());
    k.extend(hash.to_be_bytes());
    k.extend(name);
    k
}

/// The key of a further link.
pub fn link(fid: Fid, dir: Fid, name: &[u8]) -> Vec<u8> {
    let mut k = of(LINK, fid);
    k.extend(dir.key());
    k.extend(name);
    k
}

/// The key of objects to destroy.
pub fn garbage(fid: Fid, generation: u32) -> Vec<u8> {
    let mut k = of(GARBAGE, fid);
    k.extend(generation.to_be_bytes());
    k
}

/// The key of a client's replies.
pub fn replies(client: &[u8; 16]) -> Vec<u8> {
    hot(REPLIES, *client).to_vec()
}

/// The key of a log of hot records.
pub fn log(place: u64) -> Vec<u8> {
    let mut k = vec![LOG];
    k.extend(place.to_be_bytes());
    k
}

/// The key of a singleton.
pub fn single(name: &str) -> Vec<u8> {
    let mut k = vec![SINGLE];
    k.extend(name.as_bytes());
    k
}

/// The first key after all that begin with `prefix`; `None` when there is none.
pub fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut k = prefix.to_vec();
    while let Some(last) = k.last_mut() {
        if *last < 0xff {
            *last += 1;
            return Some(k);
        }
        k.pop();
    }
    None
}

/// Reads the FID of a key made by [`of`].
pub fn fid_of(key: &[u8]) -> Option<Fid> {
    Fid::from_key(key.get(1..17)?)
}

/// Reads directory, hash and name of an entry's key.
pub fn parse_entry(key: &[u8]) -> Option<(Fid, u64, &[u8])> {
    let dir = Fid::from_key(key.get(1..17)?)?;
    let hash = u64::from_be_bytes(key.get(17..25)?.try_into().ok()?);
    Some((dir, hash, key.get(25..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let f = Fid::new(7, 8);
        assert_eq!(fid_of(&of(INODE, f)), Some(f));
        assert_eq!(parse_entry(&entry(f, 99, b"name")), Some((f, 99, &b"name"[..])));
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(&[1, 0xff]), Some(vec![2]));
        assert_eq!(after(&[0xff]), None);
        assert_eq!(parse_entry(b"e123"), None);
    }
}
