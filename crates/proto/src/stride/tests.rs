//! Against bytes that are counted one by one.

use proptest::prelude::*;

use super::Stride;
use crate::{MAX_FILE_SIZE, Wire};

/// Bytes that are looked at.
const LOOKED_AT: u64 = 2000;

fn stride() -> impl Strategy<Value = Stride> {
    let steps = prop_oneof![Just(0), 1u64..40, Just(24), Just(36)];
    (0u64..60, 1u64..20, steps).prop_map(|(start, len, step)| {
        let step = if step == 0 { 0 } else { step.max(len) };
        Stride { start, len, step }
    })
}

/// Whether a byte belongs to it: block after block.
fn has(s: &Stride, byte: u64) -> bool {
    let mut at = s.start;
    loop {
        if (at..at + s.len).contains(&byte) {
            return true;
        }
        if s.step == 0 || at > byte {
            return false;
        }
        at += s.step;
    }
}

proptest! {
    #[test]
    fn what_has_a_byte_in_common_meets(a in stride(), b in stride()) {
        let common = (0..LOOKED_AT).any(|byte| has(&a, byte) && has(&b, byte));
        prop_assert!(a.meets(&b) || !common, "{a:?} {b:?}");
        prop_assert_eq!(a.meets(&b), b.meets(&a));
        // Where both go on for ever it is exact: what only seems to meet would, further in front.
        let far = |s: &Stride| Stride { start: s.start + 3 * LOOKED_AT * s.step, ..s.clone() };
        if a.step > 0 && b.step > 0 {
            prop_assert_eq!(a.meets(&b), far(&a).meets(&b));
            prop_assert_eq!(a.meets(&b), common, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn it_holds_what_lies_in_one_block(s in stride(), at in 0u64..200, len in 1u64..30) {
        let all = (at..at + len).all(|byte| has(&s, byte));
        // Blocks that touch are blocks nevertheless.
        if s.step != s.len {
            prop_assert_eq!(s.holds(at, len), all);
        }
        prop_assert!(all || !s.holds(at, len));
    }
}

#[test]
fn four_writers_of_odd_blocks_do_not_meet() {
    let len = 47_008;
    let writer = |n: u64| Stride { start: n * len, len, step: 4 * len };
    for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))) {
        assert_eq!(writer(a).meets(&writer(b)), a == b);
    }
    assert!(writer(2).holds(2 * len + 4 * len * 100_000, len) && !writer(2).holds(0, len));
}

#[test]
fn what_no_file_can_hold_is_not_valid() {
    let valid = |start, len, step| Stride { start, len, step }.is_valid();
    assert!(valid(0, MAX_FILE_SIZE, 0) && valid(5, 7, 7));
    assert!(!valid(0, 0, 0) && !valid(0, 0, 4), "nothing");
    assert!(!valid(1, MAX_FILE_SIZE, 0) && !valid(u64::MAX, 2, 0), "beyond the end");
    assert!(!valid(0, 7, 6) && !valid(0, 7, u64::MAX), "steps");
}

#[test]
fn golden_bytes_of_a_stride() {
    let s = Stride { start: 1, len: 2, step: 3 };
    let mut expect = vec![0; 24];
    (expect[0], expect[8], expect[16]) = (1, 2, 3);
    assert_eq!(s.to_bytes(), expect);
    assert_eq!(Stride::from_bytes(&expect), Ok(s));
}
