//! One operation, done with the kernel's own calls relative to the current directory, its result
//! reduced to what two file systems must agree on. Assumes the caller has set the directory, the
//! umask and the identity of the thread. Retries nothing, hides no error.

use super::op::{At, LockOp, Op, Outcome, Raw, SLOTS, StatView, Value, When};
use crate::sys::{self, Aligned};
use rustix::fs::{self as rfs, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An open file of the executor and the flags it was opened with.
pub struct Slot {
    pub fd: OwnedFd,
    pub flags: i32,
}

pub type Slots = Vec<Option<Slot>>;

pub fn empty_slots() -> Slots {
    (0..SLOTS).map(|_| None).collect()
}

/// Alignment of offset, length and memory the executor uses on O_DIRECT files.
pub const DIRECT_ALIGN: i64 = 4096;

type Res<T> = Result<T, Errno>;

fn fd(slots: &Slots, slot: u8) -> Res<BorrowedFd<'_>> {
    slots.get(usize::from(slot)).and_then(|s| s.as_ref()).map(|s| s.fd.as_fd()).ok_or(Errno::BADF)
}

fn is_direct(slots: &Slots, slot: u8) -> bool {
    matches!(slots.get(usize::from(slot)), Some(Some(s)) if s.flags & libc::O_DIRECT != 0)
}

fn is_kind(file: BorrowedFd<'_>, kind: FileType) -> bool {
    rfs::fstat(file).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == kind)
}

fn sys<T>(r: sys::Sys<T>) -> Res<T> {
    r.map_err(Errno::from_raw_os_error)
}

fn unit(r: Res<()>) -> Res<Value> {
    r.map(|()| Value::Unit)
}

fn bytes(data: &[u8]) -> Value {
    Value::Bytes { len: data.len(), crc: crc32c::crc32c(data) }
}

/// The bytes a write of the model carries: they depend on fill, offset in the buffer and length,
/// so that shifted or stale data shows.
pub fn pattern(fill: u8, len: u32) -> Vec<u8> {
    (0..len).map(|i| fill ^ (i as u8).wrapping_mul(29) ^ ((i >> 8) as u8)).collect()
}

/// Does one operation.
pub fn apply(op: &Op, slots: &mut Slots) -> Outcome {
    act(op, slots).map_err(Errno::raw_os_error)
}

