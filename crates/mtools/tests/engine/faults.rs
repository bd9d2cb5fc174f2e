//! Sources that change, disks that are full, and processes that are killed.

use crate::tools::{Random, copy, data, disk, same, sides};
use mtools::engine::{Engine, Fault, Reflink, Settings, Sparse, Switch};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const INNER: &str = "ENGINE_TEST_INNER";

/// This test again, in a process of its own, told `value`.
fn again(test: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INNER, value);
    command
}

fn chunked(threads: usize) -> Settings {
    Settings { threads, split_size: 256 << 10, buffer_size: 64 << 10, ..Settings::default() }
}

#[test]
fn a_source_that_grows_is_copied_to_an_end_it_had() {
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    let bytes = Random::new().bytes(4 << 20);
    std::fs::write(&src, &bytes).unwrap();
    let one = sides(&src, &dst, Sparse::Auto, Reflink::Auto);
    // Behind the size that was asked before, as cp does it.
    File::options().append(true).open(&src).unwrap().write_all(&bytes[..100_000]).unwrap();
    let copied = copy(&Engine::new(chunked(2)).unwrap(), one).unwrap();
    assert_eq!(copied.bytes, (4 << 20) + 100_000);
    same(&src, &dst);

    let (stop, path) = (Arc::new(AtomicBool::new(false)), src.clone());
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        let mut file = File::options().append(true).open(path).unwrap();
        while !stopped.load(Ordering::Relaxed) {
            file.write_all(&[7; 5000]).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    for threads in [1, 2] {
        let engine = Engine::new(chunked(threads)).unwrap();
        let copied = copy(&engine, sides(&src, &dst, Sparse::Auto, Reflink::Auto)).unwrap();
        let (from, to) = (std::fs::read(&src).unwrap(), std::fs::read(&dst).unwrap());
        assert_eq!(copied.bytes, to.len() as u64);
        assert!(from.starts_with(&to) && to.len() >= (4 << 20) + 100_000);
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[test]
fn a_source_that_shrinks_ends_where_it_ended() {
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    let bytes = Random::new().bytes(8 << 20);
    for threads in [1, 2, 4] {
        for round in 0..10 {
            std::fs::write(&src, &bytes).unwrap();
            let engine = Engine::new(chunked(threads)).unwrap();
            let one = sides(&src, &dst, Sparse::Auto, Reflink::Auto);
            let (path, left) = (src.clone(), 300_000 * round);
            let cutter = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(left));
                File::options().write(true).open(path).unwrap().set_len(left).unwrap();
            });
            let copied = copy(&engine, one).unwrap();
            cutter.join().unwrap();
            let to = std::fs::read(&dst).unwrap();
            assert_eq!(copied.bytes, to.len() as u64);
            assert!(bytes.starts_with(&to) && to.len() as u64 >= left);
        }
    }
}

/// A file system of 4 MiB in memory, seen by this process alone.
fn small_tmpfs(at: &Path) {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    // SAFETY: the process has one thread that matters; files stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(c"size=4m")).unwrap();
}

#[test]
fn a_full_disk_is_a_fault_and_leaves_what_is_whole() {
    let name = "faults::a_full_disk_is_a_fault_and_leaves_what_is_whole";
    if !rustix::process::geteuid().is_root() {
        println!("only root may mount");
        return;
    }
    if std::env::var_os(INNER).is_none() {
        let out = again(name, "1").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (src, small) = (dir.path().join("src"), dir.path().join("small"));
    let bytes = Random::new().bytes(8 << 20);
    std::fs::write(&src, &bytes).unwrap();
    std::fs::create_dir(&small).unwrap();
    // The namespace belongs to a thread; those started from here on share it.
    std::thread::spawn(move || {
        small_tmpfs(&small);
        for threads in [1, 2, 5] {
            let dst = small.join("dst");
            let engine = Engine::new(chunked(threads)).unwrap();
            let result = copy(&engine, sides(&src, &dst, Sparse::Auto, Reflink::Auto));
            let Err(Fault::Write(e)) = result else { panic!("{result:?}") };
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
            let to = std::fs::read(&dst).unwrap();
            assert!(to.len() <= 4 << 20 && bytes.starts_with(&to));
            assert!(threads > 1 || to.len() > 3 << 20, "{}", to.len());
            std::fs::remove_file(&dst).unwrap();
            // Asked for all of it before, the file system says so before the first byte.
            let engine =
                Engine::new(Settings { preallocate: Switch::On, ..chunked(threads) }).unwrap();
            let result = copy(&engine, sides(&src, &dst, Sparse::Auto, Reflink::Auto));
            let Err(Fault::Write(e)) = result else { panic!("{result:?}") };
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
            assert_eq!(std::fs::metadata(&dst).unwrap().len(), 0);
            std::fs::remove_file(&dst).unwrap();
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_source_that_cannot_be_read_is_a_fault_of_reading() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    let (from, to) = (File::open(dir.path()).unwrap(), File::create(&dst).unwrap());
    let one = data(from, to, dir.path(), &dst, Sparse::Auto, Reflink::Auto);
    let result = copy(&Engine::new(chunked(2)).unwrap(), one);
    assert!(matches!(result, Err(Fault::Read(_))), "{result:?}");
}

#[test]
fn killed_in_the_middle_it_leaves_a_file_that_is_short() {
    let name = "faults::killed_in_the_middle_it_leaves_a_file_that_is_short";
    let size: u64 = 96 << 20;
    if let Some(dir) = std::env::var_os(INNER) {
        let dir = Path::new(&dir);
        let engine = Engine::new(chunked(4)).unwrap();
        loop {
            let one = sides(&dir.join("src"), &dir.join("dst"), Sparse::Auto, Reflink::Auto);
            File::create(dir.join("begun")).unwrap();
            copy(&engine, one).unwrap();
        }
    }
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let (src, dst, begun) =
        (dir.path().join("src"), dir.path().join("dst"), dir.path().join("begun"));
    let bytes = Random::new().bytes(size as usize);
    std::fs::write(&src, &bytes).unwrap();
    let mut seen_short = false;
    for round in 0..20 {
        let _ = std::fs::remove_file(&dst);
        let _ = std::fs::remove_file(&begun);
        let mut inner = again(name, dir.path().to_str().unwrap());
        let mut child = inner.process_group(0).spawn().unwrap();
        let wait = Instant::now();
        while !begun.exists() && wait.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round * 5));
        child.kill().unwrap();
        child.wait().unwrap();
        let to = std::fs::read(&dst).unwrap_or_default();
        // Whole, or short.
        seen_short |= !to.is_empty() && (to.len() as u64) < size;
        assert!((to.len() as u64) < size || to == bytes, "looks complete, but is not");
    }
    assert!(seen_short, "no copy was interrupted");
}
