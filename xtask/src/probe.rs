//! Doing the same on the mount and on the local file system, and comparing what each step said.

use crate::cx::Cx;
use anyhow::{Result, ensure};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// Records what each step answered.
pub struct Probe {
    pub dir: PathBuf,
    lines: Vec<(String, String)>,
}

impl Probe {
    /// Records the outcome of a step: its value, or its errno.
    pub fn say<T: Debug, E: Into<std::io::Error>>(
        &mut self,
        label: impl Into<String>,
        outcome: std::result::Result<T, E>,
    ) {
        let text = match outcome {
            Ok(value) => format!("{value:?}"),
            Err(e) => {
                let e: std::io::Error = e.into();
                // The text of an errno holds no path, so both sides can be compared.
                e.raw_os_error().map_or_else(
                    || format!("error {e}"),
                    |n| std::io::Error::from_raw_os_error(n).to_string(),
                )
            }
        };
        self.lines.push((label.into(), text));
    }

    /// Records a plain fact.
    pub fn fact(&mut self, label: impl Into<String>, value: impl Debug) {
        self.lines.push((label.into(), format!("{value:?}")));
    }

    /// A path in the directory of the probe.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }
}

/// Runs `probe` in a new directory of each and counts every step that differs.
pub fn compare(
    cx: &Cx,
    name: &str,
    here: &Path,
    local: &Path,
    probe: fn(&mut Probe) -> Result<()>,
) -> Result<()> {
    let ours = run(&here.join(name), probe)?;
    let theirs = run(&local.join(name), probe)?;
    ensure!(ours.len() == theirs.len(), "{name}: the probe took different ways");
    for ((label, our), (_, their)) in ours.into_iter().zip(theirs) {
        if our != their {
            println!("{name}: {label}\n   here:  {our}\n   local: {their}");
        }
        cx.count(&format!("{name}: {label}"), our == their);
    }
    Ok(())
}

fn run(dir: &Path, probe: fn(&mut Probe) -> Result<()>) -> Result<Vec<(String, String)>> {
    std::fs::create_dir(dir)?;
    let mut record = Probe { dir: dir.to_path_buf(), lines: Vec::new() };
    probe(&mut record)?;
    Ok(record.lines)
}