fn act(op: &Op, slots: &mut Slots) -> Res<Value> {
    match op {
        Op::Open { slot, path, flags, mode } => open(slots, *slot, path, *flags, *mode),
        Op::Close { slot } => {
            let place = slots.get_mut(usize::from(*slot)).ok_or(Errno::BADF)?;
            place.take().ok_or(Errno::BADF).map(|_| Value::Unit)
        }
        Op::Seek { slot, whence, off } => {
            let file = fd(slots, *slot)?;
            // Positions in a directory are each file system's own, but for its start.
            if (*whence, *off) != (libc::SEEK_SET, 0) && is_kind(file, FileType::Directory) {
                return Err(Errno::ISDIR);
            }
            sys(sys::lseek(file, *off, *whence)).map(Value::Number)
        }
        Op::Read { .. } | Op::Pread { .. } | Op::Write { .. } | Op::Pwrite { .. } => io(op, slots),
        Op::MapHoles { slot } => super::holes::check(fd(slots, *slot)?, is_direct(slots, *slot)),
        Op::MmapRead { slot, off, len } => mmap(fd(slots, *slot)?, *off, *len, None),
        Op::MmapWrite { slot, off, len, fill } => mmap(fd(slots, *slot)?, *off, *len, Some(*fill)),
        Op::Truncate { at, len } => match at {
            At::Name(p) | At::Link(p) => unit(sys(sys::truncate(&p.c(), *len))),
            At::Slot(s) => unit(rfs::ftruncate(fd(slots, *s)?, *len as u64)),
        },
        Op::Fallocate { slot, mode, off, len } => {
            let mode = rfs::FallocateFlags::from_bits_retain(*mode as u32);
            unit(rfs::fallocate(fd(slots, *slot)?, mode, *off as u64, *len as u64))
        }
        // What copies between O_DIRECT files must be aligned to is each file system's own business.
        Op::CopyRange { from, to, .. } if is_direct(slots, *from) || is_direct(slots, *to) => {
            Err(Errno::INVAL)
        }
        Op::CopyRange { from, from_off, to, to_off, len } => {
            copy_range(fd(slots, *from)?, *from_off, fd(slots, *to)?, *to_off, *len)
        }
        Op::Sync { slot, data_only: true } => unit(rfs::fdatasync(fd(slots, *slot)?)),
        Op::Sync { slot, data_only: false } => unit(rfs::fsync(fd(slots, *slot)?)),
        Op::Flock { slot, op } => unit(rfs::flock(fd(slots, *slot)?, flock_kind(*op))),
        Op::RangeLock { slot, op, start, len } => {
            sys(sys::ofd_lock(fd(slots, *slot)?, lock_kind(*op), *start, *len, false))
                .map(|_| Value::Unit)
        }
        Op::TestLock { slot, op, start, len } => {
            sys(sys::ofd_lock(fd(slots, *slot)?, lock_kind(*op), *start, *len, true))
                .map(|kind| Value::Number(i64::from(kind)))
        }
        Op::LinkSlot { slot, to } => {
            unit(rfs::linkat(fd(slots, *slot)?, c"", CWD, to.c(), AtFlags::EMPTY_PATH))
        }
        Op::Chmod { .. } | Op::Chown { .. } | Op::Times { .. } | Op::Stat { .. } => {
            attributes(op, slots)
        }
        Op::SetXattr { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::RemoveXattr { .. } => xattrs(op, slots),
        _ => names(op),
    }
}

fn open(slots: &mut Slots, slot: u8, path: &Raw, flags: i32, mode: u32) -> Res<Value> {
    let place = slots.get_mut(usize::from(slot)).ok_or(Errno::BADF)?;
    *place = None;
    let oflags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    let fd = rfs::openat(CWD, path.c(), oflags, Mode::from_raw_mode(mode))?;
    *place = Some(Slot { fd, flags });
    Ok(Value::Unit)
}

fn io(op: &Op, slots: &Slots) -> Res<Value> {
    let (slot, off, len, fill) = match *op {
        Op::Read { slot, len } => (slot, None, len, None),
        Op::Write { slot, len, fill } => (slot, None, len, Some(fill)),
        Op::Pread { slot, off, len } => (slot, Some(off), len, None),
        Op::Pwrite { slot, off, len, fill } => (slot, Some(off), len, Some(fill)),
        _ => return Err(Errno::INVAL),
    };
    let file = fd(slots, slot)?;
    let (mut off, mut len) = (off, len);
    if is_direct(slots, slot) {
        off = Some(off.unwrap_or(0) & !(DIRECT_ALIGN - 1));
        len = len.div_ceil(DIRECT_ALIGN as u32) * DIRECT_ALIGN as u32;
    }
    if let Some(fill) = fill {
        // A write to a FIFO changes the times of its inode, which FUSE file systems never hear of.
        if is_kind(file, FileType::Fifo) {
            return Err(Errno::SPIPE);
        }
        let data = Aligned::filled(&pattern(fill, len));
        let count = match off {
            Some(off) => rustix::io::pwrite(file, &data, off as u64)?,
            None => rustix::io::write(file, &data)?,
        };
        return Ok(Value::Number(count as i64));
    }
    let mut data = Aligned::new(len as usize);
    let count = match off {
        Some(off) => rustix::io::pread(file, &mut data[..], off as u64)?,
        None => rustix::io::read(file, &mut data[..])?,
    };
    Ok(bytes(&data[..count]))
}

/// Reads or writes a shared mapping inside the file's present size, so that no access can fault.
fn mmap(file: BorrowedFd<'_>, off: u64, len: u32, fill: Option<u8>) -> Res<Value> {
    let stat = rfs::fstat(file)?;
    let size =
        if FileType::from_raw_mode(stat.st_mode).is_file() { stat.st_size as u64 } else { 0 };
    let base = off & !4095;
    let skip = (off - base) as usize;
    let end = size.min(off + u64::from(len));
    if end <= off {
        return Ok(Value::Number(0));
    }
    let span = (end - base) as usize;
    let mut map = sys(sys::Mapping::new(file, base, span, fill.is_some()))?;
    if let Some(fill) = fill {
        map.write(skip, &pattern(fill, (span - skip) as u32));
        sys(map.sync())?;
        return Ok(Value::Number((span - skip) as i64));
    }
    let mut data = vec![0; span - skip];
    map.read(skip, &mut data);
    Ok(bytes(&data))
}

/// Copies until nothing more comes, since one call may legitimately copy less.
fn copy_range(
    from: BorrowedFd<'_>,
    mut from_off: Option<u64>,
    to: BorrowedFd<'_>,
    mut to_off: Option<u64>,
    len: u32,
) -> Res<Value> {
    let mut done = 0usize;
    while done < len as usize {
        let left = len as usize - done;
        match rfs::copy_file_range(from, from_off.as_mut(), to, to_off.as_mut(), left) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(Value::Number(done as i64))
}

fn flock_kind(op: LockOp) -> rfs::FlockOperation {
    match op {
        LockOp::Shared => rfs::FlockOperation::NonBlockingLockShared,
        LockOp::Exclusive => rfs::FlockOperation::NonBlockingLockExclusive,
        LockOp::Unlock => rfs::FlockOperation::NonBlockingUnlock,
    }
}

fn lock_kind(op: LockOp) -> i32 {
    match op {
        LockOp::Shared => libc::F_RDLCK,
        LockOp::Exclusive => libc::F_WRLCK,
        LockOp::Unlock => libc::F_UNLCK,
    }
}

fn names(op: &Op) -> Res<Value> {
    match op {
        Op::Mkdir { path, mode } => unit(rfs::mkdirat(CWD, path.c(), Mode::from_raw_mode(*mode))),
        Op::Rmdir { path } => unit(rfs::unlinkat(CWD, path.c(), AtFlags::REMOVEDIR)),
        Op::Unlink { path } => unit(rfs::unlinkat(CWD, path.c(), AtFlags::empty())),
        Op::Rename { from, to, flags } => {
            let flags = rfs::RenameFlags::from_bits_retain(*flags);
            unit(rfs::renameat_with(CWD, from.c(), CWD, to.c(), flags))
        }
        Op::Hardlink { from, to, follow } => {
            let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            unit(rfs::linkat(CWD, from.c(), CWD, to.c(), flags))
        }
        Op::Symlink { target, path } => unit(rfs::symlinkat(target.c(), CWD, path.c())),
        Op::Readlink { path } => rfs::readlinkat(CWD, path.c(), Vec::new())
            .map(|target| Value::Raw(Raw(target.into_bytes()))),
        Op::Mknod { path, mode, major, minor } => unit(rfs::mknodat(
            CWD,
            path.c(),
            FileType::from_raw_mode(*mode),
            Mode::from_raw_mode(*mode),
            rfs::makedev(*major, *minor),
        )),
        Op::Chain { path, len } => chain(path, *len),
        Op::Access { path, mode } => unit(rfs::accessat(
            CWD,
            path.c(),
            rfs::Access::from_bits_retain(*mode),
            AtFlags::empty(),
        )),
        Op::Readdir { path } => readdir(path),
        Op::Statfs { path } => {
            let stat = rfs::statfs(path.c())?;
            Ok(Value::Number(stat.f_namelen as i64))
        }
        _ => Err(Errno::INVAL),
    }
}

fn chain(path: &Raw, len: u32) -> Res<Value> {
    let step = |n: u32| Raw([path.0.as_slice(), n.to_string().as_bytes()].concat());
    for n in 0..len {
        let target = step(n + 1);
        let name = target.0.rsplit(|&b| b == b'/').next().unwrap_or(b"x").to_vec();
        rfs::symlinkat(Raw(name).c(), CWD, step(n).c())?;
    }
    stat_at(CWD, &step(0), AtFlags::empty()).map(Value::Stat)
}

fn readdir(path: &Raw) -> Res<Value> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rfs::openat(CWD, path.c(), flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rfs::Dir::new(dir)? {
        let entry = entry?;
        let kind = entry.file_type().as_raw_mode() >> 12;
        names.push((Raw::new(entry.file_name().to_bytes()), kind as u8));
    }
    names.sort();
    Ok(Value::Names(names))
}

fn stamp(when: When) -> rfs::Timespec {
    let (tv_sec, tv_nsec) = match when {
        When::Set { sec, nsec } => (sec, nsec),
        When::Now => (0, rfs::UTIME_NOW as _),
        When::Omit => (0, rfs::UTIME_OMIT as _),
    };
    rfs::Timespec { tv_sec, tv_nsec }
}

fn stat_at(dir: BorrowedFd<'_>, path: &Raw, flags: AtFlags) -> Res<StatView> {
    let mask = rfs::StatxFlags::BASIC_STATS | rfs::StatxFlags::BTIME;
    Ok(view(&rfs::statx(dir, path.c(), flags, mask)?))
}

/// The comparable part of a statx answer.
pub fn view(stat: &rfs::Statx) -> StatView {
    let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
    let device = kind.is_char_device() || kind.is_block_device();
    StatView {
        mode: u32::from(stat.stx_mode),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: (!kind.is_dir()).then_some(stat.stx_nlink),
        size: (!kind.is_dir()).then_some(stat.stx_size),
        rdev: device.then_some((stat.stx_rdev_major, stat.stx_rdev_minor)),
        btime: stat.stx_mask & rfs::StatxFlags::BTIME.bits() != 0,
    }
}

fn attributes(op: &Op, slots: &Slots) -> Res<Value> {
    match op {
        Op::Chmod { at, mode } => {
            let mode = Mode::from_raw_mode(*mode);
            match at {
                At::Name(p) | At::Link(p) => unit(rfs::chmodat(CWD, p.c(), mode, AtFlags::empty())),
                At::Slot(s) => unit(rfs::fchmod(fd(slots, *s)?, mode)),
            }
        }
        Op::Chown { at, uid, gid } => {
            let (uid, gid) = (uid.map(rfs::Uid::from_raw), gid.map(rfs::Gid::from_raw));
            match at {
                At::Name(p) => unit(rfs::chownat(CWD, p.c(), uid, gid, AtFlags::empty())),
                At::Link(p) => unit(rfs::chownat(CWD, p.c(), uid, gid, AtFlags::SYMLINK_NOFOLLOW)),
                At::Slot(s) => unit(rfs::fchown(fd(slots, *s)?, uid, gid)),
            }
        }
        Op::Times { at, atime, mtime } => times(at, *atime, *mtime, slots),
        Op::Stat { at } => match at {
            At::Name(p) => stat_at(CWD, p, AtFlags::empty()).map(Value::Stat),
            At::Link(p) => stat_at(CWD, p, AtFlags::SYMLINK_NOFOLLOW).map(Value::Stat),
            At::Slot(s) => {
                stat_at(fd(slots, *s)?, &Raw::new(""), AtFlags::EMPTY_PATH).map(Value::Stat)
            }
        },
        _ => Err(Errno::INVAL),
    }
}

/// Sets times and gives back those set explicitly, as stat shows them right after.
fn times(at: &At, atime: When, mtime: When, slots: &Slots) -> Res<Value> {
    let set = rfs::Timestamps { last_access: stamp(atime), last_modification: stamp(mtime) };
    let stat = match at {
        At::Name(p) => {
            rfs::utimensat(CWD, p.c(), &set, AtFlags::empty())?;
            rfs::statat(CWD, p.c(), AtFlags::empty())?
        }
        At::Link(p) => {
            rfs::utimensat(CWD, p.c(), &set, AtFlags::SYMLINK_NOFOLLOW)?;
            rfs::statat(CWD, p.c(), AtFlags::SYMLINK_NOFOLLOW)?
        }
        At::Slot(s) => {
            rfs::futimens(fd(slots, *s)?, &set)?;
            rfs::fstat(fd(slots, *s)?)?
        }
    };
    let mut seen = Vec::new();
    if matches!(atime, When::Set { .. }) {
        seen.push((stat.st_atime as i64, stat.st_atime_nsec as i64));
    }
    if matches!(mtime, When::Set { .. }) {
        seen.push((stat.st_mtime as i64, stat.st_mtime_nsec as i64));
    }
    Ok(Value::Times(seen))
}

fn xattrs(op: &Op, slots: &Slots) -> Res<Value> {
    let mut room = vec![0u8; 70_000];
    match op {
        Op::SetXattr { at, name, value, flags } => {
            let (n, flags) = (name.c(), rfs::XattrFlags::from_bits_retain(*flags));
            unit(match at {
                At::Name(p) => rfs::setxattr(p.c(), n, &value.0, flags),
                At::Link(p) => rfs::lsetxattr(p.c(), n, &value.0, flags),
                At::Slot(s) => rfs::fsetxattr(fd(slots, *s)?, n, &value.0, flags),
            })
        }
        Op::GetXattr { at, name } => {
            let n = name.c();
            let len = match at {
                At::Name(p) => rfs::getxattr(p.c(), n, &mut room[..])?,
                At::Link(p) => rfs::lgetxattr(p.c(), n, &mut room[..])?,
                At::Slot(s) => rfs::fgetxattr(fd(slots, *s)?, n, &mut room[..])?,
            };
            Ok(bytes(&room[..len]))
        }
        Op::ListXattr { at } => {
            let len = match at {
                At::Name(p) => rfs::listxattr(p.c(), &mut room[..])?,
                At::Link(p) => rfs::llistxattr(p.c(), &mut room[..])?,
                At::Slot(s) => rfs::flistxattr(fd(slots, *s)?, &mut room[..])?,
            };
            Ok(Value::Names(super::tree::xattr_names(&room[..len])))
        }
        Op::RemoveXattr { at, name } => {
            let n = name.c();
            unit(match at {
                At::Name(p) => rfs::removexattr(p.c(), n),
                At::Link(p) => rfs::lremovexattr(p.c(), n),
                At::Slot(s) => rfs::fremovexattr(fd(slots, *s)?, n),
            })
        }
        _ => Err(Errno::INVAL),
    }
}
