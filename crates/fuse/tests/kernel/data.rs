//! File contents through system calls.

use crate::memfs::{MemFs, Switches};
use crate::{Mounted, options, root};
use pinstripe_fuse::{Config, open_flags};
use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn contents_equal_those_of_a_local_file() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let local = tempfile::tempdir().unwrap();
    let run = |path: std::path::PathBuf| {
        let mut f =
            File::options().create(true).read(true).write(true).truncate(true).open(&path).unwrap();
        f.write_all(&pattern(3 << 20)).unwrap();
        f.write_all_at(b"in the middle", 4090).unwrap();
        f.set_len(1_000_003).unwrap();
        f.write_all_at(b"beyond", 1_200_000).unwrap();
        f.seek(std::io::SeekFrom::Start(0)).unwrap();
        let mut a = File::options().append(true).open(&path).unwrap();
        a.write_all(b"at the end").unwrap();
        f.sync_all().unwrap();
        f.sync_data().unwrap();
        let mut all = Vec::new();
        f.read_to_end(&mut all).unwrap();
        let mut edge = [0u8; 64];
        let n = f.read_at(&mut edge, all.len() as u64 - 3).unwrap();
        File::options().write(true).truncate(true).open(&path).unwrap();
        (all, n, edge, fs::metadata(&path).unwrap().len())
    };
    assert!(run(m.path("f")) == run(local.path().join("f")));
    assert_eq!((m.fs.called("fsync"), m.fs.called("fdatasync")), (1, 1));
    let fs = m.end();
    assert!(!fs.unaligned.load(Ordering::SeqCst));
    assert!(fs.called("flush") > 0 && fs.called("release") > 0);
}

#[test]
fn direct_writes_come_in_requests_of_a_mebibyte() {
    if !root() {
        return;
    }
    let open_flags = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
    let m = Mounted::switched(Switches { open_flags, keep_writes: true, ..Switches::default() });
    let data = pattern(3 << 20);
    let mut f = File::options();
    let mut f = f
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .custom_flags(libc::O_DIRECT)
        .open(m.path("f"))
        .unwrap();
    f.write_all(&data).unwrap();
    assert_eq!(m.fs.largest_write.load(Ordering::SeqCst), 1 << 20);
    assert!(!m.fs.unaligned.load(Ordering::SeqCst));
    // What was taken out of the requests is still there after others used the reader's buffer.
    let kept: Vec<u8> = m.fs.kept.lock().unwrap().iter().flat_map(|b| b.to_vec()).collect();
    assert!(kept == data);
    let mut back = vec![0; data.len()];
    f.rewind().unwrap();
    f.read_exact(&mut back).unwrap();
    assert!(back == data);
}

#[test]
fn small_requests_where_the_configuration_says_so() {
    if !root() {
        return;
    }
    let open_flags = open_flags::DIRECT_IO;
    let fs = MemFs::new(Switches { open_flags, ..Switches::default() });
    let config = Config { max_write: 65_000, ..Config::default() };
    let m = Mounted::with(fs, &options(), config);
    fs::write(m.path("f"), pattern(1 << 20)).unwrap();
    assert_eq!(m.fs.largest_write.load(Ordering::SeqCst), 61_440);
    assert!(fs::read(m.path("f")).unwrap() == pattern(1 << 20));
}

#[test]
fn allocation_holes_and_copies() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let f = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(m.path("f"))
        .unwrap();
    f.write_all_at(&[1; 16384], 0).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::empty(), 16384, 4096).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 20480);
    rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, 20480, 4096).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 20480);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&f, punch, 4096, 4096).unwrap();
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Data(4096)), Ok(8192));
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Data(16384)), Err(rustix::io::Errno::NXIO));

    let to = File::create(m.path("to")).unwrap();
    let (mut off_in, mut off_out) = (3000, 100);
    let n = rustix::fs::copy_file_range(&f, Some(&mut off_in), &to, Some(&mut off_out), 10_000)
        .unwrap();
    assert_eq!((n, m.fs.called("copy_file_range")), (10_000, 1));
    let source = fs::read(m.path("f")).unwrap();
    assert!(fs::read(m.path("to")).unwrap()[100..] == source[3000..13_000]);
}

#[test]
fn memory_maps_shared_and_private() {
    if !root() {
        return;
    }
    for open_flags in [0, open_flags::DIRECT_IO] {
        let m = Mounted::switched(Switches { open_flags, ..Switches::default() });
        let f = File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(m.path("f"))
            .unwrap();
        f.write_all_at(&pattern(8192), 0).unwrap();
        map(&f, libc::MAP_PRIVATE, |private| {
            assert!(private == pattern(8192));
            private[0] = 200;
        });
        assert_eq!(fs::read(m.path("f")).unwrap()[0], 0);
        map(&f, libc::MAP_SHARED, |shared| shared[5000] = 77);
        f.sync_all().unwrap();
        assert_eq!(fs::read(m.path("f")).unwrap()[5000], 77, "open flags {open_flags}");
    }
}

fn map(f: &File, kind: i32, with: impl FnOnce(&mut [u8])) {
    let len = 8192;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of an open file.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, kind, f.as_raw_fd(), 0) };
    assert_ne!(p, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // SAFETY: mapped for len bytes, and nobody else uses it.
    with(unsafe { std::slice::from_raw_parts_mut(p.cast(), len) });
    // SAFETY: the same range, used by nobody any more.
    unsafe {
        assert_eq!(libc::msync(p, len, libc::MS_SYNC), 0);
        assert_eq!(libc::munmap(p, len), 0);
    }
}
