//! Choice and images without a mount; and, where FUSE can be mounted, programs with known sync
//! points on the mirror, which must lose exactly what they did not sync.

use super::image::everything;
use super::*;
use crate::durable::{self, WriteOptions};
use crate::model::tree::{self, Tree};
use crate::model::{self, PosixDir, Source, Target};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn create(id: u64, name: &str) -> Entry {
    let (mode, name) = (libc::S_IFREG | 0o644, name.as_bytes().to_vec());
    Entry::Create { parent: 1, name, id, mode, uid: 0, gid: 0, rdev: 0, target: vec![] }
}

fn write(id: u64, off: u64, len: u32) -> Entry {
    Entry::Write { id, off, len, durable: false }
}

#[test]
fn only_synced_data_survives_without_a_seed() {
    let entries = [
        create(2, "a"),
        write(2, 0, 10),
        create(3, "b"),
        write(3, 0, 10),
        Entry::Sync { id: 2, data_only: true },
        write(2, 10, 10),
        create(4, "c"),
    ];
    let whole = |n: u64| std::iter::once(0..n).collect::<Vec<_>>();
    let all = choose(&entries, 7, None);
    assert_eq!(all, Choice { metadata: 5, writes: vec![(1, whole(10))] });
    assert_eq!(choose(&entries, 4, None), Choice { metadata: 0, writes: vec![] });
}

#[test]
fn a_seed_keeps_what_is_synced_and_tears_the_rest_at_sectors() {
    let mut entries =
        vec![create(2, "a"), write(2, 0, 9000), Entry::Sync { id: 2, data_only: true }];
    entries.extend((0..20).map(|n| write(2, 9000 + n * 9000, 9000)));
    let (mut torn, mut lost, mut kept) = (0, 0, 0);
    for seed in 0..200 {
        let choice = choose(&entries, entries.len(), Some(seed));
        assert_eq!(choice, choose(&entries, entries.len(), Some(seed)), "not repeatable");
        assert_eq!(choice.writes[0].0, 1);
        assert!(choice.metadata >= 3);
        lost += 21 - choice.writes.len();
        for (index, pieces) in &choice.writes[1..] {
            let Entry::Write { off, .. } = &entries[*index] else { panic!() };
            let whole = pieces.len() == 1 && pieces[0] == (0..9000);
            if whole {
                kept += 1
            } else {
                torn += 1
            }
            for p in pieces {
                assert!(p.start == 0 || (off + p.start) % 512 == 0);
                assert!(p.end == 9000 || (off + p.end) % 512 == 0);
            }
        }
    }
    assert!(torn > 100 && lost > 100 && kept > 100, "{torn} {lost} {kept}");
}

#[test]
fn journals_survive_torn_tails_and_refuse_strangers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut recorder = Recorder::create(&path, Some(&dir.path().join("seq"))).unwrap();
    recorder.add(&create(2, "a"), b"").unwrap();
    recorder.add(&write(2, 0, 5), b"hello").unwrap();
    assert_eq!(std::fs::read(dir.path().join("seq")).unwrap(), 2u64.to_le_bytes());
    let whole = std::fs::read(&path).unwrap();
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        match Journal::read(&path) {
            Ok(journal) => assert!(journal.entries.len() < 2),
            Err(_) => assert!(len < 12),
        }
    }
    std::fs::write(&path, &whole).unwrap();
    let journal = Journal::read(&path).unwrap();
    assert_eq!(journal.data(1).unwrap(), b"hello");
    assert_eq!(journal.entries[0], create(2, "a"));
    let mut newer = whole.clone();
    newer[8] = 9;
    std::fs::write(&path, &newer).unwrap();
    assert!(Journal::read(&path).err().unwrap().to_string().contains("version 9"));
    std::fs::write(&path, "something else entirely").unwrap();
    assert!(Journal::read(&path).is_err());
}

#[test]
fn the_journal_has_golden_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut recorder = Recorder::create(&path, None).unwrap();
    recorder.add(&write(300, 4096, 3), b"abc").unwrap();
    recorder.add(&Entry::Sync { id: 300, data_only: true }, b"").unwrap();
    let golden = b"PSFORGET\x01\0\0\0\
        \x07\0\0\0\xcc\xcc\xcc\xcc\x04\xac\x02\x80\x20\x03\0abc\
        \x04\0\0\0\xcc\xcc\xcc\xcc\x0a\xac\x02\x01";
    let mut have = std::fs::read(path).unwrap();
    for (at, entry) in [(16, 20..27), (34, 38..42)] {
        let crc = crc32c::crc32c(&have[entry]).to_le_bytes();
        assert_eq!(have[at..at + 4], crc);
        have[at..at + 4].fill(0xcc);
    }
    assert_eq!(have, golden);
}

