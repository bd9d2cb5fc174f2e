//! Threads that wait for an answer and hand on what comes meanwhile; nobody misses anything by it.

use crate::common::*;
use crate::on_each_transport;
use pinstripe_net::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::{Builder, ThreadId};
use std::time::{Duration, Instant};

on_each_transport!(
    late_answers,
    everybody_gets_their_own,
    waiting_until_some_time,
    ends_of_sessions,
    signs_of_life_that_who_waits_reads,
);

mod alone {
    use super::*;

    #[test]
    fn who_waits_hands_on_over_unix() {
        who_waits_hands_on(Kind::Unix);
    }

    #[test]
    fn who_waits_hands_on_over_tcp() {
        who_waits_hands_on(Kind::Tcp);
    }

    #[test]
    fn who_panics_over_an_answer_from_unix_is_the_only_one_who_suffers() {
        who_panics_is_the_only_one_who_suffers(Kind::Unix);
    }

    #[test]
    fn who_panics_over_an_answer_from_tcp_is_the_only_one_who_suffers() {
        who_panics_is_the_only_one_who_suffers(Kind::Tcp);
    }

    #[test]
    fn who_attends_gives_it_up_after_a_while() {
        let w = World::new(Kind::Unix, quick());
        let s = w.connect(options());
        let begun = Instant::now();
        s.attend(|| false);
        assert!(begun.elapsed() < PATIENCE);
        s.attend(|| true);
        assert!(s.call(ECHO, vec![1], vec![]).is_ok());
    }
}

/// A thread that calls; what it got.
fn calling(s: &Arc<Session>, body: &[u8]) -> (ThreadId, mpsc::Receiver<Result<Reply, NetError>>) {
    let (s, body) = (s.clone(), body.to_vec());
    let (say, said) = mpsc::channel();
    let call = move || drop(say.send(s.call(HOLD, body, vec![])));
    let thread = Builder::new().name("waits".into()).spawn(call).unwrap();
    (thread.thread().id(), said)
}

fn who_waits_hands_on(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    let end = Instant::now() + PATIENCE;
    loop {
        let (waiter, answer) = calling(&s, b"held");
        until("it is held", || w.target.held() == 1);
        let (say, said) = mpsc::channel();
        let done = move |_| say.send(std::thread::current().id()).unwrap();
        s.submit(ECHO, vec![1], vec![], Box::new(done));
        let by = said.recv_timeout(PATIENCE).unwrap();
        w.target.release();
        assert_eq!(&answer.recv_timeout(PATIENCE).unwrap().unwrap().body[..], b"held");
        if by == waiter {
            return;
        }
        // It came when that one had given it up, or not begun yet.
        assert!(Instant::now() < end, "who waits reads nothing");
    }
}

fn who_panics_is_the_only_one_who_suffers(kind: Kind) {
    let w = World::new(kind, quick());
    let (s, other) = (w.connect(options()), w.connect(options()));
    for n in 1..=3 {
        // One reads for the other, or the thread for both.
        let (_, answer) = calling(&s, b"held");
        until("it is held", || w.target.held() == 1);
        s.submit(ECHO, vec![1], vec![], Box::new(|_| panic!("on purpose")));
        until("that connection is lost", || s.stats().lost == n);
        until("it is back", || s.is_connected());
        w.target.release();
        assert_eq!(&answer.recv_timeout(PATIENCE).unwrap().unwrap().body[..], b"held");
        assert!(other.call(ECHO, vec![2], vec![]).is_ok());
        let results = Results::default();
        other.submit(ECHO, vec![3], vec![], results.sink());
        until("what nobody waits for comes", || results.len() == 1);
    }
    assert_eq!(other.stats().lost, 0);
}

fn late_answers(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(ConnectOptions { events: Arc::new(Log::default()), ..options() });
    let (ids, waiters): (Vec<_>, Vec<_>) = (0..4u8).map(|n| calling(&s, &[n])).unzip();
    until("all are held", || w.target.held() == 4);
    until("none of them reads any more", || {
        let (say, said) = mpsc::channel();
        let done = move |_| say.send(std::thread::current().id()).unwrap();
        s.submit(ECHO, vec![1], vec![], Box::new(done));
        !ids.contains(&said.recv_timeout(PATIENCE).unwrap())
    });
    assert_eq!(&s.call(CALL, b"abc".to_vec(), vec![]).unwrap().body[..], b"cba");
    let results = Results::default();
    s.submit(ECHO, vec![7], vec![], results.sink());
    until("what nobody waits for comes", || results.len() == 1);
    w.target.release();
    for (n, answer) in waiters.into_iter().enumerate() {
        assert_eq!(&answer.recv_timeout(PATIENCE).unwrap().unwrap().body[..], [n as u8]);
    }
}

