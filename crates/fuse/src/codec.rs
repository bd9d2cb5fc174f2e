//! From the public types to the kernel's layouts.

use crate::abi;
use crate::types::*;
use std::time::Duration;

pub(crate) fn attr(a: &Attr) -> abi::Attr {
    abi::Attr {
        ino: a.ino,
        size: a.size,
        blocks: a.blocks,
        atime: a.atime.sec as u64,
        mtime: a.mtime.sec as u64,
        ctime: a.ctime.sec as u64,
        atimensec: a.atime.nsec,
        mtimensec: a.mtime.nsec,
        ctimensec: a.ctime.nsec,
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: a.blksize,
        flags: a.flags,
    }
}

fn secs(d: Duration) -> u64 {
    d.as_secs()
}

pub(crate) fn entry_out(e: &Entry) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: e.nodeid,
        generation: e.generation,
        entry_valid: secs(e.entry_ttl),
        attr_valid: secs(e.attr_ttl),
        entry_valid_nsec: e.entry_ttl.subsec_nanos(),
        attr_valid_nsec: e.attr_ttl.subsec_nanos(),
        attr: attr(&e.attr),
    }
}

pub(crate) fn attr_out(a: &AttrOut) -> abi::AttrOut {
    abi::AttrOut {
        attr_valid: secs(a.ttl),
        attr_valid_nsec: a.ttl.subsec_nanos(),
        dummy: 0,
        attr: attr(&a.attr),
    }
}

pub(crate) fn open_out(o: &Open) -> abi::OpenOut {
    abi::OpenOut { fh: o.fh, open_flags: o.flags, backing_id: 0 }
}

pub(crate) fn created_out(c: &Created) -> abi::CreateOut {
    abi::CreateOut { entry: entry_out(&c.entry), open: open_out(&c.open) }
}

pub(crate) fn statfs_out(s: &Statfs) -> abi::StatfsOut {
    abi::StatfsOut {
        st: abi::Kstatfs {
            blocks: s.blocks,
            bfree: s.bfree,
            bavail: s.bavail,
            files: s.files,
            ffree: s.ffree,
            bsize: s.bsize,
            namelen: s.namelen,
            frsize: s.frsize,
            ..abi::Kstatfs::default()
        },
    }
}

pub(crate) fn file_lock_out(l: &FileLock) -> abi::LkOut {
    abi::LkOut { lk: abi::FileLock { start: l.start, end: l.end, typ: l.kind as u32, pid: l.pid } }
}

fn sx_time(t: Time) -> abi::SxTime {
    abi::SxTime { sec: t.sec, nsec: t.nsec, reserved: 0 }
}

pub(crate) fn statx_out(s: &Statx) -> abi::StatxOut {
    let a = &s.attr;
    let (rdev_major, rdev_minor) = decode_dev(a.rdev);
    let btime_mask = if s.btime.is_some() { libc::STATX_BTIME } else { 0 };
    abi::StatxOut {
        attr_valid: secs(s.ttl),
        attr_valid_nsec: s.ttl.subsec_nanos(),
        stat: abi::Statx {
            mask: libc::STATX_BASIC_STATS | btime_mask,
            blksize: a.blksize,
            attributes: s.attributes,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            mode: a.mode as u16,
            ino: a.ino,
            size: a.size,
            blocks: a.blocks,
            attributes_mask: s.attributes_mask,
            atime: sx_time(a.atime),
            btime: sx_time(s.btime.unwrap_or_default()),
            ctime: sx_time(a.ctime),
            mtime: sx_time(a.mtime),
            rdev_major,
            rdev_minor,
            ..abi::Statx::default()
        },
        ..abi::StatxOut::default()
    }
}

#[cfg(test)]
mod tests;
