//! Counters of a server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$m:meta])* $name:ident),* $(,)?) => {
        /// Counters of a server since it was made (`sessions` and `connections`: now).
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct ServerStats { $($(#[$m])* pub $name: u64),* }

        #[derive(Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64),* }

        impl Counters {
            pub(crate) fn read(&self) -> ServerStats {
                ServerStats { $($name: self.$name.load(Relaxed)),* }
            }
        }

        impl ServerStats {
            /// Names and values, for a metrics page.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Sessions now (also those whose client is away).
    sessions,
    /// Socket connections now.
    connections,
    /// Sessions opened.
    opened,
    /// Sessions taken up again.
    resumed,
    /// Sessions that ended because the client stayed away.
    lost,
    /// Sessions evicted.
    evicted,
    /// Connections refused at set-up.
    refused,
    /// Connections closed because of what they sent.
    bad_frames,
    /// Connections cut because they were silent.
    silent,
    /// Requests handed to services.
    requests,
    /// Replies sent.
    replies,
    /// Requests sent again that were still running.
    attached,
    /// Requests sent again that were answered from kept replies.
    repeated,
    /// Call-backs sent.
    callbacks,
    /// Call-backs refused because too many wait (`max_callbacks`).
    callbacks_busy,
    /// Times reading stopped because a client does not read its replies (`MAX_QUEUED_BYTES`).
    stalled,
    /// Bytes of bodies and bulk received.
    bytes_in,
    /// Bytes of bodies and bulk sent.
    bytes_out,
}

pub(crate) fn up(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

pub(crate) fn down(counter: &AtomicU64) {
    counter.fetch_sub(1, Relaxed);
}

pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Relaxed);
}
