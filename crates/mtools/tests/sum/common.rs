//! Runs a program of ours and the genuine one in the same place, and compares all that can be seen.
//!
//! The genuine programs are those in PATH, or in the directory that PINSTRIPE_GENUINE names (so that
//! another version than the installed one can be compared).

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run has left.
#[derive(PartialEq, Eq)]
pub struct Seen {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit code {:?}", self.code)?;
        writeln!(f, "stdout: {}", self.stdout.escape_ascii())?;
        writeln!(f, "stderr: {}", self.stderr.escape_ascii())
    }
}

/// The place of a test.
pub struct Place {
    pub dir: tempfile::TempDir,
    ours: PathBuf,
    pub version: (u32, u32),
}

impl Place {
    /// `ours`: the program that is called by the genuine one's name.
    pub fn new(ours: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, ours: ours.into(), version: version() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: impl AsRef<OsStr>, bytes: &[u8]) {
        std::fs::write(self.path().join(name.as_ref()), bytes).unwrap();
    }

    fn command(&self, file: &Path, name: &str, args: &[OsString]) -> Command {
        let mut command = Command::new(file);
        command.arg0(name).args(args).current_dir(self.path());
        command.env_clear().env("LC_ALL", "C").env("PATH", std::env::var_os("PATH").unwrap());
        command.env("PINSTRIPE_NO_FALLBACK", "1");
        command
    }

    /// Our program under that name.
    pub fn ours(&self, name: &str, args: &[OsString]) -> Command {
        self.command(&self.ours, name, args)
    }

    pub fn genuine(&self, name: &str, args: &[OsString]) -> Command {
        self.command(&genuine(name), name, args)
    }

    /// Both must do the same.
    pub fn same(&self, name: &str, args: &[OsString], stdin: &[u8]) {
        let ours = see(self.ours(name, args), stdin);
        let genuine = see(self.genuine(name, args), stdin);
        let shown = args.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(" ");
        assert!(
            ours == genuine,
            "{name} {shown} < {}\nours: {ours:?}\ngenuine: {genuine:?}\nlist: {}",
            stdin.escape_ascii(),
            std::fs::read(self.path().join("list")).unwrap_or_default().escape_ascii()
        );
    }
}

/// Runs a command to its end.
pub fn see(mut command: Command, stdin: &[u8]) -> Seen {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program that does not read its input is right, too.
        scope.spawn(move || drop(pipe.write_all(stdin)));
        child.wait_with_output().unwrap()
    });
    Seen { code: output.status.code(), stdout: output.stdout, stderr: output.stderr }
}

pub fn args<S: AsRef<OsStr>>(words: &[S]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_os_string()).collect()
}

fn genuine(name: &str) -> PathBuf {
    match std::env::var_os("PINSTRIPE_GENUINE") {
        Some(dir) => Path::new(&dir).join(name),
        None => mtools::gnu::fallback::find(name).unwrap_or_else(|| panic!("no {name} in PATH")),
    }
}

/// Of coreutils.
fn version() -> (u32, u32) {
    let output = Command::new(genuine("cksum")).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let number = text.lines().next().unwrap().rsplit(' ').next().unwrap();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap_or(0))
}

/// Numbers that look random, the same for the same seed.
pub struct Random(u64);

impl Random {
    /// The seed is PINSTRIPE_SEED's, else 1; it is printed, which a failed test shows.
    pub fn new() -> Self {
        let seed = std::env::var("PINSTRIPE_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(1);
        println!("PINSTRIPE_SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
