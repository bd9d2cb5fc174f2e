//! Files that have lost their last name while somebody had them open who then vanished: they are removed, their
//! objects destroyed and their space given back, also when the servers were killed meanwhile. What is left is
//! looked for in the directories of the OSTs.

use crate::cx::Cx;
use crate::fs::{kill9, until, until_within};
use crate::holder::Holder;
use crate::plan::{Check, Need};
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "orphans",
    about: "files removed while open by clients and servers that are killed give all their room back",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

const OSTS: u32 = 2;
/// Enough for every OST to have objects.
const LENGTH: usize = 9 << 20;
/// Files of each case: one with objects, one that lives with the metadata.
const FILES: [(&str, usize); 2] = [("large", LENGTH), ("small", 3_000)];

/// An MDT that has started waits a minute for who had such files open; its length proves nothing.
const PATIENCE: Duration = Duration::from_secs(200);

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, OSTS)?;
    let here = cluster.mount("here")?;
    cx.case("a client vanishes", || {
        let (there, _holders) = removed_while_open(&mut cluster, &here, "vanishes")?;
        kill9(cluster.mount_pid(&there)?);
        reaped(&cluster, &here)?;
        cluster.unmount(&there)
    });
    cx.case("the MDT restarts under an open file", || restarted(&mut cluster, &here));
    cx.case("clients vanish, one before the MDT is killed and one after", || {
        vanished_with_mdt(&mut cluster, &here)
    });
    cx.case("all are killed, and fsck before they start again", || all_killed(&mut cluster, &here));
    cx.case("stop and fsck", || {
        cluster.stop_and_check()?;
        ensure!(objects(&cluster)?.is_empty(), "objects are left: {:?}", objects(&cluster)?);
        Ok(())
    });
    Ok(())
}

/// Makes files through a mount of their own, opens them, and takes their names through another.
fn removed_while_open(
    cluster: &mut Cluster,
    here: &Path,
    name: &str,
) -> Result<(PathBuf, Vec<Holder>)> {
    let before = objects(cluster)?;
    let there = cluster.mount(name)?;
    let mut holders = Vec::new();
    let file = |kind: &str| format!("{name}-{kind}");
    for (kind, len) in FILES {
        std::fs::write(there.join(file(kind)), vec![7; len])?;
        let mut holder = Holder::open(&there.join(file(kind)))?;
        holder.does("fsync")?;
        holders.push(holder);
    }
    let found = objects(cluster)?;
    for ost in 0..OSTS {
        let of = format!("ost{ost}/");
        let new = |o: &&String| o.contains(&of) && !before.contains(o);
        ensure!(found.iter().any(|o| new(&o)), "ost{ost} has nothing: {found:?}");
    }
    for (kind, _) in FILES {
        std::fs::remove_file(here.join(file(kind)))?;
    }
    // Durable, so that no kill brings a name back.
    std::fs::File::open(here)?.sync_all()?;
    live(&mut holders)?;
    ensure!(objects(cluster)? == found, "the objects of an open file are gone");
    Ok((there, holders))
}

/// They can be read although they have no name.
fn live(holders: &mut [Holder]) -> Result<()> {
    for (holder, (kind, len)) in holders.iter_mut().zip(FILES) {
        holder
            .does(&format!("read 0 {len}"))
            .with_context(|| format!("{kind}, removed and open"))?;
    }
    Ok(())
}

/// It lives as long as it is open, whatever restarts.
fn restarted(cluster: &mut Cluster, here: &Path) -> Result<()> {
    let (there, mut holders) = removed_while_open(cluster, here, "restarts")?;
    let mdt = cluster.find("mdt0")?;
    cluster.kill(mdt);
    cluster.start(mdt)?;
    live(&mut holders)?;
    ensure!(!objects(cluster)?.is_empty(), "the objects of an open file are gone");
    drop(holders);
    reaped(cluster, here)?;
    cluster.unmount(&there)
}

fn vanished_with_mdt(cluster: &mut Cluster, here: &Path) -> Result<()> {
    let (before, _holders) = removed_while_open(cluster, here, "before")?;
    let (after, _more) = removed_while_open(cluster, here, "after")?;
    let mdt = cluster.find("mdt0")?;
    kill9(cluster.mount_pid(&before)?);
    cluster.kill(mdt);
    kill9(cluster.mount_pid(&after)?);
    cluster.start(mdt)?;
    reaped(cluster, here)?;
    cluster.unmount(&before)?;
    cluster.unmount(&after)
}

/// All is killed with orphans on the disks; fsck accepts them, and who starts again removes them.
fn all_killed(cluster: &mut Cluster, here: &Path) -> Result<()> {
    let (there, holders) = removed_while_open(cluster, here, "all")?;
    let left = objects(cluster)?;
    kill9(cluster.mount_pid(&there)?);
    let all: Vec<usize> = (0..cluster.servers.len()).collect();
    all.iter().for_each(|&at| cluster.kill(at));
    drop(holders);
    cluster.fsck().context("while there are orphans")?;
    ensure!(objects(cluster)? == left, "nobody can have removed the objects");
    for at in all {
        cluster.start(at)?;
    }
    reaped(cluster, here)?;
    cluster.unmount(&there)
}

/// Nothing is left on the OSTs' disks, and the MDT knows of nothing but its root.
fn reaped(cluster: &Cluster, here: &Path) -> Result<()> {
    until_within(PATIENCE, "the objects are destroyed", || {
        objects(cluster).is_ok_and(|o| o.is_empty())
    })
    .with_context(|| format!("left: {:?}", objects(cluster)))?;
    until("the MDT has nothing to destroy", || {
        mdt(cluster).is_ok_and(|m| m["destroy_waiting"] == 0 && m["objects"] == 0)
    })
    .with_context(|| format!("{:?}", mdt(cluster)))?;
    ensure!(std::fs::read_dir(here)?.next().is_none(), "a name is left");
    let inodes = mdt(cluster)?["inodes"].as_u64();
    ensure!(inodes == Some(1), "the MDT counts {inodes:?} inodes, the root among them");
    Ok(())
}

/// What `status` says of the MDT.
fn mdt(cluster: &Cluster) -> Result<serde_json::Value> {
    let text = cluster.ask(&["status", "--json", "--mgs-addr", &cluster.address()])?;
    let status: serde_json::Value = serde_json::from_str(&text)?;
    let targets = status["targets"].as_array().context("no targets")?;
    targets.iter().find(|t| t["kind"] == "MDT").cloned().context("no MDT")
}

/// Files below the OSTs' `objects`, with the bytes they take.
fn objects(cluster: &Cluster) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for ost in 0..OSTS {
        walk(&cluster.dir.join(format!("ost{ost}/objects")), &mut found)?;
    }
    Ok(found)
}

fn walk(dir: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        // One that goes meanwhile is gone.
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        match meta.is_dir() {
            true => walk(&path, found)?,
            false => found.push(format!("{} ({} bytes)", path.display(), meta.blocks() * 512)),
        }
    }
    found.sort_unstable();
    Ok(())
}
