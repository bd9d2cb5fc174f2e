//! Objects and their owners.

use std::collections::HashMap;

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

/// All owners and all objects.
#[derive(Default)]
pub struct Objects {
    /// Owners with the MDT that knows them.
    owners: Vec<(String, Owner)>,
    /// Who owns an object: a place leads to a number in `owners`.
    owned: HashMap<Place, usize>,
    found: HashMap<Place, Found>,
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

    /// Takes what an object storage target holds, and says what nobody owns or is too long.
    pub fn walk(&mut self, name: &str, ost: &OstDir, findings: &mut Findings) -> Outcome<()> {
        let index = ost.label.index;
        let walked = ost.walk(|entry| match entry {
            Entry::Object { id, size, blocks } => {
                findings.objects += 1;
                self.object(name, index, &id, size, findings);
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
        let owner = self.owned.get(&(ost, shown.clone())).map(|place| &self.owners[*place].1);
        let Some(owner) = owner else {
            let text = format!("no file owns the object {shown} of {size} bytes");
            return findings.problem(name, "object-without-owner", id.fid.to_string(), text);
        };
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
