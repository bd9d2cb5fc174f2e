//! Start and end of a client.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Mutex, RwLock};
use proto::mds::{LS_WRITE, O_WRITE, Op, Res};
use proto::{Attr, Errno, Fid};

use crate::behind::Behind;
use crate::budget::Budget;
use crate::config::{ClientConfig, ClientError, Options};
use crate::connect::{self, Sessions};
use crate::core::Core;
use crate::counters::Counters;
use crate::events::{self, Hooks, Inbox, Lease, Link};
use crate::giving::Givers;
use crate::leases::Leases;
use crate::listener::Told;
use crate::local::Local;
use crate::locks::LockTable;
use crate::looks::Looks;
use crate::mdt::{Mdt, own_cred};
use crate::opening::Openings;
use crate::promises::Promises;
use crate::registry::Registry;
use crate::senders::Senders;
use crate::space::SpaceWatch;
use crate::wb::{Trust, Wb};
use crate::worker::{self, CLOSES_MAX, Closing};
use crate::{Listener, Stats};

/// A mounted file system. Clones are the same client; it lives until [`Client::shutdown`] or
/// until the last clone is dropped.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    root: Attr,
    threads: Mutex<Threads>,
}

/// The client's threads and how they are told to stop.
#[derive(Default)]
struct Threads {
    running: Vec<JoinHandle<()>>,
    stop_ageing: Option<Sender<()>>,
    stop_flusher: Option<Sender<()>>,
    hooks: Option<Arc<Hooks>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("root", &self.shared.root.fid).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to all targets; waits, within `connect_timeout`, until they answer.
    ///
    /// # Errors
    /// A target does not answer in time or refuses, or the sub-directory is none.
    pub fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        connect::check(&config.options)?;
        let counters = Arc::new(Counters::default());
        let options = &config.options;
        let leases = Arc::new(Leases::new(!options.write_through && !options.observer));
        let (hooks, inbox) = events::hooks(leases);
        let sessions = connect::connect(&config, hooks.clone(), &counters)?;
        let (closings, closings_in) = bounded(CLOSES_MAX);
        let promises = Arc::clone(&hooks.promises);
        let leases = Arc::clone(&hooks.table);
        leases.heard_by(sessions.mdt.heard());
        promises.begin(sessions.mdt.welcome().epoch);
        let (flusher, flusher_in) = bounded(1);
        let queues = (closings, flusher);
        let core = make_core(config.options, sessions, counters, (promises, leases), queues);
        let core = Arc::new(core);
        let mut threads = Threads { hooks: Some(hooks), ..Threads::default() };
        threads.start(&core, inbox, closings_in)?;
        threads.start_flusher(&core, flusher_in)?;
        match find_root(&core, config.subdir.as_deref()) {
            Ok(root) => {
                let threads = Mutex::new(threads);
                Ok(Client { shared: Arc::new(Shared { core, root, threads }) })
            }
            Err(e) => {
                threads.stop(&core);
                Err(e)
            }
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    /// The root (or the sub-directory mounted as such), as it was at connect.
    pub fn root(&self) -> Attr {
        self.shared.root.clone()
    }

    /// Flushes everything to durable storage, gives back handles and says goodbye. Errors are
    /// those of the flush; the client is ended in any case. A second call does nothing.
    pub fn shutdown(&self) -> Result<(), Errno> {
        self.shared.end()
    }

    /// Who is told about leases; set before the first call that fills a cache above.
    pub fn set_listener(&self, listener: Arc<dyn Listener>) {
        *self.core().listener.write() = Some(listener);
    }

    /// Whether this client is alone and may cache everything.
    pub fn is_sole(&self) -> bool {
        self.core().caching()
    }

    /// Whether what is read of a file from now on is what it holds until the listener is told otherwise.
    pub fn vouches_for_data(&self, fid: Fid) -> bool {
        self.is_sole() || self.core().leases.watches(fid)
    }

    /// Asks to have the listener told before a write of anybody else to this file returns, also where several write
    /// it; whether that is so. Not while the MDT waits for something that it calls back, from this client perhaps.
    /// Then [`Client::vouches_for_data`] is true.
    pub fn watch(&self, fid: Fid) -> bool {
        self.core().watch(fid)
    }

    /// Whether nobody else can see what is changed in a directory, until the listener is told.
    pub fn is_alone_in(&self, dir: Fid) -> bool {
        self.is_sole() || self.core().leases.excludes(dir)
    }

    /// Whether nobody else can have a file open, or read or write it, until the listener is told.
    pub fn is_alone_with(&self, fid: Fid) -> bool {
        self.is_sole() || self.core().leases.has(fid, LS_WRITE)
    }

    /// Whether this client has a file open for writing.
    pub fn writes(&self, fid: Fid) -> bool {
        let Some(inode) = self.core().registry.find(fid) else { return false };
        let st = inode.st.lock();
        st.handles.iter().any(|(_, flags)| flags & O_WRITE != 0)
    }

    /// Whether this client is known to have written a file while others had it open.
    pub fn wrote_beside_others(&self, fid: Fid) -> bool {
        self.core().registry.find(fid).is_some_and(|inode| inode.st.lock().told_at.is_some())
    }

    /// Changes whenever caches must be dropped: what was learned before a change must not be
    /// cached after it.
    pub fn cache_epoch(&self) -> u64 {
        self.core().epoch() + self.core().forgets.load(SeqCst)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let mut stats = Stats::default();
        core.counters.fill(&mut stats);
        let held = core.budget.held();
        stats.dirty_bytes = held.dirty;
        stats.uncommitted_bytes = held.unstable;
        stats.read_ahead_bytes = core.ahead_bytes.load(SeqCst);
        stats.inodes = core.registry.len() as u64;
        stats.leases = core.leases.len() as u64;
        (stats.waiting_ops, stats.surprises) = core.mdt.wb.figures();
        stats
    }

    /// Whether the MDT can be reached, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.core().mdt.session.is_connected()
    }

