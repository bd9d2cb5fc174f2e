use super::*;
use proto::mds::LS_OPEN;

const F: Fid = Fid { seq: 9, oid: 1, ver: 0 };

fn grant(bits: u8) -> Vec<Lease> {
    vec![Lease { fid: F, bits }]
}

/// Asks and is granted; the mark of what the answer told.
fn learn(l: &Leases, bits: u8) -> Mark {
    let asked = l.mark();
    l.granted(grant(bits), asked, &[]).mark(F, bits, asked)
}

/// Cut off, or stopped, it may be evicted before it learns so.
#[test]
fn nothing_is_believed_of_a_server_that_was_not_heard_for_long() {
    let l = Leases::new(true);
    let mark = l.granted(grant(LS_ATTR), l.mark(), &[]).mark;
    let heard = Arc::new(net::Heard::new(false));
    l.heard_by(Arc::clone(&heard));
    assert!(l.fresh(F, LS_ATTR, mark));
    heard.pretend(BELIEF);
    assert!(!l.fresh(F, LS_ATTR, mark) && !l.has(F, LS_ATTR) && l.left().is_none());
    // It was only slow: what it granted was not called back meanwhile.
    heard.pretend(Duration::from_secs(1));
    assert!(l.fresh(F, LS_ATTR, mark));
    assert!(l.left().is_some_and(|left| left <= BELIEF - Duration::from_secs(1)));
}

#[test]
fn an_answer_older_than_a_call_back_counts_for_nothing() {
    let l = Leases::new(true);
    let asked = l.mark();
    l.recalled(F, LS_READ);
    let late = l.granted(grant(LS_READ | LS_ATTR), asked, &[]).mark(F, LS_READ, asked);
    assert!(!l.has(F, LS_READ) && !l.has(F, LS_ATTR));
    let again = learn(&l, LS_READ);
    assert!(l.fresh(F, LS_READ, again));
    assert!(!l.fresh(F, LS_READ, asked) && !l.fresh(F, LS_READ, late), "learned before it");
}

#[test]
fn what_was_learned_without_a_lease_is_not_covered_by_a_later_one() {
    let l = Leases::new(true);
    let asked = l.mark();
    let told = l.granted(Vec::new(), asked, &[]).mark(F, LS_READ, asked);
    let lookup = learn(&l, LS_ATTR);
    let read = learn(&l, LS_READ | LS_ATTR);
    assert!(!l.fresh(F, LS_READ, told) && !l.fresh(F, LS_READ, lookup));
    assert!(l.fresh(F, LS_ATTR, lookup) && l.fresh(F, LS_READ | LS_ATTR, read));
    let under_way = l.mark();
    assert!(l.fresh(F, LS_READ, under_way), "asked while it is held");
}

#[test]
fn a_call_back_takes_its_bits_and_leaves_the_others() {
    let l = Leases::new(true);
    let told = learn(&l, LS_READ | LS_ATTR | LS_OPEN);
    l.recalled(F, LS_READ);
    assert!(l.has(F, LS_ATTR | LS_OPEN) && !l.has(F, LS_READ));
    assert!(l.fresh(F, LS_ATTR, told) && !l.fresh(F, LS_READ, told));
}

#[test]
fn a_watch_outlasts_own_changes_and_ends_with_its_call_back() {
    let l = Leases::new(true);
    let asked = l.mark();
    l.changed(F);
    l.granted(grant(LS_READ), asked, &[]);
    assert!(l.watches(F) && !l.has(F, LS_READ), "changed here since it was asked for");
    l.changed(F);
    assert!(l.watches(F));
    l.recalled(F, LS_ATTR);
    assert!(l.watches(F), "something else was called back");
    let asked = l.mark();
    l.recalled(F, LS_READ);
    assert!(!l.watches(F));
    l.granted(grant(LS_READ), asked, &[]);
    assert!(!l.watches(F), "called back since it was asked for");
    learn(&l, LS_READ);
    assert!(l.watches(F));
    l.away(true);
    assert!(!l.watches(F));
    l.away(false);
    l.clear();
    assert!(!l.watches(F));
}

#[test]
fn own_changes_leave_names_and_opens() {
    let l = Leases::new(true);
    let asked = l.mark();
    let told = learn(&l, LS_READ | LS_ATTR | LS_OPEN | LS_LOOKUP);
    l.changed(F);
    assert!(l.has(F, LS_LOOKUP | LS_OPEN) && l.fresh(F, LS_LOOKUP, told));
    assert!(!l.has(F, LS_READ) && !l.has(F, LS_ATTR));
    l.granted(grant(LS_READ), asked, &[]);
    assert!(!l.has(F, LS_READ), "asked before the change");
}

#[test]
fn the_only_writer_goes_on_believing_until_it_lets_go() {
    let l = Leases::new(true);
    let told = learn(&l, LS_READ | LS_ATTR | LS_WRITE);
    l.changed(F);
    assert!(l.fresh(F, LS_READ | LS_ATTR, told) && l.has(F, LS_WRITE));
    assert_eq!(l.recalled(F, LS_WRITE), LS_WRITE);
    assert!(l.fresh(F, LS_READ, told), "others read as well");
    assert!(!l.let_go(F) && !l.fresh(F, LS_READ, told));
    learn(&l, LS_READ | LS_WRITE);
    assert!(l.let_go(F) && !l.has(F, LS_WRITE));
}

