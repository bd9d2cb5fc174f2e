//! Unix streams, watched for what somebody waits for and nothing else.
//!
//! Role: reading halves wake their task when bytes came, writing halves only while a writer waits for
//! room. The kernel tells whoever watches a Unix stream for room of every piece the peer takes out: with
//! both watched by one registration each message woke its sender's task once more than its answer did,
//! and each answer the server's. (TCP tells only those who found it full.) Assumptions: within a runtime;
//! what reads and what waits for room is the connection's one task. Never does: block.

use std::borrow::Borrow;
use std::io::{self, IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

/// The reading half.
pub(crate) struct Reader(AsyncFd<Arc<UnixStream>>);

/// The writing half; dropped it tells the peer that nothing more comes.
pub(crate) struct Writer(Arc<UnixStream>);

/// Watches for room as long as it is kept.
pub(crate) struct Room(AsyncFd<UnixStream>);

/// Parts a stream.
///
/// # Errors
/// It cannot be watched.
pub(crate) fn split(stream: tokio::net::UnixStream) -> io::Result<(Reader, Writer)> {
    // Stays as it is, non-blocking.
    let stream = Arc::new(stream.into_std()?);
    Ok((Reader(watch(stream.clone(), Interest::READABLE)?), Writer(stream)))
}

fn watch<T: Borrow<UnixStream> + AsRawFd>(stream: T, what: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: a stream's descriptor is its own and the same as long as it lives, and it lives as long as
    // what is made here.
    unsafe { AsyncFd::register_with_interest(stream, what) }.map_err(io::Error::from)
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
            match rustix::net::recv(self.0.get_ref(), into, rustix::net::RecvFlags::empty()) {
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
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

impl Writer {
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self.0).write_vectored(pieces)
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
        let _ = self.0.shutdown(Shutdown::Write);
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
