//! `cargo xtask bench rpc`: messages per step of one small job, the measure that noise cannot
//! touch, beside what was counted for the same job on real Lustre 2.17 and on NFSv3.
//!
//! Counted are requests to MDTs and OSTs and their call-backs, as the mount's own counters show
//! them; a batch is one message. A step ends when nothing has been sent for [`QUIET`], so that what
//! is written behind counts where it was caused. "Cold" is a mount made anew. The job is counted on
//! a mount that is alone, on one beside which another is idle, and on one beside which another has
//! looked at and read all of the job's files before they are read again or removed; there the other's
//! messages count, too.

use super::Bench;
use crate::cx::Cx;
use crate::proc::Cmd;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A step is over when nothing was sent for so long; write-behind waits a second at most.
const QUIET: Duration = Duration::from_millis(1600);
const MIB: usize = 1 << 20;

/// What others need: Lustre 2.17, the same with Data-on-MDT, NFSv3; and what we allow ourselves.
type Beside = (u64, u64, u64, u64);

/// A step: its name, what it is, what others need, whether it starts cold, and what it does.
struct Step {
    name: &'static str,
    about: &'static str,
    beside: Option<Beside>,
    cold: bool,
    run: fn(&Path) -> Result<()>,
}

const STEPS: &[Step] = &[
    Step {
        name: "mkdir",
        about: "make the job's directory",
        beside: None,
        cold: false,
        run: |d| Ok(std::fs::create_dir(d)?),
    },
    Step {
        name: "write8m",
        about: "write 8 MiB, 1 MiB blocks",
        beside: Some((7, 9, 12, 5)),
        cold: false,
        run: |d| write(&d.join("big"), MIB, 8),
    },
    Step {
        name: "read1m",
        about: "read 1 MiB in 4 KiB, cold",
        beside: Some((4, 5, 17, 3)),
        cold: true,
        run: |d| read(&d.join("big"), 4096, MIB),
    },
    Step {
        name: "more",
        about: "256 KiB in 4 KiB, and 1 MiB",
        beside: None,
        cold: false,
        run: |d| write(&d.join("w256k"), 4096, 64).and_then(|()| write(&d.join("w1m"), MIB, 1)),
    },
    Step {
        name: "create20",
        about: "create 20 empty files",
        beside: Some((42, 42, 20, 2)),
        cold: false,
        run: |d| (0..20).try_for_each(|i| write(&d.join(format!("empty{i}")), 1, 0)),
    },
    Step {
        name: "create20x8k",
        about: "create 20 files of 8 KiB",
        beside: Some((62, 42, 40, 2)),
        cold: false,
        run: |d| (0..20).try_for_each(|i| write(&d.join(header(i)), 8192, 1)),
    },
    Step {
        name: "ls",
        about: "ls -l of 43 entries, cold",
        beside: Some((84, 10, 2, 2)),
        cold: true,
        run: |d| Cmd::new("ls").arg("-l").arg(d).quiet().ok().map(|_| ()),
    },
    Step {
        name: "headers_first",
        about: "open, read, close 20 headers, cold",
        beside: Some((80, 28, 25, 20)),
        cold: true,
        run: |d| (0..20).try_for_each(|i| read(&d.join(header(i)), 8192, 8192)),
    },
    Step {
        name: "headers_again",
        about: "the same four times more",
        beside: Some((320, 112, 100, 0)),
        cold: false,
        run: |d| (0..80).try_for_each(|i| read(&d.join(header(i % 20)), 8192, 8192)),
    },
    Step {
        name: "stat_first",
        about: "stat all files",
        beside: None,
        cold: false,
        run: |d| stat(d).map(|_| ()),
    },
    Step {
        name: "stat50",
        about: "stat 50 files again",
        beside: Some((50, 0, 0, 0)),
        cold: false,
        run: |d| {
            let seen = stat(d)?;
            (seen..50).try_for_each(|_| Ok(std::fs::metadata(d.join("big")).map(|_| ())?))
        },
    },
    Step {
        name: "rm",
        about: "rm -rf of those 43 files",
        beside: Some((90, 117, 46, 4)),
        cold: false,
        run: |d| Cmd::new("rm").arg("-rf").arg(d).quiet().ok().map(|_| ()),
    },
];

fn header(i: usize) -> String {
    format!("header{i}.h")
}

fn write(at: &Path, block: usize, blocks: usize) -> Result<()> {
    let mut file = std::fs::File::create(at)?;
    let bytes: Vec<u8> = (0..block).map(|i| (i % 251) as u8).collect();
    (0..blocks).try_for_each(|_| Ok(file.write_all(&bytes)?))
}

fn read(at: &Path, block: usize, bytes: usize) -> Result<()> {
    let mut file = std::fs::File::open(at)?;
    let mut buf = vec![0; block];
    for n in 0..bytes / block {
        file.read_exact(&mut buf)?;
        let wrong = buf.iter().enumerate().any(|(i, b)| *b != ((n * block + i) % MIB % 251) as u8);
        ensure!(!wrong, "{}: other bytes than were written", at.display());
    }
    Ok(())
}

/// Stats every file; how many there were.
fn stat(dir: &Path) -> Result<usize> {
    let mut n = 0;
    for entry in std::fs::read_dir(dir)? {
        std::fs::symlink_metadata(entry?.path())?;
        n += 1;
    }
    Ok(n)
}

/// What a mount has sent and been sent, by kind.
type Counts = BTreeMap<String, u64>;

