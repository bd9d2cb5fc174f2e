//! One request's bytes to one call of the file system.
//!
//! Arguments are parsed before the reply is made, so that a malformed request is answered exactly once (EINVAL).

use crate::abi::{self, fattr, flag, op};
use crate::buf::{AlignedBuf, HEADER_SPACE, WriteData};
use crate::caps;
use crate::channel::{Link, Responder};
use crate::fs::Filesystem;
use crate::parse::{self, Args, Malformed, Parsed};
use crate::reply::Reply;
use crate::request::Request;
use crate::types::*;

/// Longest symlink target the kernel takes.
const READLINK_MAX: u32 = 4095;

/// Where requests go.
pub(crate) struct Target<'a> {
    pub(crate) fs: &'a dyn Filesystem,
    pub(crate) link: &'a Link,
    pub(crate) granted: u64,
}

/// What the session itself must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// DESTROY with this number: answer it when the file system is down.
    Destroy(u64),
}

/// Handles the request in the first `len` bytes of `buf`'s read area.
pub(crate) fn request(target: &Target<'_>, buf: &mut AlignedBuf, len: usize) -> Outcome {
    let (header, args, extensions) = match parse::message(buf.request(len)) {
        Ok(parts) => parts,
        Err(Malformed) => {
            refuse_garbage(target, buf.request(len));
            return Outcome::Done;
        }
    };
    if header.opcode != op::WRITE {
        return plain(target, &header, args, extensions);
    }
    let mut args = args;
    let fixed = requester(target, &header, extensions)
        .and_then(|req| args.fixed().map(|w| (req, w, args.0.len())));
    let done = fixed.and_then(|(req, w, data_len)| {
        call_write(target, &req, w, WriteData::pooled(buf, data_len))
    });
    finish(target, &header, done)
}

/// Handles a whole message that is no WRITE.
pub(crate) fn message(target: &Target<'_>, bytes: &[u8]) -> Outcome {
    match parse::message(bytes) {
        Ok((header, args, extensions)) => plain(target, &header, args, extensions),
        Err(Malformed) => {
            refuse_garbage(target, bytes);
            Outcome::Done
        }
    }
}

/// Handles a WRITE that came through a ring.
pub(crate) fn write(
    target: &Target<'_>,
    header: &abi::InHeader,
    mut args: Args<'_>,
    data: &mut AlignedBuf,
) -> Outcome {
    let done = requester(target, header, &[]).and_then(|req| {
        let len = data.len();
        let data = WriteData::pooled(data, len);
        call_write(target, &req, args.fixed()?, data)
    });
    finish(target, header, done)
}

/// Handles any request but a WRITE.
pub(crate) fn plain(
    target: &Target<'_>,
    header: &abi::InHeader,
    args: Args<'_>,
    extensions: &[u8],
) -> Outcome {
    match header.opcode {
        op::FORGET | op::BATCH_FORGET => {
            if forget(target.fs, header, args).is_err() {
                tracing::error!("malformed FORGET from the kernel");
            }
            return forgotten(target, header);
        }
        op::INTERRUPT => {
            let mut args = args;
            if let Ok(interrupt) = args.fixed::<abi::InterruptIn>() {
                target.link.shared().interrupts.interrupt(interrupt.unique);
            }
            return Outcome::Done;
        }
        op::NOTIFY_REPLY => {
            // The ring asked for it, only to have its entry come back.
            let _ = responder(target.link, header.unique, 0).parts(&[]);
            return Outcome::Done;
        }
        op::DESTROY => return Outcome::Destroy(header.unique),
        _ => {}
    }
    let done = requester(target, header, extensions).and_then(|req| {
        Call { target, req: &req, node: header.nodeid, opcode: header.opcode, args }.run()
    });
    finish(target, header, done)
}

/// By the device a FORGET has no answer. One comes through a ring where the kernel takes back what a READDIRPLUS told it
/// and it could not use; its caller waits until the entry is handed back.
fn forgotten(target: &Target<'_>, header: &abi::InHeader) -> Outcome {
    if let Link::Ring(_) = target.link {
        let _ = responder(target.link, header.unique, 0).parts(&[]);
    }
    Outcome::Done
}

fn finish(target: &Target<'_>, header: &abi::InHeader, done: Parsed<()>) -> Outcome {
    if done.is_err() {
        tracing::error!(opcode = header.opcode, "malformed request from the kernel");
        let _ = responder(target.link, header.unique, 0).error(Errno::EINVAL);
    }
    Outcome::Done
}

fn requester(target: &Target<'_>, header: &abi::InHeader, extensions: &[u8]) -> Parsed<Request> {
    let found = match extensions {
        [] => parse::Extensions::default(),
        some => parse::extensions(some)?,
    };
    Ok(Request {
        unique: header.unique,
        nodeid: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        supp_groups: found.groups,
        security: found.security,
        shared: target.link.shared().clone(),
    })
}

