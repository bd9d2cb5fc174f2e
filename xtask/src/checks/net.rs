//! Servers and clients that share nothing but a network: each in a network name space of its own.

use crate::cx::Cx;
use crate::fs::{same, until};
use crate::plan::{Check, Need};
use crate::random::Random;
use crate::servers::{Cluster, Transport};
use crate::sweep::net_prefix;
use anyhow::{Context, Result, ensure};
use rustix::fs::fsync;

pub const CHECK: Check = Check {
    name: "net",
    about: "servers and clients in network name spaces, over TCP with the key; a cut cable",
    needs: &[
        Need::Binary,
        Need::Apt("iproute2"),
        Need::Apt("fuse3"),
        Need::Apt("util-linux"),
        Need::Root,
    ],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

/// Addresses of the private link (RFC 5737's documentation range is routed nowhere).
const SERVER: &str = "192.0.2.1";
const CLIENT: &str = "192.0.2.2";

fn run(cx: &Cx) -> Result<()> {
    // The runner deletes what begins with this prefix.
    let run = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get().cast_unsigned());
    let prefix = net_prefix(run);
    let (server, client) = (format!("{prefix}s"), format!("{prefix}c"));
    let result = link(cx, &server, &client).and_then(|()| work(cx, &server, &client));
    for name in [&server, &client] {
        let _ = cx.cmd("ip").args(["netns", "delete", name]).run();
    }
    result
}

fn ip(cx: &Cx, words: &[&str]) -> Result<()> {
    cx.cmd("ip").args(words).ok().map(|_| ())
}

fn link(cx: &Cx, server: &str, client: &str) -> Result<()> {
    for name in [server, client] {
        ip(cx, &["netns", "add", name])?;
        ip(cx, &["-n", name, "link", "set", "lo", "up"])?;
    }
    let pair = ["link", "add", "eth0", "netns", server, "type", "veth", "peer", "name", "eth0"];
    ip(cx, &[pair.as_slice(), &["netns", client]].concat())?;
    for (name, address) in [(server, SERVER), (client, CLIENT)] {
        ip(cx, &["-n", name, "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        ip(cx, &["-n", name, "link", "set", "eth0", "up"])?;
    }
    Ok(())
}

fn work(cx: &Cx, server: &str, client: &str) -> Result<()> {
    let transport = Transport::Namespace { name: server.to_owned(), ip: SERVER.to_owned() };
    let mut cluster = Cluster::new(cx, "cluster", transport, 2)?;
    let mnt = cluster.dir.join("mnt");
    std::fs::create_dir_all(&mnt)?;
    let inside = format!("--net=/run/netns/{client}");
    cluster.mount_at(&mnt, &["nsenter", &inside, "--"])?;
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
        ip(cx, &["-n", client, "link", "set", "eth0", "down"])?;
        let path = mnt.join("during");
        let writer = std::thread::spawn(move || std::fs::write(path, "during"));
        // Waits at least until something tried in vain; whether it fails or waits is its choice.
        std::thread::sleep(std::time::Duration::from_secs(2));
        ip(cx, &["-n", client, "link", "set", "eth0", "up"])?;
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
