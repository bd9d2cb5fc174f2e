//! What a copy gets from its source besides its bytes: times, owner, extended attributes, permissions,
//! in this order, because a new owner takes set-ID bits and capabilities away.

use super::acl;
use super::options::Options;
use super::output::Notes;
use super::place::Place;
use super::stat::Stat;
use super::xattr;
use crate::gnu::quote;
use rustix::fs::Timestamps;
use rustix::io::Errno;
use std::io;

const SET_IDS: u32 = 0o7000;
const OWNER_BITS: u32 = 0o700;

/// This process' own rights and habits.
pub struct Process {
    pub umask: u32,
    /// Root: that owners cannot be kept is worth a message.
    pub root: bool,
}

impl Process {
    pub fn new() -> Self {
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(umask);
        Self { umask: umask.as_raw_mode(), root: rustix::process::geteuid().is_root() }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

/// A copy whose bytes are there.
pub struct Copy<'a> {
    pub src: Place<'a>,
    pub dst: Place<'a>,
    /// Of the source.
    pub st: &'a Stat,
    /// Of the destination, before anything here.
    pub dst_st: &'a Stat,
    /// Nothing was there before.
    pub new: bool,
    /// Permissions that were left out when it was made.
    pub omitted: u32,
    /// The mode to come back to where it was widened for the making of it.
    pub restore: Option<u32>,
}

/// Carries over what the options ask for; false when the copy counts as failed.
pub fn carry(copy: &Copy, options: &Options, process: &Process, notes: &mut Notes) -> bool {
    let p = &options.preserve;
    let link = copy.dst_st.is_symlink() || copy.st.is_symlink();
    let mut perm = copy.st.perm();
    if p.timestamps && !times(copy, notes) && p.required {
        return false;
    }
    if p.ownership && (copy.new || !copy.st.same_owner(copy.dst_st)) {
        match owner(copy, options, process, notes) {
            Owner::Kept => {}
            Owner::Lost => perm &= !SET_IDS,
            Owner::Failed => return false,
        }
    }
    let mut good = true;
    if p.xattr && !xattr::copy(copy.src, copy.dst, options, notes) && p.xattr_required {
        notes.fail();
        good = false;
    }
    if link {
        return good;
    }
    good & permissions(copy, perm, options, process, notes)
}

fn times(copy: &Copy, notes: &mut Notes) -> bool {
    let times = Timestamps { last_access: copy.st.atime, last_modification: copy.st.mtime };
    match copy.dst.set_times(&times) {
        Ok(()) => true,
        Err(e) => {
            tell(notes, &format!("preserving times for {}", quote::always(copy.dst.path())), e);
            false
        }
    }
}

enum Owner {
    Kept,
    /// Not kept, and nobody expected it: then set-ID bits must go.
    Lost,
    Failed,
}

fn owner(copy: &Copy, options: &Options, process: &Process, notes: &mut Notes) -> Owner {
    let required = options.preserve.required;
    let shown = quote::always(copy.dst.path());
    let link = copy.st.is_symlink();
    if !copy.new && options.preserve.mode && !link {
        // Between the new owner and the new mode nobody shall have what the old mode gave him.
        let (old, new) = (copy.dst_st.perm(), copy.st.perm());
        if old & (!new | SET_IDS) != 0
            && let Err(e) = acl::plain(copy.dst, old & new & OWNER_BITS)
            && process.root
        {
            tell(notes, &format!("clearing permissions for {shown}"), e);
            return if required { Owner::Failed } else { Owner::Lost };
        }
    }
    let e = match copy.dst.set_owner(Some(copy.st.uid), Some(copy.st.gid)) {
        Ok(()) => return Owner::Kept,
        Err(e) => e,
    };
    if matches!(e, Errno::PERM | Errno::INVAL) {
        // Both cannot be set; the group alone may.
        let _ = copy.dst.set_owner(None, Some(copy.st.gid));
    }
    if matches!(e, Errno::PERM | Errno::INVAL | Errno::ACCESS) && !process.root {
        return Owner::Lost;
    }
    tell(notes, &format!("failed to preserve ownership for {shown}"), e);
    if required { Owner::Failed } else { Owner::Lost }
}

fn permissions(
    copy: &Copy,
    perm: u32,
    options: &Options,
    process: &Process,
    notes: &mut Notes,
) -> bool {
    let p = &options.preserve;
    let shown = || quote::always(copy.dst.path());
    if p.mode {
        return match acl::copy(copy.src, copy.dst, perm, copy.st.is_dir()) {
            Ok(()) => true,
            Err(acl::Failed::Read(e)) => {
                tell(notes, &quote::always(copy.src.path()), e);
                !p.required
            }
            Err(acl::Failed::Write(e)) => {
                tell(notes, &format!("preserving permissions for {}", shown()), e);
                !p.required
            }
        };
    }
    if p.default_mode && copy.new {
        let all = if copy.st.is_dir() || copy.st.kind() == rustix::fs::FileType::Socket {
            0o777
        } else {
            0o666
        };
        return match acl::plain(copy.dst, all & !process.umask) {
            Ok(()) => true,
            Err(e) => {
                tell(notes, &format!("setting permissions for {}", shown()), e);
                false
            }
        };
    }
    let omitted = copy.omitted & !process.umask;
    let now = copy.dst_st.perm();
    let wanted = match copy.restore {
        Some(before) => Some(before | omitted),
        None => (omitted & !now != 0).then_some(now | omitted),
    };
    if let Some(perm) = wanted
        && let Err(e) = copy.dst.set_mode(perm)
    {
        tell(notes, &format!("preserving permissions for {}", shown()), e);
        return !p.required;
    }
    true
}

fn tell(notes: &mut Notes, what: &str, e: Errno) {
    notes.errno(what, &io::Error::from(e));
}
