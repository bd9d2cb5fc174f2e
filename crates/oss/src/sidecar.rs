//! An object's sidecar: one crc32c for each 4 KiB block, in a sparse file beside the object.
//!
//! Role: the bytes on disk, and when they may be believed. The rule that survives every crash
//! without a sync of its own:
//!
//! 1. A sum is written to the sidecar only *after* the block's bytes were synced. Arriving late or
//!    never does no harm: 0 means "no sum", and a sum that is there belongs to durable bytes.
//! 2. Before a block that has a sum on disk is changed, the header is marked with the epoch of
//!    this boot, and the mark is synced: once per object and boot, and never for new blocks.
//! 3. If a boot crashes, sidecars marked with its epoch are not believed (the boot record
//!    remembers crashed boots); their sums are dropped and made again as blocks are committed.
//!    After a clean close, marked sidecars are as good as others.
//!
//! A block at the object's end counts as filled up with zeros, so that growing changes no sum.

use std::os::fd::{AsFd, OwnedFd};

use proto::layout::ObjectId;
use proto::wire::{Dec, Enc, Wire};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync, ftruncate};
use rustix::io::Errno;

use crate::boot::Boot;
use crate::files::Dir;
use crate::io::{read_at, write_at};
use crate::name::sidecar_path;

/// Bytes before the first sum.
pub const HEADER_LEN: u64 = 64;
/// Version of the header.
pub const SIDECAR_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"PSTSUMS\0";

/// Where the sum of a block lies in the sidecar.
pub fn position(block: u64) -> u64 {
    HEADER_LEN + block * 4
}

/// The header's bytes; `mark` is 0 or the epoch of the boot that overwrote blocks.
pub fn header_bytes(id: &ObjectId, mark: u32) -> [u8; HEADER_LEN as usize] {
    let mut e = Enc::new();
    e.put(&MAGIC).put(&SIDECAR_VERSION).put(&(proto::CHECKSUM_BLOCK as u32)).put(&mark).put(id);
    let mut bytes = [0; HEADER_LEN as usize];
    bytes[..e.0.len()].copy_from_slice(&e.0);
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads a header of the object `id`: its mark, or why it is none. Total for any bytes.
pub fn read_header(bytes: &[u8], id: &ObjectId) -> Result<u32, &'static str> {
    let bytes = bytes.get(..HEADER_LEN as usize).ok_or("it is too short")?;
    let mut crc = [0; 4];
    crc.copy_from_slice(&bytes[60..]);
    if crc32c::crc32c(&bytes[..60]) != u32::from_le_bytes(crc) {
        return Err("its header's checksum differs");
    }
    let mut d = Dec::new(bytes);
    let bad = "its header is damaged";
    if d.get::<[u8; 8]>().map_err(|_| bad)? != MAGIC {
        return Err("it is no file of checksums");
    }
    if d.get::<u32>().map_err(|_| bad)? != SIDECAR_VERSION {
        return Err("its version is unknown");
    }
    if d.get::<u32>().map_err(|_| bad)? != proto::CHECKSUM_BLOCK as u32 {
        return Err("its block size is unknown");
    }
    let mark = d.get().map_err(|_| bad)?;
    if ObjectId::dec(&mut d).map_err(|_| bad)? != *id {
        return Err("it belongs to another object");
    }
    Ok(mark)
}

/// Whether a header was never written, or its sector was lost with the power: rule 1 lets sums
/// arrive in any order, and without their header they are not believed.
pub(crate) fn is_blank(header: &[u8]) -> bool {
    header.iter().all(|b| *b == 0)
}

/// Whether sums under this mark are to be believed.
pub(crate) fn believed(mark: u32, boot: &Boot, running: bool) -> bool {
    mark == 0 || (running && mark == boot.epoch) || !boot.crashed(mark)
}

/// The sidecar of an open object.
#[derive(Debug)]
pub(crate) struct Sidecar {
    id: ObjectId,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not looked at yet.
    Unopened,
    /// There is none.
    Absent,
    /// Open; `bare` while it has no header.
    Open { fd: OwnedFd, mark: u32, bare: bool },
}

impl Sidecar {
    /// Where it lies, below the objects.
    pub(crate) fn path(&self) -> String {
        sidecar_path(&self.id)
    }

    pub(crate) fn new(id: ObjectId) -> Sidecar {
        Sidecar { id, state: State::Unopened }
    }

