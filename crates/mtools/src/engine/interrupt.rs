//! SIGINT, SIGTERM and SIGHUP end a copy in order: files under way are cut to what is whole of them, and
//! then the signal takes the process as it would have taken it at once.
//!
//! Only watched once there is something to put in order; a signal that whoever started us ignores stays
//! ignored, and a second one ends the process on the spot.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

struct Seen {
    any: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

static SEEN: OnceLock<Seen> = OnceLock::new();

/// Watches from now on.
pub fn watch() {
    SEEN.get_or_init(|| {
        let seen = Seen { any: Arc::default(), which: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(*signal)) {
            // Where it cannot be watched it ends the process, as before.
            let _ = flag::register_conditional_default(signal, seen.any.clone())
                .and_then(|_| flag::register_usize(signal, seen.which.clone(), signal as usize))
                .and_then(|_| flag::register(signal, seen.any.clone()));
        }
        seen
    });
}

/// Whether one has come.
pub fn pending() -> bool {
    SEEN.get().is_some_and(|seen| seen.any.load(Ordering::Relaxed))
}

/// Ends the process by the signal that has come, if one has.
pub fn end() {
    if pending()
        && let Some(seen) = SEEN.get()
    {
        let signal = i32::try_from(seen.which.load(Ordering::Relaxed)).unwrap_or(SIGINT);
        // It does not come back where the signal takes the process.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

fn ignored(signal: i32) -> bool {
    // SAFETY: all zeros is a valid sigaction, and it is only read after the kernel has filled it.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}
