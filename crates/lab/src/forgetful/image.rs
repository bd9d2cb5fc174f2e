//! Builds the directory that a power cut would have left.

use super::choose::{self, Choice};
use super::journal::{Entry, Journal};
use rustix::fs::{self as rfs, CWD, FileType, Mode};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where inodes are made before they get their names.
const STAGE: &str = ".forgetful-stage";
const ROOT: u64 = 1;

#[derive(Debug, Serialize)]
pub struct CutReport {
    pub operations: usize,
    pub cut: usize,
    /// Metadata up to here is durable.
    pub metadata: usize,
    pub files: usize,
    /// Bytes of data that arrived, and those that were lost.
    pub kept_bytes: u64,
    pub lost_bytes: u64,
}

struct Node {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Entries of a directory.
    names: BTreeMap<Vec<u8>, u64>,
    /// Names of anything else.
    links: u32,
}

/// Writes into `out`, which must not exist, what a cut after `at` operations leaves.
pub fn cut(journal: &Journal, at: usize, seed: Option<u64>, out: &Path) -> io::Result<CutReport> {
    let choice = choose::choose(&journal.entries, at, seed);
    build(journal, at, &choice, out)
}

/// The directory if the disk had forgotten nothing: an orderly end.
pub fn everything(journal: &Journal, out: &Path) -> io::Result<CutReport> {
    let whole = |(n, e): (usize, &Entry)| match e {
        Entry::Write { len, .. } => Some((n, std::iter::once(0..u64::from(*len)).collect())),
        _ => None,
    };
    let writes = journal.entries.iter().enumerate().filter_map(whole).collect();
    let choice = Choice { metadata: journal.entries.len(), writes };
    build(journal, journal.entries.len(), &choice, out)
}

fn build(journal: &Journal, at: usize, choice: &Choice, out: &Path) -> io::Result<CutReport> {
    let nodes = namespace(&journal.entries[..choice.metadata]);
    std::fs::create_dir(out)?;
    let stage = out.join(STAGE);
    std::fs::create_dir(&stage)?;
    let mut report = CutReport {
        operations: journal.entries.len(),
        cut: at.min(journal.entries.len()),
        metadata: choice.metadata,
        files: 0,
        kept_bytes: 0,
        lost_bytes: 0,
    };
    contents(journal, choice, &nodes, &stage, &mut report)?;
    place(&nodes, ROOT, out, &stage)?;
    std::fs::remove_dir_all(&stage)?;
    Ok(report)
}

/// Replays the durable metadata entries in memory.
fn namespace(entries: &[Entry]) -> HashMap<u64, Node> {
    let mut nodes = HashMap::new();
    let root = (libc::S_IFDIR | 0o755, 0, 0, 0, Vec::new());
    nodes.insert(ROOT, node(root));
    for entry in entries {
        replay(&mut nodes, entry);
    }
    nodes
}

fn node((mode, uid, gid, rdev, target): (u32, u32, u32, u32, Vec<u8>)) -> Node {
    let (xattrs, names) = (BTreeMap::new(), BTreeMap::new());
    Node { mode, uid, gid, rdev, target, xattrs, names, links: 0 }
}

fn replay(nodes: &mut HashMap<u64, Node>, entry: &Entry) {
    match entry {
        Entry::Create { parent, name, id, mode, uid, gid, rdev, target } => {
            nodes.insert(*id, node((*mode, *uid, *gid, *rdev, target.clone())));
            bind(nodes, *parent, name, *id);
        }
        Entry::Link { id, parent, name } => bind(nodes, *parent, name, *id),
        Entry::Unlink { parent, name } => {
            unbind(nodes, *parent, name);
        }
        Entry::Rename { parent, name, new_parent, new_name, exchange } => {
            let moved = unbind(nodes, *parent, name);
            let replaced = unbind(nodes, *new_parent, new_name);
            if let Some(id) = moved {
                bind(nodes, *new_parent, new_name, id);
            }
            if let (true, Some(id)) = (*exchange, replaced) {
                bind(nodes, *parent, name, id);
            }
        }
        Entry::Attr { id, mode, uid, gid } => {
            if let Some(node) = nodes.get_mut(id) {
                node.mode = mode.map_or(node.mode, |m| node.mode & libc::S_IFMT | m & 0o7777);
                node.uid = uid.unwrap_or(node.uid);
                node.gid = gid.unwrap_or(node.gid);
            }
        }
        Entry::SetXattr { id, name, value } => {
            if let Some(node) = nodes.get_mut(id) {
                node.xattrs.insert(name.clone(), value.clone());
            }
        }
        Entry::RemoveXattr { id, name } => {
            if let Some(node) = nodes.get_mut(id) {
                node.xattrs.remove(name);
            }
        }
        _ => {}
    }
}

fn bind(nodes: &mut HashMap<u64, Node>, parent: u64, name: &[u8], id: u64) {
    if let Some(dir) = nodes.get_mut(&parent) {
        dir.names.insert(name.to_vec(), id);
        if let Some(node) = nodes.get_mut(&id) {
            node.links += 1;
        }
    }
}

