//! Reading small files, and their neighbours along with them.
//!
//! Role: what lives with the metadata comes with one message for several files, once a few of a
//! directory were read one by one. Assumptions: what comes is kept only
//! under a lease. Never does: wait for what
//! is only likely to be read in a message of its own.

use std::sync::Arc;

use bytes::Bytes;
use proto::attr::A_INLINE;
use proto::mds::{Cred, LS_ATTR, LS_READ, Op, Res};
use proto::{Attr, Errno, Fid};

use crate::core::{Asked, Core};
use crate::inode::Inode;
use crate::load::place_of;
use crate::wb::near::{ALONG, ALONG_BYTES};

impl Core {
    /// Learns where a file's data is, and the data of a small one; None: it is not a file.
    pub(crate) fn learn_small(
        self: &Arc<Core>,
        cred: &Cred,
        fid: Fid,
        asked: Asked,
    ) -> Result<Option<Arc<Inode>>, Errno> {
        match self.read_small(cred, fid, asked) {
            Ok((Res::Inline { attr, data, layout }, asked)) => {
                let inode = self.registry.get(&attr);
                self.take_in(&inode, &attr, place_of(data, layout), asked)?;
                Ok(Some(inode))
            }
            Ok(_) => Err(Errno::EPROTO),
            Err(Errno::EINVAL) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Asks for a file's inline data or layout; what comes along is kept for later.
    fn read_small(
        self: &Arc<Core>,
        cred: &Cred,
        fid: Fid,
        asked: Asked,
    ) -> Result<(Res, Asked), Errno> {
        let mut ops = vec![Op::ReadInline { fid }];
        if !self.mdt.wb.knows_layout(fid) {
            ops.extend(self.likely(fid).into_iter().map(|fid| Op::ReadInline { fid }));
        }
        let (results, got) = self.mdt.compound_got(cred, ops)?;
        let mut results = results.into_iter();
        let first = match results.next() {
            Some(Res::Failed { errno }) => return Err(Errno(errno.into())),
            Some(res) => res,
            None => return Err(Errno::EPROTO),
        };
        for res in results {
            if let Res::Inline { attr, data: Some(data), .. } = res
                && attr.flags & A_INLINE != 0
            {
                self.keep(&attr, data, asked.under(&got, attr.fid));
            }
        }
        Ok((first, asked.under(&got, fid)))
    }

    /// Small files to be read along.
    fn likely(&self, fid: Fid) -> Vec<Fid> {
        let mut room = ALONG_BYTES;
        let mut likely = Vec::new();
        for (fid, size) in self.mdt.wb.near(fid) {
            let known = self.registry.find(fid).is_some_and(|i| self.has_loaded(&i.st.lock()));
            if known || size > room {
                continue;
            }
            room -= size;
            likely.push(fid);
            if likely.len() == ALONG {
                break;
            }
        }
        likely
    }

    /// Keeps what nobody asked for yet, if nobody has changed it and nobody is at it.
    fn keep(&self, attr: &Attr, data: Bytes, asked: Asked) {
        let inode = self.registry.get(attr);
        {
            let mut guard = inode.st.lock();
            let st = &mut *guard;
            let idle = st.opens == 0 && st.is_clean() && !self.has_loaded(st);
            // Whoever changes it from now on finds this state when the change is done.
            let newest = || self.mdt.wb.newest(attr.fid).is_some_and(|a| a == *attr);
            let leased = || self.leases.fresh(attr.fid, LS_READ | LS_ATTR, asked.mark);
            let stands = if self.caching() { newest() } else { leased() };
            let current = !st.overtakes(asked.of(attr)) && asked.epoch == self.epoch();
            if idle && current && stands {
                st.attr = attr.clone();
                st.epoch = asked.epoch;
                st.mark = asked.mark;
                st.size = attr.size;
                st.ahead.clear();
                st.place = place_of(Some(data), None);
                st.place_as_of = asked.of(attr);
            }
        }
        self.registry.rest(&inode);
    }
}
