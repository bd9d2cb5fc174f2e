//! Rates of creates, stats and unlinks of one metadata target, over `net`.
//!
//! `namespace_rate [--unix] [--leases] [--sessions N,...] [--count N] [--fjall DIR]`: in process with
//! threads, or over a Unix socket with sessions; a directory of each one's own, and one for all; with
//! `--leases` every request asks for leases (granted from two sessions on). Each rate is followed by
//! the CPU time of the whole process per operation.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};
use net::{ConnectOptions, Endpoint, Server, ServerOptions, Session};
use pinstripe_mds::{Mdt, MdtLabel, MdtOptions};
use proto::mds::*;
use proto::wire::List;
use proto::{Fid, Wire, ops};
use store::memory::{self, MemoryDisk};

/// Requests a session has under way.
const DEPTH: usize = 8;

struct Client {
    session: Arc<Session>,
    fids: proto::FidRange,
    dir: Fid,
    files: Vec<Fid>,
}

/// Gives every lease back at once.
struct Obliging;

impl net::Events for Obliging {
    fn call(&self, _: u16, _: bytes::Bytes, reply: net::CallReply) {
        reply.send(0, Vec::new());
    }
}

/// `CF_LEASES`, if they are wanted.
static FLAGS: AtomicU8 = AtomicU8::new(0);

fn body(op: Op) -> Vec<u8> {
    let cred = Cred { uid: 0, gid: 0, groups: List(vec![]) };
    let compound = Compound::new(cred, vec![op]);
    Compound { flags: FLAGS.load(Relaxed), ..compound }.to_bytes()
}

/// CPU time of this process so far, microseconds (in steps of a tick).
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks: f64 =
        after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks * 10_000.0
}

impl Client {
    fn connect(endpoint: &Endpoint) -> Client {
        let options = ConnectOptions {
            target: "MDT0000".into(),
            fs: [7; 16],
            events: Arc::new(Obliging),
            ..ConnectOptions::default()
        };
        let session = Session::connect(endpoint, options).expect("connect");
        let fids = Grant::from_bytes(&session.welcome().data).expect("grant").fids;
        Client { session, fids, dir: Fid::ROOT, files: Vec::new() }
    }

    fn call(&self, op: Op) -> Res {
        let r = self.session.call(ops::mds::COMPOUND, body(op), vec![]).expect("call");
        CompoundReply::from_bytes(&r.body).expect("reply").results.0.remove(0)
    }

    fn fid(&mut self) -> Fid {
        if let Some(fid) = self.fids.take() {
            return fid;
        }
        if let Res::Fids { range } = self.call(Op::AllocFids {}) {
            self.fids = range;
        }
        self.fids.take().expect("a range")
    }

    fn create(&mut self, dir: Fid, name: String, mode: u32) -> Op {
        let fid = self.fid();
        Op::Create {
            dir,
            name: name.into_bytes(),
            fid,
            mode,
            umask: 0,
            rdev: 0,
            target: vec![],
            flags: C_EXCL,
            open: 0,
        }
    }

    /// `n` operations, a few at a time.
    fn many(&mut self, n: usize, mut op: impl FnMut(&mut Client, usize) -> Op) {
        let (tx, rx): (_, Receiver<()>) = bounded(DEPTH * 2);
        for i in 0..n {
            if i >= DEPTH {
                rx.recv().expect("answer");
            }
            let (op, tx) = (op(self, i), tx.clone());
            let done = move |r: Result<net::Reply, net::NetError>| {
                let r = r.expect("reply");
                let ok = CompoundReply::from_bytes(&r.body).expect("reply");
                assert!(!matches!(ok.results.0[0], Res::Failed { .. }), "{ok:?}");
                let _ = tx.send(());
            };
            self.session.submit(ops::mds::COMPOUND, body(op), vec![], Box::new(done));
        }
        for _ in 0..n.min(DEPTH) {
            rx.recv().expect("answer");
        }
    }
}

