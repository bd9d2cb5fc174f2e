//! Blocks of one file, of which each mount writes its own: what of them waits on a mount is there for who looks.

use crate::fs::same;
use anyhow::{Result, ensure};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Rounds until all mounts are taken to go on as they began, and rounds that are counted.
const FIRST: usize = 60;
const COUNTED: usize = 100;

/// The file, as it must be.
struct Strided<'a> {
    files: Vec<File>,
    reader: &'a Path,
    name: String,
    len: usize,
    bytes: Vec<u8>,
    round: usize,
}

impl Strided<'_> {
    fn put(&mut self, by: usize, at: usize, value: u8) -> Result<()> {
        let data = vec![value; self.len];
        self.bytes.resize(self.bytes.len().max(at + self.len), 0);
        self.bytes[at..at + self.len].copy_from_slice(&data);
        Ok(self.files[by].write_all_at(&data, at as u64)?)
    }

    /// Each mount writes its next blocks.
    fn rounds(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            for by in 0..self.files.len() {
                let block = self.round * self.files.len() + by;
                self.put(by, block * self.len, (block % 251) as u8 + 1)?;
            }
            self.round += 1;
        }
        Ok(())
    }

    fn compare(&self) -> Result<()> {
        let path = self.reader.join(&self.name);
        ensure!(path.metadata()?.size() == self.bytes.len() as u64, "another size");
        same("what all wrote", &std::fs::read(path)?, &self.bytes)
    }
}

/// `sent` counts the writes a mount has sent. None of the mounts has the file open to read.
pub fn written(
    mounts: &[&Path],
    reader: &Path,
    len: usize,
    sent: impl Fn(&Path) -> Result<u64>,
) -> Result<()> {
    let name = format!("strided-{len}");
    File::create(mounts[0].join(&name))?;
    let open = |mnt: &&Path| File::options().write(true).open(mnt.join(&name));
    let files = mounts.iter().map(open).collect::<std::io::Result<Vec<File>>>()?;
    let mut file = Strided { files, reader, name: name.clone(), len, bytes: vec![], round: 0 };
    file.rounds(FIRST)?;
    let all = || mounts.iter().map(|mnt| sent(mnt)).sum::<Result<u64>>();
    let before = all()?;
    file.rounds(COUNTED)?;
    file.files.iter().try_for_each(File::sync_all)?;
    let (messages, blocks) = (all()? - before, COUNTED * mounts.len());
    ensure!(messages < blocks as u64 / 2, "{messages} messages for {blocks} blocks");
    file.compare()?;
    file.rounds(FIRST)?;
    file.compare()?;
    file.rounds(FIRST)?;
    // Where another mount wrote, and what is written there waits.
    let at = (file.round - 1) * mounts.len() * len;
    file.put(1, at, 0)?;
    file.compare()?;
    file.rounds(1)?;
    drop(std::mem::take(&mut file.files));
    file.compare()
}
