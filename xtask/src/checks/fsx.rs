//! `fsx` on 1, 2 and 4 stripes with several seeds, buffered and mapped, two processes at once;
//! and the same idea through O_DIRECT, which fsx does not speak.

use crate::checks::direct;
use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::proc::Running;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "fsx",
    about: "200,000 operations of fsx per seed and stripe count; O_DIRECT against a model",
    needs: &[Need::Binary, Need::Tool("fsx"), Need::Apt("fuse3"), Need::Root],
    limit: 1500,
    weight: 2,
    slow: false,
    run,
};

/// Stripe counts and the seeds each is run with, besides the run's own.
const STRIPES: &[i32] = &[1, 2, 4];
/// Processes one after the other that share the operations: fsx keeps every mapping it makes, and the
/// kernel goes through thousands of them at each truncation.
const RUNS: u64 = 8;
/// Smallest stripe size there is, so that a short file has many stripes.
const STRIPE_SIZE: u64 = 64 << 10;

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let operations = (cx.size(200_000, 20_000) / RUNS).to_string();
    let seeds = cx.size(2, 1);
    let config = cx.scratch().join("fsx.toml");
    std::fs::write(&config, configuration(1 << 20, 96 << 10))?;
    let short = cx.scratch().join("short.toml");
    // Around the limit of inline files, where data moves from the MDT to objects.
    std::fs::write(&short, configuration(160 << 10, 48 << 10))?;
    let mut dirs = Vec::new();
    for &count in STRIPES {
        dirs.push((count, fs.striped(&format!("stripes-{count}"), count, STRIPE_SIZE)?));
    }
    for run in 0..RUNS {
        // All at once: each mostly waits for replies, and it is the test of processes beside each
        // other.
        let mut started = Vec::new();
        for n in 0..seeds {
            let seed = cx.seed() * 1000 + run * seeds + n;
            for (count, dir) in &dirs {
                let config = if n % 2 == 0 { &config } else { &short };
                let name = format!("fsx seed {seed} on {count} stripes");
                started.push((name, start(cx, config, &operations, seed, dir)?));
            }
        }
        for (name, (mut running, log)) in started {
            cx.case(&name, || {
                running.ok(600).with_context(|| std::fs::read_to_string(&log).unwrap_or_default())
            });
        }
    }
    let operations = cx.size(20_000, 4_000);
    for (count, dir) in &dirs {
        cx.case(&format!("O_DIRECT on {count} stripes"), || {
            direct::exercise(&dir.join("direct"), cx.seed() ^ *count as u64, operations)
        });
    }
    cx.case("two processes on separate files", || {
        let two = cx.size("50000", "10000");
        let (mut a, la) = start(cx, &config, two, cx.seed() + 77, &fs.mnt)?;
        let (mut b, lb) = start(cx, &config, two, cx.seed() + 78, &fs.mnt)?;
        a.ok(900).with_context(|| std::fs::read_to_string(&la).unwrap_or_default())?;
        b.ok(900).with_context(|| std::fs::read_to_string(&lb).unwrap_or_default())
    });
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

fn start(
    cx: &Cx,
    config: &Path,
    operations: &str,
    seed: u64,
    dir: &Path,
) -> Result<(Running, PathBuf)> {
    let tag = format!("{}-{seed}", dir.file_name().unwrap_or_default().to_string_lossy());
    let log = cx.scratch().join(format!("fsx-{tag}.log"));
    let artifacts = crate::where_::logs().join("fsx").join(&tag);
    std::fs::create_dir_all(&artifacts)?;
    let running = cx
        .tool("fsx")
        .arg("-f")
        .arg(config)
        .args(["-q", "-N", operations, "-S", &seed.to_string(), "-P"])
        .arg(artifacts)
        .arg(dir.join(format!("fsx-{seed}")))
        .start(&log)?;
    Ok((running, log))
}

/// Every operation fsx knows, in files of at most `length` bytes.
fn configuration(length: u64, operation: u64) -> String {
    format!(
        "flen = {length}\n[opsize]\nmax = {operation}\nmin = 0\nalign = 1\n[weights]\n\
         close_open = 1\nread = 10\nwrite = 10\nmapread = 5\nmapwrite = 5\ninvalidate = 1\n\
         truncate = 5\nfsync = 0.05\nfdatasync = 0.05\nposix_fallocate = 2\npunch_hole = 3\n\
         sendfile = 2\nposix_fadvise = 1\ncopy_file_range = 3\n"
    )
}
