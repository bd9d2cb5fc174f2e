//! Requests whose answers were lost: their effect comes once (invariant 4).

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::{Client, Solo};
use net::Endpoint;
use proto::mds::*;
use proto::{Fid, Wire};
use store::memory::MemoryDisk;

/// Passes bytes on; loses those of the server while told to.
struct Proxy {
    lose: Arc<AtomicBool>,
    path: PathBuf,
}

impl Proxy {
    fn new(dir: &Path, server: PathBuf) -> Proxy {
        let path = dir.join("proxy");
        let lose = Arc::new(AtomicBool::new(false));
        let listener = UnixListener::bind(&path).unwrap();
        let lost = lose.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = UnixStream::connect(&server) else { continue };
                let (c, s, lost) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), lost.clone());
                std::thread::spawn(move || pass(s, c, &lost));
                std::thread::spawn(move || pass(client, server, &AtomicBool::new(false)));
            }
        });
        Proxy { lose, path }
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, lose: &AtomicBool) {
    let mut b = [0; 4096];
    while let Ok(n) = from.read(&mut b) {
        if n == 0 || (!lose.load(SeqCst) && to.write_all(&b[..n]).is_err()) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn start(disk: &MemoryDisk, socket: &Path) -> Solo {
    let s = Solo::new(disk);
    s.server.listen(&Endpoint::Unix(socket.into())).unwrap();
    s
}

fn submit(c: &Client, ops: Vec<Op>) -> crossbeam_channel::Receiver<Vec<Res>> {
    let (tx, rx) = crossbeam_channel::bounded(1);
    let done = move |r: Result<net::Reply, net::NetError>| {
        let r = r.unwrap();
        r.status().unwrap();
        tx.send(CompoundReply::from_bytes(&r.body).unwrap().results.0).unwrap();
    };
    let body = common::body(ops);
    c.session.submit(proto::ops::mds::COMPOUND, body, vec![], Box::new(done));
    rx
}

#[test]
fn an_answer_lost_with_the_server_is_given_again() {
    answered_again(false, vec![]);
}

#[test]
fn an_answer_lost_with_a_server_that_crashed_is_given_again() {
    answered_again(true, vec![]);
}

/// What came after the change was not kept: it is done again, the change is not.
#[test]
fn an_answer_of_which_a_part_is_kept_is_given_again() {
    answered_again(false, vec![Op::Sync {}]);
    answered_again(true, vec![Op::Sync {}]);
}

fn answered_again(crash: bool, between: Vec<Op>) {
    let dir = common::private_dir();
    let (disk, socket) = (MemoryDisk::new(), dir.path().join("mdt"));
    let s = start(&disk, &socket);
    let proxy = Proxy::new(dir.path(), socket.clone());
    let c = Client::at(&Endpoint::Unix(proxy.path.clone()), common::connect());
    proxy.lose.store(true, SeqCst);
    let mut ops = vec![c.create(Fid::ROOT, "once")];
    ops.extend(between);
    ops.push(Op::GetAttr { fid: Fid::CURRENT });
    let answer = submit(&c, ops);
    let observer = s.client_with(proto::mgs::FEATURE_OBSERVER, [1; 16]);
    common::until(|| observer.status()["last_committed"].as_u64() > Some(0));
    let crashed = disk.durable_copy();
    s.server.shutdown();
    s.mdt.close().unwrap();
    drop(s);
    let _ = std::fs::remove_file(&socket);
    assert!(answer.is_empty());
    proxy.lose.store(false, SeqCst);
    let disk = if crash { crashed } else { disk };
    let s = start(&disk, &socket);
    let results = answer.recv().unwrap();
    assert!(matches!(results[0], Res::Entry { created: true, .. }), "{results:?}");
    assert!(matches!(results.last(), Some(Res::Attr { attr }) if attr.nlink == 1));
    assert_eq!(c.list(Fid::ROOT), ["once"]);
    common::check(&disk, s, &[c]);
}

#[test]
fn a_compound_cut_in_two_by_a_crash_goes_on_where_it_was() {
    let dir = common::private_dir();
    let (disk, socket) = (MemoryDisk::new(), dir.path().join("mdt"));
    let s = start(&disk, &socket);
    let c = Client::at(&Endpoint::Unix(socket.clone()), common::connect());
    disk.hold();
    let data = bytes::Bytes::from_static(b"hello");
    let write = Op::WriteInline { fid: Fid::CURRENT, offset: 0, data, cut: None, mtime: None };
    let ops = vec![c.create(Fid::ROOT, "once"), write, Op::Sync {}, c.create(Fid::ROOT, "then")];
    let answer = submit(&c, ops);
    common::until(|| disk.unsynced() > 0);
    s.server.shutdown();
    let _ = std::fs::remove_file(&socket);
    disk.release();
    s.mdt.close().unwrap();
    let next = start(&disk, &socket);
    let results = answer.recv().unwrap();
    assert_eq!(results.len(), 4, "{results:?}");
    assert!(matches!(results[0], Res::Entry { created: true, .. }));
    assert!(matches!(results[3], Res::Entry { created: true, .. }));
    let f = c.lookup(Fid::ROOT, "once").unwrap().fid;
    assert_eq!(c.read(f).unwrap(), b"hello");
    drop(s);
    common::check(&disk, next, &[c]);
}
