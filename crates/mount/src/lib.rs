//! The mount: the kernel's requests become calls of the client, leases become validity of the
//! kernel's caches.
//!
//! Role: glue, and nothing that the client or the kernel layer could know by itself. Assumptions:
//! the kernel checks permissions (`default_permissions` and POSIX ACLs are negotiated), so that
//! cached names cannot be walked without them. Never knows: wire formats, servers, objects.
//!
//! Rooms: `caches` (what the kernel may keep, and for how long), `belief` (its attributes under leases), `consistency` (where less is asked for), `nodes` (what it was told of), `names` (by which names, and how these are taken back), `rest` (when a name may be kept among others), `below` (what is mounted below), `entries` and `gates` (names of files, and who waits while they are taken back; `told`: what is on its way to the kernel),
//! `handles` (open files), `holds` (what is removed while in use), `pages` (what is mapped while others write it), `under_way` (what is read and written of the kernel's pages at the same time), `ends` and `sizes` (what grows while others write it), `tellers` (who waits for the kernel), `retries` (what a lost race looks up again; `calls` tells whether it is the same system call), `reopen` (what is looked up again before it is opened), `unheard` (answers nobody waits for any more), `fs` (the requests, with `files`, `dirs`, `xattrs`, `locks`), `convert`.

mod belief;
mod below;
mod caches;
mod calls;
mod consistency;
mod convert;
mod dirs;
mod ends;
mod entries;
mod export;
mod files;
mod fs;
mod gates;
mod handles;
mod holds;
mod keeps;
mod locks;
mod names;
mod nodes;
mod pages;
mod prompt;
mod reopen;
mod rest;
mod retries;
mod sizes;
mod tellers;
mod told;
mod under_way;
mod unheard;
mod xattrs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Listener};
use fuse::{
    Config, Handle, Mount, MountError, MountOptions, RING_ENTRIES_MAX, Running, Session, caps,
};

use caches::Caches;
pub use consistency::{Consistency, UnknownConsistency};
use fs::PinstripeFs;
use gates::Then;
use pages::Droppers;

/// Largest request of the kernel, bytes.
const MAX_WRITE: u32 = 1 << 20;
/// What the kernel may read ahead of one reader, bytes, where nobody else does.
const READ_AHEAD: u32 = 8 << 20;
/// The same where the client reads ahead, which knows the stripes and the price of messages.
const READ_AHEAD_BESIDE: u32 = 1 << 20;
/// Requests the kernel keeps in flight without waiting for their answers. Those who read what a lost OST has must not use
/// them up: others would wait with them.
const MAX_BACKGROUND: u16 = 1024;
/// Threads that serve requests; handlers block on servers, so there may be many.
const MAX_THREADS: usize = 1024;
/// Threads that are kept when there is nothing to do for them.
const MAX_IDLE_THREADS: usize = 48;

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct MountConfig {
    /// What `mount` shows as the source.
    pub source: String,
    /// The kernel's side of it; permissions are always checked by the kernel.
    pub kernel: MountOptions,
    /// flock(2) and fcntl(2) locks hold among the processes of this mount only.
    pub local_locks: bool,
    /// What of other mounts' work is seen at once.
    pub consistency: Consistency,
    /// Threads that serve requests, where there are to be fewer than usual at most.
    pub max_threads: Option<usize>,
}

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mount point, or the kernel.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The exchange with the kernel.
    #[error("cannot serve the mount on {0}: {1}")]
    Session(PathBuf, std::io::Error),
}

/// A mounted file system, served by threads of its own.
pub struct Mounted {
    running: Running,
    droppers: Droppers,
    mountpoint: PathBuf,
    loop_device: Option<PathBuf>,
    refused: Option<String>,
}

/// Mounts a client's file system.
pub fn mount(client: &Client, mountpoint: &Path, config: MountConfig) -> Result<Mounted, Error> {
    let kernel = MountOptions {
        source: config.source,
        subtype: "pinstripe".to_string(),
        default_permissions: true,
        ..config.kernel
    };
    let mount = Mount::new(mountpoint, &kernel)?;
    let mountpoint = mount.mounted().mountpoint().to_path_buf();
    let device = mount.mounted().device_number();
    let refused = mount.forward_sync_refused().map(str::to_string);
    let loop_device = mount.loop_device().map(Path::to_path_buf);
    let caches = Caches::new(client.clone(), config.consistency);
    let fs = Arc::new(PinstripeFs::new(client.clone(), Arc::clone(&caches)));
    let (pages, later) = (Arc::clone(&fs.pages), Arc::downgrade(&fs));
    caches.answer_askers(move |req, reply, then| {
        // Unanswered it fails; there is no mount any more.
        let Some(fs) = later.upgrade() else { return };
        match then {
            Then::Passes => fs.answer_attributes(&req, req.nodeid(), reply),
            // As if it had lost a race: the kernel gives up at the second ESTALE.
            Then::Ends => reply.err(fuse::Errno::EINTR),
            Then::BeginsAnew => reply.err(fs.lost(&req, proto::Errno::ESTALE)),
        }
    });
    // What is not wanted the kernel does by itself.
    let local = if config.local_locks { caps::POSIX_LOCKS | caps::FLOCK_LOCKS } else { 0 };
    let most = |usual: usize| config.max_threads.map_or(usual, |most| most.min(usual));
    let config = Config {
        wanted: (caps::DEFAULT | caps::POSIX_ACL | caps::EXPORT_SUPPORT) & !local,
        max_write: MAX_WRITE,
        max_readahead: if client.reads_ahead() { READ_AHEAD_BESIDE } else { READ_AHEAD },
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_threads: most(MAX_THREADS),
        max_ring_entries: most(RING_ENTRIES_MAX),
        max_idle_threads: MAX_IDLE_THREADS,
        ..Config::default()
    };
    let fail = |e| Error::Session(mountpoint.clone(), e);
    let session = Session::new(fs, mount, config).map_err(fail)?;
    caches.attach(session.notifier(), session.info().minor, device);
    client.set_listener(Arc::clone(&caches) as Arc<dyn Listener>);
    let droppers = pages.start(&session.notifier()).map_err(fail)?;
    let running = session.spawn().map_err(fail)?;
    Ok(Mounted { running, droppers, mountpoint, loop_device, refused })
}

impl Mounted {
    /// Absolute path of the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts from any thread.
    pub fn handle(&self) -> Handle {
        self.running.handle()
    }

    /// The device under a mount that sync(2) reaches; the source in the kernel's mount table.
    pub fn loop_device(&self) -> Option<&Path> {
        self.loop_device.as_deref()
    }

    /// Why sync(2) does not reach the file system although it was asked for.
    pub fn forward_sync_refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Waits until it is unmounted. The client is to be shut down then.
    pub fn join(self) -> std::io::Result<()> {
        let ended = self.running.join();
        drop(self.droppers);
        ended
    }
}
