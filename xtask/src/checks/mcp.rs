//! `mcp` against the genuine `cp`: thousands of random commands, as root and as a plain user.

use crate::copies;
use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "mcp",
    about: "random commands of cp: the same tree, output and exit code as the genuine program",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Apt("strace"), Need::Root],
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

/// Differences shown.
const SHOWN: usize = 12;

fn run(cx: &Cx) -> Result<()> {
    let mcp = cx.set.pinstripe.with_file_name("mcp");
    // Another version than the installed one, where a directory with it is named.
    let dir = std::env::var_os("PINSTRIPE_GENUINE").unwrap_or_else(|| "/usr/bin".into());
    let genuine = &Path::new(&dir).join("cp");
    let version = cx.cmd(genuine).arg("--version").ok()?.text();
    let version = version.lines().next().context("cp tells no version")?.to_owned();
    let programs = copies::Programs { mcp: &mcp, genuine };
    let cases = cx.size(4000, 800);
    // Others must reach it: some commands are a plain user's.
    let root = cx.dir("copies")?;
    let differences = copies::compare(&programs, &root, cx.seed(), cases)?;
    show(&differences);
    cx.note(format!("{cases} commands beside {version}, {} differ", differences.len()));
    cx.count("random commands do what cp does", differences.is_empty());
    let cases = cx.size(1600, 400);
    let differences = copies::interrupt(&programs, &root, cx.seed() ^ 0x7e5e, cases)?;
    show(&differences);
    cx.note(format!("{cases} commands killed and given again, {} differ", differences.len()));
    cx.count("what was killed is finished by --resume", differences.is_empty());
    cx.case("the same on a mount of ours", || mounted(cx, &programs));
    cx.case("stripes are set as asked", || stripes(cx, &mcp));
    cx.case("the page cache is passed by as asked", || page_cache(cx, &mcp));
    Ok(())
}

fn show(differences: &[copies::Difference]) {
    for difference in differences.iter().take(SHOWN) {
        println!("---- {}\n{}", difference.command, difference.what);
    }
}

fn mounted(cx: &Cx, programs: &copies::Programs) -> Result<()> {
    let mut fs = Fs::new(cx, "mounted")?;
    let cases = cx.size(400, 80);
    let differences = copies::compare(programs, &fs.mnt, cx.seed() ^ 0x6d6e, cases)?;
    show(&differences);
    let killed = copies::interrupt(programs, &fs.mnt, cx.seed() ^ 0x6d6b, cases / 2)?;
    show(&killed);
    let differ = differences.len() + killed.len();
    ensure!(differ == 0, "{differ} of {} commands differ on the mount", cases + cases / 2);
    fs.down_and_check()
}

/// On a mount of ours, by what `lfs getstripe` says.
fn stripes(cx: &Cx, mcp: &Path) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let source = cx.scratch().join("source");
    std::fs::write(&source, Random::new(cx.seed()).bytes(3 << 20))?;
    let dir = fs.mnt.join("wide");
    std::fs::create_dir(&dir)?;
    cx.pinstripe().args(["lfs", "setstripe", "-c", "2"]).arg(&dir).ok()?;
    for (words, name, wanted) in [
        (&["--stripe-count=3"][..], "three", "3"),
        (&["--stripe-count=-1"], "all", "4"),
        (&["--stripe-count=1"], "one", "1"),
        (&["--stripe-count=auto"], "default", "2"),
        (&[], "silent", "2"),
    ] {
        let file = dir.join(name);
        cx.cmd(mcp).args(words).arg("--verify").arg(&source).arg(&file).ok()?;
        let count = cx.pinstripe().args(["lfs", "getstripe", "-c"]).arg(&file).ok()?.text();
        ensure!(count.trim() == wanted, "{words:?} made {} stripes, not {wanted}", count.trim());
        ensure!(std::fs::read(&file)? == std::fs::read(&source)?, "{words:?}: other bytes");
    }
    let count = |file: &Path| -> Result<String> {
        let told = cx.pinstripe().args(["lfs", "getstripe", "-c"]).arg(file).ok()?.text();
        Ok(told.trim().to_owned())
    };
    let kept = dir.join("kept");
    cx.cmd(mcp).arg("--stripe-count=keep").arg(dir.join("three")).arg(&kept).ok()?;
    ensure!(count(&kept)? == "3", "keep made {} stripes, not 3", count(&kept)?);
    limits(cx, &fs, mcp, count)?;
    chunks(cx, &fs, mcp)?;
    existing(cx, &fs, mcp, count)?;
    fs.down_and_check()
}

