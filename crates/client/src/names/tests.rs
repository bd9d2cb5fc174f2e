use super::*;
use crate::attrs::Attrs;
use crate::filling::tests::attr;
use crate::leases::Mark;
use proto::Attr;

fn fid(n: u32) -> Fid {
    Fid::new(9, n)
}

#[test]
fn absence_is_known_as_far_as_the_listing() {
    let mut n = Names::within(1000);
    let d = fid(1);
    assert_eq!(n.find(d, b"a"), Found::Unknown);
    let mut all: Vec<Vec<u8>> = (0..100).map(|i| format!("n{i}").into_bytes()).collect();
    all.sort_by_key(|name| name_hash(name));
    let page = |names: &[Vec<u8>]| {
        let of = |x: &Vec<u8>| (cookie(name_hash(x), 0), x.clone(), fid(7), FileKind::File);
        names.iter().map(of).collect::<Vec<_>>()
    };
    let first = page(&all[..50]);
    let upto = first[49].0;
    n.fill(d, 0, first.into_iter(), false);
    assert_eq!(n.find(d, &all[3]), Found::Is(fid(7), FileKind::File));
    assert_eq!(n.find(d, &all[70]), Found::Unknown);
    assert_eq!(n.is_empty(d), Some(false));
    let p = n.page(d, 0, 1000).unwrap();
    assert_eq!((p.entries.len(), p.end), (50, false));
    assert!(n.page(d, upto, 10).is_none());
    n.fill(d, upto, page(&all[50..]).into_iter(), true);
    assert_eq!(n.find(d, b"other"), Found::Absent);
    let p = n.page(d, 0, 30).unwrap();
    assert_eq!((p.entries.len(), p.end), (30, false));
    let p = n.page(d, p.entries[29].0, 1000).unwrap();
    assert_eq!((p.entries.len(), p.end), (70, true));
    n.set(d, &all[0], None, true);
    assert_eq!(n.find(d, &all[0]), Found::Absent);
    n.forget_name(d, &all[60]);
    assert_eq!(n.find(d, &all[60]), Found::Unknown);
    assert!(!n.continues(d, cookie(name_hash(&all[60]), 0)), "what follows it lacks it");
    assert_eq!(n.find(d, &all[50]), Found::Is(fid(7), FileKind::File));
    assert_eq!(n.count, 98);
    n.forget(d);
    assert_eq!(n.count, 0);
}

#[test]
fn a_new_directory_is_known_whole() {
    let mut n = Names::within(1000);
    n.born(fid(2), fid(1), Mark::NEVER);
    assert_eq!(n.is_empty(fid(2)), Some(true));
    assert_eq!(n.parent(fid(2)), Some(fid(1)));
    n.set(fid(2), b"x", Some((fid(3), FileKind::Dir)), true);
    n.set(fid(2), b"gone", None, true);
    assert_eq!(n.find(fid(2), b"gone"), Found::Absent);
    assert_eq!((n.count, n.parent(fid(3))), (1, Some(fid(2))));
    n.set(fid(2), b"x", None, true);
    assert_eq!((n.count, n.is_empty(fid(2))), (0, Some(true)));
}

#[test]
fn what_nobody_used_lately_goes_first_and_no_more_than_that_is_kept() {
    let (mut names, mut attrs) = (Names::within(1000), Attrs::within(500));
    for d in 1..=100 {
        for n in 0..20_u32 {
            let child = fid(1000 + d * 100 + n);
            names.set(fid(d), &n.to_le_bytes(), Some((child, FileKind::File)), false);
            attrs.learn(&Attr { fid: child, ..attr() }, 0, Mark::NEVER);
        }
        names.find(fid(1), b"used all the time");
        names.shrink();
        attrs.shrink();
        assert!(names.count <= 1000 && attrs.len() <= 500, "{} {}", names.count, attrs.len());
    }
    assert_eq!(names.find(fid(100), &3_u32.to_le_bytes()), Found::Is(fid(11_003), FileKind::File));
    assert!(names.has(fid(1)) && attrs.get(fid(11_003)).is_some());
    assert!(!names.has(fid(2)) && attrs.get(fid(1203)).is_none());
}

fn count_of(n: &Names) -> (usize, usize) {
    let sum = |of: fn(&Dir) -> usize| n.dirs.values().map(of).sum();
    (sum(|d| d.list.len()), sum(|d| d.hashes.len()))
}

