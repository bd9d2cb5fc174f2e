//! Other parallel copy programs, measured beside mcp, and what the disk itself can do, by fio. Whatever cannot be
//! installed is left out, with a note.

use crate::cx::Cx;
use crate::steps;
use crate::where_;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A program that copies SOURCE to a DEST that does not exist.
pub struct Peer {
    pub name: &'static str,
    pub program: PathBuf,
    /// Words for a directory.
    pub tree: &'static [&'static str],
}

/// Those that are there, installed where they were missing.
pub fn peers(cx: &Cx) -> Vec<Peer> {
    let known = [("xcp", &["-r"][..]), ("cpz", &[])];
    let there = known.into_iter().filter(|(name, _)| match steps::install_tool(cx, name) {
        Ok(()) => true,
        Err(e) => {
            println!("{name} is not measured: it cannot be installed: {e:#}");
            false
        }
    });
    let program = |name| where_::tools().join("bin").join(name);
    there.map(|(name, tree)| Peer { name, program: program(name), tree }).collect()
}

/// Whether fio is there, after an attempt to install it.
pub fn fio() -> bool {
    if steps::missing("fio")
        && let Err(e) = steps::install_packages(&["fio"])
    {
        println!("the disk's limit is not measured: fio cannot be installed: {e:#}");
        return false;
    }
    true
}

/// How fio moves the bytes: past the page cache, and through it as a copy does.
pub const WAYS: [(&str, &str); 2] = [("direct", "1"), ("buffered", "0")];

/// Seconds in which fio reads all files of `from` in sequence and writes as much to `to` at the same time: what a
/// copy cannot beat. Nothing is synchronized, as with a copy. The longer of the two counts.
pub fn disk(cx: &Cx, direct: &str, from: &Path, to: &Path) -> Result<f64> {
    let sizes: Vec<u64> =
        from.read_dir()?.flatten().map(|e| e.metadata().map_or(0, |m| m.len())).collect();
    let (files, each) = (sizes.len(), sizes.first().copied().unwrap_or(0));
    ensure!(sizes.iter().all(|size| *size == each), "files of one size are meant");
    std::fs::create_dir_all(to)?;
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    let common = format!(
        "ioengine=io_uring\niodepth=32\nbs=1M\ndirect={direct}\nfile_service_type=sequential\n"
    );
    let job = format!(
        "[global]\n{common}[read]\nrw=read\nopendir={}\n[write]\nrw=write\ndirectory={}\n\
         nrfiles={files}\nfilesize={each}\nfallocate=none\ncreate_on_open=1\n",
        path(from)?,
        path(to)?
    );
    let file = cx.scratch().join("disk.fio");
    std::fs::write(&file, job)?;
    let told = cx.cmd("fio").args(["--output-format=json"]).arg(&file).limit(300).ok()?;
    std::fs::remove_dir_all(to)?;
    let text = told.text();
    let begin = text.find('{').context("fio told no JSON")?;
    let told: Value = serde_json::from_str(&text[begin..]).context("fio's JSON")?;
    let all = (each * files as u64) as f64;
    let seconds = |n: usize, what: &str| -> Result<f64> {
        let part = &told["jobs"][n][what];
        let moved = part["io_bytes"].as_f64().unwrap_or(0.0);
        ensure!(moved >= all, "fio: {what} moved {moved} bytes of {all}");
        part["runtime"].as_f64().map(|ms| ms / 1e3).context("fio told no time")
    };
    Ok(seconds(0, "read")?.max(seconds(1, "write")?))
}
