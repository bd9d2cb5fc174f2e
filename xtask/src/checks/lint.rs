//! Clippy over everything, warnings are errors.

use crate::cx::Cx;
use crate::plan::Check;
use crate::where_;
use anyhow::Result;

pub const CHECK: Check = Check {
    name: "clippy",
    about: "clippy has no warning, in tests neither",
    needs: &[],
    limit: 1200,
    weight: 2,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let jobs = (cx.set.jobs / 2).max(1).to_string();
    cx.cmd("cargo")
        .args(["clippy", "--workspace", "--all-targets", "--jobs", &jobs])
        .arg("--target-dir")
        .arg(where_::target().join("lint"))
        .args(["--", "-D", "warnings"])
        .cwd(where_::root())
        .limit(1190)
        .ok()?;
    Ok(())
}
