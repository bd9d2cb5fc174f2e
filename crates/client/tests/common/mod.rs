//! A whole file system in one process: an MDT on a store in memory, OSTs in a temporary directory,
//! each behind a Unix socket of its own, so that any of them can be restarted under a client.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mds::{Mdt, MdtLabel, MdtOptions};
use net::{Endpoint, Server, ServerOptions};
use oss::{Ost, OstLabel, OstOptions, OstService};
use pinstripe_client::{Client, ClientConfig, Mgs, OpenFlags, Options, Pauses};
use proto::mds::Cred;
use proto::wire::List;
use store::memory::{self, MemoryDisk};

pub const FS: [u8; 16] = [7; 16];

/// Opens for reading, which moves access times.
pub const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    trunc: false,
    direct: false,
    sync: false,
    noatime: false,
};
/// Opens for writing.
pub const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..READ };

pub struct RunningOst {
    pub ost: Arc<Ost>,
    pub server: Server,
}

pub struct World {
    pub dir: tempfile::TempDir,
    pub disk: MemoryDisk,
    pub mdt: Option<(Arc<Mdt>, Server)>,
    pub osts: Vec<Option<RunningOst>>,
    /// Which run of the machine it is for OSTs that start; none: another one each time, so that a restart
    /// loses what was not synced as far as clients are told.
    pub machine: Option<[u8; 16]>,
    /// What OSTs that start keep free, bytes.
    pub reserve: u64,
}

pub fn root() -> Cred {
    Cred { uid: 0, gid: 0, groups: List(vec![]) }
}

impl World {
    pub fn new(osts: usize) -> World {
        let dir = tempfile::Builder::new().prefix("client-test").tempdir().unwrap();
        // Sockets are only made in a directory of their owner alone.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(dir.path(), mode).unwrap();
        let (disk, machine) = (MemoryDisk::default(), None);
        let mut world = World { dir, disk, mdt: None, osts: Vec::new(), machine, reserve: 0 };
        for i in 0..osts {
            let label =
                OstLabel { fs: FS, fs_name: "test".into(), index: i as u32, uuid: [i as u8; 16] };
            let path = world.ost_dir(i);
            std::fs::create_dir(&path).unwrap();
            Ost::format(&path, &label).unwrap();
            world.osts.push(None);
            world.start_ost(i);
        }
        world.start_mdt();
        world
    }

    fn ost_dir(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("ost{i}"))
    }

    pub fn ost_at(&self, i: usize) -> Endpoint {
        Endpoint::Unix(self.dir.path().join(format!("o{i}.sock")))
    }

    pub fn mdt_at(&self) -> Endpoint {
        Endpoint::Unix(self.dir.path().join("m.sock"))
    }

    pub fn start_ost(&mut self, i: usize) {
        let machine = Some(self.machine.unwrap_or_else(rand::random));
        let reserve_bytes = Some(self.reserve);
        let options = OstOptions { reserve_bytes, machine, ..OstOptions::default() };
        let ost = loop {
            match Ost::open(&self.ost_dir(i), options.clone()) {
                Ok(ost) => break ost,
                Err(e) => assert!(e.to_string().contains("in use"), "{e}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let server = Server::new(ServerOptions::default());
        server.add(Arc::new(OstService::new(ost.clone()).unwrap()));
        server.listen(&self.ost_at(i)).unwrap();
        self.osts[i] = Some(RunningOst { ost, server });
    }

    /// As kill -9 of the server: nothing is closed.
    pub fn stop_ost(&mut self, i: usize) {
        if let Some(running) = self.osts[i].take() {
            running.server.shutdown();
        }
        let Endpoint::Unix(path) = self.ost_at(i) else { return };
        let _ = std::fs::remove_file(path);
    }

    pub fn restart_ost(&mut self, i: usize) {
        self.stop_ost(i);
        self.start_ost(i);
    }

    pub fn start_mdt(&mut self) {
        let store = memory::acquire(&self.disk, "test", 0).unwrap();
        let label = MdtLabel { fs: FS, fsname: "test".into(), index: 0, uuid: [8; 16] };
        let options =
            MdtOptions { poll_interval: Duration::from_millis(20), ..MdtOptions::default() };
        let mdt = Mdt::with_store(label, Arc::from(store), options, "memory").unwrap();
        mdt.set_osts((0..self.osts.len()).map(|i| (i as u32, self.ost_at(i))).collect(), None);
        let server = Server::new(ServerOptions::default());
        server.add(mdt.clone());
        server.listen(&self.mdt_at()).unwrap();
        self.mdt = Some((mdt, server));
    }

    pub fn restart_mdt(&mut self) {
        self.stop_mdt();
        self.start_mdt();
    }

    pub fn stop_mdt(&mut self) {
        if let Some((mdt, server)) = self.mdt.take() {
            // The target first: its clients are lost, they did not say goodbye.
            mdt.close().unwrap();
            server.shutdown();
        }
        let Endpoint::Unix(path) = self.mdt_at() else { return };
        let _ = std::fs::remove_file(path);
    }

    /// As a crash of the MDT's machine: what is not durable is not made so.
    pub fn stop_mdt_hard(&mut self) {
        if let Some((mdt, server)) = self.mdt.take() {
            server.shutdown();
            // Its store is fenced; how its end fares interests nobody.
            let _ = mdt.close();
        }
        let Endpoint::Unix(path) = self.mdt_at() else { return };
        let _ = std::fs::remove_file(path);
    }

    pub fn config(&self, options: Options) -> ClientConfig {
        let mut targets = vec![("MDT0000".to_string(), self.mdt_at())];
        targets.extend((0..self.osts.len()).map(|i| (format!("OST{i:04x}"), self.ost_at(i))));
        ClientConfig {
            mgs: Mgs::Targets { fs: FS, targets },
            key: None,
            subdir: None,
            description: "test".into(),
            options,
        }
    }

    pub fn client(&self) -> Client {
        self.client_with(Options { pauses: wished_pauses(), ..Options::default() })
    }

    pub fn client_with(&self, options: Options) -> Client {
        Client::connect(self.config(options)).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some((mdt, server)) = self.mdt.take() {
            server.shutdown();
            let _ = mdt.close();
        }
        for i in 0..self.osts.len() {
            self.stop_ost(i);
        }
    }
}

/// Pauses in every client, by a seed in the environment: to look for what is rare in any of these tests.
fn wished_pauses() -> Pauses {
    match std::env::var("PINSTRIPE_TEST_PAUSES") {
        Ok(seed) => Pauses::seeded(seed.parse().unwrap(), 8, Duration::from_millis(3)),
        Err(_) => Pauses::default(),
    }
}

/// Polls until `what` holds.
pub fn until(mut what: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("did not come to be");
}
