//! Registers in small files that are made while others look at them.
//!
//! Role: who makes one makes a directory first, so that it is alone with the file, and may do all of it here
//! first: make, write and close. Others may ask for the file from the moment on its name is decided, and so
//! meet each state of what is on its way to the servers. Each is made once a round. Left out where
//! metadata targets are killed: what is lost then may be the directory.

use super::drive::{Any, PAGE, Worker};
use super::objects::RegisterOp;
use rand::Rng;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Files in a round.
pub(super) const MADE: usize = 12;
/// The value of one that is not there; of an empty one it is 0.
pub(super) const ABSENT: u64 = u64::MAX;

/// How many names are decided.
#[derive(Default)]
pub(super) struct Slots(AtomicUsize);

impl Slots {
    fn next(&self) -> Option<usize> {
        let more = |n| (n < MADE).then_some(n + 1);
        self.0.fetch_update(SeqCst, SeqCst, more).ok()
    }

    fn decided(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Worker<'_> {
    /// `first` is the number of the first such register.
    pub(super) fn made(&mut self, first: usize) {
        let new = if self.rng.random_bool(0.2) { self.slots.next() } else { None };
        if let Some(slot) = new {
            return self.make(slot, first + slot);
        }
        let decided = self.slots.decided();
        if decided == 0 {
            return;
        }
        // Mostly the newest: of older ones all is told.
        let slot = match self.rng.random_bool(0.7) {
            true => decided - 1,
            false => self.rng.random_range(0..decided),
        };
        self.look_at(slot, first + slot);
    }

    fn place(&self, slot: usize) -> PathBuf {
        self.dir.join("made").join(slot.to_string())
    }

    fn make(&mut self, slot: usize, register: usize) {
        let dir = self.place(slot);
        let mut file: Option<File> = None;
        self.note(
            |w| {
                fs::create_dir(&dir)?;
                let new = File::options().write(true).create_new(true).open(dir.join("f"))?;
                if w.options.sync {
                    new.sync_all()?;
                }
                file = Some(new);
                Ok(Any::Register(register, RegisterOp::Set(0)))
            },
            Some(Any::Register(register, RegisterOp::MaybeSet(0))),
        );
        let Some(file) = file else { return };
        let value = self.value();
        self.note(
            |w| {
                let mut page = [0; PAGE];
                page[..8].copy_from_slice(&value.to_le_bytes());
                file.write_all_at(&page, 0)?;
                if w.options.sync {
                    file.sync_data()?;
                }
                Ok(Any::Register(register, RegisterOp::Set(value)))
            },
            Some(Any::Register(register, RegisterOp::MaybeSet(value))),
        );
    }

    /// Reads or writes it, if it is there.
    fn look_at(&mut self, slot: usize, register: usize) {
        let path = self.place(slot).join("f");
        let set = self.new_value();
        let unknown = set.map(|v| Any::Register(register, RegisterOp::MaybeSet(v)));
        self.note(
            |w| {
                let file = match w.open(&path, set.is_some(), false) {
                    Ok(file) => file,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        return Ok(Any::Register(register, RegisterOp::Get(ABSENT)));
                    }
                    Err(e) => return Err(e),
                };
                let Some(v) = set else {
                    let mut bytes = [0; 8];
                    let n = file.read_at(&mut bytes, 0)?;
                    // It has all of them or none.
                    let whole = n == 0 || n == bytes.len();
                    let read = whole.then(|| u64::from_le_bytes(bytes));
                    let read = read.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
                    return Ok(Any::Register(register, RegisterOp::Get(read)));
                };
                file.write_all_at(&v.to_le_bytes(), 0)?;
                if w.options.sync {
                    file.sync_data()?;
                }
                Ok(Any::Register(register, RegisterOp::Set(v)))
            },
            unknown,
        );
    }
}
