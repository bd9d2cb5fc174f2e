//! The journal of a copy, which may be torn, or anything at all.

use super::Target;
use mtools::journal::record::{Header, RECORD, Record};
use mtools::journal::replay::{records, replay};

pub fn targets() -> Vec<Target> {
    vec![
        Target { name: "journal header", corpus: headers, decode: header },
        Target { name: "journal records", corpus: journals, decode: journal },
    ]
}

fn headers() -> Vec<Vec<u8>> {
    vec![Header { command: [7; 32] }.encode().to_vec()]
}

fn header(bytes: &[u8]) -> bool {
    bytes.first_chunk::<RECORD>().is_some_and(|bytes| Header::decode(bytes).is_ok())
}

fn journals() -> Vec<Vec<u8>> {
    let key = [1; 16];
    let all = [
        Record::Run { boot: [2; 16], at: 3, pid: 4 },
        Record::Target { directory: false },
        Record::Begun { key, version: 5, operand: 7, new: true, kept: false },
        Record::Made { key, ino: 6, perm: 0o644 },
        Record::Part { key, ino: 6, from: 0, to: 1 << 20 },
        Record::Synced { records: 5 },
        Record::Begun { key, version: 5, operand: 7, new: true, kept: true },
        Record::Done { key, version: 5, ino: 6 },
        Record::Forget { key },
    ];
    let bytes = |records: &[Record]| records.iter().flat_map(Record::encode).collect();
    (1..=all.len()).map(|n| bytes(&all[..n])).collect()
}

/// Nothing is known that was not recorded, and a record has one meaning only.
fn journal(bytes: &[u8]) -> bool {
    let whole: Vec<_> = records(bytes).collect();
    let known = replay(|| records(bytes), [2; 16], true);
    assert_eq!(known.records, whole.len() as u64);
    assert!(known.files.len() <= whole.len() && known.parts.len() <= known.files.len());
    let again: Vec<u8> = whole.iter().flat_map(Record::encode).collect();
    assert!(records(&again[..]).eq(whole.iter().copied()));
    !whole.is_empty()
}
