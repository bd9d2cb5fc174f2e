//! `mcp --mpi`: ranks on one host and on four, beside the genuine `cp`; a rank that is killed or stopped; what
//! ranks cost that have nothing to do.

use crate::copies::{look, world};
use crate::cx::Cx;
use crate::plan::{Check, Need};
use crate::proc::{Cmd, Out, Running};
use crate::random::Random;
use crate::ranks::{self, Hosts};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const CHECK: Check = Check {
    name: "mpi",
    about: "mcp on several hosts: the tree and the output of cp; a rank killed or stopped; idle ranks sleep",
    needs: &[
        Need::Binary,
        Need::Apt("libopenmpi-dev"),
        Need::Apt("openmpi-bin"),
        Need::Apt("libclang-dev"),
        Need::Apt("iproute2"),
        Need::Apt("util-linux"),
        Need::Root,
    ],
    limit: 900,
    weight: 2,
    slow: false,
    run,
};

/// Random trees in a source.
const WORLDS: usize = 40;
/// A file that is copied in chunks.
const BIG: usize = (24 << 20) + 4321;
/// Small chunks and few threads, so that there is work for all; each file is read back, so that it lasts.
const WORDS: &[&str] = &["-a", "--split-size=256K", "--threads=2", "--verify", "--json"];
/// Processor time of a rank that has nothing to do, by the time that passes.
const IDLE_MOST: f64 = 0.3;
/// How long it is looked at.
const IDLE: Duration = Duration::from_secs(3);
/// How often a rank is stopped until one was at work then; and how many seconds mpirun may take to end although
/// one is stopped: rank 0 waits 20 for it while MPI ends (docs/mcp-mpi.md).
const STOPS: u32 = 6;
const END_WITHOUT: u64 = 30;
/// Seconds it may take to end once that rank goes on.
const GOES_ON: u64 = 10;

fn run(cx: &Cx) -> Result<()> {
    cx.case("without MPI it is refused by name", || refused(cx));
    let mcp = ranks::build(cx)?;
    let place = Place { cx, root: cx.dir("copies")?, mcp };
    place.source()?;
    cx.case("MPI is started only where it is asked for", || place.asked_for());
    cx.case("one host", || place.one_host());
    cx.case("the output of cp, in its order", || place.output());
    cx.case("four hosts, one of which does not see the source", || place.four_hosts());
    cx.case("a rank that was started with other words", || place.other_words());
    for round in 0..cx.size(4, 1) {
        cx.case(&format!("a rank is killed, {round}"), || place.killed(round));
    }
    cx.case("a rank is stopped", || place.stopped());
    cx.case("ranks without work sleep", || place.idle());
    Ok(())
}

fn refused(cx: &Cx) -> Result<()> {
    let mcp = cx.set.pinstripe.with_file_name("mcp");
    let out = cx.cmd(&mcp).args(["--mpi", "a", "b"]).run()?.refused()?;
    ensure!(out.all().contains("built without MPI"), "{}", out.all());
    let bytes = std::fs::read(&mcp)?;
    ensure!(!bytes.windows(9).any(|w| w == b"libmpi.so"), "the default build is linked with MPI");
    Ok(())
}

struct Place<'a> {
    cx: &'a Cx,
    root: PathBuf,
    mcp: PathBuf,
}

