//! Files with objects, on real OSTs: inline data moves into them, and they are destroyed behind an
//! unlink, once it is durable, also when an OST was down or the client is gone.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Client, FILE, Obliging, Solo};
use net::{ConnectOptions, Endpoint, Server, ServerOptions, Session};
use oss::{Ost, OstLabel, OstOptions, OstService};
use pinstripe_mds::MdtOptions;
use proto::attr::A_SIZE_LAGS;
use proto::mds::*;
use proto::{Errno, Fid, Layout, Wire, ops};
use store::memory::MemoryDisk;

struct Running {
    ost: Arc<Ost>,
    server: Server,
}

fn start(dir: &Path, index: u32) -> Running {
    let options = OstOptions { reserve_bytes: Some(0), ..OstOptions::default() };
    let ost = Ost::open(dir, options).unwrap();
    assert_eq!(ost.identity().index, index);
    let server = Server::new(ServerOptions::default());
    server.add(Arc::new(OstService::new(ost.clone()).unwrap()));
    Running { ost, server }
}

impl Running {
    fn endpoint(&self) -> Endpoint {
        Endpoint::Local(self.server.local())
    }
    fn objects(&self) -> u64 {
        self.ost.statfs().unwrap().objects
    }
    /// Writes the first bytes of a file's object.
    fn put(&self, layout: &Layout, fid: Fid, stripe: u16) {
        let options = ConnectOptions {
            target: self.ost.name().into(),
            fs: [7; 16],
            ..ConnectOptions::default()
        };
        let session = Session::connect(&self.endpoint(), options).unwrap();
        let data = bytes::Bytes::from(vec![5; 100]);
        let w = proto::oss::WriteReq {
            object: layout.object(fid, stripe),
            offset: 0,
            flags: proto::oss::W_NO_SUMS,
            sums: proto::wire::List(vec![]),
        };
        let r = session.call(ops::oss::WRITE, w.to_bytes(), vec![data]).unwrap();
        r.status().unwrap();
        session.close();
    }
}

fn stop(r: Running) {
    r.server.shutdown();
    r.ost.close().unwrap();
}

fn format(dir: &Path, index: u32) {
    let label = OstLabel { fs: [7; 16], fs_name: "test".into(), index, uuid: [index as u8; 16] };
    Ost::format(dir, &label).unwrap();
}

fn options() -> MdtOptions {
    MdtOptions {
        poll_interval: Duration::from_millis(10),
        orphan_grace: Duration::ZERO,
        ..MdtOptions::default()
    }
}

fn begin(c: &Client, fid: Fid) -> Layout {
    for _ in 0..30_000 {
        match c.one(Op::BeginWrite { fid, size_hint: 0 }) {
            Ok(Res::Layout { layout, .. }) => return layout,
            Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
    }
    panic!("no OST answered");
}

/// A file whose data is in objects, one on every OST.
fn striped(c: &Client, name: &str, osts: &[&Running]) -> (Fid, Layout) {
    let f = c.make(Fid::ROOT, name, FILE).unwrap();
    let layout = begin(c, f);
    for (stripe, index) in layout.osts.iter().enumerate() {
        osts[*index as usize].put(&layout, f, stripe as u16);
    }
    let report = SizeReport { size: 100, exact: true, blocks: None, mtime: None, atime: None };
    c.one(Op::DropInline { fid: f, report }).unwrap();
    (f, layout)
}

#[test]
fn objects_go_with_their_file_whoever_is_down_meanwhile() {
    let dirs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    for (i, d) in dirs.iter().enumerate() {
        format(d.path(), i as u32);
    }
    let (zero, one) = (start(dirs[0].path(), 0), start(dirs[1].path(), 1));
    let disk = MemoryDisk::new();
    let s = Solo::with(&disk, options());
    s.mdt.set_osts(vec![(0, zero.endpoint()), (1, one.endpoint())], None);
    let c = s.client();
    let (_, layout) = striped(&c, "a", &[&zero, &one]);
    assert_eq!(layout.osts.len(), 2);
    assert_eq!((zero.objects(), one.objects()), (1, 1));
    // Not before the unlink is durable.
    disk.hold();
    c.unlink(Fid::ROOT, "a", false).unwrap();
    common::until(|| disk.unsynced() > 0);
    assert_eq!((zero.objects(), one.objects()), (1, 1));
    assert!(s.mdt.backlog() > 0);
    disk.release();
    common::until(|| (zero.objects(), one.objects()) == (0, 0) && s.mdt.backlog() == 0);

    // One OST is down, then the MDT restarts: the other's objects go, and later its own.
    striped(&c, "b", &[&zero, &one]);
    stop(one);
    c.unlink(Fid::ROOT, "b", false).unwrap();
    c.sync();
    common::until(|| zero.objects() == 0);
    common::check(&disk, s, &[c]);
    let s = Solo::with(&disk, options());
    let one = start(dirs[1].path(), 1);
    assert_eq!(one.objects(), 1);
    s.mdt.set_osts(vec![(0, zero.endpoint()), (1, one.endpoint())], None);
    common::until(|| one.objects() == 0 && s.mdt.backlog() == 0);
    let c = s.client();
    c.sync();
    common::check(&disk, s, &[c]);
    stop(zero);
    stop(one);
}

#[test]
fn a_crashed_clients_open_file_is_reaped_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    format(dir.path(), 0);
    let ost = start(dir.path(), 0);
    let disk = MemoryDisk::new();
    let s = Solo::with(&disk, options());
    s.mdt.set_osts(vec![(0, ost.endpoint())], None);
    let c = s.client();
    let (f, _) = striped(&c, "a", &[&ost]);
    c.open(f, O_READ).unwrap();
    c.unlink(Fid::ROOT, "a", false).unwrap();
    assert_eq!(c.attr(f).unwrap().nlink, 0);
    c.sync();
    disk.power_cut();
    s.server.shutdown();
    drop((c, s));
    assert_eq!(ost.objects(), 1);
    let s = Solo::with(&disk, options());
    s.mdt.set_osts(vec![(0, ost.endpoint())], None);
    let c = s.client();
    common::until(|| ost.objects() == 0);
    assert_eq!(c.attr(f), Err(Errno::ESTALE));
    c.sync();
    common::check(&disk, s, &[c]);
    stop(ost);
}

