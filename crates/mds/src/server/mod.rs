//! A running metadata target.
//!
//! Role: open the store, start the threads, be a [`net::Service`]. Threads: whoever brings work is
//! the executor (`exec`); readers (`loader`), a timer for groups, the store's commit thread, and
//! one that talks to the OSTs (`poll`).

mod accessed;
mod commit;
mod counts;
mod earn;
mod exec;
mod fence;
mod loader;
mod lock_ahead;
mod open;
mod pace;
mod poll;
mod recall;
mod row;
mod service;
mod sole;
mod state;
mod status;
mod task;
mod tidy;
mod wait;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use net::{ClusterKey, Endpoint, Service};
use parking_lot::Mutex;
use store::fjall_engine;
use store::{Store, StoreError, Usage};

use crate::format;
use crate::label::{self, LabelError, MdtLabel};
use crate::options::MdtOptions;
use exec::{Chore, Exec, Work};
use fence::Fencer;
use pace::Pace;
use poll::{Addresses, Poller};

/// How often the store is asked for its space.
const SPACE_INTERVAL: Duration = Duration::from_millis(500);

/// Room above what the store keeps, in which creates are refused already: what the engine has not
/// flushed counts there (40 MiB were seen), and what is under way. Reserve, compaction and this are
/// less than the 128 MiB the OSTs keep.
const SPACE_MARGIN: u64 = 56 << 20;

/// Why a target does not start.
#[derive(Debug, thiserror::Error)]
pub enum MdtError {
    /// Its label.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Its store.
    #[error("{path}: {source}")]
    Store {
        /// The target's directory.
        path: String,
        /// Why.
        source: StoreError,
    },
    /// Its store was made with it and is gone (invariant 11).
    #[error(
        "the store {path} is lost: it was made when the target was formatted, and there is none now; nothing was changed. Bring it back from the newest copy of the target, or mount the disk it lies on. Only if this target never served: remove the label beside it and format it again"
    )]
    StoreLost {
        /// Where it should be.
        path: String,
    },
    /// A record without which it cannot start.
    #[error("{path}: the record {what} is damaged ({why}); run `pinstripe fsck`")]
    Record {
        /// The target's directory.
        path: String,
        /// Which.
        what: &'static str,
        /// How.
        why: String,
    },
    /// A thread did not start.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl MdtError {
    /// Whether another process has the target open.
    pub fn is_in_use(&self) -> bool {
        matches!(self, MdtError::Store { source, .. } if source.is_busy())
    }
}

