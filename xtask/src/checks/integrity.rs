//! Bytes that rot on an OST's disk are never served: reading them fails, fsck names them
//! (invariant 7).

use crate::cx::Cx;
use crate::fs::{Fs, How, same};
use crate::plan::{Check, Need};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "integrity",
    about: "a flipped bit on an OST's disk is an error of read and found by fsck, never data",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 200,
    weight: 1,
    slow: false,
    run,
};

const LENGTH: usize = 1 << 20;

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::with(cx, "fs", How { osts: 1, ..How::default() })?;
    let dir = fs.striped("dir", 1, 1 << 20)?;
    let content = Random::new(cx.seed()).bytes(LENGTH);
    for name in ["rotten", "sound"] {
        std::fs::write(dir.join(name), &content)?;
        File::open(dir.join(name))?.sync_all()?;
    }
    fs.down()?;
    let object = object_with(&fs.data, &content)?;
    let at = LENGTH as u64 / 2 + 77;
    flip(&object, at)?;
    cx.case("fsck names it", || {
        let fsck = cx.pinstripe().arg("fsck").arg("--data").arg(&fs.data);
        fsck.arg("--data-too").limit(120).run()?.refused().map(|_| ())
    });
    fs.up()?;
    cx.case("reading it fails, and only it", || {
        let results = ["rotten", "sound"].map(|name| std::fs::read(dir.join(name)));
        let failed = results.iter().filter(|r| r.is_err()).count();
        ensure!(failed == 1, "{failed} of the two files cannot be read");
        for result in results.iter().flatten() {
            same("the sound one", result, &content)?;
        }
        for error in results.iter().filter_map(|r| r.as_ref().err()) {
            ensure!(error.raw_os_error() == Some(5), "not EIO: {error}");
        }
        Ok(())
    });
    cx.case("other blocks of it can be read", || {
        for name in ["rotten", "sound"] {
            let mut first = vec![0; 4096];
            File::open(dir.join(name))?.read_exact_at(&mut first, 0)?;
            same("its first block", &first, &content[..4096])?;
        }
        Ok(())
    });
    cx.case("the bit flipped back, all is well", || {
        fs.down()?;
        flip(&object, at)?;
        fs.up()?;
        same("rotten", &std::fs::read(dir.join("rotten"))?, &content)?;
        fs.down_and_check()
    });
    Ok(())
}

/// The file under `data` that holds `content`.
fn object_with(data: &Path, content: &[u8]) -> Result<PathBuf> {
    let mut found = Vec::new();
    walk(data, &mut found)?;
    found
        .into_iter()
        .find(|path| std::fs::read(path).is_ok_and(|bytes| bytes == content))
        .context("no object holds the bytes of the file as they are")
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        } else if entry.metadata()?.len() == LENGTH as u64 {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn flip(path: &Path, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ 0x10], at)?;
    file.sync_all()?;
    Ok(())
}
