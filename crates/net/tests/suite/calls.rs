//! Requests, replies and call-backs; the same over each transport.

use crate::common::*;
use crate::on_each_transport;
use bytes::Bytes;
use pinstripe_net::*;
use proto::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

on_each_transport!(
    echo,
    bulk_both_ways,
    replies_in_any_order,
    order_of_one_thread,
    call_backs,
    call_back_limits,
    call_backs_of_one_that_leaves,
    call_backs_that_are_put_off,
    servers_that_hang,
    credits_are_respected,
    waiting_is_bounded,
    chained_submissions,
    many_threads,
    refusals,
    goodbye,
    no_answer_to_a_late_caller,
);

fn echo(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    assert_eq!(s.welcome().data, b"welcome");
    assert_eq!((s.welcome().epoch, s.welcome().resumed), (1, false));
    for body in [vec![], b"x".to_vec(), vec![9; 300_000]] {
        let r = s.call(ECHO, body.clone(), vec![]).unwrap();
        assert_eq!((&r.body[..], r.status()), (&body[..], Ok(())));
        assert!(r.bulk.is_empty());
    }
    assert_eq!(s.call(0x7777, vec![], vec![]).unwrap().status(), Err(Errno::EOPNOTSUPP));
    assert_eq!(s.call(DROP, vec![], vec![]).unwrap().status(), Err(Errno::EIO));
    let stats = s.stats();
    assert_eq!((stats.sent[&ECHO], stats.received[&ECHO], stats.waiting), (3, 3, 0));
    assert_eq!(w.server.stats().requests, 5);
    assert!(s.call(ECHO, vec![0; (1 << 20) + 1], vec![]).is_err());
    assert!(s.call(ECHO, vec![], vec![vec![0; (4 << 20) + 1].into()]).is_err());
    assert!(s.call(ECHO, vec![], vec![]).is_ok());
}

fn bulk_both_ways(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    let pattern: Vec<u8> = (0..4u32 << 20).map(|i| (i * 7 + (i >> 9)) as u8).collect();
    let pieces = [0..3, 3..70_000, 70_000..70_001, 70_001..pattern.len()];
    for _ in 0..4 {
        let bulk = pieces.iter().map(|r| Bytes::copy_from_slice(&pattern[r.clone()])).collect();
        let r = s.call(ECHO, b"b".to_vec(), bulk).unwrap();
        assert!(r.bulk == pattern && &r.body[..] == b"b");
    }
    let mut into = vec![0; 100];
    let none = s.call_into(ECHO, vec![1], &mut into).unwrap();
    assert_eq!((none.1, &none.0.body[..]), (0, &[1][..]));
    let results = Results::default();
    for n in 0..40u8 {
        s.submit(ECHO, vec![n], vec![vec![n; 1 << 20].into()], results.sink());
    }
    until("all bulk", || results.len() == 40);
    for r in results.0.lock().iter() {
        let r = r.as_ref().unwrap();
        assert!(r.bulk.len() == 1 << 20 && r.bulk.iter().all(|b| *b == r.body[0]));
    }
}

fn replies_in_any_order(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    let results = Results::default();
    for n in 0..10u8 {
        s.submit(HOLD, vec![n], vec![], results.sink());
    }
    until("requests", || w.target.held() == 10);
    assert_eq!(s.call(ECHO, b"between".to_vec(), vec![]).unwrap().body, &b"between"[..]);
    w.target.release();
    until("replies", || results.len() == 10);
    let expect: Vec<Vec<u8>> = (0..10u8).rev().map(|n| vec![n]).collect();
    assert_eq!(results.bodies(), expect);
    let first = results.0.lock()[0].clone().unwrap();
    assert_eq!((first.header.transno.get(), first.header.last_committed.get()), (5, 4));
    // Nothing but the next request is awaited now.
    let r = s.call(ECHO, vec![], vec![]).unwrap();
    assert_eq!(w.target.lowest.load(SeqCst), r.header.xid.get());
}

fn order_of_one_thread(kind: Kind) {
    let w = World::new(kind, ServerOptions { credits: 8, ..quick() });
    let s = w.connect(options());
    let results = Results::default();
    let bodies: Vec<Vec<u8>> = (0..2000u32).map(|n| n.to_le_bytes().to_vec()).collect();
    for body in &bodies {
        s.submit(ECHO, body.clone(), vec![], results.sink());
    }
    until("replies", || results.len() == bodies.len());
    assert_eq!(*w.target.order.lock(), bodies);
}

fn call_backs(kind: Kind) {
    let w = World::new(kind, quick());
    let log = Arc::new(Log::default());
    let s = w.connect(ConnectOptions { events: log.clone(), ..options() });
    assert_eq!(s.call(CALL, b"abc".to_vec(), vec![]).unwrap().body, &b"cba"[..]);
    assert_eq!(s.call(CALL, b"drop".to_vec(), vec![]).unwrap().status(), Err(Errno::EIO));
    let results = Results::default();
    s.submit(CALL, b"keep".to_vec(), vec![], results.sink());
    until("the call", || log.kept.lock().len() == 1);
    assert_eq!(s.call(CALL, b"xy".to_vec(), vec![]).unwrap().body, &b"yx"[..]);
    assert_eq!(results.len(), 0);
    log.kept.lock().pop().unwrap().send(Errno::EBUSY.status(), vec![]);
    until("its answer", || results.len() == 1);
    assert_eq!(results.0.lock()[0].as_ref().unwrap().status(), Err(Errno::EBUSY));
    assert_eq!((s.stats().callbacks, w.server.stats().callbacks), (4, 4));
}

