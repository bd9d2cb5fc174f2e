//! Extended attributes: those of users, and the layout under Lustre's names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use fuse::{Errno, Reply, Request, Xattr};
use proto::attr::{A_HAS_XATTR, S_MODE, SetAttr};
use proto::layout::{DEFAULT_STRIPE_COUNT, DEFAULT_STRIPE_SIZE, LayoutSpec};
use proto::lov::{Lov, LovError};
use proto::mds::Cred;
use proto::{Fid, FileKind, XATTR_NAME_MAX};

use crate::convert::{cred, errno};
use crate::fs::PinstripeFs;

/// The layout, in Lustre's bytes; both names hold the same.
const LOV: [&[u8]; 2] = [b"lustre.lov", b"trusted.lov"];
/// The FID as text.
const FID: &[u8] = b"lustre.fid";
/// Paths of the file within the file system, NUL-terminated each.
const PATHS: &[u8] = b"lustre.paths";

/// OSTs, a line each: index and bytes free, `-` where it does not answer. So that programs which choose
/// stripe counts need not ask the servers.
const OSTS: &[u8] = b"lustre.osts";

/// What a program may do that a user who starts it may not; see capabilities(7).
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// A label of SELinux.
const LABEL: &[u8] = b"security.selinux";

/// Whether this host knows labels.
fn labels() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| std::path::Path::new("/sys/fs/selinux/enforce").exists())
}

/// Name spaces a file system on Linux has; others are EOPNOTSUPP, a bare prefix is EINVAL.
fn check(name: &[u8]) -> Result<(), Errno> {
    if name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE);
    }
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match spaces.iter().find_map(|s| name.strip_prefix(*s)) {
        Some(b"") => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None if name.starts_with(b"system.posix_acl_") => Ok(()),
        None => Err(Errno::new(libc::EOPNOTSUPP)),
    }
}

impl PinstripeFs {
    pub(crate) fn get_xattr(&self, req: &Request, node: u64, name: &OsStr, reply: Reply<Xattr>) {
        let (fid, name) = (self.caches.fid(node), name.as_bytes());
        let cred = cred(req);
        let value = match name {
            n if LOV.contains(&n) => self.get_lov(&cred, fid),
            FID => Ok(Bytes::from(fid.to_string())),
            PATHS => self.paths(&cred, fid),
            OSTS => Ok(self.osts()),
            // Where nobody gives out labels, `ls -l` asks for that of each file anew unless it hears
            // that there are none at all.
            LABEL => self.plain(req, fid, name).map_err(|e| match e.get() {
                libc::ENODATA if !labels() => Errno::new(libc::EOPNOTSUPP),
                _ => e,
            }),
            _ => check(name).and_then(|()| self.plain(req, fid, name)),
        };
        reply.send_value(value);
    }

    fn plain(&self, req: &Request, fid: Fid, name: &[u8]) -> Result<Bytes, Errno> {
        // Nearly every inode has none: this is asked before each check of permissions.
        if self.caches.flags(fid).is_some_and(|f| f & A_HAS_XATTR == 0) {
            return Err(Errno::new(libc::ENODATA));
        }
        match self.client.getxattr(&cred(req), fid, name) {
            // Removed while somebody still holds it: the kernel asks for its ACLs.
            Err(proto::Errno::ESTALE)
                if self.caches.nodes.gone(self.caches.node(fid)).is_some() =>
            {
                Err(Errno::new(libc::ENODATA))
            }
            got => got.map_err(|e| self.lost(req, e)),
        }
    }

    fn paths(&self, cred: &Cred, fid: Fid) -> Result<Bytes, Errno> {
        let paths = self.client.fid_to_path(cred, fid).map_err(errno)?;
        Ok(paths.into_iter().flat_map(|p| [p, vec![0]].concat()).collect::<Vec<u8>>().into())
    }

    fn osts(&self) -> Bytes {
        let line = |(index, free): (u32, Option<u64>)| {
            format!("{index} {}\n", free.map_or("-".into(), |free| free.to_string()))
        };
        self.client.ost_space().into_iter().map(line).collect::<String>().into()
    }

