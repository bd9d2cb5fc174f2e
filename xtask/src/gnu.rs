//! `cargo xtask test-gnu`: GNU coreutils' own tests, unmodified, with mcp and msum in the place of cp and the
//! checksum programs.
//!
//! The source comes by Debian's source package from where this machine gets its packages, into the target
//! directory alone; the machine's configuration is not changed. It is built once. Every test must end as it
//! does with the genuine programs, as root and as a plain user, with the hand-over to the genuine
//! program and without; misses are listed with their reasons in `xtask/data/gnu-misses.txt`.

use crate::copies::PLAIN_USER;
use crate::proc::Cmd;
use crate::{steps, where_};
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct TestGnu {
    /// Use these programs (a directory with mcp and msum) instead of building them
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Run only tests whose path contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Names under which our programs are called.
const SUMS: [&str; 8] =
    ["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum"];
/// What the genuine programs are built with, and what their tests call: without these some tests are skipped.
const PACKAGES: [&str; 8] =
    ["libacl1-dev", "libattr1-dev", "libcap-dev", "acl", "attr", "libcap2-bin", "strace", "gdb"];
/// A group that owns nothing.
const SECOND_GROUP: u32 = 65_533;
/// Seconds for one run of all tests.
const LIMIT: u64 = 1500;

type Outcomes = BTreeMap<String, String>;

#[derive(Serialize)]
struct Line {
    test: String,
    user: &'static str,
    fallback: bool,
    genuine: String,
    ours: String,
    /// Why they may differ.
    reason: Option<String>,
    ok: bool,
}

/// Whether all tests end as they should; the last line printed says so.
pub fn run(args: &TestGnu) -> Result<bool> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "test-gnu runs the tests as root and as a plain user: run it as root"
    );
    let programs = match &args.programs {
        Some(dir) => std::path::absolute(dir)?,
        None => build()?,
    };
    let wanted: Vec<_> = PACKAGES.into_iter().filter(|p| steps::missing(p)).collect();
    steps::install_packages(&wanted)?;
    let tree = source()?;
    let tests = tests(&tree, args.only.as_deref())?;
    let misses = misses()?;
    let mut lines = Vec::new();
    for (user, uid) in [("root", 0), ("user", PLAIN_USER)] {
        place(&tree, None)?;
        let genuine = outcomes(&tree, &tests, uid, false)?;
        place(&tree, Some(&programs))?;
        for fallback in [true, false] {
            let ours = outcomes(&tree, &tests, uid, fallback)?;
            lines.extend(compare(user, fallback, &genuine, &ours, &misses));
        }
    }
    place(&tree, None)?;
    report(&lines, args.json.as_deref())
}

fn build() -> Result<PathBuf> {
    let profile = steps::profile(false);
    Cmd::new("cargo")
        .args(["build", "--profile", profile, "-p", "pinstripe-mtools", "--target-dir"])
        .arg(where_::target())
        .cwd(where_::root())
        .limit(LIMIT)
        .ok()?;
    Ok(where_::target().join(profile))
}

/// The built source tree.
fn source() -> Result<PathBuf> {
    let place = where_::target().join("xtask-gnu");
    std::fs::create_dir_all(place.join("lists/partial"))?;
    if find(&place, "coreutils-", true).is_none() {
        fetch(&place)?;
    }
    let tree =
        find(&place, "coreutils-", true).context("the package holds no coreutils-VERSION")?;
    let with = PACKAGES.join(" ");
    if !std::fs::read_to_string(tree.join("built")).is_ok_and(|had| had == with) {
        println!("building {}", tree.display());
        let configure = Cmd::new("./configure").arg("--quiet").env("FORCE_UNSAFE_CONFIGURE", "1");
        configure.cwd(&tree).limit(LIMIT).ok()?;
        Cmd::new("make").arg("-j4").cwd(&tree).limit(LIMIT).ok()?;
        for name in SUMS.iter().chain(&["cp"]) {
            std::fs::copy(tree.join("src").join(name), tree.join(format!("genuine-{name}")))?;
        }
        std::fs::write(tree.join("built"), with)?;
    }
    Ok(tree)
}

