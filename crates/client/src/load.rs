//! Learning where a file's data is and how long it is.
//!
//! Role: under the SOLE lease what is learned once (per cache epoch) is the truth and this client
//! its authority; without it every operation asks. Sizes that lag on the MDT are asked from the
//! OSTs (glimpse).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proto::attr::A_SIZE_LAGS;
use proto::layout::ObjectId;
use proto::mds::{Op, OpenInfo, Res, SizeReport};
use proto::{Attr, Errno, FileKind, Layout, TimeSpec};

use crate::core::Core;
use crate::gather::Gather;
use crate::inode::{Inline, Inode, Place};
use crate::mdt::own_cred;

/// What the objects of a file say.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    pub(crate) mtime: TimeSpec,
    pub(crate) blocks: Vec<Option<u64>>,
}

pub(crate) fn place_of(inline: Option<Bytes>, layout: Option<Layout>) -> Place {
    match (inline, layout) {
        (None, Some(layout)) => Place::Striped(Arc::new(layout)),
        (inline, _) => {
            let data = inline.map(Vec::from).unwrap_or_default();
            Place::Inline(Inline { stored: !data.is_empty(), data, dirty: None })
        }
    }
}

impl Core {
    /// Makes place and size of a file known; to be called holding `io` (in either way).
    pub(crate) fn load(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        let epoch = self.epoch();
        {
            let st = inode.st.lock();
            if st.epoch == epoch && !matches!(st.place, Place::Unknown) && self.caching() {
                return Ok(());
            }
            if !self.caching() && matches!(st.place, Place::Striped(_)) {
                return Ok(());
            }
        }
        match self.mdt.one(&own_cred(), Op::ReadInline { fid: inode.fid })? {
            Res::Inline { attr, data, layout } => {
                self.take_in(inode, &attr, place_of(data, layout), epoch)
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// An open brought attributes and data or layout.
    pub(crate) fn opened(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        attr: &Attr,
        open: &OpenInfo,
        epoch: u64,
    ) -> Result<(), Errno> {
        if attr.kind() != FileKind::File {
            return Ok(());
        }
        self.take_in(inode, attr, place_of(open.inline.clone(), open.layout.clone()), epoch)
    }

    /// Notes what an answer said that was asked for under `epoch`.
    pub(crate) fn take_in(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        attr: &Attr,
        place: Place,
        epoch: u64,
    ) -> Result<(), Errno> {
        let known = |st: &crate::inode::State| {
            st.epoch == epoch && !matches!(st.place, Place::Unknown) && self.caching()
        };
        {
            let mut st = inode.st.lock();
            if known(&st) {
                st.learn(attr, epoch);
                return Ok(());
            }
        }
        let seen = match &place {
            Place::Striped(layout) if attr.flags & A_SIZE_LAGS != 0 && self.caching() => {
                Some(self.glimpse(layout, attr)?)
            }
            _ => None,
        };
        let mut st = inode.st.lock();
        if known(&st) {
            return Ok(());
        }
        st.attr = attr.clone();
        st.epoch = epoch;
        st.ahead.clear();
        if st.is_ahead() {
            // Written before a server restarted: what is here is newer.
            st.size = st.size.max(attr.size);
            return Ok(());
        }
        st.size = attr.size;
        if let Place::Striped(layout) = &place {
            st.blocks = vec![None; layout.osts.len()];
        }
        if let Some(seen) = seen {
            st.size = seen.size;
            st.attr.mtime = st.attr.mtime.max(seen.mtime);
            st.blocks = seen.blocks;
        }
        st.place = place;
        Ok(())
    }

    /// Asks the OSTs for size and time of a file.
    pub(crate) fn glimpse(self: &Arc<Core>, layout: &Layout, attr: &Attr) -> Result<Seen, Errno> {
        let mut by_ost: BTreeMap<u32, Vec<(u16, ObjectId)>> = BTreeMap::new();
        for (i, (ost, object)) in layout.objects(attr.fid).enumerate() {
            by_ost.entry(ost).or_default().push((i as u16, object));
        }
        let gather = Gather::new();
        for (index, objects) in by_ost {
            let ticket = gather.ticket();
            let (stripes, ids): (Vec<u16>, Vec<ObjectId>) = objects.into_iter().unzip();
            match self.ost(index) {
                Err(e) => ticket.put(Err(e)),
                Ok(ost) => ost.glimpse(ids, move |r| {
                    ticket.put(r.map(|attrs| stripes.into_iter().zip(attrs).collect::<Vec<_>>()));
                }),
            }
        }
        let mut sizes = vec![0; layout.osts.len()];
        let mut seen =
            Seen { size: 0, mtime: attr.mtime, blocks: vec![Some(0); layout.osts.len()] };
        for answer in gather.wait() {
            for (stripe, object) in answer? {
                let i = usize::from(stripe);
                if object.exists {
                    sizes[i] = object.size;
                    seen.blocks[i] = Some(object.blocks);
                    seen.mtime = seen.mtime.max(object.mtime);
                }
            }
        }
        seen.size = layout.file_size(&sizes).max(attr.size);
        Ok(seen)
    }

    /// Attributes as an application shall see them: with what is known here, or by the OSTs.
    pub(crate) fn settle(self: &Arc<Core>, mut attr: Attr, epoch: u64) -> Result<Attr, Errno> {
        if attr.kind() != FileKind::File {
            return Ok(attr);
        }
        if let Some(inode) = self.registry.find(attr.fid) {
            let mut st = inode.st.lock();
            let loaded = st.epoch == self.epoch() && !matches!(st.place, Place::Unknown);
            if self.caching() && (loaded || st.is_ahead()) {
                st.learn(&attr, epoch);
                return Ok(st.show());
            }
            if self.knows(&st) {
                st.learn(&attr, epoch);
            }
        }
        if attr.flags & A_SIZE_LAGS == 0 {
            return Ok(attr);
        }
        let layout = match self.mdt.one(&own_cred(), Op::GetLayout { fid: attr.fid })? {
            Res::LayoutInfo { layout: Some(layout), .. } => layout,
            _ => return Ok(attr),
        };
        let seen = self.glimpse(&layout, &attr)?;
        attr.size = seen.size;
        attr.mtime = seen.mtime;
        attr.blocks = seen.blocks.iter().copied().sum::<Option<u64>>().unwrap_or(attr.blocks);
        if self.caching() && epoch == self.epoch() {
            let report = SizeReport {
                size: attr.size,
                exact: true,
                blocks: Some(attr.blocks),
                mtime: None,
                atime: None,
            };
            self.mention(Op::Report { fid: attr.fid, report });
        }
        Ok(attr)
    }

    /// Size of a file now; asks when others may change it.
    pub(crate) fn size_now(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<u64, Errno> {
        if self.caching() {
            self.load(inode)?;
            return Ok(inode.st.lock().size);
        }
        let epoch = self.epoch();
        match self.mdt.one(&own_cred(), Op::GetAttr { fid: inode.fid })? {
            Res::Attr { attr } => Ok(self.settle(attr, epoch)?.size),
            _ => Err(Errno::EPROTO),
        }
    }
}
