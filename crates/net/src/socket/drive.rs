//! The task of one connection: reads, unless others do, hands frames on, writes what others could not.

use super::halves::{Reader, Room};
use super::outbox::Outbox;
use crate::NetError;
use crate::message::Frame;
use crate::reader::{self, FrameReader};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::Instant;

/// Bytes of the buffer all connections of a thread read into: with one each, thousands of idle
/// sessions would hold memory for nothing.
pub(crate) const READ_BUFFER: usize = 256 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER]);
}

/// Who owns the connection.
pub(crate) trait Peer {
    /// A frame came. An error closes the connection.
    fn frame(&mut self, frame: Frame) -> Result<(), NetError>;
    /// Called now and then; nothing came for `silence`. Returns how long until the next time, or
    /// why to give up.
    fn quiet(&mut self, silence: Duration) -> Result<Duration, NetError>;
    /// Reading pauses because the peer does not read.
    fn stalled(&mut self) {}
}

/// Runs the connection to its end; returns why it ended. Above `max_waiting` unwritten bytes it
/// does not read. Without a reading half somebody else reads.
pub(crate) async fn drive(
    mut read: Option<&mut Reader>,
    outbox: &Outbox,
    max_waiting: usize,
    first_check: Duration,
    peer: &mut impl Peer,
) -> NetError {
    let mut frames = FrameReader::default();
    let reads = read.is_some();
    let mut seen = Instant::now();
    let timer = tokio::time::sleep(first_check);
    tokio::pin!(timer);
    let mut stalled = false;
    let mut room = None;
    loop {
        if let Some(why) = outbox.ended() {
            outbox.flush();
            return why;
        }
        let full = outbox.is_full(max_waiting);
        if full && !stalled {
            peer.stalled();
        }
        stalled = full;
        let blocked = outbox.is_blocked();
        if !blocked {
            room = None;
        }
        tokio::select! {
            biased;
            () = outbox.wake.notified() => outbox.flush(),
            ready = writable(outbox, &mut room), if blocked => match ready {
                Ok(()) => outbox.unblock(),
                Err(e) => return NetError::Lost(e.to_string()),
            },
            got = read_some(&mut read, outbox, &mut frames, peer), if reads && !full => match got {
                Ok(()) => seen = Instant::now(),
                Err(e) => {
                    outbox.flush();
                    return e;
                }
            },
            () = &mut timer => match peer.quiet(seen.elapsed()) {
                Ok(next) => timer.as_mut().reset(Instant::now() + next),
                Err(e) => return e,
            },
        }
    }
}

/// Waits until more can be written, after something could not. `room` is kept while it is waited for.
async fn writable(outbox: &Outbox, room: &mut Option<Room>) -> io::Result<()> {
    let room = match room {
        Some(room) => room,
        none => none.insert(outbox.write.room()?),
    };
    room.wait().await
}

async fn read_some(
    read: &mut Option<&mut Reader>,
    outbox: &Outbox,
    frames: &mut FrameReader,
    peer: &mut impl Peer,
) -> Result<(), NetError> {
    let Some(read) = read else { return std::future::pending().await };
    let mut on = |header, body, bulk| peer.frame(reader::frame(header, body, bulk));
    if let Some(mut rest) = frames.rest() {
        let n = read.read_buf(&mut rest).await.map_err(lost)?;
        return if n == 0 { Err(eof(false)) } else { frames.filled(on) };
    }
    std::future::poll_fn(|cx| {
        // Taken out, so that whatever runs below finds no borrow held.
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER, 0);
        let mut into = ReadBuf::new(&mut buffer);
        let polled = Pin::new(&mut **read).poll_read(cx, &mut into);
        let result = match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(e)) => Poll::Ready(Err(lost(e))),
            Poll::Ready(Ok(())) if into.filled().is_empty() => {
                Poll::Ready(Err(eof(frames.is_between())))
            }
            Poll::Ready(Ok(())) => {
                outbox.cork();
                let fed = frames.feed(into.filled(), &mut on);
                outbox.uncork();
                Poll::Ready(fed)
            }
        };
        BUFFER.set(buffer);
        result
    })
    .await
}

pub(crate) fn lost(e: io::Error) -> NetError {
    NetError::Lost(e.to_string())
}

/// The stream ended, between two frames or within one.
pub(crate) fn eof(between: bool) -> NetError {
    if between {
        NetError::Lost("the peer closed the connection".into())
    } else {
        NetError::Protocol("the peer closed the connection within a frame".into())
    }
}

/// Reads one frame while a session is set up, and not a byte of what may follow it.
pub(crate) async fn read_one(
    read: &mut Reader,
    frames: &mut FrameReader,
) -> Result<Frame, NetError> {
    let mut buffer = [0; 2048];
    let mut found = None;
    loop {
        let room = frames.wants().min(buffer.len());
        let n = read.read(&mut buffer[..room]).await.map_err(lost)?;
        if n == 0 {
            return Err(eof(frames.is_between()));
        }
        frames.feed(&buffer[..n], |header, body, bulk| {
            found = Some(reader::frame(header, body, bulk));
            Ok(())
        })?;
        if let Some(frame) = found {
            return Ok(frame);
        }
    }
}
