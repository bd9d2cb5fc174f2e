//! Lost transports, lost servers, late answers (invariant 4); the same over each transport.

use crate::common::*;
use crate::on_each_transport;
use pinstripe_net::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

on_each_transport!(
    a_lost_transport_loses_and_repeats_nothing,
    answers_given_while_away_are_delivered,
    an_unlucky_line,
    another_boot,
    replay_goes_first,
    a_lost_replay_begins_anew,
    a_replay_goes_on_in_a_resumed_session,
    call_backs_survive_a_loss,
    an_answer_to_a_call_of_a_session_that_ended,
    the_grace_ends_a_session,
    eviction,
    no_server_no_answer,
    what_is_waited_for_until_the_session_ends,
    without_reconnect_a_loss_is_final,
    close_while_away,
    shutdown_tells_the_target,
);

fn quick_backoff() -> Backoff {
    Backoff {
        first: Duration::from_millis(1),
        most: Duration::from_millis(10),
        ..Backoff::default()
    }
}

fn logged() -> (Arc<Log>, ConnectOptions) {
    let log = Arc::new(Log::default());
    let events = log.clone();
    (log, ConnectOptions { events, backoff: quick_backoff(), ..options() })
}

fn a_lost_transport_loses_and_repeats_nothing(kind: Kind) {
    let w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(o);
    let results = Results::default();
    for n in 0..10u8 {
        s.submit(HOLD, vec![n], vec![], results.sink());
    }
    until("all run", || w.target.held() == 10);
    w.target.session().disconnect();
    until("it is back", || log.back.lock().len() == 1);
    assert!(log.back.lock()[0].resumed);
    until("all sent again", || s.stats().resent == 10);
    until("all attached", || w.server.stats().attached == 10);
    assert_eq!(results.len(), 0);
    w.target.release();
    until("answers", || results.len() == 10);
    assert!(w.target.runs.lock().values().all(|r| r == &[false]));
    assert_eq!(*w.target.opened.lock(), [false, true]);
    assert_eq!((log.lost.lock().len(), s.stats().lost, w.server.stats().resumed), (1, 1, 1));
    assert!(w.target.closed.lock().is_empty());
}

fn answers_given_while_away_are_delivered(kind: Kind) {
    let w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(o);
    // The client comes back only when the answers were given.
    let target = w.target.clone();
    let mut rounds = 0;
    *log.on_back.lock() = Some(Box::new(move || {
        if rounds == 0 {
            target.release();
        }
        rounds += 1;
    }));
    let results = Results::default();
    for n in 0..10u8 {
        s.submit(HOLD, vec![n], vec![], results.sink());
    }
    until("all run", || w.target.held() == 10);
    w.target.session().disconnect();
    until("answers", || results.len() == 10);
    assert!(w.target.runs.lock().values().all(|r| r == &[false]));
    s.call(ECHO, vec![], vec![]).unwrap();
}

fn an_unlucky_line(kind: Kind) {
    let w = World::new(kind, ServerOptions { credits: 8, ..quick() });
    let (_, o) = logged();
    let s = w.connect(o);
    let results = Results::default();
    let (s2, r2) = (s.clone(), results.clone());
    let feeder = std::thread::spawn(move || {
        for n in 0..2000u32 {
            s2.submit(HOLD, n.to_le_bytes().to_vec(), vec![], r2.sink());
        }
    });
    let mut turns = 0u32;
    until("all answered", || {
        turns += 1;
        w.target.release();
        if turns.is_multiple_of(4) && s.is_connected() {
            w.target.session().disconnect();
        }
        results.len() == 2000
    });
    feeder.join().unwrap();
    let mut bodies = results.bodies();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 2000);
    assert!(w.target.runs.lock().values().all(|r| r.len() == 1), "a request ran twice");
    assert!(s.stats().lost > 0 && w.server.stats().bad_frames == 0);
}

fn another_boot(kind: Kind) {
    let mut w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(o);
    let results = Results::default();
    for n in 0..5u8 {
        s.submit(HOLD, vec![n], vec![], results.sink());
    }
    until("all run", || w.target.held() == 5);
    w.stop();
    assert_eq!(*w.target.closed.lock(), [Closed::Shutdown]);
    until("the loss is known", || !s.is_connected());
    s.submit(HOLD, vec![5], vec![], results.sink());
    let old = w.target.clone();
    w.restart(2, quick(), &s);
    until("all run again", || w.target.held() == 6);
    {
        let back = log.back.lock();
        assert_eq!((back.len(), back[0].epoch, back[0].resumed), (1, 2, false));
    }
    assert_eq!(s.welcome().epoch, 2);
    // Sent again, in order, marked; the last one never was sent before.
    let expect: Vec<Vec<u8>> = (0..6u8).map(|n| vec![n]).collect();
    assert_eq!(*w.target.order.lock(), expect);
    for n in 0..6u8 {
        assert_eq!(w.target.runs.lock()[&vec![n]], [n < 5]);
    }
    // The dead boot's answers reach nobody.
    old.release();
    assert_eq!(results.len(), 0);
    w.target.release();
    until("answers", || results.len() == 6);
}

