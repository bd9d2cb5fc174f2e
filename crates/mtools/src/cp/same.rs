//! Whether source and destination are one file, and if so whether copying may go on nevertheless.

use super::options::{Clobber, Follow, Options};
use super::stat::Stat;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is to be done with a source and an existing destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Copy,
    /// Nothing is to be done: it is there already.
    Done,
    /// Copying would destroy the source.
    SameFile,
}

/// A source, and a destination that is there, each as it was looked at (behind links or not).
#[derive(Clone, Copy)]
pub struct Sides<'a> {
    pub src: &'a Path,
    pub src_st: &'a Stat,
    pub dst: &'a Path,
    pub dst_st: &'a Stat,
    /// Which symbolic links of the source are followed here.
    pub follow: Follow,
}

pub fn verdict(sides: &Sides, o: &Options) -> Verdict {
    let Sides { src, src_st, dst, dst_st, follow } = *sides;
    let same = src_st.same(dst_st);
    if same && o.hard_link {
        return Verdict::Done;
    }
    if follow == Follow::Never {
        if src_st.is_symlink() && dst_st.is_symlink() {
            return two_links(src, dst, same, o);
        }
        return by_names(sides, o);
    }
    if !same {
        return Verdict::Copy;
    }
    // One file behind the names: what are the names themselves?
    let (Ok(src_link), Ok(dst_link)) = (Stat::nofollow(src), Stat::nofollow(dst)) else {
        return Verdict::Copy;
    };
    if src_link.is_symlink() && dst_link.is_symlink() && o.remove_destination {
        return Verdict::Copy;
    }
    by_names(&Sides { src_st: &src_link, dst_st: &dst_link, ..*sides }, o)
}

/// Two symbolic links that are copied as such.
fn two_links(src: &Path, dst: &Path, same: bool, o: &Options) -> Verdict {
    if same_entry(src, dst) {
        Verdict::SameFile
    } else if same && !o.backup.on() {
        Verdict::Done
    } else {
        Verdict::Copy
    }
}

/// What the names themselves are decides.
fn by_names(sides: &Sides, o: &Options) -> Verdict {
    let Sides { src, src_st, dst, dst_st, follow } = *sides;
    let same = src_st.same(dst_st);
    let (src_link, dst_link) = (src_st.is_symlink(), dst_st.is_symlink());
    if o.backup.on() {
        // The destination is moved out of the way: fine, unless that takes the source away.
        let lost = if same {
            same_entry(src, dst)
        } else {
            follow != Follow::Never && src_link && !dst_link
        };
        return if lost { Verdict::SameFile } else { Verdict::Copy };
    }
    if o.remove_destination && (dst_link || same && dst_st.nlink > 1 && !same_entry(src, dst)) {
        return Verdict::Copy;
    }
    if !src_link && !dst_link {
        if !same {
            return Verdict::Copy;
        }
        if o.hard_link {
            return Verdict::Done;
        }
    }
    // A symbolic link that is to be replaced by one does not touch what it points to.
    if o.symbolic_link && dst_link && !src_link && o.force {
        return Verdict::Copy;
    }
    if follow == Follow::Never {
        let (Ok(src_end), Ok(dst_end)) = (end(src, src_st), end(dst, dst_st)) else {
            return Verdict::Copy;
        };
        if !src_end.same(&dst_end) {
            return Verdict::Copy;
        }
        if o.hard_link {
            return if dst_link { Verdict::Copy } else { Verdict::Done };
        }
    }
    Verdict::SameFile
}

/// The file a name comes to.
fn end(path: &Path, st: &Stat) -> std::io::Result<Stat> {
    if st.is_symlink() { Stat::follow(path) } else { Ok(*st) }
}

/// Both names are one entry of one directory.
pub fn same_entry(a: &Path, b: &Path) -> bool {
    let (a_dir, a_base) = split(a);
    let (b_dir, b_base) = split(b);
    a_base == b_base
        && match (Stat::follow(a_dir), Stat::follow(b_dir)) {
            (Ok(a), Ok(b)) => a.same(&b),
            _ => false,
        }
}

/// Directory and last component, without trailing slashes.
pub fn split(path: &Path) -> (&Path, &[u8]) {
    let bytes = strip(path.as_os_str().as_bytes());
    match bytes.iter().rposition(|b| *b == b'/') {
        None => (Path::new("."), bytes),
        Some(at) => {
            let dir = strip(&bytes[..at]);
            let dir: &[u8] = if dir.is_empty() { b"/" } else { dir };
            (Path::new(OsStr::from_bytes(dir)), &bytes[at + 1..])
        }
    }
}

/// Without trailing slashes, but for the root.
pub fn strip(mut bytes: &[u8]) -> &[u8] {
    while bytes.len() > 1 && bytes.ends_with(b"/") {
        bytes = &bytes[..bytes.len() - 1];
    }
    bytes
}

/// Source and destination must be compared at all.
pub fn matters(o: &Options) -> bool {
    o.clobber != Clobber::Skip
}
