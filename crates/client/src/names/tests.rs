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
