//! Servers that are far away: what is sent to them, and what they answer, arrives later.
//!
//! Role: stands between a server's Unix socket and who connects to it. Each byte is as late, however many are under way,
//! so that only who waits for answers is slower. Assumptions: nobody has connected yet. Never does: end before the process
//! does; what it passes on ends with either side.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Bytes taken at once, and how many times as much may be under way each way.
const TAKEN: usize = 1 << 20;
const UNDER_WAY: usize = 64;

/// From now on the way to what listens at `socket` takes so long, and so does the way back.
pub fn away(socket: &Path, delay: Duration) -> Result<()> {
    let near = socket.with_extension("near");
    std::fs::rename(socket, &near).with_context(|| format!("{}", socket.display()))?;
    let listener = UnixListener::bind(socket).with_context(|| format!("{}", socket.display()))?;
    spawn(move || {
        for here in listener.incoming() {
            let Ok((here, there)) = here.and_then(|here| Ok((here, UnixStream::connect(&near)?)))
            else {
                continue;
            };
            let (Ok(to), Ok(back)) = (there.try_clone(), here.try_clone()) else { continue };
            spawn(move || carry(here, to, delay));
            spawn(move || carry(there, back, delay));
        }
    });
    Ok(())
}

fn carry(mut from: UnixStream, to: UnixStream, delay: Duration) {
    let (taken, due) = sync_channel(UNDER_WAY);
    spawn(move || deliver(to, &due));
    let mut buffer = vec![0; TAKEN];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || taken.send((Instant::now() + delay, buffer[..n].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(mut to: UnixStream, due: &Receiver<(Instant, Vec<u8>)>) {
    for (at, bytes) in due {
        sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side has ended: it may be gone already.
    let _ = to.shutdown(Shutdown::Both);
}
