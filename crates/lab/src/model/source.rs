//! Where random steps come from: a seeded generator that prefers names that exist, crosses sizes
//! that matter (pages, stripes, the inline limit) and now and then asks for the absurd. It learns
//! what exists from the results on the reference, so equal seeds give equal runs.

use super::op::{At, LockOp, Op, Outcome, Raw, SLOTS, Step, When};
use super::posix::IDENTITIES;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// Parts of the interface a run may leave out, by name.
pub const FEATURES: [&str; 13] = [
    "users", "devices", "locks", "mmap", "direct", "acl", "xattr", "tmpfile", "holes", "huge",
    "copy", "oddnames", "btime",
];

/// Names remembered of each kind, so that generating stays cheap in long runs.
const KNOWN: usize = 48;

pub struct Source {
    rng: StdRng,
    without: BTreeSet<String>,
    files: Vec<Raw>,
    dirs: Vec<Raw>,
    others: Vec<Raw>,
    open: [bool; SLOTS as usize],
}

impl Source {
    pub fn new(seed: u64, without: &BTreeSet<String>) -> Self {
        Source {
            rng: StdRng::seed_from_u64(seed),
            without: without.clone(),
            files: vec![],
            dirs: vec![],
            others: vec![],
            open: [false; SLOTS as usize],
        }
    }

