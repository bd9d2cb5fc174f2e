//! The socket transports: TCP and Unix streams behind one face.

pub(crate) mod drive;
pub(crate) mod outbox;
mod unix;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp};

/// A connected stream.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::Reader),
}

pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::Writer),
}

/// What a task keeps while it waits for room to write.
#[derive(Default)]
pub(crate) struct Room(Option<unix::Room>);

impl Stream {
    pub(crate) fn split(self) -> io::Result<(ReadHalf, WriteHalf)> {
        match self {
            Stream::Tcp(s) => {
                // Frames are whole when they are written: waiting for more only delays them.
                if let Err(e) = s.set_nodelay(true) {
                    tracing::debug!("TCP_NODELAY: {e}");
                }
                let (r, w) = s.into_split();
                Ok((ReadHalf::Tcp(r), WriteHalf::Tcp(w)))
            }
            Stream::Unix(s) => {
                let (r, w) = unix::split(s)?;
                Ok((ReadHalf::Unix(r), WriteHalf::Unix(w)))
            }
        }
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

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Tcp(r) => Pin::new(r).poll_read(cx, buf),
            ReadHalf::Unix(r) => Pin::new(r).poll_read(cx, buf),
        }
    }
}

impl WriteHalf {
    /// Waits until more can be written, after something could not.
    pub(crate) async fn writable(&self, room: &mut Room) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(w) => w.writable().await,
            WriteHalf::Unix(w) => {
                let room = match &mut room.0 {
                    Some(room) => room,
                    none => none.insert(w.room()?),
                };
                room.wait().await
            }
        }
    }

    pub(crate) fn try_write(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            WriteHalf::Tcp(w) => w.try_write_vectored(pieces),
            WriteHalf::Unix(w) => w.try_write(pieces),
        }
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
