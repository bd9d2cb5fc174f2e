//! Messages of a metadata target: operations, grouped in compounds.
//!
//! A compound runs its operations in order and stops at the first that fails; the last result is
//! then [`Res::Failed`]. An operation that names [`crate::Fid::CURRENT`] means the file the
//! operation before resolved, created or opened.

use bytes::Bytes;

use crate::attr::{Attr, FileKind, SetAttr, TimeSpec};
use crate::fid::{Fid, FidRange};
use crate::layout::{Layout, LayoutSpec};
use crate::stride::Stride;
use crate::wire::List;

/// Most operations in one compound.
pub const MAX_OPS: usize = 256;
/// Most supplementary groups a request carries (Linux's NGROUPS is 65,536; the first count).
pub const MAX_GROUPS: usize = 64;

crate::wire_struct! {
    /// On whose behalf.
    Cred {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Supplementary groups.
        groups: List<u32>,
    }
    /// A request.
    Compound {
        /// On whose behalf.
        cred: Cred,
        /// `CF_*`.
        flags: u8,
        /// When each operation happened at the client, for those done there before they were sent;
        /// empty: when the MDT runs them.
        at: List<TimeSpec>,
        /// At most [`MAX_OPS`].
        ops: List<Op>,
    }
    /// An answer; as many results as operations ran.
    CompoundReply {
        /// In order.
        results: List<Res>,
        /// What the client may cache from now on, until it is called back.
        leases: List<Lease>,
    }
    /// A right to cache something of an inode.
    Lease {
        /// Which inode.
        fid: Fid,
        /// `LS_*`.
        bits: u8,
    }
    /// A call-back of an MDT ([`crate::ops::callback::LEASES`]): answered when all of it is given
    /// back, with what was changed under it sent before, by an [`Unwatched`] or nothing. What takes long may be put off
    /// ([`Op::PutOff`]).
    LeaseRecall {
        /// Which it is, for [`Op::PutOff`].
        call: u64,
        /// What is to be given back; bits the client does not have (any more) are given back
        /// already.
        back: List<Lease>,
        /// Files whose size and times are only asked for: the client reports them and keeps its
        /// lease.
        glimpse: List<Fid>,
        /// Files under [`LS_READ`] alone that somebody else has written: the client drops what it read before,
        /// and keeps its lease unless it says otherwise.
        written: List<Fid>,
    }
    /// The answer to a [`LeaseRecall`].
    Unwatched {
        /// Of what was written: files that nobody has looked at since the last time; their [`LS_READ`] is given
        /// back.
        fids: List<Fid>,
    }
    /// What an MDT tells who may show attributes of files that others have read
    /// ([`crate::ops::callback::ACCESSED`]); nothing is given back.
    Accessed {
        /// Attributes of which only the time of the last access, and the version, are new.
        files: List<Attr>,
    }
    /// What an MDT says when a session opens ([`crate::mgs::Welcome::data`]).
    Grant {
        /// Identifiers the client may hand out.
        fids: FidRange,
        /// The client is the only one: it may cache everything until [`Recall`].
        sole: bool,
        /// Files up to this size live inline, in bytes.
        dom_limit: u32,
        /// Open handles of the session that the server still knows (after `resume`).
        handles: List<u64>,
        /// Last transaction number that was durable when the server started: what it answered
        /// under later ones before that is lost.
        recovered: u64,
    }
    /// A call-back of an MDT ([`crate::ops::callback::RECALL`]).
    Recall {
        /// `R_*`.
        what: u8,
        /// The inode meant; NONE with `R_SOLE_*`.
        fid: Fid,
    }
    /// A writer's report of what it did to a file's data.
    SizeReport {
        /// Size the writer made (the MDT keeps the larger unless `exact`).
        size: u64,
        /// The writer was alone: `size` is the truth, not a lower bound.
        exact: bool,
        /// 512-byte blocks over all objects, if known.
        blocks: Option<u64>,
        /// When data changed last; None: it did not.
        mtime: Option<TimeSpec>,
        /// When data was read last; None: unchanged.
        atime: Option<TimeSpec>,
    }
    /// One entry of a directory.
    DirEntry {
        /// Position after this entry; stable while the entry lives.
        cookie: u64,
        /// Name.
        name: Vec<u8>,
        /// Inode.
        fid: Fid,
        /// What it is.
        kind: FileKind,
        /// Attributes, when asked for.
        attr: Option<Attr>,
    }
    /// A lock, byte range or whole file.
    LockDesc {
        /// `L_*`.
        class: u8,
        /// `F_RDLCK` 0, `F_WRLCK` 1, `F_UNLCK` 2 (Linux values).
        kind: u8,
        /// First byte.
        start: u64,
        /// Last byte (inclusive; u64::MAX: to the end).
        end: u64,
        /// Owner, unique within the client.
        owner: u64,
        /// Process, for F_GETLK.
        pid: u32,
    }
}

