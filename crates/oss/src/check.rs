//! Reading a target from outside, for `fsck`: which objects there are, and whether their blocks
//! have their checksums.
//!
//! Assumptions: the target is not being served. Never does: change anything.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use proto::CHECKSUM_BLOCK;
use proto::layout::ObjectId;
use rustix::fs::{FileType, FlockOperation, OFlags, SeekFrom, flock, fstat, seek};
use rustix::io::Errno;

use crate::boot::{BOOT, Boot};
use crate::fences::FENCES;
use crate::files::{Dir, OBJECTS};
use crate::io::read_at;
use crate::label::{LABEL, OstLabel, RECORD_MAX};
use crate::name::{BUCKETS, SIDECAR_SUFFIX, bucket, object_path, parse_name, sidecar_path};
use crate::ost::Ost;
use crate::side;
use crate::sidecar::{HEADER_LEN, believed, is_blank, position, read_header};
use crate::verifier::VERIFIER;
use crate::{LabelError, OstError};

const BLOCK: u64 = CHECKSUM_BLOCK as u64;
/// Blocks read at once when checksums are verified.
const BLOCKS_AT_ONCE: usize = 256;

/// A target that is not being served.
pub struct OstDir {
    root: Dir,
    objects: Dir,
    /// Who it is.
    pub label: OstLabel,
    /// Its boots.
    pub boot: Boot,
}

/// Something found in a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object with its size in bytes and its 512-byte blocks.
    Object {
        /// Which.
        id: ObjectId,
        /// Bytes.
        size: u64,
        /// 512-byte blocks of the local file system.
        blocks: u64,
    },
    /// Checksums without an object: litter.
    LoneSidecar(ObjectId),
    /// Something no OST makes, by its path below the target's directory.
    Foreign(String),
}

/// What verifying an object found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks that have the checksum they were stored with.
    pub good: u64,
    /// Blocks (of data, not holes) nobody has a checksum of.
    pub unknown: u64,
    /// Offsets of blocks that do not have theirs, at most [`BAD_MAX`] of them.
    pub bad: Vec<u64>,
    /// Why the file of checksums is unreadable, if it is.
    pub sidecar: Option<&'static str>,
}

/// Most offsets of bad blocks told for one object.
pub const BAD_MAX: usize = 1000;