fn unbind(nodes: &mut HashMap<u64, Node>, parent: u64, name: &[u8]) -> Option<u64> {
    let id = nodes.get_mut(&parent)?.names.remove(name)?;
    if let Some(node) = nodes.get_mut(&id) {
        node.links = node.links.saturating_sub(1);
    }
    Some(id)
}

fn is_file(node: &Node) -> bool {
    FileType::from_raw_mode(node.mode).is_file()
}

/// Files being filled, opened as needed: ids of journals are many, descriptors few.
struct Stage<'a> {
    dir: &'a Path,
    open: Option<(u64, File)>,
}

impl Stage<'_> {
    fn file(&mut self, id: u64) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            let path = self.dir.join(id.to_string());
            self.open = Some((id, File::options().read(true).write(true).open(path)?));
        }
        self.open.as_ref().map(|(_, file)| file).ok_or_else(|| io::Error::other("no file"))
    }
}

fn contents(
    journal: &Journal,
    choice: &Choice,
    nodes: &HashMap<u64, Node>,
    dir: &Path,
    report: &mut CutReport,
) -> io::Result<()> {
    for (id, node) in nodes.iter().filter(|(_, n)| n.links > 0) {
        if !FileType::from_raw_mode(node.mode).is_dir() {
            make(&dir.join(id.to_string()), node)?;
            report.files += 1;
        }
    }
    let wanted = |id: &u64| nodes.get(id).is_some_and(|n| n.links > 0 && is_file(n));
    let mut stage = Stage { dir, open: None };
    let mut writes = choice.writes.iter().peekable();
    for (index, entry) in journal.entries[..report.cut].iter().enumerate() {
        let durable = index < choice.metadata;
        match entry {
            Entry::Write { id, off, len, .. } => {
                let pieces = writes.next_if(|(at, _)| *at == index).map(|(_, p)| p.as_slice());
                let pieces = pieces.unwrap_or_default();
                let kept: u64 = pieces.iter().map(|p| p.end - p.start).sum();
                report.kept_bytes += kept;
                report.lost_bytes += u64::from(*len) - kept;
                if !pieces.is_empty() && wanted(id) {
                    let data = journal.data(index)?;
                    put(stage.file(*id)?, *off, &data, pieces, durable)?;
                }
            }
            Entry::Truncate { id, size } if durable && wanted(id) => {
                stage.file(*id)?.set_len(*size)?
            }
            Entry::Allocate { id, mode, off, len } if durable && wanted(id) => {
                let mode = rfs::FallocateFlags::from_bits_retain(*mode as u32);
                rfs::fallocate(stage.file(*id)?, mode, *off, *len)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes what arrived. Without the metadata that grows the file, only what lies inside it counts.
fn put(
    file: &File,
    off: u64,
    data: &[u8],
    pieces: &[std::ops::Range<u64>],
    may_grow: bool,
) -> io::Result<()> {
    let size = file.metadata()?.len();
    for piece in pieces {
        let mut end = piece.end;
        if !may_grow {
            end = end.min(size.saturating_sub(off));
        }
        if piece.start < end {
            file.write_all_at(&data[piece.start as usize..end as usize], off + piece.start)?;
        }
    }
    Ok(())
}

fn make(path: &Path, node: &Node) -> io::Result<()> {
    let kind = FileType::from_raw_mode(node.mode);
    match kind {
        FileType::Symlink => rfs::symlinkat(node.target.as_slice(), CWD, path)?,
        _ => rfs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), u64::from(node.rdev))?,
    }
    Ok(())
}

fn finish(path: &Path, node: &Node) -> io::Result<()> {
    let (uid, gid) = (rfs::Uid::from_raw(node.uid), rfs::Gid::from_raw(node.gid));
    match rfs::chownat(CWD, path, Some(uid), Some(gid), rfs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    if !FileType::from_raw_mode(node.mode).is_symlink() {
        rfs::chmodat(CWD, path, Mode::from_raw_mode(node.mode), rfs::AtFlags::empty())?;
    }
    for (name, value) in &node.xattrs {
        rfs::lsetxattr(path, name.as_slice(), value, rfs::XattrFlags::empty())?;
    }
    Ok(())
}

/// Gives everything below a directory its names.
fn place(nodes: &HashMap<u64, Node>, dir: u64, path: &Path, stage: &Path) -> io::Result<()> {
    let Some(node) = nodes.get(&dir) else { return Ok(()) };
    for (name, id) in &node.names {
        let Some(child) = nodes.get(id) else { continue };
        let to: PathBuf = path.join(OsStr::from_bytes(name));
        if FileType::from_raw_mode(child.mode).is_dir() {
            std::fs::create_dir(&to)?;
            place(nodes, *id, &to, stage)?;
            continue;
        }
        std::fs::hard_link(stage.join(id.to_string()), &to)?;
        finish(&to, child)?;
    }
    finish(path, node)
}
