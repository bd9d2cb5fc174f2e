//! `cargo xtask bench tools`: mcp and msum beside the genuine programs and, where they can be installed, other
//! parallel ones: wall time of the genuine one / ours, in the same rounds, page cache dropped before each run where
//! the case is a cold one, medians. Of the large files also what the disk itself can do.

use super::Bench;
use super::peers::{self, Peer, WAYS};
use super::table::middle;
use crate::cx::Cx;
use crate::fs::Fs;
use crate::random::Random;
use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// What one case copies or sums.
struct Case {
    name: &'static str,
    /// Hoped-for ratio.
    mark: f64,
    /// The genuine program.
    program: &'static str,
    /// Words before the operands.
    words: &'static [&'static str],
    source: PathBuf,
    /// Where a copy goes; None: sums of all files in the source.
    to: Option<PathBuf>,
    cold: bool,
    /// How often in a round: what takes milliseconds is measured many times.
    times: usize,
    /// The disk's own limit is measured beside it.
    limited: bool,
    /// Earlier copies are kept until the end: where inodes were removed lately, ext4 looks through all of them for one
    /// that may be taken, and who comes later finds more of them.
    kept: bool,
}

/// Hoped-for part of the disk's own limit.
const LIMIT_MARK: f64 = 0.9;
/// Seconds after which a run is ended.
const LIMIT: i64 = 60;
/// Memory that is allowed, KiB: and two buffers a thread.
const MEMORY_MARK: i64 = 64 << 10;

#[derive(Serialize)]
struct Figures {
    name: &'static str,
    mark: f64,
    /// Seconds of each round.
    genuine: Vec<f64>,
    ours: Vec<f64>,
    peers: BTreeMap<&'static str, Vec<f64>>,
    /// Those that could not do it.
    left_out: BTreeSet<&'static str>,
    /// Seconds of fio, by the way it moves the bytes.
    disk: BTreeMap<&'static str, Vec<f64>>,
    /// Medians: genuine / ours.
    ratio: f64,
    /// The faster of fio's / ours.
    of_limit: Option<f64>,
    limit_mark: f64,
    /// Peak memory of ours, and the mark, KiB.
    memory_kib: i64,
    memory_mark_kib: i64,
}

/// What else there is to measure.
struct Others {
    peers: Vec<Peer>,
    fio: bool,
}

pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    let memory = Memory::new(cx)?;
    let mut fs = Fs::new(cx, "mounted")?;
    let others = Others { peers: peers::peers(cx), fio: peers::fio() };
    let mut all = Vec::new();
    for case in cases(cx, &memory.dir, &fs.mnt, bench.quick)? {
        let mut figures = Figures::of(&case);
        for round in 0..bench.rounds {
            figures.round(cx, &case, &others, round)?;
        }
        figures.finish();
        figures.print();
        all.push(figures);
    }
    fs.down_and_check()?;
    if let Some(file) = &bench.json {
        std::fs::write(file, serde_json::to_vec_pretty(&all)?)
            .with_context(|| file.display().to_string())?;
    }
    Ok(())
}

impl Figures {
    fn of(case: &Case) -> Self {
        Self {
            name: case.name,
            mark: case.mark,
            genuine: vec![],
            ours: vec![],
            peers: BTreeMap::new(),
            left_out: BTreeSet::new(),
            disk: BTreeMap::new(),
            ratio: 0.0,
            of_limit: None,
            limit_mark: LIMIT_MARK,
            memory_kib: 0,
            memory_mark_kib: case.memory_mark(),
        }
    }

