//! What is to be written to a socket.
//!
//! Role: any thread puts frames in; one thread at a time writes them, many per system call.
//! Frames put in while somebody writes, or while the connection's task works through what it read
//! (the outbox is corked), go out together with what comes next. Assumptions: writing never
//! blocks; when the socket is full the connection's task goes on once it is writable.
//! Limits: a client's outbox holds at most what its credits allow; above [`MAX_QUEUED_BYTES`] a
//! server's task reads no more requests of this client.

use super::halves::Writer;
use crate::NetError;
use crate::link::Link;
use crate::message::Frame;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use tokio::sync::Notify;
use zerocopy::IntoBytes;

/// Bytes of replies that may wait for a client that does not read.
pub(crate) const MAX_QUEUED_BYTES: usize = 8 << 20;
/// Pieces per system call.
const MAX_PIECES: usize = 64;
/// Parts up to this size are copied together, larger ones are written from where they are.
const COPY_MAX: usize = 4 << 10;
/// A run of small parts is at most this long.
const RUN_MAX: usize = 64 << 10;
/// Rounds a caller's thread writes for others before the task takes over.
const MAX_ROUNDS: usize = 16;

enum Piece {
    Run(Vec<u8>),
    Part(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Run(v) => v,
            Piece::Part(b) => b,
        }
    }
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// A thread writes, or the task will when the socket is writable.
    writing: bool,
    corked: bool,
    /// The task was told that there is something.
    woken: bool,
    blocked: bool,
    closed: Option<NetError>,
}

/// Taken out of the queue; the first piece is written up to `offset`.
#[derive(Default)]
struct Current {
    pieces: VecDeque<Piece>,
    offset: usize,
}

/// The sending half of a connection.
pub(crate) struct Outbox {
    pub(crate) write: Writer,
    /// Tells the connection's task that it has something to do.
    pub(crate) wake: Notify,
    queue: Mutex<Queue>,
    /// Locked only by the thread that set `writing`.
    current: Mutex<Current>,
    waiting: AtomicUsize,
    /// The task reads no more until less waits, and is to hear of it.
    paused: AtomicBool,
    /// Whether senders always write themselves: quicker for one, while the task's writes carry more.
    straight: bool,
}

impl Link for Outbox {
    fn send(&self, frame: Frame) -> bool {
        self.put(frame, self.straight)
    }

    fn send_now(&self, frame: Frame) -> bool {
        self.put(frame, true)
    }

    fn close(&self, why: &str) {
        self.end(NetError::Lost(why.into()));
    }
}

impl Outbox {
    pub(crate) fn new(write: Writer, straight: bool) -> Outbox {
        Outbox {
            write,
            wake: Notify::new(),
            queue: Mutex::default(),
            current: Mutex::default(),
            waiting: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            straight,
        }
    }

    fn put(&self, mut frame: Frame, now: bool) -> bool {
        let bulk_len = frame.bulk_len();
        frame.header.seal(&frame.body, bulk_len as u32);
        let mut queue = self.queue.lock();
        if queue.closed.is_some() {
            return false;
        }
        self.waiting.fetch_add(size_of_val(&frame.header) + frame.body.len() + bulk_len, Relaxed);
        queue.small(frame.header.as_bytes());
        queue.part(frame.body);
        frame.bulk.into_iter().for_each(|b| queue.part(b));
        if queue.writing || queue.corked {
            return true;
        }
        if now {
            queue.writing = true;
            drop(queue);
            self.write_out();
        } else if !queue.woken {
            queue.woken = true;
            drop(queue);
            self.wake.notify_one();
        }
        true
    }

    /// Holds back what is sent until [`Outbox::uncork`].
    pub(crate) fn cork(&self) {
        self.queue.lock().corked = true;
    }

    pub(crate) fn uncork(&self) {
        let mut queue = self.queue.lock();
        queue.corked = false;
        self.start(queue);
    }

    /// The task: writes what waits.
    pub(crate) fn flush(&self) {
        let mut queue = self.queue.lock();
        queue.woken = false;
        self.start(queue);
    }

    fn start(&self, mut queue: parking_lot::MutexGuard<'_, Queue>) {
        if queue.writing || queue.pieces.is_empty() {
            return;
        }
        queue.writing = true;
        drop(queue);
        self.write_out();
    }

    /// Whether the task has to wait until the socket is writable.
    pub(crate) fn is_blocked(&self) -> bool {
        self.queue.lock().blocked
    }

    /// The task: the socket is writable again.
    pub(crate) fn unblock(&self) {
        let was = std::mem::take(&mut self.queue.lock().blocked);
        if was {
            self.write_out();
        }
    }

