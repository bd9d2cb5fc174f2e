//! A file system served by another process, so that it can be killed or run as another user: this test program again,
//! with a variable in its environment.

use crate::memfs::{MemFs, Switches};
use crate::mounting::{daemon_options, public_directory};
use pinstripe_fuse::{Config, Mount, Session, unmount};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const VARIABLE: &str = "FUSE_KERNEL_TEST_DAEMON";
/// The first inode that is made.
const FIRST: u64 = 2;
/// Who drops the pages of that, in the kind `stuck`, while its reads are not answered.
pub const PAGES: &str = "pages";

/// A running daemon; ended and its mount taken away when dropped.
pub struct Daemon {
    child: Option<Child>,
    dir: tempfile::TempDir,
    mountpoint: PathBuf,
}

impl Daemon {
    /// Starts one and waits until its mount is usable.
    pub fn start(kind: &str, user: Option<u32>) -> Daemon {
        let dir = public_directory();
        let mountpoint = dir.path().join("mnt");
        std::fs::create_dir(&mountpoint).unwrap();
        let program = program_in(dir.path());
        let mut command = Command::new(&program);
        command.args(["--exact", "daemon::serve", "--nocapture", "--test-threads=1"]);
        command.env(VARIABLE, format!("{kind}:{}", mountpoint.display()));
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(id) = user {
            std::os::unix::fs::chown(&mountpoint, Some(id), Some(id)).unwrap();
            command.uid(id).gid(id);
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| line.unwrap().ends_with("ready"));
        let daemon = Daemon { child: Some(child), dir, mountpoint };
        assert!(ready, "the daemon did not start");
        // Whatever else it prints must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        daemon
    }

    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Kills it and does not wait for its end; its process number.
    pub fn kill_only(&mut self) -> u32 {
        let child = self.child.as_mut().unwrap();
        child.kill().unwrap();
        child.id()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Lets it unmount and end by itself.
    pub fn finish(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Usually it is unmounted already.
        let _ = unmount(&self.mountpoint, true);
        let _ = std::fs::remove_dir(&self.mountpoint);
        debug_assert!(self.dir.path().exists());
    }
}

/// This program where every user may run it; the build directory may be closed to them.
fn program_in(dir: &Path) -> PathBuf {
    let program = dir.join("daemon");
    // Copied by another process: a test that forks while we had it open for writing would make it busy.
    let copy = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copy.unwrap().success());
    program
}

/// What an ordinary user is told who mounts on a directory of his in `dir` and has this search path.
pub fn refused_for_nobody(dir: &Path, path: &str) -> String {
    const NOBODY: u32 = 65534;
    let mountpoint = dir.join("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    std::os::unix::fs::chown(&mountpoint, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(program_in(dir));
    command.args(["--exact", "daemon::serve", "--nocapture"]).current_dir("/");
    command.env(VARIABLE, format!("refused:{}", mountpoint.display())).env("PATH", path);
    let output = command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Not a test by itself: the body of the daemon process.
#[test]
fn serve() {
    let Ok(task) = std::env::var(VARIABLE) else { return };
    let (kind, mountpoint) = task.split_once(':').unwrap();
    let ttl = Duration::from_secs(if kind == "long-ttl" { 3600 } else { 0 });
    let gate = if kind == "stuck" { u64::MAX } else { 0 };
    let fs = MemFs::with_gate(Switches { ttl, ..Switches::default() }, gate);
    let mount = Mount::new(Path::new(mountpoint), &daemon_options(kind));
    if kind == "refused" {
        return println!("{}", mount.err().expect("must be refused"));
    }
    let mount = mount.unwrap();
    let session = Session::new(fs.clone(), mount, Config::default()).unwrap();
    let (handle, notifier) = (session.handle(), session.notifier());
    let running = session.spawn().unwrap();
    if kind == "stuck" {
        let drop_pages = move || {
            crate::wait_for("a read", || {
                fs.calls.lock().unwrap().get("read").is_some_and(|n| *n > 0)
            });
            notifier.inval_inode(FIRST, 0, 0)
        };
        std::thread::Builder::new().name(PAGES.into()).spawn(drop_pages).unwrap();
    }
    println!("\nready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    crate::wait_for("the last user's end", || handle.unmount(false).is_ok());
    running.join().unwrap();
}
