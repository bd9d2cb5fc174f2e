//! `--progress`: a line on a terminal that says how far the copy is. Never where standard error is none, nor
//! where questions are asked.

use super::options::Clobber;
use super::run::Run;
use super::stats::SoFar;
use crate::bar;
use parking_lot::{Condvar, Mutex};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);

/// The line, until it is dropped.
pub struct Progress {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    pub fn start(run: &Arc<Run>) -> Option<Self> {
        let wanted = run.options.own.progress == Some(true) && run.options.clobber != Clobber::Ask;
        if !wanted || !io::stderr().is_terminal() {
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
        bar::clear();
    }
}

fn show(run: &Run, (ended, changed): &(Mutex<bool>, Condvar)) {
    let mut ended = ended.lock();
    while !*ended {
        let _ = changed.wait_for(&mut ended, PERIOD);
        bar::draw(|| Some(line(&run.counts.so_far(run.engine.moved()))));
    }
}

/// While the source is still walked through, nobody knows how much there will be.
fn line(so_far: &SoFar) -> String {
    let &SoFar { files, bytes, found_files, found_bytes, found_all, seconds } = so_far;
    // A source that grows meanwhile is copied to its end.
    let (whole, more) = (found_bytes.max(bytes), if found_all { "" } else { "+" });
    let bar = bar::bar(if found_all { bytes } else { 0 }, if found_all { whole } else { 0 });
    let rate = bytes as f64 / seconds.max(1e-3);
    let left = match (whole - bytes) as f64 / rate {
        left if found_all && left.is_finite() => format!(", {left:.0} s left"),
        _ => String::new(),
    };
    format!(
        "{bar}{:.2} of {:.2}{more} GB, {files} of {found_files}{more} files, {:.0} MB/s, {seconds:.0} s{left}",
        bytes as f64 / 1e9,
        whole as f64 / 1e9,
        rate / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_is_known() {
        let mut so_far = SoFar {
            files: 3,
            bytes: 1_500_000_000,
            found_files: 9,
            found_bytes: 3_000_000_000,
            found_all: false,
            seconds: 5.0,
        };
        assert_eq!(line(&so_far), "1.50 of 3.00+ GB, 3 of 9+ files, 300 MB/s, 5 s");
        so_far.found_all = true;
        let bar = format!("[{}{}] ", "#".repeat(15), " ".repeat(15));
        let rest = "1.50 of 3.00 GB, 3 of 9 files, 300 MB/s, 5 s, 5 s left";
        assert_eq!(line(&so_far), format!("{bar}{rest}"));
        // Nothing was moved yet, and more than was found.
        so_far = SoFar { bytes: 0, ..so_far };
        assert!(line(&so_far).ends_with("0 MB/s, 5 s"), "{}", line(&so_far));
        so_far = SoFar { bytes: 4_000_000_000, ..so_far };
        assert!(line(&so_far).contains("4.00 of 4.00 GB"), "{}", line(&so_far));
        assert!(line(&so_far).ends_with(", 0 s left"));
    }
}