/// Compound: operations after one that failed run too (each stands for itself).
pub const CF_CONTINUE: u8 = 1;
/// Compound: the client wants leases on what the answer tells of. An operation may then fail with
/// ERESTART: it and those after it did not run and are to be sent again, without anything that
/// changes something in front of them (the answer to that would wait for others' leases).
pub const CF_LEASES: u8 = 2;
/// Compound: of the leases it wants only those that go together with others' ([`LS_WRITE`] and
/// [`LS_DIRX`] are not granted), and none of a file it may be writing.
pub const CF_SHARED_LEASES: u8 = 4;
/// Compound, with [`CF_SHARED_LEASES`]: of a file that it has open for writing it wants them all,
/// [`LS_WRITE`] among them.
pub const CF_FILE_WRITES: u8 = 8;
/// Compound, with [`CF_SHARED_LEASES`]: of what it makes, and of directories whose names it changes,
/// it wants them all, [`LS_WRITE`] and [`LS_DIRX`] among them.
pub const CF_NAME_WRITES: u8 = 16;
/// Compound, with [`CF_SHARED_LEASES`]: of a file that it writes beside others it wants [`LS_LATE`].
pub const CF_LATE: u8 = 32;

/// Lease: names of a directory, present and absent, and its listing.
pub const LS_LOOKUP: u8 = 1;
/// Lease: attributes and extended attributes.
pub const LS_ATTR: u8 = 2;
/// Lease: open and close for reading without telling the MDT (called back before the inode goes).
pub const LS_OPEN: u8 = 4;
/// Lease: layout.
pub const LS_LAYOUT: u8 = 8;
/// Lease: data, size and times for reading.
pub const LS_READ: u8 = 16;
/// Lease: nobody else has anything of this inode: data, size and attributes may be changed here
/// first.
pub const LS_WRITE: u8 = 32;
/// Lease: nobody else has anything of this directory: its names may be changed here first.
pub const LS_DIRX: u8 = 64;
/// Lease: of a file that several have open and this client writes, together with others: what its
/// writes did to size and times may be told late. The bytes themselves go through, but for what was granted by
/// [`Op::LockAhead`].
pub const LS_LATE: u8 = 128;

/// Strides in one [`Op::LockAhead`] at most.
pub const MAX_STRIDES: usize = 16;

/// Give back the SOLE lease: another client is there.
pub const R_SOLE_END: u8 = 1;
/// The client is alone again: SOLE is granted.
pub const R_SOLE_BEGIN: u8 = 2;
/// Forget what is cached of one inode (data, attributes, names).
pub const R_FORGET: u8 = 3;

/// fcntl locks.
pub const L_POSIX: u8 = 0;
/// flock locks.
pub const L_FLOCK: u8 = 1;
/// The end of a file, while bytes are appended that others might append to, too. Clients take it for
/// themselves.
pub const L_APPEND: u8 = 2;

/// Create: fail when the name exists.
pub const C_EXCL: u8 = 1;
/// Create: also open the file.
pub const C_OPEN: u8 = 2;
/// Create: an unnamed file (O_TMPFILE); `name` is empty, `dir` says where it belongs.
pub const C_TMPFILE: u8 = 4;
/// Create: truncate when it exists.
pub const C_TRUNC: u8 = 8;

/// Open for reading.
pub const O_READ: u32 = 1;
/// Open for writing.
pub const O_WRITE: u32 = 2;
/// Truncate.
pub const O_TRUNC: u32 = 4;
/// Open for execution: refused while a writer has it (ETXTBSY is the kernel's; unused).
pub const O_EXEC: u32 = 8;
/// Take the handle up again after the server restarted.
pub const O_REOPEN: u32 = 16;
/// The reply need not carry inline data.
pub const O_NO_INLINE: u32 = 32;

/// Readdir: give attributes.
pub const RD_PLUS: u8 = 1;

/// Rename: fail when the target exists (RENAME_NOREPLACE).
pub const RN_NOREPLACE: u32 = 1;
/// Rename: swap (RENAME_EXCHANGE).
pub const RN_EXCHANGE: u32 = 2;
/// Rename: leave a whiteout (RENAME_WHITEOUT); asked for by [`Op::Whiteout`].
pub const RN_WHITEOUT: u32 = 4;

