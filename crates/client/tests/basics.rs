//! What a user does first: make, write, read, list, rename, remove.

mod common;

use common::{World, root};
use pinstripe_client::{Client, ClientConfig, Data, FallocMode, OpenFlags, Options, Whence};
use proto::layout::LayoutSpec;
use proto::mds::{C_EXCL, RN_EXCHANGE};
use proto::{Errno, Fid, FileKind};

const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };

fn file() -> u32 {
    FileKind::File.mode_bits() | 0o644
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn small_files_take_few_messages() {
    let world = World::new(1);
    let c = world.client();
    let before = c.stats().mds_messages;
    let made = c.create(&root(), Fid::ROOT, b"a", file(), 0, 0, b"", C_EXCL, Some(RW)).unwrap();
    let f = made.file.unwrap();
    assert_eq!(f.write(0, Data::Slice(b"hello")).unwrap(), 5);
    assert_eq!(f.attr().unwrap().size, 5);
    f.flush().unwrap();
    f.release();
    c.sync_all().unwrap();
    let stats = c.stats();
    assert_eq!(stats.mds_messages - before, 3, "create, write and close, sync: {stats:?}");
    assert_eq!(stats.oss_messages["write"], 0);
    let attr = c.lookup(&root(), Fid::ROOT, b"a").unwrap();
    assert_eq!((attr.size, attr.fid), (5, made.attr.fid));
    let f = c.open(&root(), attr.fid, RW).unwrap();
    let mut buf = [0; 10];
    assert_eq!(f.read(0, &mut buf).unwrap(), 5);
    assert_eq!(&buf[..5], b"hello");
    assert_eq!(f.read(5, &mut buf).unwrap(), 0);
}

#[test]
fn a_growing_file_moves_to_its_objects_and_reads_back() {
    let world = World::new(4);
    let c = world.client();
    let data = bytes(1, 9 << 20);
    let made = c.create(&root(), Fid::ROOT, b"big", file(), 0, 0, b"", 0, Some(RW)).unwrap();
    let f = made.file.unwrap();
    for (i, part) in data.chunks(47_008).enumerate() {
        f.write(i as u64 * 47_008, Data::Slice(part)).unwrap();
    }
    assert_eq!(c.getattr(&root(), f.fid()).unwrap().size, data.len() as u64);
    f.fsync(false).unwrap();
    assert_eq!(c.stats().dirty_bytes + c.stats().uncommitted_bytes, 0);
    f.release();
    drop(c);
    let c = world.client();
    let attr = c.lookup(&root(), Fid::ROOT, b"big").unwrap();
    assert_eq!(attr.size, data.len() as u64);
    let f = c.open(&root(), attr.fid, OpenFlags { write: false, ..RW }).unwrap();
    let mut back = vec![0; data.len() + 10];
    let (mut at, mut step) = (0, 1000);
    while let n @ 1.. = f.read(at as u64, &mut back[at..(at + step).min(data.len() + 10)]).unwrap()
    {
        at += n;
        step = step % 300_000 + 70_001;
    }
    assert_eq!(at, data.len());
    assert!(back[..at] == data[..]);
    let layout = c.get_layout(&root(), attr.fid).unwrap().layout.unwrap();
    assert_eq!(layout.osts.len(), 4);
}

#[test]
fn a_file_that_was_inline_and_stored_keeps_its_bytes_when_it_grows() {
    let world = World::new(2);
    let c = world.client();
    let data = bytes(2, 200_000);
    let f =
        c.create(&root(), Fid::ROOT, b"x", file(), 0, 0, b"", 0, Some(RW)).unwrap().file.unwrap();
    f.write(0, Data::Slice(&data[..50_000])).unwrap();
    f.fsync(false).unwrap();
    for (i, part) in data[50_000..].chunks(10_000).enumerate() {
        assert_eq!(f.append(Data::Slice(part)).unwrap(), 50_000 + i as u64 * 10_000);
    }
    f.release();
    drop((f, c));
    let c = world.client();
    let attr = c.lookup(&root(), Fid::ROOT, b"x").unwrap();
    let f = c.open(&root(), attr.fid, RW).unwrap();
    let mut back = vec![0; 200_001];
    assert_eq!(f.read(0, &mut back).unwrap(), 200_000);
    assert!(back[..200_000] == data[..]);
}

#[test]
fn names_links_and_renames() {
    let world = World::new(1);
    let c = world.client();
    let r = root();
    let dir = FileKind::Dir.mode_bits() | 0o755;
    let d = c.create(&r, Fid::ROOT, b"d", dir, 0, 0, b"", C_EXCL, None).unwrap().attr.fid;
    let a = c.create(&r, d, b"a", file(), 0, 0, b"", C_EXCL, None).unwrap().attr.fid;
    let link = FileKind::Symlink.mode_bits() | 0o777;
    let s = c.create(&r, d, b"s", link, 0, 0, b"a/b", C_EXCL, None).unwrap().attr.fid;
    assert_eq!(&c.readlink(&r, s).unwrap()[..], b"a/b");
    assert_eq!(c.link(&r, a, d, b"b").unwrap().nlink, 2);
    assert_eq!(c.rename(&r, d, b"a", Fid::ROOT, b"z", 0).unwrap().0.fid, a);
    assert_eq!(c.lookup(&r, d, b"a").unwrap_err(), Errno::ENOENT);
    c.rename(&r, Fid::ROOT, b"z", d, b"s", RN_EXCHANGE).unwrap();
    assert_eq!(c.lookup(&r, d, b"s").unwrap().fid, a);
    let names: Vec<Vec<u8>> =
        c.readdir(&r, d, 0, 65536, true).unwrap().entries.into_iter().map(|e| e.name).collect();
    assert_eq!(names.len(), 2);
    assert_eq!(c.rmdir(&r, Fid::ROOT, b"d").unwrap_err(), Errno::ENOTEMPTY);
    c.unlink(&r, d, b"s").unwrap();
    assert_eq!(c.unlink(&r, d, b"b").unwrap().nlink, 0);
    c.rmdir(&r, Fid::ROOT, b"d").unwrap();
    c.setxattr(&r, s, b"trusted.x", b"v", 0).unwrap();
    assert_eq!(&c.getxattr(&r, s, b"trusted.x").unwrap()[..], b"v");
    assert_eq!(&c.listxattr(&r, s).unwrap()[..], b"trusted.x\0");
    c.removexattr(&r, s, b"trusted.x").unwrap();
    assert_eq!(c.fid_to_path(&r, s).unwrap(), vec![b"/z".to_vec()]);
    assert!(c.statfs().unwrap().total > 0);
}

#[test]
fn of_a_subdirectory_that_is_mounted_paths_begin_there() {
    let world = World::new(1);
    let (c, r) = (world.client(), root());
    let make = |dir, name: &[u8], mode| {
        c.create(&r, dir, name, mode, 0, 0, b"", 0, None).unwrap().attr.fid
    };
    let a = make(Fid::ROOT, b"a", 0o040_755);
    let b = make(a, b"b", 0o040_755);
    let (beside, file) = (make(a, b"beside", 0o100_644), make(b, b"file", 0o100_644));
    c.link(&r, file, a, b"linked").unwrap();
    c.sync_all().unwrap();
    let config = ClientConfig { subdir: Some("a/b".into()), ..world.config(Options::default()) };
    let sub = Client::connect(config).unwrap();
    let paths = |fid| sub.fid_to_path(&r, fid);
    assert_eq!(paths(b), Ok(vec![b"/".to_vec()]));
    assert_eq!(paths(file), Ok(vec![b"/file".to_vec()]), "and not its other link");
    assert_eq!((paths(beside), paths(a)), (Err(Errno::ENOENT), Err(Errno::ENOENT)));
    c.rename(&r, a, b"b", Fid::ROOT, b"moved", 0).unwrap();
    c.sync_all().unwrap();
    assert_eq!(paths(file), Ok(vec![b"/file".to_vec()]));
    let mut whole = c.fid_to_path(&r, file).unwrap();
    whole.sort();
    assert_eq!(whole, [b"/a/linked".to_vec(), b"/moved/file".to_vec()]);
}

#[test]
fn an_unlinked_open_file_lives_until_its_release() {
    let world = World::new(2);
    let c = world.client();
    let f =
        c.create(&root(), Fid::ROOT, b"t", file(), 0, 0, b"", 0, Some(RW)).unwrap().file.unwrap();
    let data = bytes(3, 300_000);
    f.write(0, Data::Slice(&data)).unwrap();
    assert_eq!(c.unlink(&root(), Fid::ROOT, b"t").unwrap().nlink, 0);
    f.fsync(false).unwrap();
    let mut back = vec![0; data.len()];
    assert_eq!(f.read(0, &mut back).unwrap(), data.len());
    assert!(back == data);
    let fid = f.fid();
    f.release();
    c.sync_all().unwrap();
    assert!(c.getattr(&root(), fid).is_err());
    assert_eq!(f.read(0, &mut back).unwrap_err(), Errno::EBADF);
}

#[test]
fn times_set_by_hand_survive_the_data_written_before() {
    let world = World::new(1);
    let c = world.client();
    for len in [100, 300_000] {
        let name = format!("f{len}");
        let made = c.create(&root(), Fid::ROOT, name.as_bytes(), file(), 0, 0, b"", 0, Some(RW));
        let f = made.unwrap().file.unwrap();
        f.write(0, Data::Slice(&bytes(4, len))).unwrap();
        let t = proto::TimeSpec { sec: 1000, nsec: 5 };
        let set =
            proto::SetAttr { valid: proto::attr::S_MTIME, mtime: t, ..proto::SetAttr::none() };
        assert_eq!(c.setattr(&root(), f.fid(), set, Some(&f)).unwrap().mtime, t);
        f.flush().unwrap();
        f.release();
        c.sync_all().unwrap();
        let attr = c.lookup(&root(), Fid::ROOT, name.as_bytes()).unwrap();
        assert_eq!((attr.mtime, attr.size), (t, len as u64));
    }
}

#[test]
fn sparse_files_have_holes_where_nothing_was_written() {
    let world = World::new(3);
    let c = world.client();
    let spec = LayoutSpec { stripe_size: 65536, stripe_count: 3, stripe_offset: -1 };
    c.set_layout(&root(), Fid::ROOT, spec).unwrap();
    let f =
        c.create(&root(), Fid::ROOT, b"s", file(), 0, 0, b"", 0, Some(RW)).unwrap().file.unwrap();
    let far = 9 << 40;
    f.write(far, Data::Slice(&[7; 4096])).unwrap();
    assert_eq!(f.seek(0, Whence::Data).unwrap(), far);
    assert_eq!(f.seek(0, Whence::Hole).unwrap(), 0);
    assert_eq!(f.seek(far, Whence::Hole).unwrap(), far + 4096);
    assert_eq!(f.seek(far + 4096, Whence::Hole).unwrap_err(), Errno::ENXIO);
    let mut buf = [1; 5000];
    assert_eq!(f.read(far - 904, &mut buf).unwrap(), 5000);
    assert!(buf[..904].iter().all(|b| *b == 0) && buf[904..].iter().all(|b| *b == 7));
    f.fallocate(FallocMode::Punch, far, 4096).unwrap();
    assert_eq!(f.seek(0, Whence::Data).unwrap_err(), Errno::ENXIO);
    assert_eq!(f.attr().unwrap().size, far + 4096);
}
