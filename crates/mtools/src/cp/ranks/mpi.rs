//! Frames between ranks by MPI: nothing but sends and receives that do not wait, all by the thread that
//! started it.
//!
//! Errors are returned, not fatal, as far as the library keeps to that: then rank 0 goes on without the
//! rank that is gone.

use super::link::Link;
use super::pause::Pause;
use super::wire::FRAME_MOST;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::traits::{AsRaw, Communicator};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Of all our messages.
const TAG: i32 = 0x5053;
const GOOD: i32 = ffi::MPI_SUCCESS as i32;

/// A send or receive under way. Its bytes lie on the heap and are not touched until it has ended.
struct Moving {
    request: ffi::MPI_Request,
    bytes: Vec<u8>,
    /// The other side.
    rank: usize,
}

impl Moving {
    /// Whether it has ended; an error ends it, too, and is told.
    fn ended(&mut self) -> Option<bool> {
        let mut flag = 0;
        // SAFETY: the request is one that MPI gave us and has not ended; status may be ignored.
        let rc = unsafe { ffi::MPI_Test(&mut self.request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
        if rc != GOOD {
            return Some(false);
        }
        (flag != 0).then_some(true)
    }
}

pub struct World {
    universe: Universe,
    comm: ffi::MPI_Comm,
    size: usize,
    sending: Vec<Moving>,
    coming: VecDeque<Moving>,
}

impl World {
    /// Starts MPI; this rank's number, too.
    pub fn start() -> Result<(Self, usize), String> {
        let (universe, _) =
            mpi::initialize_with_threading(Threading::Funneled).ok_or("MPI was started before")?;
        let world = universe.world();
        let number = |n: i32| usize::try_from(n).map_err(|_| "MPI tells no rank".to_owned());
        let (rank, size, comm) = (number(world.rank())?, number(world.size())?, world.as_raw());
        // SAFETY: both are handles of the library that has just been started.
        unsafe {
            ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN);
        }
        let world = Self { universe, comm, size, sending: Vec::new(), coming: VecDeque::new() };
        Ok((world, rank))
    }

    /// Ends MPI with all others; without them, where `all` are not there, it is left as it is: to wait for
    /// a rank that is gone would be for ever.
    pub fn end(self, all: bool) {
        if all && self.sending.is_empty() && self.coming.is_empty() {
            drop(self.universe);
        } else {
            std::mem::forget(self);
        }
    }

    /// Takes up a message that has arrived, or begins to.
    fn probe(&mut self) -> bool {
        let mut message = MaybeUninit::uninit();
        let mut status = MaybeUninit::uninit();
        let (mut flag, mut count) = (0, 0);
        // SAFETY: the places are ours; message and status are read only when MPI says it has set them.
        let found = unsafe {
            let any = ffi::RSMPI_ANY_SOURCE;
            let (to, at) = (message.as_mut_ptr(), status.as_mut_ptr());
            let rc = ffi::MPI_Improbe(any, TAG, self.comm, &mut flag, to, at);
            rc == GOOD
                && flag != 0
                && ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) == GOOD
        };
        if !found {
            return false;
        }
        // SAFETY: a message was found, so both were set.
        let (mut message, status) = unsafe { (message.assume_init(), status.assume_init()) };
        let Ok(rank) = usize::try_from(status.MPI_SOURCE) else { return false };
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer has `count` bytes and stays where it is until the request has ended, see
        // [`Moving`]; the request is read only when MPI has set it.
        let moving = unsafe {
            let rc = ffi::MPI_Imrecv(
                bytes.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                &mut message,
                request.as_mut_ptr(),
            );
            (rc == GOOD).then(|| request.assume_init())
        };
        if let Some(request) = moving {
            self.coming.push_back(Moving { request, bytes, rank });
        }
        true
    }

    fn send_on(&mut self) {
        self.sending.retain_mut(|moving| moving.ended().is_none());
    }
}

impl Link for World {
    fn size(&self) -> usize {
        self.size
    }

    fn send(&mut self, to: usize, frame: Vec<u8>) -> bool {
        let (Ok(rank), Ok(count)) = (i32::try_from(to), i32::try_from(frame.len())) else {
            return false;
        };
        if frame.len() > FRAME_MOST {
            return false;
        }
        self.send_on();
        let mut request = MaybeUninit::uninit();
        // SAFETY: the bytes stay where they are until the request has ended, see [`Moving`]; the request is
        // read only when MPI has set it.
        let request = unsafe {
            let rc = ffi::MPI_Isend(
                frame.as_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                rank,
                TAG,
                self.comm,
                request.as_mut_ptr(),
            );
            (rc == GOOD).then(|| request.assume_init())
        };
        let Some(request) = request else { return false };
        self.sending.push(Moving { request, bytes: frame, rank: to });
        true
    }

    fn receive(&mut self) -> Option<(usize, Vec<u8>)> {
        self.send_on();
        // As many are taken up as have come; what a rank may send is bounded by what it owes.
        self.probe();
        let mut n = 0;
        while n < self.coming.len() {
            match self.coming[n].ended() {
                None => n += 1,
                Some(good) => {
                    let moved = self.coming.remove(n)?;
                    if good {
                        return Some((moved.rank, moved.bytes));
                    }
                }
            }
        }
        None
    }

    fn flush(&mut self, limit: Duration) -> bool {
        let (mut pause, end) = (Pause::default(), Instant::now() + limit);
        loop {
            self.send_on();
            if self.sending.is_empty() {
                return true;
            }
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(pause.next());
        }
    }
}
