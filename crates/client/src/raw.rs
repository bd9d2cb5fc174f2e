//! A bare session to a metadata target: no caches, no data; for measuring an MDT with thousands of
//! sessions in one process.

use std::sync::Arc;
use std::time::Duration;

use net::{ClusterKey, ConnectOptions, Endpoint, Session};
use proto::mds::{Grant, Op, Res};
use proto::{Attr, Errno, Fid, FileKind, Wire};

use crate::ClientError;
use crate::counters::Counters;
use crate::mdt::{Mdt, own_cred};

/// One session. Never the only one who may cache: it answers no call-backs.
pub struct MdsSession {
    mdt: Arc<Mdt>,
}

impl MdsSession {
    /// Opens a session to `MDT0000` (or another `target`) of the file system `fs`.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn connect(
        endpoint: &Endpoint,
        target: &str,
        fs: [u8; 16],
        key: Option<ClusterKey>,
    ) -> Result<MdsSession, ClientError> {
        let options = ConnectOptions {
            target: target.to_string(),
            fs,
            key,
            features: proto::mgs::FEATURE_OBSERVER,
            request_timeout: Some(Duration::from_secs(60)),
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
        Ok(MdsSession { mdt: Arc::new(Mdt::new(session, counters, grant.fids, Arc::default())) })
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

    fn make(&self, dir: Fid, name: &[u8], mode: u32) -> Result<Attr, Errno> {
        self.attr(Op::Create {
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
