//! A target on a store in memory, and a client that speaks to it over `net` in process.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use net::{CallReply, ConnectOptions, Endpoint, Events, Server, ServerOptions, Session};
use pinstripe_mds::{Mdt, MdtLabel, MdtOptions};
use proto::mds::*;
use proto::wire::List;
use proto::{Attr, Errno, Fid, FidRange, Wire, ops};
use store::memory::{self, MemoryDisk};

pub struct Solo {
    pub mdt: Arc<Mdt>,
    pub server: Server,
}

pub fn label() -> MdtLabel {
    MdtLabel { fs: [7; 16], fsname: "test".into(), index: 0, uuid: [8; 16] }
}

impl Solo {
    pub fn new(disk: &MemoryDisk) -> Solo {
        Solo::with(disk, MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() })
    }

    pub fn with(disk: &MemoryDisk, options: MdtOptions) -> Solo {
        let store = memory::acquire(disk, "test", 0).unwrap();
        let mdt = Mdt::with_store(label(), Arc::from(store), options, "memory").unwrap();
        let server = Server::new(ServerOptions::default());
        server.add(mdt.clone());
        Solo { mdt, server }
    }

    pub fn client(&self) -> Client {
        self.client_with(0, rand::random())
    }

    pub fn client_with(&self, features: u64, client: [u8; 16]) -> Client {
        let options = ConnectOptions { client, features, ..connect() };
        Client::at(&Endpoint::Local(self.server.local()), options)
    }

    /// A client that hears call-backs.
    pub fn listener(&self, events: Arc<dyn Events>) -> Client {
        let options = ConnectOptions { events, ..connect() };
        Client::at(&Endpoint::Local(self.server.local()), options)
    }
}

pub fn connect() -> ConnectOptions {
    ConnectOptions {
        target: "MDT0000".into(),
        fs: [7; 16],
        description: "test".into(),
        ..ConnectOptions::default()
    }
}

/// A directory whose sockets nobody else can reach.
pub fn private_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o700)).tempdir().unwrap()
}

