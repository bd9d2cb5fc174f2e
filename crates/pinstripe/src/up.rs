//! `pinstripe up`: a whole file system on this machine, in one process, with its mount.
//!
//! Order: what can be refused is refused before anything is made; the data directory's lock comes
//! before anything in it is touched; the mount is announced when it can be used. Taking down goes
//! the other way round. The mount reaches its servers in process; others of the same user by a
//! Unix socket.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use net::Endpoint;
use proto::SetAttr;
use proto::attr::{S_GID, S_UID};
use proto::mds::Cred;
use proto::wire::List;
use serde_json::{Map, Value, json};

use crate::cli::{Common, UpArgs};
use crate::config::Config;
use crate::control::Control;
use crate::failure::{Doing, Failure, Outcome};
use crate::mgs::{self, Registrar};
use crate::mounting::{self, Mounting, Wanted};
use crate::node::{Node, Spec};
use crate::places::{self, Env};
use crate::record::{Published, Record};
use crate::resident::Resident;
use crate::signals::Stops;
use crate::volume::{Volume, Wish};
use crate::{address, detach, settings};

/// Runs the command.
pub fn run(args: UpArgs, common: &Common, config: &Config) -> Outcome<()> {
    let args = settings::up(args, config)?;
    let plan = Setup::new(&args)?;
    if args.detach && !common.daemon_child {
        plan.refuse_running()?;
        Volume::examine(&plan.data, &plan.wish)?;
        places::make_private(&plan.log_dir())?;
        let text = detach::start(&plan.log())?;
        crate::out::text(&text);
        return Ok(());
    }
    if common.daemon_child {
        detach::settle();
    }
    plan.run(common)
}

/// What the options come to.
struct Setup {
    mountpoint: PathBuf,
    data: PathBuf,
    listen: Vec<Endpoint>,
    options: mounting::Options,
    wish: Wish,
    mdt_cache_mb: Option<u32>,
}

impl Setup {
    fn new(args: &UpArgs) -> Outcome<Setup> {
        let options = mounting::Options::parse(&args.options)?;
        let listen: Vec<Endpoint> =
            args.listen.iter().map(|a| address::parse(a)).collect::<Outcome<_>>()?;
        listen.iter().try_for_each(|e| address::check_listen(e, args.allow_remote))?;
        let wish = Wish { name: args.fsname.clone(), mdts: args.mdts, osts: args.osts };
        let given = args
            .data
            .as_ref()
            .map(|dir| std::path::absolute(dir).doing(|| format!("{}", dir.display())));
        let given = given.transpose()?;
        if let Some(dir) = &given {
            Volume::examine(dir, &wish)?;
        }
        mounting::prepare(&args.mountpoint)?;
        let mountpoint = places::mountpoint(&args.mountpoint)?;
        let data = match given {
            Some(dir) => dir,
            None => Env::real().data(&mountpoint)?,
        };
        if data.starts_with(&mountpoint) {
            let text = format!(
                "the data directory {} lies below the mount point; keep it elsewhere",
                data.display()
            );
            return Err(Failure::usage(text));
        }
        let mdt_cache_mb = args.mdt_cache_mb;
        Ok(Setup { mountpoint, data, listen, options, wish, mdt_cache_mb })
    }

    fn log_dir(&self) -> PathBuf {
        self.data.join("log")
    }

    fn log(&self) -> PathBuf {
        self.log_dir().join("pinstripe.log")
    }

    /// Refuses a mount point that is served already.
    fn refuse_running(&self) -> Outcome<()> {
        Record::refuse_running(&self.mountpoint)?;
        mounting::refuse_unusable(&self.mountpoint, &self.options)
    }

    fn run(&self, common: &Common) -> Outcome<()> {
        let stops = Stops::listen()?;
        self.refuse_running()?;
        let (volume, made) = Volume::prepare(&self.data, &self.wish)?;
        if !made.is_empty() {
            tracing::info!("made {}", made.join(", "));
        }
        self.detach_left(&volume)?;
        let key = volume.key()?.key;
        let spec = Spec {
            mgs: Some(volume.mgs()),
            mdts: volume.mdts(),
            mdt_cache_mb: self.mdt_cache_mb,
            osts: volume.osts(),
            key: Some(key),
        };
        let node = Arc::new(Node::open(&spec)?);
        let served = self.serve(&node, &volume, common, &stops);
        node.close();
        // Its record goes last: who mounts there again waits for what has one.
        served.map(drop)
    }

    /// Takes away what processes that were killed left mounted elsewhere of the same files: they are
    /// this process's now, and nobody will answer there.
    fn detach_left(&self, volume: &Volume) -> Outcome<()> {
        let same = |r: &Record| r.data.as_deref() == Some(&volume.dir);
        for left in Record::dead()?.iter().filter(|r| same(r)).map(|r| &r.mountpoint) {
            match fuse::detach_dead(left) {
                Ok(_) => tracing::info!("took a dead mount off {}", left.display()),
                Err(e) => tracing::warn!("a dead mount stays on {}: {e}", left.display()),
            }
        }
        Ok(())
    }

