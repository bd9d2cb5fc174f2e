//! Create: every kind of inode, named or not; O_CREAT of an existing name too.

use bytes::Bytes;
use proto::attr::*;
use proto::mds::*;
use proto::wire::List;
use proto::{Errno, Fid, FileKind, SYMLINK_MAX};

use super::{check_new_name, open};
use crate::keys;
use crate::namespace::{Effect, Run};
use crate::record::{self, Dent, F_DEFAULT_ACL, Home, Inode, Xattr, Xattrs};
use crate::txn::Step;
use proto::acl::{self, Acl};

/// Internal inode flag: made without a name; may be given one.
pub(crate) const F_TMPFILE: u32 = 1 << 17;

pub(super) fn run(r: &mut Run<'_>, op: &Op) -> Step<Res> {
    let Op::Create { dir, name, fid, mode, umask, rdev, target, flags, open } = op else {
        return Err(Errno::EINVAL.into());
    };
    let dir = r.fid(*dir)?;
    let parent = r.txn.dir(dir)?;
    let tmp = flags & C_TMPFILE != 0;
    if !tmp {
        check_new_name(name)?;
        if let Some(dent) = r.txn.entry(dir, name)? {
            return existing(r, &dent, *flags, *open);
        }
    }
    if parent.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if r.full {
        return Err(Errno::ENOSPC.into());
    }
    let kind = FileKind::from_mode(*mode).ok_or(Errno::EINVAL)?;
    check_kind(kind, target, tmp)?;
    let (mode, xattrs) = initial_mode(r, dir, &parent, *mode, *umask)?;
    let mut inode = new_inode(r, &parent, kind, mode, *rdev, target);
    take_fid(r, *fid, &mut inode, &xattrs)?;
    if tmp {
        inode.nlink = 0;
        inode.flags |= F_TMPFILE;
        r.txn.set_raw(keys::of(keys::ORPHAN, *fid), Some(vec![record::VERSION]));
    } else {
        inode.home = Some(Home { dir, name: name.clone() });
        r.txn.set_entry(dir, name, Some(Dent { fid: *fid, kind }));
        r.touch_dir(dir, 1, i64::from(kind == FileKind::Dir))?;
    }
    let attr = inode.attr(*fid);
    r.txn.insert(*fid, inode);
    r.current = *fid;
    let want = flags & C_OPEN != 0 && kind == FileKind::File;
    let open = want.then(|| open::fresh(r, *fid, *open));
    Ok(Res::Entry { attr, created: true, open })
}

/// A character device 0:0 of mode 0, under a name that is free.
pub(super) fn whiteout(r: &mut Run<'_>, dir: Fid, name: &[u8], fid: Fid) -> Step<()> {
    let (parent, kind) = (r.txn.dir(dir)?, FileKind::Char);
    let (mode, xattrs) = initial_mode(r, dir, &parent, kind.mode_bits(), 0)?;
    let mut inode = new_inode(r, &parent, kind, mode, 0, &[]);
    take_fid(r, fid, &mut inode, &xattrs)?;
    inode.home = Some(Home { dir, name: name.to_vec() });
    r.txn.set_entry(dir, name, Some(Dent { fid, kind }));
    r.touch_dir(dir, 1, 0)?;
    r.txn.insert(fid, inode);
    Ok(())
}

/// Uses up a FID for an inode that begins with these attributes.
fn take_fid(r: &mut Run<'_>, fid: Fid, inode: &mut Inode, xattrs: &Xattrs) -> Step<()> {
    r.fresh(fid)?;
    r.then(Effect::Used(fid));
    if xattrs.list.0.is_empty() {
        return Ok(());
    }
    inode.flags |= A_HAS_XATTR;
    let acl = |n: &[u8]| xattrs.list.0.iter().any(|x| x.name == n);
    inode.flags |= if acl(acl::ACCESS) { A_HAS_ACL } else { 0 };
    inode.flags |= if acl(acl::DEFAULT) { F_DEFAULT_ACL } else { 0 };
    let value = Bytes::from(record::encode(xattrs));
    r.txn.set_blob(keys::of(keys::XATTR, fid), Some(value));
    Ok(())
}

