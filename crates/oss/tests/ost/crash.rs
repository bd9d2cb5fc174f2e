//! Crashes: no read of synced or unsynced bytes fails for want of a fitting checksum, and what was
//! committed is there (invariants 1, 2, 7).

use crate::common::*;
use pinstripe_oss::check::OstDir;
use pinstripe_oss::{Ost, name};
use proto::Errno;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const BLOCKS: usize = 8;
const BLOCK: usize = 4096;

fn object_file(dir: &Path, n: u32) -> fs::File {
    let path = dir.join("objects").join(name::object_path(&id(n)));
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// The power goes while unstable writes are half-way to the disk: any mix of old and new blocks.
#[test]
fn any_mix_of_old_and_new_blocks_can_be_read_after_a_power_cut() {
    let (old, new) = (pattern(1, BLOCKS * BLOCK), pattern(2, BLOCKS * BLOCK));
    let dir = tempfile::tempdir().unwrap();
    let mixes = || (0..1u32 << BLOCKS).step_by(7);
    let ost = fresh(dir.path());
    for n in mixes() {
        write(&ost, n, 0, &old, 0).unwrap();
    }
    commit(&ost, &[]).unwrap();
    for n in mixes() {
        write(&ost, n, 0, &new, 0).unwrap();
    }
    drop(ost);
    let mixed = |mix: u32| {
        let mut expect = new.clone();
        for b in (0..BLOCKS).filter(|b| mix >> b & 1 == 0) {
            expect[b * BLOCK..][..BLOCK].copy_from_slice(&old[b * BLOCK..][..BLOCK]);
        }
        expect
    };
    mixes().for_each(|n| object_file(dir.path(), n).write_all_at(&mixed(n), 0).unwrap());
    let ost = reopen(dir.path());
    for n in mixes() {
        assert!(read(&ost, n, 0, 1 << 20, 0).unwrap() == mixed(n), "mix {n:#b}");
        // From here on the object is protected again.
        write(&ost, n, 0, &new[..BLOCK], 0).unwrap();
    }
    ost.close().unwrap();
    let checker = OstDir::open(dir.path()).unwrap();
    for n in mixes() {
        let found = checker.verify(&id(n)).unwrap();
        assert_eq!((found.good, found.bad), (1, vec![]));
    }
}

/// Unstable writes of a new object vanish in part: zeros, no error.
#[test]
fn lost_writes_of_a_new_object_read_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    write(&ost, 1, 0, &pattern(1, BLOCKS * BLOCK), 0).unwrap();
    drop(ost);
    let zeros = vec![0; BLOCK];
    object_file(dir.path(), 1).write_all_at(&zeros, 3 * BLOCK as u64).unwrap();
    let ost = reopen(dir.path());
    assert_eq!(read(&ost, 1, 3 * BLOCK as u64, BLOCK as u32, 0).unwrap(), zeros);
}

/// The same with appends to a committed object, whose last block had a checksum.
#[test]
fn lost_appends_leave_what_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let data = pattern(1, 3 * BLOCK);
    write(&ost, 1, 0, &data[..5000], 0).unwrap();
    commit(&ost, &[1]).unwrap();
    write(&ost, 1, 5000, &data[5000..], 0).unwrap();
    drop(ost);
    object_file(dir.path(), 1).set_len(5000).unwrap();
    let ost = reopen(dir.path());
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0).unwrap(), data[..5000]);
}

/// Checksums written after a commit may be lost as a whole or in part: fewer are known, none lie.
#[test]
fn lost_checksums_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let data = pattern(1, BLOCKS * BLOCK);
    write(&ost, 1, 0, &data, 0).unwrap();
    commit(&ost, &[1]).unwrap();
    drop(ost);
    let path = dir.path().join("objects").join(name::sidecar_path(&id(1)));
    let sums = fs::read(&path).unwrap();
    for keep in [0, 1, 63, 64, 66, 70, sums.len()] {
        fs::write(&path, &sums[..keep]).unwrap();
        let ost = reopen(dir.path());
        assert!(read(&ost, 1, 0, 1 << 20, 0).unwrap() == data, "{keep}");
        drop(ost);
    }
}

