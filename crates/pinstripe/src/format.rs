//! `pinstripe format`: prepares targets, makes the cluster key.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::{Common, FormatArgs};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::keyfile::{self, KeyFile};
use crate::label::{INDEX_MAX, fs_uuid, uuid_text};
use crate::out;
use crate::targets::{self, Role};
use crate::volume::DEFAULT_NAME;

/// What to prepare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directories with their role and index.
    pub targets: Vec<(Role, PathBuf, u32)>,
    /// Name of the file system.
    pub name: String,
}

impl Plan {
    /// Numbers the targets of each kind from `first`; refuses the same directory twice.
    pub fn new(
        mgs: Option<&Path>,
        mdts: &[PathBuf],
        osts: &[PathBuf],
        first: u32,
        name: Option<&str>,
    ) -> Outcome<Plan> {
        let mut targets: Vec<(Role, PathBuf, u32)> = Vec::new();
        targets.extend(mgs.map(|d| (Role::Mgs, d.to_path_buf(), 0)));
        for (role, dirs) in [(Role::Mdt, mdts), (Role::Ost, osts)] {
            for (dir, index) in dirs.iter().zip(first..) {
                if index > INDEX_MAX {
                    return Err(Failure::usage(format!("index {index} is above {INDEX_MAX}")));
                }
                targets.push((role, dir.clone(), index));
            }
        }
        for (i, (_, dir, _)) in targets.iter().enumerate() {
            if targets[..i].iter().any(|(_, d, _)| d == dir) {
                let text =
                    format!("{} is given twice; each target has its own directory", dir.display());
                return Err(Failure::usage(text));
            }
        }
        Ok(Plan { targets, name: name.unwrap_or(DEFAULT_NAME).into() })
    }

    /// Prepares all of them, or none if one is refused.
    pub fn carry_out(&self, key: &KeyFile) -> Outcome<()> {
        let fs = fs_uuid(&key.text, &self.name);
        for (role, dir, index) in &self.targets {
            targets::format(*role, dir, fs, &self.name, *index)?;
        }
        Ok(())
    }

    fn check(&self) -> Outcome<()> {
        self.targets.iter().try_for_each(|(role, dir, _)| targets::refuse_used(*role, dir))
    }
}

/// Runs the command.
pub fn run(args: &FormatArgs, common: &Common, config: &Config) -> Outcome<()> {
    let plan = Plan::new(
        args.mgs.as_deref(),
        &args.mdt,
        &args.ost,
        args.index.unwrap_or(0),
        args.fsname.as_deref(),
    )?;
    if plan.targets.is_empty() {
        let text = "nothing to format; name directories with --mgs, --mdt or --ost";
        return Err(Failure::usage(text));
    }
    plan.check()?;
    let path = keyfile::path(args.key.key.as_deref().or(config.key.as_deref()));
    let (key, new) = keyfile::load_or_make(&path)?;
    plan.carry_out(&key)?;
    report(&plan, &key, new, common.json);
    Ok(())
}

fn report(plan: &Plan, key: &KeyFile, new: bool, as_json: bool) {
    let fs = fs_uuid(&key.text, &plan.name);
    if as_json {
        let targets: Vec<Value> = plan
            .targets
            .iter()
            .map(|(role, dir, index)| {
                json!({ "name": targets::name(*role, *index), "dir": dir.display().to_string() })
            })
            .collect();
        out::json(&json!({
            "fs": { "name": plan.name, "uuid": uuid_text(&fs) },
            "targets": targets,
            "key": key.path.display().to_string(),
            "key_is_new": new,
        }));
        return;
    }
    if new {
        let path = key.path.display();
        out::line(&format!(
            "made the cluster key {path}; copy it (mode 0600) to all servers and clients"
        ));
    }
    for (role, dir, index) in &plan.targets {
        let name = targets::name(*role, *index);
        out::line(&format!("{name} of '{}' is ready in {}", plan.name, dir.display()));
    }
}
