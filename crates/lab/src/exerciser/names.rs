//! Names: a directory of one thread against a set in memory, hard links counted under a lock, and
//! files replaced by rename while others read them.

use super::child::{Context, During, Fault, Tried};
use crate::pattern;
use rand::Rng;
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names in the directory of one thread.
const NAMES: u32 = 1_500;
/// Links of the shared file.
const LINKS: usize = 60;
/// Largest file replaced.
const REPLACED: usize = 150_000;

pub(crate) fn names(context: &mut Context) -> Tried {
    let name = format!("names-{}-{}", context.task.index, context.thread);
    let dir = context.task.dir.join(name);
    std::fs::create_dir(&dir).during("mkdir")?;
    let mut model: BTreeMap<String, bool> = BTreeMap::new();
    let mut steps = 0u64;
    while context.tick() {
        let mut any = || format!("name-{:06}", context.rng.random_range(0..NAMES));
        let (name, other) = (any(), any());
        let path = dir.join(&name);
        match (context.rng.random_range(0..8), model.get(&name).copied()) {
            (0..=3, None) => {
                File::create_new(&path).during("create")?;
                model.insert(name, false);
            }
            (4, None) => {
                std::fs::create_dir(&path).during("mkdir")?;
                model.insert(name, true);
            }
            (5, Some(is_dir)) => {
                let gone =
                    if is_dir { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
                gone.during("remove")?;
                model.remove(&name);
            }
            (6, Some(is_dir))
                if name != other && model.get(&other).is_none_or(|o| *o == is_dir) =>
            {
                std::fs::rename(&path, dir.join(&other)).during("rename")?;
                model.remove(&name);
                model.insert(other, is_dir);
            }
            (_, known) => match (std::fs::symlink_metadata(&path), known) {
                (Ok(m), Some(is_dir)) if m.is_dir() == is_dir => {}
                (Err(e), None) if e.kind() == ErrorKind::NotFound => {}
                (found, known) => {
                    return Err(Fault(format!("{name}: found {found:?}, expected {known:?}")));
                }
            },
        }
        steps += 1;
        if steps.is_multiple_of(400) {
            list(&dir, &mut model)?;
        }
    }
    list(&dir, &mut model)
}

/// Reads the directory while names that it has already shown are removed: every other name must
/// appear exactly once.
fn list(dir: &Path, model: &mut BTreeMap<String, bool>) -> Tried {
    let mut seen = BTreeSet::new();
    let mut removed = Vec::new();
    for entry in std::fs::read_dir(dir).during("opendir")? {
        let entry = entry.during("readdir")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !seen.insert(name.clone()) {
            return Err(Fault(format!("readdir shows {name} twice")));
        }
        if model.get(&name) == Some(&false) && seen.len() % 16 == 1 {
            std::fs::remove_file(entry.path()).during("remove")?;
            removed.push(name);
        }
    }
    if !seen.iter().eq(model.keys()) {
        let missing: Vec<_> = model.keys().filter(|n| !seen.contains(*n)).take(5).collect();
        let extra: Vec<_> = seen.iter().filter(|n| !model.contains_key(*n)).take(5).collect();
        return Err(Fault(format!("readdir misses {missing:?}, invents {extra:?}")));
    }
    for name in removed {
        model.remove(&name);
    }
    Ok(())
}

pub(crate) fn links(context: &mut Context) -> Tried {
    let dir = context.task.dir.join("links");
    let lock = File::open(context.task.dir.join("links.lock")).during("open of the lock")?;
    while context.tick() {
        flock(&lock, FlockOperation::LockExclusive).during("flock")?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&dir).during("opendir")? {
            names.push(entry.during("readdir")?.path());
        }
        let links = std::fs::metadata(dir.join("base")).during("stat")?.nlink();
        if links != names.len() as u64 {
            return Err(Fault(format!("{} names, link count {links}", names.len())));
        }
        let new = dir.join(format!("link-{}", context.rng.random_range(0..LINKS)));
        match names.contains(&new) {
            true => std::fs::remove_file(&new).during("unlink")?,
            false => std::fs::hard_link(dir.join("base"), &new).during("link")?,
        }
        flock(&lock, FlockOperation::Unlock).during("unlock")?;
    }
    Ok(())
}

pub(crate) fn replace(context: &mut Context) -> Tried {
    let (me, of, seed) = (context.task.index, context.task.processes, context.task.seed);
    let dir = context.task.dir.clone();
    let mine = dir.join(format!("replaced-{me}"));
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut held: Option<(File, u64, u64)> = None;
    for generation in 1u64.. {
        let len = context.rng.random_range(8..REPLACED);
        let mut data = generation.to_le_bytes().to_vec();
        data.extend(pattern::make(len, seed ^ me, generation, 8));
        let fresh = dir.join(format!("replacing-{me}"));
        std::fs::write(&fresh, &data).during("write of the new file")?;
        std::fs::rename(&fresh, &mine).during("rename over")?;
        for _ in 0..4 {
            let other = context.rng.random_range(0..of);
            let path = dir.join(format!("replaced-{other}"));
            let mut file = match File::open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound && !newest.contains_key(&other) => {
                    continue;
                }
                Err(e) => {
                    let then = File::open(&path).map(|_| ());
                    return Err(Fault(format!("open of replaced-{other}: {e}, then {then:?}")));
                }
            };
            let seen = read_replaced(&mut file, (other, seed))?;
            let before = newest.insert(other, seen).unwrap_or(0);
            if seen < before {
                return Err(Fault(format!("file {other} went from {before} back to {seen}")));
            }
            // The one held open since an earlier round must not have changed.
            if let Some((mut old, owner, generation)) = held.replace((file, other, seen)) {
                std::io::Seek::rewind(&mut old).during("seek")?;
                let again = read_replaced(&mut old, (owner, seed))?;
                if again != generation {
                    return Err(Fault(format!("an open file went from {generation} to {again}")));
                }
            }
        }
        if !context.tick() {
            break;
        }
    }
    Ok(())
}

/// The generation of a whole file of this owner; anything mixed or torn is a fault.
fn read_replaced(file: &mut File, (owner, seed): (u64, u64)) -> Result<u64, Fault> {
    let mut data = Vec::new();
    file.read_to_end(&mut data).during("read of a replaced file")?;
    let head = data.get(..8).and_then(|h| h.try_into().ok());
    let generation =
        u64::from_le_bytes(head.ok_or_else(|| Fault(format!("a file replaced-{owner} is empty")))?);
    match pattern::mismatch(&data[8..], seed ^ owner, generation, 8) {
        None => Ok(generation),
        Some(i) => {
            let (at, len) = (i + 8, data.len());
            let what = format!("replaced-{owner}, generation {generation}: byte {at} of {len}");
            Err(Fault(format!("{what} is wrong")))
        }
    }
}