/// An object written once and committed stays protected through a crash.
#[test]
fn checksums_of_objects_not_overwritten_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    write(&ost, 1, 0, &pattern(1, BLOCKS * BLOCK), 0).unwrap();
    commit(&ost, &[1]).unwrap();
    drop(ost);
    object_file(dir.path(), 1).write_all_at(b"bit rot", 9000).unwrap();
    let ost = reopen(dir.path());
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0), Err(Errno::EIO));
}

/// Overwritten objects are protected after a clean end, too.
#[test]
fn checksums_of_overwritten_objects_survive_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    for seed in 1..4 {
        write(&ost, 1, 100, &pattern(seed, BLOCKS * BLOCK), 0).unwrap();
        commit(&ost, &[1]).unwrap();
    }
    ost.close().unwrap();
    drop(ost);
    let found = OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap();
    assert_eq!((found.good, found.unknown), (BLOCKS as u64 + 1, 0));
    object_file(dir.path(), 1).write_all_at(b"bit rot", 9000).unwrap();
    let ost = reopen(dir.path());
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0), Err(Errno::EIO));
}

const CHILD_DIR: &str = "PINSTRIPE_OSS_CRASH_CHILD";
const RECORD: usize = 3000;

/// What the child writes for step `i`: an appended record, and one that overwrites.
fn child_step(ost: &Ost, i: u64) {
    write(ost, 1, i * RECORD as u64, &pattern(i, RECORD), 0).unwrap();
    write(ost, 2, i * 7919 % 60_000, &pattern(i, 5000), 0).unwrap();
    write(ost, 3 + i as u32 % 50, 0, &pattern(i, 9000), 0).unwrap();
}

/// Not a test by itself: the process that is killed, when asked for by the environment.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let ost = Ost::open(Path::new(&dir), options()).unwrap();
    for i in 0.. {
        child_step(&ost, i);
        if i % 5 == 4 {
            commit(&ost, if i % 2 == 0 { &[] } else { &[1, 2] }).unwrap();
            println!("committed {i}");
        }
    }
}

#[test]
fn what_was_committed_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    Ost::format(dir.path(), &label()).unwrap();
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::child_that_is_killed", "--exact", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let steps = lines
            .map_while(Result::ok)
            .filter_map(|l| l.split_once("committed ")?.1.parse::<u64>().ok());
        let last = steps.take(3 + round * 9).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();

        let ost = reopen(dir.path());
        for i in 0..=last {
            let got = read(&ost, 1, i * RECORD as u64, RECORD as u32, 0).unwrap();
            assert!(got == pattern(i, RECORD), "round {round}, record {i}");
        }
        for n in 1..53 {
            read(&ost, n, 0, 1 << 20, 0).unwrap();
        }
        assert_eq!(ost.stats().blocks_bad, 0);
        ost.close().unwrap();
        drop(ost);
        let checker = OstDir::open(dir.path()).unwrap();
        assert!((1..3).all(|n| checker.verify(&id(n)).unwrap().bad.is_empty()));
    }
}

/// Sums of a sidecar that was never synced arrive without the sector its header is in: there are
/// none, and that is no damage. After clean ends only, a header of zeros is.
#[test]
fn a_header_lost_with_the_power_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let data = pattern(1, BLOCKS * BLOCK);
    let ost = fresh(dir.path());
    write(&ost, 1, 0, &data, 0).unwrap();
    write(&ost, 2, 0, &data, 0).unwrap();
    ost.close().unwrap();
    let path = dir.path().join("objects").join(name::sidecar_path(&id(1)));
    let sidecar = fs::OpenOptions::new().write(true).open(path).unwrap();
    sidecar.write_all_at(&[0; 64], 0).unwrap();
    assert!(OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap().sidecar.is_some());
    // A boot that does not end cleanly.
    drop(reopen(dir.path()));
    let checker = OstDir::open(dir.path()).unwrap();
    let found = checker.verify(&id(1)).unwrap();
    assert_eq!((found.sidecar, found.good, found.bad), (None, 0, vec![]));
    let ost = reopen(dir.path());
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0).unwrap(), data);
    write(&ost, 1, 0, &data, 0).unwrap();
    ost.close().unwrap();
    let found = OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap();
    assert_eq!((found.sidecar, found.good), (None, BLOCKS as u64));
    // Any other header that does not fit still is damage.
    sidecar.write_all_at(&[7], 20).unwrap();
    assert!(OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap().sidecar.is_some());
}