/// A metadata target.
pub struct Mdt {
    label: MdtLabel,
    epoch: u32,
    exec: Arc<Exec>,
    store: Arc<dyn Store>,
    pace: Arc<Pace>,
    addresses: Arc<Mutex<Addresses>>,
    stop: Arc<AtomicBool>,
    backlog: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Mdt {
    /// Prepares an empty directory (made when absent) as a target.
    pub fn format(dir: &Path, label: &MdtLabel) -> Result<(), MdtError> {
        format::format(dir, label)
    }

    /// Refuses a directory that holds anything but what a format left that was cut short.
    pub fn refuse_used(dir: &Path) -> Result<(), LabelError> {
        format::refuse_used(dir)
    }

    /// The file of a target that is locked by whoever has it open.
    pub fn lock_file(dir: &Path) -> PathBuf {
        fjall_engine::lock_file(&dir.join(format::STORE))
    }

    /// The label of a target.
    pub fn label(dir: &Path) -> Result<MdtLabel, MdtError> {
        Ok(label::read(dir)?)
    }

    /// Opens a target and starts its threads. It serves once it is added to a [`net::Server`].
    pub fn open(dir: &Path, options: MdtOptions) -> Result<Arc<Mdt>, MdtError> {
        let label = label::read(dir)?;
        let store = open::store(dir)?;
        Mdt::with_store(label, store, options, &dir.display().to_string())
    }

    /// A target over any store; `path` is for messages.
    pub fn with_store(
        label: MdtLabel,
        store: Arc<dyn Store>,
        options: MdtOptions,
        path: &str,
    ) -> Result<Arc<Mdt>, MdtError> {
        let start = open::state(&label, &store, &options, path)?;
        let table = Arc::clone(&start.state.ns.osts);
        let pace = Arc::clone(&start.state.pace);
        let exec = Exec::new(start.state, Arc::clone(&store));
        let name = proto::mgs::target_name(proto::mgs::KIND_MDT, label.index);
        let poller = Poller::new(Arc::clone(&exec), table, label.fs, name, options.poll_interval);
        let mdt = Mdt {
            epoch: store.info().epoch as u32,
            addresses: Arc::clone(&poller.addresses),
            stop: Arc::clone(&poller.stop),
            backlog: Arc::clone(&poller.backlog),
            threads: Mutex::default(),
            label,
            exec,
            store,
            pace,
        };
        mdt.start(poller, &options, start.orphans)?;
        for g in start.garbage {
            let _ = mdt.exec.garbage.0.send(g);
        }
        Ok(Arc::new(mdt))
    }

    fn start(
        &self,
        poller: Poller,
        options: &MdtOptions,
        orphans: Vec<proto::Fid>,
    ) -> Result<(), MdtError> {
        let fencer = Fencer {
            exec: Arc::clone(&self.exec),
            addresses: Arc::clone(&poller.addresses),
            stop: Arc::clone(&poller.stop),
            fs: self.label.fs,
            name: self.target(),
            patience: options.fence_patience,
        };
        let fences = self.exec.fences.1.clone();
        self.spawn("mdt-fencer", move || fencer.run(fences))?;
        self.spawn("mdt-osts", move || poller.run())?;
        for _ in 0..options.readers.max(1) {
            let (exec, store) = (Arc::clone(&self.exec), Arc::clone(&self.store));
            let needs = exec.needs.1.clone();
            self.spawn("mdt-reader", move || {
                while let Ok(Some(need)) = needs.recv() {
                    let found = loader::load(&store, &need);
                    exec.submit(Work::Loaded(need, found));
                }
            })?;
        }
        let timer = Timer {
            exec: Arc::clone(&self.exec),
            store: Arc::clone(&self.store),
            delay: options.group_delay,
            reserve: options.reserve_bytes,
            orphans: Some((Instant::now() + options.orphan_grace, orphans)),
        };
        self.spawn("mdt-timer", move || timer.run())
    }

    fn spawn(&self, name: &str, f: impl FnOnce() + Send + 'static) -> Result<(), MdtError> {
        let t = std::thread::Builder::new().name(name.into()).spawn(f);
        self.threads.lock().push(t.map_err(MdtError::Thread)?);
        Ok(())
    }

    /// Tells where the OSTs are.
    pub fn set_osts(&self, osts: Vec<(u32, Endpoint)>, key: Option<ClusterKey>) {
        self.addresses.lock().set(osts, key);
    }

    /// How long a client may take to give back a lease before it is evicted.
    pub fn recall_timeout(&self) -> Duration {
        self.exec.recall_timeout()
    }

    /// Sets it for call-backs from now on, until the target is opened again.
    pub fn set_recall_timeout(&self, timeout: Duration) {
        self.exec.set_recall_timeout(timeout);
    }

    /// Every lease there is: inode, session, `LS_*`.
    pub fn leases(&self) -> Vec<(proto::Fid, u64, u8)> {
        self.exec.with(|s| s.leases.table.all().collect())
    }

    /// Files whose objects wait to be destroyed, once their removal is durable.
    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed) + self.exec.with(|s| s.garbage_waiting())
    }

    /// Commits everything, stops the threads and gives the store up.
    pub fn close(&self) -> Result<(), StoreError> {
        if self.stop.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let (dirty, failed, no_room) = self.exec.with(|s| {
                s.closing = true;
                s.cut_now();
                (s.unsettled(), s.failed, s.gives_up())
            });
            if !dirty || failed {
                break;
            }
            if no_room || Instant::now() > deadline {
                tracing::error!(no_room, "the target closes with changes that are not durable");
                break;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let _ = self.exec.chores.0.send(Chore::Stop);
        let _ = self.exec.fences.0.send(None);
        let threads = std::mem::take(&mut *self.threads.lock());
        for _ in &threads {
            let _ = self.exec.needs.0.send(None);
        }
        for t in threads {
            let _ = t.join();
        }
        self.store.close()
    }
}

impl Drop for Mdt {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::warn!(error = %e, "the store did not close cleanly");
        }
    }
}

/// Free bytes below which only what frees space is done: the store must not come to refuse commits,
/// and the OSTs, which keep more, must be full before.
fn threshold(u: &Usage) -> u64 {
    let compaction = u.used.min(store::fjall_engine::COMPACTION_BYTES);
    u.reserve + compaction + (u.total / 4).min(SPACE_MARGIN)
}

/// Cuts groups when their delay is over, watches the store's space, gives orphans up.
struct Timer {
    exec: Arc<Exec>,
    store: Arc<dyn Store>,
    delay: Duration,
    reserve: u64,
    orphans: Option<(Instant, Vec<proto::Fid>)>,
}

impl Timer {
    fn run(mut self) {
        let chores = self.exec.chores.1.clone();
        let mut flush: Option<Instant> = None;
        let mut space = Instant::now();
        let mut round = space + accessed::ROUND;
        loop {
            let now = Instant::now();
            if flush.is_some_and(|at| at <= now) {
                flush = None;
                self.exec.submit(Work::Flush);
            }
            if space <= now {
                let scarce = self.look_at_space();
                space = now + if scarce { SPACE_INTERVAL / 10 } else { SPACE_INTERVAL };
            }
            if round <= now {
                self.exec.submit(Work::TellAccessed);
                round = now + accessed::ROUND;
            }
            if self.orphans.as_ref().is_some_and(|(at, _)| *at <= now)
                && let Some((_, fids)) = self.orphans.take()
            {
                self.exec.submit(Work::Reap(fids));
            }
            let next = space.min(round);
            let next = flush.map_or(next, |f| f.min(next));
            match chores.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Chore::Arm) => flush = flush.or(Some(Instant::now() + self.delay)),
                Ok(Chore::Look) => space = now,
                Ok(Chore::Kick) => self.exec.drain(),
                Ok(Chore::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Whether it is scarce: then it is looked at more often.
    fn look_at_space(&self) -> bool {
        match self.store.usage() {
            Ok(u) => {
                let reserve = match self.reserve {
                    0 => threshold(&u),
                    set => set,
                };
                self.exec.submit(Work::Space((u.used, u.total, u.free), reserve));
                u.free < 2 * reserve
            }
            Err(e) => {
                tracing::warn!(error = %e, "cannot tell the space of the store");
                false
            }
        }
    }
}
