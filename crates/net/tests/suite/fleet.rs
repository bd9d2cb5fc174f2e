//! Many sessions, and a server that is another process and gets killed.

use crate::common::*;
use pinstripe_net::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_thousand_sessions() {
    for kind in [Kind::Unix, Kind::Tcp, Kind::Local, Kind::Shared, Kind::SharedTcp] {
        let w = World::new(kind, ServerOptions { total_credits: 8000, ..quick() });
        let sessions: Vec<_> = (0..1000).map(|_| w.connect(options())).collect();
        assert_eq!(w.server.stats().sessions, 1000);
        let results = Results::default();
        for _ in 0..5 {
            for (n, s) in sessions.iter().enumerate() {
                s.submit(ECHO, n.to_le_bytes().to_vec(), vec![], results.sink());
            }
        }
        until("all answers", || results.len() == 5000);
        // All share what the server has.
        let r = sessions[0].call(ECHO, vec![], vec![]).unwrap();
        assert_eq!(r.header.credits.get(), 8);
        assert_eq!(w.server.sessions().len(), 1000);
        drop(sessions);
        until("all gone", || w.server.stats().sessions == 0);
        assert_eq!(w.target.closed.lock().len(), 1000);
        until("no connection left", || w.server.stats().connections == 0);
    }
}

#[test]
fn a_target_that_moves() {
    let (old, new) = (World::new(Kind::Tcp, quick()), World::new(Kind::Unix, quick()));
    let s = old.connect(options());
    let results = Results::default();
    s.submit(HOLD, vec![1], vec![], results.sink());
    until("it runs", || old.target.held() == 1);
    // To where it is already: nothing happens.
    s.set_endpoint(old.endpoint.clone());
    assert!(s.is_connected());
    s.set_endpoint(new.endpoint.clone());
    until("it runs there", || new.target.held() == 1);
    old.target.release();
    new.target.release();
    until("one answer", || results.len() == 1);
    s.call(ECHO, vec![], vec![]).unwrap();
    assert_eq!((results.len(), new.target.order.lock().len()), (1, 2));
}

/// Not a test of its own: the server of the test below, run by it as another process.
#[test]
fn served_by_another_process() {
    let Ok(port) = std::env::var("NET_TEST_PORT") else { return };
    let epoch = std::env::var("NET_TEST_EPOCH").unwrap().parse().unwrap();
    let server = Server::new(quick());
    server.add(Target::new(epoch));
    let endpoint = server.listen(&Endpoint::Tcp(format!("127.0.0.1:{port}"))).unwrap();
    println!("\nat {endpoint}");
    std::io::stdout().flush().unwrap();
    // Until the parent kills this process or is gone itself.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A server process, killed when dropped.
struct Process(Child, Endpoint);

impl Process {
    fn start(port: &str, epoch: u32) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fleet::served_by_another_process", "--nocapture"])
            .env("NET_TEST_PORT", port)
            .env("NET_TEST_EPOCH", epoch.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at = lines.find_map(|l| l.unwrap().strip_prefix("at ").map(str::to_owned)).unwrap();
        Process(child, at.parse().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_killed_server_process() {
    let first = Process::start("0", 1);
    let endpoint = first.1.clone();
    let log = Arc::new(Log::default());
    let backoff = Backoff {
        first: Duration::from_millis(1),
        most: Duration::from_millis(20),
        ..Backoff::default()
    };
    let o = ConnectOptions { events: log.clone(), backoff, ..options() };
    let s = Session::connect(&endpoint, o).unwrap();
    s.call(ECHO, vec![1], vec![]).unwrap();
    let results = Results::default();
    s.submit(HOLD, vec![2], vec![], results.sink());
    s.call(ECHO, vec![3], vec![]).unwrap();
    drop(first);
    until("the loss is known", || !s.is_connected());
    let (waiting, again) = (s.clone(), results.clone());
    waiting.submit(ECHO, vec![4], vec![], again.sink());
    let Endpoint::Tcp(address) = &endpoint else { unreachable!() };
    let _second = Process::start(address.rsplit(':').next().unwrap(), 2);
    until("the waiting request is answered", || results.len() == 1);
    assert_eq!(results.bodies(), [[4]]);
    let back = log.back.lock();
    assert_eq!((back.len(), back[0].epoch, back[0].resumed), (1, 2, false));
    assert_eq!(s.stats().resent, 1);
}
