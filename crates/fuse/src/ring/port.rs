//! One thread's io_uring, and the two commands of FUSE over it.

use super::entry::Entry;
use crate::abi::RingCmd;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;
use zerocopy::IntoBytes;

const CMD_REGISTER: u32 = 1;
const CMD_COMMIT_AND_FETCH: u32 = 2;

/// Where `len` is in a submission; for REGISTER it counts the iovecs, and the io-uring crate does not set it.
const SQE_LEN: usize = 24;

const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
/// Waiting for requests is no waiting for a disk (Linux 6.15 and later).
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// The completion of the bell.
pub(crate) const BELL: u64 = u64::MAX;

/// May only be used by the thread that made it.
pub(crate) struct Port {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: RawFd,
    flags: u32,
    /// What the bell said; the kernel writes here.
    heard: Box<[u8; 8]>,
    /// Completions seen before they were asked for.
    early: VecDeque<(u64, i32)>,
}

impl Port {
    /// `slots`: submissions between two waits; more are handed in before.
    pub(crate) fn new(device: RawFd, slots: u32, completions: u32) -> io::Result<Port> {
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(completions)
            .dontfork()
            .build(slots)?;
        let quiet = if ring.params().is_feature_no_iowait() { ENTER_NO_IOWAIT } else { 0 };
        let flags = ENTER_GETEVENTS | quiet;
        Ok(Port { ring, device, flags, heard: Box::default(), early: VecDeque::new() })
    }

    /// Offers an entry to the kernel for the first time.
    pub(crate) fn register(&mut self, entry: &Entry) -> io::Result<()> {
        let iovecs = entry.iovecs() as u64;
        let mut sqe = self.command(CMD_REGISTER, entry, 0, Some(iovecs));
        // SAFETY: a submission is 128 bytes of plain data whose layout is the kernel's ABI.
        unsafe {
            let len = (&raw mut sqe).cast::<u8>().add(SQE_LEN).cast::<u32>();
            len.write(2);
        }
        self.push(&sqe)
    }

    /// Hands in the entry's answer and offers the entry for the next request.
    pub(crate) fn commit(&mut self, entry: &Entry) -> io::Result<()> {
        let sqe = self.command(CMD_COMMIT_AND_FETCH, entry, entry.commit_id(), None);
        self.push(&sqe)
    }

    /// Waits for the bell once.
    pub(crate) fn listen(&mut self, bell: RawFd) -> io::Result<()> {
        let (to, len) = (self.heard.as_mut_ptr(), self.heard.len() as u32);
        let sqe = opcode::Read::new(Fd(bell), to, len).build().user_data(BELL);
        self.push(&sqe.into())
    }

    fn command(
        &self,
        code: u32,
        entry: &Entry,
        commit_id: u64,
        addr: Option<u64>,
    ) -> squeue::Entry128 {
        let mut area = [0; 80];
        let cmd = RingCmd { commit_id, qid: entry.queue as u16, ..RingCmd::default() };
        area[..size_of::<RingCmd>()].copy_from_slice(cmd.as_bytes());
        let sqe = opcode::UringCmd80::new(Fd(self.device), code).cmd(area).addr(addr);
        sqe.build().user_data(entry.id as u64)
    }

    fn push(&mut self, sqe: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what the submission points to lives in the entry or in this port, until after the session.
            if unsafe { self.ring.submission().push(sqe) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Hands in without waiting.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Err(e) if !is_passing(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Hands in and waits for a completion, or until the time is over.
    pub(crate) fn wait(&mut self, time: Option<Duration>) -> io::Result<()> {
        if !self.early.is_empty() {
            return self.submit();
        }
        let to_submit = self.ring.submission().len() as u32;
        let submitter = self.ring.submitter();
        let result = match time {
            // SAFETY: no argument.
            None => unsafe { submitter.enter::<libc::sigset_t>(to_submit, 1, self.flags, None) },
            Some(time) => {
                let spec = Timespec::from(time);
                let args = SubmitArgs::new().timespec(&spec);
                let flags = self.flags | ENTER_EXT_ARG;
                // SAFETY: EXT_ARG goes with arguments of this type, which outlive the call.
                unsafe { submitter.enter(to_submit, 1, flags, Some(&args)) }
            }
        };
        match result {
            Err(e) if !is_passing(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// The error of a command that failed at once, if one did. Completions of others are kept for `next`.
    pub(crate) fn refusal(&mut self) -> Option<i32> {
        let completions = self.ring.completion();
        self.early.extend(completions.map(|cqe| (cqe.user_data(), cqe.result())));
        self.early.iter().map(|&(_, result)| result).find(|&result| result < 0)
    }

    /// The next completion: an entry's id or BELL, and its result.
    pub(crate) fn next(&mut self) -> Option<(u64, i32)> {
        let early = self.early.pop_front();
        early.or_else(|| self.ring.completion().next().map(|c| (c.user_data(), c.result())))
    }
}

fn is_passing(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}
