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
    let jobs = cx.set.jobs.to_string();
    // The profile and the directory of the build: build scripts and macros are there already.
    let profile = crate::steps::profile(cx.set.release);
    cx.cmd("cargo")
        .args(["clippy", "--workspace", "--all-targets", "--profile", profile, "--jobs", &jobs])
        .arg("--target-dir")
        .arg(where_::target())
        .args(["--", "-D", "warnings"])
        .cwd(where_::root())
        .limit(1190)
        .ok()?;
    Ok(())
}
