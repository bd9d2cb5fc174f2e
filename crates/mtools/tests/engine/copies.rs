//! Any file, any settings: the same bytes, and no more blocks than cp takes.

use crate::tools::{
    Random, blocks, copy, copy_file, data, disk, genuine, grounds, ragged, same, sectors, sides,
};
use mtools::engine::{Detection, Engine, Fault, Reflink, Settings, Sparse, Switch, Tried};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

const CASES: usize = 60;
const SWITCHES: [Switch; 3] = [Switch::Auto, Switch::On, Switch::Off];

fn settings(random: &mut Random) -> Settings {
    Settings {
        threads: random.pick(&[1, 2, 3, 8]),
        buffer_size: random.pick(&[4 << 10, 64 << 10, 100_000, 1 << 20]),
        split_size: random.pick(&[0, 64 << 10, 200_000, 1 << 20, 32 << 20]),
        double_buffer: random.pick(&SWITCHES),
        direct_read: random.pick(&SWITCHES),
        direct_write: random.pick(&SWITCHES),
        fadvise_read: random.pick(&SWITCHES),
        fadvise_write: random.pick(&SWITCHES),
        preallocate: random.pick(&SWITCHES),
        ..Settings::default()
    }
}

#[test]
fn random_files_with_random_settings() {
    let mut random = Random::new();
    for dir in grounds() {
        let (src, dst, ours) =
            (dir.path().join("src"), dir.path().join("cp"), dir.path().join("ours"));
        for case in 0..CASES {
            ragged(&mut random, &src, 6 << 20);
            let (sparse, word) = random.pick(&[
                (Sparse::Auto, "--sparse=auto"),
                (Sparse::Always, "--sparse=always"),
                (Sparse::Never, "--sparse=never"),
            ]);
            let set = settings(&mut random);
            println!("{} case {case}: {sparse:?} {set:?}", dir.path().display());
            let preallocates = set.preallocate == Switch::On;
            let copied = copy_file(set, &src, &ours, sparse);
            genuine(&[word], &src, &dst);
            same(&src, &ours);
            assert_eq!(copied.bytes, std::fs::metadata(&src).unwrap().len());
            if sparse != Sparse::Never && !preallocates {
                let (most, have) = (sectors(&dst), sectors(&ours));
                assert!(have <= most, "{have} sectors, cp took {most}");
            }
        }
    }
}

#[test]
fn never_leaves_no_hole() {
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    File::create(&src).unwrap().set_len(3 << 20).unwrap();
    let set = Settings { threads: 3, split_size: 1 << 20, ..Settings::default() };
    copy_file(set, &src, &dst, Sparse::Never);
    same(&src, &dst);
    assert!(blocks(&dst) * 512 >= 3 << 20);
    assert_eq!(sectors(&dst) * 512, 3 << 20);
}

#[test]
fn what_was_done_is_told() {
    for dir in grounds() {
        let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
        let file = File::create(&src).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 8192).unwrap();
        let copied = copy_file(Settings::default(), &src, &dst, Sparse::Auto);
        assert_eq!((copied.bytes, copied.moved), (1 << 20, 4096));
        assert_eq!(copied.sparse, Detection::SeekHole);
        std::fs::write(&src, [0; 8192]).unwrap();
        let copied = copy_file(Settings::default(), &src, &dst, Sparse::Always);
        assert_eq!((copied.bytes, copied.moved), (8192, 0));
        assert_eq!((copied.sparse, copied.reflink), (Detection::Zeros, Tried::Avoided));
        assert_eq!((std::fs::metadata(&dst).unwrap().len(), blocks(&dst)), (8192, 0));
    }
}

