//! Copies that are interrupted, and the same command again: by the program itself, beside what a copy in
//! one go leaves.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SIZE: usize = 96 << 20;
/// No wait in these tests takes that long.
const LOOKS: usize = 20_000;

struct Job {
    dir: tempfile::TempDir,
}

impl Job {
    /// With one large file of bytes that do not repeat.
    fn new() -> Self {
        let job = Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() };
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        let mut bytes = vec![0; SIZE];
        for chunk in bytes.chunks_exact_mut(8) {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        std::fs::write(job.path("src"), bytes).unwrap();
        job
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mcp(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp"));
        command.args(words).current_dir(self.dir.path()).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn out(&self, words: &[&str]) -> Output {
        self.mcp(words).output().unwrap()
    }

    fn equal(&self) {
        let same =
            std::fs::read(self.path("src")).unwrap() == std::fs::read(self.path("dst")).unwrap();
        assert!(same, "other bytes");
    }
}

/// Small chunks without the page cache's speed, so that there is time to come in between.
const SLOW: [&str; 3] = ["--split-size=1M", "--threads=2", "--buffer-size=64K"];

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Waits until a file has that size, or its writer has ended.
fn grown(path: &Path, bytes: u64, child: &mut Child) {
    for _ in 0..LOOKS {
        if size(path) >= bytes || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    panic!("{} does not grow", path.display());
}

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SLOW.iter().copied().chain(more.iter().copied()).collect()
}

fn json(out: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&out.stderr);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn parts_that_are_there_are_not_copied_again() {
    let job = Job::new();
    let again = words(&["--resume=j", "--json", "src", "dst"]);
    let mut met = false;
    for _ in 0..20 {
        let mut child = job.mcp(&again).spawn().unwrap();
        // A header, some records, and at least 16 parts.
        grown(&job.path("j"), 48 * 21, &mut child);
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            std::fs::remove_file(job.path("dst")).unwrap();
            continue;
        }
        met = true;
        assert!(size(&job.path("dst")) < SIZE as u64, "what is not complete looks complete");
        let out = job.out(&again);
        assert!(out.status.success(), "{out:?}");
        let moved = json(&out)["moved"].as_u64().unwrap();
        assert!(moved <= SIZE as u64 - (16 << 20), "{moved} bytes were moved");
        job.equal();
        assert!(!job.path("j").exists(), "the journal is left");
        break;
    }
    assert!(met, "never killed in time");
}

#[test]
fn another_version_of_the_source_is_copied_from_its_start() {
    let job = Job::new();
    let again = words(&["--resume=j", "src", "dst"]);
    let mut child = job.mcp(&again).spawn().unwrap();
    grown(&job.path("j"), 48 * 21, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut bytes = std::fs::read(job.path("src")).unwrap();
    bytes.reverse();
    std::fs::write(job.path("src"), bytes).unwrap();
    assert!(job.out(&again).status.success());
    job.equal();
}

#[test]
fn a_signal_leaves_a_whole_beginning_and_ends_by_that_signal() {
    let job = Job::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut met = false;
        for _ in 0..20 {
            let mut child = job.mcp(&words(&["src", "dst"])).spawn().unwrap();
            grown(&job.path("dst"), 8 << 20, &mut child);
            let _ = kill_process(Pid::from_child(&child), signal);
            let out = child.wait_with_output().unwrap();
            if out.status.success() {
                continue;
            }
            met = true;
            assert_eq!(out.status.signal(), Some(signal.as_raw()), "{out:?}");
            let (from, to) =
                (std::fs::read(job.path("src")).unwrap(), std::fs::read(job.path("dst")).unwrap());
            assert!(to.len() < from.len() && from.starts_with(&to), "{} bytes", to.len());
            break;
        }
        assert!(met, "never interrupted in time");
    }
}

#[test]
fn without_a_journal_size_and_times_tell_what_is_there() {
    let job = Job::new();
    std::fs::create_dir(job.path("s")).unwrap();
    for name in ["one", "two"] {
        std::fs::write(job.path("s").join(name), name).unwrap();
    }
    std::fs::rename(job.path("src"), job.path("s/large")).unwrap();
    assert!(job.out(&["-a", "s", "d"]).status.success());
    // As if it had been killed before it came to these.
    File::options().write(true).open(job.path("d/two")).unwrap().set_len(1).unwrap();
    std::fs::set_permissions(job.path("d/one"), Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(job.path("s/one"), Permissions::from_mode(0o640)).unwrap();
    let out = job.out(&["-aT", "--resume=j", "--json", "s", "d"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(json(&out)["moved"], 3, "more than the file that was cut is copied");
    assert_eq!(std::fs::read(job.path("d/two")).unwrap(), b"two");
    assert_eq!(std::fs::metadata(job.path("d/one")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn a_wrong_journal_is_refused_and_left_alone() {
    let job = Job::new();
    let refused = |file: &str, wanted: &str| {
        let before = std::fs::read(job.path(file)).unwrap();
        let out = job.out(&[&format!("--resume={file}"), "src", "dst"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains(wanted) && said.contains(file), "{said}");
        assert_eq!(std::fs::read(job.path(file)).unwrap(), before);
        assert!(!job.path("dst").exists());
    };
    std::fs::write(
        job.path("letter"),
        "Dear Sir or Madam, this is no journal at all, I am afraid.",
    )
    .unwrap();
    refused("letter", "is no journal of mcp");
    std::fs::write(job.path("short"), "hello").unwrap();
    refused("short", "is no journal of mcp");
    // A job that cannot end leaves its journal.
    let out = job.out(&["--resume=other", "src", "nothing", "."]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("the same command again"));
    refused("other", "belongs to another command");
    let mut bytes = std::fs::read(job.path("other")).unwrap();
    bytes.truncate(1);
    bytes[0] = b'x';
    std::fs::write(job.path("other"), bytes).unwrap();
    refused("other", "is no journal of mcp");
}

#[test]
fn a_journal_in_use_is_refused() {
    let job = Job::new();
    let holder = File::create(job.path("j")).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let out = job.out(&["--resume=j", "src", "dst"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("is used by another mcp"), "{out:?}");
}

#[test]
fn a_torn_end_of_the_journal_is_left_out() {
    let job = Job::new();
    std::fs::create_dir(job.path("s")).unwrap();
    for n in 0..50 {
        std::fs::write(job.path("s").join(n.to_string()), n.to_string()).unwrap();
    }
    let again = ["-r", "--resume=j", "s", "nothing", "d"];
    std::fs::create_dir(job.path("d")).unwrap();
    assert_eq!(job.out(&again).status.code(), Some(1));
    let whole = std::fs::read(job.path("j")).unwrap();
    for cut in [1, 30, 47, 49, 1000, whole.len() - 50] {
        let mut torn = whole[..whole.len() - cut].to_vec();
        torn.extend_from_slice(&[0xee; 20]);
        std::fs::write(job.path("j"), &torn).unwrap();
        assert_eq!(job.out(&again).status.code(), Some(1));
        for n in 0..50 {
            let there = std::fs::read_to_string(job.path("d/s").join(n.to_string())).unwrap();
            assert_eq!(there, n.to_string(), "cut {cut}");
        }
    }
}

#[test]
fn the_journal_lies_in_the_state_directory_where_none_is_named() {
    let job = Job::new();
    let mut command = job.mcp(&["--resume", "src", "nothing", "."]);
    let out = command.env("XDG_STATE_HOME", job.path("state")).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(job.path("state/mcp")).unwrap().count(), 1);
    let mut command = job.mcp(&["--resume", "src", "dst"]);
    let out = command.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("--resume=FILE"), "{out:?}");
}

/// In a mount namespace of its own: a file system in memory that is full, and then is made larger.
#[test]
fn a_full_disk_is_gone_on_from_when_there_is_room() {
    if !rustix::process::geteuid().is_root() {
        println!("only root may mount");
        return;
    }
    let job = Job::new();
    std::fs::create_dir(job.path("small")).unwrap();
    let script = r#"
        mount -t tmpfs -o size=40m tmpfs small || exit 90
        "$MCP" --split-size=1M --threads=3 --resume=j src small/dst 2>full.err && exit 91
        test "$(stat -c %s small/dst)" -lt "$(stat -c %s src)" || exit 92
        mount -o remount,size=200m small || exit 93
        "$MCP" --split-size=1M --threads=3 --resume=j --json src small/dst 2>more.err || exit 94
        cmp src small/dst || exit 95
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(job.dir.path());
    let out = command.env("MCP", env!("CARGO_BIN_EXE_mcp")).env("LC_ALL", "C").output().unwrap();
    let read = |name: &str| std::fs::read_to_string(job.path(name)).unwrap_or_default();
    assert!(out.status.success(), "{out:?} {} {}", read("full.err"), read("more.err"));
    assert!(read("full.err").contains("No space left on device"), "{}", read("full.err"));
    let more: serde_json::Value = serde_json::from_str(read("more.err").trim()).unwrap();
    let moved = more["moved"].as_u64().unwrap();
    assert!(moved < SIZE as u64 - (24 << 20), "{moved} bytes were moved again");
}
