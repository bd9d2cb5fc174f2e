//! A bar on standard error, where that is a terminal.

use super::lane::Shared;
use crate::bar;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, Thread};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);

/// The thread that draws; ends when dropped.
pub struct Bar<'e> {
    end: &'e AtomicBool,
    thread: Option<Thread>,
}

impl<'e> Bar<'e> {
    /// `files`: those whose sizes make the whole, where they are known.
    pub fn new<'s>(
        scope: &'s Scope<'s, 'e>,
        shared: &'e Shared,
        end: &'e AtomicBool,
        files: &'e [OsString],
    ) -> Self {
        let mut thread = None;
        if shared.own.progress && std::io::stderr().is_terminal() {
            let draw = move || draw(shared, end, files);
            thread = Builder::new().spawn_scoped(scope, draw).ok().map(|t| t.thread().clone());
        }
        Self { end, thread }
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
        bar::clear();
    }
}

fn draw(shared: &Shared, end: &AtomicBool, files: &[OsString]) {
    let size = |name: &OsString| std::fs::metadata(name).map_or(0, |meta| meta.len());
    let whole: u64 = files.iter().map(size).sum();
    let begin = Instant::now();
    loop {
        std::thread::park_timeout(EVERY);
        // Asked with the line in hand: once it was taken away for good it is not drawn again.
        bar::draw(|| {
            if end.load(Ordering::Relaxed) {
                return None;
            }
            let bytes = shared.bytes.load(Ordering::Relaxed);
            let files = shared.files.load(Ordering::Relaxed);
            let rate = bytes as f64 / begin.elapsed().as_secs_f64().max(1e-3) / 1e6;
            let (bar, done) = (bar::bar(bytes, whole), bytes / 1_000_000);
            Some(format!("{bar}{done} MB in {files} files, {rate:.0} MB/s"))
        });
        if end.load(Ordering::Relaxed) {
            return;
        }
    }
}
