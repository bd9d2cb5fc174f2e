//! `pinstripe server`: any mix of roles in one process, until a signal ends it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use net::{Endpoint, Session};
use serde_json::{Map, json};

use crate::cli::{Common, ServerArgs};
use crate::config::Config;
use crate::control::Control;
use crate::failure::{Failure, Outcome};
use crate::format::Plan;
use crate::keyfile::{self, KeyFile};
use crate::mgs::{self, Registrar};
use crate::node::{Node, Spec};
use crate::resident::Resident;
use crate::signals::Stops;
use crate::{address, out, settings, targets};

/// Seconds to wait for the management service where nobody chose.
const MGS_WAIT: u64 = 30;

/// Runs the command.
pub fn run(args: ServerArgs, common: &Common, config: &Config) -> Outcome<()> {
    let args = settings::server(args, config)?;
    let plan = Setup::new(&args)?;
    let key = plan.key(&args)?;
    if args.format {
        plan.format(&args, key.as_ref())?;
    }
    // Listening to signals before anything is open: none of them ends it halfway.
    let stops = Stops::listen()?;
    let key = key.map(|k| k.key);
    let (mgs, mdts, osts) = (plan.mgs.clone(), args.mdt, args.ost);
    let spec = Spec { mgs, mdts, mdt_cache_mb: args.mdt_cache_mb, osts, key: key.clone() };
    let node = Arc::new(Node::open(&spec)?);
    let served = serve(&node, &plan, common, &stops);
    node.close();
    served
}

/// What the options come to.
struct Setup {
    mgs: Option<PathBuf>,
    mgs_addr: Option<Endpoint>,
    listen: Vec<Endpoint>,
    advertise: Option<String>,
    wait: Duration,
}

impl Setup {
    fn new(args: &ServerArgs) -> Outcome<Setup> {
        let mgs = mgs_dir(args)?;
        if mgs.is_none() && args.mdt.is_empty() && args.ost.is_empty() {
            let text = "nothing to serve; name roles with --mgs, --mdt DIR or --ost DIR";
            return Err(Failure::usage(text));
        }
        if args.listen.is_empty() {
            let text = "say where to listen with --listen HOST:PORT (port 0: any) or unix:/PATH";
            return Err(Failure::usage(text));
        }
        let listen: Vec<Endpoint> =
            args.listen.iter().map(|a| address::parse(a)).collect::<Outcome<_>>()?;
        listen.iter().try_for_each(|e| address::check_listen(e, args.allow_remote))?;
        let mgs_addr = args.mgs_addr.as_deref().map(address::parse).transpose()?;
        if mgs.is_none() && mgs_addr.is_none() {
            let text = "where is the management service? Name it with --mgs-addr ADDR, or run it \
                        here with --mgs";
            return Err(Failure::usage(text));
        }
        if let Some(text) = &args.advertise {
            address::parse(text)?;
        }
        let wait = Duration::from_secs(args.mgs_wait.unwrap_or(MGS_WAIT));
        Ok(Setup { mgs, mgs_addr, listen, advertise: args.advertise.clone(), wait })
    }

    /// The key: needed as soon as TCP is spoken, and to give new targets their identity.
    fn key(&self, args: &ServerArgs) -> Outcome<Option<KeyFile>> {
        let tcp = |e: &Endpoint| matches!(e, Endpoint::Tcp(_));
        let path = keyfile::path(args.key.key.as_deref());
        let needed = self.listen.iter().any(tcp) || self.mgs_addr.as_ref().is_some_and(tcp);
        match (args.format, needed || args.key.key.is_some()) {
            (true, _) => keyfile::load_or_make(&path).map(|(key, _)| Some(key)),
            (false, true) => keyfile::need(&path).map(Some),
            (false, false) => Ok(None),
        }
    }

    fn format(&self, args: &ServerArgs, key: Option<&KeyFile>) -> Outcome<()> {
        let Some(key) = key else { return Ok(()) };
        let first = args.index.unwrap_or(0);
        let mgs = self.mgs.as_deref();
        let plan = Plan::new(mgs, &args.mdt, &args.ost, first, args.fsname.as_deref())?;
        let new =
            |(role, dir, _): &(targets::Role, PathBuf, u32)| targets::identify(*role, dir).is_err();
        let targets = plan.targets.into_iter().filter(new).collect();
        Plan { targets, name: plan.name }.carry_out(key)
    }
}

/// Where the management service lies, if it is wanted.
fn mgs_dir(args: &ServerArgs) -> Outcome<Option<PathBuf>> {
    match (&args.mgs_dir, args.mgs) {
        (Some(dir), _) => Ok(Some(dir.clone())),
        (None, false) => Ok(None),
        (None, true) => match args.mdt.iter().chain(&args.ost).next() {
            Some(first) => Ok(Some(first.with_file_name("mgs"))),
            None => {
                let text = "say with --mgs-dir DIR where the management service keeps its list";
                Err(Failure::usage(text))
            }
        },
    }
}

fn serve(node: &Arc<Node>, plan: &Setup, common: &Common, stops: &Stops) -> Outcome<()> {
    let resident = Arc::new(Resident {
        role: "server",
        node: Some(node.clone()),
        client: OnceLock::new(),
        mgs: plan.mgs_addr.clone(),
        key: node.key().cloned(),
        address: OnceLock::new(),
        facts: Map::new(),
        since: Instant::now(),
    });
    node.server().add(Control::new(resident.clone())?);
    let real: Vec<Endpoint> = plan.listen.iter().map(|e| node.listen(e)).collect::<Outcome<_>>()?;
    let first = real.first().ok_or_else(|| Failure::usage("say where to listen with --listen"))?;
    let told = address::advertised(first, plan.advertise.as_deref())?;
    let _ = resident.address.set(told.clone());
    let _registrar = register(node, plan, &told)?;
    announce(node, &real, common.json);
    let stop = stops.wait();
    tracing::info!("stopping ({stop:?})");
    Ok(())
}

/// Announces the targets to the management service, here or elsewhere.
fn register(node: &Arc<Node>, plan: &Setup, told: &str) -> Outcome<Registrar> {
    let session: Arc<Session> = match (&plan.mgs_addr, node.mgs()) {
        (_, Some(_)) => mgs::connect(&node.local(), "MGS", None, Duration::ZERO)?,
        (Some(at), None) => mgs::connect(at, "MGS", node.key(), plan.wait)?,
        (None, None) => return Err(Failure::usage("where is the management service?")),
    };
    let knows = Arc::downgrade(node);
    Registrar::start(session, node.registrations(told), move |config| {
        if let Some(node) = knows.upgrade() {
            node.know(config);
        }
    })
}

/// One line for whoever started it.
fn announce(node: &Node, real: &[Endpoint], as_json: bool) {
    let addresses: Vec<String> = real.iter().map(ToString::to_string).collect();
    let names: Vec<String> = node.targets().iter().map(|t| t.name()).collect();
    if as_json {
        let mgs = node.mgs().is_some();
        out::json(&json!({
            "listening": addresses,
            "targets": names,
            "mgs": mgs,
            "pid": std::process::id(),
        }));
    } else {
        addresses.iter().for_each(|a| out::line(&format!("listening on {a}")));
    }
}