crate::wire_enum! {
    /// One operation. Each names the result it has when it succeeds.
    Op {
        /// Resolves a name (`.` and `..` too): [`Res::Entry`].
        1 => Lookup { dir: Fid, name: Vec<u8> },
        /// [`Res::Attr`].
        2 => GetAttr { fid: Fid },
        /// [`Res::Attr`]. Size: the caller cut the objects before (plain layouts).
        3 => SetAttr { fid: Fid, set: SetAttr },
        /// Makes any kind of inode: [`Res::Entry`]. `fid` is from the client's range.
        4 => Create {
            /// Where.
            dir: Fid,
            /// Name, empty with C_TMPFILE.
            name: Vec<u8>,
            /// The new inode.
            fid: Fid,
            /// Type and permission bits, before the umask.
            mode: u32,
            /// Ignored where the directory has a default ACL.
            umask: u32,
            /// Device number.
            rdev: u64,
            /// Target of a symlink, else empty.
            target: Vec<u8>,
            /// `C_*`.
            flags: u8,
            /// `O_*` when C_OPEN.
            open: u32,
        },
        /// [`Res::Attr`] of the file.
        5 => Link { fid: Fid, dir: Fid, name: Vec<u8> },
        /// Removes a name; `rmdir` says which kind is meant: [`Res::Attr`] of what lost it.
        6 => Unlink { dir: Fid, name: Vec<u8>, rmdir: bool },
        /// [`Res::Renamed`].
        7 => Rename { from_dir: Fid, from: Vec<u8>, to_dir: Fid, to: Vec<u8>, flags: u32 },
        /// [`Res::Entries`]; begins after `cookie` (0: at the start). `.` and `..` are not among them.
        8 => ReadDir { dir: Fid, cookie: u64, max_bytes: u32, flags: u8 },
        /// [`Res::Data`].
        9 => ReadLink { fid: Fid },
        /// [`Res::Opened`]. Opening a striped file for writing marks it A_SIZE_LAGS (durably)
        /// until the last close. With O_TRUNC: a reply without a layout means that the file is
        /// inline and empty (its objects are destroyed by the MDT); a reply with a layout (others
        /// have it open) means that the client must cut the objects to 0 itself.
        10 => Open { fid: Fid, flags: u32, handle: u64 },
        /// [`Res::Attr`]. A client that wrote must give a report.
        11 => Close { fid: Fid, handle: u64, report: Option<SizeReport> },
        /// A writer's report without close: [`Res::Attr`].
        12 => Report { fid: Fid, report: SizeReport },
        /// [`Res::Inline`]; EINVAL-free: a file that is not inline answers with its layout.
        13 => ReadInline { fid: Fid },
        /// Writes inline data; the file must fit the DoM limit, else EFBIG. `cut` first sets the
        /// size. [`Res::Attr`].
        14 => WriteInline { fid: Fid, offset: u64, data: Bytes, cut: Option<u64>, mtime: Option<TimeSpec> },
        /// Chooses OSTs for a file that has none and marks it as being written:
        /// [`Res::Layout`]. A file that holds inline data keeps it until [`Op::DropInline`]; only
        /// one client at a time may move it (EAGAIN for others).
        15 => BeginWrite { fid: Fid, size_hint: u64 },
        /// The inline data is in the objects, durably enough: drop it. [`Res::Attr`].
        16 => DropInline { fid: Fid, report: SizeReport },
        /// A wish for a file without objects (EEXIST otherwise), or a directory's default:
        /// [`Res::Attr`].
        17 => SetLayout { fid: Fid, spec: LayoutSpec },
        /// [`Res::LayoutInfo`].
        18 => GetLayout { fid: Fid },
        /// [`Res::Data`], ENODATA.
        19 => GetXattr { fid: Fid, name: Vec<u8> },
        /// `flags` as in setxattr(2): [`Res::Attr`].
        20 => SetXattr { fid: Fid, name: Vec<u8>, value: Bytes, flags: u32 },
        /// [`Res::Attr`].
        21 => RemoveXattr { fid: Fid, name: Vec<u8> },
        /// NUL-separated names: [`Res::Data`].
        22 => ListXattr { fid: Fid },
        /// [`Res::Statfs`].
        23 => Statfs { },
        /// Answers when everything this session was told is durable (invariant 2): [`Res::Done`].
        24 => Sync { },
        /// [`Res::Fids`].
        25 => AllocFids { },
        /// Takes (or with F_UNLCK gives back) a lock; `wait` parks the request until it is free
        /// or cancelled: [`Res::Done`], EAGAIN, EDEADLK.
        26 => Lock { fid: Fid, lock: LockDesc, wait: bool },
        /// The first lock that stands in the way: [`Res::Conflict`].
        27 => TestLock { fid: Fid, lock: LockDesc },
        /// Ends the wait of an owner; the parked request answers EINTR: [`Res::Done`].
        28 => CancelLock { fid: Fid, owner: u64, class: u8 },
        /// Paths of a file from the root, one per link (at most 64): [`Res::Paths`].
        29 => FidToPath { fid: Fid },
        /// State of the target as JSON, for `status`: [`Res::Data`].
        30 => Status { },
        /// Gives leases back unasked (those used longest ago first): [`Res::Done`]. A grant of an
        /// answer to a request sent before this one is not to be taken (the MDT may have granted
        /// first).
        31 => Release { leases: List<Lease> },
        /// Asks for a lease by name; what was granted is in the answer's `leases`: [`Res::Attr`].
        /// Among others, exclusive ones asked for one after the other are a wish: leases in the way
        /// of any of them are called back together before the first; what is in the way then is
        /// EAGAIN.
        32 => Lease { fid: Fid, bits: u8 },
        /// As [`Op::Rename`], and the old name becomes a whiteout: a character device 0:0, which hides a
        /// name of a lower layer (RENAME_WHITEOUT). `fid` is from the client's range: [`Res::Renamed`].
        33 => Whiteout { from_dir: Fid, from: Vec<u8>, to_dir: Fid, to: Vec<u8>, flags: u32, fid: Fid },
        /// Of a call-back that is not answered yet ([`LeaseRecall::call`]): all but what is `left` is given back or told, and
        /// `unwatched` is as in [`Unwatched`]. Its answer is about what is left, and keeps no other call-back from being
        /// sent. One that is answered is passed over: [`Res::Done`].
        34 => PutOff { call: u64, left: List<Fid>, unwatched: List<Fid> },
        /// Of a file that it writes beside others, under [`LS_LATE`]: from now on this session touches nothing of its
        /// objects but `strides` (no more than [`MAX_STRIDES`]), until it says otherwise. Empty: it goes where it likes
        /// again, which is answered when nobody's grant rests on the promise any more: [`Res::LockAhead`].
        35 => LockAhead { fid: Fid, strides: List<Stride> },
    }
}

