//! A target on the real engine in a process of its own, killed: what was synced is there.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::{Client, FILE};
use net::{Endpoint, Server, ServerOptions};
use pinstripe_mds::{Mdt, MdtOptions, check};
use proto::Fid;

const DIR: &str = "PINSTRIPE_MDS_KILL_DIR";

/// What the child does: makes files for ever and tells which are synced.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let (_mdt, _server, c) = open(dir.as_ref());
    let first = c.list(Fid::ROOT).len();
    for i in first.. {
        c.make(Fid::ROOT, &format!("f{i}"), FILE).unwrap();
        if i % 7 == 0 {
            c.sync();
            println!("synced f{i}");
        }
    }
}

fn open(dir: &std::path::Path) -> (std::sync::Arc<Mdt>, Server, Client) {
    let mdt = Mdt::open(dir, MdtOptions::default()).unwrap();
    let server = Server::new(ServerOptions::default());
    server.add(mdt.clone());
    let c = Client::at(&Endpoint::Local(server.local()), common::connect());
    (mdt, server, c)
}

#[test]
fn what_was_synced_before_a_kill_is_there() {
    let dir = tempfile::tempdir().unwrap();
    Mdt::format(dir.path(), &common::label()).unwrap();
    for round in 1..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let synced: Vec<String> = lines
            .filter_map(|l| Some(l.split_once("synced ")?.1.to_string()))
            .take(10 * round)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(synced.len(), 10 * round);
        assert_eq!(check::check_dir(dir.path()).unwrap().problems, []);
        let (mdt, server, c) = open(dir.path());
        for name in &synced {
            assert_eq!(c.lookup(Fid::ROOT, name).unwrap().nlink, 1, "{name}");
        }
        // A prefix: no gap in what is there.
        let n = c.list(Fid::ROOT).len();
        for i in 0..n {
            c.lookup(Fid::ROOT, &format!("f{i}")).unwrap();
        }
        c.session.close();
        server.shutdown();
        mdt.close().unwrap();
        drop((mdt, server, c));
        assert_eq!(check::check_dir(dir.path()).unwrap().problems, []);
    }
}