/// Large files without bytes: 1 + the root of 100 and of 1 GiB, and no more than there are OSTs.
fn limits(cx: &Cx, fs: &Fs, mcp: &Path, count: impl Fn(&Path) -> Result<String>) -> Result<()> {
    let mut told = [0; 4096];
    let length = rustix::fs::getxattr(&fs.mnt, "lustre.osts", &mut told[..])?;
    let told = std::str::from_utf8(&told[..length])?;
    let free = |line: &str| line.split_once(' ').and_then(|(_, free)| free.parse::<u64>().ok());
    let least = told.lines().map(free).collect::<Option<Vec<_>>>().unwrap_or_default();
    ensure!(least.len() == 4, "lustre.osts tells of four OSTs {told:?}");
    let least = least.into_iter().min().unwrap_or(0);
    let narrow = fs.striped("narrow", 1, 4 << 20)?;
    for (words, gib) in [("auto", 100), ("auto", 1), ("3l", 4), ("1s", 4)] {
        let source = cx.scratch().join("large");
        std::fs::File::create(&source)?.set_len(gib << 30)?;
        let file = narrow.join(format!("{words}{gib}"));
        cx.cmd(mcp).arg(format!("--stripe-count={words}")).arg(&source).arg(&file).ok()?;
        let root = 1 + gib.isqrt();
        // What is free changes while the test runs: one percent of somewhat more, and of somewhat less.
        let wanted = [110, 90].map(|percent| match words {
            "auto" => root.max((gib << 30).div_ceil((least / 10_000 * percent).max(1))).min(4),
            "3l" => (1 + 3 * gib).min(4),
            _ => root,
        });
        let got: u64 = count(&file)?.parse()?;
        ensure!(
            (wanted[0]..=wanted[1]).contains(&got),
            "{words} of {gib} GiB made {got} stripes, not {wanted:?}"
        );
        std::fs::remove_file(&file)?;
    }
    Ok(())
}

/// Files that all threads copy, chunk by chunk along the stripes, from this mount and from elsewhere.
fn chunks(cx: &Cx, fs: &Fs, mcp: &Path) -> Result<()> {
    let bytes = Random::new(cx.seed()).bytes((50 << 20) + 12_345);
    let source = cx.scratch().join("chunks");
    std::fs::write(&source, &bytes)?;
    for (count, size, words) in [
        (4, 4 << 20, &["--threads=7"][..]),
        (3, 1 << 20, &["--threads=3", "--split-size=8M"]),
        (2, 16 << 20, &["--threads=1"]),
        (4, 1 << 20, &["--split-size=64K"]),
    ] {
        let dir = fs.striped(&format!("chunks-{count}-{size}"), count, size)?;
        let (first, second) = (dir.join("first"), dir.join("second"));
        cx.cmd(mcp).args(words).arg(&source).arg(&first).ok()?;
        cx.cmd(mcp).args(words).arg(&first).arg(&second).ok()?;
        for file in [first, second] {
            let same = std::fs::read(&file)? == bytes;
            ensure!(same, "{words:?}: other bytes in {}", file.display());
        }
    }
    Ok(())
}

/// A file that is there has a layout: where it cannot change, that is told once, and the copy is whole.
fn existing(cx: &Cx, fs: &Fs, mcp: &Path, count: impl Fn(&Path) -> Result<String>) -> Result<()> {
    let (from, to) = (cx.dir("warned")?, fs.striped("there", 1, 1 << 20)?);
    let bytes = Random::new(cx.seed()).bytes(3 << 20);
    for name in ["a", "b"] {
        std::fs::write(from.join(name), &bytes)?;
        std::fs::write(to.join(name), &bytes)?;
    }
    let run = cx.cmd(mcp).args(["-r", "--stripe-count=3", "-T"]).arg(&from).arg(&to).ok()?;
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    let mut kept = 0;
    for name in ["a", "b"] {
        ensure!(std::fs::read(to.join(name))? == bytes, "{name}: other bytes");
        kept += usize::from(count(&to.join(name))? != "3");
    }
    let warnings = told.matches("warning: cannot give").count();
    ensure!(warnings == kept.min(1), "{kept} files keep their stripes: {told:?}");
    ensure!(kept == 0 || told.contains("3 stripes: "), "{told:?}");
    Ok(())
}

/// How many files are written past the page cache, by the system calls: on a mount of ours what is not
/// small, where nothing else is asked for.
fn page_cache(cx: &Cx, mcp: &Path) -> Result<()> {
    let mut fs = Fs::new(cx, "direct")?;
    let source = cx.scratch().join("direct-source");
    std::fs::write(&source, Random::new(cx.seed()).bytes(64 << 20))?;
    for (word, wanted) in [("--direct-write", 1), ("--no-direct-write", 0), ("--verbose", 1)] {
        let (file, log) = (fs.mnt.join(word), cx.scratch().join("calls"));
        let traced = cx.cmd("strace").args(["-f", "-e", "trace=open,openat", "-o"]).arg(&log);
        traced.arg(mcp).arg(word).arg(&source).arg(&file).ok()?;
        let calls = std::fs::read_to_string(&log)?;
        let past = |call: &&str| {
            let flags = call.split(['|', ',', ' ', ')']).collect::<Vec<_>>();
            flags.contains(&"O_WRONLY") && flags.contains(&"O_DIRECT")
        };
        let found = calls.lines().filter(past).count();
        ensure!(found == wanted, "{word}: {found} files were opened so, not {wanted}:\n{calls}");
        ensure!(std::fs::read(&file)? == std::fs::read(&source)?, "{word}: other bytes");
    }
    fs.down_and_check()
}
