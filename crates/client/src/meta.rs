//! Metadata operations: each is one message, its answer merged with what is known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proto::attr::{A_SIZE_LAGS, S_ATIME, S_ATIME_NOW, S_OPENED, S_SIZE};
use proto::layout::LayoutSpec;
use proto::mds::{
    C_OPEN, C_TMPFILE, C_TRUNC, Cred, O_READ, O_WRITE, Op, OpenInfo, RD_PLUS, RN_WHITEOUT, Res,
};
use proto::wire::List;
use proto::{Attr, Errno, Fid, FileKind, SetAttr};

use crate::client::Client;
use crate::core::Asked;
use crate::file::HERE;
use crate::mdt::own_cred;
use crate::promises::Caller;
use crate::resize::attr_of;
use crate::types::{Created, Dir, LayoutInfo, Space};
use crate::{OpenFile, OpenFlags};

/// Times a name is asked for whose file is removed each time before its size is known.
const LOOKUPS: u32 = 8;

fn wire_flags(open: OpenFlags) -> u32 {
    (u32::from(open.read) * O_READ) | (u32::from(open.write) * O_WRITE)
}

impl Client {
    /// One operation.
    fn ask(&self, cred: &Cred, op: Op) -> Result<Res, Errno> {
        self.core().mdt.one(cred, op)
    }

    /// One operation that answers attributes.
    fn ask_attr(&self, cred: &Cred, op: Op) -> Result<Attr, Errno> {
        let asked = self.core().asked();
        let attr = attr_of(self.ask(cred, op)?)?;
        self.core().settle(attr, asked)
    }

