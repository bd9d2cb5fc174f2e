//! Objects and their owners.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mds::check::Owner;
use oss::check::{Entry, OstDir};
use oss::name::object_name;
use proto::Fid;
use proto::layout::ObjectId;

use super::Findings;
use crate::failure::{Failure, Outcome};

/// Blocks of 512 bytes by which local file systems may count differently from time to time.
const SLACK_BLOCKS: u64 = 8;

/// An object's place: its OST's index and its name there.
type Place = (u32, String);

/// An object that is there.
struct Found {
    id: ObjectId,
    blocks: u64,
}

/// How a target came to stand still, which tells what a crash cut short from damage.
struct Stopped {
    objects: PathBuf,
    crashed: bool,
    /// When its boot record was written last: at the end of the last clean boot, or the start of
    /// the one that crashed.
    noted: Option<SystemTime>,
    clean: bool,
}

impl Stopped {
    fn of(dir: &Path, ost: &OstDir) -> Stopped {
        let boot = &ost.boot;
        let noted = std::fs::metadata(dir.join("boot")).and_then(|m| m.modified()).ok();
        let crashed = !boot.clean || boot.all_until > 0 || !boot.unclean.is_empty();
        Stopped { objects: dir.join("objects"), crashed, noted, clean: boot.clean }
    }

    /// An object that no file owns. A file that was new when all servers were killed is gone, as
    /// nobody had synced it; its objects may have been written already. They are told apart from
    /// others by having been there when the target was last stopped or started.
    fn unowned(&self, name: &str, id: &ObjectId, size: u64, findings: &mut Findings) {
        let shown = object_name(id);
        if self.crashed && (!self.clean || self.older(id)) {
            findings.notes.push(format!(
                "{name}: the object {shown} of {size} bytes is left from a crash; no file owns it"
            ));
            return;
        }
        let text = format!("no file owns the object {shown} of {size} bytes");
        findings.problem(name, "object-without-owner", id.fid.to_string(), text);
    }

    fn older(&self, id: &ObjectId) -> bool {
        let meta = std::fs::metadata(self.objects.join(oss::name::object_path(id)));
        let changed = meta.ok().and_then(|m| {
            let since = Duration::new(m.ctime().try_into().ok()?, m.ctime_nsec().try_into().ok()?);
            Some(UNIX_EPOCH + since)
        });
        changed.zip(self.noted).is_some_and(|(changed, noted)| changed <= noted)
    }
}

/// All owners and all objects.
#[derive(Default)]
pub struct Objects {
    /// Owners with the MDT that knows them.
    owners: Vec<(String, Owner)>,
    /// Who owns an object: a place leads to a number in `owners`.
    owned: HashMap<Place, usize>,
    found: HashMap<Place, Found>,
    /// A metadata target could not tell what it owns.
    unknown: bool,
}

impl Objects {
    /// Takes what a metadata target owns.
    pub fn own(&mut self, mdt: &str, owners: Vec<Owner>) {
        for owner in owners {
            let place = self.owners.len();
            for (ost, id) in owner.layout.objects(owner.fid) {
                self.owned.insert((ost, object_name(&id)), place);
            }
            self.owners.push((mdt.to_string(), owner));
        }
    }

    /// Takes note of a metadata target that cannot tell what it owns: objects without an owner are
    /// nothing strange then.
    pub fn own_unknown(&mut self, mdt: &str, findings: &mut Findings) {
        self.unknown = true;
        let text =
            format!("{mdt} cannot tell what it owns; objects without an owner are not named");
        findings.notes.push(text);
    }