fn replay_goes_first(kind: Kind) {
    let mut w = World::new(kind, ServerOptions { credits: 2, ..quick() });
    let (log, o) = logged();
    let s = w.connect(o);
    let results = Results::default();
    for n in 0..4u8 {
        s.submit(ECHO, vec![n], vec![], results.sink());
    }
    until("answers", || results.len() == 4);
    s.submit(HOLD, b"held".to_vec(), vec![], results.sink());
    until("it runs", || w.target.held() == 1);
    let (weak, sink) = (Arc::downgrade(&s), results.clone());
    *log.on_back.lock() = Some(Box::new(move || {
        for n in 0..4u8 {
            weak.upgrade().unwrap().submit(ECHO, vec![n], vec![], sink.sink());
        }
    }));
    w.stop();
    w.restart(2, ServerOptions { credits: 2, ..quick() }, &s);
    until("it runs again", || w.target.held() == 1);
    let expect: Vec<Vec<u8>> = (0..4u8).map(|n| vec![n]).chain([b"held".to_vec()]).collect();
    assert_eq!(*w.target.order.lock(), expect);
    w.target.release();
    until("answers", || results.len() == 9);
}

/// A session whose `back` submits one `HOLD` when the session is new.
fn replaying(w: &World) -> (Arc<Session>, Results, Arc<Log>) {
    let (log, o) = logged();
    let s = w.connect(o);
    let (weak, replays) = (Arc::downgrade(&s), Results::default());
    let (sink, seen) = (replays.clone(), log.clone());
    *log.on_back.lock() = Some(Box::new(move || {
        let resumed = seen.back.lock().last().unwrap().resumed;
        if let Some(s) = weak.upgrade().filter(|_| !resumed) {
            s.submit(HOLD, b"replay".to_vec(), vec![], sink.sink());
        }
    }));
    (s, replays, log)
}

fn a_lost_replay_begins_anew(kind: Kind) {
    let mut w = World::new(kind, quick());
    let (s, replays, _log) = replaying(&w);
    for epoch in [2, 3] {
        w.stop();
        w.restart(epoch, quick(), &s);
        until("the replay", || w.target.held() == 1);
    }
    assert!(matches!(replays.0.lock()[..], [Err(NetError::Lost(_))]));
    assert_eq!(w.target.runs.lock()[&b"replay".to_vec()], [false]);
    w.target.release();
    until("its answer", || replays.len() == 2);
    assert!(replays.0.lock()[1].is_ok());
}

fn a_replay_goes_on_in_a_resumed_session(kind: Kind) {
    let mut w = World::new(kind, quick());
    let (s, replays, log) = replaying(&w);
    w.stop();
    w.restart(2, quick(), &s);
    until("the replay", || w.target.held() == 1);
    w.target.session().disconnect();
    until("it is back", || log.back.lock().len() == 2);
    w.target.release();
    until("its answer", || replays.len() == 1);
    assert_eq!(replays.bodies(), [b"replay"]);
    assert_eq!(w.target.runs.lock()[&b"replay".to_vec()], [false]);
    drop(s);
}

fn call_backs_survive_a_loss(kind: Kind) {
    let w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(o);
    let results = Results::default();
    let session = w.target.session();
    session.call_back(1, b"keep".to_vec(), PATIENCE, results.sink());
    until("the call", || log.kept.lock().len() == 1);
    session.disconnect();
    until("it is back", || log.back.lock().len() == 1);
    until("the call again", || log.kept.lock().len() == 2);
    for reply in log.kept.lock().drain(..) {
        reply.send(0, b"given".to_vec());
    }
    until("its answer", || results.len() == 1);
    assert_eq!(results.bodies(), [b"given"]);
    s.call(ECHO, vec![], vec![]).unwrap();
}

/// It comes when another session has begun, whose calls have the same numbers.
fn an_answer_to_a_call_of_a_session_that_ended(kind: Kind) {
    let w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(o);
    let results = Results::default();
    let call = || w.target.session().call_back(1, b"keep".to_vec(), PATIENCE, results.sink());
    call();
    until("the call", || log.kept.lock().len() == 1);
    w.target.session().evict();
    until("its end", || results.len() == 1);
    until("another session", || log.back.lock().len() == 1);
    until("it is there", || w.target.opened.lock().len() == 2);
    call();
    until("the next call", || log.kept.lock().len() == 2);
    let next = log.kept.lock().pop().unwrap();
    let late = log.kept.lock().pop().unwrap();
    late.send(0, b"late".to_vec());
    s.call(ECHO, vec![], vec![]).unwrap();
    assert_eq!((results.len(), s.stats().lost), (1, 1), "nobody waits for it, and nobody minds");
    next.send(0, b"next".to_vec());
    until("its answer", || results.len() == 2);
    let last = results.0.lock().pop().unwrap().unwrap();
    assert_eq!(last.body, &b"next"[..]);
}

