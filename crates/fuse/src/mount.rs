//! Attaching a file system to the tree, and taking it away again.
//!
//! As root by mount(2) (`direct`), else through the set-uid helper (`fusermount`). What is mounted is known by mount
//! point and device number, so that nobody else's mount is taken away by mistake.

mod direct;
mod fusermount;
mod loopdev;
mod table;

use crate::transport::IoUring;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use table::{
    MountEntry, MountState, PROBE_TIMEOUT, abort, detach_dead, inspect, mount_table, mounted,
};

/// How access times are kept, as far as the kernel tells the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    #[default]
    Relatime,
    Noatime,
    Strictatime,
}

/// What to mount and how.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// First column of `mount`; with `forward_sync` the loop device's name stands there instead.
    pub source: String,
    /// The mount's type becomes `fuse.<subtype>` (or `fuseblk.<subtype>`); letters and digits.
    pub subtype: String,
    /// Let users other than the one who mounts use it.
    pub allow_other: bool,
    /// Let the kernel check permission bits.
    pub default_permissions: bool,
    pub read_only: bool,
    pub nosuid: bool,
    pub nodev: bool,
    pub noexec: bool,
    pub atime: Atime,
    pub sync: bool,
    pub dirsync: bool,
    /// Mount over a directory that is not empty or already a mount point.
    pub allow_nonempty: bool,
    /// Have sync(2) and syncfs(2) reach the file system, and umount(2) wait for `destroy`. Linux only does so for block
    /// devices, so this mounts a small loop device; root only. See [`Mount::forward_sync`].
    pub forward_sync: bool,
    /// How requests come; part of the mount because the kernel makes its offer when it mounts.
    pub io_uring: IoUring,
}

