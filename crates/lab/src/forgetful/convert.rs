//! Between the backing's stat and `fuser`'s attributes and times.

use fuser::{FileAttr, FileType as Kind, TimeOrNow};
use rustix::fs::{self as rfs, FileType, Stat};
use std::time::{Duration, UNIX_EPOCH};

pub(crate) fn attr(id: u64, stat: &Stat) -> FileAttr {
    let time = |sec: i64, nsec: u64| match u64::try_from(sec) {
        Ok(sec) => UNIX_EPOCH + Duration::new(sec, nsec as u32),
        // `fuser` takes times before 1970 apart the same way: -(seconds + nanoseconds).
        Err(_) => UNIX_EPOCH - Duration::new(sec.unsigned_abs(), nsec as u32),
    };
    FileAttr {
        ino: id,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

pub(crate) fn kind(kind: FileType) -> Kind {
    match kind {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::NamedPipe,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::RegularFile,
    }
}

pub(crate) fn spec(time: Option<TimeOrNow>) -> rfs::Timespec {
    match time {
        None => rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_OMIT as _ },
        Some(TimeOrNow::Now) => rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_NOW as _ },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => rfs::Timespec {
                tv_sec: after.as_secs() as i64,
                tv_nsec: i64::from(after.subsec_nanos()),
            },
            Err(before) => rfs::Timespec {
                tv_sec: -(before.duration().as_secs() as i64),
                tv_nsec: i64::from(before.duration().subsec_nanos()),
            },
        },
    }
}
