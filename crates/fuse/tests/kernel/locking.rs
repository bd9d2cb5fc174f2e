//! Advisory locks, and waiting for one that a signal interrupts.

use crate::{Mounted, root, wait_for};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc;

fn open(m: &Mounted) -> File {
    File::options().create(true).read(true).write(true).truncate(false).open(m.path("f")).unwrap()
}

/// An open-file-description lock, which conflicts between descriptors of one process.
fn ofd(file: &File, cmd: i32, kind: i32, start: i64, len: i64) -> Result<libc::flock, i32> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: fcntl reads and writes one struct flock.
    match unsafe { libc::fcntl(file.as_raw_fd(), cmd, &mut lock) } {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

#[test]
fn record_locks_conflict_are_reported_and_end_with_the_file() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let (a, b) = (open(&m), open(&m));
    ofd(&a, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 20).unwrap();
    assert_eq!(ofd(&b, libc::F_OFD_SETLK, libc::F_RDLCK, 29, 1).unwrap_err(), libc::EAGAIN);
    ofd(&b, libc::F_OFD_SETLK, libc::F_RDLCK, 30, 1).unwrap();
    let found = ofd(&b, libc::F_OFD_GETLK, libc::F_RDLCK, 0, 0).unwrap();
    assert_eq!((i32::from(found.l_type), found.l_start, found.l_len), (libc::F_WRLCK, 10, 20));
    let free = ofd(&b, libc::F_OFD_GETLK, libc::F_WRLCK, 100, 1).unwrap();
    assert_eq!(i32::from(free.l_type), libc::F_UNLCK);
    ofd(&a, libc::F_OFD_SETLK, libc::F_UNLCK, 10, 20).unwrap();
    ofd(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 20).unwrap();
}

#[test]
fn a_waiting_flock_is_granted_when_the_holder_lets_go() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let (a, b) = (open(&m), open(&m));
    a.lock().unwrap();
    assert!(b.try_lock().is_err());
    let waiter = std::thread::spawn(move || b.lock().map(|()| b));
    wait_for("a waiter", || m.fs.locks.waiting() == 1);
    drop(a);
    let b = waiter.join().unwrap().unwrap();
    assert_eq!((m.fs.locks.held(), m.fs.locks.waiting()), (1, 0));
    drop(b);
    wait_for("the lock's end", || m.fs.locks.held() == 0);
}

extern "C" fn nothing(_: i32) {}

#[test]
fn a_signal_interrupts_the_wait_for_a_lock() {
    if !root() {
        return;
    }
    // SAFETY: a handler that does nothing, installed without SA_RESTART so that system calls return EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let m = Mounted::plain();
    let (a, b) = (open(&m), open(&m));
    ofd(&a, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    let (tx, rx) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // SAFETY: has no preconditions.
        tx.send(unsafe { libc::pthread_self() }).unwrap();
        ofd(&b, libc::F_OFD_SETLKW, libc::F_WRLCK, 5, 1).map(|_| ())
    });
    let thread = rx.recv().unwrap();
    wait_for("a waiter", || m.fs.locks.waiting() == 1);
    // SAFETY: the thread is not joined yet, so its handle is valid.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    assert_eq!(waiter.join().unwrap(), Err(libc::EINTR));
    assert_eq!((m.fs.locks.held(), m.fs.locks.waiting()), (1, 0));
}