    /// Whether the servers have all that was done here, on their disks, as far as is known.
    pub fn is_stored(&self) -> bool {
        self.core().registry.unclean().is_empty() && self.core().mdt_has_all()
    }

    /// Whether it reads ahead of readers: what targets in other processes hold.
    pub fn reads_ahead(&self) -> bool {
        let core = self.core();
        !core.mdt.session.is_local() && core.options.max_read_ahead_mb > 0
    }

    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.core().options
    }

    /// Files up to this size live inline, in bytes.
    pub fn dom_limit(&self) -> u64 {
        self.core().dom_limit()
    }
}

impl Shared {
    fn end(&self) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        if self.core.stopped.swap(true, SeqCst) {
            return Ok(());
        }
        // An MDT that has had its time by now is not given it once more.
        self.core.mdt.wb.leave();
        let (done, over) = bounded::<()>(0);
        let core = self.core.clone();
        let watch = std::thread::spawn(move || give_up(&core, &over));
        let outcome = self.core.sync_all(None);
        drop(done);
        if watch.join().is_err() {
            tracing::error!("a thread of the client panicked");
        }
        threads.stop(&self.core);
        outcome
    }
}

/// The last flush waits as long as a request may for a lost server, not that long for each of its
/// requests.
fn give_up(core: &Core, over: &Receiver<()>) {
    let mut pause = core.options.request_timeout;
    while over.recv_timeout(pause).is_err_and(|e| e.is_timeout()) {
        pause = Duration::from_secs(1);
        // One that only hangs may still take it.
        if core.is_cut_off() || !core.mdt.session.is_connected() {
            tracing::error!("a server stays away: what it does not have is lost");
            core.close_sessions();
            return;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            tracing::error!(error = %e, "flushing at the end");
        }
    }
}

fn make_core(
    options: Options,
    sessions: Sessions,
    counters: Arc<Counters>,
    (promises, leases): (Arc<Promises>, Arc<Leases>),
    (closings, flusher): (Sender<Closing>, Sender<()>),
) -> Core {
    let grant = sessions.grant;
    let sole = Arc::new(AtomicBool::new(grant.sole));
    let trust = Trust::new(sole.clone(), leases.clone(), options.write_through);
    let (wb, listener) = (
        Wb::new(
            trust,
            grant.dom_limit.into(),
            options.max_cached_inodes as usize,
            options.request_timeout,
        ),
        Told::default(),
    );
    Core {
        budget: Budget::new(&options),
        mdt: Mdt::new(
            sessions.mdt,
            counters.clone(),
            grant.fids,
            promises,
            wb,
            flusher,
            options.pauses.clone(),
            listener.clone(),
        ),
        osts: RwLock::new(sessions.osts),
        links: sessions.links,
        counters,
        registry: Registry::within(options.max_cached_inodes as usize),
        locks: LockTable::default(),
        local: Local::default(),
        openings: Openings::default(),
        givers: Givers::default(),
        listener,
        sole,
        sole_turn: Mutex::default(),
        leases,
        epoch: AtomicU64::new(1),
        life: AtomicU64::new(1),
        forgets: AtomicU64::new(0),
        dom_limit: AtomicU64::new(grant.dom_limit.into()),
        tick: AtomicU64::new(0),
        ahead_bytes: Arc::default(),
        space: SpaceWatch::default(),
        stopped: AtomicBool::new(false),
        careful: AtomicBool::new(false),
        failed: Mutex::new(None),
        lost_dirs: Mutex::default(),
        senders: Senders::new(),
        behind: Mutex::new(Behind::new()),
        closings,
        looks: Looks::default(),
        options,
    }
}

