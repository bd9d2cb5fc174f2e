//! The target's directory: opening what lies in it without ever following a symbolic link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Sub-directory that holds the objects.
pub(crate) const OBJECTS: &str = "objects";

/// An open directory under which every path is resolved.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    /// The kernel (or a sandbox) has no `openat2`.
    plain: AtomicBool,
}

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Dir {
    /// Opens a directory the user named.
    pub(crate) fn open(path: &Path) -> Result<Dir, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty())?;
        Ok(Dir { fd, plain: AtomicBool::new(false) })
    }

    /// Opens a directory below this one.
    pub(crate) fn sub(&self, path: &str) -> Result<Dir, Errno> {
        let fd = self.file(path, OFlags::DIRECTORY | OFlags::RDONLY)?;
        Ok(Dir { fd, plain: AtomicBool::new(self.plain.load(Relaxed)) })
    }

    /// Opens (with `CREATE`: makes) a file below this directory; symbolic links are refused.
    pub(crate) fn file(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = if flags.contains(OFlags::CREATE) { FILE_MODE } else { Mode::empty() };
        if !self.plain.load(Relaxed) {
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
            match fs::openat2(&self.fd, path, flags, mode, resolve) {
                Err(Errno::NOSYS | Errno::PERM) => self.plain.store(true, Relaxed),
                other => return other,
            }
        }
        fs::openat(&self.fd, path, flags, mode)
    }

    /// Reads a whole small file; more than `limit` bytes are cut off.
    pub(crate) fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Errno> {
        let fd = self.file(path, OFlags::RDONLY)?;
        let mut bytes = vec![0; limit];
        let n = crate::io::read_at(fd.as_fd(), &mut bytes, 0)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Replaces a small file so that after any crash the old or the new one is there, and the new
    /// one once this returns.
    pub(crate) fn replace(&self, path: &str, bytes: &[u8]) -> Result<(), Errno> {
        let new = format!("{path}.new");
        let fd = self.file(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        crate::io::write_at(fd.as_fd(), bytes, 0)?;
        fs::fsync(&fd)?;
        fs::renameat(&self.fd, new.as_str(), &self.fd, path)?;
        fs::fsync(&self.fd)
    }

    /// Removes a file; one that is absent is no error. Whether it was there.
    pub(crate) fn remove(&self, path: &str) -> Result<bool, Errno> {
        match fs::unlinkat(&self.fd, path, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Attributes of an entry, of a link itself.
    pub(crate) fn stat(&self, path: &str) -> Result<fs::Stat, Errno> {
        fs::statat(&self.fd, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Names in this directory, sorted, without `.` and `..`.
    pub(crate) fn names(&self) -> Result<Vec<std::ffi::OsString>, Errno> {
        use std::os::unix::ffi::OsStrExt;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(std::ffi::OsStr::from_bytes(name).to_os_string());
            }
        }
        names.sort();
        Ok(names)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
