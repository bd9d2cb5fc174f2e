//! The real engine on a small ext4: filled by creates, emptied, filled again. Needs the right to
//! mount; without it there is nothing to test.

mod common;

use std::path::Path;
use std::process::Command;

use common::Client;
use net::{Endpoint, Server, ServerOptions};
use pinstripe_mds::{Mdt, MdtOptions, check};
use proto::attr::{S_MODE, SetAttr};
use proto::mds::*;
use proto::{Errno, Fid};

/// Bytes of the disk.
const DISK: u64 = 640 << 20;

struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Option<Mounted> {
        let dir = tempfile::tempdir().ok()?;
        let image = dir.path().join("image");
        std::fs::File::create(&image).and_then(|f| f.set_len(DISK)).ok()?;
        let at = dir.path().join("at");
        std::fs::create_dir(&at).ok()?;
        let run = |c: &mut Command| c.output().is_ok_and(|o| o.status.success());
        let made = run(Command::new("mkfs.ext4").arg("-q").arg("-F").arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        made.then(|| Mounted(dir))
    }
    fn at(&self) -> std::path::PathBuf {
        self.0.path().join("at")
    }
    fn free(&self) -> u64 {
        let fs = rustix::fs::statvfs(self.at()).unwrap();
        fs.f_bavail * fs.f_frsize
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at()).output();
    }
}

fn open(dir: &Path) -> (std::sync::Arc<Mdt>, Server, Client) {
    let mdt = Mdt::open(dir, MdtOptions::default()).unwrap();
    let server = Server::new(ServerOptions::default());
    server.add(mdt.clone());
    let c = Client::at(&Endpoint::Local(server.local()), common::connect());
    (mdt, server, c)
}

/// At most `most` files with 20,000 bytes inline, until there is no room; how many.
fn fill(c: &Client, round: u32, most: usize) -> usize {
    for i in 0..most {
        let data = bytes::Bytes::from(vec![i as u8; 20_000]);
        let write = Op::WriteInline { fid: Fid::CURRENT, offset: 0, data, cut: None, mtime: None };
        let res = c.run(vec![c.create(Fid::ROOT, &format!("f{round}.{i}")), write]);
        if let Some(Res::Failed { errno }) = res.last() {
            assert_eq!(*errno, Errno::ENOSPC.0 as u16);
            return i;
        }
    }
    most
}

/// Removes every file. A full disk is no reason to refuse that, nor what makes it durable.
fn remove_all(c: &Client) {
    for e in c.entries(Fid::ROOT, 60_000) {
        c.one(Op::Unlink { dir: Fid::ROOT, name: e.name, rmdir: false }).unwrap();
    }
    c.one(Op::Sync {}).unwrap();
}

#[test]
fn creates_stop_before_the_store_does_and_deletes_make_room() {
    let Some(disk) = Mounted::new() else {
        println!("not tested: mounting is not possible here");
        return;
    };
    let dir = disk.at().join("mdt");
    Mdt::format(&dir, &common::label()).unwrap();
    let (mut mdt, mut server, mut c) = open(&dir);
    for round in 0..3 {
        let n = fill(&c, round, usize::MAX);
        println!("{n} files");
        assert!(n > 100, "{n}");
        // What was answered becomes durable, and what is no create goes on.
        c.one(Op::Sync {}).unwrap();
        if round == 1 {
            // A full target can be closed, checked and opened.
            c.session.close();
            server.shutdown();
            mdt.close().unwrap();
            drop((mdt, server, c));
            assert_eq!(check::check_dir(&dir).unwrap().problems, []);
            (mdt, server, c) = open(&dir);
        }
        for e in c.entries(Fid::ROOT, 60_000).into_iter().take(200) {
            let mode = SetAttr { valid: S_MODE, mode: 0o600, ..SetAttr::none() };
            c.one(Op::SetAttr { fid: e.fid, set: mode }).unwrap();
            c.one(Op::SetAttr { fid: e.fid, set: SetAttr::size(0) }).unwrap();
        }
        c.one(Op::Sync {}).unwrap();
        remove_all(&c);
        common::until(|| c.status()["full"] == false);
        // And all the room comes back, with nothing written any more.
        common::until(|| disk.free() > DISK * 2 / 3);
    }
    // There is room again, for a while at a time at first.
    let (mut round, mut made) = (3, 0);
    common::until(|| {
        round += 1;
        made += fill(&c, round, 1000 - made);
        made == 1000
    });
    remove_all(&c);
    c.session.close();
    server.shutdown();
    mdt.close().unwrap();
    drop((mdt, server, c));
    let report = check::check_dir(&dir).unwrap();
    assert_eq!((report.problems, report.inodes), (vec![], 1));
}
