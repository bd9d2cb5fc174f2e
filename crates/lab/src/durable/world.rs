//! What a thread's steps must have left: names, contents, attributes. Data that nothing synced is
//! kept aside as "may be there".

use super::step::{self, Step, Sync};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Dir,
    Symlink(String),
    /// Number of the file in [`World::files`]; hard links share one.
    File(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FileState {
    /// Synced contents.
    pub(crate) data: Vec<u8>,
    /// Writes since the last sync: offset and bytes, oldest first.
    pub(crate) pending: Vec<(u64, Vec<u8>)>,
    pub(crate) xattr: Option<u64>,
    pub(crate) mode: Option<u32>,
}

impl FileState {
    fn settle(&mut self) {
        for (off, bytes) in std::mem::take(&mut self.pending) {
            paint(&mut self.data, off, &bytes);
        }
    }

    /// The size with all pending writes.
    pub(crate) fn reach(&self) -> u64 {
        let ends = self.pending.iter().map(|(off, b)| off + b.len() as u64);
        ends.max().unwrap_or(0).max(self.data.len() as u64)
    }
}

fn paint(data: &mut Vec<u8>, off: u64, bytes: &[u8]) {
    let (from, to) = (off as usize, off as usize + bytes.len());
    if data.len() < to && !bytes.is_empty() {
        data.resize(to, 0);
    }
    data[from.min(to)..to].copy_from_slice(bytes);
}

#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) files: Vec<FileState>,
}

impl World {
    pub(crate) fn file(&self, path: &str) -> Option<&FileState> {
        match self.nodes.get(path) {
            Some(Node::File(id)) => self.files.get(*id),
            _ => None,
        }
    }

    fn file_mut(&mut self, path: &str) -> Option<&mut FileState> {
        match self.nodes.get(path) {
            Some(Node::File(id)) => self.files.get_mut(*id),
            _ => None,
        }
    }

    fn new_file(&mut self, path: &str, data: Vec<u8>) {
        self.nodes.insert(path.into(), Node::File(self.files.len()));
        self.files.push(FileState { data, ..FileState::default() });
    }

    fn settle_all(&mut self) {
        self.files.iter_mut().for_each(FileState::settle);
    }

    /// The effect of a step whose sync returned.
    pub(crate) fn done(&mut self, step: &Step) {
        match step {
            Step::Mkdir { path } => {
                self.nodes.insert(path.clone(), Node::Dir);
            }
            Step::Rmdir { path } | Step::Unlink { path } => {
                self.nodes.remove(path);
            }
            Step::Create { path, len, generation, sync, .. } => {
                self.new_file(path, step::data(0, *len, *generation));
                if *sync == Sync::Syncfs {
                    self.settle_all();
                }
            }
            Step::Write { path, off, len, generation, sync } => {
                self.written(path, *off, step::data(*off, *len, *generation), *sync);
            }
            Step::Unsynced { path, off, len, generation } => {
                if let Some(file) = self.file_mut(path) {
                    file.pending.push((*off, step::data(*off, *len, *generation)));
                }
            }
            Step::Truncate { path, len } => {
                if let Some(file) = self.file_mut(path) {
                    file.settle();
                    file.data.resize(*len as usize, 0);
                }
            }
            Step::Rename { from, to } => {
                if let Some(node) = self.nodes.remove(from) {
                    self.nodes.insert(to.clone(), node);
                }
            }
            Step::Replace { path, len, generation } => {
                self.new_file(path, step::data(0, *len, *generation));
            }
            Step::Link { from, to } => {
                if let Some(node) = self.nodes.get(from).cloned() {
                    self.nodes.insert(to.clone(), node);
                }
            }
            Step::Symlink { target, path } => {
                self.nodes.insert(path.clone(), Node::Symlink(target.clone()));
            }
            Step::Xattr { path, generation } => {
                if let Some(file) = self.file_mut(path) {
                    file.settle();
                    file.xattr = Some(*generation);
                }
            }
            Step::Chmod { path, mode } => {
                if let Some(file) = self.file_mut(path) {
                    file.settle();
                    file.mode = Some(*mode);
                }
            }
            Step::Batch { path, count, len, generation } => {
                for n in 0..*count {
                    let data = step::data(0, *len, *generation + u64::from(n));
                    self.new_file(&format!("{path}{n}"), data);
                }
                self.settle_all();
            }
        }
    }

    fn written(&mut self, path: &str, off: u64, bytes: Vec<u8>, sync: Sync) {
        let Some(file) = self.file_mut(path) else { return };
        match sync {
            // Only this range is synced; what was pending around it may still be lost.
            Sync::OpenSync | Sync::OpenDsync | Sync::Msync => {
                for (start, old) in &mut file.pending {
                    overlay(*start, old, off, &bytes);
                }
                paint(&mut file.data, off, &bytes);
            }
            Sync::Syncfs => {
                file.pending.push((off, bytes));
                self.settle_all();
            }
            Sync::Fsync | Sync::Fdatasync | Sync::Direct => {
                file.pending.push((off, bytes));
                file.settle();
            }
        }
    }
}

/// Writes `bytes` at `off` over the part of an older write that it covers.
fn overlay(start: u64, old: &mut [u8], off: u64, bytes: &[u8]) {
    let from = start.max(off);
    let to = (start + old.len() as u64).min(off + bytes.len() as u64);
    if from < to {
        let (a, b, n) = ((from - start) as usize, (from - off) as usize, (to - from) as usize);
        old[a..a + n].copy_from_slice(&bytes[b..b + n]);
    }
}
