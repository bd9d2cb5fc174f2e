//! `cargo xtask bench build`: a C project of 240 sources and 60 headers is built with `make`, then
//! again after a few sources and one header changed, alternately by two mounts of one file system;
//! beside it by one mount that is alone, and on the local file system. Shown are seconds, ratios to
//! the local file system, and the messages of the mounts.

use super::Bench;
use super::rpc::messages;
use super::table::middle;
use crate::cx::Cx;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SOURCES: usize = 240;
const HEADERS: usize = 60;
/// Directories of sources.
const PARTS: usize = 12;
/// Sources that change before each incremental build.
const TOUCHED: usize = 8;
/// Headers a source includes.
const INCLUDED: usize = 20;
const STEPS: [&str; 3] = ["full build", "incremental", "nothing to do"];

fn source(n: usize, change: usize) -> String {
    let mut text = String::new();
    for i in 0..INCLUDED {
        let _ = writeln!(text, "#include \"h{}.h\"", (n * 7 + i * 3) % HEADERS);
    }
    let _ = writeln!(text, "static const int change{n} = {change};");
    for f in 0..20 {
        let _ = writeln!(text, "int f{n}_{f}(int x) {{ return x * {f} + change{n}; }}");
    }
    text
}

fn header(n: usize, change: usize) -> String {
    let mut text = format!("#pragma once\nenum {{ CHANGE{n} = {change} }};\n");
    for i in 0..60 {
        let _ = writeln!(text, "struct s{n}_{i} {{ int a; long b[{}]; }};", i + 1);
        let _ = writeln!(text, "int declared_{n}_{i}(struct s{n}_{i} *, const char *);");
    }
    text
}

const MAKEFILE: &str = "\
SRC := $(wildcard p*/*.c)
OBJ := $(SRC:.c=.o)
all: lib.a
lib.a: $(OBJ)
\trm -f $@; ar cr $@ $(OBJ)
%.o: %.c
\t$(CC) -O0 -Iinclude -MMD -c -o $@ $<
-include $(OBJ:.o=.d)
";

fn path(n: usize) -> String {
    format!("p{}/s{n}.c", n % PARTS)
}

fn project(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("include"))?;
    for part in 0..PARTS {
        std::fs::create_dir(dir.join(format!("p{part}")))?;
    }
    std::fs::write(dir.join("Makefile"), MAKEFILE)?;
    (0..HEADERS)
        .try_for_each(|n| std::fs::write(dir.join(format!("include/h{n}.h")), header(n, 0)))?;
    Ok((0..SOURCES).try_for_each(|n| std::fs::write(dir.join(path(n)), source(n, 0)))?)
}

/// One system: where each build of it runs.
struct Place {
    name: &'static str,
    dirs: Vec<PathBuf>,
    /// Mounts whose messages count.
    mounts: Vec<PathBuf>,
    seconds: [Vec<f64>; 3],
    messages: [Vec<f64>; 3],
}

impl Place {
    fn new(name: &'static str, dirs: Vec<PathBuf>, mounts: Vec<PathBuf>) -> Place {
        Place { name, dirs, mounts, seconds: Default::default(), messages: Default::default() }
    }

    fn sent(&self, cx: &Cx) -> Result<u64> {
        self.mounts.iter().map(|m| messages(cx, m)).sum()
    }

    fn make(&mut self, cx: &Cx, step: usize, dir: &Path) -> Result<()> {
        let (before, begun) = (self.sent(cx)?, Instant::now());
        let jobs = format!("-j{}", crate::runner::default_jobs());
        cx.cmd("make").args(["-s", &jobs, "-C"]).arg(dir).quiet().limit(600).ok()?;
        self.seconds[step].push(begun.elapsed().as_secs_f64());
        self.messages[step].push((self.sent(cx)? - before) as f64);
        Ok(())
    }

    fn round(&mut self, cx: &Cx, round: usize) -> Result<()> {
        let dirs: Vec<_> = self.dirs.iter().map(|d| d.join(format!("build{round}"))).collect();
        project(&dirs[0])?;
        let mut turn = dirs.iter().cycle();
        let mut next = || turn.next().context("no directory");
        self.make(cx, 0, next()?)?;
        for change in 1..=2 {
            let dir = next()?;
            for n in 0..TOUCHED {
                let n = (n * 31 + change * 7) % SOURCES;
                std::fs::write(dir.join(path(n)), source(n, change))?;
            }
            std::fs::write(dir.join("include/h5.h"), header(5, change))?;
            self.make(cx, 1, next()?)?;
            self.make(cx, 2, next()?)?;
        }
        Ok(std::fs::remove_dir_all(&dirs[0])?)
    }
}

/// Measures, interleaved.
pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    let mut alone = Cluster::new(cx, "alone", Transport::Unix, 4)?;
    let one = alone.mount("one")?;
    let mut shared = Cluster::new(cx, "shared", Transport::Unix, 4)?;
    let (a, b) = (shared.mount("a")?, shared.mount("b")?);
    let mut places = [
        Place::new("local", vec![cx.dir("local")?], vec![]),
        Place::new("one mount", vec![one.clone()], vec![one]),
        Place::new("two mounts", vec![a.clone(), b.clone()], vec![a, b]),
    ];
    for round in 0..bench.rounds {
        for place in &mut places {
            eprintln!("round {round}: {}", place.name);
            place.round(cx, round).with_context(|| place.name)?;
        }
    }
    alone.stop_and_check()?;
    shared.stop_and_check()?;
    let mut list = Vec::new();
    println!("{:16} {:12} {:>9} {:>9} {:>10}", "", "", "seconds", "to local", "messages");
    for (step, about) in STEPS.iter().enumerate() {
        let local = middle(&places[0].seconds[step]);
        for place in &places {
            let (seconds, messages) = (middle(&place.seconds[step]), middle(&place.messages[step]));
            let ratio = seconds / local;
            println!("{about:16} {:12} {seconds:>9.2} {ratio:>9.2} {messages:>10.0}", place.name);
            list.push(serde_json::json!({
                "step": about, "system": place.name, "seconds": seconds, "messages": messages,
            }));
        }
    }
    if let Some(file) = &bench.json {
        std::fs::write(file, serde_json::to_vec_pretty(&list)?)?;
    }
    Ok(())
}