#[test]
fn a_clone_that_must_be_is_a_fault_where_it_cannot() {
    // Memory shares no blocks.
    let Some(dir) = grounds().pop() else { return };
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    std::fs::write(&src, "bytes").unwrap();
    let engine = Engine::new(Settings::default()).unwrap();
    let result = copy(&engine, sides(&src, &dst, Sparse::Auto, Reflink::Always));
    let supported = genuine_clones(&src, &dir.path().join("cp"));
    assert_eq!(matches!(result, Err(Fault::Clone(_))), !supported, "{result:?}");
}

fn genuine_clones(src: &std::path::Path, dst: &std::path::Path) -> bool {
    let mut cp = std::process::Command::new("cp");
    cp.arg("--reflink=always").arg(src).arg(dst);
    cp.stderr(std::process::Stdio::null()).status().unwrap().success()
}

#[test]
fn files_without_a_size_are_read_to_their_end() {
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let dst = dir.path().join("dst");
    let version = std::path::Path::new("/proc/version");
    copy_file(Settings::default(), version, &dst, Sparse::Auto);
    assert!(!std::fs::read(&dst).unwrap().is_empty());
    same(version, &dst);
}

#[test]
fn a_pipe_is_copied_to_its_end_and_into() {
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let mut random = Random::new();
    let bytes = random.bytes(3_000_001);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let path = dir.path().join("dst");
    let dst = File::create(&path).unwrap();
    let engine = Engine::new(Settings::default()).unwrap();
    let from = File::from(std::os::fd::OwnedFd::from(reader));
    let one = data(from, dst, &path, &path, Sparse::Auto, Reflink::Auto);
    assert_eq!(copy(&engine, one).unwrap().bytes, bytes.len() as u64);
    sender.join().unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);

    let (mut reader, writer) = std::io::pipe().unwrap();
    let receiver = std::thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        got
    });
    let to = File::from(std::os::fd::OwnedFd::from(writer));
    let one = data(File::open(&path).unwrap(), to, &path, &path, Sparse::Auto, Reflink::Auto);
    copy(&engine, one).unwrap();
    assert!(receiver.join().unwrap() == bytes);
}

#[test]
fn a_range_leaves_the_rest_alone() {
    let mut random = Random::new();
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    for _ in 0..CASES / 4 {
        ragged(&mut random, &src, 3 << 20);
        let length = random.below(4 << 20) as usize;
        let old = random.bytes(length);
        std::fs::write(&dst, &old).unwrap();
        let bytes = std::fs::read(&src).unwrap();
        let offset = random.below(bytes.len() as u64 + 1);
        let length = random.below(bytes.len() as u64 * 2 + 1);
        let set = Settings { offset, length: Some(length), ..settings(&mut random) };
        println!("{set:?}");
        let sparse = random.pick(&[Sparse::Auto, Sparse::Always, Sparse::Never]);
        let engine = Engine::new(set).unwrap();
        let to = OpenOptions::new().write(true).open(&dst).unwrap();
        let mut one = data(File::open(&src).unwrap(), to, &src, &dst, sparse, Reflink::Auto);
        one.fresh = false;
        copy(&engine, one).unwrap();
        let end = (offset + length).min(bytes.len() as u64) as usize;
        let mut want = old;
        want.resize(want.len().max(end), 0);
        want[offset as usize..end].copy_from_slice(&bytes[offset as usize..end]);
        assert!(std::fs::read(&dst).unwrap() == want);
    }
}

#[test]
fn an_older_longer_file_is_overwritten_and_cut() {
    let mut random = Random::new();
    let dir = tempfile::tempdir_in(disk()).unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    for _ in 0..CASES / 4 {
        ragged(&mut random, &src, 3 << 20);
        let length = random.below(4 << 20) as usize;
        std::fs::write(&dst, random.bytes(length)).unwrap();
        let engine = Engine::new(settings(&mut random)).unwrap();
        let to = OpenOptions::new().write(true).open(&dst).unwrap();
        let mut one = data(File::open(&src).unwrap(), to, &src, &dst, Sparse::Auto, Reflink::Auto);
        one.fresh = false;
        copy(&engine, one).unwrap();
        same(&src, &dst);
    }
}
