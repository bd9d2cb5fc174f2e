//! A bare session to a metadata target: no caches, no data; for measuring an MDT with thousands of
//! sessions in one process.

use std::sync::Arc;

use net::{ClusterKey, ConnectOptions, Endpoint, Session};
use proto::mds::{Grant, Op, Res};
use proto::{Attr, Errno, Fid, FileKind, Wire};

use crate::ClientError;
use crate::counters::Counters;
use crate::leases::Leases;
use crate::listener::Told;
use crate::mdt::{Mdt, own_cred};
use crate::pauses::Pauses;
use crate::wb::{Trust, Wb};

/// One session. Never the only one who may cache: it answers no call-backs.
pub struct MdsSession {
    mdt: Arc<Mdt>,
}

impl MdsSession {
    /// Opens a session to `MDT0000` (or another `target`) of the file system `fs`; `share`: on a
    /// connection that others of this process use, too.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn connect(
        endpoint: &Endpoint,
        target: &str,
        fs: [u8; 16],
        key: Option<ClusterKey>,
        share: bool,
    ) -> Result<MdsSession, ClientError> {
        let options = ConnectOptions {
            target: target.to_string(),
            fs,
            key,
            features: proto::mgs::FEATURE_OBSERVER,
            // Who measures wants no timers of the client among what is measured.
            reconnect: false,
            share,
            ..ConnectOptions::default()
        };
        let fail = |why| ClientError::Connect {
            target: target.to_string(),
            address: endpoint.to_string(),
            why,
        };
        let session = Session::connect(endpoint, options).map_err(fail)?;
        let grant = Grant::from_bytes(&session.welcome().data)
            .map_err(|e| fail(net::NetError::Protocol(e.to_string())))?;
        let counters = Arc::new(Counters::default());
        let leases = Arc::new(Leases::new(false));
        // Nothing is ever logged.
        let patience = crate::Options::default().request_timeout;
        let wb = Wb::new(Trust::new(Arc::default(), leases, true), 0, 1000, patience);
        let (flusher, _) = crossbeam_channel::bounded(1);
        let promises = Arc::default();
        let (pauses, nobody) = (Pauses::default(), Told::default());
        let mdt = Mdt::new(session, counters, grant.fids, promises, wb, flusher, pauses, nobody);
        Ok(MdsSession { mdt })
    }

    /// Runs operations as one message; what each answered, up to the first that failed.
    pub fn compound(&self, ops: Vec<Op>) -> Result<Vec<Res>, Errno> {
        self.mdt.compound(&own_cred(), ops)
    }

    fn attr(&self, op: Op) -> Result<Attr, Errno> {
        match self.mdt.one(&own_cred(), op)? {
            Res::Attr { attr } | Res::Entry { attr, .. } => Ok(attr),
            _ => Err(Errno::EPROTO),
        }
    }

    fn making(&self, dir: Fid, name: &[u8], mode: u32) -> Result<Op, Errno> {
        Ok(Op::Create {
            dir,
            name: name.to_vec(),
            fid: self.mdt.fid()?,
            mode,
            umask: 0,
            rdev: 0,
            target: Vec::new(),
            flags: proto::mds::C_EXCL,
            open: 0,
        })
    }

    fn make(&self, dir: Fid, name: &[u8], mode: u32) -> Result<Attr, Errno> {
        self.attr(self.making(dir, name, mode)?)
    }

    fn start(&self, op: Op, done: impl FnOnce(Result<Res, Errno>) + Send + 'static) {
        let done = move |r: Result<Vec<Res>, Errno>| done(r.and_then(crate::mdt::last));
        self.mdt.submit(&own_cred(), vec![op], done);
    }

    /// As [`MdsSession::create`] without waiting; `done` runs on a thread of `net`.
    pub fn start_create(
        &self,
        dir: Fid,
        name: &[u8],
        done: impl FnOnce(Result<Res, Errno>) + Send + 'static,
    ) -> Result<(), Errno> {
        self.start(self.making(dir, name, FileKind::File.mode_bits() | 0o644)?, done);
        Ok(())
    }

    /// As [`MdsSession::stat`] without waiting.
    pub fn start_stat(
        &self,
        dir: Fid,
        name: &[u8],
        done: impl FnOnce(Result<Res, Errno>) + Send + 'static,
    ) {
        self.start(Op::Lookup { dir, name: name.to_vec() }, done);
    }

    /// As [`MdsSession::unlink`] without waiting.
    pub fn start_unlink(
        &self,
        dir: Fid,
        name: &[u8],
        done: impl FnOnce(Result<Res, Errno>) + Send + 'static,
    ) {
        self.start(Op::Unlink { dir, name: name.to_vec(), rmdir: false }, done);
    }

    /// Has FIDs granted, so that the first create does not have to wait for them.
    pub fn prepare(&self) -> Result<(), Errno> {
        self.mdt.fid().map(drop)
    }

    /// Creates (mknod) a regular file; EEXIST.
    pub fn create(&self, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.make(dir, name, FileKind::File.mode_bits() | 0o644)
    }

    /// Creates a directory; EEXIST.
    pub fn mkdir(&self, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.make(dir, name, FileKind::Dir.mode_bits() | 0o755)
    }

    /// Looks a name up, with attributes.
    pub fn stat(&self, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.attr(Op::Lookup { dir, name: name.to_vec() })
    }

    /// Removes a name.
    pub fn unlink(&self, dir: Fid, name: &[u8]) -> Result<Attr, Errno> {
        self.attr(Op::Unlink { dir, name: name.to_vec(), rmdir: false })
    }

    /// Says goodbye.
    pub fn close(&self) {
        self.mdt.session.close();
    }
}
