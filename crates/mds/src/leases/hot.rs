//! Directories that change hands so often that leases on them cost more than they save.
//!
//! Role: counts call-backs per directory within a while; above a number the directory is hot and
//! gets no leases for a time. Measured, not configured. Never does: look at a clock.

use proto::{Fid, TimeSpec};
use rustc_hash::FxHashMap as HashMap;

/// Call-backs within [`WINDOW_MS`] that make a directory hot.
pub const HOT_CALLS: u32 = 16;
/// The while, milliseconds.
pub const WINDOW_MS: i64 = 1000;
/// How long a directory stays hot, milliseconds.
pub const HOT_MS: i64 = 5000;
/// Directories watched at most; above it those that are quiet are forgotten.
pub const MAX_WATCHED: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Heat {
    since: i64,
    calls: u32,
    until: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hot {
    dirs: HashMap<Fid, Heat>,
}

fn ms(t: TimeSpec) -> i64 {
    t.sec.saturating_mul(1000).saturating_add(i64::from(t.nsec / 1_000_000))
}

impl Hot {
    /// A lease on a directory's names is called back.
    pub fn called(&mut self, dir: Fid, now: TimeSpec) {
        let now = ms(now);
        if self.dirs.len() >= MAX_WATCHED && !self.dirs.contains_key(&dir) {
            self.dirs.retain(|_, h| h.until > now || (now - h.since).abs() < WINDOW_MS);
            if self.dirs.len() >= MAX_WATCHED {
                return;
            }
        }
        let h = self.dirs.entry(dir).or_insert(Heat { since: now, calls: 0, until: 0 });
        // A clock that was set back begins a new while, too.
        if (now - h.since).abs() >= WINDOW_MS {
            (h.since, h.calls) = (now, 0);
        }
        h.calls += 1;
        if h.calls >= HOT_CALLS {
            h.until = now + HOT_MS;
        }
    }

    /// Whether a directory is hot.
    pub fn is(&self, dir: Fid, now: TimeSpec) -> bool {
        self.dirs.get(&dir).is_some_and(|h| heated(h, ms(now)))
    }

    /// Those that are hot.
    pub fn all(&self, now: TimeSpec) -> Vec<Fid> {
        let now = ms(now);
        self.dirs.iter().filter(|(_, h)| heated(h, now)).map(|(f, _)| *f).collect()
    }
}

fn heated(h: &Heat, now: i64) -> bool {
    now < h.until && h.until - now <= HOT_MS
}