    /// Takes what an object storage target holds, and says what nobody owns or is too long.
    pub fn walk(&mut self, dir: &Path, ost: &OstDir, findings: &mut Findings) -> Outcome<()> {
        let (index, name) = (ost.label.index, &ost.label.name());
        let stopped = Stopped::of(dir, ost);
        let walked = ost.walk(|entry| match entry {
            Entry::Object { id, size, blocks } => {
                findings.objects += 1;
                match self.owned.contains_key(&(index, object_name(&id))) {
                    true => self.object(name, index, &id, size, findings),
                    false if self.unknown => {}
                    false => stopped.unowned(name, &id, size, findings),
                }
                self.found.insert((index, object_name(&id)), Found { id, blocks });
            }
            Entry::LoneSidecar(id) => {
                let shown = object_name(&id);
                findings.notes.push(format!("{name}: checksums without the object {shown}"));
            }
            Entry::Foreign(path) => {
                findings.notes.push(format!("{name}: '{path}' is not Pinstripe's"));
            }
        });
        walked.map_err(|e| Failure::run(e.to_string()))
    }

    fn object(&self, name: &str, ost: u32, id: &ObjectId, size: u64, findings: &mut Findings) {
        let shown = object_name(id);
        let Some(place) = self.owned.get(&(ost, shown.clone())) else { return };
        let owner = &self.owners[*place].1;
        // While a writer has not reported, or data is on its way here, objects are ahead.
        if owner.garbage || owner.lags || owner.inline {
            return;
        }
        let most = owner.layout.object_size(id.stripe, owner.size);
        if size > most {
            let text = format!(
                "the object {shown} has {size} bytes, a file of {} bytes has {most} there",
                owner.size
            );
            findings.problem(name, "object-too-long", id.fid.to_string(), text);
        }
    }

    /// Says which owners lack objects they must have.
    pub fn compare(&self, open: &HashMap<u32, OstDir>, findings: &mut Findings) {
        for (mdt, owner) in self.owners.iter().filter(|(_, o)| !o.garbage) {
            self.complete(mdt, owner, open, findings);
        }
    }

    fn complete(
        &self,
        mdt: &str,
        owner: &Owner,
        open: &HashMap<u32, OstDir>,
        findings: &mut Findings,
    ) {
        let mut missing = Vec::new();
        let mut there = 0u64;
        for (ost, id) in owner.layout.objects(owner.fid) {
            let name = proto::mgs::target_name(proto::mgs::KIND_OST, ost);
            if !open.contains_key(&ost) {
                let text = format!("it has data on {name}, which is not among the targets");
                findings.problem(mdt, "owner-without-object", owner.fid.to_string(), text);
                return;
            }
            match self.found.get(&(ost, object_name(&id))) {
                Some(f) => there += f.blocks,
                None if owner.layout.object_size(id.stripe, owner.size) > 0 => {
                    missing.push((name, id))
                }
                None => {}
            }
        }
        // A hole needs no object; what the writer last reported tells holes from losses.
        if owner.lags || owner.inline || there + SLACK_BLOCKS > owner.blocks {
            return;
        }
        for (name, id) in missing {
            let text = format!(
                "its object {} is not on {name}; {} of {} blocks are there",
                object_name(&id),
                there,
                owner.blocks
            );
            findings.problem(mdt, "owner-without-object", owner.fid.to_string(), text);
        }
    }

    /// Reads all data of a target and compares it with its checksums.
    pub fn verify(&self, ost: &OstDir, findings: &mut Findings) -> Outcome<()> {
        let name = ost.label.name();
        let here = self.found.iter().filter(|((index, _), _)| *index == ost.label.index);
        for ((_, object), Found { id, .. }) in here {
            let v = ost.verify(id).map_err(|e| Failure::run(e.to_string()))?;
            findings.blocks_good += v.good;
            findings.blocks_unknown += v.unknown;
            let fid: Fid = id.fid;
            if let Some(why) = v.sidecar {
                let text = format!("the checksums of {object} are unusable: {why}");
                findings.problem(&name, "checksum", fid.to_string(), text);
            }
            for offset in v.bad {
                let text = format!("the block at {offset} of {object} does not have its checksum");
                findings.problem(&name, "checksum", fid.to_string(), text);
            }
        }
        Ok(())
    }
}