impl Place<'_> {
    fn source(&self) -> Result<()> {
        let mut random = Random::new(self.cx.seed());
        let src = self.root.join("src");
        std::fs::create_dir(&src)?;
        for n in 0..WORLDS {
            world::source(&src.join(format!("w{n}")), &mut random, false)?;
        }
        std::fs::write(src.join("big"), random.bytes(BIG))?;
        self.cmd("cp").args(["-a", "src", "theirs"]).ok().map(|_| ())
    }

    fn cmd(&self, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
        self.cx.cmd(program).cwd(&self.root)
    }

    /// The words of mpirun for a copy of the source to `dst`.
    fn words(&self, more: &[&str], dst: &str) -> Vec<String> {
        let mut words = vec![self.mcp.display().to_string(), "--mpi".to_owned()];
        words.extend(WORDS.iter().chain(more).map(|word| (*word).to_owned()));
        words.extend(["src".to_owned(), dst.to_owned()]);
        words
    }

    fn mpirun(&self, words: &[String]) -> Cmd {
        ranks::mpirun(self.cmd("mpirun"), &[ranks::here(), words.to_vec()].concat())
    }

    fn clear(&self, dst: &str) -> Result<()> {
        let dst = self.root.join(dst);
        if dst.exists() {
            std::fs::remove_dir_all(dst)?;
        }
        Ok(())
    }

    fn same(&self, dst: &str) -> Result<()> {
        let (theirs, ours) =
            (look::tree(&self.root.join("theirs"))?, look::tree(&self.root.join(dst))?);
        let odd = theirs.iter().zip(&ours).find(|(a, b)| a != b);
        ensure!(odd.is_none(), "differ: {odd:#?}");
        ensure!(theirs.len() == ours.len(), "{} entries, not {}", ours.len(), theirs.len());
        Ok(())
    }

    fn one_host(&self) -> Result<()> {
        let out = self.mpirun(&self.words(&[], "ours")).ok()?;
        self.same("ours")?;
        let (files, bytes) = elsewhere(&out)?;
        self.cx.note(format!("of the files, other ranks copied {files} with {bytes} bytes"));
        ensure!(files > 0 && bytes > 0, "no other rank did anything");
        self.clear("ours")
    }

    /// By what Open MPI prints when it is started.
    fn asked_for(&self) -> Result<()> {
        let show = |cmd: Cmd| cmd.env("OMPI_MCA_mpi_show_mca_params", "all");
        let small = |words: &[&str]| -> Vec<String> {
            let mcp = self.mcp.display().to_string();
            [&[mcp.as_str()], words, &["big", "small"]]
                .concat()
                .iter()
                .map(|w| (*w).to_owned())
                .collect()
        };
        let one = |words: &[&str]| {
            let words = [&["-n".to_owned(), "1".to_owned()], &small(words)[..]].concat();
            show(ranks::mpirun(self.cmd("mpirun"), &words)).cwd(self.root.join("src")).ok()
        };
        let (without, with) = (one(&[])?, one(&["--mpi"])?);
        std::fs::remove_file(self.root.join("src/small"))?;
        ensure!(without.all().is_empty(), "MPI was started:\n{}", without.tail());
        ensure!(!with.all().is_empty(), "this shows nothing");
        Ok(())
    }

    fn output(&self) -> Result<()> {
        let theirs = self.cmd("cp").env("LC_ALL", "C").args(["-av", "src", "told"]).ok()?;
        self.clear("told")?;
        let ours = self.mpirun(&self.words(&["-v"], "told")).ok()?;
        self.same("told")?;
        let (theirs, ours) = (theirs.text(), ours.text());
        // cp 9.1 writes names with an apostrophe that end in an escape with a wrong byte now and then.
        let odd = |(a, b): &(&str, &str)| a != b && !a.contains("'''");
        let odd = theirs.lines().zip(ours.lines()).find(odd);
        ensure!(odd.is_none(), "the output differs: {odd:?}");
        ensure!(theirs.lines().count() == ours.lines().count(), "some lines are missing");
        self.clear("told")
    }

    fn four_hosts(&self) -> Result<()> {
        let hosts = Hosts::lay(self.cx, Some(&self.root.join("src")))?;
        let out = hosts.mpirun(&self.words(&[], "far")).cwd(&self.root).ok()?;
        self.same("far")?;
        let mut asked: Vec<_> =
            std::fs::read_to_string(&hosts.log)?.lines().map(str::to_owned).collect();
        asked.sort();
        ensure!(asked == ["2", "3", "4"], "ranks were started on {asked:?}");
        let (files, bytes) = elsewhere(&out)?;
        ensure!(files > 0 && bytes > 0, "no other host did anything");
        let said = out.errors();
        let told = said.lines().any(|line| {
            line.contains("rank 3 on host4")
                && line.contains("does not see")
                && line.contains("src/")
        });
        ensure!(told, "nothing is said of the host that does not see the source\n{}", out.tail());
        self.clear("far")
    }

    fn other_words(&self) -> Result<()> {
        let right = self.words(&[], "other");
        let wrong = self.words(&["--no-preallocate"], "other");
        let one = ["-n".to_owned(), "1".to_owned()];
        let all = [&one[..], &right, &[":".to_owned()], &one, &wrong].concat();
        let out = ranks::mpirun(self.cmd("mpirun").arg("--oversubscribe"), &all).ok()?;
        ensure!(out.errors().contains("other arguments than rank 0"), "{}", out.tail());
        self.same("other")?;
        self.clear("other")
    }

    /// Starts a copy and gives a worker this signal somewhere in it.
    fn signalled(&self, job: Cmd, signal: Signal, pause: Duration) -> Result<Hit> {
        let log = self.cx.scratch().join("mpirun.log");
        let _ = std::fs::remove_file(&log);
        let mut job = job.start(&log)?;
        let victim = ranks::all_running(self.cx)?[2].1;
        let (begun, end) = (self.root.join("hit/w1"), Instant::now() + Duration::from_secs(20));
        while !begun.exists() && job.alive() {
            ensure!(Instant::now() < end, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(pause);
        let victim = Pid::from_raw(victim).context("no pid")?;
        // It may have ended by now: then nothing is tried, and nothing is wrong.
        let _ = kill_process(victim, signal);
        Ok(Hit { job, victim, log })
    }

    /// On four hosts, and every other time on one.
    fn killed(&self, round: u64) -> Result<()> {
        let pause = Duration::from_millis(Random::new(self.cx.seed() + round).below(250));
        // Left by a case that failed it would have been begun before it begins.
        self.clear("hit")?;
        let words = self.words(&["--resume=journal"], "hit");
        let hosts = if round.is_multiple_of(2) { Some(Hosts::lay(self.cx, None)?) } else { None };
        let job = || match &hosts {
            Some(hosts) => hosts.mpirun(&words).cwd(&self.root),
            None => self.mpirun(&words),
        };
        let code = self.signalled(job(), Signal::KILL, pause)?.end(self.cx)?;
        let short = self.whole_or_short()?;
        ensure!(code != Some(0) || short == 0, "{short} files are not there, and the code is 0");
        let on = if hosts.is_some() { "four hosts" } else { "one host" };
        self.cx.note(format!(
            "on {on}, killed after {pause:?}: code {code:?}, {short} files not there"
        ));
        // Killed when all was done but its own end; the same command again would be a second copy, into the
        // first one, as with cp.
        let over = !self.root.join("journal").exists();
        ensure!(!over || short == 0, "{short} files are not there, and neither is the journal");
        if code != Some(0) && !over {
            // The same command again finishes.
            job().ok()?;
        }
        self.same("hit")?;
        ensure!(!self.root.join("journal").exists(), "the journal is left");
        self.clear("hit")
    }

    /// Until one was stopped while it had work. What is stopped before or after that is held up by MPI's own beginning
    /// and end, and mpirun itself may crash or stand still when it ends ranks (seen with Open MPI 4.1.4).
    fn stopped(&self) -> Result<()> {
        for n in 0..STOPS {
            self.clear("hit")?;
            let job = self.mpirun(&self.words(&["--mpi-timeout=1"], "hit"));
            let mut hit = self.signalled(job, Signal::STOP, Duration::from_millis(10) * n)?;
            let alone = hit.job.wait(END_WITHOUT)?.is_some();
            let waits = ranks::running(self.cx).iter().any(|(rank, _)| *rank == 0);
            let short = self.whole_or_short()?;
            ensure!(
                short == 0,
                "{short} files are not there: nobody else did what the stopped one had"
            );
            let said = std::fs::read_to_string(&hit.log)?;
            let at_work = said.contains("what it had is given out again");
            self.cx.note(format!("stopped at work: {at_work}; mpirun ended without it: {alone}"));
            hit.clear_up(self.cx)?;
            if at_work {
                ensure!(!waits, "rank 0 waits for a rank whose work was given out again");
                return self.clear("hit");
            }
        }
        bail!("no rank was at work when it was stopped, in {STOPS} tries")
    }

    /// Files that are not complete, none of which may look so.
    fn whole_or_short(&self) -> Result<usize> {
        let mut short = 0;
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(self.root.join("src").join(&dir))? {
                let entry = entry?;
                let (name, kind) = (dir.join(entry.file_name()), entry.file_type()?);
                if kind.is_dir() {
                    dirs.push(name);
                } else if kind.is_file() {
                    short += usize::from(!self.whole(&name)?);
                }
            }
        }
        Ok(short)
    }

    fn whole(&self, name: &Path) -> Result<bool> {
        let (src, dst) = (self.root.join("src").join(name), self.root.join("hit").join(name));
        let Ok(there) = std::fs::read(&dst) else { return Ok(false) };
        let wanted = std::fs::read(&src)?;
        ensure!(
            there.len() != wanted.len() || there == wanted,
            "{} has its source's size, and other bytes",
            dst.display()
        );
        Ok(there == wanted)
    }

    /// Rank 0 waits for a FIFO, all others for rank 0.
    fn idle(&self) -> Result<()> {
        let fifo = self.root.join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)?;
        let log = self.cx.scratch().join("idle.log");
        let words = [self.mcp.display().to_string(), "--mpi".into(), "fifo".into(), "out".into()];
        let mut job = self.mpirun(&words).start(&log)?;
        let all = ranks::all_running(self.cx)?;
        // Opened when rank 0 has opened it: then all have started.
        let mut end = std::fs::OpenOptions::new().write(true).open(&fifo)?;
        let (before, start) = (times(&all)?, Instant::now());
        std::thread::sleep(IDLE);
        let (after, passed) = (times(&all)?, start.elapsed().as_secs_f64());
        std::io::Write::write_all(&mut end, b"done")?;
        drop(end);
        job.ok(20)?;
        ensure!(std::fs::read(self.root.join("out"))? == b"done", "the FIFO was not copied");
        let shares: Vec<_> =
            before.iter().zip(&after).map(|(before, after)| (after - before) / passed).collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        self.cx.note(format!("a rank without work takes {most:.3} of a processor"));
        ensure!(most < IDLE_MOST, "ranks without work take {shares:?} of a processor");
        ranks::gone(self.cx)
    }
}

