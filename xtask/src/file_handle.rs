//! File handles, as an NFS server uses them: what name_to_handle_at(2) gives, open_by_handle_at(2) opens.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Of the kernel, `MAX_HANDLE_SZ`.
const MOST: usize = 128;

/// As `struct file_handle`, with room for any.
#[repr(C)]
#[derive(Clone)]
pub struct FileHandle {
    length: u32,
    kind: i32,
    pub bytes: [u8; MOST],
}

impl FileHandle {
    /// The handle of a path, whose last symlink is not followed.
    pub fn of(path: &Path) -> io::Result<FileHandle> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut handle = FileHandle { length: MOST as u32, kind: 0, bytes: [0; MOST] };
        let mut mount = 0;
        let out = (&raw mut handle).cast::<libc::file_handle>();
        // SAFETY: `handle` is laid out as `struct file_handle` with `length` bytes behind it, and lives on.
        let done = unsafe {
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), out, &raw mut mount, 0)
        };
        if done == 0 { Ok(handle) } else { Err(io::Error::last_os_error()) }
    }

    /// Opens the file for reading; `mount`: anything open on its file system.
    pub fn open(&self, mount: &File) -> io::Result<File> {
        let mut handle = self.clone();
        let handle = (&raw mut handle).cast::<libc::file_handle>();
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: as above.
        let opened = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), handle, flags) };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(unsafe { File::from_raw_fd(opened) })
    }
}
