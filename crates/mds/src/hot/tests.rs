use super::*;
use crate::record::{Inode, Kept as Answer, Replies};
use proptest::prelude::*;
use proto::{Fid, TimeSpec};
use store::memory::MemorySnapshot;

/// What a store holds.
type Held = BTreeMap<Vec<u8>, Value>;

fn view(held: &Held) -> MemorySnapshot {
    held.clone().into()
}

fn apply(held: &mut Held, writes: Vec<Write>) {
    for write in writes {
        match write {
            Write::Put(key, value) => held.insert(key, value.into()),
            Write::Del(key) => held.remove(&key),
        };
    }
}

/// So many that some stay as they are for longer than their log.
const KEYS: u8 = 200;

fn inode(size: u64) -> Vec<u8> {
    let t = TimeSpec { sec: 1, nsec: 2 };
    record::encode(&Inode {
        mode: 0o040755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
        flags: 0,
        version: size,
        home: None,
        target: Vec::new(),
        layout: None,
        next_layout: 0,
        spec: None,
    })
}

/// As a group takes a change: `likely` says that the record will be changed again.
fn take(hot: &mut Hot, key: Vec<u8>, value: Option<Vec<u8>>, likely: bool) -> Option<Write> {
    match value {
        Some(value) if likely => {
            hot.gather(key.try_into().unwrap(), |e| {
                e.raw(&value);
            });
            None
        }
        value => hot.take(key, value),
    }
}

fn key(n: u8) -> Vec<u8> {
    keys::of(keys::INODE, Fid::new(1, n.into()))
}

