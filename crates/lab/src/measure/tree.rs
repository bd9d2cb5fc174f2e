//! Plain workloads on many small files; each returns the number of files or entries it touched.

use crate::pattern;
use std::fs::File;
use std::io::{Read, Result, Write};
use std::path::Path;

/// Files in each directory of a tree.
pub const FILES_PER_DIR: usize = 100;

/// Makes `count` files of 0 to `max_len` bytes below `top`, in directories of [`FILES_PER_DIR`].
pub fn create(top: &Path, count: usize, max_len: usize) -> Result<f64> {
    for n in 0..count {
        let dir = top.join(format!("d{}", n / FILES_PER_DIR));
        if n % FILES_PER_DIR == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        let len = pattern::mix(n as u64) as usize % (max_len + 1);
        File::create_new(dir.join(format!("f{n}")))?
            .write_all(&pattern::make(len, n as u64, 1, 0))?;
    }
    Ok(count as f64)
}

/// Opens, reads and closes every file below `top`.
pub fn read(top: &Path) -> Result<f64> {
    let mut data = Vec::new();
    visit(top, &mut |entry| {
        data.clear();
        File::open(entry.path())?.read_to_end(&mut data)?;
        Ok(())
    })
}

/// Lists every directory and stats every entry, as `ls -lR` does.
pub fn stat(top: &Path) -> Result<f64> {
    visit(top, &mut |entry| entry.metadata().map(drop))
}

fn visit(dir: &Path, each: &mut dyn FnMut(&std::fs::DirEntry) -> Result<()>) -> Result<f64> {
    let mut count = 0.0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            count += visit(&entry.path(), each)?;
        } else {
            each(&entry)?;
            count += 1.0;
        }
    }
    Ok(count)
}
