//! kill -9 of server processes under a writer: of an OST, of the MDS, of all. After they are
//! started again an idle client goes on by itself, and what was synced is there.

use crate::cx::Cx;
use crate::durable::{self, Writer};
use crate::fs::until;
use crate::plan::{Check, Need};
use crate::servers::{Cluster, Transport};
use anyhow::Result;

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
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}
