//! Handlers that panic, forget their reply or block; files nobody implements.

use crate::memfs::{MemFs, Switches};
use crate::{Mounted, options, root};
use pinstripe_fuse::{
    Attr, AttrOut, Config, DirPlusBuf, Entry, Filesystem, Mount, Open, Reply, Request, Session,
    caps,
};
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn a_panic_or_a_dropped_reply_is_an_error_of_that_request_only() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    for _ in 0..40 {
        assert_eq!(errno(fs::metadata(m.path("panic"))), Some(libc::EIO));
        assert_eq!(errno(fs::metadata(m.path("dropped"))), Some(libc::EIO));
    }
    fs::write(m.path("f"), b"fine").unwrap();
    m.end();
}

#[test]
fn blocking_handlers_get_as_many_threads_as_configured() {
    if !root() {
        return;
    }
    const WIDTH: u64 = 16;
    let switches =
        Switches { open_flags: pinstripe_fuse::open_flags::DIRECT_IO, ..Switches::default() };
    let fs = MemFs::with_gate(switches, WIDTH);
    let config = Config { min_threads: 1, max_threads: WIDTH as usize, ..Config::default() };
    let m = Mounted::with(fs, &options(), config);
    fs::write(m.path("f"), b"x").unwrap();
    // Every read waits for all of them to have arrived.
    let readers: Vec<_> = (0..WIDTH)
        .map(|_| {
            let file = fs::File::open(m.path("f")).unwrap();
            std::thread::spawn(move || file.read_at(&mut [0u8; 8], 0).unwrap())
        })
        .collect();
    assert!(readers.into_iter().all(|r| r.join().unwrap() == 1));
    m.end();
}

struct Nothing;

impl Filesystem for Nothing {}

#[test]
fn a_file_system_without_methods_says_enosys_and_unmounts() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(dir.path(), &options()).unwrap();
    let session = Session::new(Arc::new(Nothing), mount, Config::default()).unwrap();
    let handle = session.handle();
    let running = session.spawn().unwrap();
    let results = [errno(fs::metadata(dir.path().join("x"))), errno(fs::read_dir(dir.path()))];
    handle.unmount(true).unwrap();
    running.join().unwrap();
    assert_eq!(results, [Some(libc::ENOSYS); 2]);
}

struct Refuses;

impl Filesystem for Refuses {
    fn init(&self, _: &pinstripe_fuse::InitInfo) -> pinstripe_fuse::Result<()> {
        Err(pinstripe_fuse::Errno::new(libc::EROFS))
    }
}

#[test]
fn a_file_system_that_refuses_to_start_leaves_no_mount() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(dir.path(), &options()).unwrap();
    let error = Session::new(Arc::new(Refuses), mount, Config::default()).err().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    assert_eq!(pinstripe_fuse::inspect(dir.path()).unwrap(), pinstripe_fuse::MountState::None);
}

/// Its listing tells of a node that cannot be: the kernel takes back that it knows it, and the caller waits for that.
#[derive(Default)]
struct Odd {
    forgotten: std::sync::Mutex<Vec<u64>>,
}

const ODD_NODE: u64 = 77;

impl Filesystem for Odd {
    fn getattr(&self, _: &Request, ino: u64, _: Option<u64>, reply: Reply<AttrOut>) {
        reply.ok(AttrOut { attr: directory(ino), ttl: Duration::from_secs(1) });
    }

    fn opendir(&self, _: &Request, _: u64, _: u32, reply: Reply<Open>) {
        reply.ok(Open { fh: 1, flags: 0 });
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: u64,
        _: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirPlusBuf>,
    ) {
        let mut buf = DirPlusBuf::new(size);
        if offset == 0 {
            let attr = Attr { ino: ODD_NODE, mode: 0, nlink: 1, ..Attr::default() };
            let ttl = Duration::from_secs(1);
            let odd =
                Entry { nodeid: ODD_NODE, generation: 0, entry_ttl: ttl, attr_ttl: ttl, attr };
            assert!(buf.add(&odd, 1, std::ffi::OsStr::new("odd")));
        }
        reply.ok(buf);
    }

    fn forget(&self, nodeid: u64, _: u64) {
        self.forgotten.lock().unwrap().push(nodeid);
    }
}

fn directory(ino: u64) -> Attr {
    Attr { ino, mode: 0o40_755, nlink: 2, ..Attr::default() }
}

#[test]
fn a_listing_with_an_impossible_node_ends_and_the_node_is_forgotten() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(dir.path(), &options()).unwrap();
    let fs = Arc::new(Odd::default());
    let config = Config { wanted: caps::DO_READDIRPLUS, ..Config::default() };
    let session = Session::new(fs.clone(), mount, config).unwrap();
    let handle = session.handle();
    let running = session.spawn().unwrap();
    // A process of its own: one that waits in its own mount never ends.
    let mut listing = Command::new("ls").arg("-f").arg(dir.path()).stdout(Stdio::piped()).spawn();
    let listing = listing.as_mut().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while listing.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the listing waits for the answer to a FORGET");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut names = String::new();
    listing.stdout.take().unwrap().read_to_string(&mut names).unwrap();
    handle.unmount(true).unwrap();
    running.join().unwrap();
    assert_eq!(names, "odd\n");
    assert!(fs.forgotten.lock().unwrap().contains(&ODD_NODE));
}
