//! Chunks of large files that are lent to others: other processes, that open the same files by name.
//!
//! The one that opened a file lends chunks out ([`Engine::take_part`]), is told how they ended, and finishes
//! the file; who borrows copies a range ([`Engine::copy_part`]). Never speaks to anybody: how a part gets
//! there and back is another's matter.

use super::chunks::Chunks;
use super::plan::{Plan, Sides};
use super::range::{Range, Reached};
use super::{Data, Engine, Fault};
use parking_lot::Mutex;
use rustix::fs::fstat;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Large files under way, oldest first, where somebody borrows.
#[derive(Default)]
pub(super) struct Lent {
    open: AtomicBool,
    files: Mutex<VecDeque<Arc<Chunks>>>,
}

impl Lent {
    pub fn note(&self, file: &Arc<Chunks>) {
        if self.open.load(Ordering::Relaxed) {
            self.files.lock().push_back(file.clone());
        }
    }
}

/// A file as all hosts see it: its device has another number on each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    pub ino: u64,
    pub size: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
}

impl Seen {
    pub fn of(file: &File) -> io::Result<Self> {
        let st = fstat(file)?;
        Ok(Self {
            ino: st.st_ino,
            size: u64::try_from(st.st_size).unwrap_or(0),
            mtime: (st.st_mtime, st.st_mtime_nsec as i64),
        })
    }
}

/// What one who borrows must know of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartFile {
    pub src_name: PathBuf,
    pub dst_name: PathBuf,
    pub src: Seen,
    /// Of the destination, whose size changes under way.
    pub dst_ino: u64,
    /// Bytes the destination had before the copy.
    pub had: u64,
    /// Where the copy ends as planned.
    pub end: u64,
}

/// A chunk that is lent. To be ended or given back: until then its file is not finished.
pub struct Part {
    file: Arc<Chunks>,
    n: u64,
    pub from: u64,
    pub to: u64,
}

impl Part {
    /// None when the file cannot be described (any more).
    pub fn file(&self) -> Option<PartFile> {
        self.file.described()
    }

    /// How it ended; with the last one the file is finished, here and now.
    pub fn ended(self, engine: &Engine, reached: Reached) {
        self.file.note(self.from, self.to, &reached);
        self.file.settle(engine, self.n, reached);
    }

    /// Nobody has copied it: our own threads will.
    pub fn give_back(self, engine: &Engine) {
        self.file.returned(self.n);
        engine.pool().again(engine, self.file);
    }
}

/// Something that is awaited from elsewhere: until it is dropped the engine is not drained.
pub struct Held(Engine);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.pool().finished();
    }
}

impl Engine {
    /// From now on chunks may be taken by [`Self::take_part`].
    pub fn lend(&self) {
        self.inner.lent.open.store(true, Ordering::Relaxed);
    }

    /// A chunk of the oldest file that has one.
    pub fn take_part(&self) -> Option<Part> {
        let mut files = self.inner.lent.files.lock();
        while let Some(file) = files.front() {
            match file.take() {
                Some(n) => {
                    let (from, to) = file.bounds(n);
                    if file.known(from, to) {
                        let known = Reached { at: to, written: to, ..Reached::default() };
                        let file = file.clone();
                        drop(files);
                        file.settle(self, n, known);
                        files = self.inner.lent.files.lock();
                        continue;
                    }
                    return Some(Part { file: file.clone(), n, from, to });
                }
                None => drop(files.pop_front()),
            }
        }
        None
    }

    /// Copies [`from`, `to`) of a file that another has opened, too.
    pub fn copy_part(&self, data: &Data, had: u64, end: u64, from: u64, to: u64) -> Reached {
        let plan = Sides::of(data).and_then(|sides| Plan::new(self, data, &sides));
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(fault) => return Reached::failed(from, fault),
        };
        (plan.had, plan.end) = (had, end);
        let stop = AtomicBool::new(false);
        Range { engine: self, data, plan: &plan, stop: &stop }.copy(from, to)
    }

    /// See [`Held`].
    pub fn hold(&self) -> Held {
        self.pool().hold();
        Held(self.handle())
    }
}

impl Reached {
    /// Nothing was copied.
    pub fn failed(at: u64, fault: Fault) -> Self {
        Self { at, fault: Some(fault), ..Self::default() }
    }
}
