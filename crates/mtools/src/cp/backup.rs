//! Backups of what is overwritten: simple (`name~`) and numbered (`name.~3~`), as GNU makes them.

use crate::gnu::getopt::keyword;
use rustix::fs::{CWD, RenameFlags};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Tries for a number that nobody takes at the same time.
const TRIES: u32 = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    None,
    Simple,
    /// Numbered where numbered ones exist.
    Existing,
    Numbered,
}

static CONTROL: &[(&str, Kind)] = &[
    ("none", Kind::None),
    ("off", Kind::None),
    ("simple", Kind::Simple),
    ("never", Kind::Simple),
    ("existing", Kind::Existing),
    ("nil", Kind::Existing),
    ("numbered", Kind::Numbered),
    ("t", Kind::Numbered),
];

pub struct Backup {
    kind: Kind,
    suffix: OsString,
}

impl Backup {
    pub fn none() -> Self {
        Self { kind: Kind::None, suffix: "~".into() }
    }

    /// By `--backup=CONTROL` and `--suffix`, else the environment; an error is the message for a wrong
    /// control.
    pub fn asked(control: Option<&OsStr>, suffix: Option<&OsStr>) -> Result<Self, String> {
        let kind = match control {
            Some(control) if !control.is_empty() => keyword("backup type", control, CONTROL)?,
            _ => match std::env::var_os("VERSION_CONTROL") {
                Some(control) if !control.is_empty() => {
                    keyword("$VERSION_CONTROL", &control, CONTROL)?
                }
                _ => Kind::Existing,
            },
        };
        let suffix = suffix
            .map(OsStr::to_os_string)
            .or_else(|| std::env::var_os("SIMPLE_BACKUP_SUFFIX"))
            .filter(|s| !s.is_empty() && !s.as_bytes().contains(&b'/'))
            .unwrap_or_else(|| "~".into());
        Ok(Self { kind, suffix })
    }

    pub fn on(&self) -> bool {
        self.kind != Kind::None
    }

    /// No backup ever replaces another.
    pub fn numbered(&self) -> bool {
        self.kind == Kind::Numbered
    }

    /// A simple backup of a file named `dst` would be `src`'s own name.
    pub fn simple_name(&self, dst: &Path) -> PathBuf {
        let mut name = dst.as_os_str().as_bytes().to_vec();
        name.extend_from_slice(self.suffix.as_bytes());
        PathBuf::from(OsString::from_vec(name))
    }

    /// The name a backup of `dst` would get now.
    pub fn name(&self, dst: &Path) -> io::Result<PathBuf> {
        let highest = match self.kind {
            Kind::Simple | Kind::None => None,
            Kind::Existing => highest(dst)?,
            Kind::Numbered => Some(highest(dst)?.unwrap_or(0)),
        };
        Ok(match highest {
            None => self.simple_name(dst),
            Some(n) => numbered(dst, n + 1),
        })
    }

    /// Moves `dst` to its backup; None where there is no such file any more.
    pub fn make(&self, dst: &Path) -> io::Result<Option<PathBuf>> {
        for _ in 0..TRIES {
            let name = self.name(dst)?;
            // A simple backup replaces the one before; a numbered one never does.
            let simple = name == self.simple_name(dst);
            let flags = if simple { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            match rustix::fs::renameat_with(CWD, dst, CWD, &name, flags) {
                Ok(()) => return Ok(Some(name)),
                Err(rustix::io::Errno::EXIST) if !simple => {}
                Err(rustix::io::Errno::INVAL) if !simple && !name.exists() => {
                    std::fs::rename(dst, &name)?;
                    return Ok(Some(name));
                }
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
        Err(rustix::io::Errno::EXIST.into())
    }
}

fn numbered(dst: &Path, n: u64) -> PathBuf {
    let mut name = dst.as_os_str().as_bytes().to_vec();
    name.extend_from_slice(format!(".~{n}~").as_bytes());
    PathBuf::from(OsString::from_vec(name))
}

/// The highest number among the backups of `dst`; None when there is none.
fn highest(dst: &Path) -> io::Result<Option<u64>> {
    let dir = match dst.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let Some(base) = dst.file_name() else { return Ok(None) };
    let mut found = None;
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name
            .as_bytes()
            .strip_prefix(base.as_bytes())
            .and_then(|rest| rest.strip_prefix(b".~"))
            .and_then(|rest| rest.strip_suffix(b"~"))
            .filter(|digits| {
                !digits.is_empty() && digits[0] != b'0' && digits.iter().all(u8::is_ascii_digit)
            })
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        found = found.max(number);
    }
    Ok(found)
}
