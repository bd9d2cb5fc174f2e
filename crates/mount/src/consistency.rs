//! How much of what other mounts do is seen at once.
//!
//! Role: the choice, and what it means for the kernel's caches while other mounts are there. A mount
//! that is alone caches everything whatever is chosen. Never does: weaken what is written.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::{Duration, Instant};

use client::OpenFile;
use parking_lot::Mutex;
use proto::attr::A_SIZE_LAGS;
use proto::{Fid, TimeSpec};

/// How long names and attributes may be believed without a lease, where that was asked for. As
/// long as NFS clients do at least (`acregmin` is 3 s, `acdirmin` 30 s) or less.
pub(crate) const BELIEVED: Duration = Duration::from_secs(1);
/// Files whose state at their last open is remembered; then all are forgotten (invariant 8).
const SEEN_MAX: usize = 65_536;

/// The mount option `consistency`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// What another mount did is seen at once (invariant 3).
    #[default]
    Posix,
    /// An open sees what was written before the last close of another mount; names and attributes may
    /// be [`BELIEVED`] old, and a file that stays open shows what it showed.
    CloseToOpen,
    /// As `CloseToOpen`, and an open may be [`BELIEVED`] late, too.
    Relaxed,
}

/// No word of the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownConsistency;

impl FromStr for Consistency {
    type Err = UnknownConsistency;

    fn from_str(word: &str) -> Result<Consistency, UnknownConsistency> {
        match word {
            "posix" => Ok(Consistency::Posix),
            "close-to-open" => Ok(Consistency::CloseToOpen),
            "relaxed" => Ok(Consistency::Relaxed),
            _ => Err(UnknownConsistency),
        }
    }
}

/// A file as it was when it was opened last.
#[derive(Clone, Copy, PartialEq)]
struct Seen {
    version: u64,
    size: u64,
    mtime: TimeSpec,
}

/// What was so at the last open of files, to tell whether the kernel's pages are still good.
#[derive(Default)]
pub(crate) struct LastSeen(Mutex<HashMap<Fid, (Seen, Instant)>>);

impl LastSeen {
    /// Whether the kernel's pages of a file that is being opened are as new as was asked for.
    pub(crate) fn unchanged(&self, how: Consistency, file: &OpenFile) -> bool {
        let now = Instant::now();
        let mut all = self.0.lock();
        let last = all.get(&file.fid()).copied();
        if let Some((_, at)) = last
            && how == Consistency::Relaxed
            && now.duration_since(at) < BELIEVED
        {
            return true;
        }
        drop(all);
        let Ok(attr) = file.attr() else { return false };
        let seen = Seen { version: attr.version, size: attr.size, mtime: attr.mtime };
        all = self.0.lock();
        if all.len() >= SEEN_MAX {
            all.clear();
        }
        all.insert(attr.fid, (seen, now));
        // While somebody writes its objects the MDT's version stands still.
        attr.flags & A_SIZE_LAGS == 0 && last.is_some_and(|(last, _)| last == seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!("posix".parse(), Ok(Consistency::default()));
        assert_eq!("close-to-open".parse(), Ok(Consistency::CloseToOpen));
        assert_eq!("relaxed".parse(), Ok(Consistency::Relaxed));
        assert_eq!("lax".parse::<Consistency>(), Err(UnknownConsistency));
    }
}
