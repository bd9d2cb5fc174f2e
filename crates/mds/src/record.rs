//! Records of a metadata target as they are stored: each begins with its version.
//!
//! The byte map is in `docs/format.d/mds.md`. A record of a newer version is refused by name
//! (invariant 12). Never does: I/O.

use bytes::Bytes;
use proto::attr::{A_HAS_LAYOUT, Attr};
use proto::layout::{Layout, LayoutSpec};
use proto::wire::List;
use proto::{DecodeError, Fid, FileKind, TimeSpec, Wire};

/// Version of every record here.
pub const VERSION: u8 = 1;

proto::wire_struct! {
    /// Where a name of an inode is.
    Home {
        /// Directory.
        dir: Fid,
        /// Name.
        name: Vec<u8>,
    }

    /// An inode.
    Inode {
        /// Type and permission bits.
        mode: u32,
        /// Links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number.
        rdev: u64,
        /// Bytes; of a directory: entries.
        size: u64,
        /// 512-byte blocks.
        blocks: u64,
        /// Last access.
        atime: TimeSpec,
        /// Last change of data.
        mtime: TimeSpec,
        /// Last change of the inode.
        ctime: TimeSpec,
        /// Creation.
        btime: TimeSpec,
        /// `A_*`, and [`F_DEFAULT_ACL`].
        flags: u32,
        /// Counts changes.
        version: u64,
        /// The first link; further ones have records of their own. A directory's parent.
        home: Option<Home>,
        /// Target of a symlink.
        target: Vec<u8>,
        /// Objects of a file.
        layout: Option<Layout>,
        /// Generation the next layout of this file gets.
        next_layout: u32,
        /// Wish of a file without objects, default of a directory.
        spec: Option<LayoutSpec>,
    }

    /// A directory entry.
    Dent {
        /// The inode.
        fid: Fid,
        /// What it is.
        kind: FileKind,
    }

    /// Objects whose file is gone.
    Garbage {
        /// Where they are.
        layout: Layout,
    }

    /// One extended attribute.
    Xattr {
        /// Full name, with its namespace.
        name: Vec<u8>,
        /// Value.
        value: Bytes,
    }

    /// All extended attributes of an inode.
    Xattrs {
        /// Sorted by name.
        list: List<Xattr>,
    }

    /// An answer kept for a client that may ask again.
    Kept {
        /// The request.
        xid: u64,
        /// Its transaction number.
        transno: u64,
        /// Set while only some of its operations were done: the file the last of them named.
        current: Option<Fid>,
        /// The answer's body, or the part that is there.
        body: Bytes,
    }

    /// Answers kept for one client.
    Replies {
        /// By xid.
        list: List<Kept>,
    }
}

/// Internal inode flag: the directory has a default ACL.
pub const F_DEFAULT_ACL: u32 = 1 << 16;

/// A record with its version in front.
pub fn encode<T: Wire>(v: &T) -> Vec<u8> {
    // Most inodes fit, with a name.
    let mut e = proto::Enc(Vec::with_capacity(224));
    e.put(&VERSION).put(v);
    e.0
}

/// As [`encode`], behind what is there.
pub fn encode_into<T: Wire>(e: &mut proto::Enc, v: &T) {
    e.put(&VERSION).put(v);
}

/// As a record of [`Replies`] is encoded, without taking them.
pub fn encode_replies<'a>(e: &mut proto::Enc, kept: impl ExactSizeIterator<Item = &'a Kept>) {
    e.put(&VERSION).put(&(kept.len() as u32));
    for k in kept {
        e.put(k);
    }
}

/// Reads a record.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut d = proto::Dec::new(bytes);
    let version: u8 = d.get()?;
    if version != VERSION {
        return Err(DecodeError::Unknown { what: "record version", value: version.into() });
    }
    let v = d.get()?;
    d.end()?;
    Ok(v)
}

impl Kept {
    /// Bytes it takes, about.
    pub fn bytes(&self) -> usize {
        self.body.len() + 40
    }
}

