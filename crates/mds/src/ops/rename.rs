//! Rename, with NOREPLACE, EXCHANGE and WHITEOUT.

use proto::mds::{RN_EXCHANGE, RN_NOREPLACE, Res};
use proto::{Errno, Fid, FileKind};

use super::{check_name, create};
use crate::namespace::Run;
use crate::record::{Dent, Home};
use crate::txn::Step;

/// Deepest directory a rename looks up from; deeper trees are refused with ELOOP.
const MAX_DEPTH: usize = 100_000;

type Place<'a> = (Fid, &'a Vec<u8>);

/// Renames, and makes a whiteout at the old name: what a union of directories takes for a name removed from its
/// upper layer.
pub(super) fn whiteout(
    r: &mut Run<'_>,
    from: Place<'_>,
    to: Place<'_>,
    flags: u32,
    fid: Fid,
) -> Step<Res> {
    if flags & !RN_NOREPLACE != 0 {
        return Err(Errno::EINVAL.into());
    }
    let done = run(r, from, to, flags)?;
    let dir = r.fid(from.0)?;
    // Of two links of one file nothing was renamed.
    if r.txn.entry(dir, from.1)?.is_none() {
        create::whiteout(r, dir, from.1, fid)?;
    }
    Ok(done)
}

pub(super) fn run(r: &mut Run<'_>, from: Place<'_>, to: Place<'_>, flags: u32) -> Step<Res> {
    let from = (r.fid(from.0)?, from.1);
    let to = (r.fid(to.0)?, to.1);
    check(from.1, to.1, flags)?;
    r.txn.dir(from.0)?;
    let target_dir = r.txn.dir(to.0)?;
    let moved = r.txn.entry(from.0, from.1)?.ok_or(Errno::ENOENT)?;
    let replaced = r.txn.entry(to.0, to.1)?;
    if target_dir.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    // The order of the checks is Linux's.
    match replaced {
        Some(_) if flags & RN_NOREPLACE != 0 => return Err(Errno::EEXIST.into()),
        None if flags & RN_EXCHANGE != 0 => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    if moved.kind == FileKind::Dir && from.0 != to.0 {
        not_below(r, moved.fid, to.0)?;
    }
    match replaced {
        Some(other) if flags & RN_EXCHANGE != 0 => exchange(r, from, to, &moved, &other),
        // Two links of one file: POSIX says nothing happens.
        Some(other) if other.fid == moved.fid => {
            let attr = r.txn.inode(moved.fid)?.attr(moved.fid);
            Ok(Res::Renamed { moved: attr, replaced: None })
        }
        other => move_over(r, from, to, &moved, other.as_ref()),
    }
}

fn check(from: &[u8], to: &[u8], flags: u32) -> Result<(), Errno> {
    check_name(from)?;
    check_name(to)?;
    let dots = |n: &[u8]| n == b"." || n == b"..";
    if dots(from) || dots(to) {
        return Err(Errno::EBUSY);
    }
    let both = RN_NOREPLACE | RN_EXCHANGE;
    if flags & !both != 0 || flags & both == both { Err(Errno::EINVAL) } else { Ok(()) }
}

/// A directory cannot move into itself.
fn not_below(r: &Run<'_>, moved: Fid, dir: Fid) -> Step<()> {
    let mut at = dir;
    for _ in 0..MAX_DEPTH {
        if at == moved {
            return Err(Errno::EINVAL.into());
        }
        match &r.txn.inode(at)?.home {
            Some(h) if at != Fid::ROOT => at = h.dir,
            _ => return Ok(()),
        }
    }
    Err(Errno::ELOOP.into())
}

/// The record of where an inode is follows its name.
fn move_home(r: &mut Run<'_>, fid: Fid, from: Place<'_>, to: Place<'_>) -> Step<()> {
    let now = r.txn.now;
    let i = r.txn.edit(fid)?;
    i.touch(now);
    let here = i.home.as_ref().is_some_and(|h| h.dir == from.0 && h.name == *from.1);
    if here || i.is_dir() {
        i.home = Some(Home { dir: to.0, name: to.1.clone() });
        return Ok(());
    }
    r.txn.set_raw(crate::keys::link(fid, from.0, from.1), None);
    r.add_link(fid, to.0, to.1)
}

fn move_over(
    r: &mut Run<'_>,
    from: Place<'_>,
    to: Place<'_>,
    moved: &Dent,
    over: Option<&Dent>,
) -> Step<Res> {
    let is_dir = moved.kind == FileKind::Dir;
    let mut lost_dir = false;
    if let Some(o) = over {
        lost_dir = o.kind == FileKind::Dir;
        match (is_dir, lost_dir) {
            (true, false) => return Err(Errno::ENOTDIR.into()),
            (false, true) => return Err(Errno::EISDIR.into()),
            _ => {}
        }
        if lost_dir && r.txn.inode(o.fid)?.size > 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
    }
    r.txn.inode(moved.fid)?;
    r.txn.set_entry(from.0, from.1, None);
    r.txn.set_entry(to.0, to.1, Some(moved.clone()));
    r.touch_dir(from.0, -1, -i64::from(is_dir))?;
    let gained = i64::from(over.is_none());
    r.touch_dir(to.0, gained, i64::from(is_dir) - i64::from(lost_dir))?;
    let replaced = match over {
        Some(o) => Some(r.drop_link(o.fid, to.0, to.1)?),
        None => None,
    };
    move_home(r, moved.fid, from, to)?;
    let attr = r.txn.inode(moved.fid)?.attr(moved.fid);
    Ok(Res::Renamed { moved: attr, replaced })
}

fn exchange(r: &mut Run<'_>, from: Place<'_>, to: Place<'_>, a: &Dent, b: &Dent) -> Step<Res> {
    if b.kind == FileKind::Dir && from.0 != to.0 {
        not_below(r, b.fid, from.0)?;
    }
    r.txn.inode(a.fid)?;
    r.txn.inode(b.fid)?;
    if a.fid != b.fid {
        r.txn.set_entry(from.0, from.1, Some(b.clone()));
        r.txn.set_entry(to.0, to.1, Some(a.clone()));
        let (da, db) = (i64::from(a.kind == FileKind::Dir), i64::from(b.kind == FileKind::Dir));
        r.touch_dir(from.0, 0, db - da)?;
        r.touch_dir(to.0, 0, da - db)?;
        move_home(r, a.fid, from, to)?;
        move_home(r, b.fid, to, from)?;
    }
    let moved = r.txn.inode(a.fid)?.attr(a.fid);
    let replaced = Some(r.txn.inode(b.fid)?.attr(b.fid));
    Ok(Res::Renamed { moved, replaced })
}
