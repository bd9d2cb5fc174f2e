//! What the layer above is told when caches must go.

use std::sync::Arc;

use parking_lot::RwLock;
use proto::Fid;
use proto::mds::Lease;

/// Who is told, once there is somebody.
pub(crate) type Told = Arc<RwLock<Option<Arc<dyn Listener>>>>;

/// Told about leases. Methods run on threads of the client that hold none of its locks; they may
/// block, but must not call methods that wait for a lease.
pub trait Listener: Send + Sync + 'static {
    /// The SOLE lease is gone (`false`; all dirty data is flushed: drop every cached name,
    /// attribute and page before returning) or is here (`true`).
    fn sole(&self, now: bool);
    /// Drop what is cached of one inode: attributes, data, names in it.
    fn forget(&self, fid: Fid);
    /// These leases are given back when this returns: drop what is cached of their inodes.
    fn recalled(&self, leases: &[Lease]);
    /// Somebody else has written a file that is watched: drop what is cached of its bytes.
    fn written(&self, _fid: Fid) {}
    /// Changes of these inodes are about to be sent, which others may see before they are answered; until then nothing of
    /// them is vouched for. Drop cached attributes. Runs on the thread that asked for the change.
    fn changing(&self, _fids: &[Fid]) {}
    /// Whether bytes of a watched file may have been cached since they were dropped last.
    fn shows(&self, _fid: Fid) -> bool {
        false
    }
    /// Nothing is believed any more that leases stood for: the session is lost, the MDT was not heard for
    /// long, or this client was evicted. Drop cached attributes.
    fn doubted(&self) {}
    /// A server restarted and what is cached may be older than the file system: drop everything.
    fn reset(&self);
}
