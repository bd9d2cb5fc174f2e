//! Which part of a directory is known: spans of name hashes of which every entry of the store is in memory.
//!
//! Role: a listing reads a large directory span by span, and what it has passed may be forgotten again (invariant
//! 10). Spans do not overlap; ends are exclusive. Never does: look at entries.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// The end of what reaches the end of the directory: above every name hash.
pub const TO_THE_END: u64 = u64::MAX;

#[derive(Debug)]
struct Span {
    end: u64,
    used: Cell<bool>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, Span>);

impl Spans {
    /// All of a directory.
    pub(super) fn all() -> Spans {
        let mut spans = Spans::default();
        spans.add(0..TO_THE_END);
        spans
    }

    /// Whether every entry of this hash is known. Not a use: names that come all over a directory would keep all of it.
    pub(super) fn covers(&self, hash: u64) -> bool {
        self.at(hash).is_some()
    }

    /// Where the span ends that holds this hash; a listing uses it.
    pub(super) fn end_of(&self, hash: u64) -> Option<u64> {
        let span = self.at(hash)?;
        span.used.set(true);
        Some(span.end)
    }

    fn at(&self, hash: u64) -> Option<&Span> {
        self.0.range(..=hash).next_back().map(|(_, span)| span).filter(|span| hash < span.end)
    }

    /// One more is known. What was known of it keeps its spans, so that none grows.
    pub(super) fn add(&mut self, new: Range<u64>) {
        let before = self.0.range(..=new.start).next_back();
        let mut at = before.map_or(new.start, |(_, s)| s.end.max(new.start));
        let mut gaps = Vec::new();
        for (start, span) in self.0.range(new.clone()) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = at.max(span.end);
        }
        if at < new.end {
            gaps.push(at..new.end);
        }
        for gap in gaps {
            self.0.insert(gap.start, Span { end: gap.end, used: Cell::new(true) });
        }
    }

    /// No span reaches over this hash: one that does becomes two.
    pub(super) fn part(&mut self, at: u64) {
        let before = self.0.range_mut(..at).next_back();
        let Some((_, span)) = before.filter(|(_, span)| at < span.end) else { return };
        let behind = Span { end: span.end, used: span.used.clone() };
        span.end = at;
        self.0.insert(at, behind);
    }

    /// Keeps the spans that begin in `within` only if they were used since the last time.
    pub(super) fn keep_used(&mut self, within: Range<u64>) {
        let unused: Vec<u64> = self
            .0
            .range(within)
            .filter(|(_, span)| !span.used.replace(false))
            .map(|(start, _)| *start)
            .collect();
        for start in unused {
            self.0.remove(&start);
        }
    }

    /// Nothing is known for sure any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