fn existing(r: &mut Run<'_>, dent: &Dent, flags: u8, open: u32) -> Step<Res> {
    if flags & C_EXCL != 0 {
        return Err(Errno::EEXIST.into());
    }
    let inode = r.txn.inode(dent.fid)?;
    r.current = dent.fid;
    let cut = flags & C_TRUNC != 0 && inode.kind() == FileKind::File;
    if cut && flags & C_OPEN == 0 {
        open::truncate(r, dent.fid)?;
        let attr = r.txn.inode(dent.fid)?.attr(dent.fid);
        return Ok(Res::Entry { attr, created: false, open: None });
    }
    let open = if cut { open | O_TRUNC } else { open };
    if flags & C_OPEN == 0 || inode.kind() != FileKind::File {
        return Ok(Res::Entry { attr: inode.attr(dent.fid), created: false, open: None });
    }
    match open::run(r, dent.fid, open, 0)? {
        Res::Opened { attr, open } => Ok(Res::Entry { attr, created: false, open: Some(open) }),
        other => Ok(other),
    }
}

fn check_kind(kind: FileKind, target: &[u8], tmp: bool) -> Result<(), Errno> {
    match kind {
        FileKind::Symlink if target.len() > SYMLINK_MAX => Err(Errno::ENAMETOOLONG),
        FileKind::Symlink if target.is_empty() => Err(Errno::ENOENT),
        _ if tmp && kind != FileKind::File => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Mode after umask or default ACL, and the ACLs the new inode inherits.
fn initial_mode(
    r: &Run<'_>,
    dir: Fid,
    parent: &Inode,
    mode: u32,
    umask: u32,
) -> Step<(u32, Xattrs)> {
    let none = Xattrs { list: List(Vec::new()) };
    let kind = FileKind::from_mode(mode);
    if kind == Some(FileKind::Symlink) {
        return Ok((mode | 0o777, none));
    }
    let plain = mode & !(umask & 0o777);
    if parent.flags & F_DEFAULT_ACL == 0 {
        return Ok((plain, none));
    }
    let of_parent = r.txn.xattrs(dir, parent)?;
    let Some(x) = of_parent.list.0.iter().find(|x| x.name == acl::DEFAULT) else {
        return Ok((plain, none));
    };
    let Some(default) = Acl::decode(&x.value)? else { return Ok((plain, none)) };
    let (access, mode) = default.inherit(mode);
    let mut list = Vec::new();
    if !access.is_minimal() {
        list.push(Xattr { name: acl::ACCESS.to_vec(), value: Bytes::from(access.encode()) });
    }
    if kind == Some(FileKind::Dir) {
        list.push(Xattr { name: acl::DEFAULT.to_vec(), value: x.value.clone() });
    }
    Ok((mode, Xattrs { list: List(list) }))
}

fn new_inode(
    r: &Run<'_>,
    parent: &Inode,
    kind: FileKind,
    mode: u32,
    rdev: u64,
    target: &[u8],
) -> Inode {
    let now = r.txn.now;
    let setgid = parent.mode & 0o2000 != 0;
    let dir = kind == FileKind::Dir;
    Inode {
        mode: mode | if setgid && dir { 0o2000 } else { 0 },
        nlink: if dir { 2 } else { 1 },
        uid: r.cred.uid,
        gid: if setgid { parent.gid } else { r.cred.gid },
        rdev: if matches!(kind, FileKind::Char | FileKind::Block) { rdev } else { 0 },
        size: target.len() as u64,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags: if kind == FileKind::File { A_INLINE } else { 0 },
        version: 1,
        home: None,
        target: target.to_vec(),
        layout: None,
        next_layout: 0,
        // A directory hands its default down to directories; a file keeps it until it has objects.
        spec: if dir || kind == FileKind::File { parent.spec.clone() } else { None },
    }
}
