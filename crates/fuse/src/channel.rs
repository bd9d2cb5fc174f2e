//! One descriptor of the FUSE device: requests come in by read(2), answers go out by writev(2).
//!
//! An answer must go the way its request came, so a [`Responder`] keeps its channel, or its entry of the ring, alive.

use crate::abi;
use crate::buf::{AlignedBuf, Pool};
use crate::interrupt::Interrupts;
use crate::ring::Entry;
use crate::types::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Most slices of one answer, header included; more are copied together.
const IOV_MAX: usize = 64;

/// What all channels of a session share.
pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    pub(crate) interrupts: Arc<Interrupts>,
}

pub(crate) struct Channel {
    fd: OwnedFd,
    pub(crate) shared: Arc<Shared>,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd, shared: Arc<Shared>) -> Channel {
        Channel { fd, shared }
    }

    /// Another descriptor of the same connection, with a queue of its own; a mere duplicate where the kernel refuses.
    pub(crate) fn cloned(&self) -> io::Result<Channel> {
        let fd = match clone_device(&self.fd) {
            Ok(fd) => fd,
            Err(_) => self.fd.try_clone()?,
        };
        Ok(Channel::new(fd, self.shared.clone()))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }

    /// Reads one request; returns its length. ENODEV means that the file system is unmounted.
    pub(crate) fn receive(&self, buf: &mut AlignedBuf) -> io::Result<usize> {
        let area = buf.read_area();
        // SAFETY: the area is valid for writes of its length for the duration of the call.
        let n = unsafe { libc::read(self.raw_fd(), area.as_mut_ptr().cast(), area.len()) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    /// Is a request waiting to be read?
    pub(crate) fn pending(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, and no waiting.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        ready == 1 && poll.revents & libc::POLLIN != 0
    }

    /// Writes one message: an answer, or a notification when unique is 0.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let len = size_of::<abi::OutHeader>() + parts.iter().map(|p| p.len()).sum::<usize>();
        let Ok(len32) = u32::try_from(len) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let head = abi::OutHeader { len: len32, error, unique };
        let joined;
        let mut iov = [IoSlice::new(&[]); IOV_MAX];
        iov[0] = IoSlice::new(head.as_bytes());
        let used = if parts.len() < IOV_MAX {
            for (slot, part) in iov[1..].iter_mut().zip(parts) {
                *slot = IoSlice::new(part);
            }
            1 + parts.len()
        } else {
            joined = parts.concat();
            iov[1] = IoSlice::new(&joined);
            2
        };
        // SAFETY: IoSlice is layout-compatible with iovec, and the slices outlive the call.
        let n = unsafe { libc::writev(self.raw_fd(), iov.as_ptr().cast(), used as libc::c_int) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// FUSE_DEV_IOC_CLONE, _IOR(229, 0, u32).
const IOC_CLONE: libc::c_ulong = 0x8004_e500;

fn clone_device(fd: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: a constant C string.
    let new = unsafe { libc::open(c"/dev/fuse".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    let new = unsafe { OwnedFd::from_raw_fd(new) };
    let source = fd.as_raw_fd() as u32;
    // SAFETY: the ioctl reads one u32.
    let rc = unsafe { libc::ioctl(new.as_raw_fd(), IOC_CLONE, &source) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(new) }
}

/// The way requests come and answers go.
#[derive(Clone)]
pub(crate) enum Link {
    Device(Arc<Channel>),
    /// This entry carries one request at a time.
    Ring(Arc<Entry>),
}

impl Link {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        match self {
            Link::Device(channel) => &channel.shared,
            Link::Ring(entry) => entry.shared(),
        }
    }
}

/// Where the answer to one request goes.
pub(crate) struct Responder {
    pub(crate) link: Link,
    pub(crate) unique: u64,
    /// Most bytes of payload the kernel takes.
    pub(crate) limit: u32,
    /// A number is answered as 32 bits (copy_file_range before 7.45).
    pub(crate) narrow: bool,
}

impl Responder {
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.link.shared().pool
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.link.shared().interrupts.is_interrupted(self.unique)
    }

    pub(crate) fn on_interrupt(&self, hook: Box<dyn FnOnce() + Send>) -> bool {
        self.link.shared().interrupts.register(self.unique, hook)
    }

    /// As the other answers: false if the kernel gave the request up.
    pub(crate) fn error(self, errno: Errno) -> bool {
        self.finish(-errno.get(), &[])
    }

    pub(crate) fn parts(self, parts: &[&[u8]]) -> bool {
        self.finish(0, parts)
    }

    /// A position or a count.
    pub(crate) fn number(self, value: u64) -> bool {
        if self.narrow {
            let size = u32::try_from(value).unwrap_or(u32::MAX);
            self.finish(0, &[abi::WriteOut { size, padding: 0 }.as_bytes()])
        } else {
            self.finish(0, &[value.as_bytes()])
        }
    }

    fn finish(self, error: i32, parts: &[&[u8]]) -> bool {
        self.link.shared().interrupts.done(self.unique);
        let channel = match &self.link {
            Link::Device(channel) => channel,
            Link::Ring(entry) => return Entry::answer(entry, self.unique, error, parts),
        };
        match channel.send(self.unique, error, parts) {
            Ok(()) => true,
            // ENOENT: the kernel gave the request up; ENODEV: unmounted.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => false,
            Err(e) => {
                tracing::warn!(unique = self.unique, "answer refused by the kernel: {e}");
                // The kernel still waits unless it took the request off its list.
                let _ = channel.send(self.unique, -libc::EIO, &[]);
                true
            }
        }
    }
}
