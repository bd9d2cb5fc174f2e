//! Why a call or a connection failed.
//!
//! Role: one error for all of this crate, cheap to clone because one loss fails many requests.

use proto::Errno;
use proto::frame::FrameError;
use std::time::Duration;

/// Why a call or a connection failed. A status the service answered with is not an error of the
/// transport: see [`crate::Reply::status`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The peer said no, in its own words.
    #[error("refused: {0}")]
    Refused(String),
    /// This client was evicted: whatever it had is gone; it may come back as another.
    #[error("this client was evicted")]
    Evicted {
        /// As which it was.
        client: [u8; 16],
    },
    /// The transport is gone, or never came to be.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No answer within the time allowed.
    #[error("no answer from {target} within {after:?}")]
    Timeout {
        /// Who was asked.
        target: String,
        /// How long was waited.
        after: Duration,
    },
    /// The peer broke the protocol.
    #[error("protocol violation: {0}")]
    Protocol(String),
    /// The peer is of another release, whose frames this one does not read.
    #[error(
        "the other side speaks wire version {theirs}, this program {}: the same release of Pinstripe is needed on both",
        proto::WIRE_VERSION
    )]
    Version {
        /// What its frames begin with.
        theirs: u8,
    },
    /// This session or server was closed from this side.
    #[error("the session is closed")]
    Shutdown,
    /// A limit is reached; try again later.
    #[error("too many requests are waiting")]
    Busy,
}

impl From<FrameError> for NetError {
    fn from(e: FrameError) -> NetError {
        match e {
            FrameError::Version(theirs) => NetError::Version { theirs },
            other => NetError::Protocol(other.to_string()),
        }
    }
}

impl NetError {
    /// What a refusal in words means for a client.
    pub(crate) fn refused(text: String, client: [u8; 16]) -> NetError {
        match text.starts_with(proto::mgs::EVICTED) {
            true => NetError::Evicted { client },
            false => NetError::Refused(text),
        }
    }

    /// Whether the peer's bytes are not what this side expects.
    pub(crate) fn is_bad_frame(&self) -> bool {
        matches!(self, NetError::Protocol(_) | NetError::Version { .. })
    }

    /// What an application sees.
    pub fn errno(&self) -> Errno {
        match self {
            NetError::Refused(_) => Errno::ECONNREFUSED,
            NetError::Evicted { .. } => Errno::ESTALE,
            NetError::Lost(_) => Errno::ECONNRESET,
            NetError::Timeout { .. } => Errno::ETIMEDOUT,
            NetError::Protocol(_) | NetError::Version { .. } => Errno::EPROTO,
            NetError::Shutdown => Errno::ESHUTDOWN,
            NetError::Busy => Errno::EAGAIN,
        }
    }
}
