//! The kernel's mount table, and telling live mounts from dead ones.

use super::{MountError, unmount};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long a daemon may take to answer before its mount is called unresponsive.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Dead mounts taken off one mount point; more are left.
const STACKED_MAX: usize = 64;

/// One line of /proc/thread-self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    pub id: u32,
    pub major: u32,
    pub minor: u32,
    pub mountpoint: PathBuf,
    /// Such as `fuse.name` or `ext4`.
    pub fstype: String,
    pub source: OsString,
    /// Options of the file system (not those of the mount point), comma-separated.
    pub super_options: OsString,
}

impl MountEntry {
    pub fn is_fuse(&self) -> bool {
        let kind = self.fstype.split('.').next();
        matches!(kind, Some("fuse" | "fuseblk"))
    }

    /// Its name below /sys/fs/fuse/connections: the device's number as the kernel keeps it. A mount through a loop
    /// device has that one's major number, too.
    pub fn connection(&self) -> u64 {
        u64::from(self.major) << 20 | u64::from(self.minor)
    }

    /// The user whose process serves it, if it is FUSE.
    pub fn owner(&self) -> Option<u32> {
        let options = self.super_options.to_str()?;
        options.split(',').find_map(|o| o.strip_prefix("user_id=")?.parse().ok())
    }
}

/// What lies on a mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountState {
    /// Not a mount point.
    None,
    /// A mount that is not FUSE.
    Other(MountEntry),
    /// A FUSE mount whose daemon answers.
    Alive(MountEntry),
    /// A FUSE mount whose daemon is gone (ENOTCONN).
    Dead(MountEntry),
    /// A FUSE mount whose daemon is there but did not answer within [`PROBE_TIMEOUT`].
    Unresponsive(MountEntry),
}

/// All mounts the calling thread sees, in the order they were mounted.
pub fn mount_table() -> io::Result<Vec<MountEntry>> {
    // Not /proc/self: a thread may have a mount namespace of its own.
    let text = std::fs::read("/proc/thread-self/mountinfo")?;
    Ok(text.split(|&b| b == b'\n').filter_map(parse_line).collect())
}

/// The uppermost mount on an absolute path.
pub(super) fn top(mountpoint: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mount_table()?.into_iter().rfind(|entry| entry.mountpoint == mountpoint))
}

/// The uppermost mount on `path`. Asks nobody behind it.
pub fn mounted(path: &Path) -> io::Result<Option<MountEntry>> {
    top(&absolute(path)?)
}

/// Tells what is mounted on `path`, and whether it is alive.
pub fn inspect(path: &Path) -> io::Result<MountState> {
    let Some(entry) = mounted(path)? else { return Ok(MountState::None) };
    if !entry.is_fuse() {
        return Ok(MountState::Other(entry));
    }
    let mut answer = probe(entry.mountpoint.clone())?;
    for _ in 0..ENDING_TRIES {
        if !is_ending(answer.as_ref()) {
            break;
        }
        std::thread::sleep(ENDING_PAUSE);
        answer = probe(entry.mountpoint.clone())?;
    }
    Ok(match answer {
        Some(Ok(())) => MountState::Alive(entry),
        Some(Err(e)) if e.raw_os_error() == Some(libc::ENOTCONN) => MountState::Dead(entry),
        // Any other answer came from a daemon.
        Some(Err(_)) => MountState::Alive(entry),
        None => MountState::Unresponsive(entry),
    })
}

/// How often, and after what pause, is a mount asked again whose daemon is just ending.
const ENDING_TRIES: u32 = 100;
const ENDING_PAUSE: Duration = Duration::from_millis(20);

/// The kernel gave the request up because the daemon is on its way out: by the device it says ECONNABORTED, by io_uring
/// ECANCELED, and takes requests a moment longer.
fn is_ending(answer: Option<&io::Result<()>>) -> bool {
    let error = answer.and_then(|a| a.as_ref().err()).and_then(io::Error::raw_os_error);
    matches!(error, Some(libc::ECANCELED | libc::ECONNABORTED))
}