fn everybody_gets_their_own(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(ConnectOptions { events: Arc::new(Log::default()), ..options() });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let releases = scope.spawn(|| {
            while !stop.load(SeqCst) {
                until("one is held", || stop.load(SeqCst) || w.target.held() > 0);
                w.target.release();
            }
        });
        let workers: Vec<_> = (0..6u32)
            .map(|n| {
                scope.spawn({
                    let s = &s;
                    move || work(s, n)
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, SeqCst);
        releases.join().unwrap();
        assert!(ended.iter().all(Result::is_ok), "a worker got something else");
    });
    assert_eq!(s.stats().waiting, 0);
}

/// Requests of every kind; a third is waited for later, a third by nobody.
fn work(s: &Session, n: u32) {
    let results = Results::default();
    let mut submitted = 0;
    for i in 0..150u32 {
        let body = [n.to_le_bytes(), i.to_le_bytes()].concat();
        let bulk = vec![vec![i as u8; [0, 10, 20_000, 200_000][i as usize % 4]].into()];
        match (n + i) % 6 {
            0 | 1 => {
                let r = s.call(ECHO, body.clone(), bulk.clone()).unwrap();
                assert!(r.body == body && r.bulk == bulk[0], "{n} {i}");
            }
            2 => assert!(s.call(HOLD, body.clone(), vec![]).unwrap().body == body, "{n} {i}"),
            3 => {
                let later = s.start(ECHO, body.clone(), bulk.clone(), Patience::Request);
                assert!(s.call(ECHO, vec![], vec![]).unwrap().body.is_empty(), "{n} {i}");
                let r = later.wait().unwrap();
                assert!(r.body == body && r.bulk == bulk[0], "{n} {i}");
            }
            4 => {
                let back: Vec<u8> = body.iter().rev().copied().collect();
                assert!(s.call(CALL, body, vec![]).unwrap().body == back, "{n} {i}");
            }
            _ => {
                s.submit(ECHO, body, bulk, results.sink());
                submitted += 1;
            }
        }
    }
    until("what was submitted is answered", || results.len() == submitted);
    assert!(results.bodies().iter().all(|body| body[..4] == n.to_le_bytes()), "{n}");
}

fn waiting_until_some_time(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    let mut asked = s.start(HOLD, b"h".to_vec(), vec![], Patience::Request);
    for wait in [0, 5, 50] {
        let (begun, wait) = (Instant::now(), Duration::from_millis(wait));
        asked = asked.wait_until(begun + wait).expect_err("nobody answered");
        assert!(begun.elapsed() >= wait);
    }
    until("it is held", || w.target.held() == 1);
    w.target.release();
    let answer = asked.wait_until(Instant::now() + PATIENCE).ok().expect("it was answered");
    assert_eq!(&answer.unwrap().body[..], b"h");
}

fn ends_of_sessions(kind: Kind) {
    let w = World::new(kind, quick());
    let s = w.connect(options());
    let (_, answer) = calling(&s, b"1");
    until("it is held", || w.target.held() == 1);
    s.close();
    let ended = answer.recv_timeout(PATIENCE).expect("it hears of it");
    assert!(matches!(ended, Err(NetError::Shutdown)), "{ended:?}");
    w.target.release();

    let s = w.connect(ConnectOptions { reconnect: false, ..options() });
    let (_, answer) = calling(&s, b"2");
    until("it is held", || w.target.held() == 1);
    w.stop();
    let ended = answer.recv_timeout(PATIENCE).expect("it hears of that, too");
    assert!(ended.is_err(), "{ended:?}");

    let w = World::new(kind, quick());
    let timeout = Some(Duration::from_millis(50));
    let s = w.connect(ConnectOptions { request_timeout: timeout, ..options() });
    let (_, answer) = calling(&s, b"3");
    let ended = answer.recv_timeout(PATIENCE).expect("its time is over");
    assert!(matches!(ended, Err(NetError::Timeout { .. })), "{ended:?}");
}

fn signs_of_life_that_who_waits_reads(kind: Kind) {
    let w = World::new(kind, quick());
    let log = Arc::new(Log::default());
    let s = w.connect(ConnectOptions {
        ping_interval: Duration::from_millis(40),
        ping_timeout: Duration::from_millis(400),
        events: log.clone(),
        ..options()
    });
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        let (_, answer) = calling(&s, b"x");
        until("it is held", || w.target.held() == 1);
        // Always somebody attends.
        for _ in 0..5 {
            s.attend(|| false);
        }
        w.target.release();
        assert!(answer.recv_timeout(PATIENCE).unwrap().is_ok());
    }
    assert!(log.lost.lock().is_empty(), "{:?}", log.lost.lock());
}
