//! Servers and clients that share nothing but a network: each in a network name space of its own.

use crate::cable::{self, Cable, SERVER};
use crate::cx::Cx;
use crate::fs::{same, until};
use crate::plan::Check;
use crate::random::Random;
use crate::servers::Cluster;
use anyhow::{Context, Result, ensure};
use rustix::fs::fsync;

pub const CHECK: Check = Check {
    name: "net",
    about: "servers and clients in network name spaces, over TCP with the key; a cut cable",
    needs: cable::NEEDS,
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let cable = Cable::lay(cx, "")?;
    let mut cluster = Cluster::new(cx, "cluster", cable.transport(), 2)?;
    let mnt = cluster.dir.join("mnt");
    std::fs::create_dir_all(&mnt)?;
    cluster.mount_at(&mnt, &["nsenter", &cable.far(), "--"])?;
    let data = Random::new(cx.seed()).bytes(20 << 20);
    cx.case("write and read", || {
        std::fs::write(mnt.join("f"), &data)?;
        fsync(std::fs::File::open(mnt.join("f"))?)?;
        same("f", &std::fs::read(mnt.join("f"))?, &data)
    });
    cx.case("not reachable from outside", || {
        let address = cluster.address();
        let port = address.rsplit(':').next().context("no port")?;
        let reached = std::net::TcpStream::connect_timeout(
            &format!("{SERVER}:{port}").parse()?,
            std::time::Duration::from_secs(1),
        );
        ensure!(reached.is_err(), "the name space leaks");
        Ok(())
    });
    cx.case("a cut cable, mended again", || {
        std::fs::write(mnt.join("g"), "before")?;
        cable.cut()?;
        let path = mnt.join("during");
        let writer = std::thread::spawn(move || std::fs::write(path, "during"));
        // Waits at least until something tried in vain; whether it fails or waits is its choice.
        std::thread::sleep(std::time::Duration::from_secs(2));
        cable.mend()?;
        until("the mount works again", || {
            std::fs::read_to_string(mnt.join("g")).is_ok_and(|t| t == "before")
        })?;
        let written = writer.join().unwrap_or(Ok(()));
        if written.is_ok() {
            same("written meanwhile", &std::fs::read(mnt.join("during"))?, b"during")?;
        }
        same("f", &std::fs::read(mnt.join("f"))?, &data)
    });
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}