    fn get_lov(&self, cred: &Cred, fid: Fid) -> Result<Bytes, Errno> {
        let info = self.client.get_layout(cred, fid).map_err(errno)?;
        let lov = match (info.layout, info.spec) {
            (Some(layout), _) => Lov::of_file(fid, &layout),
            (None, Some(spec)) => Lov::of_spec(&effective(spec)),
            (None, None) => {
                let attr = self.client.getattr(cred, fid).map_err(errno)?;
                // Of what can have one the root and files show the default.
                if attr.kind() != FileKind::File && fid != Fid::ROOT {
                    return Err(Errno::new(libc::ENODATA));
                }
                Lov::of_spec(&effective(LayoutSpec::DEFAULT))
            }
        };
        Ok(lov.encode().into())
    }

    pub(crate) fn set_xattr(
        &self,
        req: &Request,
        node: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        let (fid, name) = (self.caches.fid(node), name.as_bytes());
        let cred = cred(req);
        if LOV.contains(&name) {
            let spec = Lov::decode(value).and_then(|l| l.to_spec()).map_err(|e| {
                tracing::info!(%fid, error = %e, "a layout was refused");
                let unsupported = matches!(e, LovError::Unsupported(_));
                if unsupported { Errno::new(libc::EOPNOTSUPP) } else { Errno::EINVAL }
            })?;
            return self.client.set_layout(&cred, fid, spec).map(drop).map_err(errno);
        }
        check(name)?;
        self.caches.unlearn(fid);
        let mark = self.caches.mark();
        let mut attr =
            self.client.setxattr(&cred, fid, name, value, flags).map_err(|e| self.lost(req, e))?;
        if name == CAPABILITY {
            self.caches.capabilities.fetch_add(1, Ordering::SeqCst);
        }
        // The kernel asks for it with either ACL; only the access ACL changes the mode.
        let kills = kill_sgid && name == b"system.posix_acl_access";
        if kills && attr.mode & 0o2000 != 0 {
            let set = SetAttr { valid: S_MODE, mode: attr.mode & 0o5777, ..SetAttr::none() };
            attr = self.client.setattr(&cred, fid, set, None).map_err(errno)?;
        }
        self.caches.learn(&attr, mark);
        Ok(())
    }

    pub(crate) fn remove_xattr(&self, req: &Request, node: u64, name: &OsStr) -> Result<(), Errno> {
        let (fid, name) = (self.caches.fid(node), name.as_bytes());
        if LOV.contains(&name) {
            let reset = self.client.set_layout(&cred(req), fid, LayoutSpec::DEFAULT);
            return reset.map(drop).map_err(errno);
        }
        check(name)?;
        self.caches.unlearn(fid);
        let mark = self.caches.mark();
        let attr = self.client.removexattr(&cred(req), fid, name).map_err(|e| self.lost(req, e))?;
        self.caches.learn(&attr, mark);
        Ok(())
    }

    pub(crate) fn list_xattr(&self, req: &Request, node: u64) -> Result<Bytes, Errno> {
        let fid = self.caches.fid(node);
        if self.caches.flags(fid).is_some_and(|f| f & A_HAS_XATTR == 0) {
            return Ok(Bytes::new());
        }
        let names = self.client.listxattr(&cred(req), fid).map_err(|e| self.lost(req, e))?;
        if req.uid() == 0 {
            return Ok(names);
        }
        // The kernel leaves it to the file system to hide these from who may not read them.
        let seen = names.split_inclusive(|b| *b == 0).filter(|n| !n.starts_with(b"trusted."));
        Ok(seen.flatten().copied().collect::<Vec<u8>>().into())
    }
}

/// A wish with the defaults filled in, as it will be carried out.
fn effective(spec: LayoutSpec) -> LayoutSpec {
    LayoutSpec {
        stripe_size: if spec.stripe_size == 0 { DEFAULT_STRIPE_SIZE } else { spec.stripe_size },
        stripe_count: if spec.stripe_count == 0 { DEFAULT_STRIPE_COUNT } else { spec.stripe_count },
        stripe_offset: spec.stripe_offset,
    }
}
