//! What a writer's blocks are taken for, and when it is asked.

use proto::Stride;
use proto::mds::MAX_STRIDES;

use super::{
    ASK_AFTER_RECALL, ASK_AFTER_ROAMING, ASK_EVERY, ASK_FROM, HITS, Kept, PAID, RANGES, Steps,
};

/// What is seen of writes.
fn seen(writes: impl IntoIterator<Item = (u64, u64)>) -> Option<Stride> {
    let mut steps = Steps::default();
    writes.into_iter().map(|(at, len)| steps.seen(at, len)).last().flatten()
}

fn blocks(first: u64, len: u64, step: u64, count: u32) -> impl Iterator<Item = (u64, u64)> {
    (0..u64::from(count)).map(move |n| (first + n * step, len))
}

#[test]
fn blocks_at_one_distance_are_a_pattern_once_there_are_enough() {
    let (len, step) = (47_008, 4 * 47_008);
    assert_eq!(seen(blocks(len, len, step, HITS)), None);
    let found = seen(blocks(len, len, step, HITS + 1)).unwrap();
    assert_eq!(found, Stride { start: len, len, step });
    // Without gaps there is a range, from where it is.
    assert_eq!(seen(blocks(0, 512, 512, HITS)), None);
    let range = Stride::range(u64::from(HITS) * 512, RANGES[0]);
    assert_eq!(seen(blocks(0, 512, 512, HITS + 1)), Some(range));
    // In which requests a block comes does not matter.
    let torn = blocks(0, 1000, 3000, HITS + 1);
    let torn = torn.flat_map(|(at, _)| [(at, 990), (at + 990, 10)]);
    let found = seen(torn).unwrap();
    assert_eq!(found, Stride { start: 0, len: 1000, step: 3000 });
    // A step of another size, a block of another length, or one that goes back begins anew.
    let after =
        |after: &[(u64, u64)]| seen(blocks(0, 100, 300, HITS + 1).chain(after.iter().copied()));
    let next = u64::from(HITS + 1) * 300;
    assert!(after(&[(next, 100)]).is_some() && after(&[(next, 60)]).is_some());
    for other in
        [&[(next + 1, 100)][..], &[(0, 100)], &[(next, 101)], &[(next, 99), (next + 300, 100)]]
    {
        assert_eq!(after(other), None, "{other:?}");
    }
    // Blocks that overlap are none.
    assert_eq!(seen(blocks(0, 100, 50, 5 * HITS)), None);
    // It is not the last change that counts.
    let later = blocks(0, 100, 300, 3).chain(blocks(7, 100, 400, HITS + 1));
    assert_eq!(seen(later), Some(Stride { start: 7, len: 100, step: 400 }));
}

#[test]
fn what_several_show_is_put_together_within_bounds() {
    let mut kept = Kept::default();
    let stride = |start| Stride { start, len: 10, step: 100 };
    kept.wish(&stride(300));
    kept.wish(&stride(500));
    kept.wish(&stride(20));
    assert_eq!(kept.wished, [stride(300), stride(20)], "the same blocks are one");
    kept.wish(&stride(100));
    assert!(kept.wished.contains(&stride(100)) && kept.wished.len() == 2);
    let mut kept = Kept::default();
    for start in [0, 30, 10, 21] {
        kept.wish(&Stride::range(start, 10));
    }
    assert_eq!(kept.wished, [Stride::range(0, 20), Stride::range(21, 19)]);
    kept.wish(&Stride::range(20, 1));
    assert_eq!(kept.wished, [Stride::range(0, 40)]);
    for start in 1..100 {
        kept.wish(&Stride::range(start * 1000, 1));
    }
    assert_eq!(kept.wished.len(), MAX_STRIDES);
    assert!(kept.wished.contains(&Stride::range(99_000, 1)));
}

#[test]
fn it_is_asked_for_ever_more_rarely_unless_it_was_worth_it() {
    let mut kept = Kept::default();
    for every in [ASK_FROM, 2 * ASK_FROM, 4 * ASK_FROM] {
        kept.wait_for(ASK_FROM);
        assert_eq!(kept.every, every);
    }
    for _ in 0..40 {
        kept.wait_for(ASK_AFTER_ROAMING);
    }
    assert_eq!(kept.every, ASK_EVERY);
    kept.behind = PAID;
    kept.wait_for(ASK_AFTER_RECALL);
    assert_eq!((kept.every, kept.behind), (ASK_AFTER_RECALL, 0));
}
