//! Errors as the wire carries them: Linux errno numbers.

use std::fmt;

/// An errno; 0 is never one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($n:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($n), "`.")] pub const $n: Errno = Errno(libc::$n);)*
            /// The symbolic name, or `errno`.
            pub fn name(self) -> &'static str {
                match self.0 { $(libc::$n => stringify!($n),)* _ => "errno" }
            }
        }
    };
}
names!(
    EPERM,
    ENOENT,
    EINTR,
    EIO,
    ENXIO,
    E2BIG,
    EBADF,
    EAGAIN,
    ENOMEM,
    EACCES,
    EBUSY,
    EEXIST,
    EXDEV,
    ENODEV,
    ENOTDIR,
    EISDIR,
    EINVAL,
    ENFILE,
    EMFILE,
    ENOTTY,
    ETXTBSY,
    EFBIG,
    ENOSPC,
    ESPIPE,
    EROFS,
    EMLINK,
    EPIPE,
    ERANGE,
    EDEADLK,
    ENAMETOOLONG,
    ENOLCK,
    ENOSYS,
    ENOTEMPTY,
    ELOOP,
    ENODATA,
    ETIME,
    EPROTO,
    EBADMSG,
    EOVERFLOW,
    EOPNOTSUPP,
    EADDRINUSE,
    ECONNREFUSED,
    ECONNRESET,
    ENOTCONN,
    ESHUTDOWN,
    ETIMEDOUT,
    EHOSTDOWN,
    EALREADY,
    EINPROGRESS,
    ESTALE,
    EDQUOT,
    ECANCELED,
    ERESTART,
    EKEYREJECTED,
);

impl Errno {
    /// The errno of an I/O error, `EIO` when it has none.
    pub fn of(e: &std::io::Error) -> Errno {
        Errno(e.raw_os_error().unwrap_or(libc::EIO))
    }
    /// From a frame's status: `Ok` for 0, `EIO` for anything that is no errno.
    pub fn check(status: i16) -> Result<(), Errno> {
        match status {
            0 => Ok(()),
            1..=4095 => Err(Errno(status.into())),
            _ => Err(Errno::EIO),
        }
    }
    /// As a frame's status.
    pub fn status(self) -> i16 {
        i16::try_from(self.0).unwrap_or(libc::EIO as i16)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), std::io::Error::from_raw_os_error(self.0))
    }
}
impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}
impl std::error::Error for Errno {}
impl From<Errno> for std::io::Error {
    fn from(e: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(e.0)
    }
}