fn call_back_limits(kind: Kind) {
    let w = World::new(kind, ServerOptions { max_callbacks: 2, ..quick() });
    let log = Arc::new(Log::default());
    let s = w.connect(ConnectOptions { events: log.clone(), ..options() });
    let results = Results::default();
    let session = w.target.session();
    let call = |t: Duration| session.call_back(1, b"keep".to_vec(), t, results.sink());
    call(Duration::from_millis(30));
    call(Duration::from_secs(1000));
    call(Duration::from_secs(1000));
    assert_eq!(results.0.lock()[0].as_ref().unwrap_err(), &NetError::Busy);
    until("a timeout", || results.len() == 2);
    assert!(matches!(results.0.lock()[1], Err(NetError::Timeout { .. })));
    s.close();
    until("the end", || results.len() == 3);
    assert_eq!(results.0.lock()[2].as_ref().unwrap_err(), &NetError::Shutdown);
    call(Duration::from_secs(1));
    assert_eq!(results.0.lock()[3].as_ref().unwrap_err(), &NetError::Shutdown);
}

fn call_backs_of_one_that_leaves(kind: Kind) {
    let w = World::new(kind, quick());
    let log = Arc::new(Log::default());
    let s = w.connect(ConnectOptions { events: log.clone(), ..options() });
    let (results, session) = (Results::default(), w.target.session());
    let call = |what: &[u8]| session.call_back(1, what.to_vec(), PATIENCE, results.sink());
    call(b"keep");
    until("the call", || log.kept.lock().len() == 1);
    s.leave();
    drop(log.kept.lock().pop());
    // What is taken up is answered still, and would be behind an answer to the one before.
    call(b"abc");
    until("an answer", || results.len() == 1);
    assert_eq!(results.0.lock()[0].as_ref().unwrap().body, &b"cba"[..]);
    s.close();
    until("the end", || results.len() == 2);
    assert_eq!(results.0.lock()[1].as_ref().unwrap_err(), &NetError::Shutdown);
}

/// Who says that he works on it has longer, until he says so no more.
fn call_backs_that_are_put_off(kind: Kind) {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let w = World::new(kind, quick());
    let log = Arc::new(Log::default());
    let s = w.connect(ConnectOptions { events: log.clone(), ..options() });
    let (results, session) = (Results::default(), w.target.session());
    let call = || session.call_back(1, b"keep".to_vec(), TIMEOUT, results.sink());
    call();
    until("the call", || log.kept.lock().len() == 1);
    let begun = Instant::now();
    let kept = log.kept.lock().pop().unwrap();
    let not_yet = kept.not_yet();
    until("twice its time", || not_yet.send() && begun.elapsed() > 2 * TIMEOUT);
    assert_eq!(results.len(), 0);
    kept.send(0, b"late".to_vec());
    until("the answer", || results.len() == 1);
    assert_eq!(results.0.lock()[0].as_ref().unwrap().body, &b"late"[..]);
    assert!(!not_yet.send());
    call();
    until("the other call", || log.kept.lock().len() == 1);
    assert!(log.kept.lock()[0].not_yet().send());
    until("a timeout", || results.len() == 2);
    assert!(matches!(results.0.lock()[1], Err(NetError::Timeout { .. })));
    s.close();
}

/// A client sees that answers are overdue while it is connected, and that they come again.
fn servers_that_hang(kind: Kind) {
    let w = World::new(kind, quick());
    let request_timeout = Some(Duration::from_secs(500));
    let ping_interval = Duration::from_millis(200);
    let s = w.connect(ConnectOptions { request_timeout, ping_interval, ..options() });
    let results = Results::default();
    assert_eq!(s.oldest_wait(), None);
    s.submit(HOLD, vec![1], vec![], results.sink());
    let waits = |time| s.oldest_wait().is_some_and(|waited| waited >= time);
    until("a wait", || waits(Duration::from_millis(50)));
    assert!(!waits(Duration::from_secs(1000)));
    until("the answer", || {
        w.target.release();
        results.len() == 1
    });
    assert_eq!(s.oldest_wait(), None);
    assert!(s.is_answering());
    // Nothing is between this process and itself.
    if !s.is_local() {
        until("silence", || {
            s.heard().pretend(Duration::from_secs(1000));
            s.is_connected() && !s.is_answering()
        });
        until("an answer to a ping", || s.is_answering());
    }
    s.close();
}

