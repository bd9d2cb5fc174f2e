//! The label: which file system a target belongs to and which of its OSTs it is.
//!
//! Written once, at format; the byte map is in `docs/format.d/oss.md`.

use std::path::Path;

use proto::wire::{Dec, DecodeError, Enc};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::OstError;
use crate::boot::Boot;
use crate::files::{Dir, OBJECTS};
use crate::name::BUCKETS;

/// Version of the label this program writes; newer ones are refused.
pub const LABEL_VERSION: u32 = 1;
/// First bytes of a label.
pub(crate) const LABEL_MAGIC: [u8; 8] = *b"PSTOST\0\0";
/// The label's file.
pub(crate) const LABEL: &str = "label";
/// Longest label or boot record read, in bytes.
pub(crate) const RECORD_MAX: usize = 4096;

/// Who a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OstLabel {
    /// File system it belongs to.
    pub fs: [u8; 16],
    /// Name of the file system, at most 255 bytes.
    pub fs_name: String,
    /// Index among the file system's OSTs.
    pub index: u32,
    /// Identity of the target itself.
    pub uuid: [u8; 16],
}

/// Why bytes are no label (or boot record).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Something else.
    #[error("this is no {0} of an OST")]
    Magic(&'static str),
    /// Written by a newer program.
    #[error("its format version is {found}, this program knows up to {known}; use a newer one")]
    Newer {
        /// In the file.
        found: u32,
        /// Highest known.
        known: u32,
    },
    /// The checksum differs.
    #[error("it is damaged: checksum {found:#010x} differs from the computed {computed:#010x}")]
    Checksum {
        /// In the file.
        found: u32,
        /// From the bytes.
        computed: u32,
    },
    /// Fields that make no sense.
    #[error("it is damaged: {0}")]
    Fields(#[from] DecodeError),
}

/// Puts magic and version before a record and its crc32c after it.
pub(crate) fn seal(magic: [u8; 8], version: u32, fields: impl FnOnce(&mut Enc)) -> Vec<u8> {
    let mut e = Enc::new();
    e.put(&magic).put(&version);
    fields(&mut e);
    let crc = crc32c::crc32c(&e.0);
    e.put(&crc);
    e.0
}

/// Checks what [`seal`] put; the fields between.
pub(crate) fn unseal<'a>(
    bytes: &'a [u8],
    what: &'static str,
    magic: [u8; 8],
    known: u32,
) -> Result<Dec<'a>, LabelError> {
    let mut d = Dec::new(bytes);
    if d.get::<[u8; 8]>().ok() != Some(magic) {
        return Err(LabelError::Magic(what));
    }
    let found: u32 = d.get()?;
    if found > known {
        return Err(LabelError::Newer { found, known });
    }
    let body = d.take(d.left().saturating_sub(4), what)?;
    let found: u32 = d.get()?;
    let computed = crc32c::crc32c(&bytes[..bytes.len() - 4]);
    if found != computed {
        return Err(LabelError::Checksum { found, computed });
    }
    Ok(Dec::new(body))
}

impl OstLabel {
    /// The target's name: `OST0003`.
    pub fn name(&self) -> String {
        proto::mgs::target_name(proto::mgs::KIND_OST, self.index)
    }

    /// As it lies on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(LABEL_MAGIC, LABEL_VERSION, |e| {
            e.put(&self.fs).put(&self.index).put(&self.uuid).put(&self.fs_name);
        })
    }

    /// Reads what [`OstLabel::to_bytes`] made; total for any bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<OstLabel, LabelError> {
        let mut d = unseal(bytes, "label", LABEL_MAGIC, LABEL_VERSION)?;
        let label = OstLabel { fs: d.get()?, index: d.get()?, uuid: d.get()?, fs_name: d.get()? };
        d.end()?;
        Ok(label)
    }

    pub(crate) fn read(dir: &Dir, path: &Path) -> Result<OstLabel, OstError> {
        let file = path.join(LABEL);
        match dir.read(LABEL, RECORD_MAX) {
            Ok(bytes) => {
                OstLabel::from_bytes(&bytes).map_err(|why| OstError::Label { path: file, why })
            }
            Err(Errno::NOENT) => Err(OstError::Refused(unlabelled(path))),
            Err(e) => Err(OstError::io(format!("reading {}", file.display()))(e)),
        }
    }
}