    fn serve(
        &self,
        node: &Arc<Node>,
        volume: &Volume,
        common: &Common,
        stops: &Stops,
    ) -> Outcome<Published> {
        let socket = volume.socket()?;
        let resident = Arc::new(self.resident(node, volume, &socket));
        node.server().add(Control::new(resident.clone())?);
        let told = node.listen(&Endpoint::Unix(socket.clone()))?;
        let also = self.listen.iter().map(|e| node.listen(e)).collect::<Outcome<Vec<_>>>()?;
        let told = address::advertised(also.first().unwrap_or(&told), None)?;
        let _ = resident.address.set(told.clone());
        let _registrar = register(node, &told)?;
        node.settle(volume.osts().len());
        let mounting = self.mount(node, volume)?;
        if let Err(e) = own_root(mounting.client()) {
            mounting.abandon();
            return Err(e);
        }
        let _ = resident.client.set(mounting.client().clone());
        let record = match self.publish(volume, &socket, common) {
            Ok(record) => record,
            Err(e) => {
                mounting.abandon();
                return Err(e);
            }
        };
        detach::announce(&self.text(volume, &socket, &also, common), common.daemon_child);
        let ended = mounting.serve_until(stops);
        record.ended(&ended);
        ended.map(|()| record)
    }

    fn resident(&self, node: &Arc<Node>, volume: &Volume, socket: &Path) -> Resident {
        let mut facts = Map::new();
        let text = |p: &Path| Value::from(p.display().to_string());
        facts.insert("mountpoint".into(), text(&self.mountpoint));
        facts.insert("data".into(), text(&volume.dir));
        facts.insert("socket".into(), format!("unix:{}", socket.display()).into());
        Resident {
            role: "up",
            node: Some(node.clone()),
            client: OnceLock::new(),
            mgs: None,
            key: node.key().cloned(),
            address: OnceLock::new(),
            facts,
            since: Instant::now(),
        }
    }

    fn mount(&self, node: &Arc<Node>, volume: &Volume) -> Outcome<Mounting> {
        mounting::start(Wanted {
            mgs: client::Mgs::Targets { fs: fs_of(node)?, targets: local_targets(node) },
            key: None,
            subdir: None,
            options: &self.options,
            source: format!("pinstripe:{}", volume.name()),
            mountpoint: &self.mountpoint,
            role: "up",
        })
    }

    fn publish(&self, volume: &Volume, socket: &Path, common: &Common) -> Outcome<Published> {
        let mut record = Record::own("up", &self.mountpoint, socket);
        record.data = Some(volume.dir.clone());
        record.log = common.daemon_child.then(|| self.log());
        record.publish()
    }

    fn text(&self, volume: &Volume, socket: &Path, also: &[Endpoint], common: &Common) -> String {
        let counts = volume.counts();
        let mountpoint = self.mountpoint.display();
        let log = common.daemon_child.then(|| self.log().display().to_string());
        let addresses: Vec<String> = also.iter().map(ToString::to_string).collect();
        if common.json {
            let facts = json!({
                "mountpoint": mountpoint.to_string(),
                "data": volume.dir.display().to_string(),
                "socket": format!("unix:{}", socket.display()),
                "listening": addresses,
                "log": log,
                "pid": std::process::id(),
                "mdts": counts.mdts,
                "osts": counts.osts,
            });
            return format!("{facts}\n");
        }
        let mut text = format!(
            "Pinstripe '{}' is mounted at {mountpoint} ({} MDT{}, {} OST{})\n",
            volume.name(),
            counts.mdts,
            if counts.mdts == 1 { "" } else { "s" },
            counts.osts,
            if counts.osts == 1 { "" } else { "s" }
        );
        let mut line = |label: &str, what: String| text += &format!("  {label:<9}{what}\n");
        line("files in", volume.dir.display().to_string());
        line("socket", format!("unix:{}", socket.display()));
        addresses.into_iter().for_each(|a| line("address", a));
        if let Some(log) = log {
            line("log", log);
        }
        if counts.mdts > 1 {
            line(
                "note",
                "in this version all names are on MDT0000; the other MDTs are idle".into(),
            );
        }
        line("stripes", format!("pinstripe lfs getstripe {mountpoint}/FILE"));
        line("state", format!("pinstripe status {mountpoint}"));
        let end = if common.daemon_child { "" } else { "Ctrl-C, or " };
        line("end it", format!("{end}pinstripe down {mountpoint}"));
        text
    }
}

fn fs_of(node: &Node) -> Outcome<[u8; 16]> {
    let mgs = node.mgs().ok_or_else(|| Failure::run("there is no management service"))?;
    Ok(mgs.label().fs)
}

fn local_targets(node: &Node) -> Vec<(String, Endpoint)> {
    node.targets().iter().map(|t| (t.name(), node.local())).collect()
}

/// Announces the targets and tells the MDTs of the OSTs.
fn register(node: &Arc<Node>, told: &str) -> Outcome<Registrar> {
    let session = mgs::connect(&node.local(), "MGS", None, Duration::ZERO)?;
    let knows = Arc::downgrade(node);
    Registrar::start(session, node.registrations(told), move |config| {
        if let Some(node) = knows.upgrade() {
            node.know(config);
        }
    })
}

/// The root directory of an ordinary user's file system is that user's: format gave it to root,
/// who could not be asked for anything there.
fn own_root(client: &client::Client) -> Outcome<()> {
    let root = client.root();
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() || root.uid != 0 {
        return Ok(());
    }
    let cred = Cred { uid: 0, gid: 0, groups: List(Vec::new()) };
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    let set = SetAttr { valid: S_UID | S_GID, uid, gid, ..SetAttr::none() };
    let done = client.setattr(&cred, root.fid, set, None).and_then(|_| client.sync_all());
    done.doing(|| "cannot give the root directory to its user".into())
}
