//! What a run has done, on standard error: `--print-stats` and `--json`.

use super::lane::Shared;
use super::settle::Settings;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[derive(Serialize)]
struct Stats<'a> {
    program: &'a str,
    algorithm: String,
    files: u64,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    threads: usize,
    ok: bool,
}

pub fn print(settings: &Settings, shared: &Shared, begin: Instant, ok: bool) {
    if !settings.own.stats && !settings.own.json {
        return;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = shared.bytes.load(Ordering::Relaxed);
    let stats = Stats {
        program: settings.program.name(),
        algorithm: settings.algorithm.tag(),
        files: shared.files.load(Ordering::Relaxed),
        bytes,
        seconds,
        bytes_per_second: bytes as f64 / seconds.max(1e-9),
        threads: shared.threads(),
        ok,
    };
    let text = if settings.own.json {
        serde_json::to_string(&stats).unwrap_or_default()
    } else {
        format!(
            "{}: {} files, {bytes} bytes in {seconds:.3} s, {:.1} MB/s, up to {} threads",
            stats.program,
            stats.files,
            stats.bytes_per_second / 1e6,
            stats.threads
        )
    };
    // Nobody is left to tell when standard error cannot be written.
    let _ = writeln!(std::io::stderr(), "{text}");
}
