//! kill -9 of server processes under a writer: of an OST, of the MDS, of all. After they are
//! started again an idle client goes on by itself, and what was synced is there.

use crate::cx::Cx;
use crate::durable::{self, Writer};
use crate::fs::until;
use crate::plan::{Check, Need};
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "kill-servers",
    about: "kill -9 of MDS, OST, MGS and all under a writer; idle clients reconnect by themselves",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Tcp, 2)?;
    let idle = cluster.mount("idle")?;
    std::fs::write(idle.join("before"), "before")?;
    let all: Vec<String> = cluster.servers.iter().map(|s| s.name.clone()).collect();
    let victims: &[(&str, Vec<String>)] = &[
        ("an OST", vec!["ost1".into()]),
        ("the MDS", vec!["mdt0".into()]),
        ("the MGS", vec!["mgs".into()]),
        ("all", all),
    ];
    for (n, (what, names)) in victims.iter().enumerate() {
        cx.case(&format!("kill -9 of {what}"), || {
            let mnt = cluster.mount(&format!("writer-{n}"))?;
            let mut writer = Writer::start(cx, &mnt, cx.seed() * 10 + n as u64)?;
            writer.progress(60)?;
            let victims: Vec<_> =
                names.iter().map(|name| cluster.find(name)).collect::<Result<_>>()?;
            for &at in &victims {
                cluster.kill(at);
            }
            for &at in &victims {
                cluster.start(at)?;
            }
            let log = match names.iter().any(|name| name.starts_with("mdt")) {
                true => writer.end_without_replay()?,
                false => writer.end()?,
            };
            until("the idle client works again", || {
                std::fs::read_to_string(idle.join("before")).is_ok_and(|t| t == "before")
            })?;
            until("the idle client writes again", || {
                std::fs::write(idle.join(format!("after-{n}")), "after").is_ok()
            })?;
            durable::check(cx, &idle, &log, &[])?;
            let fresh = cluster.mount(&format!("fresh-{n}"))?;
            durable::check(cx, &fresh, &log, &[])?;
            cluster.unmount(&fresh)?;
            cluster.unmount(&mnt)
        });
    }
    cx.case("a write that waits for lost OSTs keeps nobody else waiting", || {
        waiting(&mut cluster, &idle)
    });
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

/// How long a mount's request waits for a lost server (its option `request_timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// While a handler of the mount blocks, others are served, also those that come late.
fn waiting(cluster: &mut Cluster, mnt: &Path) -> Result<()> {
    let osts = ["ost0", "ost1"].map(|name| cluster.find(name));
    let osts = osts.into_iter().collect::<Result<Vec<_>>>()?;
    osts.iter().for_each(|&at| cluster.kill(at));
    let killed = std::time::Instant::now();
    let large = mnt.join("large");
    let writer = std::thread::spawn(move || {
        let file = std::fs::File::create(large)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 300_000], 0)?;
        file.sync_all()
    });
    // Not waiting for anything: the request has to be quiet for a while.
    std::thread::sleep(Duration::from_millis(700));
    rustix::fs::statvfs(mnt)?;
    std::fs::create_dir(mnt.join("meanwhile"))?;
    std::fs::write(mnt.join("meanwhile/small"), "small")?;
    ensure!(!writer.is_finished(), "the others were served only when the writer had ended");
    for at in osts {
        cluster.start(at)?;
    }
    // A request that was on its way when the OST died may wait until its time runs out, and the
    // writer is told so (see the limits in docs/semantics.md); no sooner.
    let eio = Some(rustix::io::Errno::IO.raw_os_error());
    match writer.join().ok().context("the writer panicked")? {
        Err(e) if e.raw_os_error() == eio && killed.elapsed() >= REQUEST_TIMEOUT => Ok(()),
        other => Ok(other?),
    }
}
