//! Registers in pages that are mapped (mmap(2), shared) while others write them.
//!
//! Role: each has a page of its own, because what is stored through a mapping goes out by whole pages.
//! A store has ended when msync(MS_SYNC) has returned, and a mapping is read after
//! msync(MS_SYNC | MS_INVALIDATE). Assumptions: until it has ended, a store is seen by the mappings of its
//! own mount only; so these do not look meanwhile. Also looks whether a mapping that is left alone comes
//! to show what the file holds.

use super::drive::{Any, MAPPED, PAGE, Worker};
use super::objects::RegisterOp;
use crate::sys::Mapping;
use rand::Rng;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Where they are: file and offset. Two beside each other in a file that lives with the metadata, two in
/// one with objects.
pub(super) const PAGES: [(&str, u64); 4] =
    [("pages", 0), ("pages", PAGE as u64), ("large", 2 << 20), ("large", (2 << 20) + PAGE as u64)];

/// How long a mapping that is left alone may take to show what its file holds; its length proves nothing.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// A worker's mappings, by register.
pub(super) type Maps = HashMap<usize, Mapping>;

/// Who stores to a register through a mapping of this mount, and who reads one.
#[derive(Default)]
pub(super) struct Stores([RwLock<()>; PAGES.len()]);

impl Worker<'_> {
    pub(super) fn mapped(&mut self) {
        let n = self.rng.random_range(0..PAGES.len());
        let (file, at) = PAGES[n];
        let path = self.dir.join(file);
        let how = self.rng.random_range(0..4);
        self.who.way = how;
        let set = self.new_value();
        let register = MAPPED + n;
        let unknown = set.map(|v| Any::Register(register, RegisterOp::MaybeSet(v)));
        let lock = &self.stores.0[n];
        self.note(
            |w| {
                let op = match (set, how) {
                    (Some(v), 0 | 1) => {
                        w.put(&path, at, v, how)?;
                        RegisterOp::Set(v)
                    }
                    (Some(v), _) => {
                        let _alone = lock.write().unwrap_or_else(PoisonError::into_inner);
                        let map = w.map(n, &path)?;
                        map.try_write(0, &v.to_le_bytes()).map_err(io::Error::from_raw_os_error)?;
                        map.sync().map_err(io::Error::from_raw_os_error)?;
                        RegisterOp::Set(v)
                    }
                    (None, 0 | 1) => RegisterOp::Get(w.get(&path, at, how)?),
                    (None, _) => {
                        let _beside = lock.read().unwrap_or_else(PoisonError::into_inner);
                        let map = w.map(n, &path)?;
                        map.refresh().map_err(io::Error::from_raw_os_error)?;
                        RegisterOp::Get(value(map)?)
                    }
                };
                Ok(Any::Register(register, op))
            },
            unknown,
        );
    }

    fn map(&mut self, n: usize, path: &Path) -> io::Result<&mut Mapping> {
        if !self.maps.contains_key(&n) {
            let file = self.open(path, true, false)?;
            let map = Mapping::new(file.as_fd(), PAGES[n].1, PAGE, true);
            self.maps.insert(n, map.map_err(io::Error::from_raw_os_error)?);
        }
        self.maps.get_mut(&n).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Nobody writes any more: what its mappings show without a word must come to be what the file
    /// holds. What they show until the end instead.
    pub(super) fn left_alone(&mut self) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        let mut stale = Vec::new();
        for (n, map) in std::mem::take(&mut self.maps) {
            let (file, at) = PAGES[n];
            let path = self.dir.join(file);
            // To open it would have the kernel drop its pages.
            let Some(file_here) = self.kept.get(&path) else { continue };
            let held = || {
                let mut held = [0; 8];
                file_here.read_exact_at(&mut held, at).map(|()| u64::from_le_bytes(held))
            };
            // What cannot be read, of a mount that is gone, shows nothing.
            while let (Ok(shown), Ok(held)) = (value(&map), held()) {
                if shown == held {
                    break;
                }
                if Instant::now() > end {
                    stale.push(format!(
                        "register {}: a mapping of {} shows {shown}, but the file holds {held}",
                        MAPPED + n,
                        self.dir.display()
                    ));
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
        stale
    }
}

fn value(map: &Mapping) -> io::Result<u64> {
    let mut bytes = [0; 8];
    map.try_read(0, &mut bytes).map_err(io::Error::from_raw_os_error)?;
    Ok(u64::from_le_bytes(bytes))
}
