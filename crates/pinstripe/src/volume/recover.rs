//! A data directory without `pinstripe.json`: fresh, of a start that was cut short, or one whose
//! description was lost.
//!
//! Role: what must be there is what lies there, and what the management service's list names.
//! Never does: guess that fewer targets belong to it; files would be without their data.

use std::path::Path;

use proto::mgs::{KIND_MDT, KIND_OST, Target};

use super::{Counts, DEFAULT_COUNTS, DEFAULT_NAME, FILE, Facts, KEY, VERSION, Wish, is_free};
use crate::failure::{Doing, Failure, Outcome};
use crate::label::{INDEX_MAX, Label};
use crate::mgs::MgsState;

/// What `pinstripe.json` would say.
pub(super) fn facts(dir: &Path, wish: &Wish) -> Outcome<Facts> {
    refuse_foreign(dir)?;
    let there = Counts { mdts: highest(dir, "mdt"), osts: highest(dir, "ost") };
    let fresh = Counts {
        mdts: there.mdts.max(DEFAULT_COUNTS.mdts),
        osts: there.osts.max(DEFAULT_COUNTS.osts),
    };
    let name = wish.name.clone().unwrap_or_else(|| DEFAULT_NAME.into());
    let of = |name, counts, making| Facts { version: VERSION, name, counts, making };
    let mgs = dir.join("mgs");
    let label = if is_free(&mgs) { None } else { Label::read(&mgs)? };
    let Some(label) = label else {
        if there.mdts + there.osts > 0 {
            return Ok(of(name, told(dir, there, wish)?, None));
        }
        return Ok(of(name, there, Some(fresh)));
    };
    let state = MgsState::open(&mgs, label.fs, &label.name).map_err(Failure::run)?;
    let listed = &state.config().targets.0;
    let counts = Counts {
        mdts: listed_of(listed, KIND_MDT).max(there.mdts),
        osts: listed_of(listed, KIND_OST).max(there.osts),
    };
    // Nothing has been served yet where the list is empty.
    Ok(of(label.name, counts, listed.is_empty().then_some(fresh)))
}

/// Without the management service's list, nobody but the user knows how many there were.
fn told(dir: &Path, there: Counts, wish: &Wish) -> Outcome<Counts> {
    let Some((mdts, osts)) = wish.mdts.zip(wish.osts) else {
        let text = format!(
            "{} holds {} mdts and {} osts, but neither {FILE} nor mgs, which say how many there \
             were; bring them back, or say it with --mdts and --osts",
            dir.display(),
            there.mdts,
            there.osts
        );
        return Err(Failure::run(text));
    };
    Ok(Counts { mdts: mdts.max(there.mdts), osts: osts.max(there.osts) })
}

fn listed_of(targets: &[Target], kind: u8) -> u32 {
    targets.iter().filter(|t| t.kind == kind).map(|t| t.index.saturating_add(1)).max().unwrap_or(0)
}

/// One more than the highest index of a target that lies there.
fn highest(dir: &Path, prefix: &str) -> u32 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let index = |e: std::fs::DirEntry| {
        let index: u32 = e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
        let there = index <= INDEX_MAX && e.path().is_dir() && !is_free(&e.path());
        there.then_some(index + 1)
    };
    entries.filter_map(index).max().unwrap_or(0)
}

/// A directory with anything in it that an interrupted first start cannot have left is not ours.
fn refuse_foreign(dir: &Path) -> Outcome<()> {
    let read = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.doing(|| format!("{}", dir.display()))?,
    };
    for entry in read {
        let name = entry.doing(|| format!("{}", dir.display()))?.file_name();
        let text = name.to_string_lossy();
        let numbered = |prefix: &str| {
            text.strip_prefix(prefix)
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let ours = matches!(&*text, "run" | "log" | "mgs" | KEY | ".pinstripe.json.new")
            || text.starts_with(".new-")
            || numbered("mdt")
            || numbered("ost");
        if !ours {
            let text = format!(
                "{} already holds '{text}', which is not Pinstripe's; give an empty directory",
                dir.display()
            );
            return Err(Failure::run(text));
        }
    }
    Ok(())
}