/// The file is made known, and closed meanwhile.
#[test]
fn a_close_takes_only_the_right_to_tell_late_from_an_answer_on_its_way() {
    let l = Leases::new(true);
    l.born(F, FileKind::File);
    let asked = l.mark();
    l.end_late(F);
    let got = l.granted(grant(of_maker(FileKind::File) | LS_LATE), asked, &[]);
    l.confirm(F, &got);
    assert!(l.excludes(F) && l.has(F, of_maker(FileKind::File)));
    assert!(!l.has(F, LS_LATE), "ended after it was asked for");
    learn(&l, LS_LATE);
    assert!(l.has(F, LS_LATE));
}

/// Others may see what it is changed to before the answer is here.
#[test]
fn what_is_granted_while_a_change_is_on_its_way_counts_only_with_its_answer() {
    let (l, bits) = (Leases::new(true), LS_ATTR | LS_READ | LS_OPEN);
    let before = learn(&l, bits);
    l.changing(F);
    assert!(!l.fresh(F, LS_ATTR, before));
    let between = learn(&l, bits);
    assert!(!l.has(F, LS_ATTR) && !l.has(F, LS_READ) && l.has(F, LS_OPEN));
    let asked = l.mark();
    let told = l.granted(grant(bits), asked, &[F]).mark(F, LS_ATTR, asked);
    l.change_ended(F, true);
    assert!(l.fresh(F, LS_ATTR | LS_READ, told));
    assert!(!l.fresh(F, LS_ATTR, before) && !l.fresh(F, LS_ATTR, between), "of before it");
    l.changing(F);
    l.granted(grant(bits), l.mark(), &[F]);
    l.change_ended(F, false);
    assert!(!l.has(F, LS_ATTR), "nobody said that it is of after the change");
    let again = learn(&l, bits);
    assert!(l.fresh(F, LS_ATTR, again));
}

#[test]
fn of_two_changes_on_their_way_neither_answer_counts() {
    let l = Leases::new(true);
    l.changing(F);
    l.changing(F);
    l.granted(grant(LS_ATTR), l.mark(), &[F]);
    assert!(!l.has(F, LS_ATTR), "the other may be done after it");
    l.clear();
    l.change_ended(F, true);
    l.granted(grant(LS_ATTR), l.mark(), &[]);
    assert!(!l.has(F, LS_ATTR), "one is still on its way, whatever was lost");
    l.change_ended(F, true);
    learn(&l, LS_ATTR);
    assert!(l.has(F, LS_ATTR));
}

#[test]
fn the_only_writer_believes_while_it_changes_until_others_come() {
    let l = Leases::new(true);
    let told = learn(&l, LS_ATTR | LS_READ | LS_WRITE);
    l.changing(F);
    assert!(l.fresh(F, LS_READ | LS_ATTR, told));
    assert_eq!(l.recalled(F, LS_WRITE), LS_WRITE);
    assert!(!l.has(F, LS_ATTR) && !l.has(F, LS_READ));
}

/// One thread opens the file to write, one asks for it, one writes to it, and the open is answered last: the MDT did it
/// before the write.
#[test]
fn the_right_to_write_alone_does_not_let_in_what_was_asked_before_a_change() {
    let (l, all) = (Leases::new(true), of_maker(FileKind::File));
    l.changing(F);
    let opened = l.mark();
    learn(&l, all);
    assert!(l.has(F, LS_WRITE) && !l.has(F, LS_ATTR), "the open is on its way");
    l.changing(F);
    l.granted(grant(all), l.mark(), &[F]);
    l.change_ended(F, false);
    let late = l.granted(grant(all), opened, &[F]).mark(F, LS_ATTR, opened);
    l.change_ended(F, false);
    assert!(!l.has(F, LS_ATTR) && !l.has(F, LS_READ) && !l.fresh(F, LS_ATTR, late));
    let told = learn(&l, all);
    assert!(l.fresh(F, LS_ATTR | LS_READ, told));
}

#[test]
fn nothing_is_believed_while_the_session_is_lost() {
    let l = Leases::new(true);
    let asked = l.mark();
    let told = learn(&l, LS_ATTR);
    l.away(true);
    assert!(!l.has(F, LS_ATTR) && !l.fresh(F, LS_ATTR, told) && l.left().is_none());
    l.away(false);
    assert!(l.fresh(F, LS_ATTR, told), "the same session went on");
    l.clear();
    l.granted(grant(LS_ATTR), asked, &[]);
    assert!(!l.has(F, LS_ATTR), "another session: what was asked before counts for nothing");
}

#[test]
fn what_is_remembered_is_bounded() {
    let l = Leases::new(true);
    let asked = l.mark();
    for oid in 0..2 * (SHARDS * PER_SHARD) as u32 {
        l.recalled(Fid { seq: 1, oid, ver: 0 }, LS_ATTR);
    }
    for oid in 0..64 {
        let fid = Fid { seq: 1, oid, ver: 0 };
        l.granted(vec![Lease { fid, bits: LS_ATTR }], asked, &[]);
        assert!(!l.has(fid, LS_ATTR), "dropped is not forgotten");
    }
    let kept: usize = l.shards.iter().map(|s| s.lock().len()).sum();
    assert!(kept <= SHARDS * PER_SHARD, "{kept}");
}
