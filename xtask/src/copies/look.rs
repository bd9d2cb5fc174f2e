//! A tree as it can be compared: everything that cp is to carry over.

use anyhow::Result;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Times before this were given to files by the test; later ones are those of the copy.
const GIVEN: i64 = 1_500_000_000;

#[derive(PartialEq, Debug)]
pub struct Entry {
    path: PathBuf,
    mode: String,
    links: u64,
    owner: (u32, u32),
    size: u64,
    /// Nanoseconds, where they were not made by the copy itself.
    mtime: Option<(i64, i64)>,
    target: Option<PathBuf>,
    /// The first name of the same file.
    twin: Option<PathBuf>,
    content: Option<u32>,
    /// Bytes that are no holes.
    allocated: About,
    xattrs: Vec<(OsString, Vec<u8>)>,
}

/// Bytes that a file system may count in its own way: equal to the next 64 KiB.
#[derive(Clone, Copy, Debug)]
struct About(u64);

impl PartialEq for About {
    fn eq(&self, other: &Self) -> bool {
        self.0.abs_diff(other.0) < 65_536
    }
}

impl Entry {
    pub fn below(&self, dir: &Path) -> bool {
        self.path != dir && self.path.starts_with(dir)
    }

    /// Without what it shares with other names.
    pub fn alone(self) -> Self {
        Self { links: 0, twin: None, ..self }
    }
}

/// cp (also 9.7) loses the attributes of a directory that it reaches through a symbolic link.
pub fn forgive_kept_attributes(theirs: &[Entry], ours: &mut [Entry]) {
    for (a, b) in theirs.iter().zip(ours) {
        if a.path == b.path && a.mode.starts_with('4') && a.xattrs.is_empty() {
            b.xattrs.clear();
        }
    }
}

/// A directory's times that a later operand has spoiled are set again by a run that only finishes.
pub fn forgive_times_set_again(theirs: &[Entry], ours: &mut [Entry]) {
    for (a, b) in theirs.iter().zip(ours) {
        if a.path == b.path && a.mode.starts_with('4') && a.mtime.is_none() {
            b.mtime = None;
        }
    }
}

/// All there is below `root`, by name.
pub fn tree(root: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut first = BTreeMap::new();
    walk(root, root, &mut first, &mut entries)?;
    Ok(entries)
}

fn walk(
    root: &Path,
    dir: &Path,
    first: &mut BTreeMap<(u64, u64), PathBuf>,
    out: &mut Vec<Entry>,
) -> Result<()> {
    let mut names =
        std::fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let path = dir.join(name);
        let meta = path.symlink_metadata()?;
        let shown = path.strip_prefix(root)?.to_path_buf();
        let file = meta.is_file();
        let twin = (meta.nlink() > 1 && !meta.is_dir()).then(|| {
            first.entry((meta.dev(), meta.ino())).or_insert_with(|| shown.clone()).clone()
        });
        out.push(Entry {
            path: shown,
            mode: format!("{:o}", meta.mode()),
            links: if meta.is_dir() { 0 } else { meta.nlink() },
            owner: (meta.uid(), meta.gid()),
            size: if meta.is_dir() { 0 } else { meta.size() },
            mtime: (meta.mtime() < GIVEN).then(|| (meta.mtime(), meta.mtime_nsec())),
            target: if meta.is_symlink() { Some(std::fs::read_link(&path)?) } else { None },
            twin,
            content: if file { Some(crc32c::crc32c(&std::fs::read(&path)?)) } else { None },
            allocated: About(if file { meta.blocks() * 512 } else { 0 }),
            xattrs: xattrs(&path)?,
        });
        if meta.is_dir() {
            walk(root, &path, first, out)?;
        }
    }
    Ok(())
}

fn xattrs(path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
    use std::os::unix::ffi::OsStringExt;
    let mut room = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut room[..])?;
    let mut found = Vec::new();
    for name in room[..length].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        found.push((OsString::from_vec(name.to_vec()), value[..length].to_vec()));
    }
    found.sort();
    Ok(found)
}
