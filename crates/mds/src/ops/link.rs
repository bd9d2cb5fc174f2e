//! Link: another name for a file.

use proto::mds::Res;
use proto::{Errno, Fid, FileKind};

use super::check_new_name;
use super::create::F_TMPFILE;
use crate::keys;
use crate::namespace::Run;
use crate::record::Dent;
use crate::txn::Step;

/// Most links of one file (ext4's limit).
pub(crate) const LINK_MAX: u32 = 65_000;

pub(super) fn run(r: &mut Run<'_>, fid: Fid, dir: Fid, name: &[u8]) -> Step<Res> {
    check_new_name(name)?;
    let (fid, dir) = (r.fid(fid)?, r.fid(dir)?);
    let parent = r.txn.dir(dir)?;
    if r.txn.entry(dir, name)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    let inode = r.txn.inode(fid)?;
    let kind = inode.kind();
    if kind == FileKind::Dir {
        return Err(Errno::EPERM.into());
    }
    if parent.nlink == 0 || (inode.nlink == 0 && inode.flags & F_TMPFILE == 0) {
        return Err(Errno::ENOENT.into());
    }
    if inode.nlink >= LINK_MAX {
        return Err(Errno::EMLINK.into());
    }
    r.add_link(fid, dir, name)?;
    let now = r.txn.now;
    let i = r.txn.edit(fid)?;
    i.nlink += 1;
    i.flags &= !F_TMPFILE;
    i.touch(now);
    let attr = i.attr(fid);
    if inode.nlink == 0 {
        r.txn.set_raw(keys::of(keys::ORPHAN, fid), None);
    }
    r.txn.set_entry(dir, name, Some(Dent { fid, kind }));
    r.touch_dir(dir, 1, 0)?;
    r.current = fid;
    Ok(Res::Attr { attr })
}
