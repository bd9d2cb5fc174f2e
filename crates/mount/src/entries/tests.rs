use super::*;
use std::cell::Cell;

thread_local! {
    /// The time of one test.
    static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1000)) };
}

fn pass(time: Duration) {
    NOW.set(NOW.get() + time);
}

fn entries() -> Entries<u32> {
    Entries::with_clock(|| NOW.get())
}

const D: u64 = 7;
const LONG: Duration = Duration::from_secs(10);
const NOTHING: Todo = Todo { drop: false, attend: false };

/// As it is kept where others may change the directory, too.
fn keep(e: &Entries<u32>, dir: u64, name: &[u8], again: bool) -> bool {
    e.keep((dir, name), again.then_some(1), false, LONG)
}

fn with_name() -> Entries<u32> {
    let e = entries();
    assert!(keep(&e, D, b"a", false));
    e
}

/// A change that others may see at once.
fn change(e: &Entries<u32>, dir: u64, name: &[u8]) -> Todo {
    let noted = e.changing(dir, name);
    e.seen(dir, name, noted.kept, noted).unwrap_or_default()
}

/// It is answered.
fn done(e: &Entries<u32>, dir: u64) -> Todo {
    e.changed(dir, b"", false, false)
}

#[test]
fn where_nothing_is_kept_nothing_is_in_doubt() {
    let e = entries();
    assert_eq!(e.called_back(D), NOTHING);
    assert_eq!((change(&e, D, b"a"), done(&e, D)), (NOTHING, NOTHING));
    assert!(!e.is_gated(D) && e.wait(D, 1) == Some(1));
    assert!(!keep(&e, D, b"a", false), "it was changed a moment ago");
    assert!(e.keep_dir(D, b"d", LONG), "directories rest on another lease");
    pass(LOUD);
    assert!(keep(&e, D, b"a", false));
}

#[test]
fn nobody_passes_what_another_changes_before_all_has_expired() {
    let e = with_name();
    assert_eq!(e.called_back(D), Todo { drop: true, attend: true });
    assert_eq!(e.called_back(D), Todo { drop: true, attend: false }, "somebody is at it");
    assert!(e.is_gated(D) && !e.is_gated(D + 1) && e.wait(D, 1).is_none());
    pass(LOUD);
    assert!(!keep(&e, D, b"b", false) && !e.keep_dir(D, b"d", LONG));
    assert_eq!(e.take(D).len(), 1);
    assert!(e.expired(D).is_empty(), "not for good");
    assert_eq!(e.end(D), Some(vec![1]));
    assert!(!e.is_gated(D) && !e.has_gates() && keep(&e, D, b"b", false));
}

#[test]
fn an_own_change_is_waited_for_until_the_kernel_has_it() {
    let e = with_name();
    assert_eq!((change(&e, D, b"n"), done(&e, D)), (NOTHING, NOTHING), "it is not kept");
    assert_eq!(change(&e, D, b"a"), Todo { drop: true, attend: false });
    assert!(e.wait(D, 1).is_none());
    assert_eq!(e.look(|_, _| None::<()>), (vec![], Duration::ZERO), "it is on its way");
    assert_eq!(done(&e, D), Todo { drop: false, attend: true });
    assert!(e.wait(D, 2).is_none());
    assert_eq!(e.take(D), [((*b"a").into(), None)]);
    assert_eq!(e.expired(D), [1, 2]);
    assert_eq!(e.wait(D, 3), Some(3), "names may be on their way still");
    e.called_back(D);
    assert!(e.wait(D, 4).is_none(), "for another's change that counts");
    assert_eq!(e.end(D), Some(vec![4]));
}

#[test]
fn who_holds_the_lock_after_an_own_change_is_let_through_soon() {
    let e = with_name();
    change(&e, D, b"a");
    done(&e, D);
    assert!(e.wait(D, 1).is_none());
    assert!(e.wait(D, 11).is_none());
    let holds_lock = |who: &mut u32, wait: Wait| match wait {
        Wait::TakenIn(answered) => (*who == 1).then_some(answered),
        Wait::Expiry(_) => None,
    };
    assert_eq!(e.look(holds_lock).0, [], "it is given some time");
    pass(TAKEN_IN);
    assert_eq!(e.look(holds_lock).0, [(1, TAKEN_IN)]);
    assert!(e.wait(D, 12).is_none(), "who comes waits like who walks");
    pass(TAKEN_IN);
    assert_eq!(e.look(|who, _| (*who == 12).then_some(())).0, [(12, ())]);
    change(&e, D, b"m");
    assert!(e.wait(D, 2).is_none(), "the next change");
    done(&e, D);
    e.called_back(D);
    pass(TAKEN_IN);
    assert_eq!(e.look(holds_lock).0, [], "now it is another's change that they wait for");
    let (leave, longest) = e.look(|who, _| (*who == 2).then_some(()));
    assert_eq!(leave, [(2, ())]);
    assert!(longest >= TAKEN_IN);
    assert!(e.wait(D, 3).is_none());
    assert_eq!(e.end_all(), [11, 3]);
    assert!(!e.has_gates());
    assert_eq!(e.end(D), Some(vec![]), "who attended to it comes too late");
}

