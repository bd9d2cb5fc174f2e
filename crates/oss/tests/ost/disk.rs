//! What lies on disk: golden bytes, damage, and what format and open refuse (invariant 12).

use crate::common::*;
use pinstripe_oss::check::{Entry, OstDir};
use pinstripe_oss::{Boot, LabelError, Ost, OstError, OstLabel, OstOptions, name, sidecar};
use proto::Errno;
use proto::oss::*;
use proto::wire::List;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn object_file(dir: &Path, n: u32) -> PathBuf {
    dir.join("objects").join(name::object_path(&id(n)))
}
fn sidecar_file(dir: &Path, n: u32) -> PathBuf {
    dir.join("objects").join(name::sidecar_path(&id(n)))
}

#[test]
fn golden_bytes_of_a_label() {
    let mut expect = b"PSTOST\0\0\x01\0\0\0".to_vec();
    expect.extend([7; 16]);
    expect.extend([3, 0, 0, 0]);
    expect.extend([9; 16]);
    expect.extend(b"\x04\0\0\0test");
    expect.extend(crc32c::crc32c(&expect).to_le_bytes());
    assert_eq!(label().to_bytes(), expect);
    assert_eq!(OstLabel::from_bytes(&expect), Ok(label()));
    for i in 0..expect.len() {
        let mut bad = expect.clone();
        bad[i] ^= 0x10;
        assert!(OstLabel::from_bytes(&bad).is_err(), "byte {i}");
        assert!(OstLabel::from_bytes(&expect[..i]).is_err(), "cut at {i}");
    }
    let mut newer = expect.clone();
    newer[8] = 2;
    assert_eq!(OstLabel::from_bytes(&newer), Err(LabelError::Newer { found: 2, known: 1 }));
}

#[test]
fn golden_bytes_of_a_sidecar() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let data = pattern(1, 4096 + 10);
    write(&ost, 5, 0, &data, 0).unwrap();
    assert!(!sidecar_file(dir.path(), 5).exists(), "sums wait for the commit");
    commit(&ost, &[5]).unwrap();
    let mut expect = b"PSTSUMS\0\x01\0\0\0\0\x10\0\0\0\0\0\0".to_vec();
    expect.extend(b"\x00\x04\0\0\x02\0\0\0\x05\0\0\0\0\0\0\0\0\0\x01\0");
    expect.resize(60, 0);
    expect.extend(crc32c::crc32c(&expect).to_le_bytes());
    expect.extend(crc32c::crc32c(&data[..4096]).to_le_bytes());
    let mut last = data[4096..].to_vec();
    last.resize(4096, 0);
    expect.extend(crc32c::crc32c(&last).to_le_bytes());
    assert_eq!(fs::read(sidecar_file(dir.path(), 5)).unwrap(), expect);
    assert_eq!(sidecar::read_header(&expect, &id(5)), Ok(0));
    assert!(sidecar::read_header(&expect, &id(6)).is_err());
    for i in 0..64 {
        let mut bad = expect.clone();
        bad[i] ^= 1;
        assert!(sidecar::read_header(&bad, &id(5)).is_err(), "byte {i}");
    }
    // Overwriting a block that has a sum marks the header with the epoch.
    write(&ost, 5, 0, &data, 0).unwrap();
    let marked = fs::read(sidecar_file(dir.path(), 5)).unwrap();
    assert_eq!(sidecar::read_header(&marked, &id(5)), Ok(1));
}

#[test]
fn epochs_rise_and_ends_are_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    assert_eq!((ost.epoch(), ost.verifier()), (1, 1 << 32));
    write(&ost, 1, 0, b"x", 0).unwrap();
    ost.close().unwrap();
    assert_eq!(write(&ost, 1, 0, b"x", 0), Err(Errno::ESHUTDOWN));
    let boot = Boot::from_bytes(&fs::read(dir.path().join("boot")).unwrap()).unwrap();
    assert_eq!((boot.epoch, boot.clean, boot.objects), (1, true, 1));
    let ost = Ost::open(dir.path(), options()).unwrap();
    assert_eq!((ost.epoch(), ost.statfs().unwrap().objects), (2, 1));
    drop(ost);
    let ost = reopen(dir.path());
    assert!(ost.epoch() == 3 && ost.boot().crashed(2) && !ost.boot().crashed(1));
}