/// Why something could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(
        "no /dev/fuse: the kernel's fuse module is not there, or this container may not use it ({0})"
    )]
    NoDevice(#[source] io::Error),
    #[error("fusermount3 is not installed (package fuse3); without it only root can mount")]
    NoFusermount,
    #[error("fusermount3: {0}")]
    Fusermount(String),
    #[error("mount point {0} does not exist")]
    NoMountPoint(PathBuf),
    #[error("mount point {0} is not a directory")]
    NotADirectory(PathBuf),
    #[error("mount point {0} is not empty")]
    NotEmpty(PathBuf),
    #[error("something is already mounted on {0}")]
    AlreadyMounted(PathBuf),
    #[error("a dead mount lies on {0}; unmount it first")]
    DeadMount(PathBuf),
    #[error("{0} is in use")]
    Busy(PathBuf),
    #[error("{1} {0}: {2}")]
    Os(PathBuf, &'static str, #[source] io::Error),
}

/// A file system in the tree, not yet served. Dropped without a session, it is taken away again.
pub struct Mount {
    device: Option<OwnedFd>,
    mounted: Mounted,
    attached: AtomicBool,
    loop_device: Option<PathBuf>,
    refused: Option<String>,
    io_uring: IoUring,
}

impl Mount {
    /// Mounts on `mountpoint`, which must be an empty directory (but see `allow_nonempty`).
    pub fn new(mountpoint: &Path, options: &MountOptions) -> Result<Mount, MountError> {
        let mountpoint = check_mountpoint(mountpoint, options.allow_nonempty)?;
        options.io_uring.prepare();
        let mut refused = None;
        if options.forward_sync {
            match direct::mount_block(&mountpoint, options) {
                Ok((device, path)) => {
                    return Mount::found(device, mountpoint, Some(path), None, options.io_uring);
                }
                Err(MountError::NoDevice(e)) => return Err(MountError::NoDevice(e)),
                Err(e) => {
                    tracing::warn!("sync(2) will not reach the file system: {e}");
                    refused = Some(e.to_string());
                }
            }
        }
        let direct = match rustix::process::geteuid().is_root() {
            true => direct::mount(&mountpoint, options),
            false => Err(rustix::io::Errno::PERM.into()),
        };
        let device = match direct {
            Ok(device) => device,
            Err(direct::Failed::Errno(e)) if e.raw_os_error() == Some(libc::EPERM) => {
                fusermount::mount(&mountpoint, options)?
            }
            Err(direct::Failed::Errno(e)) => {
                return Err(MountError::Os(mountpoint, "cannot mount on", e));
            }
            Err(direct::Failed::Device(e)) => return Err(MountError::NoDevice(e)),
        };
        Mount::found(device, mountpoint, None, refused, options.io_uring)
    }

    fn found(
        device: OwnedFd,
        mountpoint: PathBuf,
        loop_device: Option<PathBuf>,
        refused: Option<String>,
        io_uring: IoUring,
    ) -> Result<Mount, MountError> {
        let entry = table::top(&mountpoint)
            .and_then(|entry| entry.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|e| {
                // Best effort: what cannot be identified cannot be kept either.
                let _ = unmount(&mountpoint, true);
                MountError::Os(mountpoint.clone(), "cannot find the new mount on", e)
            })?;
        let mounted = Mounted { mountpoint, major: entry.major, minor: entry.minor };
        let attached = AtomicBool::new(true);
        Ok(Mount { device: Some(device), mounted, attached, loop_device, refused, io_uring })
    }

    /// Does sync(2) reach the file system? Only if it was asked for and the loop device could be had.
    pub fn forward_sync(&self) -> bool {
        self.loop_device.is_some()
    }

    /// Why `forward_sync` was asked for in vain.
    pub fn forward_sync_refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The loop device under a `forward_sync` mount (its source in the mount table). It vanishes with the mount.
    pub fn loop_device(&self) -> Option<&Path> {
        self.loop_device.as_deref()
    }

    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    pub(crate) fn io_uring(&self) -> IoUring {
        self.io_uring
    }

    pub(crate) fn take_device(&mut self) -> Option<OwnedFd> {
        self.device.take()
    }

    /// The kernel said that it is unmounted: leave whatever lies on the mount point now alone.
    pub(crate) fn forget(&self) {
        self.attached.store(false, Ordering::Release);
    }

    /// Lifts the kernel's default of 128 KiB; silently does nothing where that is not allowed.
    pub(crate) fn raise_readahead(&self, bytes: u32) {
        let suffix = if self.forward_sync() { "-fuseblk" } else { "" };
        let Mounted { major, minor, .. } = self.mounted;
        let path = format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb");
        if let Err(e) = std::fs::write(&path, (bytes / 1024).to_string()) {
            tracing::debug!("{path}: {e}");
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The device first: without a reader the kernel must not wait for one while it unmounts.
        self.device = None;
        if *self.attached.get_mut()
            && let Err(e) = self.mounted.unmount(true)
        {
            tracing::warn!("{e}");
        }
    }
}

/// Identity of a mount: where, and its device number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    mountpoint: PathBuf,
    major: u32,
    minor: u32,
}

impl Mounted {
    /// The absolute mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Device number (major, minor) of the mount, as in st_dev.
    pub fn device_number(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Unmounts this mount, if it is still the uppermost one there.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        let top = table::top(&self.mountpoint).map_err(|e| {
            MountError::Os(self.mountpoint.clone(), "cannot read the mount table for", e)
        })?;
        match top {
            Some(entry) if (entry.major, entry.minor) == (self.major, self.minor) => {
                unmount(&self.mountpoint, lazy)
            }
            _ => Ok(()),
        }
    }
}

/// Unmounts whatever FUSE mount lies uppermost on an absolute path, as root or through fusermount3.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    match direct::unmount(mountpoint, lazy) {
        Ok(()) => Ok(()),
        Err(e) => match e.raw_os_error() {
            Some(libc::EPERM) => fusermount::unmount(mountpoint, lazy),
            Some(libc::EBUSY) => Err(MountError::Busy(mountpoint.into())),
            _ => Err(MountError::Os(mountpoint.into(), "cannot unmount", e)),
        },
    }
}

/// The absolute path of a usable mount point.
fn check_mountpoint(path: &Path, allow_nonempty: bool) -> Result<PathBuf, MountError> {
    let os = |e| MountError::Os(path.into(), "cannot use mount point", e);
    let absolute = match table::absolute(path) {
        Ok(absolute) => absolute,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::NoMountPoint(path.into()));
        }
        Err(e) => return Err(os(e)),
    };
    match std::fs::metadata(&absolute) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(MountError::NotADirectory(absolute)),
        Err(e) => {
            return Err(match e.raw_os_error() {
                Some(libc::ENOENT) => MountError::NoMountPoint(absolute),
                Some(libc::ENOTCONN) => MountError::DeadMount(absolute),
                _ => os(e),
            });
        }
    }
    if !allow_nonempty {
        if table::top(&absolute).map_err(os)?.is_some() {
            return Err(match inspect(&absolute).map_err(os)? {
                MountState::Dead(_) => MountError::DeadMount(absolute),
                _ => MountError::AlreadyMounted(absolute),
            });
        }
        if std::fs::read_dir(&absolute).map_err(os)?.next().is_some() {
            return Err(MountError::NotEmpty(absolute));
        }
    }
    Ok(absolute)
}

/// A value of a comma-separated option list as the helper wants it.
fn escaped(value: &OsStr) -> String {
    value.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,")
}
