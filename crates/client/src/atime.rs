//! Access times.

use std::sync::Arc;

use proto::mds::{LS_ATTR, Op, Res, SizeReport};
use proto::{Attr, Fid, TimeSpec};

use crate::config::Atime;
use crate::core::{Core, now};
use crate::inode::{Inode, State};
use crate::talk::{Talk, try_talk};
use crate::worker::CLOSES_PER_MESSAGE;

/// An access time older than this moves with the next read, in seconds (as Linux's relatime).
const DAY: i64 = 24 * 3600;

impl Core {
    /// Tells when these files were read, before attributes of them change elsewhere. Waits for nobody on
    /// this client who may himself wait for whoever wants the leases: what somebody else is telling the
    /// MDT about a file goes first, and this later.
    pub(crate) fn tell_read(&self, files: &[Arc<Inode>]) {
        for files in files.chunks(CLOSES_PER_MESSAGE) {
            let talks: Vec<Talk> = files.iter().filter_map(try_talk).collect();
            let told = |talk: &Talk| Some((talk.0.fid, talk.0.st.lock().atime?));
            let told: Vec<_> = talks.iter().filter_map(told).collect();
            let ops: Vec<Op> = told.iter().map(|(fid, atime)| read_at(*fid, *atime)).collect();
            let answers = if ops.is_empty() { Ok(Vec::new()) } else { self.mdt.past(ops) };
            for ((fid, atime), answer) in told.into_iter().zip(answers.unwrap_or_default()) {
                let talk = talks.iter().find(|talk| talk.0.fid == fid);
                if let (Res::Attr { .. }, Some(talk)) = (answer, talk) {
                    let mut st = talk.0.st.lock();
                    st.atime = st.atime.filter(|now| *now != atime);
                }
            }
        }
    }

    /// Others have read files, and the MDT tells when. Of what is not believed an answer may be on its way that is older:
    /// that counts for nothing.
    pub(crate) fn accessed_elsewhere(&self, files: &[Attr]) {
        for attr in files {
            if !self.mdt.wb.accessed(attr) {
                self.leases.recalled(attr.fid, LS_ATTR);
                self.mdt.wb.recalled(attr.fid, LS_ATTR);
            }
            if let Some(inode) = self.registry.find(attr.fid) {
                let mut st = inode.st.lock();
                if self.knows(&st) {
                    let epoch = st.epoch;
                    st.learn(attr, epoch);
                }
            }
        }
        let fids: Vec<Fid> = files.iter().map(|attr| attr.fid).collect();
        self.mdt.announce_changes(&fids);
    }

    /// A file was read.
    pub(crate) fn accessed(&self, inode: &Arc<Inode>) {
        if self.options.atime == Atime::Never {
            return;
        }
        let mut st = inode.st.lock();
        if self.moves_atime(&st) {
            st.atime = Some(now());
        }
    }

    /// Whether the next read of a file moves its access time.
    pub(crate) fn moves_atime(&self, st: &State) -> bool {
        let last = st.atime.unwrap_or(st.attr.atime);
        self.moves(last, st.mtime.unwrap_or(st.attr.mtime), st.attr.ctime)
    }

    /// The same, of what has these times.
    pub(crate) fn moves(&self, last: TimeSpec, mtime: TimeSpec, ctime: TimeSpec) -> bool {
        match self.options.atime {
            Atime::Never => false,
            Atime::Strict => true,
            Atime::Relative => last <= mtime || last <= ctime || now().sec - last.sec >= DAY,
        }
    }
}

/// Tells that an inode was read then, and nothing else.
pub(crate) fn read_at(fid: Fid, atime: TimeSpec) -> Op {
    let none = SizeReport { size: 0, exact: false, blocks: None, mtime: None, atime: None };
    Op::Report { fid, report: SizeReport { atime: Some(atime), ..none } }
}
