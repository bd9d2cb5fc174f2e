//! Licences, bans and sources of the dependencies. Advisories need a database from the network
//! and change without our doing, so they are no part of a repeatable test.

use crate::cx::Cx;
use crate::plan::{Check, Need};
use crate::where_;
use anyhow::Result;

pub const CHECK: Check = Check {
    name: "deny",
    about: "cargo deny: licences, bans and sources of every dependency",
    needs: &[Need::Tool("cargo-deny")],
    limit: 180,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    for what in ["licenses", "bans", "sources"] {
        cx.case(what, || {
            cx.tool("cargo-deny")
                .args(["--all-features", "check", what])
                .cwd(where_::root())
                .ok()
                .map(|_| ())
        });
    }
    Ok(())
}
