//! What a run has done, on standard error: `--print-stats` and `--json`.

use super::run::Run;
use crate::engine::Copied;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Counted while copying.
pub struct Counts {
    begin: Instant,
    files: AtomicU64,
    directories: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
    moved: AtomicU64,
    shared: AtomicU64,
    before: AtomicU64,
    files_elsewhere: AtomicU64,
    bytes_elsewhere: AtomicU64,
    /// Bytes that are there though this process moved none of them: holes, shared blocks, other ranks' work.
    unmoved: AtomicU64,
    /// What is to be copied, as far as the walk has come.
    found_files: AtomicU64,
    found_bytes: AtomicU64,
    /// The walk has come to its end.
    found_all: AtomicBool,
}

/// How far a run is.
#[derive(Clone, Copy)]
pub struct SoFar {
    pub files: u64,
    pub bytes: u64,
    /// Of those found, which are all there will be where [`Self::found_all`].
    pub found_files: u64,
    pub found_bytes: u64,
    pub found_all: bool,
    pub seconds: f64,
}

#[derive(Serialize)]
struct Stats {
    program: &'static str,
    /// Regular files whose bytes are there.
    files: u64,
    directories: u64,
    /// Links, FIFOs, devices, sockets.
    others: u64,
    /// Of the files, holes included.
    bytes: u64,
    /// Bytes that were read and written.
    moved: u64,
    /// Files that share their source's blocks.
    reflinked: u64,
    /// What an earlier run had completed (`--resume`).
    done_before: u64,
    /// Of the files and bytes: those that other ranks have copied.
    files_elsewhere: u64,
    bytes_elsewhere: u64,
    seconds: f64,
    bytes_per_second: f64,
    threads: usize,
    ok: bool,
}

impl Default for Counts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            begin: Instant::now(),
            files: zero(),
            directories: zero(),
            others: zero(),
            bytes: zero(),
            moved: zero(),
            shared: zero(),
            before: zero(),
            files_elsewhere: zero(),
            bytes_elsewhere: zero(),
            unmoved: zero(),
            found_files: zero(),
            found_bytes: zero(),
            found_all: AtomicBool::new(false),
        }
    }
}

impl Counts {
    pub fn file(&self, copied: &Copied) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(copied.bytes, Ordering::Relaxed);
        self.moved.fetch_add(copied.moved, Ordering::Relaxed);
        self.shared.fetch_add(u64::from(copied.reflinked), Ordering::Relaxed);
        self.unmoved.fetch_add(copied.bytes.saturating_sub(copied.moved), Ordering::Relaxed);
    }

    /// A file is to be copied.
    pub fn found(&self, bytes: u64) {
        self.found_files.fetch_add(1, Ordering::Relaxed);
        self.found_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// There are no more.
    pub fn found_all(&self) {
        self.found_all.store(true, Ordering::Relaxed);
    }

    /// Files and bytes that another rank has copied, of which it had to move so many.
    pub fn elsewhere(&self, files: u64, bytes: u64, moved: u64) {
        self.unmoved.fetch_add(moved, Ordering::Relaxed);
        self.files_elsewhere.fetch_add(files, Ordering::Relaxed);
        self.bytes_elsewhere.fetch_add(bytes, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn elsewhere_so_far(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.files_elsewhere), get(&self.bytes_elsewhere))
    }

    pub fn directory(&self) {
        self.directories.fetch_add(1, Ordering::Relaxed);
    }

    pub fn other(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// An earlier run had completed it.
    pub fn before(&self) {
        self.before.fetch_add(1, Ordering::Relaxed);
    }

    /// How far the run is, of which the engine has moved so many bytes.
    pub fn so_far(&self, moved: u64) -> SoFar {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SoFar {
            files: get(&self.files),
            bytes: moved + get(&self.unmoved),
            found_files: get(&self.found_files),
            found_bytes: get(&self.found_bytes),
            found_all: self.found_all.load(Ordering::Relaxed),
            seconds: self.begin.elapsed().as_secs_f64(),
        }
    }
}

/// Prints what was asked for, at the end.
pub fn print(run: &Run) {
    let own = &run.options.own;
    if !own.print_stats && !own.json {
        return;
    }
    let counts = &run.counts;
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let seconds = counts.begin.elapsed().as_secs_f64();
    let bytes = get(&counts.bytes);
    let stats = Stats {
        program: "mcp",
        files: get(&counts.files),
        directories: get(&counts.directories),
        others: get(&counts.others),
        bytes,
        moved: get(&counts.moved),
        reflinked: get(&counts.shared),
        done_before: get(&counts.before),
        files_elsewhere: get(&counts.files_elsewhere),
        bytes_elsewhere: get(&counts.bytes_elsewhere),
        seconds,
        bytes_per_second: bytes as f64 / seconds.max(1e-9),
        threads: run.engine.settings().threads,
        ok: !run.output.failed(),
    };
    let text = if own.json {
        serde_json::to_string(&stats).unwrap_or_default()
    } else {
        format!(
            "mcp: {} files, {} directories, {} others, {} done before, {bytes} bytes ({} moved, {} files reflinked) in \
             {seconds:.3} s, {:.1} MB/s, up to {} threads",
            stats.files,
            stats.directories,
            stats.others,
            stats.done_before,
            stats.moved,
            stats.reflinked,
            stats.bytes_per_second / 1e6,
            stats.threads
        )
    };
    // Nobody is left to tell when standard error cannot be written.
    let _ = writeln!(std::io::stderr(), "{text}");
}
