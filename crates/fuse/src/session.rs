//! A session: the INIT exchange, its end, and who may end it. The reader threads are in `worker`.

use crate::abi;
use crate::buf::{HEADER_SPACE, Pool};
use crate::caps;
use crate::channel::{Channel, Shared};
use crate::fs::Filesystem;
use crate::interrupt::Interrupts;
use crate::mount::{Mount, MountError, Mounted};
use crate::notify::Notifier;
use crate::parse;
use crate::ring::{RING_ENTRIES_MAX, Ring};
use crate::transport::{IoUring, RING_PARAMETER};
use crate::types::Errno;
use crate::worker::Crew;
use std::io;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What a session asks the kernel for, and how many threads serve it.
#[derive(Clone, Debug)]
pub struct Config {
    /// [`caps`](crate::caps) bits to ask for; the kernel grants those it knows.
    pub wanted: u64,
    /// Largest write and read in bytes, a multiple of 4096, from 4096 to [`MAX_WRITE_LIMIT`]. The kernel's
    /// `fs.fuse.max_pages_limit` (1 MiB by default) caps it.
    pub max_write: u32,
    /// Bytes the kernel may read ahead per file. Beyond 128 KiB only where the session may raise the limit (root).
    pub max_readahead: u32,
    /// Asynchronous requests (read-ahead, direct I/O) the kernel keeps in flight.
    pub max_background: u16,
    /// Asynchronous requests from which on the kernel calls the device congested.
    pub congestion_threshold: u16,
    /// Granularity of times in nanoseconds, 1..=1e9.
    pub time_gran: u32,
    /// Threads started first, at least 1; 2 where handlers may block.
    pub min_threads: usize,
    /// Most threads, and so most handlers at a time. More than `min_threads` are only started when requests wait.
    pub max_threads: usize,
    /// Where io_uring is used: entries, and so threads, of all CPUs together, [`RING_ENTRIES_MAX`] at most. Each CPU has those it
    /// begins with.
    pub max_ring_entries: usize,
    /// Threads kept without work; further ones end.
    pub max_idle_threads: usize,
}

/// Upper end of [`Config::max_write`].
pub const MAX_WRITE_LIMIT: u32 = 16 << 20;

impl Default for Config {
    fn default() -> Config {
        Config {
            wanted: caps::DEFAULT,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 256,
            congestion_threshold: 192,
            time_gran: 1,
            min_threads: 2,
            max_threads: 16,
            max_ring_entries: RING_ENTRIES_MAX,
            max_idle_threads: 10,
        }
    }
}

/// What the kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitInfo {
    /// Minor protocol version both sides speak (major is 7).
    pub minor: u32,
    /// Capabilities in force.
    pub granted: u64,
    /// Capabilities the kernel offered.
    pub offered: u64,
    /// Largest write and read in bytes.
    pub max_write: u32,
    /// Bytes of read-ahead as far as the INIT exchange allows; see [`Config::max_readahead`].
    pub max_readahead: u32,
}

/// A mounted file system that is ready to be served.
pub struct Session {
    crew: Crew,
    mount: Mount,
}

impl Session {
    /// Does the INIT exchange with the kernel and calls [`Filesystem::init`]. Nothing can use the mount before this.
    ///
    /// # Errors
    /// EPROTO when the kernel's protocol is older than 7.31, the error of `Filesystem::init`, or of the device. The mount
    /// is then taken away.
    pub fn new(fs: Arc<dyn Filesystem>, mut mount: Mount, config: Config) -> io::Result<Session> {
        let max_write = config.max_write.clamp(4096, MAX_WRITE_LIMIT) / 4096 * 4096;
        let config = Config { max_write, ..config };
        let shared = Arc::new(Shared {
            pool: Pool::new(max_write as usize),
            interrupts: Arc::new(Interrupts::default()),
        });
        let fd = mount.take_device().ok_or(io::ErrorKind::NotConnected)?;
        let channel = Arc::new(Channel::new(fd, shared));
        let wish = mount.io_uring();
        let info = handshake(&channel, &*fs, &config, wish)?;
        if config.max_readahead > info.max_readahead {
            mount.raise_readahead(config.max_readahead);
        }
        tracing::debug!(?info, "fuse session");
        let over_ring = info.granted & caps::OVER_IO_URING != 0;
        let payload = info.max_write.max(8192) as usize;
        let ring = over_ring.then(|| Ring::new(&channel, payload, config.max_ring_entries));
        Ok(Session { crew: Crew::new(fs, channel, config, info, ring.transpose()?, wish), mount })
    }

    pub fn info(&self) -> &InitInfo {
        self.crew.info()
    }

    /// Sends notifications of this session, also before it runs and from any thread.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.crew.channel().clone())
    }

    /// For unmounting from elsewhere.
    pub fn handle(&self) -> Handle {
        Handle { mounted: self.mount.mounted().clone() }
    }

    /// Serves requests until the file system is unmounted, then calls [`Filesystem::destroy`].
    ///
    /// # Errors
    /// That of a device which failed otherwise than by being unmounted; the mount is then taken away.
    pub fn run(self) -> io::Result<()> {
        let result = self.crew.run();
        match &result {
            Ok(()) => self.mount.forget(),
            Err(e) => tracing::error!("fuse session failed: {e}"),
        }
        result
    }

    /// As `run`, on threads of its own.
    pub fn spawn(self) -> io::Result<Running> {
        let handle = self.handle();
        let thread = std::thread::Builder::new().name("fuse-session".into());
        let thread = thread.spawn(move || self.run())?;
        Ok(Running { handle, thread })
    }
}

