//! The management target: its label, and the list of targets it gives out.
//!
//! Role: what `server --mgs` would refuse to start with is named beside everything else. Never does:
//! write.

use std::path::Path;

use proto::mgs::KIND_MGS;

use super::Findings;
use crate::label::{LABEL_FILE, Label, kind_name};
use crate::mgs::{MgsState, STATE_FILE};
use crate::targets::{self, Role};

/// What is wrong with it, and the file system it is of, if that can be told.
pub fn check(dir: &Path, findings: &mut Findings) -> Option<[u8; 16]> {
    let name = targets::name(Role::Mgs, 0);
    let mut problem = |file: &str, text: String| {
        findings.problem(&name, "damaged-record", file.to_string(), text);
    };
    let label = match Label::read(dir) {
        Ok(Some(label)) if label.kind == KIND_MGS => label,
        Ok(Some(label)) => {
            let kind = kind_name(label.kind);
            problem(LABEL_FILE, format!("{} is labelled as {kind}", dir.display()));
            return None;
        }
        Ok(None) => {
            problem(LABEL_FILE, format!("{} has no label", dir.display()));
            return None;
        }
        Err(e) => {
            problem(LABEL_FILE, e.to_string());
            return None;
        }
    };
    if let Err(e) = MgsState::open(dir, label.fs, &label.name) {
        problem(STATE_FILE, e);
    }
    Some(label.fs)
}
