//! Finding the targets and opening sessions to them, at the start and after they moved.
//!
//! Role: reads the configuration from the MGS, waits (bounded) until everything registered
//! answers, follows changes of addresses. Never does: anything with files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use net::{ClusterKey, ConnectOptions, Endpoint, Events, NetError, NoEvents, Session};
use parking_lot::Mutex;
use proto::mds::Grant;
use proto::mgs::{Config, FEATURE_OBSERVER, KIND_MDT, KIND_OST, target_name};
use proto::{Errno, Wire, ops};

use crate::config::{ClientConfig, ClientError, Mgs, Options};
use crate::core::Core;
use crate::counters::Counters;
use crate::events::Hooks;
use crate::ost::Ost;

/// Pause between two tries to reach what does not answer yet.
const RETRY: Duration = Duration::from_millis(100);
/// Time one try may take.
const TRY: Duration = Duration::from_secs(5);

/// What it takes to open sessions.
pub(crate) struct Links {
    fs: [u8; 16],
    /// This incarnation of the client.
    client: Mutex<[u8; 16]>,
    key: Option<ClusterKey>,
    description: String,
    request_timeout: Duration,
    features: u64,
    mgs: Option<Arc<Session>>,
    hooks: Arc<Hooks>,
    /// Where each target was last.
    known: Mutex<BTreeMap<String, String>>,
    adding: Mutex<()>,
}

/// Everything a client needs to begin.
pub(crate) struct Sessions {
    pub(crate) links: Links,
    pub(crate) mdt: Arc<Session>,
    pub(crate) grant: Grant,
    pub(crate) osts: BTreeMap<u32, Arc<Ost>>,
}

fn failed(target: &str, address: impl ToString, why: NetError) -> ClientError {
    ClientError::Connect { target: target.to_string(), address: address.to_string(), why }
}

/// Whether trying again may help.
fn passing(why: &NetError) -> bool {
    matches!(why, NetError::Lost(_) | NetError::Timeout { .. } | NetError::Busy)
}

impl Links {
    fn options(&self, target: &str, events: Arc<dyn Events>) -> ConnectOptions {
        ConnectOptions {
            target: target.to_string(),
            fs: self.fs,
            client: *self.client.lock(),
            description: self.description.clone(),
            key: self.key.clone(),
            features: self.features,
            connect_timeout: TRY,
            request_timeout: Some(self.request_timeout),
            events,
            ..ConnectOptions::default()
        }
    }

    /// Opens a session, trying until `until`.
    fn open(
        &self,
        target: &str,
        at: &Endpoint,
        until: Instant,
    ) -> Result<Arc<Session>, ClientError> {
        loop {
            let events = self.hooks.of(target);
            match Session::connect(at, self.options(target, events)) {
                Ok(session) => return Ok(session),
                Err(why) if passing(&why) && Instant::now() < until => std::thread::sleep(RETRY),
                Err(why) => return Err(failed(target, at, why)),
            }
        }
    }

    /// What the MGS knows now.
    fn config(&self) -> Result<Config, Errno> {
        let mgs = self.mgs.as_ref().ok_or(Errno::ENODATA)?;
        read_config(mgs)
    }

    /// The present address of a target, if it is another than before.
    pub(crate) fn moved(&self, target: &str) -> Option<Endpoint> {
        let config = self.config().ok()?;
        let address = config.targets.0.iter().find(|t| t.name() == target)?.address.clone();
        let mut known = self.known.lock();
        if known.get(target) == Some(&address) {
            return None;
        }
        let endpoint = address.parse().ok()?;
        known.insert(target.to_string(), address);
        Some(endpoint)
    }

    /// The next incarnation, if `client` is the present one.
    pub(crate) fn reborn(&self, client: [u8; 16]) -> Option<[u8; 16]> {
        let mut now = self.client.lock();
        if *now != client {
            return None;
        }
        *now = proto::mgs::reborn(&client);
        Some(*now)
    }