/// A session that runs on threads of its own.
pub struct Running {
    handle: Handle,
    thread: std::thread::JoinHandle<io::Result<()>>,
}

impl Running {
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the file system is unmounted and every handler has returned.
    pub fn join(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the session thread panicked")))
    }
}

/// Unmounts a session's file system, from any thread but its handlers.
#[derive(Clone, Debug)]
pub struct Handle {
    mounted: Mounted,
}

impl Handle {
    /// Unmounts; the session's `run` then returns. Does nothing when it is unmounted already.
    ///
    /// `lazy` takes it out of the tree at once, even if in use; the session lives on until the last user is gone.
    ///
    /// # Errors
    /// [`MountError::Busy`] when it is in use and `lazy` is false.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        self.mounted.unmount(lazy)
    }

    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }
}

/// Reads INIT and answers it.
fn handshake(
    channel: &Channel,
    fs: &dyn Filesystem,
    config: &Config,
    wish: IoUring,
) -> io::Result<InitInfo> {
    loop {
        let mut buf = channel.shared.pool.get();
        let len = match channel.receive(&mut buf) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let bad = || io::Error::other("the kernel's first message is not a valid INIT");
        let (header, mut args, _) = parse::message(buf.request(len)).map_err(|_| bad())?;
        if header.opcode != abi::op::INIT {
            return Err(bad());
        }
        let (kernel, offered) = parse::init(&mut args).map_err(|_| bad())?;
        if kernel.major > abi::MAJOR {
            // The kernel answers our version with a second INIT of that version.
            let version =
                abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() };
            channel.send(header.unique, 0, &[version.as_bytes()])?;
            continue;
        }
        let ring = match over_ring(wish, offered) {
            Ok(ring) => ring,
            Err(e) => {
                channel.send(header.unique, -libc::EOPNOTSUPP, &[])?;
                return Err(e);
            }
        };
        let result = match accept(&kernel, offered, config, ring) {
            Some((info, out)) => fs.init(&info).map(|()| (info, out)),
            None => Err(Errno::new(libc::EPROTO)),
        };
        return match result {
            Ok((info, out)) => {
                channel.send(header.unique, 0, &[out.as_bytes()])?;
                Ok(info)
            }
            Err(errno) => {
                channel.send(header.unique, -errno.get(), &[])?;
                Err(io::Error::from_raw_os_error(errno.get()))
            }
        };
    }
}

/// Do requests come through io_uring? Once the kernel has heard so, it waits for the ring.
fn over_ring(wish: IoUring, offered: u64) -> io::Result<bool> {
    if !wish.is_wanted() {
        return Ok(false);
    }
    let refused = if offered & caps::OVER_IO_URING == 0 {
        format!("the kernel does not offer it; Linux 6.14 does if {RING_PARAMETER} is Y")
    } else {
        match Ring::probe() {
            Ok(()) => return Ok(true),
            Err(e) => format!("this process may not use io_uring: {e}"),
        }
    };
    match wish {
        IoUring::On => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("requests cannot come through io_uring: {refused}"),
        )),
        _ => {
            tracing::debug!("requests come through /dev/fuse: {refused}");
            Ok(false)
        }
    }
}

/// Our answer to INIT; None when the kernel is too old.
fn accept(
    kernel: &abi::InitCompatIn,
    offered: u64,
    config: &Config,
    ring: bool,
) -> Option<(InitInfo, abi::InitOut)> {
    if kernel.major < abi::MAJOR || kernel.minor < abi::MINOR_MIN {
        return None;
    }
    let always = caps::INIT_EXT | caps::BIG_WRITES | caps::MAX_PAGES;
    let ring = if ring { caps::OVER_IO_URING } else { 0 };
    let granted = (config.wanted & caps::SUPPORTED | always | ring) & offered;
    let page = 4096;
    let max_write = if granted & caps::MAX_PAGES != 0 { config.max_write } else { 32 * page };
    let info = InitInfo {
        minor: kernel.minor.min(abi::MINOR),
        granted,
        offered,
        max_write,
        max_readahead: kernel.max_readahead.min(config.max_readahead),
    };
    let out = abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: info.max_readahead,
        flags: granted as u32,
        flags2: (granted >> 32) as u32,
        max_background: config.max_background,
        congestion_threshold: config.congestion_threshold,
        max_write,
        time_gran: config.time_gran,
        max_pages: (max_write / page) as u16,
        ..abi::InitOut::default()
    };
    const { assert!(MAX_WRITE_LIMIT / 4096 <= u16::MAX as u32 && HEADER_SPACE < 4096) };
    Some((info, out))
}

#[cfg(test)]
mod tests;