/// Several write a file and none knows its size alone: what they reported is the truth when the last of
/// them has closed, unless one of them was lost and may have written more.
#[test]
fn a_size_is_the_truth_when_all_its_writers_have_closed() {
    let dir = tempfile::tempdir().unwrap();
    format(dir.path(), 0);
    let ost = start(dir.path(), 0);
    let disk = MemoryDisk::new();
    let s = Solo::with(&disk, options());
    s.mdt.set_osts(vec![(0, ost.endpoint())], None);
    let (a, b) = (s.listener(Arc::new(Obliging)), s.listener(Arc::new(Obliging)));
    let lags = |f| b.attr(f).unwrap().flags & A_SIZE_LAGS != 0;
    let wrote = |size| SizeReport { size, exact: false, blocks: None, mtime: None, atime: None };
    let f = a.make(Fid::ROOT, "f", FILE).unwrap();
    let first = a.open(f, O_WRITE).unwrap().handle;
    begin(&a, f);
    let second = b.open(f, O_WRITE).unwrap().handle;
    a.one(Op::Close { fid: f, handle: first, report: Some(wrote(100)) }).unwrap();
    assert!(lags(f), "the other still writes");
    b.one(Op::Report { fid: f, report: wrote(300) }).unwrap();
    assert!(lags(f));
    b.one(Op::Close { fid: f, handle: second, report: None }).unwrap();
    assert!(!lags(f));
    assert_eq!(b.attr(f).unwrap().size, 300);
    // One that goes without a word may have written beyond what it told.
    let second = b.open(f, O_WRITE).unwrap().handle;
    a.open(f, O_WRITE).unwrap();
    a.session.close();
    common::until(|| b.status()["open_files"] == 1);
    b.one(Op::Close { fid: f, handle: second, report: Some(wrote(400)) }).unwrap();
    assert!(lags(f));
    let again = b.open(f, O_WRITE).unwrap().handle;
    b.one(Op::Close { fid: f, handle: again, report: None }).unwrap();
    assert!(lags(f), "who comes later does not know either");
    b.one(Op::Report { fid: f, report: SizeReport { exact: true, ..wrote(350) } }).unwrap();
    assert!(!lags(f), "who asked the objects does");
    assert_eq!(b.attr(f).unwrap().size, 350);
    // Cut by its name while it is open for reading.
    let reads = b.open(f, O_READ).unwrap().handle;
    begin(&b, f);
    assert!(lags(f));
    let exact = SizeReport { exact: true, ..wrote(340) };
    b.one(Op::Close { fid: f, handle: reads, report: Some(exact) }).unwrap();
    assert!(!lags(f));
    assert_eq!(b.attr(f).unwrap().size, 340);
    b.sync();
    common::check(&disk, s, &[b]);
    stop(ost);
}

#[test]
fn a_move_that_was_not_finished_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    format(dir.path(), 0);
    let ost = start(dir.path(), 0);
    let disk = MemoryDisk::new();
    let s = Solo::with(&disk, options());
    s.mdt.set_osts(vec![(0, ost.endpoint())], None);
    let c = s.client();
    let f = c.make(Fid::ROOT, "a", FILE).unwrap();
    c.write(f, 0, b"inline").unwrap();
    let first = begin(&c, f);
    ost.put(&first, f, 0);
    // The data is inline until it is said to be in the objects.
    assert_eq!(c.read(f).unwrap(), b"inline");
    c.session.close();
    let c = s.client();
    let second = begin(&c, f);
    assert!(second.generation > first.generation);
    assert_eq!(c.read(f).unwrap(), b"inline");
    c.sync();
    common::until(|| ost.objects() == 0);
    ost.put(&second, f, 0);
    let report = SizeReport { size: 100, exact: true, blocks: None, mtime: None, atime: None };
    c.one(Op::DropInline { fid: f, report }).unwrap();
    assert_eq!(c.attr(f).unwrap().size, 100);
    // O_TRUNC sheds them again.
    let open = c.open(f, O_WRITE | O_TRUNC).unwrap();
    assert_eq!((open.layout, open.inline), (None, Some(bytes::Bytes::new())));
    c.sync();
    common::until(|| ost.objects() == 0);
    common::check(&disk, s, &[c]);
    stop(ost);
}
