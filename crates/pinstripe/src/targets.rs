//! Targets as a server process holds them: one view of MDTs and OSTs.
//!
//! Role: prepares, identifies, opens, describes and closes targets; what differs between the
//! kinds stays here. Never does: network.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use mds::{Mdt, MdtError, MdtLabel, MdtOptions};
use net::Service;
use oss::{Ost, OstError, OstLabel, OstOptions, OstService};
use proto::mds::{Op, Res};
use proto::mgs::{KIND_MDT, KIND_MGS, KIND_OST, Register, target_name};
use proto::{Errno, Fid};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure, Outcome};
use crate::label::{Label, kind_name, new_uuid, uuid_text};
use crate::locked;
use crate::memory::Memory;
use crate::watch::Watch;

/// What a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Management service.
    Mgs,
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

impl Role {
    /// As `proto::mgs` numbers it.
    pub fn kind(self) -> u8 {
        match self {
            Role::Mgs => KIND_MGS,
            Role::Mdt => KIND_MDT,
            Role::Ost => KIND_OST,
        }
    }
}

/// Who a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// File system.
    pub fs: [u8; 16],
    /// Its name.
    pub fs_name: String,
    /// Index within its kind.
    pub index: u32,
    /// Identity of the target.
    pub uuid: [u8; 16],
}

/// A target's name.
pub fn name(role: Role, index: u32) -> String {
    target_name(role.kind(), index)
}

/// Prepares `dir`, which must be empty or missing (or hold what was left of this when it was killed).
pub fn format(role: Role, dir: &Path, fs: [u8; 16], fs_name: &str, index: u32) -> Outcome<()> {
    refuse_used(role, dir)?;
    let (fs_name, uuid) = (fs_name.to_string(), new_uuid());
    match role {
        Role::Mgs => {
            let made = std::fs::create_dir_all(dir);
            made.doing(|| format!("cannot make {}", dir.display()))?;
            let label = Label { fs, name: fs_name, kind: KIND_MGS, index, uuid };
            label.write(dir).doing(|| format!("cannot write to {}", dir.display()))
        }
        Role::Mdt => {
            let label = MdtLabel { fs, fsname: fs_name, index, uuid };
            Mdt::format(dir, &label).map_err(|e| Failure::run(e.to_string()))
        }
        Role::Ost => {
            let label = OstLabel { fs, fs_name, index, uuid };
            Ost::format(dir, &label).map_err(|e| Failure::run(e.to_string()))
        }
    }
}

/// Refuses a directory that holds anything, and says what.
pub fn refuse_used(new: Role, dir: &Path) -> Outcome<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.doing(|| format!("cannot read {}", dir.display()))?,
    };
    for role in [Role::Mgs, Role::Mdt, Role::Ost] {
        if let Ok(who) = identify(role, dir) {
            let text = format!(
                "{} already holds {} of the file system '{}'; it is not touched. Use an empty \
                 directory, or remove this one yourself",
                dir.display(),
                name(role, who.index),
                who.fs_name
            );
            return Err(Failure::run(text));
        }
    }
    match new {
        Role::Mdt => return Mdt::refuse_used(dir).map_err(|e| Failure::run(e.to_string())),
        Role::Ost => return Ost::refuse_used(dir).map_err(|e| Failure::run(e.to_string())),
        Role::Mgs => {}
    }
    let names = entries.filter_map(|e| e.ok().map(|e| e.file_name()));
    match names.into_iter().find(|n| n != "lost+found") {
        None => Ok(()),
        Some(n) => Err(Failure::run(format!(
            "{} is not empty (it holds '{}'); give an empty directory",
            dir.display(),
            n.to_string_lossy()
        ))),
    }
}