fn phase(name: &str, clients: &mut [Client], each: usize, f: impl Fn(&mut Client, usize) + Sync) {
    let threads = clients.len().min(16);
    let share = clients.len().div_ceil(threads);
    let (start, total, before) = (Instant::now(), each * clients.len(), cpu());
    std::thread::scope(|t| {
        for (at, part) in clients.chunks_mut(share).enumerate() {
            let f = &f;
            t.spawn(move || {
                for (i, c) in part.iter_mut().enumerate() {
                    f(c, at * share + i);
                }
            });
        }
    });
    let s = start.elapsed().as_secs_f64();
    print!(" {name} {:8.0}/s {:5.1} us", total as f64 / s, (cpu() - before) / total as f64);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |flag: &str| args.iter().position(|a| a == flag).and_then(|i| args.get(i + 1));
    if args.iter().any(|a| a == "--leases") {
        FLAGS.store(CF_LEASES, Relaxed);
    }
    let unix = args.iter().any(|a| a == "--unix");
    let count: usize = after("--count").and_then(|c| c.parse().ok()).unwrap_or(200_000);
    let default = if unix { "1,16,64,256,1024" } else { "1,8" };
    let sessions = after("--sessions").map_or(default, |s| s.as_str());
    for shared in [false, true] {
        for n in sessions.split(',').filter_map(|n| n.parse::<usize>().ok()) {
            let store = match after("--fjall").map(PathBuf::from) {
                None => memory::acquire(&MemoryDisk::new(), "rate", 0).expect("store"),
                Some(dir) => {
                    let options = store::fjall_engine::FjallOptions::default();
                    let dir = dir.join(format!("{n}-{shared}"));
                    store::fjall_engine::format(&dir, &options).expect("format");
                    store::fjall_engine::acquire(&dir, "rate", 0, &options).expect("store")
                }
            };
            run(Arc::from(store), unix, n, count / n, shared);
        }
    }
}

fn run(store: Arc<dyn store::Store>, unix: bool, n: usize, each: usize, shared: bool) {
    let label = MdtLabel { fs: [7; 16], fsname: "rate".into(), index: 0, uuid: [8; 16] };
    let mdt = Mdt::with_store(label, store, MdtOptions::default(), "memory").expect("target");
    let server = Server::new(ServerOptions::default());
    server.add(mdt.clone());
    let dir = PathBuf::from(format!("/tmp/rate.{}", std::process::id()));
    let mut endpoint = Endpoint::Local(server.local());
    if unix {
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir);
        made.expect("directory");
        endpoint = server.listen(&Endpoint::Unix(dir.join("mdt"))).expect("listen");
    }
    let mut clients: Vec<Client> = (0..n).map(|_| Client::connect(&endpoint)).collect();
    for (i, c) in clients.iter_mut().enumerate().filter(|_| !shared) {
        let op = c.create(Fid::ROOT, format!("d{i}"), 0o040755);
        let Op::Create { fid, .. } = op else { return };
        c.call(op);
        c.dir = fid;
    }
    print!(
        "{} {n:5} {}:",
        if unix { "sessions" } else { "threads" },
        if shared { "shared" } else { "unique" }
    );
    phase("create", &mut clients, each, |c, who| {
        let dir = c.dir;
        c.many(each, |c, i| {
            let op = c.create(dir, format!("file.{who}.{i}"), 0o100644);
            if let Op::Create { fid, .. } = &op {
                c.files.push(*fid);
            }
            op
        });
    });
    phase("stat", &mut clients, each, |c, _| c.many(each, |c, i| Op::GetAttr { fid: c.files[i] }));
    phase("unlink", &mut clients, each, |c, who| {
        let dir = c.dir;
        c.many(each, |_, i| Op::Unlink {
            dir,
            name: format!("file.{who}.{i}").into_bytes(),
            rmdir: false,
        });
    });
    println!();
    for c in &clients {
        c.session.close();
    }
    server.shutdown();
    mdt.close().expect("close");
    if unix {
        let _ = std::fs::remove_dir_all(&dir);
    }
}