fn credits_are_respected(kind: Kind) {
    let w = World::new(kind, ServerOptions { credits: 4, ..quick() });
    let s = w.connect(options());
    assert_eq!(s.welcome().credits, 4);
    let results = Results::default();
    for n in 0..50u8 {
        s.submit(HOLD, vec![n], vec![], results.sink());
    }
    until("all answered", || {
        w.target.release();
        results.len() == 50
    });
    assert!(w.target.most_held.load(SeqCst) <= 4);
    assert_eq!(w.server.stats().bad_frames, 0);
    assert!(w.target.runs.lock().values().all(|r| r == &[false]));
}

fn waiting_is_bounded(kind: Kind) {
    let w = World::new(kind, ServerOptions { credits: 2, ..quick() });
    let s = w.connect(ConnectOptions { max_waiting: 5, ..options() });
    let results = Results::default();
    let (s2, r2) = (s.clone(), results.clone());
    let feeder = std::thread::spawn(move || {
        for n in 0..30u8 {
            s2.submit(HOLD, vec![n], vec![], r2.sink());
        }
    });
    until("the feeder blocks", || s.stats().blocked > 0);
    assert_eq!(s.stats().waiting, 5);
    until("all answered", || {
        w.target.release();
        results.len() == 30
    });
    feeder.join().unwrap();
}

fn chained_submissions(kind: Kind) {
    fn next(s: Arc<Session>, left: u32, end: std::sync::mpsc::Sender<()>) {
        if left == 0 {
            return end.send(()).unwrap();
        }
        let again = s.clone();
        s.submit(ECHO, vec![], vec![], Box::new(move |_| next(again, left - 1, end)));
    }
    let w = World::new(kind, quick());
    let s = w.connect(ConnectOptions { max_waiting: 1, ..options() });
    let (end, ended) = std::sync::mpsc::channel();
    next(s, 20_000, end);
    ended.recv_timeout(PATIENCE).unwrap();
}

fn many_threads(kind: Kind) {
    let w = World::new(kind, ServerOptions { credits: 16, ..quick() });
    let s = w.connect(options());
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let s = &s;
            scope.spawn(move || {
                for n in 0..500u32 {
                    let body = (t * 1000 + n).to_le_bytes().to_vec();
                    let bulk =
                        if n % 50 == 0 { vec![vec![t as u8; 100_000].into()] } else { vec![] };
                    let r = s.call(ECHO, body.clone(), bulk.clone()).unwrap();
                    assert_eq!(r.body, body);
                    assert_eq!(r.bulk.len(), bulk.iter().map(Bytes::len).sum::<usize>());
                }
            });
        }
    });
    assert_eq!(w.server.stats().requests, 4000);
}

fn refusals(kind: Kind) {
    let w = World::new(kind, ServerOptions { max_sessions: 1, ..quick() });
    let refused = |o: ConnectOptions| match w.try_connect(o).map(|_| ()) {
        Err(NetError::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    let text = refused(ConnectOptions { target: "MDT0009".into(), ..options() });
    assert_eq!(text, "there is no target \"MDT0009\" here");
    let text = refused(ConnectOptions { fs: [8; 16], ..options() });
    assert_eq!(text, "MDT0000 is a target of another file system");
    let text = refused(ConnectOptions { description: "unwanted".into(), ..options() });
    assert_eq!(text, "you are not wanted");
    let any = w.connect(ConnectOptions { fs: [0; 16], ..options() });
    assert_eq!(refused(options()), "the server has all 1 sessions");
    any.close();
    w.connect(options());
    assert_eq!(w.server.stats().refused, 4);
}

fn goodbye(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    let results = Results::default();
    s.submit(HOLD, vec![1], vec![], results.sink());
    until("it runs", || w.target.held() == 1);
    s.close();
    assert_eq!(results.0.lock()[0].as_ref().unwrap_err(), &NetError::Shutdown);
    assert_eq!(s.call(ECHO, vec![], vec![]).unwrap_err(), NetError::Shutdown);
    until("the server heard", || *w.target.closed.lock() == [Closed::Goodbye]);
    w.target.release();
    let dropped = w.connect(options());
    drop(dropped);
    until("the server heard", || *w.target.closed.lock() == [Closed::Goodbye, Closed::Goodbye]);
    until("no connections", || w.server.stats().connections == 0);
    assert_eq!(w.server.stats().sessions, 0);
}

fn no_answer_to_a_late_caller(kind: Kind) {
    let w = World::new(kind, ServerOptions { credits: 2, ..quick() });
    let timeout = Some(Duration::from_millis(40));
    let s = w.connect(ConnectOptions { request_timeout: timeout, ..options() });
    for n in 0..2u8 {
        let e = s.call(HOLD, vec![n], vec![]).unwrap_err();
        assert_eq!((e.errno(), matches!(e, NetError::Timeout { .. })), (Errno::ETIMEDOUT, true));
    }
    // The server still works on both: a third request has no credit.
    let e = s.call(HOLD, vec![2], vec![]).unwrap_err();
    assert_eq!((e.errno(), w.target.held()), (Errno::ETIMEDOUT, 2));
    w.target.release();
    until("credits come back", || s.call(ECHO, vec![], vec![]).is_ok());
    assert_eq!(w.server.stats().bad_frames, 0);
}