/// Reads who the target in `dir` is.
pub fn identify(role: Role, dir: &Path) -> Outcome<Identity> {
    let failed = |e: &dyn std::fmt::Display| Failure::run(e.to_string());
    match role {
        Role::Mgs => {
            let none = || Failure::run(format!("{} holds no management service", dir.display()));
            let l = Label::read(dir)?.ok_or_else(none)?;
            Ok(Identity { fs: l.fs, fs_name: l.name, index: l.index, uuid: l.uuid })
        }
        Role::Mdt => {
            let l = Mdt::label(dir).map_err(|e| failed(&e))?;
            Ok(Identity { fs: l.fs, fs_name: l.fsname, index: l.index, uuid: l.uuid })
        }
        Role::Ost => {
            let l = Ost::label(dir).map_err(|e| failed(&e))?;
            Ok(Identity { fs: l.fs, fs_name: l.fs_name, index: l.index, uuid: l.uuid })
        }
    }
}

/// An open target.
pub enum Target {
    /// Metadata, with its directory and a way to look into it.
    Mdt(Arc<Mdt>, Identity, PathBuf, OnceLock<Watch>),
    /// Objects.
    Ost(Arc<OstService>, Identity),
}

fn mdt_options(cache_mb: Option<u32>) -> MdtOptions {
    let usual = MdtOptions::default();
    let cache = match cache_mb {
        Some(mib) => u64::from(mib) << 20,
        None => Memory::here().part_of(usual.cache_bytes as u64),
    };
    MdtOptions { cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX), ..usual }
}

impl Target {
    /// Opens the target in `dir`; an MDT with so much memory for what is not being changed.
    pub fn open(role: Role, dir: &Path, cache_mb: Option<u32>) -> Outcome<Target> {
        let who = identify(role, dir)?;
        let failed = |e: &dyn std::fmt::Display| {
            Failure::run(format!("cannot open {} in {}: {e}", name(role, who.index), dir.display()))
        };
        match role {
            Role::Mgs => Err(Failure::run("the management service is no target")),
            Role::Mdt => {
                let open = || Mdt::open(dir, mdt_options(cache_mb));
                let mdt = locked::opens(&Mdt::lock_file(dir), MdtError::is_in_use, open);
                let mdt = mdt.map_err(|e| failed(&e))?;
                Ok(Target::Mdt(mdt, who, dir.to_path_buf(), OnceLock::new()))
            }
            Role::Ost => {
                let open = || Ost::open(dir, OstOptions::default());
                let lock = Ost::lock_file(dir);
                let ost = locked::opens(&lock, OstError::is_in_use, open);
                let ost = ost.map_err(|e| match e.is_in_use() {
                    true => failed(&format_args!(
                        "{e}{}; stop that server, or give this one another directory",
                        locked::user(&lock)
                    )),
                    false => failed(&e),
                })?;
                let service = OstService::new(ost).map_err(|e| failed(&e))?;
                Ok(Target::Ost(Arc::new(service), who))
            }
        }
    }

    /// Its kind and who it is.
    pub fn identity(&self) -> (Role, &Identity) {
        match self {
            Target::Mdt(_, who, ..) => (Role::Mdt, who),
            Target::Ost(_, who) => (Role::Ost, who),
        }
    }

    /// Its namespace, if it is an MDT.
    pub fn mdt(&self) -> Option<&Mdt> {
        match self {
            Target::Mdt(mdt, ..) => Some(mdt),
            Target::Ost(..) => None,
        }
    }

