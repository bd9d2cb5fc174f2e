//! FidToPath: where a file is, by the links its inode knows.

use proto::mds::Res;
use proto::wire::List;
use proto::{Errno, Fid};

use crate::namespace::Run;
use crate::record::Home;
use crate::txn::{Need, Step, Stop};

/// Longest chain of directories followed.
const MAX_DEPTH: usize = 4096;
/// Most paths given.
const MAX_PATHS: usize = 64;
/// Most bytes of paths given.
const MAX_BYTES: usize = 512 << 10;

pub(super) fn run(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if fid == Fid::ROOT {
        return Ok(Res::Paths { paths: List(vec![b"/".to_vec()]) });
    }
    if inode.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    let mut homes: Vec<Home> = inode.home.iter().cloned().collect();
    // Further links have records of their own, which are fetched for this operation alone.
    if !inode.is_dir() && inode.nlink as usize > homes.len() {
        match r.links {
            Some((f, links)) if *f == fid => homes.extend(links.iter().cloned()),
            _ => return Err(Stop::Miss(Need::Links(fid))),
        }
    }
    let (mut paths, mut bytes) = (Vec::new(), 0);
    for home in homes {
        // What was fetched may be older than the namespace.
        if r.txn.entry(home.dir, &home.name)?.is_none_or(|d| d.fid != fid) {
            continue;
        }
        let path = path(r, home)?;
        bytes += path.len();
        if paths.len() == MAX_PATHS || (bytes > MAX_BYTES && !paths.is_empty()) {
            break;
        }
        paths.push(path);
    }
    if paths.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(Res::Paths { paths: List(paths) }) }
}

fn path(r: &Run<'_>, home: Home) -> Step<Vec<u8>> {
    let mut parts = vec![home.name];
    let mut at = home.dir;
    for _ in 0..MAX_DEPTH {
        if at == Fid::ROOT {
            parts.reverse();
            return Ok(parts.iter().flat_map(|p| [b"/", &p[..]].concat()).collect());
        }
        let home = r.txn.inode(at)?.home.clone().ok_or(Errno::ENOENT)?;
        parts.push(home.name);
        at = home.dir;
    }
    Err(Errno::ELOOP.into())
}
