//! A client with its mount: made, served until something ends it, taken down.
//!
//! Role: the part that `up` and `mount` share. Assumption: whoever starts it holds what the client
//! needs (servers) until [`Mounting::serve_until`] has returned.

mod options;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::{Client, ClientConfig};
use fuse::{Handle, MountError, MountState};
use mount::{MountConfig, Mounted};

pub use options::Options;

use crate::failure::{Doing, Failure, Outcome};
use crate::host::describe;
use crate::memory::Memory;
use crate::signals::{Stop, Stops};

/// How often a mount in use is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// After SIGTERM: time for those who use the mount to leave it.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// Time for what was written to reach the servers when the end is forced.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

/// Where and how to mount.
pub struct Wanted<'a> {
    /// Where the targets are.
    pub mgs: client::Mgs,
    /// The cluster key.
    pub key: Option<net::ClusterKey>,
    /// Directory to mount instead of the root.
    pub subdir: Option<PathBuf>,
    /// Settings.
    pub options: &'a Options,
    /// What `mount` shows.
    pub source: String,
    /// Where.
    pub mountpoint: &'a Path,
    /// `up` or `mount`, for `status`.
    pub role: &'a str,
}

/// A mounted file system.
pub struct Mounting {
    client: Client,
    mounted: Mounted,
    handle: Handle,
}

/// Connects and mounts.
pub fn start(wanted: Wanted<'_>) -> Outcome<Mounting> {
    let config = ClientConfig {
        mgs: wanted.mgs,
        key: wanted.key,
        subdir: wanted.subdir,
        description: describe(wanted.role),
        options: wanted.options.client.clone(),
    };
    let client = Client::connect(config).map_err(|e| Failure::run(e.to_string()))?;
    let config = MountConfig {
        source: wanted.source,
        kernel: wanted.options.kernel.clone(),
        local_locks: wanted.options.local_locks,
        consistency: wanted.options.consistency,
        max_threads: Memory::here().threads(),
    };
    match mount::mount(&client, wanted.mountpoint, config) {
        Ok(mounted) => {
            if let Some(why) = mounted.forward_sync_refused() {
                tracing::warn!("sync(1) will not reach this mount, fsync does: {why}");
            }
            let handle = mounted.handle();
            Ok(Mounting { client, mounted, handle })
        }
        Err(e) => {
            let _ = client.shutdown();
            Err(Failure::run(e.to_string()))
        }
    }
}

impl Mounting {
    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Takes it away again at once, before it was announced.
    pub fn abandon(self) {
        let _ = self.handle.unmount(true);
        let _ = self.client.shutdown();
    }

    /// Serves until it is unmounted or a signal comes; then unmounts, and hands over all that was
    /// written.
    pub fn serve_until(self, stops: &Stops) -> Outcome<()> {
        let Mounting { client, mounted, handle } = self;
        let tell = stops.sender();
        let join = move || {
            if let Err(e) = mounted.join() {
                tracing::error!("serving the mount failed: {e}");
            }
            let _ = tell.send(Stop::Unmounted);
        };
        let thread = std::thread::Builder::new().name("mount".into()).spawn(join);
        thread.doing(|| "cannot start a thread".into())?;
        let forced = wait_for_end(&handle, stops);
        finish(client, forced)
    }
}

/// Returns when the mount is gone (false) or its end was forced (true).
fn wait_for_end(handle: &Handle, stops: &Stops) -> bool {
    let first = stops.wait();
    if first == Stop::Unmounted {
        return false;
    }
    let since = Instant::now();
    let mut told = false;
    loop {
        let busy = match handle.unmount(false) {
            Ok(()) => false,
            Err(MountError::Busy(_)) => true,
            Err(e) => {
                tracing::error!("{e}");
                true
            }
        };
        if busy && !told {
            told = true;
            let place = handle.mounted().mountpoint().display();
            eprintln!("pinstripe: {place} is in use; waiting for it. Ctrl-C again does not wait");
        }
        match stops.wait_for(RETRY) {
            Some(Stop::Unmounted) => return false,
            Some(_) => break,
            None if busy && first == Stop::Terminate && since.elapsed() > BUSY_PATIENCE => break,
            None => {}
        }
    }
    if let Err(e) = handle.unmount(true) {
        tracing::error!("{e}");
    }
    true
}

/// Hands over what was written; forced, for a bounded time.
fn finish(client: Client, forced: bool) -> Outcome<()> {
    let (tell, told) = std::sync::mpsc::channel();
    let flush = move || {
        let _ = tell.send(client.shutdown());
    };
    let thread = std::thread::Builder::new().name("flush".into()).spawn(flush);
    thread.doing(|| "cannot start a thread".into())?;
    let done = match forced {
        true => told.recv_timeout(FLUSH_PATIENCE).ok(),
        false => told.recv().ok(),
    };
    match done {
        Some(Ok(())) => Ok(()),
        Some(Err(e)) => Err(Failure::run(format!(
            "some of what was written could not be stored, and is lost: {e}"
        ))),
        None => Err(Failure::run("the end was forced before all that was written was stored")),
    }
}

/// Makes the mount point if it is missing; what is there is looked at later.
pub fn prepare(mountpoint: &Path) -> Outcome<()> {
    match std::fs::symlink_metadata(mountpoint) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let made = std::fs::create_dir_all(mountpoint);
            made.doing(|| format!("cannot make the mount point {}", mountpoint.display()))
        }
        // A dead mount answers with an error; it is replaced.
        _ => Ok(()),
    }
}

/// Refuses a mount point that cannot be used, and takes a dead mount off it.
pub fn refuse_unusable(mountpoint: &Path, options: &Options) -> Outcome<()> {
    let shown = mountpoint.display();
    if !Path::new("/dev/fuse").exists() {
        let text = "there is no /dev/fuse: load the kernel's fuse module (modprobe fuse), or give \
                    this container the device";
        return Err(Failure::run(text));
    }
    if fuse::detach_dead(mountpoint).map_err(|e| Failure::run(e.to_string()))? {
        tracing::info!("took a dead mount off {shown}");
    }
    match fuse::inspect(mountpoint).doing(|| format!("cannot inspect {shown}"))? {
        MountState::None => {}
        MountState::Unresponsive(_) => {
            let text = format!(
                "{shown} is mounted, but the process behind it does not answer; `pinstripe down \
                 --force {shown}` takes it away"
            );
            return Err(Failure::run(text));
        }
        _ if options.kernel.allow_nonempty => {}
        MountState::Other(e) | MountState::Alive(e) | MountState::Dead(e) => {
            return Err(Failure::run(format!("{shown} is already mounted ({})", e.fstype)));
        }
    }
    let mut entries = match std::fs::read_dir(mountpoint) {
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(Failure::run(format!("{shown} is not a directory; name one to mount on")));
        }
        other => other.doing(|| format!("cannot use {shown} as a mount point"))?,
    };
    if !options.kernel.allow_nonempty && entries.next().is_some() {
        let text =
            format!("{shown} is not empty; what is in it would be hidden. Use an empty directory");
        return Err(Failure::run(text));
    }
    Ok(())
}
