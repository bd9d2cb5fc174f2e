//! What a journal says when all of it has been read: how far each file of the job had come.
//!
//! Of what was done, only that is trusted which must be there: after a reboot, or on a file system whose
//! other end may have gone meanwhile, what came before the last [`Record::Synced`]; else everything,
//! because a killed process leaves what it wrote in the system's memory. Never looks at a file.

use super::record::{Key, RECORD, Record};
use std::collections::HashMap;
use std::io::Read;

/// How far a file had come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// About to be made; perhaps it was.
    Begun,
    /// It is there, but not complete.
    Made,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub stage: Stage,
    /// The source's, when it was begun.
    pub version: u64,
    /// The number of the operand it was made for.
    pub operand: u64,
    /// Nothing was there before.
    pub new: bool,
    /// The destination's, once it was made.
    pub ino: u64,
    pub perm: u32,
}

/// Parts of one file, [from, to), in order and not touching.
pub type Parts = Vec<(u64, u64)>;

#[derive(Default, Debug)]
pub struct Known {
    pub files: HashMap<Key, Entry>,
    /// Of large files that were begun: the inode and what of it is whole.
    pub parts: HashMap<Key, (u64, Parts)>,
    /// Whether the last operand was a directory, once that is known.
    pub directory: Option<bool>,
    /// Runs before this one.
    pub runs: u64,
    /// Whole records.
    pub records: u64,
}

/// One run's records: where they begin, its boot, and up to which record all is on the disk.
struct Segment {
    begin: u64,
    boot: [u8; 16],
    synced: u64,
}

/// Takes all records of a journal, which `read` reads from the first to the last whole one, twice. `boot`:
/// this machine's; `lasting`: what was written outlives its process on the destination's file system.
pub fn replay<I>(read: impl Fn() -> I, boot: [u8; 16], lasting: bool) -> Known
where
    I: Iterator<Item = Record>,
{
    let segments = segments(read());
    let mut known = Known::default();
    let mut at = 0;
    for (n, record) in read().enumerate() {
        let n = n as u64;
        while segments.get(at + 1).is_some_and(|next| next.begin <= n) {
            at += 1;
        }
        let sure = segments.get(at).is_some_and(|s| n < s.synced || lasting && s.boot == boot);
        known.take(record, sure);
        known.records = n + 1;
    }
    known.runs = segments.len() as u64;
    known
}

/// The whole records at the beginning of these bytes, which follow a header.
pub fn records(mut source: impl Read) -> impl Iterator<Item = Record> {
    std::iter::from_fn(move || {
        let mut bytes = [0; RECORD];
        source.read_exact(&mut bytes).ok()?;
        Record::decode(&bytes)
    })
}

fn segments(records: impl Iterator<Item = Record>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for (n, record) in records.enumerate() {
        match record {
            Record::Run { boot, .. } => {
                segments.push(Segment { begin: n as u64, boot, synced: 0 });
            }
            Record::Synced { records } => {
                if let Some(last) = segments.last_mut() {
                    last.synced = last.synced.max(records.min(n as u64));
                }
            }
            _ => {}
        }
    }
    segments
}

impl Known {
    fn take(&mut self, record: Record, sure: bool) {
        match record {
            Record::Run { .. } | Record::Synced { .. } => {}
            Record::Target { directory } => {
                self.directory.get_or_insert(directory);
            }
            Record::Begun { key, version, operand, new, kept } => {
                self.begun(
                    key,
                    Entry { stage: Stage::Begun, version, operand, new, ino: 0, perm: 0 },
                    kept,
                );
            }
            Record::Made { key, ino, perm } => {
                if let Some(entry) = self.files.get_mut(&key) {
                    (entry.stage, entry.ino, entry.perm) = (Stage::Made, ino, perm);
                }
            }
            Record::Part { key, ino, from, to } => {
                if sure && self.files.get(&key).is_some_and(|entry| entry.ino == ino) {
                    let (whose, parts) = self.parts.entry(key).or_insert((ino, Parts::new()));
                    if *whose != ino {
                        (*whose, *parts) = (ino, Parts::new());
                    }
                    add(parts, from, to);
                }
            }
            Record::Done { key, version, ino } => {
                self.parts.remove(&key);
                if let Some(entry) = self.files.get_mut(&key) {
                    let stage = if sure { Stage::Done } else { Stage::Made };
                    (entry.stage, entry.version, entry.ino) = (stage, version, ino);
                }
            }
            Record::Forget { key } => {
                self.files.remove(&key);
                self.parts.remove(&key);
            }
        }
    }

    fn begun(&mut self, key: Key, entry: Entry, kept: bool) {
        let before = self.files.get(&key);
        let same = |b: &Entry| (b.version, b.operand) == (entry.version, entry.operand);
        // A file that is gone on with keeps its inode and what is whole of it.
        if kept && before.is_some_and(same) {
            return;
        }
        self.parts.remove(&key);
        self.files.insert(key, entry);
    }
}

