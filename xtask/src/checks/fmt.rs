//! Formatting, as rustfmt.toml says.

use crate::cx::Cx;
use crate::plan::Check;
use crate::where_;
use anyhow::Result;

pub const CHECK: Check = Check {
    name: "fmt",
    about: "cargo fmt finds nothing to change",
    needs: &[],
    limit: 120,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    cx.cmd("cargo").args(["fmt", "--all", "--check"]).cwd(where_::root()).ok()?;
    Ok(())
}
