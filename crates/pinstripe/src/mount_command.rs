//! `pinstripe mount`: a client of servers that run elsewhere.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use net::{ClusterKey, Endpoint, Server, ServerOptions};
use serde_json::{Map, Value, json};

use crate::cli::{Common, MountArgs};
use crate::config::Config;
use crate::control::Control;
use crate::failure::{Failure, Outcome};
use crate::memory::Memory;
use crate::mgs;
use crate::mounting::{self, Mounting, Wanted};
use crate::places::{self, Env};
use crate::record::Record;
use crate::resident::Resident;
use crate::signals::Stops;
use crate::{address, detach, keyfile, later, settings, volume};

/// Seconds to wait for the servers where nobody chose.
const WAIT: u64 = 30;

/// Runs the command.
pub fn run(args: MountArgs, common: &Common, config: &Config) -> Outcome<()> {
    let args = settings::mount(args, config);
    let setup = Setup::new(&args)?;
    if !args.foreground && !common.daemon_child {
        setup.refuse_running()?;
        let log = setup.log()?;
        let _waiting = setup.tell_later()?;
        let text = detach::start(&log).inspect_err(|_| {
            // What it says is in the error.
            let _ = std::fs::remove_file(&log);
        })?;
        if !args.quiet {
            crate::out::text(&text);
        }
        return Ok(());
    }
    if common.daemon_child {
        detach::settle();
    }
    setup.run(common)
}

struct Setup {
    mountpoint: PathBuf,
    endpoint: Endpoint,
    subdir: Option<PathBuf>,
    key: Option<ClusterKey>,
    wait: Duration,
    options: mounting::Options,
}

impl Setup {
    fn new(args: &MountArgs) -> Outcome<Setup> {
        let (endpoint, subdir) = address::parse_with_subdir(&args.address)?;
        let mut options = mounting::Options::parse_apart(&args.options)?;
        let wait = Duration::from_secs(args.wait.unwrap_or(WAIT));
        options.client.connect_timeout = wait.max(Duration::from_secs(1));
        let path = keyfile::path(args.key.key.as_deref());
        let key = match &endpoint {
            Endpoint::Tcp(_) => Some(keyfile::need(&path)?.key),
            _ if args.key.key.is_some() => Some(keyfile::need(&path)?.key),
            // Servers behind a Unix socket may name others on TCP.
            Endpoint::Unix(socket) => near_key(socket, &path),
            Endpoint::Local(_) => None,
        };
        let mountpoint = places::mountpoint(&args.mountpoint)?;
        Ok(Setup { mountpoint, endpoint, subdir, key, wait, options })
    }

    /// Says whom it waits for, should that take long.
    fn tell_later(&self) -> Outcome<Sender<()>> {
        later::say(format!(
            "nothing is mounted yet; waiting for the servers of {}, at most {} s",
            self.endpoint,
            self.wait.as_secs()
        ))
    }

    fn refuse_running(&self) -> Outcome<()> {
        Record::refuse_running(&self.mountpoint)?;
        mounting::refuse_unusable(&self.mountpoint, &self.options)
    }

    /// A name for this mount point's log and socket.
    fn place(&self, ending: &str) -> Outcome<PathBuf> {
        let mut name = places::escape(&self.mountpoint);
        name.push(ending);
        Ok(Env::real().runtime()?.join(name))
    }

    fn log(&self) -> Outcome<PathBuf> {
        self.place(".log")
    }

    /// A log in which nothing was said is of no use to anybody.
    fn forget_log(&self) {
        let Ok(log) = self.log() else { return };
        if std::fs::metadata(&log).is_ok_and(|m| m.len() == 0) {
            let _ = std::fs::remove_file(&log);
        }
    }

    fn run(&self, common: &Common) -> Outcome<()> {
        let stops = Stops::listen()?;
        Memory::here().bound_idle();
        self.refuse_running()?;
        // Asked first with a clear answer: a wrong address or key is the usual mistake.
        let waiting = (!common.daemon_child).then(|| self.tell_later()).transpose()?;
        let session = mgs::connect(&self.endpoint, "MGS", self.key.as_ref(), self.wait)?;
        let config = mgs::fetch(&session)?;
        session.close();
        drop(waiting);
        let runtime = Env::real().runtime()?;
        places::sweep_sockets(&runtime);
        let socket = places::socket(&runtime, &format!("{}.sock", std::process::id()))?;
        let server = Server::new(ServerOptions { shards: 1, ..ServerOptions::default() });
        let resident = Arc::new(self.resident(&socket));
        server.add(Control::new(resident.clone())?);
        let listening = server.listen(&Endpoint::Unix(socket.clone()));
        listening.map_err(|e| Failure::run(e.to_string()))?;
        let mounting = self.mount(&config.name)?;
        let _ = resident.client.set(mounting.client().clone());
        let mut record = Record::own("mount", &self.mountpoint, &socket);
        record.log = if common.daemon_child { Some(self.log()?) } else { None };
        let record = match record.publish() {
            Ok(record) => record,
            Err(e) => {
                mounting.abandon();
                return Err(e);
            }
        };
        detach::announce(&self.text(&config.name, common), common.daemon_child);
        let ended = mounting.serve_until(&stops);
        record.ended(&ended);
        server.shutdown();
        if common.daemon_child && ended.is_ok() {
            self.forget_log();
        }
        // Last: who mounts there again waits for what has one.
        drop(record);
        ended
    }

    fn mount(&self, name: &str) -> Outcome<Mounting> {
        let subdir = self.subdir.as_deref().map(|s| format!("/{}", s.display()));
        mounting::start(Wanted {
            mgs: client::Mgs::At(vec![self.endpoint.clone()]),
            key: self.key.clone(),
            subdir: self.subdir.clone(),
            options: &self.options,
            source: format!("{}:{}", self.endpoint, subdir.unwrap_or_else(|| format!("/{name}"))),
            mountpoint: &self.mountpoint,
            role: "mount",
        })
    }

    fn resident(&self, socket: &Path) -> Resident {
        let mut facts = Map::new();
        facts.insert("mountpoint".into(), self.mountpoint.display().to_string().into());
        facts.insert("server".into(), Value::from(self.endpoint.to_string()));
        facts.insert("socket".into(), format!("unix:{}", socket.display()).into());
        Resident {
            role: "mount",
            node: None,
            client: OnceLock::new(),
            mgs: Some(self.endpoint.clone()),
            key: self.key.clone(),
            address: OnceLock::new(),
            facts,
            since: Instant::now(),
        }
    }

    fn text(&self, name: &str, common: &Common) -> String {
        let mountpoint = self.mountpoint.display();
        if common.json {
            let facts = json!({
                "mountpoint": mountpoint.to_string(),
                "server": self.endpoint.to_string(),
                "fs": name,
                "pid": std::process::id(),
            });
            return format!("{facts}\n");
        }
        format!("Pinstripe '{name}' of {} is mounted at {mountpoint}\n", self.endpoint)
    }
}

/// A key for a client that came by a Unix socket: that of the data directory the socket lies in, or
/// the default.
fn near_key(socket: &Path, default: &Path) -> Option<ClusterKey> {
    let data = socket.parent().and_then(Path::parent).map(|d| d.join(volume::KEY));
    let found = |p: PathBuf| keyfile::load(&p).ok().flatten().map(|k| k.key);
    data.and_then(found).or_else(|| found(default.to_path_buf()))
}
