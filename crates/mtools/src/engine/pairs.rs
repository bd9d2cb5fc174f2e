//! What has been learned about copying from one file system to another: asked once, not for each file.

use super::Reflink;
use super::trial::Trial;
use parking_lot::Mutex;
use rustix::fs::fstatfs;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pairs remembered; beyond it the oldest is forgotten and asked again.
pub const PAIRS_MAX: usize = 64;

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const FUSE: u64 = 0x6573_5546;
/// The extended attribute that tells a file's identity.
const FID: &str = "lustre.fid";
/// File systems of other hosts, which copy there: NFS 4.2, CIFS, SMB, Ceph.
const FAR: [u64; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400];
/// Local file systems whose files can share blocks: btrfs, XFS, bcachefs, ZFS, OCFS2, GFS2.
const SHARING: [u64; 6] =
    [0x9123_683e, 0x5846_5342, 0xca45_1a4e, 0x2fc1_2fc1, 0x7461_636f, 0x0116_1970];

/// A source's and a destination's file system.
pub struct Pair {
    /// Ends of FICLONE and copy_file_range: once they were refused they are not asked again.
    clones: AtomicBool,
    offloads: AtomicBool,
    /// Only what this host has not read yet is faster copied by the file system: both sides are one FUSE mount.
    pub only_cold: bool,
    /// The destination is memory: pages can be filled in place.
    pub to_memory: bool,
    /// The source is memory: there is nothing to read ahead.
    pub from_memory: bool,
    /// Whether reads and writes past the page cache are faster.
    pub direct_read: Trial,
    pub direct_write: Trial,
}

impl Pair {
    fn ask(src: &File, dst: &File, same: bool) -> Self {
        let magic = |file: &File| fstatfs(file).map_or(0, |fs| fs.f_type as u64);
        let (from, to) = (magic(src), magic(dst));
        let memory = |magic| magic == TMPFS || magic == RAMFS;
        let offloads = from == to && (FAR.contains(&to) || same && SHARING.contains(&to));
        Self {
            clones: AtomicBool::new(true),
            offloads: AtomicBool::new(offloads || same && to == FUSE),
            only_cold: to == FUSE,
            to_memory: memory(to),
            from_memory: memory(from),
            direct_read: Trial::new(pinstripe(src, from)),
            direct_write: Trial::new(pinstripe(dst, to)),
        }
    }

    /// Whether FICLONE is worth the call.
    pub fn clones(&self, wish: Reflink) -> bool {
        wish == Reflink::Always || self.clones.load(Ordering::Relaxed)
    }

    pub fn never_clones(&self) {
        self.clones.store(false, Ordering::Relaxed);
    }

    /// copy_file_range was not refused.
    pub fn offloads(&self) -> bool {
        self.offloads.load(Ordering::Relaxed)
    }

    pub fn never_offloads(&self) {
        self.offloads.store(false, Ordering::Relaxed);
    }
}

/// Whether it is a file of Pinstripe: of what comes through FUSE only that tells its FID. There large files go
/// two to four times as fast past the page cache of the mount, which takes one write of a file at a time.
fn pinstripe(file: &File, magic: u64) -> bool {
    magic == FUSE && rustix::fs::fgetxattr(file, FID, &mut [0_u8; 64][..]).is_ok()
}

/// All pairs of a run, by device numbers.
#[derive(Default)]
pub struct Pairs {
    known: Mutex<Vec<((u64, u64), Arc<Pair>)>>,
}

impl Pairs {
    /// What is known of the file systems of these two files, which are on devices `from` and `to`.
    pub fn of(&self, src: &File, from: u64, dst: &File, to: u64) -> Arc<Pair> {
        let mut known = self.known.lock();
        if let Some((_, pair)) = known.iter().find(|(devices, _)| *devices == (from, to)) {
            return pair.clone();
        }
        if known.len() >= PAIRS_MAX {
            known.remove(0);
        }
        let pair = Arc::new(Pair::ask(src, dst, from == to));
        known.push(((from, to), pair.clone()));
        pair
    }
}