crate::wire_enum! {
    /// The result of one operation.
    Res {
        /// The operation failed; those after it did not run.
        0 => Failed { errno: u16 },
        /// Nothing to tell.
        1 => Done { },
        /// An inode.
        2 => Attr { attr: Attr },
        /// A resolved or created name; `open` when asked for.
        3 => Entry { attr: Attr, created: bool, open: Option<OpenInfo> },
        /// Rename's outcome; `replaced` lost a link (or was exchanged).
        4 => Renamed { moved: Attr, replaced: Option<Attr> },
        /// Part of a directory.
        5 => Entries { entries: List<DirEntry>, end: bool },
        /// Bytes.
        6 => Data { data: Bytes },
        /// An open file.
        7 => Opened { attr: Attr, open: OpenInfo },
        /// Inline data, or the layout when the file is not inline.
        8 => Inline { attr: Attr, data: Option<Bytes>, layout: Option<Layout> },
        /// Where to write.
        9 => Layout { attr: Attr, layout: Layout },
        /// Layout of a file, wish of a file without objects, or default of a directory.
        10 => LayoutInfo { layout: Option<Layout>, spec: Option<LayoutSpec> },
        /// Space of the file system.
        11 => Statfs { total: u64, free: u64, available: u64, files: u64, files_free: u64 },
        /// Identifiers.
        12 => Fids { range: FidRange },
        /// A lock in the way, if any.
        13 => Conflict { lock: Option<LockDesc> },
        /// Paths.
        14 => Paths { paths: List<Vec<u8>> },
        /// Whether the MDT took the promise (if not, one of before stands), and whether all others who have the file open
        /// have promised to keep out of it: then what is written there may wait in memory, as long as [`LS_LATE`] is not
        /// called back.
        15 => LockAhead { kept: bool, granted: bool },
    }
}

