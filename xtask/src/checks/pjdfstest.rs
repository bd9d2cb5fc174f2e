//! The POSIX suite `pjdfstest` as root, with the local file system as comparison. Exclusions are
//! in a data file with a reason each.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::where_;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub const CHECK: Check = Check {
    name: "pjdfstest",
    about: "every test of pjdfstest as root, compared with the local file system",
    needs: &[Need::Binary, Need::Tool("pjdfstest"), Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

/// Asks for at most five seconds again while the mount is busy.
const MOUNT: &str = r#"#!/bin/sh
left=50
while :; do
    said=$(/bin/mount -i "$@" 2>&1) && exit 0
    code=$?
    left=$((left - 1))
    case $said in *busy*) [ $left -gt 0 ] && sleep 0.1 && continue ;; esac
    printf '%s\n' "$said" >&2
    exit $code
done
"#;

type Results = BTreeMap<String, String>;

fn run(cx: &Cx) -> Result<()> {
    let excluded = excluded()?;
    let local = cx.dir("local")?;
    let config = cx.scratch().join("local.toml");
    std::fs::write(&config, configuration(false))?;
    let there = suite(cx, &config, &local, &[])?;
    let mut fs = Fs::new(cx, "fs")?;
    let here = fs.mnt.join("pjd");
    std::fs::create_dir(&here)?;
    // The whole path must be open to the users the suite turns into.
    std::fs::set_permissions(&fs.mnt, std::fs::Permissions::from_mode(0o755))?;
    let other = cx.dir("other")?;
    let other = other.to_str().context("a path that is not UTF-8")?;
    let mut ours = suite(cx, &config, &here, &["-s", other])?;
    // Tests that make the mount read-only run by themselves: others leave files open for a while.
    let config = cx.scratch().join("remount.toml");
    std::fs::write(&config, configuration(true))?;
    ours.extend(suite(cx, &config, &here, &["-s", other, "erofs"])?);
    ensure!(ours.len() >= there.len(), "{} tests ran, {} locally", ours.len(), there.len());
    let mut both = Vec::new();
    for (name, outcome) in &ours {
        let ok = outcome == "ok" || (outcome == "skipped" && excluded.contains_key(name));
        let local = there.get(name).map_or("absent", String::as_str);
        let failed_here = outcome == "FAILED";
        if failed_here && local == "FAILED" {
            both.push(name.clone());
        }
        if !ok {
            println!("{name}: {outcome} here, {local} on the local file system");
        }
        cx.count(name, ok || (failed_here && excluded.contains_key(name)));
    }
    if !both.is_empty() {
        cx.note(format!("fail on the local file system as well: {}", both.join(" ")));
    }
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

/// Runs the suite in a directory; whether each test did as it should. Without the tests that make the
/// mount read-only, under others' feet.
pub(super) fn on(cx: &Cx, dir: &Path) -> Result<Vec<(String, bool)>> {
    let excluded = excluded()?;
    let config = cx.scratch().join("pjdfstest.toml");
    std::fs::write(&config, configuration(false))?;
    let other = cx.dir("other")?;
    let other = other.to_str().context("a path that is not UTF-8")?;
    let outcomes = suite(cx, &config, dir, &["-s", other])?;
    let fine = |name: &str, outcome: &str| outcome == "ok" || excluded.contains_key(name);
    let judged = outcomes.into_iter().filter(|(name, _)| !name.contains("::erofs"));
    Ok(judged.map(|(name, outcome)| (name.clone(), fine(&name, &outcome))).collect())
}

/// Names and reasons; a line without a reason is an error.
fn excluded() -> Result<BTreeMap<String, String>> {
    let file = where_::root().join("xtask/data/pjdfstest-skip.txt");
    let text = std::fs::read_to_string(&file)?;
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(' ').context("an exclusion without a reason")?;
            ensure!(!reason.trim().is_empty(), "{name} is excluded without a reason");
            Ok((name.to_owned(), reason.trim().to_owned()))
        })
        .collect()
}

fn configuration(remount: bool) -> String {
    format!(
        "[features]\nposix_fallocate = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         rename_ctime = {{}}\nstat_st_birthtime = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = {remount}\nexpected_failures = []\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    )
}

/// Runs the suite in `dir`; the outcome of each test.
fn suite(cx: &Cx, config: &Path, dir: &Path, more: &[&str]) -> Result<Results> {
    let out = cx
        .tool("pjdfstest")
        .arg("-c")
        .arg(config)
        .arg("-p")
        .arg(dir)
        .args(more)
        .env("PATH", path_with_plain_mount(cx)?)
        .env("LIBMOUNT_FORCE_MOUNT2", "always")
        .cwd(cx.scratch())
        .limit(400)
        .run()?;
    println!("{}", out.all());
    ensure!(!out.timed_out, "the suite hangs");
    let results = outcomes(&out.text());
    ensure!(!results.is_empty(), "the suite did not run");
    Ok(results)
}

/// The suite remounts with mount(8), which for FUSE would start a helper that knows no remount. A file that
/// was closed a moment ago keeps a mount busy until the kernel's RELEASE, which close(2) does not wait for,
/// has been answered; the suite would not ask again.
fn path_with_plain_mount(cx: &Cx) -> Result<std::ffi::OsString> {
    let bin = cx.dir("path")?;
    let script = bin.join("mount");
    std::fs::write(&script, MOUNT)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let mut path = bin.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    Ok(path)
}

/// Lines like `unlink::remove_type::fifo      ok`.
fn outcomes(text: &str) -> Results {
    text.lines()
        .filter_map(|line| {
            let (name, outcome) = line.split_once(' ')?;
            let outcome = outcome.trim();
            let is_test = name.contains("::") && !outcome.contains(' ');
            is_test.then(|| (name.to_owned(), outcome.to_owned()))
        })
        .collect()
}
