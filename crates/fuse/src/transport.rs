//! Which way requests come: the choice, and the kernel's switch for it.

use std::fmt;
use std::str::FromStr;

/// The parameter of the kernel's fuse module without which it offers no io_uring.
pub const RING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Does [`IoUring::Auto`] mean io_uring? It answers small requests on their callers' CPU, twice as fast and more; large data
/// costs the same. (A process that is killed while it uses its own mount is better off with the device: Linux 6.18 does not
/// end its connection over io_uring, not even when told to abort it.)
pub const AUTO_IS_RING: bool = true;

/// Whether requests come through io_uring or by reading /dev/fuse. The kernel offers io_uring from Linux 6.14 on, if
/// [`RING_PARAMETER`] is Y when the file system is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// What is known to be better; see [`AUTO_IS_RING`]. With io_uring, root sets the parameter, and where it is not to be
    /// had, requests come through the device.
    #[default]
    Auto,
    /// io_uring, or an error; root sets the parameter.
    On,
    /// The device; the parameter is left alone.
    Off,
}

impl FromStr for IoUring {
    type Err = UnknownIoUring;

    fn from_str(word: &str) -> Result<IoUring, UnknownIoUring> {
        match word {
            "auto" => Ok(IoUring::Auto),
            "on" => Ok(IoUring::On),
            "off" => Ok(IoUring::Off),
            _ => Err(UnknownIoUring),
        }
    }
}

/// Neither `auto` nor `on` nor `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownIoUring;

impl fmt::Display for UnknownIoUring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("io_uring is one of auto, on and off")
    }
}

impl std::error::Error for UnknownIoUring {}

impl IoUring {
    /// Are requests to come through io_uring if that is to be had?
    pub(crate) fn is_wanted(self) -> bool {
        match self {
            IoUring::Auto => AUTO_IS_RING,
            IoUring::On => true,
            IoUring::Off => false,
        }
    }

    /// Sets the parameter where that is wanted and allowed. To be called before the file system is mounted.
    pub(crate) fn prepare(self) {
        if !self.is_wanted() {
            return;
        }
        match std::fs::read_to_string(RING_PARAMETER) {
            Ok(value) if value.trim() == "N" => {
                if let Err(e) = std::fs::write(RING_PARAMETER, "Y") {
                    tracing::debug!("{RING_PARAMETER}: {e}");
                }
            }
            Ok(_) => {}
            Err(e) => tracing::debug!("{RING_PARAMETER}: {e}"),
        }
    }
}