/// Why a directory without a label cannot be served. Who formatted one that holds objects would lose them.
fn unlabelled(path: &Path) -> String {
    let held = std::fs::read_dir(path).into_iter().flatten().flatten();
    let held = held.map(|e| e.file_name()).find(|name| name != "lost+found");
    let path = path.display();
    match held {
        None => format!("{path} is not an OST: it has no label (format it first)"),
        Some(held) => format!(
            "{path} is not an OST: it has no label, but holds '{}'; if it was one, bring {path}/{LABEL} back from a \
             copy of it; if not, give another directory",
            held.display()
        ),
    }
}

/// Prepares `path` (made when absent) as an OST; refuses a directory that holds anything.
pub(crate) fn format(path: &Path, label: &OstLabel) -> Result<(), OstError> {
    if label.fs_name.len() > 255 {
        return Err(OstError::Refused("the file system's name is longer than 255 bytes".into()));
    }
    std::fs::create_dir_all(path)
        .map_err(|error| OstError::Io { what: format!("making {}", path.display()), error })?;
    let fail = |e| OstError::io(format!("formatting {}", path.display()))(e);
    let dir = Dir::open(path).map_err(fail)?;
    refuse_used(&dir, path)?;
    make_buckets(&dir).map_err(fail)?;
    let boot = Boot::first();
    dir.replace(crate::boot::BOOT, &boot.to_bytes()).map_err(fail)?;
    // The label comes last: a directory without one is no target.
    dir.replace(LABEL, &label.to_bytes()).map_err(fail)
}

/// Lets pass an empty directory, the root of a fresh ext4, and what a format that was cut short
/// left behind (hash directories without an object in them).
pub(crate) fn refuse_used(dir: &Dir, path: &Path) -> Result<(), OstError> {
    let fail = |e| OstError::io(format!("reading {}", path.display()))(e);
    let shown = path.display();
    for name in dir.names().map_err(fail)? {
        match name.to_str() {
            Some("lost+found" | "boot" | "boot.new" | "label.new") => {}
            Some(LABEL) => {
                return Err(OstError::Refused(match OstLabel::read(dir, path) {
                    Ok(l) => format!(
                        "{shown} is already {} of file system '{}'; remove it first if its data \
                         may be lost",
                        l.name(),
                        l.fs_name
                    ),
                    Err(e) => format!("{shown} holds a label already ({e})"),
                }));
            }
            Some(OBJECTS) if objects_empty(dir).map_err(fail)? => {}
            _ => {
                return Err(OstError::Refused(format!(
                    "{shown} is not empty (it holds '{}'); an OST is formatted only in an empty \
                     directory",
                    name.to_string_lossy()
                )));
            }
        }
    }
    Ok(())
}

fn objects_empty(dir: &Dir) -> Result<bool, Errno> {
    let objects = dir.sub(OBJECTS)?;
    for bucket in objects.names()? {
        let Some(name) = bucket.to_str() else { return Ok(false) };
        match objects.sub(name) {
            Ok(b) if b.names()?.is_empty() => {}
            Ok(_) | Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn make_buckets(dir: &Dir) -> Result<(), Errno> {
    use rustix::fs::{fsync, mkdirat};
    let make = |at: &Dir, name: &str| match mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e),
    };
    make(dir, OBJECTS)?;
    let objects = dir.sub(OBJECTS)?;
    for i in 0..BUCKETS {
        make(&objects, &format!("{i:02x}"))?;
    }
    for i in 0..BUCKETS {
        fsync(objects.sub(&format!("{i:02x}"))?)?;
    }
    fsync(&objects)?;
    fsync(dir)
}