/// A copy one of whose ranks got a signal.
struct Hit {
    job: Running,
    victim: Pid,
    log: PathBuf,
}

impl Hit {
    /// Lets the stopped one go on, and ends what does not end then.
    fn clear_up(mut self, cx: &Cx) -> Result<()> {
        let _ = kill_process(self.victim, Signal::CONT);
        if self.job.wait(GOES_ON)?.is_none() {
            cx.note("mpirun does not end although all ranks go on");
            self.job.kill();
            for pid in ranks::running(cx).iter().filter_map(|(_, pid)| Pid::from_raw(*pid)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        ranks::gone(cx)
    }

    /// What mpirun ends with, and that nothing is left of it.
    fn end(mut self, cx: &Cx) -> Result<Option<i32>> {
        let status = self.job.wait(ranks::RUN_LIMIT)?.context("it does not end")?;
        ranks::gone(cx)?;
        Ok(status.code())
    }
}

fn times(all: &[(usize, i32)]) -> Result<Vec<f64>> {
    all.iter().map(|(_, pid)| ranks::processor_time(*pid)).collect()
}

/// Files and bytes that other ranks say to have copied.
fn elsewhere(out: &Out) -> Result<(u64, u64)> {
    let said = out.errors();
    let line = said.lines().find(|line| line.starts_with('{')).context("no statistics")?;
    let stats: serde_json::Value = serde_json::from_str(line)?;
    let get = |key: &str| stats[key].as_u64().with_context(|| format!("no {key} in {line}"));
    Ok((get("files_elsewhere")?, get("bytes_elsewhere")?))
}