struct Disk {
    // Before the directory, so that a failing test unmounts first.
    mounted: Option<Mounted>,
    dir: tempfile::TempDir,
    cuts: u32,
}

impl Disk {
    /// A mounted mirror over an empty directory, or over what `fill` puts there.
    fn mount(fill: impl FnOnce(&Path)) -> Disk {
        let dir = tempfile::Builder::new().prefix("lab-forget-").tempdir().unwrap();
        for name in ["backing", "mnt"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        fill(&dir.path().join("backing"));
        let mounted = mount(&Options {
            backing: dir.path().join("backing"),
            mountpoint: dir.path().join("mnt"),
            journal: dir.path().join("journal"),
            seq_file: Some(dir.path().join("seq")),
        })
        .unwrap();
        Disk { dir, mounted: Some(mounted), cuts: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mnt").join(name)
    }

    fn seq(&self) -> usize {
        let bytes = std::fs::read(self.dir.path().join("seq")).unwrap();
        u64::from_le_bytes(bytes.try_into().unwrap()) as usize
    }

    fn unmount(&mut self) -> Journal {
        self.mounted.take().unwrap().unmount();
        Journal::read(&self.dir.path().join("journal")).unwrap()
    }

    fn cut(&mut self, journal: &Journal, at: usize, seed: Option<u64>) -> PathBuf {
        self.cuts += 1;
        let out = self.dir.path().join(format!("cut-{}", self.cuts));
        cut(journal, at, seed, &out).unwrap();
        out
    }
}

#[test]
fn appends_are_lost_exactly_to_the_last_sync() {
    let mut disk = Disk::mount(|_| {});
    let mut file = File::create(disk.path("log")).unwrap();
    let mut points = Vec::new();
    for round in 0..20u8 {
        file.write_all(&[round; 1000]).unwrap();
        file.sync_data().unwrap();
        points.push(disk.seq());
        file.write_all(&[99; 500]).unwrap();
        file.set_len(u64::from(round + 1) * 1000).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    }
    drop(file);
    let journal = disk.unmount();
    for (round, point) in points.iter().enumerate() {
        let image = disk.cut(&journal, *point, None);
        let data = std::fs::read(image.join("log")).unwrap();
        assert_eq!(data.len(), (round + 1) * 1000);
        assert!(data.iter().enumerate().all(|(i, b)| usize::from(*b) == i / 1000));
        for seed in 0..6 {
            let image = disk.cut(&journal, *point + 1, Some(seed));
            let data = std::fs::read(image.join("log")).unwrap();
            assert!(data.len() >= (round + 1) * 1000, "synced data is lost");
        }
    }
}

#[test]
fn names_are_durable_in_order_and_data_is_not() {
    let mut disk = Disk::mount(|_| {});
    std::fs::write(disk.path("old"), "old").unwrap();
    File::open(disk.path("old")).unwrap().sync_all().unwrap();
    std::fs::write(disk.path("new"), "new data").unwrap();
    std::fs::rename(disk.path("new"), disk.path("old")).unwrap();
    let renamed = disk.seq();
    std::fs::create_dir(disk.path("dir")).unwrap();
    symlink("target", disk.path("dir/link")).unwrap();
    File::open(disk.path("dir")).unwrap().sync_all().unwrap();
    let synced = disk.seq();
    std::fs::hard_link(disk.path("old"), disk.path("dir/hard")).unwrap();
    File::open(disk.path("old")).unwrap().sync_all().unwrap();
    let journal = disk.unmount();
    let before = disk.cut(&journal, renamed, None);
    assert_eq!(std::fs::read(before.join("old")).unwrap(), b"old");
    let after = disk.cut(&journal, synced, None);
    assert_eq!(std::fs::read(after.join("old")).unwrap(), b"", "renamed, its data never synced");
    assert_eq!(std::fs::read_link(after.join("dir/link")).unwrap(), Path::new("target"));
    assert!(!after.join("new").exists() && !after.join("dir/hard").exists());
    let end = disk.cut(&journal, usize::MAX, None);
    assert_eq!(std::fs::read(end.join("dir/hard")).unwrap(), b"new data");
    assert_eq!(std::fs::metadata(end.join("old")).unwrap().nlink(), 2);
}

#[test]
fn what_was_there_at_the_start_is_durable() {
    let mut disk = Disk::mount(|backing| {
        std::fs::create_dir(backing.join("d")).unwrap();
        std::fs::write(backing.join("d/f"), vec![5; 3_000_000]).unwrap();
        std::fs::hard_link(backing.join("d/f"), backing.join("g")).unwrap();
        File::create(backing.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        rustix::fs::setxattr(backing.join("g"), "user.a", b"v", rustix::fs::XattrFlags::empty())
            .unwrap();
    });
    let file = OpenOptions::new().write(true).open(disk.path("d/f")).unwrap();
    file.write_all_at(&[6; 100], 50).unwrap();
    let mut seen = Vec::new();
    File::open(disk.path("g")).unwrap().read_to_end(&mut seen).unwrap();
    assert_eq!((seen.len(), seen[60]), (3_000_000, 6));
    drop(file);
    let journal = disk.unmount();
    let image = disk.cut(&journal, usize::MAX, None);
    assert_eq!(std::fs::read(image.join("g")).unwrap(), vec![5; 3_000_000]);
    assert_eq!(std::fs::metadata(image.join("sparse")).unwrap().len(), 1 << 40);
    let mut value = [0; 9];
    assert_eq!(rustix::fs::getxattr(image.join("d/f"), "user.a", &mut value[..]).unwrap(), 1);
}

/// The durable writer's own promises hold on every cut, and the checker notices a cut that is
/// older than what was promised.
#[test]
fn every_cut_keeps_what_the_durable_writer_synced() {
    let mut disk = Disk::mount(|_| {});
    let log = disk.dir.path().join("durable-log");
    let report = durable::write(&WriteOptions {
        dir: disk.path(""),
        log: log.clone(),
        seed: 1,
        threads: 3,
        limit: Duration::from_secs(60),
        ops: 60,
        grace: Duration::from_secs(10),
        syncfs: false,
        seq_file: Some(disk.dir.path().join("seq")),
    })
    .unwrap();
    assert_eq!((report.done, report.odd), (180, vec![]));
    let journal = disk.unmount();
    let total = journal.entries.len();
    let mut checked = 0;
    for n in 0..40 {
        let at = total * n / 39;
        let seed = (n % 3 > 0).then_some(n as u64);
        let image = disk.cut(&journal, at, seed);
        let report = durable::check(&image, &log, Some(at as u64)).unwrap();
        assert_eq!(
            report.violations,
            Vec::<String>::new(),
            "cut at {at} of {total}, seed {seed:?}"
        );
        checked += report.files;
    }
    assert!(checked > 100);
    let image = disk.cut(&journal, total * 3 / 4, None);
    let late = durable::check(&image, &log, Some(total as u64)).unwrap();
    assert!(!late.violations.is_empty(), "a cut in the past must be noticed");
}

/// The mirror itself is a sound file system, as far as a server's data directory needs, and the
/// image of a cut at which everything had arrived is what the live directory holds.
#[test]
fn the_mirror_agrees_with_the_local_file_system() {
    let mut disk = Disk::mount(|_| {});
    let reference = tempfile::tempdir().unwrap();
    let mut options = model::Options::new(5, 3000);
    options.without = ["users", "devices", "acl", "tmpfile", "btime"].map(String::from).into();
    let top = disk.path("");
    let report = model::compare_dirs(&top, reference.path(), &options).unwrap();
    assert!(report.difference.is_none(), "{:#?}", report.difference);
    // The same steps again, left in place this time.
    let mut source = Source::new(9, &options.without);
    let mut kept = PosixDir::create(&top, "kept").unwrap();
    for _ in 0..3000 {
        let step = source.step();
        let outcome = kept.apply(&step);
        source.note(&step, &outcome);
    }
    drop(kept);
    for path in [top.clone(), top.join("kept")] {
        File::open(path).unwrap().sync_all().unwrap();
    }
    let want = tree::read(&disk.dir.path().join("backing/kept")).unwrap();
    let journal = disk.unmount();
    let image = disk.dir.path().join("image");
    everything(&journal, &image).unwrap();
    let have = tree::read(&image.join("kept")).unwrap();
    assert!(want.len() > 20, "{} names", want.len());
    assert_eq!(tree::compare(&without_times(have), &without_times(want), 5), Vec::<String>::new());
}

fn without_times(mut tree: Tree) -> Tree {
    tree.values_mut().for_each(|entry| entry.mtime = None);
    tree
}
