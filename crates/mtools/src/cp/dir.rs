//! Directories whose copies wait for their contents: their times and permissions come last, when the last
//! file in them is done, on whatever thread that is.

use super::attrs::{self, Copy};
use super::output::Notes;
use super::place::Place;
use super::run::Run;
use super::stat::Stat;
use crate::engine::interrupt;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is left to do with a directory when its contents are there.
pub struct Rest {
    pub src: PathBuf,
    pub dst: PathBuf,
    pub st: Stat,
    pub dst_st: Stat,
    pub new: bool,
    pub omitted: u32,
    pub restore: Option<u32>,
    /// Its place in the output, behind its contents'.
    pub notes: Notes,
}

/// A directory that is being copied.
pub struct Dir {
    /// Contents that are not done, and one for the traversal that is still in it.
    left: AtomicUsize,
    rest: Mutex<Option<Rest>>,
    /// Whose permissions may forbid to touch what lies in it: it comes later.
    parent: Option<Arc<Dir>>,
}

impl Dir {
    pub fn new(parent: Option<Arc<Dir>>) -> Arc<Self> {
        if let Some(parent) = &parent {
            parent.enter();
        }
        Arc::new(Self { left: AtomicUsize::new(1), rest: Mutex::new(None), parent })
    }

    /// Something in it is not done yet.
    pub fn enter(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// The traversal has left it.
    pub fn traversed(self: Arc<Self>, run: &Run, rest: Option<Rest>) {
        *self.rest.lock() = rest;
        self.leave(run);
    }

    /// Something in it is done.
    pub fn leave(self: Arc<Self>, run: &Run) {
        let mut dir = self;
        while dir.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(rest) = dir.rest.lock().take() {
                finish(rest, run);
            }
            match &dir.parent {
                Some(parent) => dir = parent.clone(),
                None => return,
            }
        }
    }
}

fn finish(rest: Rest, run: &Run) {
    if interrupt::pending() {
        // What is not complete shall not look so.
        return run.output.fail();
    }
    let Rest { src, dst, st, dst_st, new, omitted, restore, mut notes } = rest;
    let copy = Copy {
        src: Place::source(&src, false),
        dst: Place::Name(&dst),
        st: &st,
        dst_st: &dst_st,
        new,
        omitted,
        restore,
    };
    if !attrs::carry(&copy, &run.options, &run.process, &mut notes) {
        notes.fail();
    }
}
