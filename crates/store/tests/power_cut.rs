//! What a power cut may leave of the journal: holes in what was written and not synced. It opens by
//! itself with all that was committed; the same holes in what was committed are refused.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Engine, Fjall, commit, put};
use pinstripe_store::fjall_engine::{FjallOptions, TORN_COPY, acquire, open_read_only};
use pinstripe_store::{Store, StoreError};

const COMMITTED: u64 = 5;
const WRITTEN: u64 = 8;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn journal(dir: &Path) -> PathBuf {
    let found = fs::read_dir(dir.join("fjall")).unwrap().map(|e| e.unwrap().path());
    found.filter(|p| p.extension().is_some_and(|e| e == "jnl")).max().unwrap()
}

fn used(dir: &Path) -> u64 {
    let bytes = fs::read(journal(dir)).unwrap();
    bytes.iter().rposition(|b| *b != 0).unwrap() as u64 + 1
}

fn fill(store: &dyn Store, n: u64) {
    let writes = (0..9).map(|i| put(format!("{n}-{i}"), vec![n as u8 + 1; 200])).collect();
    commit(store, n, n + 1, writes).unwrap();
}

/// A store as it lies while it is written: its directory, where the journal ended when COMMITTED
/// was synced and where it ends, and the side file of both moments.
fn running(to: &Path) -> (u64, u64, Vec<u8>, Vec<u8>) {
    let engine = Fjall::new();
    let store = engine.acquire(0).unwrap();
    for n in 0..COMMITTED {
        fill(&*store, n);
    }
    let (synced, then) = (used(&engine.dir()), fs::read(engine.dir().join("committed")).unwrap());
    for n in COMMITTED..WRITTEN {
        fill(&*store, n);
    }
    copy(&engine.dir(), to);
    let now = fs::read(engine.dir().join("committed")).unwrap();
    (synced, used(&engine.dir()), then, now)
}

#[test]
fn holes_in_what_was_not_committed_are_cut_off() {
    let root = tempfile::tempdir().unwrap();
    let (image, dir) = (root.path().join("image"), root.path().join("cut"));
    let (synced, end, then, now) = running(&image);
    let mut torn = 0;
    for at in (synced..end).step_by(61) {
        for length in [1, 512, 4096] {
            for (known, committed) in [(COMMITTED, &then), (WRITTEN, &now)] {
                let what = format!("{length} bytes at {at} of {synced}..{end}, known {known}");
                let _ = fs::remove_dir_all(&dir);
                copy(&image, &dir);
                fs::write(dir.join("committed"), committed).unwrap();
                let file = OpenOptions::new().write(true).open(journal(&dir)).unwrap();
                let before = fs::read(journal(&dir)).unwrap();
                file.write_all_at(&vec![0; length.min((end - at) as usize)], at).unwrap();
                let harmed = before != fs::read(journal(&dir)).unwrap();
                match acquire(&dir, "test", known, &FjallOptions::default()) {
                    Ok(store) => {
                        let last = store.info().last;
                        assert!(last >= known && (harmed || last == WRITTEN), "{what}: {last}");
                        for n in 0..WRITTEN {
                            let found = store.get(format!("{n}-8").as_bytes()).unwrap();
                            assert_eq!(found.is_some(), n < last, "{what}: {n}");
                        }
                        fill(&*store, last);
                        store.close().unwrap();
                        torn += u64::from(dir.join(TORN_COPY).exists());
                        drop(open_read_only(&dir).unwrap());
                    }
                    Err(StoreError::Corrupt(_) | StoreError::RolledBack { .. })
                        if known == WRITTEN && harmed =>
                    {
                        assert!(!dir.join(TORN_COPY).exists(), "{what}");
                    }
                    Err(e) => panic!("{what}: {e}"),
                }
            }
        }
    }
    assert!(torn > 50, "{torn}");
}
