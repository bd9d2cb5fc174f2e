//! The list of targets, as the MGS keeps it.
//!
//! Role: decides which registration is taken and makes it durable before it is answered.
//! Assumption: one process at a time (the service holds a lock). Never does: network.

use std::path::{Path, PathBuf};

use proto::mgs::{Config, KIND_MDT, KIND_OST, Register, Target};
use proto::wire::{List, Wire};

use crate::label::{INDEX_MAX, uuid_text};
use crate::sealed::{Kind, SealError};

/// Name of the file in the MGS's directory.
pub const STATE_FILE: &str = "targets";
/// Most targets one file system may have.
pub const MAX_TARGETS: usize = 65_535;
/// Longest address of a target, in bytes.
pub const MAX_ADDRESS: usize = 4096;

const KIND: Kind = Kind { magic: *b"PSTMGS\0\0", version: 1, what: "list of targets" };

/// Why a registration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The target was formatted for another file system.
    #[error(
        "{target} belongs to another file system ({found}); this MGS serves {name} ({own}). Start it with its own MGS, or format it again in an empty directory with this file system's key"
    )]
    OtherFs {
        /// Name of the target.
        target: String,
        /// Its file system.
        found: String,
        /// Name of this one.
        name: String,
        /// This one.
        own: String,
    },
    /// Another target has the index.
    #[error(
        "{target} is already registered with another identity ({known}, this one is {found}); format the new target with a free --index"
    )]
    Duplicate {
        /// Name of the target.
        target: String,
        /// Known identity.
        known: String,
        /// Identity of the one refused.
        found: String,
    },
    /// A server that is there has it.
    #[error(
        "{target} is already served at {address} by {by}; stop that server first, or, if this directory is a copy of the target, take it away (a copy becomes no target of its own)"
    )]
    Served {
        /// Name of the target.
        target: String,
        /// Where it is listed.
        address: String,
        /// The process there.
        by: String,
    },
    /// A value nobody may send.
    #[error("the registration is not valid: {0}")]
    Invalid(String),
    /// It could not be kept.
    #[error("the list of targets cannot be written: {0}")]
    Io(String),
}

/// The list of targets in memory and on disk.
#[derive(Debug)]
pub struct MgsState {
    path: PathBuf,
    config: Config,
}

impl MgsState {
    /// Reads the list in `dir`; a directory without one starts empty.
    pub fn open(dir: &Path, fs: [u8; 16], name: &str) -> Result<MgsState, String> {
        let path = dir.join(STATE_FILE);
        let config = match KIND.load(&path) {
            Ok(body) => decode_body(&body),
            Err(SealError::Absent) => {
                Ok(Config { fs, name: name.into(), generation: 1, targets: List(vec![]) })
            }
            Err(e) => Err(e.to_string()),
        };
        let named = |e| format!("the list of targets {} cannot be used: {e}", path.display());
        let config = config.map_err(named)?;
        if config.fs != fs {
            return Err(named(format!("it is of another file system ({})", uuid_text(&config.fs))));
        }
        Ok(MgsState { path, config })
    }

    /// All that is known.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The target as it is listed, if this would move it to another address.
    pub fn moved(&self, r: &Register) -> Result<Option<Target>, RegisterError> {
        self.check(r)?;
        let known = self.config.targets.0.iter().find(|t| same(t, &r.target));
        Ok(known.filter(|t| t.address != r.target.address).cloned())
    }

    /// Takes a registration; what it changes is durable when this returns.
    pub fn register(&mut self, r: &Register) -> Result<(), RegisterError> {
        self.check(r)?;
        let targets = &self.config.targets.0;
        let place = targets.iter().position(|t| same(t, &r.target));
        if place.is_some_and(|at| targets[at] == r.target) {
            return Ok(());
        }
        let mut next = self.config.clone();
        match place {
            Some(at) => next.targets.0[at] = r.target.clone(),
            None => next.targets.0.push(r.target.clone()),
        }
        next.targets.0.sort_by_key(|t| (t.kind, t.index));
        next.generation += 1;
        KIND.store(&self.path, &next.to_bytes()).map_err(|e| RegisterError::Io(e.to_string()))?;
        self.config = next;
        Ok(())
    }

    fn check(&self, r: &Register) -> Result<(), RegisterError> {
        let target = r.target.name();
        if r.fs != self.config.fs {
            return Err(RegisterError::OtherFs {
                target,
                found: uuid_text(&r.fs),
                name: self.config.name.clone(),
                own: uuid_text(&self.config.fs),
            });
        }
        let invalid = |text: String| Err(RegisterError::Invalid(text));
        if !matches!(r.target.kind, KIND_MDT | KIND_OST) {
            return invalid(format!("kind {} is neither MDT nor OST", r.target.kind));
        }
        if r.target.index > INDEX_MAX {
            return invalid(format!("index {} is above {INDEX_MAX}", r.target.index));
        }
        if r.target.address.is_empty() || r.target.address.len() > MAX_ADDRESS {
            return invalid(format!("the address has {} bytes", r.target.address.len()));
        }
        match self.config.targets.0.iter().find(|t| same(t, &r.target)) {
            Some(known) if known.uuid != r.target.uuid => Err(RegisterError::Duplicate {
                target,
                known: uuid_text(&known.uuid),
                found: uuid_text(&r.target.uuid),
            }),
            None if self.config.targets.0.len() >= MAX_TARGETS => {
                invalid(format!("there are {MAX_TARGETS} targets already"))
            }
            _ => Ok(()),
        }
    }

    /// Reads a list's bytes (the fuzzed entry point).
    pub fn decode(bytes: &[u8]) -> Result<Config, String> {
        decode_body(KIND.open(bytes).map_err(|e| e.to_string())?)
    }

    /// The bytes of a list.
    pub fn encode(config: &Config) -> Vec<u8> {
        KIND.seal(&config.to_bytes())
    }
}

fn decode_body(body: &[u8]) -> Result<Config, String> {
    Config::from_bytes(body).map_err(|e| format!("it is damaged ({e}); restore it from a copy"))
}

fn same(a: &Target, b: &Target) -> bool {
    (a.kind, a.index) == (b.kind, b.index)
}

#[cfg(test)]
mod tests;
