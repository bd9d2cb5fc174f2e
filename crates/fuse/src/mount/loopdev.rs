//! A loop device over a few kilobytes of memory, which vanishes when its last user lets go.
//!
//! It only exists because Linux forwards sync(2) to FUSE file systems on block devices alone. Nothing reads or writes it.

use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Size of the backing file: a few blocks of 4096 bytes.
const SIZE: u64 = 64 << 10;

/// Attempts at free devices that others take first.
const ATTEMPTS: usize = 64;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// struct loop_info64 of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// struct loop_config of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A configured loop device; clears itself once this and all mounts of it are gone.
pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    _held: OwnedFd,
}

/// Sets up a fresh device. `label` is shown as its backing file by `losetup`.
pub(super) fn attach(label: &str) -> io::Result<LoopDevice> {
    let backing = backing_file(label)?;
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..ATTEMPTS {
        // SAFETY: takes no argument; returns a number or -1.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::options().read(true).write(true).open(&path)?;
        match configure(&device, &backing, label) {
            Ok(()) => return Ok(LoopDevice { path, _held: device.into() }),
            // Somebody else took it in between.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => continue,
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

fn backing_file(label: &str) -> io::Result<OwnedFd> {
    let name: String = label.chars().filter(|c| *c != '\0').take(60).collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&fd, SIZE)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

fn configure(device: &File, backing: &OwnedFd, label: &str) -> io::Result<()> {
    let mut file_name = [0u8; 64];
    let shown = label.as_bytes();
    let len = shown.len().min(file_name.len() - 1);
    file_name[..len].copy_from_slice(&shown[..len]);
    let config = LoopConfig {
        fd: backing.as_raw_fd() as u32,
        block_size: 4096,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR,
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    const { assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304) };
    // SAFETY: LOOP_CONFIGURE reads one struct loop_config, whose layout LoopConfig has.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
