//! `--progress`: a line on a terminal that says how far the copy is. Never where standard error is none.

use super::run::Run;
use parking_lot::{Condvar, Mutex};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// Back to the beginning of the line, and clear it (ECMA-48).
const CLEAR: &str = "\r\x1b[K";

/// The line, until it is dropped.
pub struct Progress {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    pub fn start(run: &Arc<Run>) -> Option<Self> {
        if run.options.own.progress != Some(true) || !io::stderr().is_terminal() {
            return None;
        }
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let (seen, run) = (ended.clone(), run.clone());
        let thread = std::thread::Builder::new()
            .name("progress".into())
            .spawn(move || show(&run, &seen))
            .ok();
        Some(Self { ended, thread })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *self.ended.0.lock() = true;
        self.ended.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has cost a line.
            let _ = thread.join();
        }
    }
}

fn show(run: &Run, (ended, changed): &(Mutex<bool>, Condvar)) {
    let begin = Instant::now();
    let mut ended = ended.lock();
    while !*ended {
        let _ = changed.wait_for(&mut ended, PERIOD);
        let (files, bytes) = run.counts.so_far();
        let seconds = begin.elapsed().as_secs_f64();
        let rate = bytes as f64 / seconds.max(1e-9) / 1e6;
        let gigabytes = bytes as f64 / 1e9;
        let line =
            format!("{CLEAR}{files} files, {gigabytes:.2} GB, {rate:.0} MB/s, {seconds:.0} s");
        // Nobody is left to tell when standard error cannot be written.
        let _ = io::stderr().write_all(line.as_bytes());
    }
    let _ = io::stderr().write_all(CLEAR.as_bytes());
}
