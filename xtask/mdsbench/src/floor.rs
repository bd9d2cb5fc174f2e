//! What the machine itself gives: requests and answers of the same size over as many sockets, with
//! nothing done in between. A rate that falls with the number of sockets here, too, is not the
//! target's.

use anyhow::{Context, Result, anyhow};
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a message: a create with its header and the answer to it are about this long.
const MESSAGE: usize = 192;
/// Events taken at a time, as the runtimes of both sides do.
const EVENTS: usize = 1024;
/// How soon a thread sees that it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Exchanges per second over `sockets` connections, asked by `threads` threads and answered by as
/// many.
pub fn run(sockets: usize, threads: usize, time: Duration) -> Result<f64> {
    let threads = threads.clamp(1, sockets.max(1));
    let mut sides: Vec<(Vec<UnixStream>, Vec<UnixStream>)> = Vec::new();
    sides.resize_with(threads, Default::default);
    for (number, side) in (0..sockets).zip((0..threads).cycle()) {
        let (near, far) = UnixStream::pair().with_context(|| format!("socket {number}"))?;
        let side = sides.get_mut(side).context("no such thread")?;
        side.0.push(near);
        side.1.push(far);
    }
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let start = |streams, asks| {
        let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
        std::thread::spawn(move || bounce(streams, asks, &stop, &done))
    };
    let running: Vec<_> =
        sides.into_iter().flat_map(|(near, far)| [start(far, false), start(near, true)]).collect();
    // The first exchanges touch every socket for the first time.
    std::thread::sleep(time / 4);
    let (before, from) = (done.load(Relaxed), Instant::now());
    std::thread::sleep(time);
    let rate = (done.load(Relaxed) - before) as f64 / from.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    for thread in running {
        thread.join().map_err(|_| anyhow!("a thread panicked"))??;
    }
    Ok(rate)
}

/// Sends a message back for every one that comes; who asks sends the first.
fn bounce(
    mut streams: Vec<UnixStream>,
    asks: bool,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(EVENTS);
    let mut message = [7; MESSAGE];
    for (number, stream) in streams.iter_mut().enumerate() {
        poll.registry().register(stream, Token(number), Interest::READABLE)?;
        if asks {
            stream.write_all(&message)?;
        }
    }
    while !stop.load(Relaxed) {
        match poll.poll(&mut events, Some(LOOK)) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            let Some(stream) = streams.get_mut(event.token().0) else { continue };
            match stream.read(&mut message).and_then(|_| stream.write_all(&message)) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
                // The other side has stopped first.
                Err(_) if stop.load(Relaxed) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            if asks {
                done.fetch_add(1, Relaxed);
            }
        }
    }
    Ok(())
}