fn find(dir: &Path, start: &str, is_dir: bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    entries.map(|e| e.path()).find(|p| {
        p.is_dir() == is_dir
            && p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start))
    })
}

/// Debian's source package, by a list of sources of our own.
fn fetch(place: &Path) -> Result<()> {
    let list = place.join("source.sources");
    std::fs::write(&list, deb_src()?)?;
    let apt = || {
        Cmd::new("apt-get")
            .arg("-qo")
            .arg(format!("Dir::Etc::SourceList={}", list.display()))
            .args([
                "-o",
                "Dir::Etc::SourceParts=/nonexistent",
                "-o",
                "APT::Sandbox::User=root",
                "-o",
            ])
            .arg(format!("Dir::State::Lists={}", place.join("lists").display()))
            .cwd(place)
            .limit(600)
    };
    apt().arg("update").ok()?;
    apt().args(["source", "--download-only", "coreutils"]).ok()?;
    let archive = std::fs::read_dir(place)?.flatten().map(|e| e.path());
    let archive = archive
        .filter(|p| p.to_string_lossy().contains(".orig.tar"))
        .find(|p| !p.to_string_lossy().ends_with(".asc"))
        .context("the source package holds no .orig.tar")?;
    Cmd::new("tar").arg("xf").arg(archive).cwd(place).limit(300).ok()?;
    Ok(())
}

/// A source entry for the first archive this machine gets packages from.
fn deb_src() -> Result<String> {
    let mut files: Vec<_> =
        std::fs::read_dir("/etc/apt/sources.list.d")?.flatten().map(|e| e.path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "sources")) {
        let text = std::fs::read_to_string(file)?;
        for block in text.split("\n\n") {
            let field =
                |name: &str| block.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
            let (Some(uri), Some(suites)) = (field("URIs:"), field("Suites:")) else { continue };
            let suite = suites.split_whitespace().next().unwrap_or_default();
            if uri.ends_with("/debian") || uri.ends_with("/debian/") || uri.ends_with("/ubuntu") {
                let signed =
                    field("Signed-By:").map_or(String::new(), |k| format!("Signed-By: {k}\n"));
                return Ok(format!(
                    "Types: deb-src\nURIs: {uri}\nSuites: {suite}\nComponents: main\n{signed}"
                ));
            }
        }
    }
    let text = std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("deb ") && l.contains(" main"));
    let words: Vec<_> = line
        .context("apt on this machine has no source of packages to get coreutils' source from")?
        .split_whitespace()
        .filter(|w| !w.starts_with('['))
        .collect();
    let [_, uri, suite, ..] = words[..] else {
        bail!("/etc/apt/sources.list: a line of too few words")
    };
    Ok(format!("Types: deb-src\nURIs: {uri}\nSuites: {suite}\nComponents: main\n"))
}

fn tests(tree: &Path, only: Option<&str>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for dir in ["tests/cp", "tests/cksum", "tests/misc"] {
        let Ok(entries) = std::fs::read_dir(tree.join(dir)) else { continue };
        for name in entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()) {
            let script = name.ends_with(".sh") || name.ends_with(".pl");
            let sums = name.starts_with("md5") || name.starts_with("sha") && name.contains("sum");
            let ours = !dir.ends_with("misc")
                || sums
                || name.starts_with("b2sum")
                || name.starts_with("cksum");
            let path = format!("{dir}/{name}");
            if script && ours && only.is_none_or(|text| path.contains(text)) {
                found.push(path);
            }
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "no test of that name");
    Ok(found)
}

