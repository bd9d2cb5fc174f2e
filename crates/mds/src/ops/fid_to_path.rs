//! FidToPath: where a file is, by the links its inode knows.

use proto::mds::Res;
use proto::wire::List;
use proto::{Errno, Fid, FileKind};

use crate::namespace::Run;
use crate::txn::Step;

/// Longest chain of directories followed.
const MAX_DEPTH: usize = 4096;

pub(super) fn run(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if fid == Fid::ROOT {
        return Ok(Res::Paths { paths: List(vec![b"/".to_vec()]) });
    }
    // Further links have records of their own, which only a check reads; the first one serves.
    let Some(home) = inode.home.clone() else {
        let gone = inode.nlink == 0 || inode.kind() == FileKind::Dir;
        return Err(if gone { Errno::ENOENT } else { Errno::ENODATA }.into());
    };
    let mut parts = vec![home.name];
    let mut at = home.dir;
    for _ in 0..MAX_DEPTH {
        if at == Fid::ROOT {
            parts.reverse();
            let path: Vec<u8> = parts.iter().flat_map(|p| [b"/", &p[..]].concat()).collect();
            return Ok(Res::Paths { paths: List(vec![path]) });
        }
        let home = r.txn.inode(at)?.home.clone().ok_or(Errno::ENOENT)?;
        parts.push(home.name);
        at = home.dir;
    }
    Err(Errno::ELOOP.into())
}
