//! The journal: every change the mirror made, in order, with the sync barriers.
//!
//! On disk: 12 bytes (magic, version), then records: length and CRC-32C of the entry (4 bytes each,
//! little-endian), the entry in postcard, and for writes the data. A torn tail is ignored.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const JOURNAL_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"PSFORGET";
/// Longest entry a reader accepts, without its data.
const MAX_ENTRY: u32 = 1 << 20;

/// A change or a barrier. `id` numbers never name two files; 1 is the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A new inode with its first name; `mode` includes the type, `target` is a symlink's.
    Create {
        parent: u64,
        name: Vec<u8>,
        id: u64,
        mode: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        target: Vec<u8>,
    },
    Link {
        id: u64,
        parent: u64,
        name: Vec<u8>,
    },
    Unlink {
        parent: u64,
        name: Vec<u8>,
    },
    Rename {
        parent: u64,
        name: Vec<u8>,
        new_parent: u64,
        new_name: Vec<u8>,
        exchange: bool,
    },
    /// `durable`: written through O_SYNC or O_DSYNC.
    Write {
        id: u64,
        off: u64,
        len: u32,
        durable: bool,
    },
    Truncate {
        id: u64,
        size: u64,
    },
    Allocate {
        id: u64,
        mode: i32,
        off: u64,
        len: u64,
    },
    Attr {
        id: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    SetXattr {
        id: u64,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveXattr {
        id: u64,
        name: Vec<u8>,
    },
    Sync {
        id: u64,
        data_only: bool,
    },
    SyncDir {
        id: u64,
    },
    /// All of the disk, as found when the mirror started.
    SyncAll,
}

impl Entry {
    /// True if it makes earlier metadata changes durable.
    pub fn is_barrier(&self) -> bool {
        matches!(
            self,
            Entry::Sync { .. }
                | Entry::SyncDir { .. }
                | Entry::SyncAll
                | Entry::Write { durable: true, .. }
        )
    }

    fn data_len(&self) -> u64 {
        match self {
            Entry::Write { len, .. } => u64::from(*len),
            _ => 0,
        }
    }
}

/// Appends to a journal.
pub struct Recorder {
    file: File,
    seq: Option<File>,
    count: u64,
}

impl Recorder {
    /// Starts a new journal; the file must not exist.
    pub fn create(path: &Path, seq_file: Option<&Path>) -> io::Result<Recorder> {
        let mut file = File::options().append(true).create_new(true).open(path)?;
        file.write_all(&MAGIC)?;
        file.write_all(&JOURNAL_VERSION.to_le_bytes())?;
        let seq = seq_file.map(File::create).transpose()?;
        let recorder = Recorder { file, seq, count: 0 };
        recorder.show_count()?;
        Ok(recorder)
    }

    /// Appends an entry; `data` belongs to a write and is empty otherwise.
    pub fn add(&mut self, entry: &Entry, data: &[u8]) -> io::Result<()> {
        let meta = postcard::to_stdvec(entry).map_err(io::Error::other)?;
        let mut record = Vec::with_capacity(8 + meta.len() + data.len());
        record.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        record.extend_from_slice(&crc32c::crc32c(&meta).to_le_bytes());
        record.extend_from_slice(&meta);
        record.extend_from_slice(data);
        self.file.write_all(&record)?;
        self.count += 1;
        self.show_count()
    }

    fn show_count(&self) -> io::Result<()> {
        match &self.seq {
            Some(file) => file.write_all_at(&self.count.to_le_bytes(), 0),
            None => Ok(()),
        }
    }
}

/// A journal read back: the entries, and where the data of each lies in the file.
pub struct Journal {
    pub entries: Vec<Entry>,
    offsets: Vec<u64>,
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Reads a journal up to its last whole record.
    pub fn read(path: &Path) -> io::Result<Journal> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        let mut input = BufReader::new(file.try_clone()?);
        let mut head = [0; 12];
        input.read_exact(&mut head).map_err(|_| bad(path, "too short"))?;
        if head[..8] != MAGIC {
            return Err(bad(path, "not a journal"));
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if version != JOURNAL_VERSION {
            return Err(bad(path, &format!("version {version}, this reads {JOURNAL_VERSION}")));
        }
        let (mut entries, mut offsets, mut at) = (Vec::new(), Vec::new(), 12);
        while let Some((entry, len)) = next(&mut input, total - at)? {
            let data = entry.data_len();
            offsets.push(at + len - data);
            entries.push(entry);
            at += len;
            input.seek_relative(data as i64)?;
        }
        Ok(Journal { entries, offsets, file, path: path.into() })
    }

    /// The data of a write.
    pub fn data(&self, index: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; self.entries[index].data_len() as usize];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.offsets[index]))
            .and_then(|_| file.read_exact(&mut data))
            .map_err(|e| bad(&self.path, &format!("entry {index}: {e}")))?;
        Ok(data)
    }

    /// Operation counts right after each barrier.
    pub fn barriers(&self) -> Vec<u64> {
        let after = |(n, e): (usize, &Entry)| e.is_barrier().then_some(n as u64 + 1);
        self.entries.iter().enumerate().filter_map(after).collect()
    }
}

fn bad(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

/// The next whole record: its entry and its full length, data included. None at a torn tail.
fn next(input: &mut impl Read, left: u64) -> io::Result<Option<(Entry, u64)>> {
    if left < 8 {
        return Ok(None);
    }
    let mut head = [0; 8];
    input.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if len > MAX_ENTRY || u64::from(len) > left - 8 {
        return Ok(None);
    }
    let mut meta = vec![0; len as usize];
    input.read_exact(&mut meta)?;
    if crc32c::crc32c(&meta) != crc {
        return Ok(None);
    }
    let Ok(entry) = postcard::from_bytes::<Entry>(&meta) else { return Ok(None) };
    let full = 8 + u64::from(len) + entry.data_len();
    Ok((full <= left).then_some((entry, full)))
}
