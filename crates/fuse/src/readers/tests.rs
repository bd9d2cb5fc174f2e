use super::*;
use std::sync::Arc;

fn counts(readers: &Readers) -> (usize, usize) {
    (readers.reading.load(Ordering::SeqCst), readers.busy.load(Ordering::SeqCst))
}

/// Waits until a thread parks as the sentinel.
fn until_watched(readers: &Readers) {
    while !readers.watched.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[test]
fn quick_requests_are_left_to_one_reader() {
    let readers = Arc::new(Readers::new(4, 4));
    assert!(readers.reserve(true) && readers.reserve(false));
    let parked = readers.clone();
    let parked = std::thread::spawn(move || parked.park(|| false, || {}));
    until_watched(&readers);
    for _ in 0..1000 {
        assert!(!readers.taken());
        assert_eq!(counts(&readers), (0, 1));
        readers.completed(false, || unreachable!("quick requests do not look"));
        assert!(readers.read_on());
    }
    assert!(!readers.read_on(), "a second reader is not wanted");
    readers.end();
    assert_eq!(parked.join().unwrap(), Next::Leave);
}

#[test]
fn slow_requests_with_others_waiting_call_for_more_readers() {
    let readers = Readers::new(4, 4);
    assert!(readers.reserve(true));
    assert!(readers.taken(), "without a sentinel the last reader is replaced at once");
    assert!(readers.reserve(true));
    readers.completed(true, || true);
    assert!(readers.read_on(), "spread");
    assert!(!readers.taken());
    assert!(readers.taken(), "nobody reads any more");
    for _ in 0..2 {
        readers.completed(false, || false);
    }
    // Spread ends when nothing calls for it.
    assert!(readers.read_on());
    for _ in 0..SPREAD {
        readers.taken();
        readers.completed(false, || false);
        assert!(readers.read_on());
    }
    assert!(!readers.read_on());
}

#[test]
fn the_sentinel_reads_when_nobody_does_and_requests_wait() {
    let readers = Arc::new(Readers::new(2, 2));
    assert!(readers.reserve(true) && readers.reserve(false));
    let sentinel = readers.clone();
    let sentinel = std::thread::spawn(move || sentinel.park(|| true, || {}));
    until_watched(&readers);
    assert!(!readers.taken());
    // The handler blocks here; the sentinel comes by itself.
    assert_eq!(sentinel.join().unwrap(), Next::Read);
    assert_eq!(counts(&readers), (1, 1));
}

#[test]
fn a_parked_thread_is_called_before_a_new_one_is_started() {
    let readers = Arc::new(Readers::new(3, 3));
    assert!(readers.reserve(true) && readers.reserve(false));
    let parked = readers.clone();
    let parked = std::thread::spawn(move || parked.park(|| false, || {}));
    until_watched(&readers);
    readers.spread.store(SPREAD, Ordering::SeqCst);
    assert!(!readers.taken());
    assert_eq!(parked.join().unwrap(), Next::Read);
    assert_eq!(counts(&readers), (1, 1));
    assert!(readers.taken(), "nobody is parked now");
    assert!(readers.reserve(true) && !readers.reserve(true));
    assert!(!readers.taken(), "there are as many threads as there may be");
}

#[test]
fn threads_beyond_the_idle_limit_leave() {
    let readers = Arc::new(Readers::new(9, 1));
    assert!(readers.reserve(false) && readers.reserve(false));
    let parked = readers.clone();
    let parked = std::thread::spawn(move || parked.park(|| false, || {}));
    until_watched(&readers);
    assert_eq!(readers.park(|| false, || {}), Next::Leave);
    readers.end();
    assert_eq!(parked.join().unwrap(), Next::Leave);
    readers.left(false);
    readers.left(false);
    readers.wait_all_left();
    assert!(!readers.reserve(true), "nothing starts after the end");
}

#[test]
fn while_a_handler_blocks_for_long_somebody_reads() {
    let readers = Readers::new(4, 4);
    assert!(readers.reserve(true) && readers.reserve(false));
    std::thread::scope(|s| {
        // Nothing waits at the device now; it may do so at any time.
        let parked = s.spawn(|| readers.park(|| false, || {}));
        until_watched(&readers);
        assert!(!readers.taken());
        assert_eq!(parked.join().unwrap(), Next::Read);
    });
    assert_eq!(readers.reading.load(Ordering::Acquire), 1);
}

#[test]
fn where_little_comes_the_sentinel_sleeps_soon_and_is_woken_by_a_request() {
    let readers = Readers::new(4, 4);
    readers.aside();
    assert!(readers.reserve(true) && readers.reserve(false));
    let looks = AtomicU32::new(0);
    let look = || looks.fetch_add(1, Ordering::SeqCst) > QUIET_TICKS;
    std::thread::scope(|s| {
        let parked = s.spawn(|| readers.park(look, || {}));
        while !readers.asleep.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(!readers.taken(), "it is there to be woken");
        // The handler blocks.
        assert_eq!(parked.join().unwrap(), Next::Read);
    });
    assert_eq!(counts(&readers), (1, 1));
    // When it was woken, and after each quiet tick.
    assert_eq!(looks.into_inner(), 1 + QUIET_TICKS_ASIDE);
}