impl Inode {
    /// What `stat` shows.
    pub fn attr(&self, fid: Fid) -> Attr {
        let dir = self.kind() == FileKind::Dir;
        let layout = self.layout.is_some() || (dir && self.spec.is_some());
        Attr {
            fid,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: if dir { 4096 } else { self.size },
            blocks: if dir { 8 } else { self.blocks },
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            flags: (self.flags & 0xffff) | if layout { A_HAS_LAYOUT } else { 0 },
            version: self.version,
        }
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::File)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Dir
    }

    /// Notes a change of the inode (not of its data).
    pub fn touch(&mut self, now: TimeSpec) {
        self.ctime = now;
        self.version += 1;
    }

    /// Bytes it takes in memory, roughly, and at most in a record; for the limits of the cache and of groups.
    pub fn weight(&self) -> usize {
        let home = self.home.as_ref().map_or(0, |h| h.name.len() + 32);
        let layout = self.layout.as_ref().map_or(0, |l| l.osts.len() * 4);
        256 + home + self.target.len() + layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let d = Dent { fid: Fid::new(5, 6), kind: FileKind::Dir };
        let bytes = [1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 4];
        assert_eq!(encode(&d), bytes);
        assert_eq!(decode::<Dent>(&bytes), Ok(d));
        let t = |sec| TimeSpec { sec, nsec: 1 };
        let i = Inode {
            mode: 0o100644,
            nlink: 1,
            uid: 2,
            gid: 3,
            rdev: 4,
            size: 5,
            blocks: 6,
            atime: t(7),
            mtime: t(8),
            ctime: t(9),
            btime: t(10),
            flags: 11,
            version: 12,
            home: Some(Home { dir: Fid::new(13, 14), name: b"n".to_vec() }),
            target: Vec::new(),
            layout: None,
            next_layout: 0,
            spec: Some(LayoutSpec { stripe_size: 65536, stripe_count: -1, stripe_offset: 2 }),
        };
        let b = encode(&i);
        assert_eq!(b.len(), 1 + 16 + 24 + 48 + 12 + 1 + 21 + 4 + 1 + 4 + 13);
        assert_eq!(b[..9], [1, 0xa4, 0x81, 0, 0, 1, 0, 0, 0]);
        assert_eq!(crc32c::crc32c(&b), GOLDEN_INODE);
        assert_eq!(decode::<Inode>(&b), Ok(i));
    }
    const GOLDEN_INODE: u32 = 2_734_708_792;

    #[test]
    fn golden_bytes_of_lists() {
        let x = Xattr { name: b"user.a".to_vec(), value: Bytes::from_static(b"v") };
        let x = Xattrs { list: List(vec![x]) };
        assert_eq!(encode(&x), b"\x01\x01\0\0\0\x06\0\0\0user.a\x01\0\0\0v");
        let g = Garbage { layout: Layout { generation: 2, stripe_size: 65536, osts: vec![3] } };
        assert_eq!(encode(&g), b"\x01\x02\0\0\0\0\0\x01\0\x01\0\0\0\x03\0\0\0");
        let kept = |current| Kept { xid: 7, transno: 8, current, body: Bytes::from_static(b"b") };
        let r = Replies { list: List(vec![kept(None), kept(Some(Fid::new(9, 10)))]) };
        let mut expect = b"\x01\x02\0\0\0".to_vec();
        let head = b"\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0";
        expect.extend([&head[..], b"\0\x01\0\0\0b", head, b"\x01\x09\0\0\0\0\0\0\0"].concat());
        expect.extend(b"\x0a\0\0\0\0\0\0\0\x01\0\0\0b");
        assert_eq!(encode(&r), expect);
        assert_eq!(decode::<Replies>(&expect), Ok(r));
    }

    #[test]
    fn newer_records_are_refused() {
        let mut b = encode(&Dent { fid: Fid::ROOT, kind: FileKind::File });
        b[0] = 2;
        assert!(decode::<Dent>(&b).unwrap_err().to_string().contains("record version"));
    }

    proptest! {
        #[test]
        fn decoders_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Inode>(&bytes);
            let _ = decode::<Xattrs>(&bytes);
            let _ = decode::<Replies>(&bytes);
            let _ = decode::<Garbage>(&bytes);
        }
    }
}