pub(crate) fn responder(link: &Link, unique: u64, limit: u32) -> Responder {
    Responder { link: link.clone(), unique, limit, narrow: false }
}

/// Who asks what, if it can be made out.
pub(crate) fn header(bytes: &[u8]) -> Option<abi::InHeader> {
    Args(bytes).fixed().ok()
}

/// Answers what is not even a message, if its number can be made out.
fn refuse_garbage(target: &Target<'_>, bytes: &[u8]) {
    tracing::error!(len = bytes.len(), "message from the kernel with a wrong length");
    if let Some(header) = header(bytes) {
        let _ = responder(target.link, header.unique, 0).error(Errno::EIO);
    }
}

fn forget(fs: &dyn Filesystem, header: &abi::InHeader, mut args: Args<'_>) -> Parsed<()> {
    if header.opcode == op::FORGET {
        let one: abi::ForgetIn = args.fixed()?;
        fs.forget(header.nodeid, one.nlookup);
        return Ok(());
    }
    let head: abi::BatchForgetIn = args.fixed()?;
    let size = (head.count as usize).checked_mul(size_of::<abi::ForgetOne>()).ok_or(Malformed)?;
    let mut list = Args(args.bytes(size)?);
    let mut forgets = std::iter::from_fn(|| {
        let one: abi::ForgetOne = list.fixed().ok()?;
        Some((one.nodeid, one.nlookup))
    });
    fs.batch_forget(&mut forgets);
    Ok(())
}

fn call_write(
    target: &Target<'_>,
    req: &Request,
    w: abi::WriteIn,
    data: WriteData<'_>,
) -> Parsed<()> {
    const { assert!(size_of::<abi::InHeader>() + size_of::<abi::WriteIn>() == HEADER_SPACE) };
    if w.size as usize != data.len() {
        return Err(Malformed);
    }
    let args = WriteIn {
        fh: w.fh,
        offset: w.offset,
        flags: w.flags,
        lock_owner: (w.write_flags & flag::WRITE_LOCKOWNER != 0).then_some(w.lock_owner),
        from_cache: w.write_flags & flag::WRITE_CACHE != 0,
        kill_suidgid: w.write_flags & flag::WRITE_KILL_SUIDGID != 0,
    };
    let reply = Reply::new(responder(target.link, req.unique, 0));
    target.fs.write(req, req.nodeid, args, data, reply);
    Ok(())
}

/// One request being taken apart.
struct Call<'a> {
    target: &'a Target<'a>,
    req: &'a Request,
    node: u64,
    opcode: u32,
    args: Args<'a>,
}