fn plain(held: &Held) -> Held {
    let logs = |k: &Vec<u8>| k[0] == keys::LOG;
    let cold = held.iter().filter(|(k, _)| !logs(k));
    cold.map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn all(held: &dyn Snapshot) -> Held {
    let found = held.scan(&[keys::INODE], Some(&[keys::INODE + 1]), usize::MAX).unwrap();
    found.into_iter().collect()
}

fn read(held: &Held) -> Result<Hot, String> {
    let view = view(held);
    let scan = |a: &[u8], b: Option<&[u8]>, n| view.scan(a, b, n).map_err(|e| e.to_string());
    Hot::read(scan, |_, why| why)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random groups, of which the store has all but the last few: what is asked for is the newest,
    /// whatever the store has already; a crash anywhere, and what is done after it, loses nothing.
    #[test]
    fn logs_and_records_are_the_namespace(
        groups in prop::collection::vec(prop::collection::vec((0..KEYS, 0..4u8, any::<u64>()), 0..6), 1..500),
        lag in 0..4usize,
        crash in 0..500usize,
    ) {
        let (mut hot, mut held, mut model) = (Hot::default(), Held::default(), Held::default());
        let mut flying: VecDeque<(u64, Vec<Write>)> = VecDeque::new();
        for (n, changes) in groups.iter().enumerate() {
            let (group, mut writes) = (n as u64 + 1, Vec::new());
            let newest: BTreeMap<u8, (u8, u64)> =
                changes.iter().map(|(k, what, size)| (*k, (*what, *size))).collect();
            for (k, (what, size)) in newest {
                let value = (what > 0).then(|| inode(size));
                match &value {
                    Some(v) => model.insert(key(k), v.clone().into()),
                    None => model.remove(&key(k)),
                };
                writes.extend(take(&mut hot, key(k), value, what > 1));
            }
            hot.cut(group, &mut writes, false);
            flying.push_back((group, writes));
            while flying.len() > lag {
                let (group, writes) = flying.pop_front().unwrap();
                apply(&mut held, writes);
                hot.stored(group);
            }
            for k in 0..KEYS {
                let now = match hot.get(&key(k)) {
                    Some(newest) => newest.cloned(),
                    None => held.get(&key(k)).cloned(),
                };
                // What a group changes that is not in the store yet is in the cache.
                let flown = &groups[n + 1 - flying.len()..=n];
                if hot.get(&key(k)).is_some() || !flown.iter().flatten().any(|(c, ..)| *c == k) {
                    prop_assert_eq!(now.as_ref(), model.get(&key(k)));
                }
            }
            if n == crash {
                flying.drain(..).for_each(|(_, writes)| apply(&mut held, writes));
                prop_assert_eq!(&all(&Newest::of(&view(&held)).unwrap()), &model);
                hot = read(&held).unwrap();
            }
        }
        flying.drain(..).for_each(|(_, writes)| apply(&mut held, writes));
        prop_assert_eq!(&all(&Newest::of(&view(&held)).unwrap()), &model);
        let logs = held.keys().filter(|k| k[0] == keys::LOG).count();
        prop_assert!(logs <= LOGS as usize);
        let mut writes = Vec::new();
        hot.cut(groups.len() as u64 + 1, &mut writes, true);
        apply(&mut held, writes);
        prop_assert_eq!(&held, &model);
        prop_assert!(hot.is_empty());
    }

    #[test]
    fn decoding_is_total(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = record::decode::<Log>(&bytes);
        let _ = read(&Held::from([(keys::log(0), bytes.into())]));
    }
}

#[test]
fn what_is_changed_again_and_again_is_one_record_of_each_group() {
    let (mut hot, mut held) = (Hot::default(), Held::default());
    for group in 1..=10 * LOGS {
        let mut writes = Vec::new();
        for k in 0..100 {
            writes.extend(take(&mut hot, key(k), Some(inode(group)), true));
        }
        hot.cut(group, &mut writes, false);
        assert_eq!(writes.len(), 1, "group {group}");
        apply(&mut held, writes);
        hot.stored(group);
    }
    assert!(plain(&held).is_empty());
    assert_eq!(hot.values.len(), 100);
}

#[test]
fn what_is_cold_gets_a_record_of_its_own_and_is_forgotten_once_it_is_stored() {
    let (mut hot, mut held) = (Hot::default(), Held::default());
    assert_eq!(take(&mut hot, key(0), Some(inode(1)), true), None);
    for group in 1..=LOGS + 1 {
        let mut writes = Vec::new();
        writes.extend(take(&mut hot, key(1), Some(inode(group)), true));
        hot.cut(group, &mut writes, false);
        assert_eq!(writes.len(), if group <= LOGS { 1 } else { 2 });
        assert!(hot.get(&key(0)).is_some());
        apply(&mut held, writes);
        hot.stored(group - 1);
        assert!(hot.get(&key(0)).is_some());
    }
    hot.stored(LOGS + 1);
    assert!(hot.get(&key(0)).is_none());
    assert_eq!(plain(&held), Held::from([(key(0), inode(1).into())]));
}

#[test]
fn logs_are_bounded_in_bytes() {
    let (mut hot, mut held) = (Hot::default(), Held::default());
    let body = Bytes::from(vec![7; LOG_BYTES / 8]);
    for n in 1..=40u64 {
        let kept = Answer { xid: n, transno: n, current: None, body: body.clone() };
        let value = record::encode(&Replies { list: List(vec![kept]) });
        let mut writes = Vec::new();
        writes.extend(take(&mut hot, keys::replies(&[n as u8; 16]), Some(value), true));
        hot.cut(n, &mut writes, false);
        apply(&mut held, writes);
        hot.stored(n);
        let logs = held.iter().filter(|(k, _)| k[0] == keys::LOG);
        assert!(logs.map(|(_, v)| v.len()).sum::<usize>() <= LOG_BYTES + LOG_BYTES / 4);
    }
    let view = view(&held);
    let newest = Newest::of(&view).unwrap();
    assert!((1..=40).all(|n| newest.get(&keys::replies(&[n; 16])).unwrap().is_some()));
}

#[test]
fn no_more_of_what_is_cold_is_written_at_once_than_a_group_takes() {
    const AT_ONCE: u32 = 3000;
    let key = |n: u32| keys::of(keys::INODE, Fid::new(1, n));
    let (mut hot, mut held, mut group) = (Hot::default(), Held::default(), 0);
    let mut cut = |hot: &mut Hot, all| {
        group += 1;
        let mut writes = Vec::new();
        hot.cut(group, &mut writes, all);
        let single = |w: &&Write| w.key()[0] == keys::INODE;
        assert!(writes.len() <= ENDED_RECORDS + 10, "{}", writes.len());
        assert!(writes.iter().filter(single).map(Write::bytes).sum::<usize>() <= ENDED_BYTES);
        apply(&mut held, writes);
        hot.stored(group);
    };
    for from in (0..20 * AT_ONCE).step_by(AT_ONCE as usize) {
        for n in from..from + AT_ONCE {
            assert_eq!(take(&mut hot, key(n), Some(inode(n.into())), true), None);
        }
        cut(&mut hot, false);
    }
    let mut cuts = 0;
    while !hot.is_empty() {
        cut(&mut hot, true);
        cuts += 1;
    }
    assert!(cuts > 1 && held.len() == 20 * AT_ONCE as usize, "{cuts}, {}", held.len());
    assert!((0..20 * AT_ONCE).all(|n| held[&key(n)] == inode(n.into())));
}

#[test]
fn golden_bytes() {
    let (gone, there) = (b"r0123456789abcdef", b"iABCDEFGHIJKLMNOP");
    let mut hot = Hot { sequence: 256, ..Hot::default() };
    let mut writes = Vec::new();
    take(&mut hot, gone.to_vec(), Some(b"old".to_vec()), true);
    hot.cut(1, &mut writes, false);
    take(&mut hot, gone.to_vec(), None, true);
    take(&mut hot, there.to_vec(), Some(b"v".to_vec()), true);
    hot.cut(2, &mut writes, false);
    let mut expect = b"\x01\x02\x01\0\0\0\0\0\0\x02\0\0\0".to_vec();
    expect.extend([&b"\x11\0\0\0r0123456789abcdef\0"[..], b"\x11\0\0\0iABCDEFGHIJKLMNOP"].concat());
    expect.extend(b"\x01\x01\0\0\0v");
    assert_eq!(writes[1], Write::Put(b"h\0\0\0\0\0\0\0\x02".to_vec(), expect.clone()));
    let newer = |key: &[u8], value| Newer { key: key.to_vec(), value };
    let list = List(vec![newer(gone, None), newer(there, Some(Bytes::from_static(b"v")))]);
    assert_eq!(record::decode::<Log>(&expect), Ok(Log { sequence: 258, list }));
}

#[test]
fn damage_is_told_by_name() {
    let log = |sequence, list| record::encode(&Log { sequence, list: List(list) });
    let at = |place: u64, log: Vec<u8>| Held::from([(keys::log(place), log.into())]);
    let newer = |key: Vec<u8>, value: &'static [u8]| Newer { key, value: Some(value.into()) };
    let said = |held: Held| {
        let Err(StoreError::Corrupt(text)) = Newest::of(&view(&held)).map(drop) else {
            panic!("taken")
        };
        let found = crate::check::check(&view(&held)).unwrap().problems;
        assert_eq!((found[0].kind, &found[0].text), ("damaged-record", &text));
        assert!(text.contains("h\\x00"), "{text}");
        text
    };
    assert!(said(at(1, log(2, Vec::new()))).contains("out of its place"));
    assert!(said(at(2, log(2, vec![newer(key(1), b"junk")]))).contains("cannot be read"));
    assert!(said(at(2, log(2, vec![newer(b"d123".to_vec(), b"x")]))).contains("holds the key"));
    assert!(said(at(2, b"junk".to_vec())).contains("record version"));
    let mut newer_version = log(2, Vec::new());
    newer_version[0] = 2;
    assert!(said(at(2, newer_version)).contains("record version"));
}

#[test]
fn a_value_that_is_written_in_place_is_logged_as_one_that_is_handed_over() {
    let answers = || {
        let one = |xid| Answer { xid, transno: xid, current: None, body: vec![7; 90].into() };
        (1..4).map(one).collect::<Vec<_>>()
    };
    let client = keys::hot(keys::REPLIES, [9; 16]);
    let dir = keys::hot(keys::INODE, Fid::new(1, 5).key());
    let cut = |mut hot: Hot| {
        let mut writes = Vec::new();
        hot.cut(1, &mut writes, false);
        writes
    };
    let mut handed = Hot::default();
    let replies = record::encode(&Replies { list: List(answers()) });
    assert_eq!(take(&mut handed, client.to_vec(), Some(replies), true), None);
    assert_eq!(take(&mut handed, dir.to_vec(), Some(inode(3)), true), None);
    let mut placed = Hot::default();
    placed.gather(client, |e| record::encode_replies(e, answers().iter()));
    let value = record::decode::<Inode>(&inode(3)).unwrap();
    placed.gather(dir, |e| record::encode_into(e, &value));
    let writes = cut(placed);
    assert_eq!(writes.len(), 1);
    assert_eq!(writes, cut(handed));
}

#[test]
fn who_came_back_is_not_forgotten_with_who_left_in_the_same_group() {
    let mut cache = crate::cache::Cache::new(1 << 20);
    let client = keys::hot(keys::REPLIES, [9; 16]);
    cache.put_raw(client.to_vec(), None);
    cache.put_hot(client, |e| {
        e.raw(b"newest");
    });
    let (_, writes) = cache.cut(false);
    assert_eq!(cache.hot().get(&client), Some(Some(&Bytes::from_static(b"newest"))));
    assert!(writes.iter().all(|w| w.key() != client));
}
