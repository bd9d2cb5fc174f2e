//! All of these tests through io_uring, and what only concerns that.

use crate::memfs::{MemFs, Switches};
use crate::{Mounted, options, root};
use pinstripe_fuse::{Config, IoUring, Mount, MountOptions, Session, caps};
use std::fs;
use std::os::fd::AsRawFd;

const VARIABLE: &str = "FUSE_KERNEL_TEST_IO_URING";

/// The way requests come in this run of the program.
pub fn wish() -> IoUring {
    std::env::var(VARIABLE).map_or(IoUring::Off, |word| word.parse().unwrap())
}

fn kernel_offers_it() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let options = MountOptions { io_uring: IoUring::On, ..options() };
    let mount = Mount::new(dir.path(), &options).unwrap();
    let fs = MemFs::new(Switches::default());
    match Session::new(fs, mount, Config::default()) {
        Ok(session) => session.info().granted & caps::OVER_IO_URING != 0,
        Err(e) => {
            assert!(e.to_string().contains("io_uring"), "{e}");
            eprintln!("skipped: {e}");
            false
        }
    }
}

#[test]
fn everything_again_through_io_uring() {
    if !root() || wish() != IoUring::Off || !kernel_offers_it() {
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let status = command.env(VARIABLE, "on").status().unwrap();
    assert!(status.success());
}

fn over_ring() -> bool {
    root() && wish() == IoUring::On
}

#[test]
fn the_ring_is_in_force_where_it_was_asked_for() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(dir.path(), &options()).unwrap();
    let fs = MemFs::new(Switches::default());
    let session = Session::new(fs, mount, Config::default()).unwrap();
    let granted = session.info().granted & caps::OVER_IO_URING != 0;
    assert_eq!(granted, wish() == IoUring::On);
}

/// Waits for more locks at a time than a CPU has entries, all from one CPU; other requests still get through.
#[test]
fn waiting_requests_do_not_hold_up_others() {
    if !over_ring() {
        return;
    }
    const WAITERS: usize = 100;
    let m = Mounted::plain();
    fs::write(m.path("f"), b"x").unwrap();
    let holder = fs::File::open(m.path("f")).unwrap();
    flock(&holder, libc::LOCK_EX).unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let file = fs::File::open(m.path("f")).unwrap();
            let one_cpu = || {
                let mut cpu = rustix::thread::CpuSet::new();
                cpu.set(first_cpu());
                rustix::thread::sched_setaffinity(None, &cpu).unwrap();
            };
            std::thread::spawn(move || {
                one_cpu();
                flock(&file, libc::LOCK_EX).unwrap();
                flock(&file, libc::LOCK_UN).unwrap();
            })
        })
        .collect();
    crate::wait_for("all waiters", || m.fs.called("setlk") as usize > WAITERS);
    assert!(fs::metadata(m.path("absent")).is_err());
    flock(&holder, libc::LOCK_UN).unwrap();
    waiters.into_iter().for_each(|w| w.join().unwrap());
    drop(holder);
    // And once more everything is as before.
    fs::write(m.path("g"), b"y").unwrap();
    m.end();
}

fn first_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap()
}

fn flock(file: &fs::File, how: i32) -> std::io::Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