impl Call<'_> {
    fn reply<T>(&self) -> Reply<T> {
        self.limited(0)
    }

    fn limited<T>(&self, limit: u32) -> Reply<T> {
        Reply::new(responder(self.target.link, self.req.unique, limit))
    }

    fn run(self) -> Parsed<()> {
        match self.opcode {
            op::LOOKUP | op::UNLINK | op::RMDIR | op::LINK | op::RENAME | op::RENAME2 => {
                self.names()
            }
            op::SYMLINK | op::MKNOD | op::MKDIR | op::CREATE | op::TMPFILE => self.creations(),
            op::GETATTR | op::SETATTR | op::STATX | op::STATFS | op::ACCESS | op::READLINK => {
                self.attributes()
            }
            op::OPEN | op::RELEASE | op::READ | op::FLUSH | op::FSYNC => self.files(),
            op::FALLOCATE | op::LSEEK | op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => {
                self.ranges()
            }
            op::OPENDIR | op::READDIR | op::READDIRPLUS | op::RELEASEDIR | op::FSYNCDIR => {
                self.directories()
            }
            op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR => self.xattrs(),
            op::GETLK | op::SETLK | op::SETLKW => self.locks(),
            op::IOCTL => self.ioctl(),
            op::SYNCFS => {
                self.target.fs.syncfs(self.req, self.node, self.reply());
                Ok(())
            }
            _ => {
                self.reply::<()>().err(Errno::ENOSYS);
                Ok(())
            }
        }
    }

    fn names(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::LOOKUP => fs.lookup(req, node, self.args.name()?, self.reply()),
            op::UNLINK => fs.unlink(req, node, self.args.name()?, self.reply()),
            op::RMDIR => fs.rmdir(req, node, self.args.name()?, self.reply()),
            op::LINK => {
                let link: abi::LinkIn = self.args.fixed()?;
                fs.link(req, link.oldnodeid, node, self.args.name()?, self.reply());
            }
            _ => {
                let (newdir, flags) = if self.opcode == op::RENAME2 {
                    let r: abi::Rename2In = self.args.fixed()?;
                    (r.newdir, r.flags)
                } else {
                    (self.args.fixed::<abi::RenameIn>()?.newdir, 0)
                };
                let (from, to) = (self.args.name()?, self.args.name()?);
                fs.rename(req, node, from, newdir, to, flags, self.reply());
            }
        }
        Ok(())
    }

    fn creations(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::SYMLINK => {
                let (name, target) = (self.args.name()?, self.args.name()?);
                fs.symlink(req, node, name, target, self.reply());
            }
            op::MKNOD => {
                let m: abi::MknodIn = self.args.fixed()?;
                fs.mknod(req, node, self.args.name()?, m.mode, m.umask, m.rdev, self.reply());
            }
            op::MKDIR => {
                let m: abi::MkdirIn = self.args.fixed()?;
                fs.mkdir(req, node, self.args.name()?, m.mode, m.umask, self.reply());
            }
            _ => {
                let c: abi::CreateIn = self.args.fixed()?;
                let create = CreateIn {
                    mode: c.mode,
                    umask: c.umask,
                    flags: c.flags,
                    kill_suidgid: c.open_flags & flag::OPEN_KILL_SUIDGID != 0,
                };
                if self.opcode == op::TMPFILE {
                    fs.tmpfile(req, node, create, self.reply());
                } else {
                    fs.create(req, node, self.args.name()?, create, self.reply());
                }
            }
        }
        Ok(())
    }

    fn attributes(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::GETATTR => {
                let g: abi::GetattrIn = self.args.fixed()?;
                let fh = (g.getattr_flags & flag::GETATTR_FH != 0).then_some(g.fh);
                fs.getattr(req, node, fh, self.reply());
            }
            op::SETATTR => fs.setattr(req, node, set_attr(self.args.fixed()?), self.reply()),
            op::STATX => {
                let s: abi::StatxIn = self.args.fixed()?;
                let fh = (s.getattr_flags & flag::GETATTR_FH != 0).then_some(s.fh);
                let statx = StatxIn { fh, flags: s.sx_flags, mask: s.sx_mask };
                fs.statx(req, node, statx, self.reply());
            }
            op::STATFS => fs.statfs(req, node, self.reply()),
            op::ACCESS => {
                let a: abi::AccessIn = self.args.fixed()?;
                fs.access(req, node, a.mask, self.reply());
            }
            _ => fs.readlink(req, node, self.limited(READLINK_MAX)),
        }
        Ok(())
    }

    fn files(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::OPEN => {
                let o: abi::OpenIn = self.args.fixed()?;
                let kill_suidgid = o.open_flags & flag::OPEN_KILL_SUIDGID != 0;
                fs.open(req, node, OpenIn { flags: o.flags, kill_suidgid }, self.reply());
            }
            op::RELEASE => fs.release(req, node, release(self.args.fixed()?), self.reply()),
            op::READ => {
                let r: abi::ReadIn = self.args.fixed()?;
                let lock_owner = (r.read_flags & flag::READ_LOCKOWNER != 0).then_some(r.lock_owner);
                let (fh, offset, size, flags) = (r.fh, r.offset, r.size, r.flags);
                let read = ReadIn { fh, offset, size, flags, lock_owner };
                fs.read(req, node, read, self.limited(size));
            }
            op::FLUSH => {
                let f: abi::FlushIn = self.args.fixed()?;
                fs.flush(req, node, f.fh, f.lock_owner, self.reply());
            }
            _ => {
                let f: abi::FsyncIn = self.args.fixed()?;
                let datasync = f.fsync_flags & flag::FSYNC_FDATASYNC != 0;
                fs.fsync(req, node, f.fh, datasync, self.reply());
            }
        }
        Ok(())
    }

    fn ranges(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::FALLOCATE => {
                let f: abi::FallocateIn = self.args.fixed()?;
                fs.fallocate(req, node, f.fh, f.offset, f.length, f.mode, self.reply());
            }
            op::LSEEK => {
                let l: abi::LseekIn = self.args.fixed()?;
                fs.lseek(req, node, l.fh, l.offset, l.whence, self.reply());
            }
            _ => {
                let c: abi::CopyFileRangeIn = self.args.fixed()?;
                let copy = CopyIn {
                    fh_in: c.fh_in,
                    off_in: c.off_in,
                    nodeid_out: c.nodeid_out,
                    fh_out: c.fh_out,
                    off_out: c.off_out,
                    len: c.len,
                    flags: c.flags,
                };
                let mut responder = responder(self.target.link, req.unique, 0);
                responder.narrow = self.opcode == op::COPY_FILE_RANGE;
                fs.copy_file_range(req, node, copy, Reply::new(responder));
            }
        }
        Ok(())
    }

    fn directories(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::OPENDIR => {
                let o: abi::OpenIn = self.args.fixed()?;
                fs.opendir(req, node, o.flags, self.reply());
            }
            op::RELEASEDIR => {
                fs.releasedir(req, node, release(self.args.fixed()?), self.reply());
            }
            op::FSYNCDIR => {
                let f: abi::FsyncIn = self.args.fixed()?;
                let datasync = f.fsync_flags & flag::FSYNC_FDATASYNC != 0;
                fs.fsyncdir(req, node, f.fh, datasync, self.reply());
            }
            op::READDIRPLUS => {
                let r: abi::ReadIn = self.args.fixed()?;
                fs.readdirplus(req, node, r.fh, r.offset, r.size, self.limited(r.size));
            }
            _ => {
                let r: abi::ReadIn = self.args.fixed()?;
                fs.readdir(req, node, r.fh, r.offset, r.size, self.limited(r.size));
            }
        }
        Ok(())
    }

    fn xattrs(mut self) -> Parsed<()> {
        let (fs, req, node) = (self.target.fs, self.req, self.node);
        match self.opcode {
            op::SETXATTR => {
                let (size, flags, extended) = if self.target.granted & caps::SETXATTR_EXT != 0 {
                    let s: abi::SetxattrIn = self.args.fixed()?;
                    (s.size, s.flags, s.setxattr_flags)
                } else {
                    let s: abi::SetxattrCompatIn = self.args.fixed()?;
                    (s.size, s.flags, 0)
                };
                let name = self.args.name()?;
                let value = self.args.bytes(size as usize)?;
                let kill_sgid = extended & flag::SETXATTR_ACL_KILL_SGID != 0;
                fs.setxattr(req, node, name, value, flags, kill_sgid, self.reply());
            }
            op::REMOVEXATTR => fs.removexattr(req, node, self.args.name()?, self.reply()),
            op::GETXATTR => {
                let g: abi::GetxattrIn = self.args.fixed()?;
                fs.getxattr(req, node, self.args.name()?, self.limited(g.size));
            }
            _ => {
                let g: abi::GetxattrIn = self.args.fixed()?;
                fs.listxattr(req, node, self.limited(g.size));
            }
        }
        Ok(())
    }

    fn locks(mut self) -> Parsed<()> {
        let l: abi::LkIn = self.args.fixed()?;
        let lock = LockIn {
            fh: l.fh,
            owner: l.owner,
            lock: FileLock {
                start: l.lk.start,
                end: l.lk.end,
                kind: l.lk.typ as i32,
                pid: l.lk.pid,
            },
            flock: l.lk_flags & flag::LK_FLOCK != 0,
            wait: self.opcode == op::SETLKW,
        };
        let fs = self.target.fs;
        match self.opcode {
            op::GETLK => fs.getlk(self.req, self.node, lock, self.reply()),
            _ => fs.setlk(self.req, self.node, lock, self.reply()),
        }
        Ok(())
    }

    fn ioctl(mut self) -> Parsed<()> {
        let i: abi::IoctlIn = self.args.fixed()?;
        let data = self.args.bytes(i.in_size as usize)?;
        let ioctl =
            IoctlIn { fh: i.fh, cmd: i.cmd, arg: i.arg, flags: i.flags, out_size: i.out_size };
        self.target.fs.ioctl(self.req, self.node, ioctl, data, self.limited(i.out_size));
        Ok(())
    }
}

