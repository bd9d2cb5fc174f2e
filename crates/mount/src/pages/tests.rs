use super::*;
use std::cell::Cell;

#[test]
fn what_was_held_before_a_pass_began_is_met_by_it() {
    let pages = Arc::new(Pages::default());
    assert!(!pages.read_while_recalled(7), "nothing is called back");
    let (other, passes) = (Arc::clone(&pages), Cell::new(0));
    let reader = Cell::new(None);
    pages.recalled(7, true, || {
        passes.set(passes.get() + 1);
        if passes.get() == 1 {
            let other = Arc::clone(&other);
            // It waits for a pass that begins later, and then takes what this one may have left.
            reader.set(Some(std::thread::spawn(move || other.read_while_recalled(7))));
            while !pages.state.lock().recalled[&7].late {
                std::thread::yield_now();
            }
        }
        true
    });
    assert_eq!(passes.get(), 2, "a page may have been read that the first did not meet");
    assert!(reader.take().unwrap().join().unwrap());
    assert!(!pages.read_while_recalled(7));
}

/// The first has begun to drop them, and waits for one that is read; the second must not be answered before it has
/// dropped what was there when it came.
#[test]
fn a_second_call_back_of_a_node_is_not_done_before_its_pages_are_dropped() {
    let pages = Arc::new(Pages::default());
    pages.keep(7);
    let (go_on, held) = std::sync::mpsc::channel::<()>();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (pages, first, second) = (&pages, say.clone(), say);
        scope.spawn(move || {
            pages.recalled(7, true, || {
                first.send("the first has begun").unwrap();
                held.recv().is_ok()
            });
        });
        assert_eq!(said.recv(), Ok("the first has begun"));
        assert!(pages.shows_kept(7), "they are not dropped yet");
        scope.spawn(move || {
            pages.recalled(7, true, || second.send("the second drops").is_ok());
        });
        let early = said.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "{early:?} beside the first");
        go_on.send(()).unwrap();
        assert_eq!(said.recv_timeout(Duration::from_secs(20)), Ok("the second drops"));
    });
    assert!(!pages.shows_kept(7));
}

#[test]
fn a_call_back_is_of_one_node() {
    let pages = Arc::new(Pages::default());
    let (other, passes) = (Arc::clone(&pages), Cell::new(0));
    let reader = Cell::new(None);
    pages.recalled(7, true, || {
        passes.set(passes.get() + 1);
        let other = Arc::clone(&other);
        reader.set(Some(std::thread::spawn(move || other.read_while_recalled(8))));
        true
    });
    assert_eq!(passes.get(), 1, "another node's pages");
    assert!(!reader.take().unwrap().join().unwrap());
}

#[test]
fn what_a_write_holds_is_not_waited_for_again_and_again() {
    let (pages, passes) = (Pages::default(), Cell::new(0));
    pages.recalled(7, true, || {
        pages.state.lock().recalled.entry(7).or_default().late = true;
        passes.set(passes.get() + 1);
        false
    });
    assert_eq!(passes.get(), 1);
    assert!(!pages.read_while_recalled(7) && pages.state.lock().drops.contains(&7));
}

#[test]
fn what_is_kept_is_dropped_when_nothing_is_believed_any_more() {
    let pages = Pages::default();
    pages.keep(1);
    pages.keep(2);
    pages.recalled(1, true, || true);
    assert!(!pages.keeps(1) && !pages.shows_kept(1) && pages.shows_kept(2));
    pages.doubt_kept();
    assert!(!pages.keeps(2));
    let st = pages.state.lock();
    assert_eq!(st.drops.iter().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn files_are_remembered_up_to_a_limit() {
    let pages = Pages::default();
    (0..=MAX_KEPT as u64).for_each(|node| pages.keep(node));
    assert!(pages.keeps(MAX_KEPT as u64) && !pages.keeps(0));
    assert_eq!(pages.state.lock().drops.len(), MAX_KEPT, "their pages are dropped");
}