/// Takes dead FUSE mounts off `path`; true if there were any. Leaves live and other mounts alone.
pub fn detach_dead(path: &Path) -> Result<bool, MountError> {
    let os = |e| MountError::Os(path.into(), "cannot inspect", e);
    let mut found = false;
    for _ in 0..STACKED_MAX {
        match inspect(path) {
            Ok(MountState::Dead(entry)) => unmount(&entry.mountpoint, true)?,
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) => return Err(os(e)),
        }
        found = true;
    }
    Ok(found)
}

/// Ends the connection of a mount: all who wait for an answer get one, ECONNABORTED, and no other comes. For a
/// daemon that is killed and cannot end: a thread of it may wait in the kernel for a page that another, which
/// is gone, was to fill, and keeps the connection open meanwhile.
pub fn abort(entry: &MountEntry) -> Result<(), MountError> {
    let control = format!("/sys/fs/fuse/connections/{}/abort", entry.connection());
    if std::fs::write(control, b"1").is_ok() {
        return Ok(());
    }
    // Where that is not mounted root can tell the mount itself, which is busy and stays.
    match rustix::mount::unmount(&entry.mountpoint, UnmountFlags::FORCE) {
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(e) => Err(MountError::Os(entry.mountpoint.clone(), "cannot abort", e.into())),
    }
}

/// Asks the daemon for the root's attributes; None when it does not answer in time.
///
/// A plain stat would be answered from the kernel's cache even if the daemon is dead.
fn probe(mountpoint: PathBuf) -> io::Result<Option<io::Result<()>>> {
    let (tx, rx) = mpsc::sync_channel(1);
    let ask = move || {
        let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT;
        let answer = rustix::fs::statx(CWD, &mountpoint, flags, StatxFlags::MODE);
        // The receiver may have given up.
        let _ = tx.send(answer.map(|_| ()).map_err(io::Error::from));
    };
    std::thread::Builder::new().name("fuse-probe".into()).spawn(ask)?;
    Ok(rx.recv_timeout(PROBE_TIMEOUT).ok())
}

/// The absolute path without symbolic links; works on a dead mount point too.
pub(super) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => {}
        other => return other,
    }
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(absolute),
    }
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u32>().ok();
    let id = number(fields.next()?)?;
    let mut device = fields.nth(1)?.split(|&b| b == b':');
    let (major, minor) = (number(device.next()?)?, number(device.next()?)?);
    let mountpoint = PathBuf::from(unescape(fields.nth(1)?));
    fields.find(|field| *field == b"-")?;
    let fstype = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let super_options = unescape(fields.next()?);
    Some(MountEntry { id, major, minor, mountpoint, fstype, source, super_options })
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_understood() {
        let line = br"36 35 98:7 /sub /mnt/a\040b\134 rw,noatime shared:1 master:2 - fuse.x n:/d rw,user_id=0";
        let entry = parse_line(line).unwrap();
        assert_eq!((entry.id, entry.major, entry.minor), (36, 98, 7));
        assert_eq!(entry.connection(), 98 * 1_048_576 + 7);
        assert_eq!(entry.mountpoint, Path::new(r"/mnt/a b\"));
        assert_eq!((entry.fstype.as_str(), entry.is_fuse()), ("fuse.x", true));
        assert_eq!(entry.source, "n:/d");
        assert_eq!(entry.super_options, "rw,user_id=0");
        assert_eq!(entry.owner(), Some(0));
    }

    #[test]
    fn broken_lines_are_skipped() {
        for line in ["", "1", "1 2 3", "a b c:d / / rw - ext4 x y", "1 2 3:4 / /mnt rw"] {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(br"a\04"), r"a\04");
        assert_eq!(unescape(br"\777"), r"\777");
    }

    #[test]
    fn the_root_is_in_the_table() {
        assert!(top(Path::new("/")).unwrap().is_some());
        assert_eq!(inspect(Path::new("/proc/self")).ok(), Some(MountState::None));
    }
}