/// Polls a condition that comes true by itself, if it ever does.
pub fn until(mut f: impl FnMut() -> bool) {
    for _ in 0..300_000 {
        if f() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it did not come true");
}

/// Gives back whatever is called back.
pub struct Obliging;

impl Events for Obliging {
    fn call(&self, _: u16, _: bytes::Bytes, reply: CallReply) {
        reply.send(0, vec![]);
    }
}

pub fn body(ops: Vec<Op>) -> Vec<u8> {
    let cred = Cred { uid: 10, gid: 20, groups: List(vec![]) };
    Compound::new(cred, ops).to_bytes()
}

pub struct Client {
    pub session: Arc<Session>,
    pub grant: Grant,
    fids: parking_lot::Mutex<FidRange>,
}

impl Client {
    pub fn at(endpoint: &Endpoint, options: ConnectOptions) -> Client {
        let session = Session::connect(endpoint, options).unwrap();
        let grant = Grant::from_bytes(&session.welcome().data).unwrap();
        Client { session, fids: parking_lot::Mutex::new(grant.fids.clone()), grant }
    }

    pub fn create(&self, dir: Fid, name: &str) -> Op {
        Op::Create {
            dir,
            name: name.into(),
            fid: self.fid(),
            mode: FILE,
            umask: 0,
            rdev: 0,
            target: vec![],
            flags: C_EXCL,
            open: 0,
        }
    }

    pub fn status(&self) -> serde_json::Value {
        let Ok(Res::Data { data }) = self.one(Op::Status {}) else { panic!() };
        serde_json::from_slice(&data).unwrap()
    }

    pub fn fid(&self) -> Fid {
        if let Some(fid) = self.fids.lock().take() {
            return fid;
        }
        let Ok(Res::Fids { mut range }) = self.one(Op::AllocFids {}) else { panic!() };
        let fid = range.take().unwrap();
        *self.fids.lock() = range;
        fid
    }

    pub fn run(&self, ops: Vec<Op>) -> Vec<Res> {
        let r = self.session.call(ops::mds::COMPOUND, body(ops), vec![]).unwrap();
        r.status().unwrap();
        CompoundReply::from_bytes(&r.body).unwrap().results.0
    }

    pub fn one(&self, op: Op) -> Result<Res, Errno> {
        match self.run(vec![op]).pop().unwrap() {
            Res::Failed { errno } => Err(Errno(errno.into())),
            res => Ok(res),
        }
    }

    pub fn make(&self, dir: Fid, name: &str, mode: u32) -> Result<Fid, Errno> {
        let fid = self.fid();
        self.one(Op::Create {
            dir,
            name: name.into(),
            fid,
            mode,
            umask: 0o022,
            rdev: 0,
            target: vec![],
            flags: C_EXCL,
            open: 0,
        })?;
        Ok(fid)
    }

    pub fn lookup(&self, dir: Fid, name: &str) -> Result<Attr, Errno> {
        match self.one(Op::Lookup { dir, name: name.into() })? {
            Res::Entry { attr, .. } => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn attr(&self, fid: Fid) -> Result<Attr, Errno> {
        match self.one(Op::GetAttr { fid })? {
            Res::Attr { attr } => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn unlink(&self, dir: Fid, name: &str, rmdir: bool) -> Result<(), Errno> {
        self.one(Op::Unlink { dir, name: name.into(), rmdir }).map(drop)
    }

    pub fn rename(&self, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Result<(), Errno> {
        self.one(Op::Rename {
            from_dir: from.0,
            from: from.1.into(),
            to_dir: to.0,
            to: to.1.into(),
            flags,
        })
        .map(drop)
    }

    pub fn link(&self, fid: Fid, dir: Fid, name: &str) -> Result<(), Errno> {
        self.one(Op::Link { fid, dir, name: name.into() }).map(drop)
    }

    pub fn open(&self, fid: Fid, flags: u32) -> Result<OpenInfo, Errno> {
        match self.one(Op::Open { fid, flags, handle: 0 })? {
            Res::Opened { open, .. } => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let data = bytes::Bytes::copy_from_slice(data);
        self.one(Op::WriteInline { fid, offset, data, cut: None, mtime: None }).map(drop)
    }

    pub fn read(&self, fid: Fid) -> Result<Vec<u8>, Errno> {
        match self.one(Op::ReadInline { fid })? {
            Res::Inline { data, .. } => Ok(data.unwrap_or_default().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub fn list(&self, dir: Fid) -> Vec<String> {
        let mut names: Vec<_> = self
            .entries(dir, 2000)
            .into_iter()
            .map(|e| String::from_utf8(e.name).unwrap())
            .collect();
        names.sort();
        names
    }

    /// All entries, fetched in parts.
    pub fn entries(&self, dir: Fid, max_bytes: u32) -> Vec<DirEntry> {
        let (mut cookie, mut all) = (0, vec![]);
        loop {
            let op = Op::ReadDir { dir, cookie, max_bytes, flags: RD_PLUS };
            let Ok(Res::Entries { entries, end }) = self.one(op) else { panic!() };
            cookie = entries.0.last().map_or(cookie, |e| e.cookie);
            all.extend(entries.0);
            if end {
                return all;
            }
        }
    }

    pub fn xattrs(&self, fid: Fid) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let Ok(Res::Data { data }) = self.one(Op::ListXattr { fid }) else { panic!() };
        let names = data.split(|b| *b == 0).filter(|n| !n.is_empty());
        names
            .map(|n| match self.one(Op::GetXattr { fid, name: n.to_vec() }) {
                Ok(Res::Data { data }) => (n.to_vec(), data.to_vec()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// One operation, with the transaction number of its answer.
    pub fn call(&self, op: &Op) -> (Res, u64) {
        let r = self.session.call(ops::mds::COMPOUND, body(vec![op.clone()]), vec![]).unwrap();
        r.status().unwrap();
        let res = CompoundReply::from_bytes(&r.body).unwrap().results.0.pop().unwrap();
        (res, r.header.transno.get())
    }

    pub fn sync(&self) {
        self.one(Op::Sync {}).unwrap();
    }
}

/// Stops a target and checks what it left; nothing may be wrong.
pub fn check(disk: &MemoryDisk, solo: Solo, clients: &[Client]) {
    solo.mdt.close().unwrap();
    for c in clients {
        c.session.close();
    }
    drop(solo);
    let store = memory::acquire(disk, "check", 0).unwrap();
    let report = pinstripe_mds::check::check(&*store.snapshot().unwrap()).unwrap();
    assert_eq!(report.problems, []);
}

pub const FILE: u32 = 0o100666;
pub const DIR: u32 = 0o040777;