/// Adds a part, joining it with those it touches.
pub fn add(parts: &mut Parts, from: u64, to: u64) {
    let (mut from, mut to) = (from, to);
    let first = parts.partition_point(|(_, end)| *end < from);
    let last = parts.partition_point(|(begin, _)| *begin <= to);
    if first < last {
        from = from.min(parts[first].0);
        to = to.max(parts[last - 1].1);
    }
    parts.splice(first..last, [(from, to)]);
}

/// Whether all of [from, to) is in there.
pub fn covers(parts: &Parts, from: u64, to: u64) -> bool {
    let at = parts.partition_point(|(_, end)| *end <= from);
    from >= to || parts.get(at).is_some_and(|(begin, end)| *begin <= from && to <= *end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: [u8; 16] = [1; 16];
    const KEY: Key = [7; 16];

    fn bytes(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(Record::encode).collect()
    }

    fn replay(bytes: &[u8], boot: [u8; 16], lasting: bool) -> Known {
        super::replay(|| records(bytes), boot, lasting)
    }

    fn run(boot: [u8; 16]) -> Record {
        Record::Run { boot, at: 0, pid: 1 }
    }

    const BEGUN: Record =
        Record::Begun { key: KEY, version: 5, operand: 1, new: true, kept: false };
    const MADE: Record = Record::Made { key: KEY, ino: 12, perm: 0o644 };
    const PART: Record = Record::Part { key: KEY, ino: 12, from: 0, to: 100 };
    const DONE: Record = Record::Done { key: KEY, version: 5, ino: 12 };

    fn stage(known: &Known) -> Option<Stage> {
        known.files.get(&KEY).map(|entry| entry.stage)
    }

    #[test]
    fn what_a_killed_process_did_is_there() {
        let known = replay(&bytes(&[run(BOOT), BEGUN, MADE, DONE]), BOOT, true);
        assert_eq!(stage(&known), Some(Stage::Done));
        let known = replay(&bytes(&[run(BOOT), BEGUN, MADE, PART]), BOOT, true);
        assert_eq!(known.parts.get(&KEY), Some(&(12, vec![(0, 100)])));
    }

    #[test]
    fn after_a_reboot_only_what_was_synced_counts() {
        let synced = [run(BOOT), BEGUN, MADE, DONE, Record::Synced { records: 4 }];
        assert_eq!(stage(&replay(&bytes(&synced), [2; 16], true)), Some(Stage::Done));
        let late = [run(BOOT), BEGUN, MADE, Record::Synced { records: 3 }, DONE];
        assert_eq!(stage(&replay(&bytes(&late), [2; 16], true)), Some(Stage::Made));
        // The same where a server, or a daemon, may have lost it.
        assert_eq!(stage(&replay(&bytes(&late), BOOT, false)), Some(Stage::Made));
    }

    #[test]
    fn parts_of_an_overwritten_file_are_forgotten() {
        let again = Record::Begun { key: KEY, version: 6, operand: 1, new: false, kept: false };
        let known = replay(&bytes(&[run(BOOT), BEGUN, MADE, PART, again, MADE]), BOOT, true);
        assert!(known.parts.is_empty());
        let kept = Record::Begun { key: KEY, version: 5, operand: 1, new: false, kept: true };
        let known = replay(&bytes(&[run(BOOT), BEGUN, MADE, PART, kept]), BOOT, true);
        assert_eq!(known.parts.len(), 1);
    }

    #[test]
    fn reading_ends_at_the_first_record_that_is_not_whole() {
        let mut torn = bytes(&[run(BOOT), BEGUN, MADE, DONE]);
        torn[RECORD * 2 + 5] ^= 1;
        let known = replay(&torn, BOOT, true);
        assert_eq!((known.records, stage(&known)), (2, Some(Stage::Begun)));
        torn.truncate(RECORD + 20);
        assert_eq!(replay(&torn, BOOT, true).records, 1);
    }

    /// Beside a map of single bytes.
    #[test]
    fn parts_are_what_a_bitmap_says() {
        let mut seed = 1u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        let (mut parts, mut map) = (Parts::new(), [false; 64]);
        for _ in 0..2000 {
            let from = next(63);
            let to = from + 1 + next((64 - from).min(9));
            if next(4) == 0 {
                add(&mut parts, from, to.min(64));
                map[from as usize..to.min(64) as usize].fill(true);
            }
            if next(300) == 0 {
                (parts, map) = (Parts::new(), [false; 64]);
            }
            let wanted = map[from as usize..to.min(64) as usize].iter().all(|b| *b);
            assert_eq!(covers(&parts, from, to.min(64)), wanted, "{parts:?} {from} {to}");
            assert!(parts.windows(2).all(|w| w[0].1 < w[1].0), "{parts:?}");
        }
    }
}
