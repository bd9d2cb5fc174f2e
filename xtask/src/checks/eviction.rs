//! Clients that do not answer: one whose cable is cut, one that only the OSTs still reach, one that is
//! stopped. Another goes on with what they had; what they had not synced never comes up, they are
//! told, and they go on without a remount (invariants 3, 5 and 6).

use crate::cable::{self, CLIENT, Cable, SERVER};
use crate::cx::Cx;
use crate::fs::{same, until};
use crate::holder::Holder;
use crate::plan::Check;
use crate::servers::Cluster;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "eviction",
    about: "clients that are cut off or stopped are evicted and fenced; they learn so and go on",
    needs: cable::NEEDS,
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

const LENGTH: usize = 3_000_000;

/// What cuts a client off and brings it back.
struct Cut<'a> {
    name: &'static str,
    /// The other was there before, so that the client had leases of single files only.
    among_others: bool,
    off: Box<dyn Fn() -> Result<()> + 'a>,
    on: Box<dyn Fn() -> Result<()> + 'a>,
}

fn run(cx: &Cx) -> Result<()> {
    let cable = Cable::lay(cx, "e")?;
    let (server, client) = (cable.server.as_str(), cable.client.as_str());
    let mut cluster = Cluster::new(cx, "cluster", cable.transport(), 2)?;
    let (inside, outside) = (cable.far(), cable.near());
    let victim = cluster.dir.join("victim");
    std::fs::create_dir_all(&victim)?;
    cluster.mount_at(&victim, &["nsenter", &inside, "--"])?;
    let mdt = cluster.find("mdt0")?;
    let port = cluster.servers[mdt].address.rsplit(':').next().context("no port")?.to_owned();
    let rule = |what: &str| {
        let to_mdt = ["to", SERVER, "ipproto", "tcp", "dport", &port, "prohibit"];
        cable.ip(&[["-n", client, "rule", what, "pref", "10"].as_slice(), &to_mdt].concat())
    };
    let swallow = |at: &str, what: &str, to: &str| {
        cable.ip(&["-n", at, "rule", what, "pref", "10", "to", to, "blackhole"])
    };
    let pid = cluster.mount_pid(&victim)?;
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(pid).context("no pid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    };
    let cuts = [
        Cut {
            name: "cut off",
            among_others: false,
            off: Box::new(|| cable.cut()),
            on: Box::new(|| cable.mend()),
        },
        Cut {
            name: "cut off from the MDT, not from the OSTs",
            among_others: false,
            off: Box::new(|| rule("add")),
            on: Box::new(|| rule("delete")),
        },
        Cut {
            name: "stopped",
            among_others: false,
            off: Box::new(|| signal(Signal::STOP)),
            on: Box::new(|| signal(Signal::CONT)),
        },
        Cut {
            name: "stopped, among others",
            among_others: true,
            off: Box::new(|| signal(Signal::STOP)),
            on: Box::new(|| signal(Signal::CONT)),
        },
        Cut {
            name: "heard, but does not hear",
            among_others: true,
            off: Box::new(|| swallow(server, "add", CLIENT)),
            on: Box::new(|| swallow(server, "delete", CLIENT)),
        },
        Cut {
            name: "hears, but is not heard",
            among_others: true,
            off: Box::new(|| swallow(client, "add", SERVER)),
            on: Box::new(|| swallow(client, "delete", SERVER)),
        },
    ];
    for (n, cut) in cuts.iter().enumerate() {
        cx.case(cut.name, || {
            let other = cluster.dir.join(format!("other-{n}"));
            std::fs::create_dir_all(&other)?;
            one(&mut cluster, &victim, &other, &outside, cut)
        });
    }
    drop(cuts);
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

fn one(cluster: &mut Cluster, victim: &Path, other: &Path, net: &str, cut: &Cut<'_>) -> Result<()> {
    let path = |at: &Path| at.join("file");
    if cut.among_others {
        cluster.mount_at(other, &["nsenter", net, "--"])?;
    }
    std::fs::write(path(victim), vec![1; LENGTH])?;
    // A process of its own: this one starts others while the client does not answer.
    let mut file = Holder::open(&path(victim))?;
    file.does("fsync")?;
    // Not synced: it is still with the client, or on its way, when that is cut off.
    file.does(&format!("write 0 {} 2", LENGTH / 2))?;
    (cut.off)()?;
    let there = match cut.among_others {
        true => Ok(()),
        false => cluster.mount_at(other, &["nsenter", net, "--"]),
    };
    let went_on = there.and_then(|()| go_on(&path(other)));
    (cut.on)()?;
    went_on?;
    until("the client is back", || {
        std::fs::read(path(victim)).is_ok_and(|b| b == vec![3; LENGTH])
    })?;
    // What it had written is gone, and its file was told so once. (It may all have been sent before.)
    file.tell("fsync")?;
    let first = file.answer()?;
    file.does("fsync").with_context(|| format!("an error is told twice: {first}"))?;
    same("seen by the other", &std::fs::read(path(other))?, &vec![3; LENGTH])?;
    file.does("put 1000000 100000 4")?;
    std::fs::write(victim.join("after"), "after")?;
    let back = std::fs::read(path(other))?;
    ensure!(back[999_999] == 3 && back[1_000_000] == 4 && back[1_099_999] == 4, "it cannot write");
    ensure!(std::fs::read_to_string(other.join("after"))? == "after", "a new file is not seen");
    drop(file);
    cluster.unmount(other)
}

/// The other overwrites what the lost client had.
fn go_on(path: &PathBuf) -> Result<()> {
    let back = std::fs::read(path)?;
    ensure!(back.len() == LENGTH, "{} bytes", back.len());
    let odd = back.iter().position(|b| *b != 1 && *b != 2);
    ensure!(odd.is_none(), "byte {odd:?} is neither old nor new");
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&vec![3; LENGTH], 0)?;
    file.sync_all()?;
    Ok(())
}
