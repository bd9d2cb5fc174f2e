//! Learning where a file's data is and how long it is.
//!
//! Role: of a file that is this client's alone what is learned once (per cache epoch) is the truth
//! and this client its authority; of others what is read is the truth while a lease stands for it;
//! without one every operation asks. Sizes that lag on the MDT are asked from the OSTs (glimpse).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proto::attr::A_SIZE_LAGS;
use proto::layout::ObjectId;
use proto::mds::{LS_WRITE, Op, OpenInfo, Res, SizeReport};
use proto::{Attr, Errno, FileKind, Layout, TimeSpec};

use crate::core::{Asked, Core};
use crate::gather::Gather;
use crate::inode::{Inline, Inode, Place, State};
use crate::leases::Mark;
use crate::mdt::own_cred;
use crate::resize::attr_of;

/// How often attributes are asked for while what is told from here meanwhile makes each answer old.
const ASKED_AGAIN: u32 = 4;

/// What the objects of a file say.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    /// Some are not there: nothing was written to them, or they are destroyed.
    pub(crate) absent: bool,
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
    /// Makes place and size of a file known to who changes it; to be called holding `io` (in either
    /// way).
    pub(crate) fn load(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        {
            let st = inode.st.lock();
            if self.has_loaded(&st) && self.owns(&st) {
                return Ok(());
            }
            if !self.caching() && matches!(st.place, Place::Striped(_)) {
                return Ok(());
            }
        }
        self.load_now(inode)
    }

    /// The same for who only reads it.
    pub(crate) fn load_to_read(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        {
            let st = inode.st.lock();
            if self.has_loaded(&st) || (!self.caching() && matches!(st.place, Place::Striped(_))) {
                return Ok(());
            }
        }
        self.load_now(inode)
    }

    pub(crate) fn load_now(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        let asked = self.asked();
        let (answer, got) = self.mdt.one_got(&own_cred(), Op::ReadInline { fid: inode.fid })?;
        match answer {
            Res::Inline { attr, data, layout } => {
                let asked = asked.under(&got, attr.fid);
                self.take_in(inode, &attr, place_of(data, layout), asked)
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
        asked: Asked,
    ) -> Result<(), Errno> {
        if attr.kind() != FileKind::File {
            return Ok(());
        }
        self.take_in(inode, attr, place_of(open.inline.clone(), open.layout.clone()), asked)
    }

    /// Notes what an answer said.
    pub(crate) fn take_in(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        attr: &Attr,
        place: Place,
        asked: Asked,
    ) -> Result<(), Errno> {
        let known = |st: &State| st.epoch == asked.epoch && self.has_loaded(st);
        {
            let mut st = inode.st.lock();
            if known(&st) {
                st.learn(attr, asked.epoch);
                return Ok(());
            }
        }
        let seen = match &place {
            // Only who is alone with it can learn the size of one that is written.
            Place::Striped(layout)
                if attr.flags & A_SIZE_LAGS != 0
                    && (self.caching() || self.leases.has(attr.fid, LS_WRITE)) =>
            {
                Some(self.glimpse(layout, attr)?)
            }
            _ => None,
        };
        self.options.pauses.point();
        let mut st = inode.st.lock();
        if !known(&st) {
            st.take_in(attr, place, seen, asked);
            st.account(&self.budget);
        }
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
                Ok(ost) => {
                    gather.asks(&ost.session);
                    let of = |attrs| stripes.into_iter().zip(attrs).collect::<Vec<_>>();
                    ost.glimpse(ids, move |r| ticket.put(r.map(of)));
                }
            }
        }
        let mut sizes = vec![0; layout.osts.len()];
        let mut seen = Seen {
            size: 0,
            absent: false,
            mtime: attr.mtime,
            blocks: vec![Some(0); layout.osts.len()],
        };
        for answer in gather.wait() {
            for (stripe, object) in answer? {
                let i = usize::from(stripe);
                if object.exists {
                    sizes[i] = object.size;
                    seen.blocks[i] = Some(object.blocks);
                    seen.mtime = seen.mtime.max(object.mtime);
                }
                seen.absent |= !object.exists;
            }
        }
        seen.size = layout.file_size(&sizes).max(attr.size);
        Ok(seen)
    }

    /// Attributes as an application shall see them: with what is known here, or by the OSTs.
    pub(crate) fn settle(
        self: &Arc<Core>,
        mut attr: Attr,
        mut asked: Asked,
    ) -> Result<Attr, Errno> {
        if attr.kind() != FileKind::File {
            return Ok(self.looks.show(attr));
        }
        // Written under a lease that is being given back: the OSTs know of it before the MDT.
        let mut unheard = false;
        if let Some(inode) = self.registry.find(attr.fid) {
            let mut tries = 0;
            loop {
                self.options.pauses.point();
                let mut st = inode.st.lock();
                // What is told of it just now the answer may lack.
                let overtaken = st.sending.is_some() || st.overtakes(asked.of(&attr));
                let loaded = st.epoch == self.epoch() && !matches!(st.place, Place::Unknown);
                let owned = self.owns(&st) && (loaded || st.is_ahead());
                // What is not told yet although the lease is gone goes before whatever another does; and
                // nobody else changes a file while it moves to objects, of which the MDT knows no size
                // until then.
                if owned || st.has_inline_dirty() || st.moving {
                    st.learn(&attr, asked.epoch);
                    return Ok(st.show());
                }
                let mut read = None;
                if self.knows(&st) {
                    st.learn(&attr, asked.epoch);
                    read = st.atime;
                }
                let (late, written) = (st.unsaid, st.mtime);
                unheard = st.unreported;
                drop(st);
                self.options.pauses.point();
                self.let_out(&inode)?;
                tries += 1;
                if overtaken && tries < ASKED_AGAIN {
                    asked = self.asked();
                    if let Ok(Res::Attr { attr: newer }) =
                        self.mdt.one(&own_cred(), Op::GetAttr { fid: attr.fid })
                    {
                        attr = newer;
                        continue;
                    }
                }
                if unheard && let Some(t) = written {
                    attr.mtime = t;
                }
                if let Some(late) = late {
                    late.show(&mut attr);
                }
                // When it was read here may not be told yet, and is shown however it is looked at.
                attr.atime = read.unwrap_or(attr.atime);
                break;
            }
        }
        match attr.flags & A_SIZE_LAGS != 0 {
            true => self.measured(attr, asked),
            // The time is known: one that was set by hand since is no time of a write.
            false if unheard => {
                let mtime = attr.mtime;
                self.measured(attr, asked).map(|attr| Attr { mtime, ..attr })
            }
            false => Ok(attr),
        }
    }

    /// Attributes with the size that the OSTs know. ESTALE: the file is removed, and their objects may be.
    fn measured(self: &Arc<Core>, mut attr: Attr, asked: Asked) -> Result<Attr, Errno> {
        self.options.pauses.point();
        let layout = match self.mdt.one(&own_cred(), Op::GetLayout { fid: attr.fid })? {
            Res::LayoutInfo { layout: Some(layout), .. } => layout,
            _ => return Ok(attr),
        };
        let seen = self.glimpse(&layout, &attr)?;
        if seen.absent {
            attr_of(self.mdt.one(&own_cred(), Op::GetAttr { fid: attr.fid })?)?;
        }
        attr.size = seen.size;
        attr.mtime = seen.mtime;
        attr.blocks = seen.blocks.iter().copied().sum::<Option<u64>>().unwrap_or(attr.blocks);
        if self.caching() && asked.epoch == self.epoch() {
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

    /// Size of a striped file as far as the servers have its bytes; None: it is this client's alone. While its lease is
    /// called back the MDT may not have heard of what was written under it, and then says nothing of a mark either.
    pub(crate) fn size_there(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
    ) -> Result<Option<u64>, Errno> {
        let unheard = {
            let st = inode.st.lock();
            if self.owns(&st) || st.is_untold() {
                return Ok(None);
            }
            st.unreported
        };
        match self.mdt.one(&own_cred(), Op::GetAttr { fid: inode.fid })? {
            Res::Attr { attr } if !unheard && attr.flags & A_SIZE_LAGS == 0 => Ok(Some(attr.size)),
            Res::Attr { attr } => Ok(Some(self.glimpse(layout, &attr)?.size)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Size of a file now; asks when others may change it.
    pub(crate) fn size_now(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<u64, Errno> {
        if self.owns(&inode.st.lock()) {
            self.load(inode)?;
            return Ok(inode.st.lock().size);
        }
        let asked = self.asked();
        match self.mdt.one(&own_cred(), Op::GetAttr { fid: inode.fid })? {
            Res::Attr { attr } => Ok(self.settle(attr, asked)?.size),
            _ => Err(Errno::EPROTO),
        }
    }
}

impl State {
    /// Notes what an answer said of a file that was not known; `seen`: what its objects said behind that.
    fn take_in(&mut self, attr: &Attr, place: Place, seen: Option<Seen>, asked: Asked) {
        let as_of = asked.of(attr);
        if self.outruns(as_of, &place) {
            return;
        }
        // Asked before the last change made here: good enough to know the place, not to believe in it.
        let overtaken = self.overtakes(as_of);
        if !overtaken {
            self.place_as_of = as_of;
        }
        // Nor what may lack a write of ours: this client's word would be the size.
        let written = (self.reporting > 0).then_some(self.size);
        if !overtaken || attr.version > self.attr.version {
            self.learn(attr, asked.epoch);
        }
        self.epoch = asked.epoch;
        self.mark = Mark::NEVER;
        self.ahead.clear();
        // What was written behind among others says nothing of where the file ends but that it is there.
        let told = !self.unreported && self.mtime.is_none();
        let beside = self.kept.is_bound() && told && matches!(place, Place::Striped(_));
        if self.is_ahead() && !beside {
            // Written before a server restarted: what is here is newer than what is there.
            self.size = self.size.max(attr.size);
            self.rebase(place);
            return;
        }
        self.size = attr.size;
        if let Place::Striped(layout) = &place {
            self.blocks = vec![None; layout.osts.len()];
        }
        // The size of one that others write is not known; nor is it while an OST may have lost what is to be
        // sent to it again.
        let sized = attr.flags & A_SIZE_LAGS == 0 || (seen.is_some() && self.unstable.is_empty());
        let behind = self.held().dirty > 0;
        if sized && !overtaken && written.is_none() && !behind {
            self.mark = asked.mark;
        }
        if let Some(seen) = seen {
            let resent = self.unstable.runs().map(|(at, seg)| at + seg.data.len()).max();
            self.size = seen.size.max(resent.unwrap_or(0));
            self.attr.mtime = self.attr.mtime.max(seen.mtime);
            self.blocks = seen.blocks;
        }
        let late = self.unsaid.map(|late| late.end);
        let ends = [late, written, self.dirty.end(), self.flight.end()];
        self.size = self.size.max(ends.into_iter().flatten().max().unwrap_or(0));
        self.place = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::attr::A_INLINE;

    /// One thread asks where a file's data is, another one removes its last name.
    #[test]
    fn what_was_said_of_a_file_before_it_was_removed_does_not_bring_it_back() {
        let at = |version, nlink| {
            let flags = A_INLINE;
            Attr { version, nlink, flags, size: 3, ..crate::filling::tests::attr() }
        };
        let place = || place_of(Some(Bytes::from_static(b"old")), None);
        let asked = Asked { epoch: 1, life: 1, mark: Mark::default() };
        for known in [1, 0] {
            let inode = Inode::new(at(4, 1));
            let mut st = inode.st.lock();
            st.epoch = known;
            st.removed(&at(6, 0), asked);
            st.take_in(&at(5, 1), place(), None, asked);
            assert_eq!((st.attr.nlink, st.attr.version, st.mark), (0, 6, Mark::NEVER));
        }
        let inode = Inode::new(at(4, 1));
        let mut st = inode.st.lock();
        st.take_in(&at(5, 1), place(), None, asked);
        assert_eq!((st.attr.nlink, st.attr.version, st.size), (1, 5, 3));
    }
}