fn release(r: abi::ReleaseIn) -> ReleaseIn {
    let owner_valid = flag::RELEASE_FLUSH | flag::RELEASE_FLOCK_UNLOCK;
    ReleaseIn {
        fh: r.fh,
        flags: r.flags,
        lock_owner: (r.release_flags & owner_valid != 0).then_some(r.lock_owner),
        flock_unlock: r.release_flags & flag::RELEASE_FLOCK_UNLOCK != 0,
    }
}

fn set_attr(s: abi::SetattrIn) -> SetAttr {
    let has = |bit: u32| s.valid & bit != 0;
    let time = |bit: u32, now: u32, sec: u64, nsec: u32| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Time { sec: sec as i64, nsec })),
        (false, false) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(s.mode),
        uid: has(fattr::UID).then_some(s.uid),
        gid: has(fattr::GID).then_some(s.gid),
        size: has(fattr::SIZE).then_some(s.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, s.atime, s.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, s.mtime, s.mtimensec),
        ctime: has(fattr::CTIME).then_some(Time { sec: s.ctime as i64, nsec: s.ctimensec }),
        fh: has(fattr::FH).then_some(s.fh),
        lock_owner: has(fattr::LOCKOWNER).then_some(s.lock_owner),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

#[cfg(test)]
mod tests;