/// Unstable writes are lost with the machine only, and not even then after a clean end.
#[test]
fn a_verifier_stands_while_the_machine_runs_and_after_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    drop(fresh(dir.path()));
    let open = |run: u8| {
        let options = OstOptions { machine: Some([run; 16]), ..options() };
        reopen_with(dir.path(), options).unwrap()
    };
    let ost = open(1);
    let first = ost.verifier();
    write(&ost, 1, 0, b"x", 0).unwrap();
    drop(ost);
    let ost = open(1);
    assert_eq!(ost.verifier(), first, "the process was killed");
    let all = CommitReq { objects: List(vec![]) };
    assert_eq!(ost.commit(&all).unwrap().verifier, first);
    write(&ost, 1, 0, b"y", 0).unwrap();
    drop(ost);
    let ost = open(2);
    let second = ost.verifier();
    assert!(second > first, "the machine went down");
    ost.close().unwrap();
    drop(ost);
    let ost = open(3);
    assert_eq!(ost.verifier(), second, "all was committed before");
    drop(ost);
    fs::remove_file(dir.path().join("verifier")).unwrap();
    assert!(open(3).verifier() > second, "nothing is known");
    fs::write(dir.path().join("verifier"), b"junk").unwrap();
    let refused = reopen_with(dir.path(), options()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("no verifier"), "{refused}");
}

#[test]
fn format_and_open_refuse_with_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let text = |r: Result<(), OstError>| r.unwrap_err().to_string();
    let used = dir.path().join("used");
    fs::create_dir(&used).unwrap();
    fs::write(used.join("thesis.tex"), "x").unwrap();
    assert!(text(Ost::format(&used, &label())).contains("it holds 'thesis.tex'"));
    assert!(text(Ost::open(&used, options()).map(drop)).contains("no label"));
    // One that was used is not told to be formatted.
    let lost = dir.path().join("lost");
    drop(fresh(&lost));
    fs::remove_file(lost.join("label")).unwrap();
    let said = text(Ost::open(&lost, options()).map(drop));
    assert!(said.contains("lost/label back") && !said.contains("format"), "{said}");
    assert!(
        text(Ost::open(&dir.path().join("none"), options()).map(drop)).contains("No such file")
    );

    let target = dir.path().join("ost");
    Ost::format(&target, &label()).unwrap();
    assert_eq!(Ost::label(&target).unwrap(), label());
    assert!(text(Ost::format(&target, &label())).contains("already OST0003 of file system 'test'"));

    // A format that was cut short is finished.
    fs::remove_file(target.join("label")).unwrap();
    Ost::format(&target, &label()).unwrap();
    fs::remove_file(target.join("label")).unwrap();
    fs::write(target.join("objects/00/1.2.0.0.0"), "x").unwrap();
    assert!(text(Ost::format(&target, &label())).contains("not empty"));
    fs::remove_file(target.join("objects/00/1.2.0.0.0")).unwrap();
    Ost::format(&target, &label()).unwrap();

    let ost = Ost::open(&target, options()).unwrap();
    assert!(text(Ost::open(&target, options()).map(drop)).contains("in use by another process"));
    assert!(text(OstDir::open(&target).map(drop)).contains("in use by another process"));
    ost.close().unwrap();
    OstDir::open(&target).unwrap();

    let mut newer = fs::read(target.join("label")).unwrap();
    newer[8] = 9;
    fs::write(target.join("label"), &newer).unwrap();
    assert!(text(Ost::open(&target, options()).map(drop)).contains("version is 9"));
    assert!(text(Ost::format(&target, &label())).contains("version is 9"));
    fs::write(target.join("label"), label().to_bytes()).unwrap();
    fs::write(target.join("boot"), b"junk").unwrap();
    assert!(text(Ost::open(&target, options()).map(drop)).contains("no boot record"));
}

