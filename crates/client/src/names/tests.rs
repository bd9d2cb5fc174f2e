use super::*;
use crate::leases::Mark;

fn fid(n: u32) -> Fid {
    Fid::new(9, n)
}

#[test]
fn absence_is_known_as_far_as_the_listing() {
    let mut n = Names::default();
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
    let mut n = Names::default();
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
