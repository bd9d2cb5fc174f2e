//! Random sequences of requests give what plain byte vectors give, over clean ends and crashes of
//! the process (invariants 7, 12).

use crate::common::*;
use pinstripe_oss::Ost;
use pinstripe_oss::check::OstDir;
use proptest::prelude::*;
use proto::oss::*;

const MAX: usize = 3 * 4096 + 700;

#[derive(Clone, Debug)]
enum Op {
    Write {
        n: u32,
        at: usize,
        len: usize,
        flags: u8,
    },
    /// Gaps and lengths; one that would overlap none.
    WriteList {
        n: u32,
        pieces: Vec<(usize, usize)>,
        flags: u8,
    },
    Append {
        n: u32,
        len: usize,
    },
    Read {
        n: u32,
        at: usize,
        len: usize,
        direct: bool,
    },
    Truncate {
        n: u32,
        to: usize,
    },
    Clear {
        n: u32,
        at: usize,
        len: usize,
        keep: bool,
    },
    Copy {
        from: u32,
        to: u32,
        at: usize,
        shift: usize,
        len: usize,
    },
    Allocate {
        n: u32,
        at: usize,
        len: usize,
        keep: bool,
    },
    Commit {
        all: bool,
        n: u32,
    },
    Destroy {
        n: u32,
    },
    Reopen {
        clean: bool,
    },
}

fn ops() -> impl Strategy<Value = Op> {
    let n = || 0u32..3;
    // Half of all offsets and lengths are whole blocks.
    let at = || prop_oneof![0..MAX, (0usize..4).prop_map(|b| b * 4096)];
    let len = || prop_oneof![1..MAX, (1usize..4).prop_map(|b| b * 4096)];
    let flags =
        || prop_oneof![4 => Just(0), 1 => Just(W_SYNC), 2 => Just(W_DIRECT), 1 => Just(W_NO_SUMS)];
    let gap = || prop_oneof![2 => Just(0usize), 3 => 1usize..5000, 1 => Just(4096)];
    let pieces = proptest::collection::vec((gap(), prop_oneof![1usize..6000, Just(4096)]), 1..8);
    prop_oneof![
        4 => (n(), pieces, flags()).prop_map(|(n, pieces, flags)| Op::WriteList { n, pieces, flags }),
        6 => (n(), at(), len(), flags()).prop_map(|(n, at, len, flags)| Op::Write { n, at, len, flags }),
        3 => (n(), len()).prop_map(|(n, len)| Op::Append { n, len }),
        4 => (n(), at(), len(), any::<bool>()).prop_map(|(n, at, len, direct)| Op::Read { n, at, len, direct }),
        2 => (n(), at()).prop_map(|(n, to)| Op::Truncate { n, to }),
        2 => (n(), at(), len(), any::<bool>()).prop_map(|(n, at, len, keep)| Op::Clear { n, at, len, keep }),
        2 => (n(), n(), at(), at(), len()).prop_map(|(from, to, at, shift, len)| Op::Copy { from, to, at, shift, len }),
        1 => (n(), at(), len(), any::<bool>()).prop_map(|(n, at, len, keep)| Op::Allocate { n, at, len, keep }),
        2 => (any::<bool>(), n()).prop_map(|(all, n)| Op::Commit { all, n }),
        1 => n().prop_map(|n| Op::Destroy { n }),
        1 => any::<bool>().prop_map(|clean| Op::Reopen { clean }),
    ]
}

type Model = Vec<Option<Vec<u8>>>;

fn grown(v: &mut Option<Vec<u8>>, end: usize) -> &mut Vec<u8> {
    let v = v.get_or_insert_default();
    if v.len() < end {
        v.resize(end, 0);
    }
    v
}