#[test]
fn damage_is_found_by_reads_and_by_the_checker() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let data = pattern(1, 10 * 4096 + 100);
    for n in 0..3 {
        write(&ost, n, 0, &data, 0).unwrap();
    }
    commit(&ost, &[]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(object_file(dir.path(), 1)).unwrap();
    file.write_all_at(&[data[3 * 4096 + 5] ^ 1], 3 * 4096 + 5).unwrap();
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0), Err(Errno::EIO));
    assert_eq!(read(&ost, 1, 3 * 4096, 4096, W_DIRECT), Err(Errno::EIO));
    assert_eq!(read(&ost, 1, 0, 3 * 4096, 0).unwrap(), data[..3 * 4096]);
    assert_eq!(ost.stats().blocks_bad, 2);
    // Written anew, the block is good again.
    write(&ost, 1, 3 * 4096, &data[3 * 4096..4 * 4096], 0).unwrap();
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0).unwrap(), data);
    ost.close().unwrap();
    drop(ost);

    file.write_all_at(&[data[0] ^ 1], 0).unwrap();
    file.write_all_at(&[data[10 * 4096] ^ 1], 10 * 4096).unwrap();
    let checker = OstDir::open(dir.path()).unwrap();
    let found = checker.verify(&id(1)).unwrap();
    assert_eq!((found.good, found.unknown, found.bad), (9, 0, vec![0, 10 * 4096]));
    assert_eq!(checker.verify(&id(0)).unwrap().good, 11);

    // A damaged sidecar is told; reads go on without it.
    let sums = fs::OpenOptions::new().write(true).open(sidecar_file(dir.path(), 2)).unwrap();
    sums.write_all_at(b"?", 20).unwrap();
    assert!(checker.verify(&id(2)).unwrap().sidecar.is_some());
    let ost = Ost::open(dir.path(), options()).unwrap();
    assert_eq!(read(&ost, 2, 0, 1 << 20, 0).unwrap(), data);
    assert_eq!(read(&ost, 1, 0, 1 << 20, 0), Err(Errno::EIO));
}

#[test]
fn foreign_things_are_left_alone_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    write(&ost, 1, 0, b"one", 0).unwrap();
    ost.close().unwrap();
    let objects = dir.path().join("objects");
    fs::write(dir.path().join("notes"), "x").unwrap();
    fs::write(objects.join("00/zzz"), "x").unwrap();
    fs::create_dir(objects.join("zz")).unwrap();
    let lone = objects.join(name::sidecar_path(&id(9)));
    fs::write(&lone, "x").unwrap();
    // An object's place taken by a link: neither followed nor removed by reads.
    std::os::unix::fs::symlink("/etc/hostname", object_file(dir.path(), 7)).unwrap();
    let mut seen = Vec::new();
    OstDir::open(dir.path()).unwrap().walk(|e| seen.push(e)).unwrap();
    assert_eq!(seen.iter().filter(|e| matches!(e, Entry::Foreign(_))).count(), 4);
    assert!(seen.contains(&Entry::Foreign("notes".into())));
    assert!(seen.contains(&Entry::Foreign("objects/00/zzz".into())));
    assert!(seen.contains(&Entry::LoneSidecar(id(9))));
    assert!(seen.iter().any(|e| matches!(e, Entry::Object { id: i, size: 3, .. } if *i == id(1))));
    let ost = Ost::open(dir.path(), options()).unwrap();
    assert_eq!(read(&ost, 7, 0, 100, 0), Err(Errno(libc::ELOOP)));
    assert!(write(&ost, 7, 0, b"x", 0).is_err());
    assert!(!glimpse(&ost, 7).exists);
}

#[test]
fn a_sparse_object_of_many_tib_is_quick_to_check() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let far = 8u64 << 40;
    let w = match write(&ost, 1, far, &pattern(1, 5000), 0) {
        Err(Errno::EFBIG) => return,
        other => other.unwrap(),
    };
    assert_eq!(w.size, far + 5000);
    assert!(w.blocks < 1000);
    assert_eq!(read(&ost, 1, far - 10, 20, 0).unwrap()[10..], pattern(1, 5000)[..10]);
    assert_eq!(write(&ost, 1, i64::MAX as u64 - 3, b"12345", 0), Err(Errno::EFBIG));
    // Beyond what any local file system here takes.
    assert_eq!(write(&ost, 1, i64::MAX as u64 - 5, b"12345", 0), Err(Errno::EFBIG));
    commit(&ost, &[1]).unwrap();
    punch(&ost, 1, 4096, far - 4096, P_HOLE).unwrap();
    ost.close().unwrap();
    let found = OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap();
    assert_eq!((found.good, found.bad), (2, vec![]));
}