#[test]
fn what_is_changed_while_names_expire_expires_too() {
    let e = with_name();
    e.called_back(D);
    assert_eq!(e.take(D).len(), 1);
    assert!(change(&e, D, b"b").drop);
    assert_eq!(e.end(D), None);
    assert_eq!(done(&e, D), NOTHING, "somebody is at it");
    assert_eq!(e.take(D), [((*b"b").into(), None)]);
    assert_eq!(e.end(D), Some(vec![]));
}

#[test]
fn a_directory_that_is_moved_here_is_waited_for_like_names_of_files() {
    let e = entries();
    assert!(e.keep_dir(D, b"d", LONG));
    assert_eq!(change(&e, D, b"other"), NOTHING);
    assert_eq!(done(&e, D), NOTHING);
    assert_eq!(e.called_back(D), NOTHING);
    assert!(change(&e, D, b"d").drop && e.is_gated(D));
    assert!(done(&e, D).attend);
    e.take(D);
    assert_eq!(e.end(D), Some(vec![]));
    assert_eq!(change(&e, D, b"d"), NOTHING, "it is not kept any more");
}

#[test]
fn who_is_alone_goes_on_keeping_names_until_another_comes() {
    let e = with_name();
    assert_eq!(e.changing(D, b"b"), Noted { kept: false, new: true });
    assert_eq!(e.shared(D), Todo { drop: true, attend: true }, "it is on its way");
    assert_eq!(e.take(D).len(), 2);
    assert_eq!((done(&e, D), e.end(D)), (NOTHING, Some(vec![])));
    pass(LOUD);
    assert!(!e.changing(D, b"c").kept);
    assert_eq!(done(&e, D), NOTHING);
    assert!(keep(&e, D, b"d", false));
    assert_eq!(e.shared(D), NOTHING, "the kernel has taken it in");
    e.called_back(D);
    assert_eq!(e.take(D).len(), 2, "what was renamed may have a time");
    assert_eq!(e.end(D), Some(vec![]));
    assert!(e.changing(D, b"e").new);
    assert_eq!(e.changed(D, b"e", true, false), NOTHING);
    assert_eq!(e.called_back(D), NOTHING, "what was made has none");
    assert_eq!(e.names.load(SeqCst), 0);
}

#[test]
fn who_waits_is_told_how_long_names_have_not_expired() {
    let e = with_name();
    e.called_back(D);
    assert!(e.wait(D, 1).is_none());
    let stuck = || {
        let mut seen = None;
        e.look(|_, wait| {
            seen = Some(wait);
            None::<()>
        });
        match seen {
            Some(Wait::Expiry(stuck)) => stuck,
            other => panic!("{other:?}"),
        }
    };
    pass(QUIET);
    assert_eq!(stuck(), Duration::ZERO, "nobody attends to it yet");
    e.take(D);
    pass(TAKEN_IN);
    assert_eq!(stuck(), TAKEN_IN);
    assert!(e.expired(D).is_empty());
    pass(QUIET);
    assert_eq!(
        stuck(),
        Duration::ZERO,
        "names may be on their way, for which nobody's lock is needed"
    );
    e.again(D);
    pass(TAKEN_IN);
    assert_eq!(stuck(), TAKEN_IN);
    assert_eq!(e.end(D), Some(vec![1]));
}

/// The kernel moves a name with its time, into a directory of which nothing was kept.
#[test]
fn what_is_renamed_is_in_doubt_where_it_comes_to() {
    let (e, other) = (with_name(), D + 1);
    let (from, to) = (e.changing(D, b"a"), e.changing(other, b"b"));
    assert!(from.kept && !to.kept);
    assert!(e.seen(D, b"a", true, from).is_some_and(|todo| todo.drop));
    assert!(e.seen(other, b"b", true, to).is_some_and(|todo| todo.drop));
    assert!(done(&e, D).attend && done(&e, other).attend);
    assert_eq!(e.take(other), [((*b"b").into(), None)]);
    assert!(e.end(other).is_some());
}

