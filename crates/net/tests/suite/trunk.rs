//! Several sessions of a process on one connection; each is as if it were alone. What holds for any
//! session is in `calls` and `recovery`, which run over shared connections, too.

use crate::common::*;
use crate::hostile::{hello, is_closed, read_frame};
use crate::on_shared_transports;
use parking_lot::Mutex;
use pinstripe_net::*;
use proto::frame::{F_CALLBACK, F_REPLY, Header};
use proto::mgs::{FEATURE_TRUNK, Hello, Welcome};
use proto::{Errno, Wire, ops};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

on_shared_transports!(
    sessions_share_one_connection,
    answers_and_calls_reach_their_session,
    an_evicted_session_comes_back_alone,
    a_cut_session_is_resumed_beside_the_others,
    a_lost_connection_is_lost_for_all,
    a_goodbye_is_one_sessions,
    a_refusal_is_one_sessions,
    a_connection_has_a_limit,
    one_ping_is_heard_by_all,
    who_does_not_share_is_alone,
    another_boot_finds_all,
    the_last_one_ends_the_connection,
);

fn quick_backoff() -> Backoff {
    let (first, most) = (Duration::from_millis(1), Duration::from_millis(10));
    Backoff { first, most, ..Backoff::default() }
}

/// Sessions and what happened to them.
fn sessions(w: &World, count: usize) -> Vec<(Arc<Session>, Arc<Log>)> {
    let one = |_| {
        let log = Arc::new(Log::default());
        let o = ConnectOptions { events: log.clone(), backoff: quick_backoff(), ..options() };
        (w.connect(o), log)
    };
    (0..count).map(one).collect()
}

/// The server's end of a client's session.
fn server_end(w: &World, s: &Session) -> SessionRef {
    let id = s.welcome().session;
    w.server.sessions().into_iter().find(|r| r.id() == id).unwrap()
}

fn sessions_share_one_connection(kind: Kind) {
    let w = World::new(kind, quick());
    // Many at once: one of them dials.
    let all: Vec<_> = std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| w.connect(options()));
        let threads: Vec<_> = (0..16).map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for s in &all {
        assert_ne!(s.welcome().features & FEATURE_TRUNK, 0);
        s.call(ECHO, vec![1], vec![]).unwrap();
    }
    let stats = w.server.stats();
    assert_eq!((stats.sessions, stats.connections, stats.opened), (16, 1, 16));
}

fn answers_and_calls_reach_their_session(kind: Kind) {
    let w = World::new(kind, quick());
    let all = sessions(&w, 20);
    let bodies: Vec<Results> = all.iter().map(|_| Results::default()).collect();
    for round in 0..20u8 {
        for (n, (s, _)) in all.iter().enumerate() {
            let opcode = [ECHO, HOLD, CALL][usize::from(round) % 3];
            s.submit(opcode, vec![n as u8, round], vec![], bodies[n].sink());
        }
    }
    until("all answers", || {
        w.target.release();
        bodies.iter().all(|b| b.len() == 20)
    });
    for (n, results) in bodies.iter().enumerate() {
        let mut seen = results.bodies();
        seen.sort();
        // What was called back came reversed.
        let own = |round: u8| match round % 3 {
            2 => vec![round, n as u8],
            _ => vec![n as u8, round],
        };
        let mut expect: Vec<_> = (0..20).map(own).collect();
        expect.sort();
        assert_eq!(seen, expect);
        assert_eq!(all[n].0.stats().callbacks, 6);
    }
    assert_eq!(w.server.stats().connections, 1);
}

fn an_evicted_session_comes_back_alone(kind: Kind) {
    let w = World::new(kind, quick());
    let all = sessions(&w, 3);
    let results: Vec<Results> = all.iter().map(|_| Results::default()).collect();
    for ((s, _), r) in all.iter().zip(&results) {
        s.submit(HOLD, s.welcome().session.to_le_bytes().to_vec(), vec![], r.sink());
    }
    until("all run", || w.target.held() == 3);
    let (evicted, log) = &all[1];
    let before = evicted.welcome().session;
    server_end(&w, evicted).evict();
    until("it is back", || log.back.lock().len() == 1);
    assert!(!log.back.lock()[0].resumed && evicted.welcome().session != before);
    assert!(matches!(&log.lost.lock()[..], [NetError::Lost(why)] if why == "evicted"));
    until("it asks again", || w.target.held() == 4);
    w.target.release();
    until("all answers", || results.iter().all(|r| r.len() == 1));
    for (s, log) in [&all[0], &all[2]] {
        assert_eq!((s.stats().lost, s.stats().resent, log.lost.lock().len()), (0, 0, 0));
    }
    assert_eq!((w.server.stats().connections, w.server.stats().evicted), (1, 1));
}

