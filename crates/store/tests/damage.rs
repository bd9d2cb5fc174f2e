//! Damaged, truncated and missing files of a fjall store: never a panic, never wrong data, and a
//! lost tail is noticed (invariants 11 and 12).

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Engine, Fjall, commit, dump, put};
use pinstripe_store::StoreError;
use pinstripe_store::fjall_engine::{self, FjallOptions, acquire, format, open_read_only};

const COMMITS: u64 = 60;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A closed store with tables and a journal; returns what is in it.
fn build(engine: &Fjall) -> Entries {
    let store = engine.acquire(0).unwrap();
    for n in 0..COMMITS {
        let writes = (0..50)
            .map(|i| {
                let key = (n * 7919 + i * 104_729) % 2000;
                put(format!("{key:05}"), vec![(n + i) as u8; 300])
            })
            .collect();
        commit(&*store, n, n + 1, writes).unwrap();
    }
    let all = dump(|from| store.scan(from, None, 1000).unwrap());
    store.close().unwrap();
    // Once more, so that the journal's preallocated zeros are cut off and copies are small.
    engine.acquire(COMMITS).unwrap().close().unwrap();
    all
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

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

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 0x55;
    file.write_all_at(&byte, at).unwrap();
}

/// Opens a damaged copy. Errors are fine; what is read must be right.
fn check(dir: &Path, expected: &Entries, what: &str) {
    let options = FjallOptions::default();
    let store = match acquire(dir, "test", COMMITS, &options) {
        Ok(store) => store,
        Err(
            StoreError::Corrupt(_)
            | StoreError::RolledBack { .. }
            | StoreError::Version { .. }
            | StoreError::Invalid(_),
        ) => return,
        Err(other) => panic!("{what}: {other:?}"),
    };
    let expected: BTreeMap<_, _> = expected.iter().cloned().collect();
    match store.scan(b"", None, usize::MAX) {
        Ok(found) => {
            let found: BTreeMap<_, _> = found.into_iter().map(|(k, v)| (k, v.to_vec())).collect();
            assert!(found == expected, "{what}: wrong contents");
        }
        Err(StoreError::Corrupt(_)) => {}
        Err(other) => panic!("{what}: {other:?}"),
    }
    for (key, value) in expected.iter().step_by(97) {
        match store.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{what}"),
            Err(StoreError::Corrupt(_)) => {}
            Err(other) => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn damaged_files_never_yield_wrong_data() {
    let engine = Fjall::new();
    let expected = build(&engine);
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("copy");
    let mut cases = 0;
    for file in files(&engine.dir()) {
        let name = file.strip_prefix(engine.dir()).unwrap();
        let length = fs::metadata(&file).unwrap().len();
        let spots: Vec<u64> = (0..12)
            .map(|i| i * length / 12)
            .chain([1, 9, length.saturating_sub(1), length.saturating_sub(20)])
            .filter(|at| *at < length)
            .collect();
        let mut try_with = |what: String, harm: &dyn Fn(&Path)| {
            let _ = fs::remove_dir_all(&dir);
            copy(&engine.dir(), &dir);
            harm(&dir.join(name));
            check(&dir, &expected, &format!("{}: {what}", name.display()));
            cases += 1;
        };
        for at in spots {
            try_with(format!("byte {at} of {length} changed"), &|f| flip(f, at));
        }
        for keep in [0, length / 3, length.saturating_sub(3)] {
            try_with(format!("cut to {keep} of {length}"), &|f| {
                File::options().write(true).open(f).unwrap().set_len(keep).unwrap();
            });
        }
        try_with("removed".into(), &|f| fs::remove_file(f).unwrap());
    }
    assert!(cases > 100, "{cases}");
}

fn journal(dir: &Path) -> PathBuf {
    let journals = files(&dir.join("fjall"));
    let is_journal = |p: &&PathBuf| p.extension().is_some_and(|e| e == "jnl");
    journals.iter().rfind(is_journal).unwrap().clone()
}

/// Every file and its bytes, but for those that say who looked last.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for file in files(dir) {
        if !file.ends_with("OWNER") {
            all.insert(file.clone(), fs::read(file).unwrap());
        }
    }
    all
}

/// fjall takes damage in mid-journal for the journal's end and cuts off the rest (fjall#311). The
/// engine notices even when no client tells, and leaves everything as it is for a repair.
#[test]
fn a_tail_lost_in_the_journal_is_noticed_and_left_alone() {
    let engine = Fjall::new();
    build(&engine);
    let journal = journal(&engine.dir());
    let intact = fs::read(&journal).unwrap();
    assert!(intact.len() > 10_000);
    for part in 0..20 {
        for length in [1, 30, 3000] {
            let at = intact.len() * part / 20;
            let mut bytes = intact.clone();
            for b in &mut bytes[at..intact.len().min(at + length)] {
                *b = !*b;
            }
            fs::write(&journal, bytes).unwrap();
            let before = contents(&engine.dir());
            let what = format!("{length} bytes at {at} of {}", intact.len());
            match engine.acquire(0) {
                Err(StoreError::RolledBack { .. } | StoreError::Corrupt(_)) => {}
                Err(other) => panic!("{what}: {other:?}"),
                Ok(_) => panic!("{what}: not noticed"),
            }
            assert!(contents(&engine.dir()) == before, "{what}: files changed");
        }
    }
    fs::write(&journal, intact).unwrap();
    engine.acquire(COMMITS).unwrap();
}

