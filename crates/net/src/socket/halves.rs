//! The halves of a stream, watched for what somebody waits for and nothing else.
//!
//! Role: reading halves wake their task when bytes came, writing halves only while a writer waits for
//! room. The kernel tells whoever watches a Unix stream for room of every piece the peer takes out: with
//! both watched by one registration each message woke its sender's task once more than its answer did,
//! and each answer the server's. Assumptions: within a runtime; what reads and what waits for room is the
//! connection's one task. Never does: block.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

/// The reading half.
pub(crate) struct Reader(AsyncFd<Arc<OwnedFd>>);

/// The writing half; dropped it tells the peer that nothing more comes.
pub(crate) struct Writer(Arc<OwnedFd>);

/// Watches for room as long as it is kept.
pub(crate) struct Room(AsyncFd<OwnedFd>);

/// Parts a stream, which does not block.
///
/// # Errors
/// It cannot be watched.
pub(crate) fn split(stream: OwnedFd) -> io::Result<(Reader, Writer)> {
    let stream = Arc::new(stream);
    Ok((Reader(watch(stream.clone(), Interest::READABLE)?), Writer(stream)))
}

fn watch<T: AsFd + AsRawFd>(stream: T, what: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: a stream's descriptor is its own and the same as long as it lives, and it lives as long as
    // what is made here.
    unsafe { AsyncFd::register_with_interest(stream, what) }.map_err(io::Error::from)
}

impl Reader {
    /// The stream, which this runtime watches no longer.
    pub(crate) fn into_inner(self) -> Arc<OwnedFd> {
        self.0.into_inner()
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let wanted = buf.remaining();
            // SAFETY: nothing is made uninitialised: `recv` only writes to it.
            let into = unsafe { buf.unfilled_mut() };
            match recv(self.0.get_ref(), into, RecvFlags::empty()) {
                Ok(((came, _), _)) => {
                    let n = came.len();
                    // Fewer than asked for: it is empty, and the next bytes will be told of.
                    if n > 0 && n < wanted {
                        ready.clear_ready();
                    }
                    // SAFETY: `recv` wrote so many at its beginning.
                    unsafe { buf.assume_init(n) };
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

impl Writer {
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&*self.0, pieces)?)
    }

    /// Begins to watch for room; what there is already counts.
    pub(crate) fn room(&self) -> io::Result<Room> {
        // A descriptor of its own: one cannot be watched twice.
        let again = self.0.try_clone()?;
        Ok(Room(watch(again, Interest::WRITABLE)?))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Fails only if the peer has gone already.
        let _ = shutdown(&*self.0, Shutdown::Write);
    }
}

impl Room {
    /// Waits until there is room that was not told of before.
    pub(crate) async fn wait(&self) -> io::Result<()> {
        // Before anything is written: what becomes free from here on is told again.
        self.0.writable().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
