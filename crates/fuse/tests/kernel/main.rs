//! The session layer against the running kernel: a file system in memory, used through system calls. Needs root and
//! /dev/fuse; every mount is taken away again, also when a test fails.

mod daemon;
mod data;
mod dying;
mod locking;
mod locks;
mod memfs;
mod mounting;
mod names;
mod notifying;
mod ring;
mod robust;
mod tree;

use memfs::{MemFs, Switches};
use pinstripe_fuse::{Config, Handle, Mount, MountError, MountOptions, Notifier, Running, Session};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bound of every wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the condition holds.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Mounts need root; without it there is nothing to test here.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can mount directly");
    }
    root
}

fn options() -> MountOptions {
    MountOptions {
        source: "memory".into(),
        subtype: "memfs".into(),
        allow_other: true,
        default_permissions: true,
        io_uring: ring::wish(),
        ..MountOptions::default()
    }
}

/// A mounted file system in memory, unmounted when dropped.
struct Mounted {
    dir: tempfile::TempDir,
    fs: Arc<MemFs>,
    handle: Handle,
    notifier: Notifier,
    running: Option<Running>,
}

impl Mounted {
    fn plain() -> Mounted {
        Mounted::with(MemFs::new(Switches::default()), &options(), Config::default())
    }

    fn switched(switches: Switches) -> Mounted {
        Mounted::with(MemFs::new(switches), &options(), Config::default())
    }

    fn with(fs: Arc<MemFs>, options: &MountOptions, config: Config) -> Mounted {
        let dir = tempfile::Builder::new().prefix("fuse-kernel-test-").tempdir().unwrap();
        let mount = Mount::new(dir.path(), options).unwrap();
        Mounted::on(dir, mount, fs, config)
    }

    fn on(dir: tempfile::TempDir, mount: Mount, fs: Arc<MemFs>, config: Config) -> Mounted {
        let session = Session::new(fs.clone(), mount, config).unwrap();
        let (handle, notifier) = (session.handle(), session.notifier());
        Mounted { dir, fs, handle, notifier, running: Some(session.spawn().unwrap()) }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts politely. A test that forks at this moment holds our open files until it calls exec.
    fn unmount(&self) {
        wait_for("the last user's end", || match self.handle.unmount(false) {
            Err(MountError::Busy(_)) => false,
            other => {
                other.unwrap();
                true
            }
        });
    }

    /// Unmounts and waits for the session's end.
    fn end(mut self) -> Arc<MemFs> {
        self.unmount();
        self.running.take().unwrap().join().unwrap();
        self.fs.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            if let Err(e) = self.handle.unmount(true) {
                eprintln!("left mounted: {e}");
            } else if !std::thread::panicking() {
                running.join().unwrap();
            }
        }
    }
}
