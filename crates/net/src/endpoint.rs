//! Where a target is reached.

use crate::{LocalServer, NetError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a target is reached. As text: `tcp:HOST:PORT`, `unix:/absolute/path`; `HOST:PORT` alone
/// is TCP.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// `host:port`; port 0 lets the system choose when listening.
    Tcp(String),
    /// Absolute path of a socket.
    Unix(PathBuf),
    /// A server of this very process; has no textual form that can be read back.
    Local(LocalServer),
}

impl FromStr for Endpoint {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Endpoint, NetError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(bad(text, "the path of a Unix socket must be absolute"));
            }
            return Ok(Endpoint::Unix(path.into()));
        }
        let address = text.strip_prefix("tcp:").unwrap_or(text);
        let (host, port) = address
            .rsplit_once(':')
            .ok_or_else(|| bad(text, "expected HOST:PORT, tcp:HOST:PORT or unix:/PATH"))?;
        if host.is_empty() || host.contains('/') {
            return Err(bad(text, "the host is missing"));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(bad(text, "an IPv6 address is written in brackets"));
        }
        port.parse::<u16>().map_err(|_| bad(text, "the port is not a number below 65536"))?;
        Ok(Endpoint::Tcp(address.to_string()))
    }
}

fn bad(text: &str, why: &str) -> NetError {
    NetError::Protocol(format!("{text:?} is no address: {why}"))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "tcp:{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Local(_) => f.write_str("in-process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["tcp:host:988", "unix:/run/a.sock", "tcp:[::1]:7"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("host:1".parse::<Endpoint>().unwrap().to_string(), "tcp:host:1");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in ["", "host", ":1", "unix:a", "host:x", "host:65536", "::1:7", "udp:/x:1"] {
            let e = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(e.contains("no address"), "{text:?}: {e}");
        }
    }
}
