//! A thread beside each thread that copies, which reads one block while the other is written: where the kernel
//! gives no io_uring.
//!
//! It is started when it is first needed and ends with the thread it belongs to. Never opens or closes a file.

use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Reads under way: one is read while one is written.
const UNDER_WAY: usize = 1;

/// A read into memory of somebody who keeps it, and the file, until the read has landed.
struct Job {
    fd: RawFd,
    to: *mut u8,
    want: usize,
    at: u64,
}

// SAFETY: the memory is written to by the companion alone until the read has landed; see `Companion::ask`.
unsafe impl Send for Job {}

/// This end of it. Dropped, it ends the thread, after what was asked for.
pub struct Companion {
    jobs: SyncSender<Job>,
    ends: Receiver<io::Result<usize>>,
}

impl Companion {
    pub fn start() -> io::Result<Self> {
        let (jobs, asked) = sync_channel::<Job>(UNDER_WAY);
        let (told, ends) = sync_channel(UNDER_WAY);
        std::thread::Builder::new().name("read".into()).spawn(move || {
            for job in asked {
                if told.send(read(&job)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, ends })
    }

    /// Begins to read; `false`: it does not.
    ///
    /// # Safety
    /// `to` has room for `want` bytes, and neither it nor the file is given up, or the memory touched, before
    /// [`Self::land`] has answered. One read is under way at a time.
    pub unsafe fn ask(&self, fd: RawFd, to: *mut u8, want: usize, at: u64) -> bool {
        self.jobs.try_send(Job { fd, to, want, at }).is_ok()
    }

    /// Waits for the read under way; `None`: it cannot be told what became of it.
    pub fn land(&self) -> Option<io::Result<usize>> {
        self.ends.recv().ok()
    }
}

fn read(job: &Job) -> io::Result<usize> {
    let Ok(at) = libc::off_t::try_from(job.at) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: who asked keeps the memory and the file until this has landed, see `Companion::ask`.
    let n = unsafe { libc::pread(job.fd, job.to.cast(), job.want, at) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
