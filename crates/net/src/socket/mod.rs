//! The socket transports: TCP and Unix streams behind one face.

pub(crate) mod drive;
pub(crate) mod halves;
pub(crate) mod outbox;

use std::io;
use std::os::fd::OwnedFd;
use tokio::net::{TcpStream, UnixStream};

/// A connected stream.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn split(self) -> io::Result<(halves::Reader, halves::Writer)> {
        // Stays as it is, non-blocking.
        halves::split(match self {
            Stream::Tcp(s) => {
                // Frames are whole when they are written: waiting for more only delays them.
                if let Err(e) = s.set_nodelay(true) {
                    tracing::debug!("TCP_NODELAY: {e}");
                }
                OwnedFd::from(s.into_std()?)
            }
            Stream::Unix(s) => OwnedFd::from(s.into_std()?),
        })
    }

    /// Who is at the other end, for logs.
    pub(crate) fn peer(&self) -> String {
        match self {
            Stream::Tcp(s) => s.peer_addr().map_or("tcp".into(), |a| format!("tcp:{a}")),
            Stream::Unix(s) => match s.peer_cred() {
                Ok(c) => format!("unix peer of uid {}, pid {}", c.uid(), c.pid().unwrap_or(0)),
                Err(_) => "unix".into(),
            },
        }
    }

    /// A Unix peer must be of our user or root; TCP peers prove a key instead.
    pub(crate) fn check_peer(&self) -> Result<(), String> {
        let Stream::Unix(s) = self else { return Ok(()) };
        let uid = s.peer_cred().map_err(|e| format!("no credentials of the peer: {e}"))?.uid();
        let mine = rustix::process::geteuid().as_raw();
        if uid == mine || uid == 0 {
            return Ok(());
        }
        Err(format!("the peer is of user {uid}; only user {mine} and root may connect"))
    }
}

/// A stream on its way from the runtime that accepted it to the one that serves it.
pub(crate) enum StdStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    pub(crate) fn into_std(self) -> io::Result<StdStream> {
        Ok(match self {
            Stream::Tcp(s) => StdStream::Tcp(s.into_std()?),
            Stream::Unix(s) => StdStream::Unix(s.into_std()?),
        })
    }
}

impl StdStream {
    pub(crate) fn into_tokio(self) -> io::Result<Stream> {
        Ok(match self {
            StdStream::Tcp(s) => Stream::Tcp(TcpStream::from_std(s)?),
            StdStream::Unix(s) => Stream::Unix(UnixStream::from_std(s)?),
        })
    }
}
