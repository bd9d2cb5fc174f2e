//! The extended attributes a mount shows about its files.

use std::path::Path;

use proto::Errno;
use rustix::fs::XattrFlags;

/// Layout of a file or default of a directory, as bytes of `lov_user_md`.
pub const LOV: &str = "lustre.lov";
/// FID of a file, as text.
pub const FID: &str = "lustre.fid";
/// Longest value asked for, in bytes: 2,000 stripes fit.
const VALUE_MAX: usize = 65_536;

/// The value of an attribute; `ENODATA` when it has none, `EOPNOTSUPP` on other file systems.
pub fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; VALUE_MAX];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).map_err(errno)?;
    value.truncate(len);
    Ok(value)
}

/// Sets an attribute of an open file.
pub fn set_open(file: &std::fs::File, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()).map_err(errno)
}

/// Sets an attribute.
pub fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).map_err(errno)
}

/// Removes an attribute.
pub fn remove(path: &Path, name: &str) -> Result<(), Errno> {
    rustix::fs::removexattr(path, name).map_err(errno)
}

fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

/// The error's text as lfs prints it.
pub fn text(e: Errno) -> String {
    let text = std::io::Error::from(e).to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// The exit code of an errno.
pub fn code(e: Errno) -> u8 {
    u8::try_from(e.0).unwrap_or(1)
}
