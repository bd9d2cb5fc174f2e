//! Attributes of an inode that differ have versions that differ, and what is told later never has an older one: clients
//! take the newest of what several answers say, in whatever order these come.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{Client, DIR, FILE, Obliging, Solo};
use net::{Endpoint, Server, ServerOptions};
use oss::{Ost, OstLabel, OstOptions, OstService};
use pinstripe_mds::MdtOptions;
use proto::attr::{S_MODE, S_SIZE, SetAttr};
use proto::mds::*;
use proto::{Attr, Errno, Fid, TimeSpec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::memory::MemoryDisk;

const ROUNDS: u64 = 30;
const STEPS: usize = 400;

struct World {
    clients: Vec<Client>,
    /// Client, file, handle.
    open: Vec<(usize, Fid, u64)>,
    files: Vec<Fid>,
    seen: HashMap<(Fid, u64), Attr>,
    newest: HashMap<Fid, u64>,
    random: StdRng,
}

impl World {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }

    fn report(&mut self) -> SizeReport {
        let mut time = || TimeSpec { sec: 1_700_000_000 + self.random.random_range(0..9), nsec: 0 };
        let (mtime, atime) = (time(), time());
        SizeReport {
            size: self.random.random_range(0..4) * 50_000,
            exact: self.random.random(),
            blocks: self.random.random_bool(0.5).then(|| self.random.random_range(0..3)),
            mtime: self.random.random_bool(0.5).then_some(mtime),
            atime: self.random.random_bool(0.3).then_some(atime),
        }
    }

    fn op(&mut self, client: usize) -> Op {
        let fid = self.pick(&self.files.clone());
        let named = |fid: Fid| format!("f{}", fid.oid).into_bytes();
        match self.random.random_range(0..12) {
            0 | 1 => {
                let flags = self.pick(&[O_READ, O_WRITE, O_READ | O_WRITE, O_WRITE | O_TRUNC]);
                Op::Open { fid, flags, handle: 0 }
            }
            2..5 => match self.open.iter().position(|(c, ..)| *c == client) {
                Some(at) => {
                    let (_, fid, handle) = self.open.swap_remove(at);
                    let report = self.random.random_bool(0.5).then(|| self.report());
                    Op::Close { fid, handle, report }
                }
                None => Op::GetAttr { fid },
            },
            5 => Op::Report { fid, report: self.report() },
            6 => Op::BeginWrite { fid, size_hint: 0 },
            7 => Op::DropInline { fid, report: self.report() },
            8 => {
                let data = vec![1; self.random.random_range(0..9)].into();
                Op::WriteInline { fid, offset: 0, data, cut: None, mtime: None }
            }
            9 => Op::SetAttr {
                fid,
                set: SetAttr {
                    valid: S_MODE,
                    mode: self.pick(&[0o600, 0o644]),
                    ..SetAttr::size(0)
                },
            },
            10 => Op::SetAttr {
                fid,
                set: SetAttr { valid: S_SIZE, ..SetAttr::size(self.pick(&[0, 7])) },
            },
            _ => Op::Link { fid, dir: Fid::ROOT, name: [&named(fid)[..], b"l"].concat() },
        }
    }

    fn note(&mut self, attr: &Attr) {
        let known = self.seen.entry((attr.fid, attr.version)).or_insert_with(|| attr.clone());
        assert_eq!(known, attr, "other attributes of the same version");
        let newest = self.newest.entry(attr.fid).or_default();
        assert!(attr.version >= *newest, "{attr:?} is older than what was told before");
        *newest = attr.version;
    }

    fn step(&mut self) {
        let client = self.random.random_range(0..self.clients.len());
        let op = self.op(client);
        match self.clients[client].one(op.clone()) {
            Ok(Res::Opened { attr, open }) => {
                self.open.push((client, attr.fid, open.handle));
                self.note(&attr);
            }
            Ok(Res::Attr { attr } | Res::Layout { attr, .. }) => self.note(&attr),
            Ok(_) | Err(Errno::EAGAIN | Errno::EEXIST | Errno::EINVAL | Errno::EFBIG) => {}
            Err(e) => panic!("{op:?}: {e}"),
        }
        for fid in self.files.clone() {
            let attr = self.clients[0].attr(fid).unwrap();
            self.note(&attr);
        }
    }
}

#[test]
fn attributes_that_differ_have_versions_that_differ() {
    let dir = tempfile::tempdir().unwrap();
    let label = OstLabel { fs: [7; 16], fs_name: "test".into(), index: 0, uuid: [0; 16] };
    Ost::format(dir.path(), &label).unwrap();
    let ost = OstOptions { reserve_bytes: Some(0), ..OstOptions::default() };
    let server = Server::new(ServerOptions::default());
    server.add(Arc::new(OstService::new(Ost::open(dir.path(), ost).unwrap()).unwrap()));
    let s = Solo::with(&MemoryDisk::new(), MdtOptions::default());
    s.mdt.set_osts(vec![(0, Endpoint::Local(server.local()))], None);
    for seed in 0..ROUNDS {
        let clients: Vec<_> = (0..3).map(|_| s.listener(Arc::new(Obliging))).collect();
        let at = clients[0].make(Fid::ROOT, &format!("d{seed}"), DIR).unwrap();
        let files = ["a", "b"].map(|name| clients[0].make(at, name, FILE).unwrap());
        common::until(|| {
            let begun = clients[0].one(Op::BeginWrite { fid: files[0], size_hint: 0 });
            begun.is_ok()
        });
        let mut world = World {
            clients,
            open: Vec::new(),
            files: files.to_vec(),
            seen: HashMap::new(),
            newest: HashMap::new(),
            random: StdRng::seed_from_u64(seed),
        };
        println!("seed {seed}");
        (0..STEPS).for_each(|_| world.step());
    }
    server.shutdown();
}
