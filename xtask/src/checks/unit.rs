//! The crates' own tests, each counted.

use crate::cx::Cx;
use crate::plan::{Check, Need};
use crate::where_;
use anyhow::{Result, bail};

pub const CHECK: Check = Check {
    name: "unit",
    about: "cargo test of every crate, documentation examples included",
    needs: &[
        Need::Tests,
        Need::Apt("fuse3"),
        Need::Apt("acl"),
        Need::Apt("attr"),
        Need::Apt("e2fsprogs"),
    ],
    limit: 1800,
    // Some fill disks and kill servers: what they wait for takes its time beside others' work.
    weight: 2,
    slow: false,
    run,
};

/// Panics named in the summary.
const SHOWN: usize = 5;

/// What one test program may take, in seconds. The longest takes half a minute where nothing else runs: one that
/// hangs is named, and the others have their turn.
const PROGRAM: u32 = 480;
/// What `timeout` of the GNU coreutils exits with when it was reached.
const TIMED_OUT: &str = "(exit status: 124)";

fn run(cx: &Cx) -> Result<()> {
    let profile = crate::steps::profile(cx.set.release);
    let out = cx
        .cmd("cargo")
        .args(["test", "--workspace", "--no-fail-fast", "--profile", profile])
        .arg("--config")
        .arg(format!("target.'cfg(unix)'.runner = ['timeout', '--kill-after=10', '{PROGRAM}']"))
        .arg("--target-dir")
        .arg(where_::target())
        .cwd(where_::root())
        .limit(1790)
        .run()?;
    println!("{}\n{}", out.errors(), out.text());
    let (mut passed, mut failed) = (0, 0);
    for line in out.text().lines() {
        if let Some((p, f)) = totals(line) {
            passed += p;
            failed += f;
        }
        if let Some(name) = failed_test(line) {
            cx.note(format!("failed: {name}"));
        }
    }
    let hung = out.errors().lines().filter(|line| line.contains(TIMED_OUT)).count() as u64;
    failed += hung;
    if hung > 0 || out.timed_out {
        still_running(&out.text()).for_each(|name| cx.note(format!("did not end: {name}")));
    }
    panics(&out.text()).take(SHOWN).for_each(|panic| cx.note(panic));
    cx.add(passed, failed);
    if out.timed_out {
        bail!("time limit reached");
    }
    if !out.status.success() && failed == 0 {
        bail!("cargo test failed, but no test did: a crate does not build, or a test crashed");
    }
    Ok(())
}

/// Passed and failed of a line like `test result: ok. 3 passed; 0 failed; 1 ignored; ...`. An
/// ignored test proves nothing and counts as failed.
fn totals(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| -> Option<u64> {
        let before = &rest[..rest.find(word)?];
        before.trim_end().rsplit([' ', ';']).next()?.parse().ok()
    };
    Some((number("passed")?, number("failed")? + number("ignored")?))
}

/// Where and why failed tests panicked: libtest shows what a test wrote only if it failed.
fn panics(text: &str) -> impl Iterator<Item = String> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let at = lines.find(|line| line.starts_with("thread '") && line.contains("panicked at"))?;
        Some(format!("{at} {}", lines.next().unwrap_or_default()))
    })
}

/// Tests that libtest said take long, and then said nothing of any more.
fn still_running(text: &str) -> impl Iterator<Item = &str> {
    let late = text.lines().filter_map(|line| {
        line.strip_prefix("test ")?.strip_suffix(" has been running for over 60 seconds")
    });
    late.filter(move |name| {
        let ended = format!("test {name} ... ");
        !text.lines().any(|line| line.starts_with(&ended))
    })
}

fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::{failed_test, panics, still_running, totals};

    #[test]
    fn a_test_that_does_not_end_is_named() {
        let late = |name| format!("test {name} has been running for over 60 seconds\n");
        let text = format!("{}{}test a::b ... ok\ntest e ... ok\n", late("a::b"), late("c"));
        assert_eq!(still_running(&text).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn panics_are_found_with_their_reasons() {
        let text = "---- a stdout ----\nthread 'a' (7) panicked at src/a.rs:3:9:\nleft\nright\n";
        let all: Vec<_> = panics(text).collect();
        assert_eq!(all, ["thread 'a' (7) panicked at src/a.rs:3:9: left"]);
    }

    #[test]
    fn totals_are_read_and_ignored_tests_count_as_failed() {
        let line = "test result: FAILED. 12 passed; 3 failed; 2 ignored; 0 measured; 0 filtered";
        assert_eq!(totals(line), Some((12, 5)));
        assert_eq!(totals("test result: ok. 0 passed; 0 failed; 0 ignored"), Some((0, 0)));
        assert_eq!(totals("running 3 tests"), None);
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }
}