/// A directory of more names than are kept: those it does not hold are known to be absent, also after many more.
#[test]
fn a_large_directory_is_known_by_what_it_cannot_hold() {
    let mut n = Names::within(4000);
    let (d, file) = (fid(1), Some((fid(7), FileKind::File)));
    n.born(d, fid(2), Mark::NEVER);
    for i in 0..20_000_u32 {
        assert_eq!(n.find(d, &i.to_le_bytes()), Found::Absent, "{i} before it is made");
        n.set(d, &i.to_le_bytes(), file, true);
        n.shrink();
        assert!(n.count + n.hashed / PER_NAME < 4000, "{} {}", n.count, n.hashed);
    }
    assert_eq!((n.count, n.hashed), count_of(&n));
    for i in 0..20_000_u32 {
        assert_ne!(n.find(d, &i.to_le_bytes()), Found::Absent, "{i} is there");
    }
    assert_eq!(n.find(d, &19_999_u32.to_le_bytes()), Found::Is(fid(7), FileKind::File));
    assert_eq!(n.find(d, &3_u32.to_le_bytes()), Found::Unknown);
    assert_eq!((n.is_empty(d), n.page(d, 0, 10).is_some()), (Some(false), false));
    // Made, and removed again.
    n.set(d, b"passing", file, true);
    n.set(d, b"passing", None, true);
    assert_eq!(n.find(d, b"passing"), Found::Absent);
    // Removed there, as an answer says; then of unknown state after a failure.
    n.set(d, &3_u32.to_le_bytes(), None, true);
    assert_eq!(n.find(d, &3_u32.to_le_bytes()), Found::Absent);
    n.forget_name(d, b"doubtful");
    assert_eq!(n.find(d, b"doubtful"), Found::Unknown);
    assert_eq!((n.count, n.hashed), count_of(&n));
    n.forget(d);
    assert_eq!((n.count, n.hashed, n.find(d, b"other")), (0, 0, Found::Unknown));
}

/// A listing longer than what is kept, in pages, with names that come and go meanwhile: what is said of a
/// name is what a plain set of names says.
#[test]
fn a_long_listing_agrees_with_a_set_of_names() {
    for seed in 1..=20_u64 {
        let mut n = Names::within(3000);
        let d = fid(1);
        let name = |i: u64| (i % 12_000).to_le_bytes().to_vec();
        let place = |x: &Vec<u8>| (name_hash(x), x.clone());
        let mut there: BTreeMap<(u64, Vec<u8>), ()> =
            (0..9000).map(|i| (place(&name(i * seed)), ())).collect();
        let mut state = seed;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let (mut from, mut ended) = (0, false);
        while !ended {
            let mut page = Vec::new();
            let (mut last, mut index) = (0, 0);
            for (hash, x) in there.keys() {
                index = if *hash == last { index + 1 } else { 0 };
                last = *hash;
                let at = cookie(*hash, index);
                if at > from && page.len() < 400 {
                    page.push((at, x.clone(), fid(7), FileKind::File));
                }
            }
            ended = page.len() < 400;
            let upto = page.last().map_or(from, |p| p.0);
            n.fill(d, from, page.into_iter(), ended);
            n.shrink();
            from = upto;
            for _ in 0..200 {
                let (x, makes) = (name(random()), random() % 2 == 0);
                let known = n.find(d, &x);
                let is = there.contains_key(&place(&x));
                match known {
                    Found::Is(..) => assert!(is, "seed {seed}: {x:?} is not there"),
                    Found::Absent => assert!(!is, "seed {seed}: {x:?} is there"),
                    Found::Unknown => {}
                }
                if makes == is {
                    continue;
                }
                n.set(d, &x, makes.then_some((fid(7), FileKind::File)), true);
                match makes {
                    true => there.insert(place(&x), ()),
                    false => there.remove(&place(&x)),
                };
                if random() % 50 == 0 {
                    n.forget_name(d, &x);
                }
            }
            n.shrink();
            assert_eq!((n.count, n.hashed), count_of(&n), "seed {seed}");
        }
        let absent: Vec<u64> =
            (0..12_000).filter(|i| !there.contains_key(&place(&name(*i)))).collect();
        let said: Vec<u64> =
            (0..12_000).filter(|i| n.find(d, &name(*i)) == Found::Absent).collect();
        let wrong = said.iter().find(|i| absent.binary_search(i).is_err());
        assert_eq!(wrong, None, "seed {seed}: it is there");
        let (known, absent) = (said.len(), absent.len());
        assert!(known > absent / 2, "seed {seed}: {known} of {absent} are known to be absent");
    }
}
