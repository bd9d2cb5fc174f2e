//! The lab's exerciser of coherence while the metadata target is killed: it says when, and is told when the
//! target runs again, so that it knows what met the kill.

use crate::cx::Cx;
use crate::proc::{drain, ends, kill_group};
use crate::servers::Cluster;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// How long the target stays away, in turn.
const AWAY: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(1000)];
/// Bound on the end of the exerciser once it has said all; its length proves nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ended when dropped.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        kill_group(self.0.id());
        let _ = self.0.wait();
    }
}

/// Runs it on the directory of that name, and kills the target each time it says so.
pub fn one_truth(
    cx: &Cx,
    cluster: &mut Cluster,
    mounts: &[PathBuf],
    seed: u64,
    seconds: &str,
) -> Result<()> {
    let name = format!("work-{seed}");
    std::fs::create_dir(mounts[0].join(&name))?;
    let mut cmd = Command::new(cx.set.pinstripe.with_file_name("pinstripe-lab"));
    cmd.args(["coherence", "--kills", "--without", "mapped", "--seed"]).arg(seed.to_string());
    cmd.args(["--seconds", seconds]);
    for mnt in mounts {
        cmd.arg("--dir").arg(mnt.join(&name));
    }
    cmd.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = Lab(cmd.process_group(0).spawn()?);
    let report = drain(lab.0.stderr.take());
    let mut input = lab.0.stdin.take().context("no input")?;
    let output = lab.0.stdout.take().context("no output")?;
    let mdt = cluster.find("mdt0")?;
    let (mut kills, mut said) = (0, String::new());
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line != "kill" {
            said.push_str(&line);
            said.push('\n');
            continue;
        }
        cluster.kill(mdt);
        sleep(AWAY[kills % AWAY.len()]);
        cluster.start(mdt)?;
        kills += 1;
        writeln!(input, "back")?;
    }
    print!("{said}");
    ensure!(ends(&lab.0, PATIENCE)?, "the exerciser does not end");
    let status = lab.0.wait()?;
    let report = report();
    let report = String::from_utf8_lossy(&report);
    print!("{report}");
    ensure!(status.success(), "{status}\n{report}");
    ensure!(kills > 0, "nothing was killed");
    Ok(())
}
