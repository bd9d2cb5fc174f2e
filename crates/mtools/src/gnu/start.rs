//! What the process was given before Rust's runtime changed it: closed standard streams and the
//! disposition of SIGPIPE.
//!
//! The runtime opens /dev/null in place of a closed stream, and ignores SIGPIPE. GNU tools report the
//! one (`write error: Bad file descriptor`) and die of the other; so must what stands in their place.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

// See `build.rs`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh")]
unsafe extern "C" {}

/// A bit for each of the descriptors 0, 1 and 2 that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Whoever started us wanted SIGPIPE ignored.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls what stands in this section once, before main, with nobody beside it.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: asks for the flags of a descriptor, which may be closed.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
    // SAFETY: all zeros is a valid sigaction, and it is only read after the kernel has filled it.
    let ignored = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    };
    PIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether descriptor 0, 1 or 2 was closed when the process began.
pub fn was_closed(fd: i32) -> bool {
    (0..3).contains(&fd) && CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// Gives SIGPIPE back the disposition that the process was started with. To be called first of all.
pub fn restore_sigpipe() {
    if PIPE_IGNORED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: no handler of ours is involved; the default action is a valid disposition.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
