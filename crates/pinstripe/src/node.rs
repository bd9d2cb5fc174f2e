//! The servers of one process: management service, targets, listeners.
//!
//! Role: opens what it is told to, makes it reachable, keeps it announced, and ends it in the
//! order that loses nothing. Used by `server` and by `up`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{ClusterKey, Endpoint, Server, ServerOptions};
use proto::mgs::{Config, KIND_OST, Register};
use proto::{Errno, Fid};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::label::uuid_text;
use crate::memory::Memory;
use crate::mgs::Mgs;
use crate::targets::{Role, Target};

/// How long a start waits for the OSTs to be heard, and how often it looks.
const SETTLE: Duration = Duration::from_secs(5);
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// What a process shall serve.
#[derive(Clone, Default)]
pub struct Spec {
    /// Directory of the management service.
    pub mgs: Option<PathBuf>,
    /// Directories of metadata targets.
    pub mdts: Vec<PathBuf>,
    /// Memory of each metadata target for what is not being changed, MiB; as there is memory if nobody says.
    pub mdt_cache_mb: Option<u32>,
    /// Directories of object storage targets.
    pub osts: Vec<PathBuf>,
    /// The cluster key, needed for TCP.
    pub key: Option<ClusterKey>,
}

/// The servers of this process.
pub struct Node {
    server: Server,
    mgs: Option<Arc<Mgs>>,
    targets: Vec<Target>,
    key: Option<ClusterKey>,
}

impl Node {
    /// Opens everything; targets become reachable with [`Node::listen`].
    pub fn open(spec: &Spec) -> Outcome<Node> {
        Memory::here().bound_idle();
        let mgs = spec.mgs.as_deref().map(|dir| Mgs::open(dir, spec.key.clone())).transpose()?;
        let options = ServerOptions { key: spec.key.clone(), ..ServerOptions::default() };
        let server = Server::new(options);
        let mut node = Node { server, mgs, targets: Vec::new(), key: spec.key.clone() };
        let opened = node.open_targets(spec).and_then(|()| node.check());
        if let Err(e) = opened {
            node.close();
            return Err(e);
        }
        if let Some(mgs) = &node.mgs {
            node.server.add(mgs.clone());
        }
        for target in &node.targets {
            node.server.add(target.service());
        }
        let local = node.local();
        node.targets.iter().try_for_each(|t| t.watch(&local))?;
        Ok(node)
    }

    fn open_targets(&mut self, spec: &Spec) -> Outcome<()> {
        // Identities first: two directories with the same target must not both be opened.
        let dirs = spec.mdts.iter().map(|d| (Role::Mdt, d));
        let dirs: Vec<_> = dirs.chain(spec.osts.iter().map(|d| (Role::Ost, d))).collect();
        let mut seen: HashSet<String> = HashSet::new();
        for (role, dir) in &dirs {
            let name = crate::targets::name(*role, crate::targets::identify(*role, dir)?.index);
            if !seen.insert(name.clone()) {
                let text = format!(
                    "{} holds {name} like another of the given directories, a duplicate; leave one \
                     of them away",
                    dir.display()
                );
                return Err(Failure::run(text));
            }
        }
        for (role, dir) in dirs {
            self.targets.push(Target::open(role, dir, spec.mdt_cache_mb)?);
        }
        Ok(())
    }

    /// All targets of one process belong to one file system.
    fn check(&self) -> Outcome<()> {
        let mut known =
            self.mgs.as_ref().map(|m| ("the management service".to_string(), m.label().fs));
        for target in &self.targets {
            let fs = target.identity().1.fs;
            match &known {
                Some((other, expect)) if *expect != fs => {
                    let text = format!(
                        "{} belongs to another file system ({}) than {other} ({}); serve them by \
                         processes of their own",
                        target.name(),
                        uuid_text(&fs),
                        uuid_text(expect)
                    );
                    return Err(Failure::run(text));
                }
                Some(_) => {}
                None => known = Some((target.name(), fs)),
            }
        }
        Ok(())
    }

    /// The server, to add services to.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The management service, if it is here.
    pub fn mgs(&self) -> Option<&Arc<Mgs>> {
        self.mgs.as_ref()
    }

    /// The cluster key.
    pub fn key(&self) -> Option<&ClusterKey> {
        self.key.as_ref()
    }

    /// The targets.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Takes connections there; the real address.
    pub fn listen(&self, endpoint: &Endpoint) -> Outcome<Endpoint> {
        self.server.listen(endpoint).map_err(|e| Failure::run(clean(&e)))
    }

    /// The way to it from within the process.
    pub fn local(&self) -> Endpoint {
        Endpoint::Local(self.server.local())
    }

    /// What the management service is told about the targets.
    pub fn registrations(&self, address: &str) -> Vec<Register> {
        self.targets.iter().map(|t| t.registration(address)).collect()
    }

    /// Tells the MDTs which OSTs there are; those of this process are reached within it.
    pub fn know(&self, config: &Config) {
        let here = |uuid: &[u8; 16]| self.targets.iter().any(|t| t.identity().1.uuid == *uuid);
        let mut osts = Vec::new();
        for t in config.targets.0.iter().filter(|t| t.kind == KIND_OST) {
            let endpoint = match here(&t.uuid) {
                true => self.local(),
                false => match t.address.parse() {
                    Ok(endpoint) => endpoint,
                    Err(e) => {
                        tracing::error!("{} has an unusable address: {e}", t.name());
                        continue;
                    }
                },
            };
            osts.push((t.index, endpoint));
        }
        for target in &self.targets {
            if let Target::Mdt(mdt, ..) = target {
                mdt.set_osts(osts.clone(), self.key.clone());
            }
        }
    }

    /// Waits until the MDTs here have heard from this many OSTs, for a bounded time: before that a
    /// new file might not get the stripes asked for.
    pub fn settle(&self, osts: usize) {
        let end = Instant::now() + SETTLE;
        while !self.targets.iter().all(|t| t.hears(osts)) {
            if Instant::now() > end {
                tracing::warn!("not all OSTs answered yet; new files use those that did");
                return;
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
    }

    /// The paths of a file, from the first MDT here that knows it.
    pub fn paths(&self, fid: Fid) -> Result<Vec<Vec<u8>>, Errno> {
        let mut last = Err(Errno::EOPNOTSUPP);
        for answer in self.targets.iter().filter_map(|t| t.paths(fid)) {
            last = answer;
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// State of the targets and sessions, for `status`.
    pub fn status(&self) -> Value {
        let sessions = self.server.sessions();
        let sessions: Vec<Value> = sessions
            .iter()
            .map(|s| {
                let id: String = s.client().iter().map(|b| format!("{b:02x}")).collect();
                json!({ "id": id, "description": s.description(), "connected": s.is_connected() })
            })
            .collect();
        let targets: Vec<Value> = self.targets.iter().map(Target::status).collect();
        json!({ "targets": targets, "sessions": sessions, "mgs": self.mgs.is_some() })
    }

    /// Ends sessions and listeners, then the targets: MDTs first, their clean-up needs OSTs no more.
    pub fn close(&self) {
        crate::logging::stopping();
        self.server.shutdown();
        self.targets.iter().for_each(Target::close);
    }
}

/// The text of a network error without the class in front of it.
fn clean(e: &net::NetError) -> String {
    let text = e.to_string();
    for class in ["connection lost: ", "refused: "] {
        if let Some(rest) = text.strip_prefix(class) {
            return rest.to_string();
        }
    }
    text
}