    fn has(&self, feature: &str) -> bool {
        !self.without.contains(feature)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_ratio(1, n)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())].clone()
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let who = match self.has("users") && self.one_in(3) {
            true => self.rng.random_range(1..IDENTITIES.len() as u8),
            false => 0,
        };
        let umask = self.pick(&[0o022, 0o022, 0, 0o077, 0o027, 0o777]);
        let watch = self.one_in(4);
        let op = loop {
            if let Some(op) = self.op() {
                break op;
            }
        };
        // Of a file with set-id bits that is open for writing, FUSE's kernel does not tell a
        // stranger's chown of nothing from what comes before a stranger's write.
        let nothing = matches!(op, Op::Chown { uid: None, gid: None, .. });
        Step { who: if nothing { 0 } else { who }, umask, watch, op }
    }

    /// Learns from what the reference said.
    pub fn note(&mut self, step: &Step, outcome: &Outcome) {
        let ok = outcome.is_ok();
        match &step.op {
            Op::Open { slot, path, flags, .. } => {
                self.open[usize::from(*slot)] = ok;
                if ok && flags & libc::O_CREAT != 0 {
                    remember(&mut self.files, path);
                }
            }
            Op::Close { slot } => self.open[usize::from(*slot)] = false,
            Op::Mkdir { path, .. } if ok => remember(&mut self.dirs, path),
            Op::Mknod { path, .. } | Op::Symlink { path, .. } if ok => {
                remember(&mut self.others, path);
            }
            Op::Hardlink { to, .. } | Op::LinkSlot { to, .. } if ok => {
                remember(&mut self.files, to);
            }
            Op::Unlink { path } | Op::Rmdir { path } if ok => self.forget(path),
            Op::Rename { from, to, flags: flags @ (0 | 1 | 4 | 5) } if ok => {
                for known in [&mut self.files, &mut self.dirs, &mut self.others] {
                    if known.contains(from) {
                        remember(known, to);
                    }
                }
                self.forget(from);
                if flags & 4 != 0 {
                    // A whiteout.
                    remember(&mut self.others, from);
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, path: &Raw) {
        for known in [&mut self.files, &mut self.dirs, &mut self.others] {
            known.retain(|k| k != path);
        }
    }

    fn name(&mut self) -> Vec<u8> {
        if self.has("oddnames") && self.one_in(12) {
            return match self.rng.random_range(0..9) {
                0 => vec![b'L'; 255],
                1 => vec![b'M'; 256],
                2 => vec![0xff; 255],
                3 => b"\xff\xfe".to_vec(),
                4 => b"new\nline".to_vec(),
                5 => b" ".to_vec(),
                6 => "\u{e9}\u{1f600}".as_bytes().to_vec(),
                7 => b"\\*?".to_vec(),
                _ => b".hidden".to_vec(),
            };
        }
        let text = b"abcdefgh";
        vec![text[self.rng.random_range(0..text.len())]]
    }

    fn fresh(&mut self) -> Raw {
        let name = self.name();
        if self.dirs.is_empty() || self.one_in(3) {
            return Raw(name);
        }
        let dirs = self.dirs.clone();
        let dir = self.pick(&dirs);
        let depth = dir.0.iter().filter(|&&b| b == b'/').count();
        if depth > 5 { Raw(name) } else { Raw([dir.0.as_slice(), b"/", name.as_slice()].concat()) }
    }

    fn known(&mut self, kind: u8) -> Raw {
        let list = match kind {
            0 => &self.files,
            1 => &self.dirs,
            _ => &self.others,
        };
        match list.choose(&mut self.rng) {
            Some(path) => path.clone(),
            None => self.fresh(),
        }
    }

    fn path(&mut self) -> Raw {
        let base = match self.rng.random_range(0..10) {
            0..=4 => self.known(0),
            5..=6 => self.known(1),
            7 => self.known(2),
            _ => self.fresh(),
        };
        if !self.one_in(25) {
            return base;
        }
        let with = |tail: &[u8]| Raw([base.0.as_slice(), tail].concat());
        match self.rng.random_range(0..8) {
            0 => Raw::new(""),
            1 => Raw::new("."),
            2 => with(b"/"),
            3 => with(b"/."),
            4 => with(b"/../a"),
            5 => with(b"//b"),
            6 => Raw([[b'.', b'/'].repeat(2046), b"abc".to_vec()].concat()),
            _ => Raw([[b'.', b'/'].repeat(2046), b"abcd".to_vec()].concat()),
        }
    }

    fn at(&mut self) -> At {
        match self.rng.random_range(0..6) {
            0 | 1 => At::Slot(self.slot()),
            2 => At::Link(self.path()),
            _ => At::Name(self.path()),
        }
    }

    fn slot(&mut self) -> u8 {
        let open: Vec<u8> = (0..SLOTS).filter(|&s| self.open[usize::from(s)]).collect();
        if open.is_empty() || self.one_in(40) {
            return self.rng.random_range(0..SLOTS);
        }
        self.pick(&open)
    }

    fn mode(&mut self) -> u32 {
        self.pick(&[0o644, 0o600, 0o666, 0o755, 0o700, 0o777, 0, 0o4755, 0o2755, 0o6777, 0o1777])
    }

    fn offset(&mut self) -> i64 {
        let near = self.pick(&[0i64, 0, 4096, 8192, 65_536, 131_072, 262_144, 1 << 20]);
        match self.rng.random_range(0..12) {
            0 => -1,
            1 if self.has("huge") => self.pick(&[1 << 31, 1 << 32, 1 << 40]),
            2..=4 => self.rng.random_range(0..200_000),
            5..=7 => (near + self.rng.random_range(-3..=3)).max(0),
            _ => near,
        }
    }

    fn len(&mut self) -> u32 {
        match self.rng.random_range(0..8) {
            0 => 0,
            1 => 1,
            2 => self.pick(&[4096, 65_536, 65_535, 65_537]),
            3 => self.rng.random_range(1..150_000),
            _ => self.rng.random_range(1..9000),
        }
    }

    fn open_flags(&mut self) -> i32 {
        let mut flags =
            self.pick(&[libc::O_RDWR, libc::O_RDWR, libc::O_RDWR, libc::O_RDONLY, libc::O_WRONLY])
                | libc::O_NONBLOCK;
        for (flag, odds) in [
            (libc::O_CREAT, 2),
            (libc::O_EXCL, 8),
            (libc::O_TRUNC, 6),
            (libc::O_APPEND, 6),
            (libc::O_NOFOLLOW, 8),
            (libc::O_SYNC, 30),
            (libc::O_DSYNC, 30),
            (libc::O_DIRECTORY, 30),
        ] {
            if self.one_in(odds) {
                flags |= flag;
            }
        }
        // O_CREAT|O_DIRECTORY is refused by newer kernels before any file system is asked;
        // O_EXCL without O_CREAT is undefined.
        if flags & libc::O_DIRECTORY != 0 {
            flags &= !(libc::O_CREAT | libc::O_TRUNC);
        }
        if flags & libc::O_CREAT == 0 {
            flags &= !libc::O_EXCL;
        }
        if self.has("direct") && flags & libc::O_APPEND == 0 && self.one_in(10) {
            flags |= libc::O_DIRECT;
        }
        flags
    }

    fn op(&mut self) -> Option<Op> {
        Some(match self.rng.random_range(0..100) {
            0..=15 => self.op_open(),
            16..=39 => self.op_data()?,
            40..=46 => self.op_space()?,
            47..=69 => self.op_names()?,
            70..=79 => self.op_attributes(),
            80..=89 => self.op_xattr()?,
            90..=92 => self.op_lock()?,
            _ => self.op_look()?,
        })
    }

    fn op_open(&mut self) -> Op {
        let slot = self.rng.random_range(0..SLOTS);
        if self.one_in(10) {
            return Op::Close { slot };
        }
        if self.has("tmpfile") && self.one_in(25) {
            let path = if self.one_in(3) { Raw::new(".") } else { self.known(1) };
            let flags = libc::O_TMPFILE | libc::O_RDWR;
            return Op::Open { slot, path, flags, mode: self.mode() };
        }
        let (path, flags, mode) = (self.path(), self.open_flags(), self.mode());
        Op::Open { slot, path, flags, mode }
    }

    fn op_data(&mut self) -> Option<Op> {
        let (slot, off, len, fill) = (self.slot(), self.offset(), self.len(), self.rng.random());
        Some(match self.rng.random_range(0..20) {
            0..=3 => Op::Write { slot, len, fill },
            4..=8 => Op::Pwrite { slot, off, len, fill },
            9..=11 => Op::Read { slot, len },
            12..=14 => Op::Pread { slot, off, len },
            15 => Op::Seek { slot, whence: self.pick(&[0, 0, 1, 2, 7]), off },
            16 if self.has("mmap") => Op::MmapRead { slot, off: off.clamp(0, 1 << 20) as u64, len },
            17 if self.has("mmap") => {
                Op::MmapWrite { slot, off: off.clamp(0, 1 << 20) as u64, len, fill }
            }
            18 => Op::Sync { slot, data_only: self.rng.random() },
            19 if self.has("holes") => Op::MapHoles { slot },
            _ => return None,
        })
    }

    fn op_space(&mut self) -> Option<Op> {
        let (off, len) = (self.offset(), self.len());
        Some(match self.rng.random_range(0..4) {
            0 | 1 => Op::Truncate { at: self.at(), len: off },
            2 => {
                let mode = self.pick(&[0, 0, 1, 3, 3, 3, 2, 0x10, 0x11, 0x13, 0x4000]);
                let off = off.min(2 << 20);
                Op::Fallocate { slot: self.slot(), mode, off, len: i64::from(len) }
            }
            _ if self.has("copy") => {
                let offset = |s: &mut Self| {
                    let off = s.offset().clamp(0, 2 << 20) as u64;
                    s.rng.random::<bool>().then_some(off)
                };
                let (from_off, to_off) = (offset(self), offset(self));
                Op::CopyRange { from: self.slot(), from_off, to: self.slot(), to_off, len }
            }
            _ => return None,
        })
    }

    fn op_names(&mut self) -> Option<Op> {
        Some(match self.rng.random_range(0..24) {
            0..=4 => Op::Mkdir { path: self.fresh_mostly(), mode: self.mode() | 0o500 },
            5 => Op::Rmdir { path: self.path() },
            6..=9 => Op::Unlink { path: self.path() },
            10..=14 => {
                let (from, to) = (self.path(), self.path());
                // A whiteout is a device.
                let flags: &[u32] = match self.has("devices") {
                    true => &[0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6],
                    false => &[0, 0, 0, 1, 2, 3],
                };
                Op::Rename { from, to, flags: self.pick(flags) }
            }
            15 | 16 => {
                let (from, to) = (self.path(), self.fresh_mostly());
                Op::Hardlink { from, to, follow: self.one_in(4) }
            }
            17 => Op::LinkSlot { slot: self.slot(), to: self.fresh() },
            18 | 19 => {
                let target = match self.rng.random_range(0..6) {
                    0 => Raw::new("../a"),
                    1 => Raw::new(".."),
                    2 => Raw(vec![b't'; self.pick(&[1, 100, 4095])]),
                    _ => self.path(),
                };
                Op::Symlink { target, path: self.fresh_mostly() }
            }
            20 => Op::Readlink { path: self.path() },
            21 | 22 => {
                let kinds = [libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFREG, 0, libc::S_IFDIR];
                let devices = [libc::S_IFCHR, libc::S_IFBLK];
                let kind = match self.has("devices") && self.one_in(2) {
                    true => self.pick(&devices),
                    false => self.pick(&kinds),
                };
                let (major, minor) = self.pick(&[(250, 5), (0, 0), (4000, 70_000)]);
                let path = self.fresh_mostly();
                Op::Mknod { path, mode: kind | self.mode(), major, minor }
            }
            _ if self.one_in(6) => Op::Chain { path: self.fresh(), len: self.pick(&[3, 38, 41]) },
            _ => return None,
        })
    }

    fn fresh_mostly(&mut self) -> Raw {
        if self.one_in(5) { self.path() } else { self.fresh() }
    }

    fn when(&mut self) -> When {
        match self.rng.random_range(0..5) {
            0 => When::Now,
            1 => When::Omit,
            _ => When::Set {
                sec: self.pick(&[0, 1, -1, -1_000_000, 946_684_800, i64::from(i32::MAX), 1 << 32]),
                nsec: self.pick(&[0, 1, 999_999_999, 123_456_789, 1_000_000_000]),
            },
        }
    }

    fn id(&mut self) -> Option<u32> {
        self.pick(&[None, Some(0), Some(1000), Some(1001), Some(2000), Some(65_534)])
    }

    fn op_attributes(&mut self) -> Op {
        let at = self.at();
        match self.rng.random_range(0..8) {
            0..=2 => Op::Chmod { at, mode: self.mode() },
            3..=5 => Op::Chown { at, uid: self.id(), gid: self.id() },
            _ => Op::Times { at, atime: self.when(), mtime: self.when() },
        }
    }

    fn op_xattr(&mut self) -> Option<Op> {
        if self.has("acl") && self.one_in(3) {
            return Some(self.op_acl());
        }
        if !self.has("xattr") {
            return None;
        }
        let long = |n: usize| [b"user.".to_vec(), vec![b'x'; n - 5]].concat();
        let name = match self.rng.random_range(0..16) {
            0 => Raw::new(long(255)),
            1 => Raw::new(long(256)),
            2 => Raw::new("user."),
            3 => Raw::new("nonsense.a"),
            4 => Raw::new("user.\u{e9}\n"),
            5 | 6 => Raw::new("trusted.t"),
            7 => Raw::new("security.lab"),
            8 => Raw::new(""),
            9..=12 => Raw::new("user.a"),
            _ => Raw::new("user.b"),
        };
        let at = self.at();
        Some(match self.rng.random_range(0..10) {
            0..=4 => {
                let len = self.pick(&[0usize, 1, 20, 200]);
                let fill: u8 = self.rng.random_range(0..4);
                let flags = self.pick(&[0, 0, 1, 2, 3]);
                Op::SetXattr { at, name, value: Raw(vec![fill; len]), flags }
            }
            5 | 6 => Op::GetXattr { at, name },
            7 => Op::ListXattr { at },
            _ => Op::RemoveXattr { at, name },
        })
    }

    fn op_acl(&mut self) -> Op {
        let name = match self.one_in(3) {
            true => Raw::new("system.posix_acl_default"),
            false => Raw::new("system.posix_acl_access"),
        };
        let at = self.at();
        match self.rng.random_range(0..8) {
            0 => Op::RemoveXattr { at, name },
            1 | 2 => Op::GetXattr { at, name },
            _ => {
                let value = self.acl();
                Op::SetXattr { at, name, value, flags: 0 }
            }
        }
    }

    /// An ACL in the kernel's extended attribute form; now and then an invalid one.
    fn acl(&mut self) -> Raw {
        let perm = |s: &mut Self| s.rng.random_range(0..8u16);
        const NONE: u32 = u32::MAX;
        let mut entries = vec![(1u16, perm(self), NONE)];
        for uid in [1000, 1001] {
            if self.rng.random() {
                entries.push((2, perm(self), uid));
            }
        }
        entries.push((4, perm(self), NONE));
        if self.rng.random() {
            entries.push((8, perm(self), 2000));
        }
        if entries.len() > 2 && !self.one_in(12) {
            entries.push((0x10, perm(self), NONE));
        }
        entries.push((0x20, perm(self), NONE));
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        Raw(out)
    }

    fn op_lock(&mut self) -> Option<Op> {
        if !self.has("locks") {
            return None;
        }
        let slot = self.slot();
        let op = self.pick(&[LockOp::Shared, LockOp::Exclusive, LockOp::Unlock]);
        let (start, len) = (self.rng.random_range(0..6) * 10, self.pick(&[0, 5, 10, 25]));
        Some(match self.rng.random_range(0..3) {
            0 => Op::Flock { slot, op },
            1 => Op::RangeLock { slot, op, start, len },
            _ => {
                let op = if op == LockOp::Unlock { LockOp::Shared } else { op };
                Op::TestLock { slot, op, start, len }
            }
        })
    }

    fn op_look(&mut self) -> Option<Op> {
        Some(match self.rng.random_range(0..8) {
            0..=2 => Op::Stat { at: self.at() },
            3 | 4 => {
                let path = if self.one_in(3) { Raw::new(".") } else { self.known(1) };
                Op::Readdir { path }
            }
            5 | 6 => Op::Access { path: self.path(), mode: self.rng.random_range(0..8) },
            _ => Op::Statfs { path: self.path() },
        })
    }
}

fn remember(list: &mut Vec<Raw>, path: &Raw) {
    if !list.contains(path) {
        if list.len() == KNOWN {
            list.remove(0);
        }
        list.push(path.clone());
    }
}
