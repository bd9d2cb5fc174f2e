//! A target with next to no memory, all of it taken by changes that do not become durable: what an operation needs is
//! fetched, and forgotten again with everything else. Still each ends, also beside others that fetch as much.

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use common::{Client, DIR, FILE, Obliging, Solo};
use pinstripe_mds::MdtOptions;
use proto::Fid;
use store::memory::MemoryDisk;

const DIRS: usize = 12;
const FILES: usize = 40;
/// Moves of each client.
const MOVES: usize = 60;
const CLIENTS: usize = 6;
/// For all of them together, which takes a second or two.
const LONGEST: Duration = Duration::from_secs(120);

fn little() -> MdtOptions {
    MdtOptions {
        cache_bytes: 2_000,
        group_delay: Duration::from_millis(1),
        orphan_grace: Duration::ZERO,
        ..MdtOptions::default()
    }
}

fn name(file: usize) -> String {
    format!("a file with a name that takes some memory, number {file}")
}

/// Directories with files, on the disk.
fn tree(disk: &MemoryDisk) -> Vec<Fid> {
    let s = Solo::with(disk, little());
    let c = s.client();
    let dirs: Vec<Fid> =
        (0..DIRS).map(|d| c.make(Fid::ROOT, &format!("d{d}"), DIR).unwrap()).collect();
    for (d, dir) in dirs.iter().enumerate() {
        for file in 0..FILES {
            c.make(*dir, &name(d * FILES + file), FILE).unwrap();
        }
    }
    c.sync();
    dirs
}

/// Moves files from one directory to another, over those that are there; each client its own.
fn move_files(c: &Client, dirs: &[Fid], number: usize) {
    for n in 0..MOVES {
        let (from, to) = (number * 2 + n % 2, number * 2 + (n + 1) % 2);
        let (file, over) =
            (name(number * 2 * FILES + n / 2), name((number * 2 + 1) * FILES + n / 2));
        match n % 2 {
            0 => c.rename((dirs[from], &file), (dirs[to], &over), 0).unwrap(),
            _ => c.link(c.lookup(dirs[from], &over).unwrap().fid, dirs[to], &file).unwrap(),
        }
    }
}

#[test]
fn operations_end_where_nothing_they_need_stays_in_memory() {
    let disk = MemoryDisk::new();
    let dirs = Arc::new(tree(&disk));
    let s = Solo::with(&disk, little());
    let clients: Vec<Client> = (0..CLIENTS).map(|_| s.listener(Arc::new(Obliging))).collect();
    // From here on nothing becomes durable, so nothing that was changed may be forgotten.
    disk.hold();
    let (done, all) = mpsc::channel();
    for (number, c) in clients.into_iter().enumerate() {
        let (dirs, done) = (dirs.clone(), done.clone());
        std::thread::spawn(move || {
            move_files(&c, &dirs, number);
            done.send(c).unwrap();
        });
    }
    let back: Vec<Client> = (0..CLIENTS)
        .map(|_| all.recv_timeout(LONGEST).expect("an operation did not end"))
        .collect();
    for d in 0..DIRS {
        // What was moved over a file was linked back.
        let mut want: Vec<String> = (0..FILES).map(|f| name(d * FILES + f)).collect();
        want.sort();
        assert_eq!(back[0].list(dirs[d]), want);
    }
    disk.power_cut();
    s.server.shutdown();
}