fn the_grace_ends_a_session(kind: Kind) {
    let grace = Duration::from_millis(30);
    let w = World::new(kind, ServerOptions { session_grace: grace, ..quick() });
    let s = w.connect(ConnectOptions { reconnect: false, ..options() });
    let (session, results) = (w.target.session(), Results::default());
    session.disconnect();
    session.call_back(1, vec![], PATIENCE, results.sink());
    until("the end", || *w.target.closed.lock() == [Closed::Lost]);
    until("its calls end", || results.len() == 1);
    assert_eq!((w.server.stats().lost, w.server.stats().sessions), (1, 0));
    assert!(!session.is_connected());
    assert!(matches!(s.call(ECHO, vec![], vec![]), Err(NetError::Lost(_))));
}

fn eviction(kind: Kind) {
    let w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(o);
    let first = s.welcome().session;
    let results = Results::default();
    s.submit(HOLD, vec![1], vec![], results.sink());
    until("it runs", || w.target.held() == 1);
    w.target.session().evict();
    assert_eq!(*w.target.closed.lock(), [Closed::Evicted]);
    until("it runs in another session", || w.target.held() == 2);
    assert!(!log.back.lock()[0].resumed && s.welcome().session != first);
    w.target.release();
    until("one answer", || results.len() == 1);
    s.call(ECHO, vec![], vec![]).unwrap();
    assert_eq!((results.len(), w.server.stats().evicted), (1, 1));
    assert_eq!(w.target.runs.lock()[&vec![1]], [false, true]);
}

fn no_server_no_answer(kind: Kind) {
    let mut w = World::new(kind, quick());
    let (log, o) = logged();
    let timeout = Some(Duration::from_millis(60));
    let s = w.connect(ConnectOptions { request_timeout: timeout, ..o });
    w.stop();
    let e = s.call(ECHO, vec![1], vec![]).unwrap_err();
    assert!(matches!(e, NetError::Timeout { .. }), "{e}");
    assert!(!log.lost.lock().is_empty());
    w.restart(2, quick(), &s);
    until("it serves again", || s.call(ECHO, vec![2], vec![]).is_ok());
    assert!(!w.target.order.lock().contains(&vec![1]), "a timed-out request was sent");
}

fn what_is_waited_for_until_the_session_ends(kind: Kind) {
    let mut w = World::new(kind, quick());
    let (_, o) = logged();
    let timeout = Duration::from_millis(60);
    // Room for one, which such a request neither needs nor waits for.
    let s = w.connect(ConnectOptions { request_timeout: Some(timeout), max_waiting: 1, ..o });
    w.stop();
    let start = |n| s.start(ECHO, vec![n], vec![], Patience::Session);
    let (first, second) = (start(1), start(2));
    let begun = Instant::now();
    let Err(first) = first.wait_until(begun + 3 * timeout) else {
        panic!("an answer without a server")
    };
    assert!(begun.elapsed() >= 3 * timeout);
    let e = s.call(ECHO, vec![3], vec![]).unwrap_err();
    assert!(matches!(e, NetError::Timeout { .. }), "{e}");
    // What has no time-out is not overdue.
    assert_eq!(s.oldest_wait(), None);
    w.restart(2, quick(), &s);
    assert_eq!(first.wait().unwrap().body, &[1][..]);
    let second = second.wait_until(Instant::now() + PATIENCE);
    assert!(second.is_ok_and(|reply| reply.unwrap().body == [2][..]), "no answer in time");
    w.stop();
    let third = start(4);
    s.close();
    assert!(matches!(third.wait(), Err(NetError::Shutdown)));
}

fn without_reconnect_a_loss_is_final(kind: Kind) {
    let w = World::new(kind, quick());
    let (log, o) = logged();
    let s = w.connect(ConnectOptions { reconnect: false, ..o });
    let results = Results::default();
    s.submit(HOLD, vec![1], vec![], results.sink());
    until("it runs", || w.target.held() == 1);
    w.stop();
    until("it fails", || results.len() == 1);
    assert!(matches!(results.0.lock()[0], Err(NetError::Lost(_))));
    assert!(matches!(s.call(ECHO, vec![], vec![]), Err(NetError::Lost(_))));
    until("the loss is told", || log.lost.lock().len() == 1);
}

fn close_while_away(kind: Kind) {
    let w = World::new(kind, quick());
    let (_, o) = logged();
    let s = w.connect(o);
    w.stop();
    until("the loss is known", || !s.is_connected());
    let results = Results::default();
    s.submit(ECHO, vec![], vec![], results.sink());
    s.close();
    assert_eq!(results.0.lock()[0].as_ref().unwrap_err(), &NetError::Shutdown);
}

fn shutdown_tells_the_target(kind: Kind) {
    let w = World::new(kind, quick());
    let sessions: Vec<_> = (0..3).map(|_| w.connect(logged().1)).collect();
    w.stop();
    assert_eq!(*w.target.closed.lock(), [Closed::Shutdown; 3]);
    assert!(w.try_connect(options()).is_err());
    assert_eq!(w.server.stats().sessions, 0);
    drop(sessions);
}