    pub(crate) fn close(&self) {
        if let Some(mgs) = &self.mgs {
            mgs.close();
        }
    }
}

/// An id of its own, never evicted yet.
fn first_incarnation() -> [u8; 16] {
    let mut id: [u8; 16] = rand::random();
    id[12..].fill(0);
    id
}

fn read_config(mgs: &Session) -> Result<Config, Errno> {
    let reply = mgs.call(ops::mgs::CONFIG, Vec::new(), Vec::new()).map_err(|e| e.errno())?;
    reply.status()?;
    Config::from_bytes(&reply.body).map_err(|_| Errno::EPROTO)
}

/// Connects to the first MGS that answers.
fn open_mgs(
    config: &ClientConfig,
    at: &[Endpoint],
    until: Instant,
) -> Result<Arc<Session>, ClientError> {
    let first = at.first().ok_or_else(|| ClientError::Config("no MGS address was given".into()))?;
    loop {
        let mut why = None;
        for endpoint in at {
            let options = ConnectOptions {
                target: "MGS".into(),
                description: config.description.clone(),
                key: config.key.clone(),
                connect_timeout: TRY,
                request_timeout: Some(TRY),
                events: Arc::new(NoEvents),
                ..ConnectOptions::default()
            };
            match Session::connect(endpoint, options) {
                Ok(session) => return Ok(session),
                Err(e) if !passing(&e) => return Err(failed("MGS", endpoint, e)),
                Err(e) => why = Some(e),
            }
        }
        if Instant::now() >= until {
            let why = why.unwrap_or(NetError::Shutdown);
            return Err(failed("MGS", first, why));
        }
        std::thread::sleep(RETRY);
    }
}

/// Waits until the MGS knows a metadata target and at least one OST.
fn wait_config(mgs: &Session, until: Instant) -> Result<Config, ClientError> {
    loop {
        let config = read_config(mgs)
            .map_err(|errno| ClientError::Request { what: "reading the configuration", errno });
        let lacks = match &config {
            Err(_) => "an answer",
            Ok(c) if !c.targets.0.iter().any(|t| t.kind == KIND_MDT) => "a metadata target",
            Ok(c) if !c.targets.0.iter().any(|t| t.kind == KIND_OST) => "an OST",
            Ok(_) => return config,
        };
        if Instant::now() >= until {
            return config.and(Err(ClientError::Config(format!(
                "the MGS knows no {} yet: is its server started with --mgs-addr?",
                lacks.trim_start_matches("an ").trim_start_matches("a ")
            ))));
        }
        std::thread::sleep(RETRY);
    }
}

/// Opens sessions to everything.
pub(crate) fn connect(
    config: &ClientConfig,
    hooks: Arc<Hooks>,
    counters: &Arc<Counters>,
) -> Result<Sessions, ClientError> {
    let until = Instant::now() + config.options.connect_timeout;
    let (fs, mgs, targets) = match &config.mgs {
        Mgs::At(addresses) => {
            let mgs = open_mgs(config, addresses, until)?;
            let found = wait_config(&mgs, until)?;
            let targets = found.targets.0.iter().map(|t| {
                let at = t.address.parse::<Endpoint>();
                at.map(|at| (t.name(), at)).map_err(|e| failed(&t.name(), &t.address, e))
            });
            (found.fs, Some(mgs), targets.collect::<Result<Vec<_>, _>>()?)
        }
        Mgs::Targets { fs, targets } => (*fs, None, targets.clone()),
    };
    let known = targets.iter().map(|(name, at)| (name.clone(), at.to_string())).collect();
    let links = Links {
        fs,
        client: Mutex::new(first_incarnation()),
        key: config.key.clone(),
        description: config.description.clone(),
        request_timeout: config.options.request_timeout,
        features: if config.options.observer { FEATURE_OBSERVER } else { 0 },
        mgs,
        hooks,
        known: Mutex::new(known),
        adding: Mutex::new(()),
    };
    let first = target_name(KIND_MDT, 0);
    let at = targets.iter().find(|(name, _)| *name == first);
    let (_, at) = at.ok_or_else(|| ClientError::Config(format!("there is no {first}")))?;
    let mdt = links.open(&first, at, until)?;
    let grant = Grant::from_bytes(&mdt.welcome().data)
        .map_err(|_| failed(&first, at, NetError::Protocol("its welcome is unreadable".into())))?;
    let mut osts = BTreeMap::new();
    for (name, at) in &targets {
        if let Some(index) = ost_index(name) {
            let session = links.open(name, at, until)?;
            let ost = Ost::new(index, session, counters.clone(), &config.options);
            osts.insert(index, Arc::new(ost));
        }
    }
    Ok(Sessions { links, mdt, grant, osts })
}

