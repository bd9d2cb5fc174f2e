//! Addresses: what may be listened on, what others are told, and `ADDR:/SUBDIR`.

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use net::Endpoint;

use crate::failure::{Failure, Outcome};

/// Reads an address.
pub fn parse(text: &str) -> Outcome<Endpoint> {
    text.parse().map_err(|_| {
        let why = format!("'{text}' is not an address; use HOST:PORT or unix:/PATH");
        Failure::usage(why)
    })
}

/// Reads `ADDR[:/SUBDIR]`.
pub fn parse_with_subdir(text: &str) -> Outcome<(Endpoint, Option<PathBuf>)> {
    let skip = if text.starts_with("unix:") { "unix:".len() } else { 0 };
    let (address, subdir) = match text[skip..].find(":/") {
        Some(at) => (&text[..skip + at], Some(&text[skip + at + 1..])),
        None => (text, None),
    };
    let subdir = subdir.map(|s| s.trim_matches('/')).filter(|s| !s.is_empty());
    Ok((parse(address)?, subdir.map(PathBuf::from)))
}

/// Refuses a listener that other machines can reach, unless that was asked for.
pub fn check_listen(endpoint: &Endpoint, allow_remote: bool) -> Outcome<()> {
    let Endpoint::Tcp(address) = endpoint else { return Ok(()) };
    if allow_remote {
        return Ok(());
    }
    let found = address.to_socket_addrs();
    let found =
        found.map_err(|e| Failure::run(format!("cannot find out where {address} is: {e}")))?;
    match found.into_iter().find(|a| !a.ip().is_loopback()) {
        None => Ok(()),
        Some(wide) => Err(Failure::usage(format!(
            "--listen {address} could be reached from other machines (through {}); add \
             --allow-remote if that is meant, or use 127.0.0.1",
            wide.ip()
        ))),
    }
}

/// What other processes are told: `given` if anything, else the real address, with this machine's
/// name where it listens on all addresses.
pub fn advertised(listening: &Endpoint, given: Option<&str>) -> Outcome<String> {
    if let Some(text) = given {
        return Ok(parse(text)?.to_string());
    }
    if let Endpoint::Tcp(address) = listening
        && let Some((host, port)) = address.rsplit_once(':')
        && matches!(host, "0.0.0.0" | "[::]" | "*")
    {
        return Ok(format!("tcp:{}:{port}", crate::host::name()));
    }
    Ok(listening.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdirectories_are_told_from_addresses() {
        for (text, address, subdir) in [
            ("h:1", "tcp:h:1", None),
            ("tcp:h:1", "tcp:h:1", None),
            ("h:1:/", "tcp:h:1", None),
            ("h:1:/a/b", "tcp:h:1", Some("a/b")),
            ("tcp:h:1:/a", "tcp:h:1", Some("a")),
            ("[::1]:7:/a", "tcp:[::1]:7", Some("a")),
            ("unix:/s/k", "unix:/s/k", None),
            ("unix:/s/k:/a/", "unix:/s/k", Some("a")),
        ] {
            let (e, s) = parse_with_subdir(text).unwrap();
            assert_eq!((e.to_string().as_str(), s), (address, subdir.map(PathBuf::from)), "{text}");
        }
        for bad in ["h", "h:/a", "unix:rel", "", ":1"] {
            let e = parse_with_subdir(bad).unwrap_err();
            assert!(e.code == 2 && e.text.contains("HOST:PORT"), "{bad}: {e}");
        }
    }

    #[test]
    fn wide_listeners_must_be_asked_for() {
        let check = |text: &str, remote| check_listen(&parse(text).unwrap(), remote);
        for good in ["127.0.0.1:0", "localhost:0", "[::1]:0", "unix:/x"] {
            check(good, false).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for wide in ["0.0.0.0:0", "[::]:0", "192.0.2.1:5"] {
            let e = check(wide, false).unwrap_err();
            assert!(e.code == 2 && e.text.contains("--allow-remote"), "{e}");
            check(wide, true).unwrap();
        }
    }

    #[test]
    fn wildcards_are_not_told_to_others() {
        let told = |text: &str, given| advertised(&parse(text).unwrap(), given).unwrap();
        assert_eq!(told("127.0.0.1:7", None), "tcp:127.0.0.1:7");
        assert_eq!(told("0.0.0.0:7", None), format!("tcp:{}:7", crate::host::name()));
        assert_eq!(told("0.0.0.0:7", Some("a.example:8")), "tcp:a.example:8");
    }
}
