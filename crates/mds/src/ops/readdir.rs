//! ReadDir: entries in hash order, so that a cookie stays good whatever comes and goes.

use proto::mds::{DirEntry, RD_PLUS, Res};
use proto::wire::List;
use proto::{Errno, Fid};

use crate::namespace::Run;
use crate::txn::{Need, Step, Stop};

/// Most entries in one answer.
const MAX_ENTRIES: usize = 4096;
/// Bytes an entry takes in the answer beside its name, about; with attributes, without.
const ENTRY_BYTES: (usize, usize) = (160, 32);

pub(super) fn run(r: &mut Run<'_>, dir: Fid, cookie: u64, max_bytes: u32, flags: u8) -> Step<Res> {
    let dir = r.fid(dir)?;
    r.txn.dir(dir)?;
    let plus = flags & RD_PLUS != 0;
    let each = if plus { ENTRY_BYTES.0 } else { ENTRY_BYTES.1 };
    let room = (max_bytes as usize).min(proto::MAX_BODY as usize - 16384);
    if room < each + proto::NAME_MAX {
        return Err(Errno::EINVAL.into());
    }
    let page = r.txn.page(dir, cookie, (room / each).min(MAX_ENTRIES))?;
    if plus {
        fetch(r, page.entries.iter().map(|e| e.2.fid))?;
    }
    let (mut entries, mut used) = (Vec::with_capacity(page.entries.len()), 0);
    let mut end = page.end;
    for (cookie, name, dent) in page.entries {
        used += each + name.len();
        if used > room {
            end = false;
            break;
        }
        let attr = match plus {
            true => r.txn.find(dent.fid)?.map(|i| i.attr(dent.fid)),
            false => None,
        };
        let name = name.to_vec();
        entries.push(DirEntry { cookie, name, fid: dent.fid, kind: dent.kind, attr });
    }
    Ok(Res::Entries { entries: List(entries), end })
}

/// All inodes that are not in memory are fetched at once.
fn fetch(r: &Run<'_>, fids: impl Iterator<Item = Fid>) -> Step<()> {
    let missing: Vec<Fid> = fids.filter(|f| r.txn.find(*f).is_err()).collect();
    if missing.is_empty() { Ok(()) } else { Err(Stop::Miss(Need::Inodes(missing))) }
}