    /// One operation that answers bytes.
    fn ask_data(&self, cred: &Cred, op: Op) -> Result<Bytes, Errno> {
        match self.ask(cred, op)? {
            Res::Data { data } => Ok(data),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Resolves a name (`.` and `..` too). ESTALE: the directory is gone.
    pub fn lookup(&self, cred: &Cred, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        let mut left = LOOKUPS;
        loop {
            let asked = self.core().asked();
            let found = attr_of(self.ask(cred, Op::Lookup { dir, name: name.to_vec() })?)?;
            left -= 1;
            match self.core().settle(found.clone(), asked) {
                // What it stood for was removed before its size was known; by now it may stand for something else.
                Err(Errno::ESTALE) if left > 0 => {}
                Err(Errno::ESTALE) => return Ok(found),
                settled => return settled,
            }
        }
    }

    /// Attributes after a change, which is done whether they can be had or not: else as the MDT told them.
    fn settled_or_told(&self, told: Attr, asked: Asked) -> Attr {
        self.core().settle(told.clone(), asked).unwrap_or_else(|error| {
            tracing::debug!(fid = %told.fid, %error, "a size is as the MDT knows it");
            told
        })
    }

    /// Attributes; size and times include what this client wrote and did not report yet.
    pub fn getattr(&self, cred: &Cred, fid: Fid) -> Result<Attr, Errno> {
        let core = self.core();
        if let Some(inode) = core.registry.find(fid) {
            let st = inode.st.lock();
            if core.knows(&st) && st.attr.nlink > 0 {
                return Ok(st.show());
            }
        }
        self.ask_attr(cred, Op::GetAttr { fid })
    }

    /// Changes attributes. With S_SIZE the data is cut too. `file`: an open file of the caller
    /// (ftruncate: no permission check on the size, when it is open for writing).
    pub fn setattr(
        &self,
        cred: &Cred,
        fid: Fid,
        mut set: SetAttr,
        file: Option<&OpenFile>,
    ) -> Result<Attr, Errno> {
        if file.is_some_and(|f| f.flags().write) {
            set.valid |= S_OPENED;
        }
        let core = self.core();
        let inode = match file {
            Some(file) => Some(file.inode().clone()),
            None => core.registry.find(fid),
        };
        if let Some(inode) = inode {
            return core.set_file(cred, &inode, set);
        }
        if set.valid & (S_ATIME | S_ATIME_NOW) != 0 {
            core.looks.forget(fid);
        }
        if set.valid & S_SIZE == 0 {
            return self.ask_attr(cred, Op::SetAttr { fid, set });
        }
        let attr = attr_of(self.ask(cred, Op::GetAttr { fid })?)?;
        match attr.kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        let inode = core.registry.get(&attr);
        let outcome = core.set_file(cred, &inode, set);
        core.registry.rest(&inode);
        outcome
    }

    /// Makes an inode of any kind (`mode` carries the type; `target` for symlinks), or with
    /// `open` creates and opens a regular file. `flags`: `C_EXCL`, `C_TRUNC` of [`proto::mds`]
    /// (C_OPEN is set by `open`).
    pub fn create(
        &self,
        cred: &Cred,
        dir: Fid,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u64,
        target: &[u8],
        flags: u8,
        open: Option<OpenFlags>,
    ) -> Result<Created, Errno> {
        let core = self.core();
        let _opening = open.map(|_| core.opening(None));
        let asked = core.asked();
        let fid = core.mdt.fid()?;
        let op = Op::Create {
            dir,
            name: name.to_vec(),
            fid,
            mode,
            umask,
            rdev,
            target: target.to_vec(),
            // Cutting an existing file is this client's work: its objects go first.
            flags: (flags & !C_TRUNC & !C_OPEN) | if open.is_some() { C_OPEN } else { 0 },
            open: open.map_or(0, wire_flags),
        };
        let (answer, got) = core.mdt.one_got(cred, op)?;
        let (attr, created, info) = match answer {
            Res::Entry { attr, created, open } => (attr, created, open),
            _ => return Err(Errno::EPROTO),
        };
        let asked = asked.under(&got, attr.fid);
        let (Some(open), Some(info)) = (open, info) else {
            return Ok(Created { attr: core.settle(attr, asked)?, created, file: None });
        };
        let trunc = !created && (open.trunc || flags & C_TRUNC != 0);
        let file = self.take_open(cred, &attr, &info, OpenFlags { trunc, ..open }, asked)?;
        if created {
            file.inode().st.lock().unsynced = true;
        }
        Ok(Created { attr: core.settle(attr, asked)?, created, file: Some(file) })
    }

    /// An open file without a name (O_TMPFILE).
    pub fn tmpfile(
        &self,
        cred: &Cred,
        dir: Fid,
        mode: u32,
        umask: u32,
        open: OpenFlags,
    ) -> Result<Created, Errno> {
        self.create(cred, dir, b"", mode, umask, 0, b"", C_TMPFILE, Some(open))
    }

    /// Gives a file another name.
    pub fn link(&self, cred: &Cred, fid: Fid, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        let asked = self.core().asked();
        let linked = attr_of(self.ask(cred, Op::Link { fid, dir, name: name.to_vec() })?)?;
        match self.core().settle(linked.clone(), asked) {
            // All its names are gone by now.
            Err(Errno::ESTALE) => Ok(linked),
            settled => settled,
        }
    }

    /// Removes a name; attributes of what lost it.
    pub fn unlink(&self, cred: &Cred, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.remove(cred, dir, name, false)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, cred: &Cred, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.remove(cred, dir, name, true)
    }

    fn remove(&self, cred: &Cred, dir: Fid, name: &[u8], rmdir: bool) -> Result<Attr, Errno> {
        let asked = self.core().asked();
        let _removal = if rmdir { None } else { Some(self.core().removal(&[(dir, name)])?) };
        let op = Op::Unlink { dir, name: name.to_vec(), rmdir };
        let attr = attr_of(self.ask(cred, op)?)?;
        Ok(self.lost_name(attr, asked))
    }

    /// An inode lost a name, maybe its last.
    fn lost_name(&self, mut attr: Attr, asked: Asked) -> Attr {
        if attr.nlink == 0 {
            self.core().registry.gone(attr.fid);
            attr = self.core().looks.last(attr);
        }
        if attr.nlink > 0 || attr.is_dir() {
            return self.settled_or_told(attr, asked);
        }
        if let Some(inode) = self.core().to_be_told_of(&attr) {
            self.core().last_seen(&inode, &mut attr);
            self.core().unlinked(&inode, &attr, asked);
            let waits = {
                let mut st = inode.st.lock();
                if st.opens == 0 {
                    // When it was read last interests nobody.
                    st.atime = None;
                }
                st.opens > 0 && st.late
            };
            // Its last close may be waiting, and the MDT for that. The closer needs the lock.
            if waits {
                self.core().hurry();
            }
        }
        attr
    }

    /// Renames; `flags`: `RN_*`. Attributes of what moved, and of what was replaced (or exchanged).
    pub fn rename(
        &self,
        cred: &Cred,
        from_dir: Fid,
        from: &[u8],
        to_dir: Fid,
        to: &[u8],
        flags: u32,
    ) -> Result<(Attr, Option<Attr>), Errno> {
        let asked = self.core().asked();
        let _removal = self.core().removal(&[(to_dir, to)])?;
        let (from, to) = (from.to_vec(), to.to_vec());
        let op = if flags & RN_WHITEOUT == 0 {
            Op::Rename { from_dir, from, to_dir, to, flags }
        } else {
            let fid = self.core().mdt.fid()?;
            Op::Whiteout { from_dir, from, to_dir, to, flags: flags & !RN_WHITEOUT, fid }
        };
        match self.ask(cred, op)? {
            Res::Renamed { moved, replaced } => {
                let replaced = replaced.map(|attr| self.lost_name(attr, asked));
                Ok((self.settled_or_told(moved, asked), replaced))
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Entries after `cookie` (0: from the start), about `max_bytes` of them; `plus`: with
    /// attributes.
    pub fn readdir(
        &self,
        cred: &Cred,
        dir: Fid,
        cookie: u64,
        max_bytes: u32,
        plus: bool,
    ) -> Result<Dir, Errno> {
        let asked = self.core().asked();
        let flags = if plus { RD_PLUS } else { 0 };
        let (List(mut entries), end) =
            match self.ask(cred, Op::ReadDir { dir, cookie, max_bytes, flags })? {
                Res::Entries { entries, end } => (entries, end),
                _ => return Err(Errno::EPROTO),
            };
        let mut lost = self.core().lacks_osts();
        for entry in &mut entries {
            if let Some(attr) = entry.attr.take() {
                entry.attr = self.listed(attr, asked, &mut lost);
            }
        }
        Ok(Dir { entries, end })
    }

    /// Attributes of a file that is listed; None where they cannot be told. That keeps nobody from the names: who looks at
    /// the file itself waits, and hears why. Once an OST is `lost` no other is asked.
    fn listed(&self, attr: Attr, asked: Asked, lost: &mut bool) -> Option<Attr> {
        let core = self.core();
        let owned = || core.registry.find(attr.fid).is_some_and(|i| core.owns(&i.st.lock()));
        if *lost && attr.flags & A_SIZE_LAGS != 0 && !owned() {
            return None;
        }
        let fid = attr.fid;
        let settled = core.settle(attr, asked);
        if let Err(e) = &settled {
            tracing::debug!(%fid, error = %e, "a file is listed without its attributes");
            // One that was removed meanwhile says nothing of its OSTs.
            *lost |= *e != Errno::ESTALE;
        }
        settled.ok()
    }

    /// Target of a symlink.
    pub fn readlink(&self, cred: &Cred, fid: Fid) -> Result<Bytes, Errno> {
        let target = self.ask_data(cred, Op::ReadLink { fid })?;
        self.core().looked_at(fid);
        Ok(target)
    }

    /// A directory was listed from its beginning.
    pub fn listed_from_beginning(&self, dir: Fid) {
        self.core().looked_at(dir);
    }

    /// Opens a regular file.
    pub fn open(&self, cred: &Cred, fid: Fid, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
        if let Some(inode) = self.core().open_here(fid, flags) {
            return Ok(Arc::new(OpenFile::new(self.clone(), inode, HERE, flags)));
        }
        let _opening = self.core().opening(Some(fid));
        let asked = self.core().asked();
        if let Some(file) = self.open_untold(cred, fid, flags, asked)? {
            return Ok(file);
        }
        if flags.write
            && self.core().mdt.ask_together(fid)
            && let Some(file) = self.open_untold(cred, fid, flags, self.core().asked())?
        {
            return Ok(file);
        }
        let asked = self.core().asked();
        let op = Op::Open { fid, flags: wire_flags(flags), handle: 0 };
        match self.core().mdt.one_got(cred, op)? {
            (Res::Opened { attr, open }, got) => {
                self.take_open(cred, &attr, &open, flags, asked.under(&got, fid))
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Opens a file under a handle the MDT is told of later, if at all.
    fn open_untold(
        &self,
        cred: &Cred,
        fid: Fid,
        flags: OpenFlags,
        asked: Asked,
    ) -> Result<Option<Arc<OpenFile>>, Errno> {
        let core = self.core();
        let alone = core.caching();
        if !alone && !flags.write {
            return self.open_leased(cred, fid, flags, asked);
        }
        let loaded = core.registry.find(fid).filter(|inode| {
            let st = inode.st.lock();
            if alone { st.is_loaded(asked.epoch) } else { core.owns(&st) }
        });
        let inode = match loaded {
            Some(inode) => inode,
            None if flags.write => return Ok(None),
            None => match core.learn_small(cred, fid, asked)? {
                Some(inode) => inode,
                None => return Ok(None),
            },
        };
        let Some(handle) = core.mdt.wb.open(fid, wire_flags(flags)) else { return Ok(None) };
        core.options.pauses.point();
        {
            let mut st = inode.st.lock();
            st.opens += 1;
            st.handles.push((handle, wire_flags(flags)));
        }
        let file = Arc::new(OpenFile::new(self.clone(), inode.clone(), handle, flags));
        if flags.trunc {
            core.set_file(cred, &inode, SetAttr::size(0))?;
        }
        Ok(Some(file))
    }

    /// Opens a file for reading under a lease, which comes with its data, if it can be had.
    fn open_leased(
        &self,
        cred: &Cred,
        fid: Fid,
        flags: OpenFlags,
        asked: Asked,
    ) -> Result<Option<Arc<OpenFile>>, Errno> {
        let core = self.core();
        if flags.write || flags.trunc || !core.believes() {
            return Ok(None);
        }
        if core.learn_small(cred, fid, asked)?.is_none() {
            return Ok(None);
        }
        let opened = core.open_here(fid, flags);
        Ok(opened.map(|inode| Arc::new(OpenFile::new(self.clone(), inode, HERE, flags))))
    }

    /// What the MDT opened becomes an open file.
    fn take_open(
        &self,
        cred: &Cred,
        attr: &Attr,
        open: &OpenInfo,
        flags: OpenFlags,
        asked: Asked,
    ) -> Result<Arc<OpenFile>, Errno> {
        let core = self.core();
        core.options.pauses.point();
        let inode = core.registry.get(attr);
        {
            let mut st = inode.st.lock();
            st.opens += 1;
            st.handles.push((open.handle, wire_flags(flags)));
        }
        let file = Arc::new(OpenFile::new(self.clone(), inode.clone(), open.handle, flags));
        core.opened(&inode, attr, open, asked)?;
        if flags.trunc {
            core.set_file(cred, &inode, SetAttr::size(0))?;
        }
        Ok(file)
    }

    /// Value of an extended attribute; ENODATA.
    pub fn getxattr(&self, cred: &Cred, fid: Fid, name: &[u8]) -> Result<Bytes, Errno> {
        self.ask_data(cred, Op::GetXattr { fid, name: name.to_vec() })
    }

    /// Sets an extended attribute; `flags` as in setxattr(2).
    pub fn setxattr(
        &self,
        cred: &Cred,
        fid: Fid,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<Attr, Errno> {
        let value = Bytes::copy_from_slice(value);
        self.ask_attr(cred, Op::SetXattr { fid, name: name.to_vec(), value, flags })
    }

    /// NUL-separated names of extended attributes.
    pub fn listxattr(&self, cred: &Cred, fid: Fid) -> Result<Bytes, Errno> {
        self.ask_data(cred, Op::ListXattr { fid })
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, cred: &Cred, fid: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.ask_attr(cred, Op::RemoveXattr { fid, name: name.to_vec() })
    }

    /// Layout of a file or default of a directory.
    pub fn get_layout(&self, cred: &Cred, fid: Fid) -> Result<LayoutInfo, Errno> {
        match self.ask(cred, Op::GetLayout { fid })? {
            Res::LayoutInfo { layout, spec } => Ok(LayoutInfo { layout, spec }),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Wishes a layout: of a file without data, or a directory's default.
    pub fn set_layout(&self, cred: &Cred, fid: Fid, spec: LayoutSpec) -> Result<Attr, Errno> {
        if let Some(inode) = self.core().registry.find(fid) {
            self.core().tell(&inode, false, false)?;
        }
        self.ask_attr(cred, Op::SetLayout { fid, spec })
    }

    /// Space of the file system.
    pub fn statfs(&self) -> Result<Space, Errno> {
        match self.ask(&own_cred(), Op::Statfs {})? {
            Res::Statfs { total, free, available, files, files_free } => {
                self.core().with_space(Space { total, free, available, files, files_free })
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Bytes free on each OST by its index; none of one that does not answer.
    pub fn ost_space(&self) -> BTreeMap<u32, Option<u64>> {
        self.core().ost_space()
    }

    /// syncfs(2): all this client wrote and changed is durable.
    pub fn sync_all(&self) -> Result<(), Errno> {
        self.core().sync_all(None)
    }

    /// The same; of a loss each caller hears once.
    pub fn sync_all_for(&self, caller: Caller) -> Result<(), Errno> {
        self.core().sync_all(Some(caller))
    }

    /// fsync(2) of a directory (or of an inode that is not open): earlier changes are durable.
    pub fn fsync_dir(&self, fid: Fid) -> Result<(), Errno> {
        if let Some(inode) = self.core().registry.find(fid) {
            self.core().fsync(&inode, false)?;
        }
        match self.ask(&own_cred(), Op::Sync {})? {
            Res::Done {} => {}
            _ => return Err(Errno::EPROTO),
        }
        self.core().note_lost();
        let lost = self.core().lost_dirs.lock().remove(&fid);
        self.core().mdt.promises.check_fid(fid).and(lost.map_or(Ok(()), Err))
    }

    /// Paths of a file from the root of what is mounted, one per link. ENOENT: it has none below that.
    pub fn fid_to_path(&self, cred: &Cred, fid: Fid) -> Result<Vec<Vec<u8>>, Errno> {
        let (paths, root) = (self.whole_paths(cred, fid)?, self.root().fid);
        if root == Fid::ROOT {
            return Ok(paths);
        }
        // A directory, so it has one; another by now, if it was moved.
        let top = self.whole_paths(cred, root)?.pop().ok_or(Errno::ENOENT)?;
        let below = |path: Vec<u8>| match path.strip_prefix(&top[..])? {
            [] => Some(b"/".to_vec()),
            rest if rest.starts_with(b"/") => Some(rest.to_vec()),
            _ => None,
        };
        let found: Vec<Vec<u8>> = paths.into_iter().filter_map(below).collect();
        if found.is_empty() { Err(Errno::ENOENT) } else { Ok(found) }
    }

    /// Paths of a file from the file system's root, one per link.
    fn whole_paths(&self, cred: &Cred, fid: Fid) -> Result<Vec<Vec<u8>>, Errno> {
        match self.ask(cred, Op::FidToPath { fid })? {
            Res::Paths { paths } => Ok(paths.0),
            _ => Err(Errno::EPROTO),
        }
    }

    /// State of the metadata targets, one JSON text each, for `status`.
    pub fn status_json(&self) -> Result<Vec<Bytes>, Errno> {
        Ok(vec![self.ask_data(&own_cred(), Op::Status {})?])
    }
}