impl Threads {
    fn start(
        &mut self,
        core: &Arc<Core>,
        inbox: Inbox,
        closings: Receiver<Closing>,
    ) -> Result<(), ClientError> {
        for (name, tasks) in core.senders.threads() {
            let core = core.clone();
            self.spawn(&name, move || worker::work(&core, &tasks))?;
        }
        let c = core.clone();
        self.spawn("client-close", move || worker::close(&c, &closings))?;
        let (stop, stopped) = bounded(1);
        self.stop_ageing = Some(stop);
        let c = core.clone();
        self.spawn("client-age", move || worker::age(&c, &stopped))?;
        let (c, awaited) = (core.clone(), inbox.awaited);
        self.spawn("client-awaited", move || awaited.watch(&c))?;
        let (c, order, leases) = (core.clone(), inbox.order.clone(), inbox.leases);
        self.spawn("client-lease", move || events::lease_thread(&c, &order, &leases))?;
        let (c, order, links) = (core.clone(), inbox.order, inbox.links);
        self.spawn("client-link", move || events::link_thread(&c, &order, &links))
    }

    fn start_flusher(&mut self, core: &Arc<Core>, wake: Receiver<()>) -> Result<(), ClientError> {
        let (stop, stopped) = bounded(1);
        self.stop_flusher = Some(stop);
        let c = core.clone();
        self.spawn("client-flush", move || worker::flush(&c, &wake, &stopped))
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), ClientError> {
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(run);
        let thread =
            thread.map_err(|e| ClientError::Config(format!("cannot start a thread: {e}")))?;
        self.running.push(thread);
        Ok(())
    }

    /// Stops all threads, then closes the sessions.
    fn stop(&mut self, core: &Core) {
        self.stop_ageing = None;
        self.stop_flusher = None;
        let _ = core.closings.send(Closing::Stop);
        self.running.extend(core.senders.stop());
        // All is let out; what is called back from here on, nobody takes up.
        core.mdt.session.leave();
        if let Some(hooks) = self.hooks.take() {
            let _ = hooks.leases.send(Lease::Stop);
            let _ = hooks.links.send(Link::Stop);
            hooks.awaited.end();
        }
        // Who asks it where a lost target has gone does not wait for an answer.
        core.links.close();
        for thread in self.running.drain(..) {
            // A client dropped by one of its own threads cannot wait for it.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the client panicked");
            }
        }
        core.close_sessions();
        // What they wait for fails now; all that could be stored was, before.
        core.givers.wait();
    }
}

impl Core {
    /// Says goodbye everywhere; requests that wait fail.
    fn close_sessions(&self) {
        self.mdt.session.close();
        let osts: Vec<_> = self.osts.read().values().cloned().collect();
        osts.iter().for_each(|ost| ost.session.close());
        self.links.close();
    }
}

/// Resolves the sub-directory, name by name.
fn find_root(core: &Core, subdir: Option<&Path>) -> Result<Attr, ClientError> {
    let fail = |errno| match subdir {
        Some(path) => ClientError::Subdir { path: path.display().to_string(), errno },
        None => ClientError::Request { what: "reading the root", errno },
    };
    let mut at = match core.mdt.one(&own_cred(), Op::GetAttr { fid: Fid::ROOT }) {
        Ok(Res::Attr { attr }) => attr,
        Ok(_) => return Err(fail(Errno::EPROTO)),
        Err(e) => return Err(fail(e)),
    };
    for part in subdir.into_iter().flat_map(Path::components) {
        let std::path::Component::Normal(name) = part else { continue };
        let name = std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec();
        at = match core.mdt.one(&own_cred(), Op::Lookup { dir: at.fid, name }) {
            Ok(Res::Entry { attr, .. }) => attr,
            Ok(_) => return Err(fail(Errno::EPROTO)),
            Err(e) => return Err(fail(e)),
        };
    }
    if at.is_dir() { Ok(at) } else { Err(fail(Errno::ENOTDIR)) }
}
