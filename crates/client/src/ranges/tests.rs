use proptest::prelude::*;

use super::*;

const SPACE: usize = 2000;
/// Where the space begins: chunks meet in its middle.
const BASE: u64 = slab::CHUNK as u64 - 900;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, Vec<u8>, bool),
    Remove(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let insert = (0u64..1500, proptest::collection::vec(1u8.., 1..400), any::<bool>())
        .prop_map(|(at, data, copy)| Step::Insert(at, data, copy));
    let remove = (0u64..1900, 0u64..600).prop_map(|(at, len)| Step::Remove(at, at + len));
    proptest::collection::vec(prop_oneof![4 => insert, 1 => remove], 0..40)
}

proptest! {
    /// Against one byte after the other; 0 means nothing is there.
    #[test]
    fn equals_bytes_one_by_one(steps in steps()) {
        let mut model = vec![0u8; SPACE];
        let mut map: RangeMap<u32> = RangeMap::default();
        for step in steps {
            match step {
                Step::Insert(at, data, copy) => {
                    model[at as usize..at as usize + data.len()].copy_from_slice(&data);
                    if copy {
                        map.insert_copy(BASE + at, &data, 1);
                    } else {
                        map.insert(BASE + at, Buf::Shared(Bytes::from(data)), 1);
                    }
                }
                Step::Remove(a, b) => {
                    let b = b.min(SPACE as u64);
                    for (at, seg) in map.remove(BASE + a, BASE + b) {
                        let at = (at - BASE) as usize;
                        let range = at..at + seg.data.as_slice().len();
                        prop_assert_eq!(&model[range], seg.data.as_slice());
                    }
                    model[a as usize..b as usize].fill(0);
                }
            }
            let mut found = vec![0u8; SPACE];
            map.copy_to(BASE, &mut found);
            prop_assert_eq!(&found, &model);
            prop_assert_eq!(map.bytes(), model.iter().filter(|b| **b != 0).count() as u64);
            let end = model.iter().rposition(|b| *b != 0).map(|last| BASE + last as u64 + 1);
            prop_assert_eq!(map.end(), end);
            let mut part = vec![0u8; 500];
            let mut cover = Cover::default();
            map.copy_to(BASE + 700, &mut part);
            map.ranges(BASE + 700, BASE + 1200, |a, b| cover.add(a, b));
            prop_assert_eq!(&part[..], &model[700..1200]);
            prop_assert_eq!(map.overlaps(BASE + 700, BASE + 1200), part.iter().any(|b| *b != 0));
            prop_assert_eq!(cover.covers(BASE + 700, BASE + 1200), part.iter().all(|b| *b != 0));
            let mut pieces = Vec::new();
            map.snapshot(BASE + 700, BASE + 1200, &mut pieces);
            let mut shot = vec![0u8; 500];
            for (at, b) in pieces {
                let at = (at - BASE) as usize - 700;
                shot[at..at + b.len()].copy_from_slice(&b);
            }
            prop_assert_eq!(shot, part);
        }
    }
}

/// Blocks of four writers, in any order close to theirs, become whole chunks that lie in memory as
/// on the disk.
#[test]
fn neighbours_become_whole_chunks() {
    const BLOCK: usize = 47_008;
    let mut map: RangeMap<()> = RangeMap::default();
    let blocks = 3 * slab::CHUNK / BLOCK + 1;
    let order = (0..blocks).step_by(4).flat_map(|n| [n + 2, n, n + 3, n + 1]);
    for n in order.filter(|n| *n < blocks) {
        map.insert_copy((n * BLOCK) as u64, &vec![n as u8 + 1; BLOCK], ());
    }
    let ripe = map.extract(|_, _, ripe| ripe);
    assert_eq!(ripe.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1 << 20, 2 << 20]);
    for (at, seg) in ripe {
        let bytes = seg.data.into_bytes();
        assert_eq!((bytes.len(), bytes.as_ptr().addr() % 4096), (slab::CHUNK, 0));
        let right = |(i, b): (usize, &u8)| *b == ((at as usize + i) / BLOCK) as u8 + 1;
        assert!(bytes.iter().enumerate().all(right));
    }
    assert_eq!(map.bytes(), (blocks * BLOCK - 3 * slab::CHUNK) as u64);
}