    /// Who goes first changes, so that nobody always finds the disk busy with the same other's pages.
    fn round(&mut self, cx: &Cx, case: &Case, others: &Others, round: usize) -> Result<()> {
        // A start-up of others says nothing of ours, and they sum nothing.
        let peers = if case.to.is_some() && case.times == 1 { &others.peers[..] } else { &[] };
        let turns = 2 + peers.len();
        for turn in 0..turns {
            match (turn + round) % turns {
                0 => {
                    let program = Path::new("/usr/bin").join(case.program);
                    self.genuine.push(case.run(&program, case.words)?.0);
                }
                1 => {
                    let tool = if case.to.is_some() { "mcp" } else { "msum" };
                    let program = cx.set.pinstripe.with_file_name(tool);
                    let (seconds, kib) = case.run(&program, case.words)?;
                    self.ours.push(seconds);
                    self.memory_kib = self.memory_kib.max(kib);
                }
                n if self.left_out.contains(peers[n - 2].name) => {}
                n => {
                    let peer = &peers[n - 2];
                    let words = if case.source.is_dir() { peer.tree } else { &[] };
                    // What it cannot copy is no failure of ours.
                    match case.run(&peer.program, words) {
                        Ok((seconds, _)) => {
                            self.peers.entry(peer.name).or_default().push(seconds);
                        }
                        Err(e) => {
                            println!("{} is left out of {}: {e:#}", peer.name, self.name);
                            self.left_out.insert(peer.name);
                        }
                    }
                }
            }
        }
        if let Some(to) = case.to.as_ref().filter(|_| case.limited && others.fio) {
            for (way, direct) in WAYS {
                case.clear()?;
                let seconds = peers::disk(cx, direct, &case.source, to)?;
                self.disk.entry(way).or_default().push(seconds);
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.ratio = middle(&self.genuine) / middle(&self.ours);
        let limit = self.disk.values().map(|seconds| middle(seconds)).reduce(f64::min);
        self.of_limit = limit.map(|limit| limit / middle(&self.ours));
    }

    fn print(&self) {
        println!(
            "{:<34} genuine {:>9.4} s   ours {:>9.4} s   ratio {:>5.2}   mark {:>4.2}   memory {:>6} of {} KiB",
            self.name,
            middle(&self.genuine),
            middle(&self.ours),
            self.ratio,
            self.mark,
            self.memory_kib,
            self.memory_mark_kib
        );
        for (name, seconds) in &self.peers {
            let ratio = middle(&self.genuine) / middle(seconds);
            println!("    {name:<38} {:>9.4} s {:>27} {ratio:>5.2}", middle(seconds), "ratio");
        }
        for (way, seconds) in &self.disk {
            println!("    fio, {way:<33} {:>9.4} s", middle(seconds));
        }
        if let Some(part) = self.of_limit {
            let words = "ours, of the faster of fio's";
            println!("    {words:<38} {part:>11.2}   mark {LIMIT_MARK:>4.2}");
        }
    }
}

/// A directory in memory; gone with the bench.
struct Memory {
    dir: PathBuf,
}

impl Memory {
    fn new(cx: &Cx) -> Result<Self> {
        let name = cx.scratch().file_name().unwrap_or_default();
        let dir = Path::new("/dev/shm").join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn cases(cx: &Cx, memory: &Path, mount: &Path, quick: bool) -> Result<Vec<Case>> {
    let mib = |full: u64, small: u64| if quick { small } else { full };
    let disk = cx.dir("tools")?;
    let one = memory.join("one");
    fill(&one, mib(4096, 512))?;
    let many = disk.join("many");
    std::fs::create_dir(&many)?;
    for n in 0..mib(64, 16) {
        fill(&many.join(format!("file{n:02}")), mib(64, 32))?;
    }
    let trees = disk.join("tree");
    tree::make(&trees, 1, if quick { 4_000 } else { 16_000 })?;
    remove_fifos(&trees)?;
    let tiny = disk.join("tiny");
    std::fs::create_dir(&tiny)?;
    std::fs::write(tiny.join("file"), "x")?;
    let copy = |name, mark, words, source: &Path, to: PathBuf, cold, times| Case {
        name,
        mark,
        program: "cp",
        words,
        source: source.to_path_buf(),
        to: Some(to),
        cold,
        times,
        limited: false,
        kept: false,
    };
    let sum = |name, mark, source: &Path, cold, times| Case {
        name,
        mark,
        program: "sha256sum",
        words: &[],
        source: source.to_path_buf(),
        to: None,
        cold,
        times,
        limited: false,
        kept: false,
    };
    let large = copy("cp -r, large files, cold", 1.0, &["-r"], &many, disk.join("copy"), true, 1);
    let small = |name, mark, cold| {
        let to = disk.join(if cold { "cold" } else { "warm" });
        copy(name, mark, &["-a"], &trees, to, cold, 1)
    };
    Ok(vec![
        copy("cp, start-up", 0.95, &[], &tiny.join("file"), disk.join("copy"), false, 100),
        sum("sha256sum, start-up", 0.95, &tiny, false, 100),
        copy("cp, one file in memory", 2.0, &[], &one, memory.join("copy"), false, 1),
        Case { limited: true, ..large },
        Case { kept: true, ..small("cp -a, small files, cold", 2.0, true) },
        Case { kept: true, ..small("cp -a, small files, warm", 0.95, false) },
        copy("cp, one file to a mount of ours", 0.95, &[], &one, mount.join("copy"), true, 1),
        copy("cp -a, small files to a mount", 0.95, &["-a"], &trees, mount.join("tree"), false, 1),
        sum("sha256sum, one file in memory", 1.3, &one, false, 1),
        sum("sha256sum, large files, cold", 3.4, &many, true, 1),
    ])
}

/// Some peers open them, and wait for ever.
fn remove_fifos(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            remove_fifos(&entry.path())?;
        } else if kind.is_fifo() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn fill(path: &Path, mib: u64) -> Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    let mut random = Random::new(mib);
    let mut block = vec![0; 1 << 20];
    for _ in 0..mib {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

impl Case {
    /// 64 MiB and two buffers a thread: threads and buffers as the tools have them where nothing is said.
    fn memory_mark(&self) -> i64 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as i64;
        let buffers =
            if self.to.is_some() { processors.clamp(8, 16) << 10 } else { processors << 8 };
        MEMORY_MARK + 2 * buffers
    }

    /// As it is to be before a run.
    fn clear(&self) -> Result<()> {
        if let Some(to) = &self.to {
            if self.kept { put_aside(to)? } else { remove(to)? }
        }
        if self.cold {
            rustix::fs::sync();
            std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        }
        Ok(())
    }

    /// Seconds of one run, and its peak memory in KiB.
    fn run(&self, program: &Path, words: &[&str]) -> Result<(f64, i64)> {
        let mut seconds = 0.0;
        let mut memory = 0;
        for _ in 0..self.times {
            self.clear()?;
            let (took, kib) = self.once(program, words)?;
            seconds += took;
            memory = memory.max(kib);
        }
        Ok((seconds / self.times as f64, memory))
    }

    fn once(&self, program: &Path, words: &[&str]) -> Result<(f64, i64)> {
        let mut command = Command::new(program);
        let name = program.file_name().unwrap_or_default();
        // Ours under the genuine one's name.
        let ours = name == "mcp" || name == "msum";
        let called = if ours { self.program.as_ref() } else { name };
        command.arg0(called).args(words).stdin(Stdio::null()).stdout(Stdio::null());
        match &self.to {
            Some(to) => command.arg(&self.source).arg(to),
            None if self.source.is_dir() => {
                let mut files: Vec<_> =
                    std::fs::read_dir(&self.source)?.flatten().map(|e| e.path()).collect();
                files.sort();
                command.args(files)
            }
            None => command.arg(&self.source),
        };
        let begin = Instant::now();
        let mut child = command.spawn().with_context(|| program.display().to_string())?;
        let kib = peak(child.id());
        let status = wait(&mut child)?;
        let took = begin.elapsed().as_secs_f64();
        ensure!(status.success(), "{}: {} ended with {status}", self.name, program.display());
        Ok((took, kib()))
    }
}

/// Waits for its end, no longer than [`LIMIT`].
fn wait(child: &mut Child) -> Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(child);
    let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let limit = rustix::event::Timespec { tv_sec: LIMIT, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    if rustix::event::poll(&mut fds, Some(&limit))? == 0 {
        child.kill()?;
        child.wait()?;
        bail!("it took longer than {LIMIT} s");
    }
    Ok(child.wait()?)
}

/// The highest memory of a process that is watched from beside it; 0 for one that ends at once.
fn peak(pid: u32) -> impl FnOnce() -> i64 {
    let (ended, watch) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut most = 0;
        while watch
            .recv_timeout(std::time::Duration::from_millis(20))
            .is_err_and(|e| matches!(e, std::sync::mpsc::RecvTimeoutError::Timeout))
        {
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
            let kib = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0);
            most = most.max(kib);
        }
        most
    });
    move || {
        drop(ended);
        thread.join().unwrap_or(0)
    }
}

/// Under another name beside it.
fn put_aside(path: &Path) -> Result<()> {
    let names = (0..).map(|n| path.with_extension(n.to_string()));
    match names.into_iter().find(|name| !name.exists()) {
        Some(name) if path.exists() => {
            std::fs::rename(path, name).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<()> {
    let gone = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => Ok(()),
    };
    gone.with_context(|| path.display().to_string())
}