crate::wire_struct! {
    /// What an open gives.
    OpenInfo {
        /// Handle, unique within the session.
        handle: u64,
        /// Inline data, if the file is inline and the caller wants it.
        inline: Option<Bytes>,
        /// Layout, if the file has objects.
        layout: Option<Layout>,
        /// Several sessions have the file open, one of them for writing: it is served directly,
        /// nobody has leases on it.
        shared: bool,
    }
}

impl Compound {
    /// Operations of now, without a wish for leases.
    pub fn new(cred: Cred, ops: Vec<Op>) -> Compound {
        Compound { cred, flags: 0, at: List(Vec::new()), ops: List(ops) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_of_a_compound() {
        let c = Compound {
            cred: Cred { uid: 1, gid: 2, groups: List(vec![3]) },
            flags: CF_LEASES,
            at: List(vec![TimeSpec { sec: 7, nsec: 8 }]),
            ops: List(vec![
                Op::Lookup { dir: Fid::new(5, 6), name: b"ab".to_vec() },
                Op::Open { fid: Fid::CURRENT, flags: O_READ, handle: 0 },
            ]),
        };
        let mut expect = vec![1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 2];
        expect.extend([1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0]);
        expect.extend([1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
        expect.push(10);
        expect.extend([0xff; 12]);
        expect.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(c.to_bytes(), expect);
        assert_eq!(Compound::from_bytes(&expect), Ok(c));
    }

    #[test]
    fn golden_bytes_of_a_call_back_and_its_answer() {
        let fid = |n: u8| [n, 0, 0, 0, 0, 0, 0, 0, n + 1, 0, 0, 0, 0, 0, 0, 0];
        let call = LeaseRecall {
            call: 9,
            back: List(vec![Lease { fid: Fid::new(1, 2), bits: LS_ATTR | LS_READ }]),
            glimpse: List(vec![Fid::new(3, 4)]),
            written: List(vec![Fid::new(5, 6), Fid::new(7, 8)]),
        };
        let mut expect = vec![9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        expect.extend(fid(1));
        expect.extend([18, 1, 0, 0, 0]);
        expect.extend(fid(3));
        expect.extend([2, 0, 0, 0]);
        expect.extend([fid(5), fid(7)].concat());
        assert_eq!(call.to_bytes(), expect);
        assert_eq!(LeaseRecall::from_bytes(&expect), Ok(call));
        let answer = Unwatched { fids: List(vec![Fid::new(5, 6)]) };
        let expect = [&[1, 0, 0, 0][..], &fid(5)].concat();
        assert_eq!(answer.to_bytes(), expect);
        assert_eq!(Unwatched::from_bytes(&expect), Ok(answer));
        let expect = [&[1, 0, 0, 0][..], &[7; 116]].concat();
        let attr = crate::Attr::from_bytes(&[7; 116]);
        let told = attr.map(|attr| Accessed { files: List(vec![attr]) });
        assert_eq!(told.as_ref().map(Wire::to_bytes), Ok(expect.clone()));
        assert_eq!(Accessed::from_bytes(&expect), told);
        let (left, unwatched) = (List(vec![Fid::new(3, 4)]), List(vec![Fid::new(5, 6)]));
        let op = Op::PutOff { call: 9, left, unwatched };
        let expect =
            [&[34, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0][..], &fid(3), &[1, 0, 0, 0], &fid(5)];
        assert_eq!(op.to_bytes(), expect.concat());
        assert_eq!(Op::from_bytes(&expect.concat()), Ok(op));
    }

    #[test]
    fn golden_bytes_of_a_promise_and_its_answer() {
        let stride = Stride { start: 5, len: 6, step: 7 };
        let op = Op::LockAhead { fid: Fid::new(3, 4), strides: List(vec![stride]) };
        let mut expect = vec![0; 45];
        (expect[0], expect[1], expect[9], expect[17]) = (35, 3, 4, 1);
        (expect[21], expect[29], expect[37]) = (5, 6, 7);
        assert_eq!(op.to_bytes(), expect);
        assert_eq!(Op::from_bytes(&expect), Ok(op));
        let res = Res::LockAhead { kept: true, granted: false };
        assert_eq!(res.to_bytes(), [15, 1, 0]);
        assert_eq!(Res::from_bytes(&[15, 1, 0]), Ok(res));
    }

    proptest! {
        #[test]
        fn decoders_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(c) = Compound::from_bytes(&bytes) {
                prop_assert_eq!(c.to_bytes(), bytes.clone());
            }
            if let Ok(r) = CompoundReply::from_bytes(&bytes) {
                prop_assert_eq!(r.to_bytes(), bytes);
            }
        }
    }
}