fn a_cut_session_is_resumed_beside_the_others(kind: Kind) {
    let w = World::new(kind, quick());
    let all = sessions(&w, 2);
    let (victim, neighbour) = (all[0].0.clone(), all[1].0.clone());
    let (results, others) = (Results::default(), Results::default());
    let feed = |s: Arc<Session>, r: Results, tag: u8| {
        std::thread::spawn(move || {
            for n in 0..1000u16 {
                let body = [&[tag][..], &n.to_le_bytes()].concat();
                s.submit(HOLD, body, vec![], r.sink());
            }
        })
    };
    let feeders = [feed(victim.clone(), results.clone(), 1), feed(neighbour, others.clone(), 2)];
    let mut turns = 0u32;
    until("all answered", || {
        turns += 1;
        w.target.release();
        if turns.is_multiple_of(4) && victim.is_connected() {
            server_end(&w, &victim).disconnect();
        }
        results.len() == 1000 && others.len() == 1000
    });
    feeders.into_iter().for_each(|f| f.join().unwrap());
    for r in [&results, &others] {
        let mut bodies = r.bodies();
        bodies.sort();
        bodies.dedup();
        assert_eq!(bodies.len(), 1000);
    }
    assert!(w.target.runs.lock().values().all(|r| r.len() == 1), "a request ran twice");
    assert!(victim.stats().lost > 0);
    assert_eq!((all[1].0.stats().lost, all[1].0.stats().resent), (0, 0));
    let stats = w.server.stats();
    assert_eq!((stats.connections, stats.bad_frames, stats.opened), (1, 0, 2));
}

/// Carries bytes between clients and a world's server, over TCP; its client's end can be cut.
struct Line(Arc<Mutex<Vec<TcpStream>>>);

impl Line {
    /// From now on the world's clients go through it.
    fn before(w: &mut World) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
        let to = std::mem::replace(&mut w.endpoint, at);
        let all: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let clients = all.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                clients.lock().push(client.try_clone().unwrap());
                match &to {
                    Endpoint::Tcp(a) => {
                        let Ok(server) = TcpStream::connect(a) else { continue };
                        let ends = (server.try_clone().unwrap(), server.try_clone().unwrap());
                        carry(client, ends, move || drop(server.shutdown(Shutdown::Both)));
                    }
                    Endpoint::Unix(a) => {
                        let Ok(server) = UnixStream::connect(a) else { continue };
                        let ends = (server.try_clone().unwrap(), server.try_clone().unwrap());
                        carry(client, ends, move || drop(server.shutdown(Shutdown::Both)));
                    }
                    Endpoint::Local(_) => panic!("no line leads there"),
                }
            }
        });
        Line(all)
    }

    fn cut(&self) {
        self.0.lock().drain(..).for_each(|c| drop(c.shutdown(Shutdown::Both)));
    }
}

fn carry<R, W>(client: TcpStream, (mut from, mut to): (R, W), end: impl Fn() + Send + 'static)
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let (mut asks, mut answers) = (client.try_clone().unwrap(), client);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut asks, &mut to);
        end();
    });
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut answers);
        let _ = answers.shutdown(Shutdown::Both);
    });
}

fn a_lost_connection_is_lost_for_all(kind: Kind) {
    let mut w = World::new(kind, quick());
    let line = Line::before(&mut w);
    let all = sessions(&w, 10);
    let results = Results::default();
    for round in 0..4u8 {
        for (n, (s, _)) in all.iter().enumerate() {
            s.submit(HOLD, vec![n as u8, round], vec![], results.sink());
        }
    }
    until("all run", || w.target.held() == 40);
    line.cut();
    until("all are back", || all.iter().all(|(_, log)| log.back.lock().len() == 1));
    assert!(all.iter().all(|(_, log)| log.back.lock()[0].resumed));
    until("all sent again", || all.iter().all(|(s, _)| s.stats().resent == 4));
    until("all attached", || w.server.stats().attached == 40);
    w.target.release();
    until("all answered", || results.len() == 40);
    assert!(w.target.runs.lock().values().all(|r| r == &[false]));
    let mut bodies = results.bodies();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 40);
    until("on one connection", || w.server.stats().connections == 1);
    assert_eq!((w.server.stats().opened, w.server.stats().resumed), (10, 10));
}

