//! Saying what is waited for, when it takes long.
//!
//! Role: a command that waits silently looks like one that hangs. Never does: end the waiting.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::failure::{Doing, Outcome};

/// Time after which it is said what is waited for.
pub const SILENCE: Duration = Duration::from_secs(3);

/// Says it after [`SILENCE`], unless what this returns was dropped by then.
pub fn say(text: String) -> Outcome<Sender<()>> {
    later(SILENCE, move || eprintln!("pinstripe: {text}"))
}

fn later(time: Duration, act: impl FnOnce() + Send + 'static) -> Outcome<Sender<()>> {
    let (done, waits) = channel();
    let wait = move || {
        if waits.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
            act();
        }
    };
    let thread = std::thread::Builder::new().name("tell".into()).spawn(wait);
    thread.doing(|| "cannot start a thread".into())?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_told() {
        let (tell, told) = channel();
        let say = |what: &'static str| {
            let tell = tell.clone();
            move || tell.send(what).unwrap()
        };
        drop(later(Duration::from_secs(3600), say("short")).unwrap());
        let waiting = later(Duration::from_millis(1), say("long")).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok("long"));
        drop(waiting);
        drop(tell);
        // The other ends without a word.
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
    }
}