    /// Its objects, if it is an OST.
    pub fn ost(&self) -> Option<&Ost> {
        match self {
            Target::Mdt(..) => None,
            Target::Ost(service, _) => Some(service.ost()),
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        let (role, who) = self.identity();
        name(role, who.index)
    }

    /// What serves it.
    pub fn service(&self) -> Arc<dyn Service> {
        match self {
            Target::Mdt(mdt, ..) => mdt.clone(),
            Target::Ost(service, _) => service.clone(),
        }
    }

    /// What the management service is told.
    pub fn registration(&self, address: &str) -> Register {
        let (role, who) = self.identity();
        let target = proto::mgs::Target {
            kind: role.kind(),
            index: who.index,
            uuid: who.uuid,
            address: address.into(),
        };
        Register { fs: who.fs, target }
    }

    /// Opens the way to look into an MDT, once its server takes sessions.
    pub fn watch(&self, local: &net::Endpoint) -> Outcome<()> {
        if let Target::Mdt(.., watch) = self {
            let open = Watch::open(local, &self.name())?;
            let _ = watch.set(open);
        }
        Ok(())
    }

    /// Whether an MDT has heard from at least `osts` OSTs; anything else always has.
    pub fn hears(&self, osts: usize) -> bool {
        let Target::Mdt(.., watch) = self else { return true };
        let Some(Ok(Res::Data { data })) = watch.get().map(|w| w.ask(Op::Status {})) else {
            return false;
        };
        let state: Value = serde_json::from_slice(&data).unwrap_or_default();
        let up = state["osts"].as_array().into_iter().flatten().filter(|o| o["up"] == true);
        up.count() >= osts
    }

    /// The paths of a file; `None` where this is no MDT.
    pub fn paths(&self, fid: Fid) -> Option<Result<Vec<Vec<u8>>, Errno>> {
        let Target::Mdt(.., watch) = self else { return None };
        Some(match watch.get().map(|w| w.ask(Op::FidToPath { fid })) {
            Some(Ok(Res::Paths { paths })) => Ok(paths.0),
            Some(Ok(_)) => Err(Errno::EPROTO),
            Some(Err(e)) => Err(e),
            None => Err(Errno::EAGAIN),
        })
    }

    /// Its state, for `status`.
    pub fn status(&self) -> Value {
        let (role, who) = self.identity();
        let mut state = json!({
            "name": self.name(),
            "kind": kind_name(role.kind()),
            "index": who.index,
            "uuid": uuid_text(&who.uuid),
        });
        let more = match self {
            Target::Mdt(_, _, dir, watch) => mdt_status(dir, watch.get()),
            Target::Ost(service, _) => ost_status(service.ost()),
        };
        if let (Some(state), Some(more)) = (state.as_object_mut(), more.as_object()) {
            state.extend(more.clone());
        }
        state
    }

    /// Ends it cleanly.
    pub fn close(&self) {
        let done = match self {
            Target::Mdt(mdt, ..) => mdt.close().map_err(|e| e.to_string()),
            Target::Ost(service, _) => service.ost().close().map_err(|e| e.to_string()),
        };
        if let Err(e) = done {
            tracing::error!("closing {}: {e}", self.name());
        }
    }
}

fn mdt_status(dir: &Path, watch: Option<&Watch>) -> Value {
    let Some(watch) = watch else { return json!({}) };
    let mut state = match watch.ask(Op::Status {}) {
        Ok(Res::Data { data }) => serde_json::from_slice(&data).unwrap_or_else(|_| json!({})),
        Ok(_) => json!({}),
        Err(e) => return json!({ "error": e.to_string() }),
    };
    if let Ok(Res::Statfs { files, files_free, .. }) = watch.ask(Op::Statfs {}) {
        state["files"] = files.into();
        state["files_free"] = files_free.into();
        state["inodes"] = files.saturating_sub(files_free).into();
    }
    if let Ok(vfs) = rustix::fs::statvfs(dir) {
        state["total"] = vfs.f_blocks.saturating_mul(vfs.f_frsize).into();
        state["free"] = vfs.f_bavail.saturating_mul(vfs.f_frsize).into();
    }
    state
}

fn ost_status(ost: &Ost) -> Value {
    match ost.statfs() {
        Err(e) => json!({ "error": e.to_string() }),
        Ok(s) => json!({
            "total": s.total,
            "free": s.free,
            "files": s.files,
            "files_free": s.files_free,
            "inodes": s.objects,
            "epoch": ost.epoch(),
        }),
    }
}