impl OstDir {
    /// Opens a target for reading; refuses one that is being served.
    pub fn open(path: &Path) -> Result<OstDir, OstError> {
        let fail = |e| OstError::io(format!("opening OST {}", path.display()))(e);
        let root = Dir::open(path).map_err(fail)?;
        let label = OstLabel::read(&root, path)?;
        let lock = root.file(LABEL, OFlags::RDONLY).map_err(fail)?;
        if flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::AGAIN) {
            return Err(OstError::InUse { path: path.to_path_buf(), name: label.name() });
        }
        // Only a question: the checker reads what lies there, and keeps nobody out.
        flock(&lock, FlockOperation::Unlock).map_err(fail)?;
        let bad = |why: LabelError| OstError::Label { path: path.join(BOOT), why };
        let boot = Boot::from_bytes(&root.read(BOOT, RECORD_MAX).map_err(fail)?).map_err(bad)?;
        let objects = root.sub(OBJECTS).map_err(fail)?;
        Ok(OstDir { root, objects, label, boot })
    }

    /// Which of the records beside label and boot record cannot be read as what they are: the file, and
    /// what to do.
    pub fn damaged(&self, path: &Path) -> Result<Vec<(&'static str, String)>, OstError> {
        let found = [
            (VERIFIER, side::verifier(&self.root, path).map(drop)),
            (FENCES, side::fences(&self.root, path).map(drop)),
        ];
        let mut damaged = Vec::new();
        for (name, read) in found {
            match read {
                Ok(()) => {}
                Err(OstError::Record { why, remedy, .. }) => {
                    damaged.push((name, format!("{why}; {remedy}")));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(damaged)
    }

    /// Calls `found` for all that lies in the target, directory by directory.
    pub fn walk(&self, mut found: impl FnMut(Entry)) -> Result<(), OstError> {
        let records = [LABEL, BOOT, VERIFIER, FENCES];
        let own = |name: &str| {
            records.contains(&name.strip_suffix(".new").unwrap_or(name))
                || [OBJECTS, "lost+found"].contains(&name)
        };
        for name in self.root.names().map_err(OstError::io("reading the target"))? {
            if !name.to_str().is_some_and(own) {
                found(Entry::Foreign(name.to_string_lossy().into_owned()));
            }
        }
        for dir in self.objects.names().map_err(OstError::io("reading objects"))? {
            let shown = format!("{OBJECTS}/{}", dir.to_string_lossy());
            match dir.to_str().filter(|d| is_bucket(d)).map(|d| (d, self.objects.sub(d))) {
                Some((name, Ok(open))) => walk_bucket(&open, name, &shown, &mut found)?,
                Some((_, Err(Errno::NOTDIR | Errno::LOOP))) | None => found(Entry::Foreign(shown)),
                Some((_, Err(e))) => return Err(OstError::io(format!("opening {shown}"))(e)),
            }
        }
        Ok(())
    }

    /// Compares the blocks of an object with their stored checksums. Holes are skipped, so that a
    /// sparse object of many TiB takes no time.
    pub fn verify(&self, id: &ObjectId) -> Result<Verified, OstError> {
        let fail = |e| OstError::io(format!("reading object {}", crate::name::object_name(id)))(e);
        let mut result = Verified::default();
        let data = self.objects.file(&object_path(id), OFlags::RDONLY).map_err(fail)?;
        let sums = self.sidecar(id, &mut result).map_err(fail)?;
        let size = fstat(&data).map_err(fail)?.st_size as u64;
        let mut at = 0;
        while at < size {
            at = match seek(&data, SeekFrom::Data(at)) {
                Ok(data) => data / BLOCK * BLOCK,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(fail(e)),
            };
            let hole = seek(&data, SeekFrom::Hole(at)).map_err(fail)?.max(at + 1);
            while at < hole {
                let blocks = (hole - at).div_ceil(BLOCK).min(BLOCKS_AT_ONCE as u64) as usize;
                verify_run(&data, sums.as_ref(), at, blocks, &mut result).map_err(fail)?;
                at += blocks as u64 * BLOCK;
            }
        }
        Ok(result)
    }

    /// The sidecar, if there is one whose sums are to be believed.
    fn sidecar(
        &self,
        id: &ObjectId,
        result: &mut Verified,
    ) -> Result<Option<std::os::fd::OwnedFd>, Errno> {
        let fd = match self.objects.file(&sidecar_path(id), OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut bytes = [0; HEADER_LEN as usize];
        let n = read_at(fd.as_fd(), &mut bytes, 0)?;
        match read_header(&bytes[..n], id) {
            Ok(mark) => Ok(believed(mark, &self.boot, false).then_some(fd)),
            Err(_) if n == 0 => Ok(None),
            // A power cut took the header's sector of a file that was never synced.
            Err(_) if is_blank(&bytes) && self.boot.ever_crashed() => Ok(None),
            Err(why) => {
                result.sidecar = Some(why);
                Ok(None)
            }
        }
    }
}

fn verify_run(
    data: impl AsFd,
    sums: Option<&std::os::fd::OwnedFd>,
    at: u64,
    blocks: usize,
    result: &mut Verified,
) -> Result<(), Errno> {
    let mut bytes = vec![0; blocks * CHECKSUM_BLOCK];
    let n = read_at(data.as_fd(), &mut bytes, at)?;
    let mut stored = vec![0; blocks * 4];
    if let Some(fd) = sums {
        read_at(fd.as_fd(), &mut stored, position(at / BLOCK))?;
    }
    // A block at the object's end counts as filled up with zeros, which `bytes` holds.
    let pairs = bytes.chunks_exact(CHECKSUM_BLOCK).zip(stored.chunks_exact(4));
    for (i, (block, sum)) in pairs.enumerate().take(n.div_ceil(CHECKSUM_BLOCK)) {
        match u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]) {
            0 => result.unknown += 1,
            sum if sum == crc32c::crc32c(block) => result.good += 1,
            _ if result.bad.len() < BAD_MAX => result.bad.push(at + i as u64 * BLOCK),
            _ => {}
        }
    }
    Ok(())
}

fn is_bucket(name: &str) -> bool {
    (0..BUCKETS).any(|i| format!("{i:02x}") == name)
}

fn walk_bucket(
    dir: &Dir,
    name: &str,
    shown: &str,
    found: &mut impl FnMut(Entry),
) -> Result<(), OstError> {
    for entry in dir.names().map_err(OstError::io(format!("reading {shown}")))? {
        let path = format!("{shown}/{}", entry.to_string_lossy());
        let Some(text) = entry.to_str() else {
            found(Entry::Foreign(path));
            continue;
        };
        let stat = dir.stat(text).map_err(OstError::io(format!("looking at {path}")))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let stem = text.strip_suffix(SIDECAR_SUFFIX);
        match parse_name(stem.unwrap_or(text)).filter(|id| regular && bucket(id) == name) {
            None => found(Entry::Foreign(path)),
            Some(id) if stem.is_none() => found(Entry::Object {
                id,
                size: stat.st_size as u64,
                blocks: stat.st_blocks as u64,
            }),
            Some(id) => {
                if matches!(dir.stat(&crate::name::object_name(&id)), Err(Errno::NOENT)) {
                    found(Entry::LoneSidecar(id));
                }
            }
        }
    }
    Ok(())
}

/// Counts objects after a crash, beside the requests; what changes meanwhile may be missed.
pub(crate) fn recount(ost: &Weak<Ost>) {
    let (mut total, mut before) = (0, None);
    for i in 0..BUCKETS {
        let Some(ost) = ost.upgrade() else { return };
        before.get_or_insert_with(|| ost.count.load(Ordering::Relaxed));
        let names = ost.objects.sub(&format!("{i:02x}")).and_then(|d| d.names());
        let ids = names.iter().flatten().filter_map(|n| parse_name(n.to_str()?));
        total += ids.count() as i64;
    }
    if let Some(ost) = ost.upgrade() {
        ost.count.fetch_add(total - before.unwrap_or(0), Ordering::Relaxed);
    }
}