#[test]
fn who_others_change_often_rests_longer() {
    let e = with_name();
    let rest = |e: &Entries<u32>| e.shard(D).lock()[&D].others.0.unwrap().1;
    for n in 0..12 {
        e.called_back(D);
        assert_eq!(rest(&e), (QUIET * (1 << n)).min(LOUD));
    }
    assert!(e.shard(D).lock()[&D].others.rests(NOW.get() + Duration::from_secs(7)));
}

#[test]
fn own_changes_leave_other_names_kept_and_who_is_alone_does_not_rest() {
    let e = with_name();
    assert!(keep(&e, D, b"b", false));
    change(&e, D, b"b");
    done(&e, D);
    assert_eq!(e.take(D), [((*b"b").into(), None)]);
    assert_eq!(e.end(D), Some(vec![]));
    assert!(!e.changing(D, b"c").kept && e.changing(D, b"a").kept, "a is kept still");
    assert_eq!((done(&e, D), done(&e, D)), (NOTHING, NOTHING));
    assert!(!keep(&e, D, b"b", false) && e.keep((D, b"b"), None, true, LONG));
    e.called_back(D);
    assert_eq!(e.take(D).len(), 3);
    assert_eq!(e.end(D), Some(vec![]));
    assert!(!e.keep((D, b"b"), None, true, LONG), "others changed it");
}

#[test]
fn who_was_told_without_the_lock_is_noted() {
    let e = with_name();
    let told = |thread| Told::new(e.clock(), thread);
    assert!(e.keep((D, b"b"), Some(8), false, LONG) && keep(&e, D, b"b", false));
    assert!(e.keep((D, b"c"), Some(8), false, LONG) && e.keep((D, b"c"), Some(9), false, LONG));
    e.called_back(D);
    let mut names = e.take(D);
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    let noted = names.iter().map(|(name, told)| (&**name, *told)).collect::<Vec<_>>();
    assert_eq!(
        noted,
        [(&b"a"[..], None), (b"b", Some(told(8))), (b"c", Some(told(8).and(told(9))))]
    );
}

#[test]
fn who_waits_is_found_whatever_gate_he_waits_before() {
    let e = with_name();
    assert!(keep(&e, D + 1, b"a", false) && !e.has_waiting(|_| true));
    e.called_back(D);
    e.called_back(D + 1);
    assert_eq!((e.wait(D, 5), e.wait(D + 1, 6)), (None, None));
    assert!(e.has_waiting(|who| *who == 5) && e.has_waiting(|who| *who == 6));
    assert!(!e.has_waiting(|who| *who == 7));
}

#[test]
fn what_is_noted_is_bounded() {
    let e = entries();
    for n in 0..MAX_NAMES as u64 {
        assert!(keep(&e, n % 100, &n.to_le_bytes(), false));
    }
    assert!(!keep(&e, D, b"more", false) && !e.keep_dir(D, b"more", LONG));
    for dir in 0..100 {
        e.called_back(dir);
    }
    assert!(e.end_all().is_empty());
    assert!(keep(&e, 1000, b"more", false));
    let e = entries();
    for dir in 0..MAX_DIRS as u64 {
        assert!(keep(&e, dir, b"x", false));
    }
    assert!(!keep(&e, MAX_DIRS as u64, b"x", false));
    assert_eq!(change(&e, MAX_DIRS as u64, b"x"), NOTHING);
    assert_eq!(done(&e, MAX_DIRS as u64), NOTHING);
    assert_eq!(e.all().len(), MAX_DIRS);
}

#[test]
fn a_rename_where_nothing_is_kept_leaves_nothing_in_doubt() {
    let e = entries();
    for name in [b"a", b"b"] {
        let noted = e.changing(D, name);
        assert_eq!(noted, Noted { kept: false, new: true });
        assert_eq!(e.seen(D, name, false, noted), None);
    }
    assert_eq!(e.called_back(D), NOTHING);
    assert_eq!([done(&e, D), done(&e, D)], [NOTHING; 2]);
    assert!(!e.has_gates() && e.names.load(SeqCst) == 0);
}

/// rmdir(2) of one that is not empty, by who is alone: the kernel keeps the name, and so does the note.
#[test]
fn what_could_not_be_removed_is_in_doubt_when_it_is_moved() {
    let e = entries();
    assert!(e.keep_dir(D, b"d", LONG));
    let noted = e.changing(D, b"d");
    assert!(noted.kept);
    assert_eq!(e.changed(D, b"d", noted.new, false), NOTHING);
    assert!(change(&e, D, b"d").drop);
}
