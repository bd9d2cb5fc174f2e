//! A full file system: puts are refused with `NoSpace` in time, deletes still pass, nothing is lost.
//!
//! Needs the right to mount a tmpfs; without it there is nothing to test and the test says so.

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{commit, del, dump, put};
use pinstripe_store::fjall_engine::{FjallOptions, acquire, format};
use pinstripe_store::{Store, StoreError};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(mib: u32) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().unwrap();
        let size = std::ffi::CString::new(format!("size={mib}m")).unwrap();
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), size.as_c_str()) {
            Ok(()) => Some(Tmpfs(dir)),
            Err(e) => {
                eprintln!("not tested: cannot mount a tmpfs: {e}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// Bytes that do not compress, different for each `n`.
fn noise(n: u64) -> Vec<u8> {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(16 << 10);
    while bytes.len() < 16 << 10 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes
}

/// Commits until refused, the n-th value under `key(n)`; returns the transno reached and the refusal.
fn fill(store: &dyn Store, mut last: u64, key: impl Fn(u64) -> [u8; 8]) -> (u64, StoreError) {
    loop {
        let writes = (0..16).map(|i| put(key(last * 16 + i), noise(last * 16 + i)));
        match commit(store, last, last + 1, writes.collect()) {
            Ok(()) => last += 1,
            Err(e) => return (last, e),
        }
        assert!(last < 100_000, "the file system never got full");
    }
}

/// Without one taken commit for this long, a store that is refilled is full: before, it may merge what
/// it has and take more, and a metadata target gives it the same commits again.
const FULL_AFTER: Duration = Duration::from_secs(3);

/// As [`fill`], until the store has nothing left to merge for more room.
fn refill(store: &dyn Store, mut last: u64, key: impl Fn(u64) -> [u8; 8]) -> (u64, StoreError) {
    let mut taken = Instant::now();
    loop {
        let (reached, refused) = fill(store, last, &key);
        if reached > last {
            (last, taken) = (reached, Instant::now());
        }
        let room = matches!(refused, StoreError::NoSpace { .. });
        if !room || taken.elapsed() >= FULL_AFTER {
            return (last, refused);
        }
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_file_system_refuses_puts_and_takes_deletes() {
    let Some(fs) = Tmpfs::mount(256) else { return };
    let dir = fs.path().join("mdt0");
    let options = FjallOptions::default();
    format(&dir, &options).unwrap();
    let store = acquire(&dir, "test", 0, &options).unwrap();
    let (mut last, refused) = fill(&*store, 0, u64::to_be_bytes);
    let StoreError::NoSpace { free, reserve, .. } = refused else {
        panic!("{refused:?} after {last} commits");
    };
    assert!(free < reserve && reserve >= options.reserve_bytes);
    assert!(last > 50, "{last}");

    // Nothing is lost, refused writes are not there, and it is the same after opening again.
    let check = |store: &dyn Store, last: u64| {
        let all = dump(|from| store.scan(from, None, 100).unwrap());
        assert_eq!(all.len() as u64, last * 16);
        for (n, (key, value)) in all.iter().enumerate() {
            assert!(*key == (n as u64).to_be_bytes() && *value == noise(n as u64));
        }
    };
    check(&*store, last);
    store.close().unwrap();
    let store = acquire(&dir, "test", last, &options).unwrap();
    check(&*store, last);

    let written = last;
    for n in 0..written {
        let writes = (0..16).map(|i| del((n * 16 + i).to_be_bytes())).collect();
        commit(&*store, last, last + 1, writes).unwrap();
        last += 1;
    }
    assert_eq!(store.scan(b"", None, 1).unwrap(), vec![]);
    store.close().unwrap();
    let store = acquire(&dir, "test", last, &options).unwrap();
    assert_eq!(store.scan(b"", None, 1).unwrap(), vec![]);
    store.self_test().unwrap();
}

/// A key far from that of the next number.
fn scattered(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Polls what comes true by itself, if it ever does.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let came = (0..2000).any(|_| {
        holds() || {
            sleep(Duration::from_millis(20));
            false
        }
    });
    assert!(came, "it did not come true that {what}");
}

/// Filled, emptied and left alone, the store gives the room back, though nothing is written any more; and
/// what it merges on a full disk never runs out of room, which would end it.
#[test]
fn deletes_give_the_room_back_with_nothing_written_after_them() {
    let Some(fs) = Tmpfs::mount(384) else { return };
    let dir = fs.path().join("mdt0");
    let options = FjallOptions::default();
    format(&dir, &options).unwrap();
    let store = acquire(&dir, "test", 0, &options).unwrap();
    let (mut last, mut first) = (0, None);
    for round in 0..3 {
        let before = last;
        let (filled, refused) = refill(&*store, last, scattered);
        last = filled;
        assert!(matches!(refused, StoreError::NoSpace { .. }), "round {round}: {refused:?}");
        let made = last - before;
        println!("round {round}: {made} commits");
        assert!(made * 4 > *first.get_or_insert(made) * 3, "{made} of {first:?}");
        // What waits to be merged may hold even deletes up, for a while.
        for n in before..before + made {
            until("a delete is taken", || {
                let writes = (0..16).map(|i| del(scattered(n * 16 + i))).collect();
                match commit(&*store, last, last + 1, writes) {
                    Err(StoreError::NoSpace { .. }) => false,
                    done => done.map(|()| true).unwrap(),
                }
            });
            last += 1;
        }
        let total = store.usage().unwrap().total;
        until("most of the disk is free", || store.usage().unwrap().free * 10 >= total * 7);
    }
    assert_eq!(store.scan(b"", None, 1).unwrap(), vec![]);
    store.self_test().unwrap();
    store.close().unwrap();
    acquire(&dir, "test", last, &options).unwrap().self_test().unwrap();
}

#[test]
fn others_filling_the_file_system_stop_even_deletes_until_there_is_room() {
    let Some(fs) = Tmpfs::mount(64) else { return };
    let dir = fs.path().join("mdt0");
    let options = FjallOptions::default();
    format(&dir, &options).unwrap();
    let store = acquire(&dir, "test", 0, &options).unwrap();
    commit(&*store, 0, 1, vec![put("a", "1")]).unwrap();
    let hog = fs.path().join("hog");
    let mut file = File::create(&hog).unwrap();
    let room = |store: &dyn Store| {
        let usage = store.usage().unwrap();
        (usage.free + options.reserve_bytes).saturating_sub(usage.reserve)
    };
    while room(&*store) >= options.reserve_bytes {
        file.write_all(&noise(1)).unwrap();
    }
    let no_space = |outcome| matches!(outcome, Err(StoreError::NoSpace { .. }));
    assert!(no_space(commit(&*store, 1, 2, vec![put("b", "2")])));
    commit(&*store, 1, 2, vec![del("a")]).unwrap();
    while room(&*store) >= options.reserve_bytes / 4 {
        file.write_all(&noise(1)).unwrap();
    }
    assert!(no_space(commit(&*store, 2, 3, vec![del("a")])));
    fs::remove_file(&hog).unwrap();
    drop(file);
    commit(&*store, 2, 3, vec![put("b", "2")]).unwrap();
    assert_eq!(store.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
}

/// fjall stops for good when a flush or compaction fails; the owner must hear of it, not hang, and
/// find everything when it acquires the store again.
#[test]
fn no_room_for_a_flush_loses_nothing() {
    let Some(fs) = Tmpfs::mount(128) else { return };
    let dir = fs.path().join("mdt0");
    let options = FjallOptions {
        memtable_bytes: 1 << 20,
        // No reserve: the store runs into the wall.
        reserve_bytes: 0,
        ..FjallOptions::default()
    };
    format(&dir, &options).unwrap();
    let mut last = 0;
    for round in 0..3 {
        let hog = fs.path().join("hog");
        let store = acquire(&dir, "test", last, &options).unwrap();
        let mut failed = None;
        for n in 0..400u64 {
            if n == 20 {
                // Another program takes what is free.
                let mut file = File::create(&hog).unwrap();
                while file.write_all(&noise(1)).is_ok() {}
            }
            let writes = (0..16).map(|i| put((last % 64 * 16 + i).to_be_bytes(), noise(last)));
            match commit(&*store, last, last + 1, writes.collect()) {
                Ok(()) => last += 1,
                Err(e) => failed = Some(e),
            }
            if failed.is_some() {
                break;
            }
        }
        let failed = failed.expect("the file system never got full");
        let stopped = matches!(failed, StoreError::NoSpace { .. } | StoreError::Uncertain(_));
        assert!(stopped, "round {round}: {failed:?}");
        store.close().unwrap();
        fs::remove_file(&hog).unwrap();
        let store = acquire(&dir, "test", last, &options).unwrap();
        assert!(store.info().last - last <= 1);
        last = store.info().last;
        for n in last.saturating_sub(64)..last {
            let value = store.get(&(n % 64 * 16).to_be_bytes()).unwrap();
            assert!(value.as_deref() == Some(&noise(n)[..]), "round {round}, {n}");
        }
    }
}