fn step(ost: &Ost, model: &mut Model, op: &Op, seed: u64) {
    match *op {
        Op::Write { n, at, len, flags } => {
            let data = pattern(seed, len);
            let w = write(ost, n, at as u64, &data, flags).unwrap();
            let v = grown(&mut model[n as usize], at + len);
            v[at..at + len].copy_from_slice(&data);
            assert_eq!(w.size, v.len() as u64);
        }
        Op::WriteList { n, ref pieces, flags } => {
            let mut end = 0;
            let place = |(number, (gap, len)): (u64, &(usize, usize))| {
                let at = end + gap;
                end = at + len;
                (at as u64, pattern(seed ^ (number << 32), *len))
            };
            let placed: Vec<(u64, Vec<u8>)> = (0..).zip(pieces).map(place).collect();
            let (req, data) = list(n, &placed, flags);
            let w = ost.write_list(&req, &data).unwrap();
            for (at, data) in &placed {
                let (at, end) = (*at as usize, *at as usize + data.len());
                grown(&mut model[n as usize], end)[at..end].copy_from_slice(data);
            }
            assert_eq!(w.size, model[n as usize].as_ref().map_or(0, Vec::len) as u64);
        }
        Op::Append { n, len } => {
            let at = model[n as usize].as_ref().map_or(0, Vec::len);
            step(ost, model, &Op::Write { n, at, len: len.min(5000), flags: 0 }, seed);
        }
        Op::Read { n, at, len, direct } => {
            let flags = if direct { W_DIRECT } else { 0 };
            let got = read(ost, n, at as u64, len as u32, flags).unwrap();
            let v = model[n as usize].as_deref().unwrap_or(&[]);
            assert!(got == v[at.min(v.len())..(at + len).min(v.len())], "{op:?}");
        }
        Op::Truncate { n, to } => {
            punch(ost, n, to as u64, 0, P_TRUNCATE).unwrap();
            if to > 0 || model[n as usize].is_some() {
                model[n as usize].get_or_insert_default().resize(to, 0);
            }
        }
        Op::Clear { n, at, len, keep } => {
            let how = if keep { P_ZERO } else { P_HOLE };
            punch(ost, n, at as u64, (at + len) as u64, how).unwrap();
            if let Some(v) = &mut model[n as usize] {
                let end = v.len();
                v[at.min(end)..(at + len).min(end)].fill(0);
            }
        }
        Op::Copy { from, to, at, shift, len } => {
            let req = CopyReq {
                from: id(from),
                to: id(to),
                from_offset: at as u64,
                to_offset: shift as u64,
                len: len as u64,
            };
            if from == to && at < shift + len && shift < at + len {
                assert_eq!(ost.copy(&req), Err(proto::Errno::EINVAL));
                return;
            }
            ost.copy(&req).unwrap();
            let source = model[from as usize].clone().unwrap_or_default();
            let part = &source[at.min(source.len())..(at + len).min(source.len())];
            if !part.is_empty() {
                grown(&mut model[to as usize], shift + part.len());
            }
            if let Some(v) = &mut model[to as usize] {
                let end = v.len();
                v[shift.min(end)..(shift + len).min(end)].fill(0);
                if !part.is_empty() {
                    v[shift..shift + part.len()].copy_from_slice(part);
                }
            }
        }
        Op::Allocate { n, at, len, keep } => {
            let (offset, end) = (at as u64, (at + len) as u64);
            let req = Allocate { object: id(n), offset, end, keep_size: keep };
            ost.allocate(&req).unwrap();
            grown(&mut model[n as usize], if keep { 0 } else { at + len });
        }
        Op::Commit { all, n } => {
            let w = if all { commit(ost, &[]) } else { commit(ost, &[n]) }.unwrap();
            assert_eq!(w.verifier, ost.verifier());
        }
        Op::Destroy { n } => {
            ost.destroy(&Destroy { objects: proto::wire::List(vec![id(n), id(n)]) }).unwrap();
            model[n as usize] = None;
        }
        Op::Reopen { .. } => {}
    }
}

fn agree(ost: &Ost, model: &Model) {
    for (n, v) in (0..).zip(model) {
        let seen = glimpse(ost, n);
        assert_eq!(seen.exists.then_some(seen.size), v.as_ref().map(|v| v.len() as u64));
        let v = v.as_deref().unwrap_or(&[]);
        assert!(read(ost, n, 0, 1 << 20, 0).unwrap() == v, "object {n}");
        for hole in [false, true] {
            let past = ost.seek(&Seek { object: id(n), offset: v.len() as u64, hole });
            assert_eq!(past, Err(proto::Errno::ENXIO));
        }
        // A hole reads as zeros, and what is not zero is not in a hole.
        if let Some(first) = v.iter().position(|b| *b != 0) {
            let data = ost.seek(&Seek { object: id(n), offset: 0, hole: false }).unwrap();
            assert!(data.offset <= first as u64);
        }
    }
    assert_eq!(ost.stats().blocks_bad, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn requests_equal_byte_vectors(all in proptest::collection::vec(ops(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut ost = fresh(dir.path());
        let mut model: Model = vec![None; 3];
        for (seed, op) in (1..).zip(&all) {
            step(&ost, &mut model, op, seed);
            if let Op::Reopen { clean } = op {
                if *clean {
                    ost.close().unwrap();
                }
                drop(ost);
                ost = reopen(dir.path());
                agree(&ost, &model);
            }
        }
        agree(&ost, &model);
        ost.close().unwrap();
        drop(ost);
        every_checksum_is_right(dir.path(), &model);
    }
}

/// After a clean end the checker, which reads files only, finds the same objects and no bad block.
fn every_checksum_is_right(dir: &std::path::Path, model: &Model) {
    let checker = OstDir::open(dir).unwrap();
    let mut found = 0;
    checker
        .walk(|e| match e {
            pinstripe_oss::check::Entry::Object { id: which, size, .. } => {
                let n = (0..3).find(|n| id(*n) == which).unwrap();
                assert_eq!(Some(size), model[n as usize].as_ref().map(|v| v.len() as u64));
                let v = checker.verify(&which).unwrap();
                assert_eq!((v.bad, v.sidecar), (vec![], None));
                found += 1;
            }
            other => panic!("{other:?}"),
        })
        .unwrap();
    assert_eq!(found, model.iter().flatten().count());
}
