//! What the tests of the program share: running it, servers and mounts that end with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time anything is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program.
pub fn pin() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_pinstripe"));
    c.env_remove("PINSTRIPE_KEY").stdin(Stdio::null());
    c
}

/// Runs it with these words.
pub fn run(words: &[&str]) -> Said {
    Said::of(pin().args(words).output().unwrap())
}

/// Runs one that shall end by itself; it is ended if it does not.
pub fn run_bounded(words: &[&str]) -> Said {
    let mut c = Command::new("timeout");
    c.arg(PATIENCE.as_secs().to_string()).arg(env!("CARGO_BIN_EXE_pinstripe")).args(words);
    Said::of(c.env_remove("PINSTRIPE_KEY").stdin(Stdio::null()).output().unwrap())
}

/// What a command answered.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(o: Output) -> Said {
        Said {
            code: o.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
    /// A refusal with this exit code whose message has all of these parts, without a panic.
    #[track_caller]
    pub fn refused(self, code: i32, parts: &[&str]) -> String {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is missing in {:?}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

/// A running `pinstripe server`, killed when dropped.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    /// Starts it and waits for its line.
    #[track_caller]
    pub fn start(words: &[&str]) -> Server {
        let mut c = pin();
        c.arg("server").args(words).stdout(Stdio::piped());
        let mut child = c.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").map(str::to_string);
        let mut server = Server { child, address: String::new() };
        server.address = address.unwrap_or_else(|| panic!("{words:?} said {line:?}"));
        server
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with SIGTERM; it must end well.
    #[track_caller]
    pub fn stop(mut self) {
        signal(self.child.id(), "-TERM");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: u32, signal: &str) {
    let done = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(done.success());
}

/// Waits for a condition, for a bounded time.
#[track_caller]
pub fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory with a mount point and a data directory; nothing stays when it is dropped.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub mnt: PathBuf,
    pub data: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let (mnt, data) = (dir.path().join("mnt"), dir.path().join("data"));
        Place { dir, mnt, data }
    }

    pub fn up(&self, more: &[&str]) -> Said {
        let mut c = pin();
        c.arg("up").arg(&self.mnt).arg("--data").arg(&self.data).arg("--detach").args(more);
        Said::of(c.output().unwrap())
    }

    pub fn down(&self) -> Said {
        Said::of(pin().arg("down").arg(&self.mnt).output().unwrap())
    }

    pub fn status(&self) -> serde_json::Value {
        let out = pin().arg("status").arg(&self.mnt).arg("--json").output().unwrap();
        serde_json::from_slice(&out.stdout).unwrap()
    }

    pub fn fsck(&self) -> Said {
        let mut c = pin();
        c.arg("fsck").arg("--data").arg(&self.data).args(["--data-too", "--json"]);
        Said::of(c.output().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.status()["pids"][0].as_u64().unwrap() as u32
    }

    pub fn mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().any(|l| l.split(' ').nth(4) == self.mnt.to_str())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted() {
            let _ = pin().args(["down", "--force"]).arg(&self.mnt).output();
        }
        if self.mounted() {
            let _ = Command::new("umount").arg("-l").arg(&self.mnt).output();
        }
    }
}

/// Whether this machine can mount; where it cannot, tests that mount say so and pass.
pub fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        eprintln!("there is no /dev/fuse: not tested");
    }
    there
}