    /// The task: whether more than `most` bytes are not yet written. It is woken when some of them are, by
    /// whichever thread.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        if self.waiting.load(Relaxed) <= most {
            return false;
        }
        self.paused.store(true, SeqCst);
        // Once more: who has written before that tells nobody.
        self.waiting.load(SeqCst) > most
    }

    pub(crate) fn end(&self, why: NetError) {
        self.queue.lock().closed.get_or_insert(why);
        self.wake.notify_one();
    }

    /// Why the connection is to be closed, if it is.
    pub(crate) fn ended(&self) -> Option<NetError> {
        self.queue.lock().closed.clone()
    }

    /// Writes until nothing waits or the socket is full. The caller has set `writing`.
    fn write_out(&self) {
        let mut current = self.current.lock();
        let mut rounds = 0;
        loop {
            if current.pieces.is_empty() {
                let mut queue = self.queue.lock();
                if queue.pieces.is_empty() {
                    queue.writing = false;
                    return;
                }
                if rounds >= MAX_ROUNDS {
                    return self.leave(queue);
                }
                rounds += 1;
                std::mem::swap(&mut current.pieces, &mut queue.pieces);
            }
            match current.write_some(&self.write) {
                Ok(n) => {
                    self.waiting.fetch_sub(n, SeqCst);
                    if self.paused.load(SeqCst) && self.paused.swap(false, SeqCst) {
                        self.wake.notify_one();
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return self.block(self.queue.lock());
                }
                Err(e) => {
                    // `writing` stays set: nobody writes to a broken socket again.
                    return self.end(NetError::Lost(e.to_string()));
                }
            }
        }
    }

    /// Leaves the rest to the task at once: of a socket that is not full nobody would be told that there is room.
    fn leave(&self, mut queue: parking_lot::MutexGuard<'_, Queue>) {
        queue.writing = false;
        queue.woken = true;
        drop(queue);
        self.wake.notify_one();
    }

    /// Leaves the rest to the task, once there is room.
    fn block(&self, mut queue: parking_lot::MutexGuard<'_, Queue>) {
        queue.blocked = true;
        drop(queue);
        self.wake.notify_one();
    }
}

impl Queue {
    fn small(&mut self, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(Piece::Run(run)) if run.len() + bytes.len() <= RUN_MAX => {
                run.extend_from_slice(bytes);
            }
            _ => {
                let mut run = Vec::with_capacity(256.max(bytes.len()));
                run.extend_from_slice(bytes);
                self.pieces.push_back(Piece::Run(run));
            }
        }
    }

    fn part(&mut self, bytes: Bytes) {
        match bytes.len() {
            0 => {}
            n if n <= COPY_MAX => self.small(&bytes),
            _ => self.pieces.push_back(Piece::Part(bytes)),
        }
    }
}

impl Current {
    fn write_some(&mut self, to: &Writer) -> std::io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX_PIECES];
        let mut count = 0;
        let mut skip = self.offset;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(&piece.bytes()[skip..]);
            skip = 0;
            count += 1;
        }
        let written = to.try_write(&slices[..count])?;
        self.advance(written);
        Ok(written)
    }

    fn advance(&mut self, written: usize) {
        self.offset += written;
        while let Some(first) = self.pieces.front() {
            let len = first.bytes().len();
            if self.offset < len {
                break;
            }
            self.offset -= len;
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Stream;
    use crate::socket::drive::{Peer, drive};
    use proto::frame::Header;
    use std::io::Read;
    use std::sync::Arc;
    use std::time::Duration;

    /// A task that reads nothing.
    struct Deaf;

    impl Peer for Deaf {
        fn frame(&mut self, _: Frame) -> Result<(), NetError> {
            Ok(())
        }

        fn quiet(&mut self, _: Duration) -> Result<Duration, NetError> {
            Ok(Duration::from_secs(60))
        }
    }

    /// Of a TCP socket that is not full nobody is told that there is room.
    #[test]
    fn what_many_send_at_once_is_written_by_somebody() -> std::io::Result<()> {
        const EACH: usize = 100_000;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let near = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        near.set_nonblocking(true)?;
        far.set_read_timeout(Some(Duration::from_secs(20)))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let split = async { Stream::Tcp(tokio::net::TcpStream::from_std(near)?).split() };
        let (_read, write) = runtime.block_on(split)?;
        let outbox = Arc::new(Outbox::new(write, true));
        std::thread::scope(|s| {
            let (runtime, outbox, first) = (&runtime, &outbox, Duration::from_secs(60));
            let task = move || runtime.block_on(drive(None, outbox, usize::MAX, first, &mut Deaf));
            s.spawn(task);
            for _ in 0..3 {
                s.spawn(move || {
                    for _ in 0..EACH {
                        assert!(outbox.send(Frame::bare(Header::request(1, 1))));
                    }
                });
            }
            let mut left = 3 * EACH * size_of::<Header>();
            let mut piece = vec![0; 1 << 20];
            while left > 0 {
                match far.read(&mut piece) {
                    Ok(n) if n > 0 => left -= n,
                    other => {
                        outbox.close("the test failed");
                        return Err(std::io::Error::other(format!("{left} bytes left: {other:?}")));
                    }
                }
            }
            outbox.close("it is over");
            Ok(())
        })
    }

    /// Whoever writes what waits: a task that reads no more because of it hears of that.
    #[tokio::test]
    async fn a_task_that_pauses_is_woken_by_whoever_writes() -> std::io::Result<()> {
        let (near, _far) = tokio::net::UnixStream::pair()?;
        let (_, write) = Stream::Unix(near).split()?;
        let outbox = Arc::new(Outbox::new(write, true));
        outbox.cork();
        for _ in 0..4 {
            assert!(outbox.send(Frame::bare(Header::request(1, 1))));
        }
        assert!(outbox.is_full(100));
        let other = outbox.clone();
        assert!(std::thread::spawn(move || other.uncork()).join().is_ok());
        let woken = tokio::time::timeout(Duration::from_secs(20), outbox.wake.notified()).await;
        assert!(woken.is_ok(), "nobody told that all is written");
        assert!(!outbox.is_full(100));
        Ok(())
    }
}