fn a_goodbye_is_one_sessions(kind: Kind) {
    let w = World::new(kind, quick());
    let all = sessions(&w, 3);
    let results = Results::default();
    all[0].0.submit(HOLD, vec![1], vec![], results.sink());
    until("it runs", || w.target.held() == 1);
    all[1].0.close();
    until("one has gone", || *w.target.closed.lock() == [Closed::Goodbye]);
    assert!(matches!(all[1].0.call(ECHO, vec![], vec![]), Err(NetError::Shutdown)));
    w.target.release();
    until("its answer", || results.len() == 1);
    all[2].0.call(ECHO, vec![], vec![]).unwrap();
    // The one that dialled is not more than the others.
    all[0].0.close();
    all[2].0.call(ECHO, vec![], vec![]).unwrap();
    assert_eq!((all[2].0.stats().lost, w.server.stats().connections), (0, 1));
}

fn a_refusal_is_one_sessions(kind: Kind) {
    let w = World::new(kind, quick());
    let all = sessions(&w, 2);
    let refused = |o: ConnectOptions| match w.try_connect(o).map(|_| ()) {
        Err(NetError::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    let other = ConnectOptions { target: "MDT0009".into(), ..options() };
    assert_eq!(refused(other), "there is no target \"MDT0009\" here");
    let unwanted = ConnectOptions { description: "unwanted".into(), ..options() };
    assert_eq!(refused(unwanted), "you are not wanted");
    for (s, _) in &all {
        s.call(ECHO, vec![], vec![]).unwrap();
        assert_eq!(s.stats().lost, 0);
    }
    assert_eq!((w.server.stats().refused, w.server.stats().connections), (2, 1));
}

fn a_connection_has_a_limit(kind: Kind) {
    let w = World::new(kind, ServerOptions { connection_sessions: 3, ..quick() });
    let all = sessions(&w, 3);
    match w.try_connect(options()).map(|_| ()) {
        Err(NetError::Refused(text)) => {
            assert_eq!(text, "the connection carries all 3 sessions it may");
        }
        other => panic!("{other:?}"),
    }
    all[2].0.close();
    w.connect(options()).call(ECHO, vec![], vec![]).unwrap();
    // A server where none may follow: everybody has a connection.
    let w = World::new(kind, ServerOptions { connection_sessions: 1, ..quick() });
    let all = sessions(&w, 3);
    for (s, _) in &all {
        assert_eq!(s.welcome().features & FEATURE_TRUNK, 0);
        s.call(ECHO, vec![], vec![]).unwrap();
    }
    assert_eq!(w.server.stats().connections, 3);
}

fn one_ping_is_heard_by_all(kind: Kind) {
    let w = World::new(kind, quick());
    let interval = Duration::from_millis(20);
    let with = || ConnectOptions { ping_interval: interval, ..options() };
    let all: Vec<_> = (0..10).map(|_| w.connect(with())).collect();
    let before = w.server.stats().replies;
    let long = Duration::from_secs(100);
    all.iter().for_each(|s| s.heard().pretend(long));
    until("all are heard", || all.iter().all(|s| s.heard().silence() < long));
    // Each is heard again and again.
    all.iter().for_each(|s| s.heard().pretend(long));
    until("all are heard again", || all.iter().all(|s| s.heard().silence() < long));
    assert_eq!(w.server.stats().replies, before, "pings are the connection's");
    // One that is no longer on it is not.
    let (gone, left) = (all[0].heard(), all[1].heard());
    all[0].close();
    gone.pretend(long);
    left.pretend(long);
    until("the next ping", || left.silence() < long);
    assert!(gone.silence() >= long);
}

fn who_does_not_share_is_alone(kind: Kind) {
    let mut w = World::new(kind, quick());
    let alone = ConnectOptions { share: false, key: kind.key(), ..options() };
    let alone = Session::connect(&w.endpoint, alone).unwrap();
    assert_eq!(alone.welcome().features & FEATURE_TRUNK, 0);
    let line = Line::before(&mut w);
    let all = sessions(&w, 2);
    assert_eq!(w.server.stats().connections, 2);
    line.cut();
    until("all are back", || all.iter().all(|(s, _)| s.stats().lost == 1 && s.is_connected()));
    alone.call(ECHO, vec![], vec![]).unwrap();
    assert_eq!(alone.stats().lost, 0);
    // Other ping times, another connection.
    let other = ConnectOptions { ping_interval: Duration::from_secs(1), ..options() };
    let other = w.connect(other);
    other.call(ECHO, vec![], vec![]).unwrap();
    until("three", || w.server.stats().connections == 3);
}

fn another_boot_finds_all(kind: Kind) {
    let mut w = World::new(kind, quick());
    let all = sessions(&w, 20);
    let results = Results::default();
    for (n, (s, _)) in all.iter().enumerate() {
        s.submit(HOLD, vec![n as u8], vec![], results.sink());
    }
    until("all run", || w.target.held() == 20);
    w.stop();
    until("the loss is known", || all.iter().all(|(s, _)| !s.is_connected()));
    w.restart(2, quick(), &all[0].0);
    until("all run again", || w.target.held() == 20);
    w.target.release();
    until("all answered", || results.len() == 20);
    assert!(all.iter().all(|(s, _)| s.welcome().epoch == 2));
    until("on one connection", || w.server.stats().connections == 1);
}

fn the_last_one_ends_the_connection(kind: Kind) {
    let w = World::new(kind, quick());
    for _ in 0..3 {
        let all = sessions(&w, 50);
        assert_eq!(w.server.stats().connections, 1);
        drop(all);
        until("all gone", || w.server.stats().sessions == 0);
        until("no connection left", || w.server.stats().connections == 0);
    }
    assert_eq!(*w.target.closed.lock(), [Closed::Goodbye; 150]);
}

/// A raw connection whose first session asked for `features`.
fn raw(w: &World, features: u64) -> (TcpStream, Welcome) {
    let mut s = crate::hostile::dial(w);
    s.write_all(&greeting(0, &Hello { features, ..hello() })).unwrap();
    let (header, body) = read_frame(&mut s);
    assert_eq!((header.xid.get(), header.status.get()), (0, 0));
    (s, Welcome::from_bytes(&body).unwrap())
}

fn greeting(xid: u64, hello: &Hello) -> Vec<u8> {
    encode_frame(Header::request(ops::session::CONNECT, xid), &hello.to_bytes(), &[])
}

fn message(session: u64, opcode: u16, xid: u64) -> Vec<u8> {
    let mut h = Header::request(opcode, xid);
    h.session = session.into();
    encode_frame(h, b"x", &[])
}

#[test]
fn greetings_are_answered_by_xid_and_refused_by_name() {
    let w = World::new(Kind::Tcp, quick());
    let (mut s, first) = raw(&w, FEATURE_TRUNK);
    assert_eq!(first.features, FEATURE_TRUNK);
    s.write_all(&greeting(77, &hello())).unwrap();
    let (header, body) = read_frame(&mut s);
    let second = Welcome::from_bytes(&body).unwrap();
    assert_eq!((header.xid.get(), header.session.get()), (77, second.session));
    assert_ne!(second.session, first.session);
    // Refused: told why, and nothing else happens.
    let bad = Header::request(ops::session::CONNECT, 78);
    let long = Hello { target: "x".repeat(600), ..hello() };
    let old = Hello { min_version: 7, max_version: 9, ..hello() };
    for (bytes, text) in [
        (encode_frame(bad, b"xx", &[]), "cannot read the greeting"),
        (greeting(78, &long), "at most 512 bytes"),
        (greeting(78, &old), "are not spoken here"),
    ] {
        s.write_all(&bytes).unwrap();
        let (header, body) = read_frame(&mut s);
        assert_eq!((header.xid.get(), header.status.get()), (78, Errno::EPROTO.status()));
        assert!(String::from_utf8_lossy(&body).contains(text), "{text}");
    }
    // Of a session that is not here; its answer is not answered.
    s.write_all(&message(12345, ECHO, 1)).unwrap();
    let (header, _) = read_frame(&mut s);
    assert_eq!((header.opcode.get(), header.session.get()), (ops::session::GONE, 12345));
    assert_eq!(header.flags.get(), 0);
    s.write_all(&message(12345, ops::session::GONE, 0)).unwrap();
    for session in [first.session, second.session] {
        s.write_all(&message(session, ECHO, 1)).unwrap();
        assert_eq!(read_frame(&mut s).0.session.get(), session);
    }
    // The client has one no longer: it stays for its grace, and may be taken up again.
    s.write_all(&message(second.session, ops::session::GONE, 0)).unwrap();
    let again = Hello { resume: second.session, ..hello() };
    s.write_all(&greeting(79, &again)).unwrap();
    let (_, body) = read_frame(&mut s);
    let welcome = Welcome::from_bytes(&body).unwrap();
    assert!(welcome.resumed && welcome.session == second.session);
    // Taken up on its own connection: the old part ends first.
    s.write_all(&greeting(80, &again)).unwrap();
    assert_eq!(read_frame(&mut s).0.opcode.get(), ops::session::GONE);
    assert_eq!(read_frame(&mut s).0.xid.get(), 80);
    s.write_all(&message(second.session, ECHO, 2)).unwrap();
    assert_eq!(read_frame(&mut s).0.xid.get(), 2);
    let stats = w.server.stats();
    assert_eq!((stats.sessions, stats.connections, stats.bad_frames), (2, 1, 0));
}

#[test]
fn who_breaks_the_rules_loses_the_connection_not_the_sessions() {
    let w = World::new(Kind::Tcp, quick());
    let good = w.connect(options());
    let flagged = |session: u64, flags: u16| {
        let mut h = Header::request(ops::session::CONNECT, 1);
        h.session = session.into();
        h.flags = flags.into();
        encode_frame(h, &hello().to_bytes(), &[])
    };
    let long = encode_frame(Header::request(ops::session::CONNECT, 1), &[0; 5000], &[]);
    let bulk = encode_frame(Header::request(ops::session::CONNECT, 1), &[], &[0; 10]);
    type Bytes = Box<dyn Fn(u64) -> Vec<u8>>;
    let bad: Vec<(&str, u64, Bytes)> = vec![
        ("another greeting where nobody may follow", 0, Box::new(|_| greeting(1, &hello()))),
        ("a greeting of a session", FEATURE_TRUNK, Box::new(move |s| flagged(s, 0))),
        ("an answer to nothing", FEATURE_TRUNK, Box::new(move |_| flagged(0, F_REPLY))),
        ("a call-back", FEATURE_TRUNK, Box::new(move |_| flagged(0, F_CALLBACK))),
        ("a long greeting", FEATURE_TRUNK, Box::new(move |_| long.clone())),
        ("a greeting with bulk", FEATURE_TRUNK, Box::new(move |_| bulk.clone())),
        ("a request of nobody", FEATURE_TRUNK, Box::new(|_| message(0, ECHO, 1))),
        ("a proof", FEATURE_TRUNK, Box::new(|_| message(0, ops::session::PROVE, 1))),
        ("garbage", FEATURE_TRUNK, Box::new(|_| vec![0x55; 100])),
    ];
    let count = bad.len() as u64;
    for (what, features, bytes) in bad {
        let (mut s, welcome) = raw(&w, features);
        s.write_all(&bytes(welcome.session)).unwrap();
        assert!(is_closed(&mut s), "{what}");
        good.call(ECHO, vec![], vec![]).unwrap();
    }
    until("they are counted", || w.server.stats().bad_frames == count);
    assert_eq!(w.server.stats().sessions, count + 1, "they have their grace");
}

#[test]
fn a_connection_without_sessions_ends() {
    let o = ServerOptions { idle_timeout: Duration::from_millis(100), ..quick() };
    let w = World::new(Kind::Tcp, o);
    let (mut s, welcome) = raw(&w, FEATURE_TRUNK);
    s.write_all(&message(welcome.session, ops::session::DISCONNECT, 0)).unwrap();
    let mut pings = s.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        let ping = encode_frame(Header::request(ops::session::PING, 1), &[], &[]);
        while pings.write_all(&ping).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(is_closed(&mut s));
    feeder.join().unwrap();
    assert_eq!(w.server.stats().sessions, 0);
}

/// A server that answers a greeting only after the client has given it up.
#[test]
fn a_welcome_nobody_waits_for_is_given_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let told = Arc::new(Mutex::new(None));
    let seen = told.clone();
    let server = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        let welcome = |session| Welcome {
            session,
            epoch: 1,
            version: proto::WIRE_VERSION,
            features: FEATURE_TRUNK,
            credits: 4,
            resumed: false,
            data: vec![],
        };
        let (header, _) = read_frame(&mut s);
        s.write_all(&encode_frame(header.reply(0), &welcome(7).to_bytes(), &[])).unwrap();
        let (header, _) = read_frame(&mut s);
        std::thread::sleep(Duration::from_millis(150));
        let mut reply = header.reply(0);
        reply.session = 8.into();
        s.write_all(&encode_frame(reply, &welcome(8).to_bytes(), &[])).unwrap();
        let (header, _) = read_frame(&mut s);
        *seen.lock() = Some((header.opcode.get(), header.session.get()));
    });
    let short = ConnectOptions { connect_timeout: Duration::from_millis(50), ..options() };
    let o = ConnectOptions { share: true, reconnect: false, ..short };
    let first = Session::connect(&endpoint, o.clone()).unwrap();
    let e = Session::connect(&endpoint, o).map(|_| ()).unwrap_err();
    assert!(matches!(e, NetError::Timeout { .. }), "{e}");
    server.join().unwrap();
    assert_eq!(*told.lock(), Some((ops::session::GONE, 8)));
    drop(first);
}