    /// Looks at the file once; one that cannot be believed is emptied.
    pub(crate) fn load(&mut self, objects: &Dir, boot: &Boot) -> Result<(), Errno> {
        if !matches!(self.state, State::Unopened) {
            return Ok(());
        }
        let fd = match objects.file(&sidecar_path(&self.id), OFlags::RDWR) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                self.state = State::Absent;
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let mut bytes = [0; HEADER_LEN as usize];
        let n = read_at(fd.as_fd(), &mut bytes, 0)?;
        let mark = match read_header(&bytes[..n], &self.id) {
            Ok(mark) if believed(mark, boot, true) => Some(mark),
            Ok(mark) => {
                tracing::debug!(object = ?self.id, mark, "checksums dropped after a crash");
                None
            }
            Err(_) if n == 0 || is_blank(&bytes) => None,
            Err(why) => {
                tracing::warn!(object = ?self.id, why, "file of checksums dropped");
                None
            }
        };
        if mark.is_none() {
            ftruncate(&fd, 0)?;
        }
        self.state = State::Open { fd, mark: mark.unwrap_or(0), bare: mark.is_none() };
        Ok(())
    }

    /// Sums of blocks `first..first + sums.len()`, at most 1024; 0 where there is none.
    pub(crate) fn read(&self, first: u64, sums: &mut [u32]) -> Result<(), Errno> {
        sums.fill(0);
        let State::Open { fd, bare: false, .. } = &self.state else { return Ok(()) };
        let mut bytes = [0; 4096];
        let Some(bytes) = bytes.get_mut(..sums.len() * 4) else { return Err(Errno::INVAL) };
        let n = read_at(fd.as_fd(), bytes, position(first))?;
        for (sum, b) in sums.iter_mut().zip(bytes[..n].chunks_exact(4)) {
            *sum = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
        Ok(())
    }

    /// Whether changing a block with a sum needs [`Sidecar::mark`] first.
    pub(crate) fn needs_mark(&self, epoch: u32) -> bool {
        matches!(&self.state, State::Open { mark, bare: false, .. } if *mark != epoch)
    }

    /// Durably marks the sidecar as changed in this boot (rule 2 of the module's head).
    pub(crate) fn mark(&mut self, epoch: u32) -> Result<(), Errno> {
        if let State::Open { fd, mark, .. } = &mut self.state {
            write_at(fd.as_fd(), &header_bytes(&self.id, epoch), 0)?;
            fdatasync(&*fd)?;
            *mark = epoch;
        }
        Ok(())
    }

    /// One past the last block that may have a sum on disk.
    pub(crate) fn blocks(&self) -> u64 {
        match &self.state {
            State::Open { fd, bare: false, .. } => rustix::fs::fstat(fd)
                .map_or(u64::MAX / 8, |s| {
                    (s.st_size as u64).saturating_sub(HEADER_LEN).div_ceil(4)
                }),
            _ => 0,
        }
    }

    /// Writes sums of blocks from `first` on; their bytes are durable (rule 1).
    pub(crate) fn write(&mut self, objects: &Dir, first: u64, sums: &[u32]) -> Result<(), Errno> {
        if matches!(self.state, State::Unopened | State::Absent) {
            let flags = OFlags::RDWR | OFlags::CREATE;
            let fd = objects.file(&sidecar_path(&self.id), flags)?;
            self.state = State::Open { fd, mark: 0, bare: true };
        }
        let State::Open { fd, mark, bare } = &mut self.state else { return Ok(()) };
        let mut bytes = Vec::with_capacity(HEADER_LEN as usize + sums.len() * 4);
        let with_header = *bare && first == 0;
        if with_header {
            bytes.extend(header_bytes(&self.id, *mark));
        } else if *bare {
            write_at(fd.as_fd(), &header_bytes(&self.id, *mark), 0)?;
        }
        bytes.extend(sums.iter().flat_map(|s| s.to_le_bytes()));
        write_at(fd.as_fd(), &bytes, if with_header { 0 } else { position(first) })?;
        *bare = false;
        Ok(())
    }

    /// Frees the sums of blocks `first..end`: they read as "no sum".
    pub(crate) fn free(&mut self, first: u64, end: u64) -> Result<(), Errno> {
        let State::Open { fd, bare: false, .. } = &self.state else { return Ok(()) };
        if first >= end {
            return Ok(());
        }
        if end >= self.blocks() {
            return ftruncate(fd, position(first));
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(fd, how, position(first), (end - first) * 4)
    }

    /// Drops every sum on disk: they could not be kept up.
    pub(crate) fn reset(&mut self) {
        if let State::Open { fd, bare, .. } = &mut self.state {
            if let Err(e) = ftruncate(&*fd, 0) {
                tracing::error!(object = ?self.id, error = %e, "stale checksums cannot be dropped");
            }
            *bare = true;
        }
    }
}