/// The index in `OST0003`.
pub(crate) fn ost_index(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_prefix("OST")?, 16).ok()
}

impl Core {
    /// A layout names an OST that was not there at the start: the MGS may know it now.
    pub(crate) fn find_ost(self: &Arc<Core>, index: u32) -> Result<Arc<Ost>, Errno> {
        let _one = self.links.adding.lock();
        if let Some(ost) = self.osts.read().get(&index) {
            return Ok(ost.clone());
        }
        let name = target_name(KIND_OST, index);
        let Some(at) = self.links.moved(&name) else {
            tracing::error!(target = %name, "a layout names a target nobody knows");
            return Err(Errno::EIO);
        };
        let until = Instant::now() + TRY;
        let session = self.links.open(&name, &at, until).map_err(|why| {
            tracing::error!(%why, "new target");
            Errno::EIO
        })?;
        let ost = Arc::new(Ost::new(index, session, self.counters.clone(), &self.options));
        self.osts.write().insert(index, ost.clone());
        Ok(ost)
    }

    /// OSTs that joined since the start are taken in, so that statfs counts them.
    pub(crate) fn find_new_osts(self: &Arc<Core>) {
        if !self.links.mgs.as_ref().is_some_and(|mgs| mgs.is_connected()) {
            return;
        }
        let Ok(config) = self.links.config() else { return };
        for target in config.targets.0.iter().filter(|t| t.kind == KIND_OST) {
            if !self.osts.read().contains_key(&target.index) {
                // Failure is told when the target is needed.
                let _ = self.find_ost(target.index);
            }
        }
    }

    /// A target is lost: until it is back, looks whether it moved.
    pub(crate) fn follow(self: &Arc<Core>, target: &str, stopped: &AtomicBool) {
        let session = match ost_index(target) {
            Some(index) => match self.osts.read().get(&index) {
                Some(ost) => ost.session.clone(),
                None => return,
            },
            None => self.mdt.session.clone(),
        };
        if !session.is_connected()
            && !stopped.load(SeqCst)
            && let Some(at) = self.links.moved(target)
        {
            tracing::info!(target, %at, "target moved");
            session.set_endpoint(at);
        }
    }
}

/// Options are checked where they enter.
pub(crate) fn check(options: &Options) -> Result<(), ClientError> {
    let bad = |what: String| Err(ClientError::Config(what));
    if options.max_rpc_bytes < 65536 || options.max_rpc_bytes > proto::MAX_BULK {
        return bad(format!(
            "max_rpc_bytes {} is not 65536..{}",
            options.max_rpc_bytes,
            proto::MAX_BULK
        ));
    }
    if options.max_rpcs_in_flight == 0 || options.max_rpcs_in_flight > 256 {
        return bad(format!("max_rpcs_in_flight {} is not 1..256", options.max_rpcs_in_flight));
    }
    if options.max_dirty_mb == 0 || options.max_uncommitted_mb == 0 {
        return bad("max_dirty_mb and max_uncommitted_mb must be at least 1".into());
    }
    if options.max_cached_inodes < 1000 {
        return bad(format!("max_cached_inodes {} is less than 1000", options.max_cached_inodes));
    }
    Ok(())
}
