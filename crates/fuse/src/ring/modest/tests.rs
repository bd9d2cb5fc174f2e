use super::*;
use std::collections::BTreeMap;

const ONE: i32 = 1;
const TWO: i32 = 2;
const CALLER: u32 = 9;

/// Threads by number: whether they give way, and whether they want to run; and how often the first was changed.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<BTreeMap<i32, (bool, bool)>>>, Arc<Mutex<u32>>);

impl Board {
    fn modest(&self) -> bool {
        let modest = |thread| self.0.lock().get(&thread).is_some_and(|t| t.0);
        assert_eq!(modest(ONE), modest(TWO), "all or none");
        modest(ONE)
    }

    fn changes(&self) -> u32 {
        *self.1.lock()
    }

    fn wants(&self, thread: i32, run: bool) {
        self.0.lock().entry(thread).or_default().1 = run;
    }
}

impl Ranks for Board {
    fn set(&self, thread: i32, modest: bool) -> bool {
        self.0.lock().entry(thread).or_default().0 = modest;
        *self.1.lock() += u32::from(thread == ONE);
        true
    }

    fn wants_to_run(&self, thread: i32) -> bool {
        self.0.lock().get(&thread).is_some_and(|t| t.1)
    }
}

fn two() -> (Board, Arc<Modesty>, [Member; 2]) {
    let board = Board::default();
    let all = Arc::new(Modesty::new(Box::new(board.clone())));
    let members = [all.join(ONE), all.join(TWO)];
    (board, all, members)
}

fn tick(all: &Modesty) {
    all.tick(&mut all.state.lock());
}

#[test]
fn while_one_answers_all_the_time_all_give_way() {
    let (board, all, _members) = two();
    for _ in 0..100 {
        all.give_way(CALLER);
        assert!(board.modest());
        tick(&all);
    }
}

/// Two who ask in turn, one of them all the time.
#[test]
fn others_who_ask_end_it_with_the_next_look_and_for_a_while() {
    let (board, all, _members) = two();
    let ask = || {
        all.give_way(CALLER);
        all.stand();
    };
    (0..100).for_each(|_| ask());
    assert_eq!(board.changes(), 1, "each answer would change every thread");
    for _ in 0..BAR {
        tick(&all);
        ask();
        assert!(!board.modest());
    }
    tick(&all);
    ask();
    assert!(board.modest());
    (0..3).for_each(|_| tick(&all));
    assert_eq!(board.changes(), 4);
}

#[test]
fn where_nobody_answers_they_are_ordinary_threads_after_two_ticks() {
    let (board, all, _members) = two();
    all.give_way(CALLER);
    tick(&all);
    assert!(board.modest());
    tick(&all);
    assert!(!board.modest());
    all.give_way(CALLER);
    assert!(board.modest(), "nobody was kept from running");
}

#[test]
fn while_the_caller_runs_nobody_waits() {
    let (board, all, _members) = two();
    board.wants(TWO, true);
    board.wants(CALLER.cast_signed(), true);
    all.give_way(CALLER);
    (0..2).for_each(|_| tick(&all));
    all.give_way(CALLER);
    assert!(board.modest());
}

#[test]
fn where_they_are_kept_from_running_they_give_way_less_and_less() {
    let (board, all, _members) = two();
    board.wants(TWO, true);
    let mut last = 0;
    for _ in 0..8 {
        all.give_way(CALLER);
        assert!(board.modest());
        while board.modest() {
            tick(&all);
        }
        let mut barred = 0;
        while !board.modest() {
            tick(&all);
            barred += 1;
            all.give_way(CALLER);
        }
        assert!(barred >= last && (BAR..=BAR_MOST).contains(&barred), "{barred} after {last}");
        last = barred;
    }
    assert_eq!(last, BAR_MOST);
    for _ in 0..=CALM {
        all.give_way(CALLER);
        tick(&all);
    }
    assert_eq!(all.state.lock().last_bar, 0, "forgiven");
}

#[test]
fn who_comes_does_as_the_others_and_who_goes_is_not_looked_at() {
    let (board, all, members) = two();
    all.give_way(CALLER);
    let _third = all.join(3);
    assert!(board.0.lock().get(&3).is_some_and(|t| t.0));
    drop(members);
    assert_eq!(all.state.lock().threads, [3]);
}

/// The real ones: threads that nobody asks are ordinary ones again soon.
#[test]
fn the_kernels_threads_come_back() {
    // Where it is not allowed there is nothing to see.
    let Some(all) = Modesty::start().unwrap() else { return };
    // SAFETY: no memory is involved.
    let policy = || unsafe { libc::sched_getscheduler(0) };
    let _member = all.join(rustix::thread::gettid().as_raw_nonzero().get());
    for _ in 0..3 {
        all.give_way(std::process::id());
        assert_eq!(policy(), libc::SCHED_IDLE);
        let mut state = all.state.lock();
        while all.modest.load(SeqCst) {
            all.changed.wait(&mut state);
        }
        assert_eq!(policy(), libc::SCHED_OTHER);
        state.bar = 0;
        all.barred.store(false, SeqCst);
    }
    all.end();
}