fn counts(cx: &Cx, mount: &Path) -> Result<Counts> {
    let mut cmd = Cmd::new(&cx.set.pinstripe).args(["get_param", "--json", "--mount"]);
    cmd = cmd.arg(mount).arg("*").quiet();
    let out = cmd.limit(30).ok()?;
    let said: serde_json::Value = serde_json::from_slice(&out.stdout)
        .with_context(|| format!("get_param: {}", out.tail()))?;
    let all = said.as_object().context("get_param: no object")?;
    ensure!(all.contains_key("mdc.messages"), "get_param shows no mdc.messages");
    let number = |v: &serde_json::Value| v.as_str()?.parse().ok();
    Ok(all.iter().filter_map(|(k, v)| Some((k.clone(), number(v)?))).collect())
}

/// What a mount has sent to servers and been sent by them, until now.
pub fn messages(cx: &Cx, mount: &Path) -> Result<u64> {
    Ok(total(&counts(cx, mount)?))
}

struct Job<'a> {
    cx: &'a Cx,
    cluster: Cluster,
    mnt: PathBuf,
    /// A mount that looks at and reads everything in front of each step, and is counted then, too.
    reader: Option<PathBuf>,
}

/// What another does that leaves it with leases on all of the job's files.
fn look(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    stat(dir)?;
    let there = |i: &usize| dir.join(header(*i)).exists();
    (0..20).filter(there).try_for_each(|i| read(&dir.join(header(i)), 8192, 8192))
}

impl Job<'_> {
    fn counts(&self) -> Result<Counts> {
        let mut all = counts(self.cx, &self.mnt)?;
        if let Some(reader) = &self.reader {
            for (kind, n) in counts(self.cx, reader)? {
                *all.entry(kind).or_default() += n;
            }
        }
        Ok(all)
    }

    /// Counters once nothing is sent any more.
    fn settled(&self) -> Result<Counts> {
        let end = Instant::now() + crate::fs::PATIENCE;
        let mut last = (self.counts()?, Instant::now());
        while last.1.elapsed() < QUIET {
            ensure!(Instant::now() < end, "messages do not end");
            std::thread::sleep(QUIET / 16);
            let now = self.counts()?;
            if total(&now) != total(&last.0) {
                last = (now, Instant::now());
            }
        }
        Ok(last.0)
    }

    fn run(&mut self, step: &Step) -> Result<(u64, Counts)> {
        if step.cold {
            let mnt = self.mnt.clone();
            self.cluster.unmount(&mnt)?;
            self.cluster.mount_at(&mnt, &[])?;
        }
        if let Some(reader) = &self.reader {
            look(&reader.join("job")).context("the other mount")?;
        }
        let before = self.settled()?;
        (step.run)(&self.mnt.join("job")).with_context(|| step.name.to_owned())?;
        let after = self.settled()?;
        let kinds = after.iter().filter(|(k, _)| k.contains(".stats."));
        let grown = kinds.filter_map(|(k, n)| {
            let more = n - before.get(k).copied().unwrap_or(0);
            (more > 0).then(|| (k.clone(), more))
        });
        Ok((total(&after) - total(&before), grown.collect()))
    }
}

fn total(counts: &Counts) -> u64 {
    ["mdc.messages", "osc.messages", "ldlm.callbacks"].iter().filter_map(|k| counts.get(*k)).sum()
}

/// Counts the job on a mount that is alone, on one beside an idle one, and beside one that reads all.
pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    let mut rows: Vec<(&Step, Vec<(u64, Counts)>)> = STEPS.iter().map(|s| (s, vec![])).collect();
    for name in ["alone", "shared", "read"] {
        let mut cluster = Cluster::new(cx, name, Transport::Unix, 4)?;
        let other = if name == "alone" { None } else { Some(cluster.mount("other")?) };
        let mnt = cluster.mount("mnt")?;
        let reader = other.filter(|_| name == "read");
        let mut job = Job { cx, cluster, mnt, reader };
        for (step, found) in &mut rows {
            eprintln!("{name}: {}", step.name);
            found.push(job.run(step)?);
        }
        job.cluster.stop_and_check()?;
    }
    println!(
        "{:36} {:>8} {:>8} {:>6} {:>6} {:>6} {:>8} {:>12}",
        "messages", "Lustre", "+ DoM", "NFSv3", "mark", "ours", "2 mounts", "both used it"
    );
    for (step, found) in &rows {
        let [(alone, kinds), (shared, _), (read, _)] = &found[..] else { continue };
        let Some((lustre, dom, nfs, mark)) = step.beside else {
            println!("{:36} {:>38} {alone:>6} {shared:>8} {read:>12}", step.about, "");
            continue;
        };
        let said = if *alone <= mark { "met" } else { "missed" };
        println!(
            "{:36} {lustre:>8} {dom:>8} {nfs:>6} {mark:>6} {alone:>6} {shared:>8} {read:>12}  {said}",
            step.about
        );
        if *alone > mark {
            let kinds: Vec<_> = kinds.iter().map(|(k, n)| format!("{k} {n}")).collect();
            println!("{:4}{}", "", kinds.join(", "));
        }
    }
    if let Some(file) = &bench.json {
        let list: Vec<_> = rows
            .iter()
            .filter_map(|(step, found)| {
                let [(alone, kinds), (shared, shared_kinds), (read, read_kinds)] = &found[..]
                else {
                    return None;
                };
                Some(serde_json::json!({
                    "step": step.name, "messages": alone, "messages_shared": shared,
                    "messages_read": read, "operations": kinds, "operations_shared": shared_kinds,
                    "operations_read": read_kinds,
                }))
            })
            .collect();
        std::fs::write(file, serde_json::to_vec_pretty(&list)?)?;
    }
    Ok(())
}