#[test]
fn an_older_copy_of_the_database_is_noticed() {
    let engine = Fjall::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 5, vec![put("a", "1")]).unwrap();
    store.close().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    copy(&engine.dir().join("fjall"), &scratch.path().join("old"));
    let store = engine.acquire(5).unwrap();
    commit(&*store, 5, 9, vec![put("a", "2")]).unwrap();
    store.close().unwrap();
    fs::remove_dir_all(engine.dir().join("fjall")).unwrap();
    copy(&scratch.path().join("old"), &engine.dir().join("fjall"));

    let refused = engine.acquire(0).err().unwrap();
    assert_eq!(refused, StoreError::RolledBack { known: 9, found: 5 });
    assert!(matches!(open_read_only(&engine.dir()), Err(StoreError::RolledBack { .. })));
    // An operator without a better copy may accept the loss; afterwards the store is whole again.
    let accepting = FjallOptions { accept_rolled_back: true, ..FjallOptions::default() };
    let store = acquire(&engine.dir(), "operator", 9, &accepting).unwrap();
    assert_eq!(store.info().last, 5);
    store.close().unwrap();
    engine.acquire(5).unwrap();
}

#[test]
fn a_newer_layout_is_refused_by_name() {
    let engine = Fjall::new();
    let path = engine.dir().join("STORE");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    fs::write(&path, bytes).unwrap();
    let refused = engine.acquire(0).err().unwrap().to_string();
    assert!(refused.contains("STORE has format version 2"), "{refused}");
}

#[test]
fn reading_for_a_check_changes_nothing() {
    let engine = Fjall::new();
    let expected = build(&engine);
    for _ in 0..2 {
        let view = open_read_only(&engine.dir()).unwrap();
        let found = dump(|from| view.scan(from, None, 1000).unwrap());
        assert!(found == expected);
        assert!(matches!(engine.acquire(0), Err(StoreError::Busy { .. })));
    }
    // Epochs 1 and 2 were those of `build`.
    assert_eq!(engine.acquire(COMMITS).unwrap().info().epoch, 3);
}

#[test]
fn only_an_empty_directory_is_formatted() {
    let root = tempfile::tempdir().unwrap();
    let options = FjallOptions::default();
    let refused = acquire(root.path(), "test", 0, &options).err().unwrap();
    assert!(refused.to_string().contains("format it first"), "{refused}");
    fs::write(root.path().join("thesis.tex"), "42").unwrap();
    let refused = format(root.path(), &options).unwrap_err().to_string();
    assert!(refused.contains("it holds thesis.tex"), "{refused}");
    let dir = root.path().join("new/mdt0");
    fjall_engine::format(&dir, &options).unwrap();
    assert!(format(&dir, &options).is_err());
    fs::remove_file(dir.join("STORE")).unwrap();
    let refused = acquire(&dir, "test", 0, &options).err().unwrap();
    assert!(refused.to_string().contains("never finished being formatted"), "{refused}");
    fs::create_dir(root.path().join("mounted")).unwrap();
    fs::create_dir(root.path().join("mounted/lost+found")).unwrap();
    format(&root.path().join("mounted"), &options).unwrap();
}

/// Short runs of random bytes in random files, mostly near their ends, where the structure is. The
/// same every time; 18,000 rounds of other seeds were run once.
#[test]
fn random_damage_never_yields_wrong_data() {
    let engine = Fjall::new();
    let expected = build(&engine);
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("copy");
    let files = files(&engine.dir());
    let mut x = 0x5eed_u64;
    let mut next = |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    for round in 0..200 {
        let file = &files[next(files.len() as u64) as usize];
        let length = fs::metadata(file).unwrap().len();
        if length == 0 {
            continue;
        }
        let at = match next(2) {
            0 => length - 1 - next(length.min(300)),
            _ => next(length),
        };
        let bytes: Vec<u8> = (0..1 + next(8)).map(|_| next(512).min(255) as u8).collect();
        let _ = fs::remove_dir_all(&dir);
        copy(&engine.dir(), &dir);
        let name = file.strip_prefix(engine.dir()).unwrap();
        let harmed = OpenOptions::new().write(true).open(dir.join(name)).unwrap();
        harmed.write_all_at(&bytes, at).unwrap();
        let what = format!("round {round}, {}: {bytes:?} at {at} of {length}", name.display());
        check(&dir, &expected, &what);
    }
}

/// fjall would allocate room for four thousand million sections, and abort.
#[test]
fn a_table_that_claims_too_many_sections_is_refused() {
    let engine = Fjall::new();
    build(&engine);
    let table = files(&engine.dir().join("fjall/keyspaces/1/tables")).pop().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let list = bytes.windows(4).rposition(|w| w == b"TOC!").unwrap();
    bytes[list + 4..list + 8].fill(0xff);
    fs::write(&table, bytes).unwrap();
    let refused = engine.acquire(0).err().unwrap().to_string();
    assert!(refused.contains("list of sections is too long"), "{refused}");
}
