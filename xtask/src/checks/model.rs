//! The lab's reference model, its verifying exerciser and its racer, on the mount.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use anyhow::Result;

pub const CHECK: Check = Check {
    name: "model",
    about: "random operations give the same tree, results and errors as a local directory",
    needs: &[Need::Binary, Need::Apt("acl"), Need::Apt("fuse3"), Need::Root],
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let steps = cx.size("15000", "3000");
    for n in 0..cx.size(4, 1) {
        let seed = cx.seed() * 100 + n;
        let count = [4, 1, 2, -1][n as usize % 4];
        cx.case(&format!("model, seed {seed}, {count} stripes"), || {
            let here = fs.striped(&format!("model-{seed}"), count, 65536)?;
            let there = cx.dir(&format!("reference-{seed}"))?;
            let save = crate::where_::logs().join(format!("model-{seed}.json"));
            cx.lab("model")
                .arg("--dir")
                .arg(&here)
                .arg("--reference")
                .arg(&there)
                .args(["--seed", &seed.to_string(), "--ops", steps, "--minutes", "2"])
                .arg("--save")
                .arg(save)
                .limit(280)
                .ok()
                .map(|_| ())
        });
    }
    for what in ["exerciser", "racer"] {
        cx.case(what, || {
            let dir = fs.striped(what, 4, 65536)?;
            cx.lab(what)
                .arg("--dir")
                .arg(&dir)
                .args(["--seed", &cx.seed().to_string(), "--seconds", cx.size("25", "8")])
                .limit(200)
                .ok()
                .map(|_| ())
        });
    }
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}
