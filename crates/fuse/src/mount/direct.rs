//! mount(2) and umount2(2), for root.

use super::loopdev;
use super::{Atime, MountError, MountOptions};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

pub(super) enum Failed {
    /// /dev/fuse cannot be opened.
    Device(io::Error),
    Errno(io::Error),
}

impl From<rustix::io::Errno> for Failed {
    fn from(e: rustix::io::Errno) -> Failed {
        Failed::Errno(e.into())
    }
}

/// An ordinary FUSE mount.
pub(super) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, Failed> {
    let device = open_device().map_err(Failed::Device)?;
    let data = data(&device, options, "");
    attach(options.source.as_ref(), mountpoint, "fuse", options, data)?;
    Ok(device)
}

/// A mount of type fuseblk on a fresh loop device; also returns the device's path.
pub(super) fn mount_block(
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, PathBuf), MountError> {
    let device = open_device().map_err(MountError::NoDevice)?;
    let label = if options.source.is_empty() { &options.subtype } else { &options.source };
    let block = loopdev::attach(label)
        .map_err(|e| MountError::Os(mountpoint.into(), "no loop device to mount on", e))?;
    let data = data(&device, options, ",blksize=4096");
    attach(&block.path, mountpoint, "fuseblk", options, data).map_err(|e| {
        MountError::Os(mountpoint.into(), "cannot mount a loop device on", e.into())
    })?;
    // The mount now holds the loop device, which clears itself when it is released.
    Ok((device, block.path))
}

pub(super) fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    Ok(rustix::mount::unmount(mountpoint, flags)?)
}

fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, "/dev/fuse", flags, Mode::empty())?)
}

fn data(device: &OwnedFd, options: &MountOptions, more: &str) -> String {
    let fd = device.as_raw_fd();
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid}");
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    data + more
}

fn attach(
    source: &Path,
    mountpoint: &Path,
    kind: &str,
    options: &MountOptions,
    data: String,
) -> rustix::io::Result<()> {
    let data = CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    let kind = match options.subtype.as_str() {
        "" => kind.to_owned(),
        subtype => format!("{kind}.{subtype}"),
    };
    rustix::mount::mount(source, mountpoint, kind, flags(options), &*data)
}

fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, options.nosuid);
    flags.set(MountFlags::NODEV, options.nodev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    flags
        | match options.atime {
            Atime::Relatime => MountFlags::RELATIME,
            Atime::Noatime => MountFlags::NOATIME,
            Atime::Strictatime => MountFlags::STRICTATIME,
        }
}