/// Puts our programs, or the genuine ones, to where the tests call them.
fn place(tree: &Path, programs: Option<&Path>) -> Result<()> {
    for name in SUMS.iter().chain(&["cp"]) {
        let to = tree.join("src").join(name);
        let from = match programs {
            Some(dir) => dir.join(if *name == "cp" { "mcp" } else { "msum" }),
            None => tree.join(format!("genuine-{name}")),
        };
        std::fs::remove_file(&to)?;
        std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

fn outcomes(tree: &Path, tests: &[String], uid: u32, fallback: bool) -> Result<Outcomes> {
    let id = uid.to_string();
    // One test wants a member of two.
    let groups = format!("{uid},{SECOND_GROUP}");
    Cmd::new("chown").args(["-R", &format!("{id}:{id}")]).arg(tree).limit(300).ok()?;
    let out = Cmd::new("setpriv")
        .args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--groups",
            &groups,
            "make",
            "check-TESTS",
            "SUBDIRS=.",
        ])
        .arg(format!("TESTS={}", tests.join(" ")))
        .args(["RUN_EXPENSIVE_TESTS=yes", "RUN_VERY_EXPENSIVE_TESTS=yes"])
        .env("PINSTRIPE_NO_FALLBACK", if fallback { "0" } else { "1" })
        .env("LC_ALL", "C")
        .cwd(tree)
        .limit(LIMIT)
        .run()?;
    let text = out.text();
    let outcomes: Outcomes = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(word, test)| {
            ["PASS", "FAIL", "SKIP", "ERROR"].contains(word) && test.starts_with("tests/")
        })
        .filter(|(_, test)| test.ends_with(".sh") || test.ends_with(".pl"))
        .map(|(word, test)| (test.to_owned(), word.to_owned()))
        .collect();
    ensure!(
        outcomes.len() == tests.len(),
        "{} of {} tests ran: {}",
        outcomes.len(),
        tests.len(),
        out.tail()
    );
    Ok(outcomes)
}

fn misses() -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(where_::root().join("xtask/data/gnu-misses.txt"))?;
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (test, reason) =
                line.split_once(' ').with_context(|| format!("{line}: a miss without a reason"))?;
            Ok((test.to_owned(), reason.trim().to_owned()))
        })
        .collect()
}

fn compare(
    user: &'static str,
    fallback: bool,
    genuine: &Outcomes,
    ours: &Outcomes,
    misses: &BTreeMap<String, String>,
) -> Vec<Line> {
    let line = |(test, theirs): (&String, &String)| {
        let ours = ours.get(test).cloned().unwrap_or_default();
        let reason = if fallback { None } else { misses.get(test).cloned() };
        // What the genuine program cannot pass here says nothing, unless we lose it.
        let ok = ours == *theirs || ours == "PASS" || reason.is_some();
        Line { test: test.clone(), user, fallback, genuine: theirs.clone(), ours, reason, ok }
    };
    genuine.iter().map(line).collect()
}

fn report(lines: &[Line], json: Option<&Path>) -> Result<bool> {
    for (user, fallback) in [("root", true), ("root", false), ("user", true), ("user", false)] {
        let these: Vec<_> =
            lines.iter().filter(|l| l.user == user && l.fallback == fallback).collect();
        let count =
            |outcome: fn(&Line) -> &str| these.iter().filter(|l| outcome(l) == "PASS").count();
        let how = if fallback { "with" } else { "without" };
        let (theirs, ours) = (count(|l| &l.genuine), count(|l| &l.ours));
        println!(
            "as {user}, {how} the genuine programs behind: {ours} of the {theirs} tests that GNU passes"
        );
    }
    for line in lines.iter().filter(|l| l.ours != l.genuine) {
        let reason =
            line.reason.as_deref().unwrap_or(if line.ok { "better" } else { "NOT LISTED" });
        println!(
            "{} as {}: {} with GNU's, {} with ours: {reason}",
            line.test, line.user, line.genuine, line.ours
        );
    }
    if let Some(file) = json {
        std::fs::write(file, serde_json::to_vec_pretty(lines)?)
            .with_context(|| file.display().to_string())?;
    }
    let failed = lines.iter().filter(|l| !l.ok).count();
    println!("{} passed, {failed} failed", lines.len() - failed);
    Ok(failed == 0)
}
