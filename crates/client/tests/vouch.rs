//! Attributes that are kept above the client: vouched for while a lease stands for them, and called back.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::{World, root, until};
use parking_lot::Mutex;
use pinstripe_client::{Client, Data, Listener, OpenFlags};
use proto::attr::{S_MODE, SetAttr};
use proto::mds::{LS_ATTR, Lease};
use proto::{Attr, Fid, FileKind};

const WRITE: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };

#[derive(Default)]
struct Told {
    recalled: Mutex<Vec<Fid>>,
    doubts: AtomicU64,
}

impl Listener for Told {
    fn sole(&self, _: bool) {}
    fn forget(&self, _: Fid) {}
    fn recalled(&self, leases: &[Lease]) {
        let attrs = leases.iter().filter(|l| l.bits & LS_ATTR != 0);
        self.recalled.lock().extend(attrs.map(|l| l.fid));
    }
    fn doubted(&self) {
        self.doubts.fetch_add(1, SeqCst);
    }
    fn reset(&self) {}
}

fn listen(c: &Client) -> Arc<Told> {
    let told = Arc::new(Told::default());
    c.set_listener(told.clone());
    told
}

fn chmod(c: &Client, fid: Fid, mode: u32) -> Attr {
    let set = SetAttr { valid: S_MODE, mode, ..SetAttr::none() };
    c.setattr(&root(), fid, set, None).unwrap()
}

/// Makes a file `f` of these bytes, and closes it; what was told of it when it was empty.
fn write(c: &Client, bytes: &[u8]) -> Attr {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Slice(bytes)).unwrap();
    file.release();
    made.attr
}

/// Asks until what is told is vouched for.
fn vouched(c: &Client, fid: Fid) -> Attr {
    let mut attr = c.getattr(&root(), fid).unwrap();
    until(|| {
        attr = c.getattr(&root(), fid).unwrap();
        c.vouches(&attr).is_some_and(|left| left <= Duration::from_secs(18))
    });
    attr
}

#[test]
fn what_was_told_is_vouched_for_until_it_is_called_back() {
    let mut world = World::new(1);
    let a = world.client();
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let (file, fid) = (made.file.unwrap(), made.attr.fid);
    file.write(0, Data::Slice(b"some bytes")).unwrap();
    assert_eq!(a.vouches(&a.getattr(&root(), fid).unwrap()), None, "alone other rules hold");

    let b = world.client();
    let (of_a, of_b) = (listen(&a), listen(&b));
    let attr = a.getattr(&root(), fid).unwrap();
    assert_eq!(a.vouches(&attr), None, "it can be written behind its back");
    file.release();
    let attr = vouched(&a, fid);
    assert_eq!(attr.size, 10);

    // Another's change calls it back before it is done.
    let changed = chmod(&b, fid, 0o600);
    assert!(of_a.recalled.lock().contains(&fid));
    assert_eq!(a.vouches(&attr), None);
    assert_eq!(vouched(&a, fid).mode, changed.mode);
    // A change of its own does not call anything back; what was told before it is not vouched for.
    let before = vouched(&b, fid);
    let after = chmod(&b, fid, 0o640);
    assert_eq!(b.vouches(&before), None);
    assert_eq!(vouched(&b, fid).mode, after.mode);

    // Directories: what happens in them changes them.
    let dir = vouched(&a, Fid::ROOT);
    let sub = FileKind::Dir.mode_bits() | 0o755;
    b.create(&root(), Fid::ROOT, b"d", sub, 0, 0, b"", 0, None).unwrap();
    assert!(of_a.recalled.lock().contains(&Fid::ROOT));
    assert_eq!(a.vouches(&dir), None);
    assert_eq!(vouched(&a, Fid::ROOT).nlink, dir.nlink + 1);

    // Who lost the MDT believes nothing, and says so.
    let attr = vouched(&a, fid);
    let (doubts, more) = (of_a.doubts.load(SeqCst), of_b.doubts.load(SeqCst));
    world.stop_mdt();
    until(|| of_a.doubts.load(SeqCst) > doubts && of_b.doubts.load(SeqCst) > more);
    assert_eq!(a.vouches(&attr), None);
    world.start_mdt();
    assert_eq!(vouched(&a, fid).size, 10);
}

#[test]
fn what_was_read_here_is_vouched_for_however_it_is_looked_at() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let made = write(&a, b"some bytes");

    let file = b.open(&root(), made.fid, OpenFlags::from_libc(libc::O_RDONLY)).unwrap();
    assert_eq!(file.read(0, &mut [0; 20]).unwrap(), 10);
    file.release();
    // That it was read is told later.
    let attr = vouched(&b, made.fid);
    assert!(attr.atime > made.atime);
    let found = b.lookup(&root(), Fid::ROOT, b"f").unwrap();
    assert_eq!(found, attr);
    assert!(b.vouches(&found).is_some());
    let mut listed = b.readdir(&root(), Fid::ROOT, 0, 65_536, true).unwrap().entries;
    listed.retain(|entry| entry.name == b"f");
    assert_eq!(listed.remove(0).attr, Some(attr));
}

#[test]
fn what_is_told_and_not_durable_yet_is_vouched_for() {
    let world = World::new(2);
    let (a, _b) = (world.client(), world.client());
    let made = write(&a, &[7; 200_000]);
    assert_eq!(vouched(&a, made.fid).size, 200_000);
    assert!(a.stats().uncommitted_bytes > 0, "it was made durable before");
}
