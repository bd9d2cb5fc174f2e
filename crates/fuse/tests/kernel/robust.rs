//! Handlers that panic, forget their reply or block; files nobody implements.

use crate::memfs::{MemFs, Switches};
use crate::{Mounted, options, root};
use pinstripe_fuse::{Config, Filesystem, Mount, Session};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

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
