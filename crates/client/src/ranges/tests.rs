use proptest::prelude::*;

use super::*;

const SPACE: usize = 2000;

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
                        map.insert_copy(at, &data, 1);
                    } else {
                        map.insert(at, Buf::Shared(Bytes::from(data)), 1);
                    }
                }
                Step::Remove(a, b) => {
                    let b = b.min(SPACE as u64);
                    for (at, seg) in map.remove(a, b) {
                        let range = at as usize..at as usize + seg.data.as_slice().len();
                        prop_assert_eq!(&model[range], seg.data.as_slice());
                    }
                    model[a as usize..b as usize].fill(0);
                }
            }
            let mut found = vec![0u8; SPACE];
            map.copy_to(0, &mut found);
            prop_assert_eq!(&found, &model);
            prop_assert_eq!(map.bytes(), model.iter().filter(|b| **b != 0).count() as u64);
            let mut part = vec![0u8; 500];
            let mut cover = Cover::default();
            map.copy_to(700, &mut part);
            map.ranges(700, 1200, |a, b| cover.add(a, b));
            prop_assert_eq!(&part[..], &model[700..1200]);
            prop_assert_eq!(map.overlaps(700, 1200), part.iter().any(|b| *b != 0));
            prop_assert_eq!(cover.covers(700, 1200), part.iter().all(|b| *b != 0));
            let mut pieces = Vec::new();
            map.snapshot(700, 1200, &mut pieces);
            let mut shot = vec![0u8; 500];
            for (at, b) in pieces {
                shot[at as usize - 700..at as usize - 700 + b.len()].copy_from_slice(&b);
            }
            prop_assert_eq!(shot, part);
        }
    }
}
