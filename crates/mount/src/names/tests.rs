use super::*;

fn taken(names: &mut Names, tally: &Tally) -> Vec<(u64, String)> {
    let mut to = Vec::new();
    names.take(7, tally, &mut to);
    let text = |n: &Name| (n.parent, String::from_utf8_lossy(&n.name).into_owned());
    let mut all: Vec<_> = to.iter().map(text).collect();
    all.sort();
    all
}

#[test]
fn names_are_noted_once_and_taken_once() {
    let (mut names, tally) = (Names::default(), Tally::within(1000));
    let told = Some(Told::new(Duration::from_secs(1), 7));
    assert_eq!(names.add(&tally, (1, b"a"), None), Added::New);
    assert_eq!(names.add(&tally, (1, b"a"), told), Added::Known);
    assert_eq!(names.add(&tally, (2, b"a"), None), Added::New);
    assert_eq!(names.add(&tally, (1, b"b"), None), Added::New);
    names.add_absent(&tally, b"x");
    names.add_absent(&tally, b"x");
    names.add_absent(&tally, b"y");
    names.remove_absent(&tally, b"y");
    assert_eq!(names.remove(&tally, (1, b"a")), Some(told));
    assert_eq!(names.remove(&tally, (1, b"a")), None);
    let wanted = [(1, "b".to_string()), (2, "a".into()), (7, "x".into())];
    assert_eq!(taken(&mut names, &tally), wanted);
    assert!(taken(&mut names, &tally).is_empty());
    assert_eq!(tally.bytes.load(Relaxed), 0);
    assert!(!tally.begin(), "none is missing");
}

#[test]
fn what_has_no_room_is_missing_until_the_next_drop() {
    let tally = Tally::within(1000);
    let mut names = Names::default();
    for n in 0..=MAX_LINKS {
        assert!(!tally.missing.load(SeqCst));
        names.add(&tally, (1, n.to_string().as_bytes()), None);
    }
    assert_eq!(names.add(&tally, (1, b"one more"), None), Added::Missed);
    assert!(tally.begin() && !tally.begin());
    assert_eq!(taken(&mut names, &tally).len(), MAX_LINKS);
    tally.bytes.store(tally.most - OVERHEAD, Relaxed);
    names.add_absent(&tally, b"");
    assert!(!tally.begin());
    names.add_absent(&tally, b"x");
    assert!(tally.begin());
    assert_eq!(tally.bytes.load(Relaxed), tally.most, "what had no room takes none");
    names.clear(&tally);
    assert_eq!(tally.bytes.load(Relaxed), tally.most - OVERHEAD);
}

#[test]
fn a_place_is_taken_once_and_waited_for() {
    let place = Arc::<Place>::default();
    let first = place.take(Duration::ZERO).unwrap();
    assert!(place.take(Duration::ZERO).is_none() && place.take(Duration::from_millis(1)).is_none());
    let other = std::thread::spawn({
        let place = Arc::clone(&place);
        move || place.take(PATIENCE).is_some()
    });
    drop(first);
    assert!(other.join().unwrap());
    assert!(place.take(Duration::ZERO).is_some(), "who had it has ended");
}

#[test]
fn renames_are_noted_apart_only_while_names_expire() {
    let tally = Tally::within(1000);
    tally.moved((1, b"before"));
    assert!(tally.moved.lock().is_empty() && !tally.begin());
    (0..MAX_MOVED).for_each(|_| tally.moved((1, b"during")));
    assert!(!tally.missing.load(SeqCst));
    tally.moved((1, b"too many"));
    assert_eq!(tally.moved.lock().len(), MAX_MOVED);
    assert!(tally.missing.load(SeqCst));
    tally.end();
    tally.moved((1, b"after"));
    assert!(tally.moved.lock().is_empty());
}

#[test]
fn nobody_waits_without_a_bound_nor_asks_without_need() {
    let (say, hear) = channel();
    let begun = Instant::now();
    assert_eq!(wait(&hear, BRIEFLY, || false), Err(false));
    assert!(begun.elapsed() >= BRIEFLY);
    say.send(true).unwrap();
    assert_eq!(wait(&hear, BRIEFLY, || unreachable!()), Ok(()));
    assert_eq!(wait(&hear, BRIEFLY, || say.send(true).is_ok()), Ok(()), "late, but in time");
    say.send(false).unwrap();
    assert_eq!(wait(&hear, BRIEFLY, || true), Err(true));
    let begun = Instant::now();
    assert_eq!(wait(&hear, BRIEFLY, || true), Err(true));
    assert!(begun.elapsed() >= PATIENCE);
    drop(say);
    assert_eq!(wait(&hear, BRIEFLY, || false), Err(false), "the thread has failed");
}
