//! A bounded run of the fuzzing driver over every decoder.

use crate::cx::Cx;
use crate::plan::{Check, Need};
use anyhow::Result;

pub const CHECK: Check = Check {
    name: "fuzz",
    about: "a minute of mutated input for the decoders of everything read from wire or disk",
    needs: &[Need::Fuzz],
    limit: 240,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let seconds = cx.size("60", "10");
    let driver = cx.set.pinstripe.with_file_name("pinstripe-fuzz");
    let out = cx
        .cmd(driver)
        .args(["--seconds", seconds, "--seed", &cx.seed().to_string()])
        .arg("--crashes")
        .arg(crate::where_::logs().join("fuzz-crashes"))
        .limit(200)
        .run()?;
    println!("{}\n{}", out.errors(), out.text());
    for line in out.text().lines() {
        if let Some(name) = line.strip_prefix("ok ") {
            cx.count(name, true);
        } else if let Some(name) = line.strip_prefix("FAIL ") {
            cx.count(name, false);
        }
    }
    out.ok().map(|_| ())
}
