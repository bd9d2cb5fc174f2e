//! A real directory as a [`Target`]. Steps run on threads, one for each identity, whose user,
//! groups, umask and current directory are their own (raw system calls, which on Linux act on the
//! calling thread only), so a run disturbs nothing else in the process. Only root can take other
//! identities; otherwise every step runs as the caller.

use super::apply::{self, Slots};
use super::op::{Op, Outcome, Raw, Step};
use super::target::{Stamp, Target};
use super::tree::{self, Tree};
use rustix::fs::{self as rfs, AtFlags, CWD, Mode, OFlags};
use rustix::thread as rt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// User, group and supplementary groups a step may run as. The first is the caller itself.
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

pub const IDENTITIES: [Identity; 4] = [
    Identity { uid: 0, gid: 0, groups: &[] },
    Identity { uid: 1000, gid: 1000, groups: &[1000, 2000] },
    Identity { uid: 1001, gid: 1001, groups: &[1001] },
    Identity { uid: 1000, gid: 2000, groups: &[] },
];

/// Directories above the tree, so that ".." in symlinks stays inside what is compared.
const NEST: &str = "n1/n2/n3/root";

/// A step that takes longer hangs: its outcome is ETIMEDOUT, and its thread is left behind.
pub const HANG: Duration = Duration::from_secs(90);

type Job = Box<dyn FnOnce() + Send>;

struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(who: usize, root: OwnedFd) -> io::Result<Worker> {
        let (jobs, queue) = channel::<Job>();
        let (ready, is_ready) = channel();
        let thread = std::thread::Builder::new().name(format!("model-{who}")).spawn(move || {
            let ok = become_identity(who).and_then(|()| Ok(rustix::process::fchdir(&root)?));
            let go = ok.is_ok();
            if ready.send(ok).is_ok() && go {
                work(queue);
            }
        })?;
        is_ready.recv().map_err(|_| io::Error::other("model thread ended"))??;
        Ok(Worker { jobs, thread })
    }
}

fn work(queue: Receiver<Job>) {
    for job in queue {
        job();
    }
}

fn become_identity(who: usize) -> io::Result<()> {
    // SAFETY: CLONE_FS only gives this thread its own directory and umask; no memory or
    // descriptor is affected.
    unsafe { rt::unshare_unsafe(rt::UnshareFlags::FS)? };
    if who == 0 {
        return Ok(());
    }
    let id = &IDENTITIES[who % IDENTITIES.len()];
    let groups: Vec<_> = id.groups.iter().map(|&g| rfs::Gid::from_raw(g)).collect();
    rt::set_thread_groups(&groups)?;
    let (uid, gid) = (rfs::Uid::from_raw(id.uid), rfs::Gid::from_raw(id.gid));
    rt::set_thread_res_gid(gid, gid, gid)?;
    rt::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

pub struct PosixDir {
    top: PathBuf,
    root: OwnedFd,
    slots: Arc<Mutex<Slots>>,
    workers: Vec<Option<Worker>>,
    switch_users: bool,
    hung: bool,
}

impl PosixDir {
    /// Makes `parent/name` and the tree in it. `parent` must exist and be searchable by the
    /// identities used.
    pub fn create(parent: &Path, name: &str) -> io::Result<PosixDir> {
        let top = parent.join(name);
        std::fs::create_dir(&top)?;
        let tree = top.join(NEST);
        std::fs::create_dir_all(&tree)?;
        for dir in tree.ancestors().take(4) {
            rfs::chmod(dir, Mode::from_raw_mode(0o755))?;
        }
        rfs::chmod(&tree, Mode::from_raw_mode(0o777))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rfs::openat(CWD, &tree, flags, Mode::empty())?;
        Ok(PosixDir {
            top,
            root,
            slots: Arc::new(Mutex::new(apply::empty_slots())),
            workers: IDENTITIES.iter().map(|_| None).collect(),
            switch_users: rustix::process::geteuid().is_root(),
            hung: false,
        })
    }

    fn run<T: Send + 'static>(
        &mut self,
        who: u8,
        work: impl FnOnce(&mut Slots) -> T + Send + 'static,
    ) -> io::Result<T> {
        let who = if self.switch_users { usize::from(who) % IDENTITIES.len() } else { 0 };
        if self.workers[who].is_none() {
            let root = self.root.try_clone()?;
            self.workers[who] = Some(Worker::start(who, root)?);
        }
        let Some(worker) = &self.workers[who] else {
            return Err(io::Error::other("no model thread"));
        };
        let (send, receive) = channel();
        let slots = Arc::clone(&self.slots);
        let job: Job = Box::new(move || {
            let value = work(&mut slots.lock().unwrap_or_else(PoisonError::into_inner));
            let _ = send.send(value);
        });
        worker.jobs.send(job).map_err(|_| io::Error::other("model thread ended"))?;
        receive.recv_timeout(HANG).map_err(|e| match e {
            RecvTimeoutError::Timeout => {
                self.hung = true;
                io::Error::from_raw_os_error(libc::ETIMEDOUT)
            }
            RecvTimeoutError::Disconnected => io::Error::other("model thread panicked"),
        })
    }

    /// Ends the threads; those that hang are left to the end of the process.
    fn stop(&mut self) {
        for worker in self.workers.drain(..).flatten() {
            drop(worker.jobs);
            if !self.hung {
                let _ = worker.thread.join();
            }
        }
    }
}

impl Target for PosixDir {
    fn apply(&mut self, step: &Step) -> Outcome {
        let (op, umask) = (step.op.clone(), step.umask);
        self.run(step.who, move |slots| {
            rustix::process::umask(Mode::from_raw_mode(umask));
            apply::apply(&op, slots)
        })
        .unwrap_or_else(|e| Err(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn stamps(&mut self, step: &Step) -> Vec<Stamp> {
        let op = step.op.clone();
        self.run(0, move |slots| stamps(&op, slots)).unwrap_or_default()
    }

    fn tree(&mut self) -> io::Result<Tree> {
        tree::read(&self.top)
    }

    fn clean(&mut self) -> io::Result<()> {
        if self.hung {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        *self.slots.lock().unwrap_or_else(PoisonError::into_inner) = apply::empty_slots();
        self.stop();
        tree::remove(&self.top)
    }
}

impl Drop for PosixDir {
    fn drop(&mut self) {
        self.stop();
    }
}

fn stamps(op: &Op, slots: &Slots) -> Vec<Stamp> {
    let mut out = Vec::new();
    for path in op.paths() {
        for (name, flags) in [
            (path.clone(), AtFlags::SYMLINK_NOFOLLOW),
            (path.clone(), AtFlags::empty()),
            (path.parent(), AtFlags::empty()),
        ] {
            out.push(stamp_of(&name, flags));
        }
    }
    for slot in op.slots() {
        let stat = match slots.get(usize::from(slot)) {
            Some(Some(open)) => rfs::fstat(open.fd.as_fd()).ok(),
            _ => None,
        };
        out.push(stat.map(times));
    }
    out
}

fn stamp_of(path: &Raw, flags: AtFlags) -> Stamp {
    rfs::statat(CWD, path.c(), flags).ok().map(times)
}

fn times(stat: rfs::Stat) -> (u64, i128, i128) {
    let ns = |sec: i64, nsec: i64| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    (
        stat.st_ino,
        ns(stat.st_mtime, stat.st_mtime_nsec as i64),
        ns(stat.st_ctime, stat.st_ctime_nsec as i64),
    )
}
