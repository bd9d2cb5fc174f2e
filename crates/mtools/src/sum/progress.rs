//! A bar on standard error, where that is a terminal.

use super::lane::Shared;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, Thread};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);
const WIDTH: u64 = 30;

/// Whether a bar stands on the terminal's current line.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// Takes the bar away, so that something else can be printed.
pub fn clear() {
    let mut shown = SHOWN.lock();
    if std::mem::take(&mut *shown) {
        // Where the terminal is gone, nobody sees the rest of a bar.
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}

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
        clear();
    }
}

fn draw(shared: &Shared, end: &AtomicBool, files: &[OsString]) {
    let size = |name: &OsString| std::fs::metadata(name).map_or(0, |meta| meta.len());
    let whole: u64 = files.iter().map(size).sum();
    let begin = Instant::now();
    loop {
        std::thread::park_timeout(EVERY);
        let mut shown = SHOWN.lock();
        if end.load(Ordering::Relaxed) {
            return;
        }
        let bytes = shared.bytes.load(Ordering::Relaxed);
        let files = shared.files.load(Ordering::Relaxed);
        let rate = bytes as f64 / begin.elapsed().as_secs_f64().max(1e-3) / 1e6;
        let text = format!(
            "\r{}{} MB in {files} files, {rate:.0} MB/s\x1b[K",
            bar(bytes, whole),
            bytes / 1_000_000
        );
        *shown = std::io::stderr().write_all(text.as_bytes()).is_ok();
    }
}

fn bar(bytes: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let done = (u128::from(bytes.min(whole)) * u128::from(WIDTH) / u128::from(whole)) as usize;
    format!("[{}{}] ", "#".repeat(done), " ".repeat(WIDTH as usize - done))
}
