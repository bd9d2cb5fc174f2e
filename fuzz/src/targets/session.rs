//! A stream of bytes as it arrives at a server, in pieces; addresses as users write them.

use super::Target;
use net::{Endpoint, FrameReader, encode_frame};
use proto::frame::Header;

pub fn targets() -> Vec<Target> {
    vec![
        Target { name: "net frames", corpus: frames, decode: stream },
        Target { name: "net endpoint", corpus: addresses, decode: address },
    ]
}

fn frames() -> Vec<Vec<u8>> {
    let request = |xid| Header::request(proto::ops::oss::WRITE, xid);
    let mut two = encode_frame(request(1), b"a body", b"and bulk");
    two.extend(encode_frame(request(2), b"", &[7; 20_000]));
    vec![encode_frame(request(3), b"body", b""), two]
}

/// The pieces in which bytes come may not change what they mean.
fn stream(bytes: &[u8]) -> bool {
    let read = |piece: usize| {
        let mut reader = FrameReader::default();
        let mut frames = Vec::new();
        let failed = bytes.chunks(piece).any(|part| {
            let mut on = |h: Header, body, bulk| {
                frames.push((h, body, bulk));
                Ok(())
            };
            reader.feed(part, &mut on).is_err()
        });
        (frames, failed)
    };
    let whole = read(bytes.len().max(1));
    assert!(read(7) == whole, "pieces change the meaning");
    !whole.0.is_empty()
}

fn addresses() -> Vec<Vec<u8>> {
    ["tcp:127.0.0.1:988", "[::1]:7", "unix:/run/x.sock", "host.example:65535"]
        .map(|a| a.as_bytes().to_vec())
        .to_vec()
}

fn address(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(endpoint) = text.parse::<Endpoint>() else { return false };
    let shown = endpoint.to_string();
    assert!(shown.parse::<Endpoint>().is_ok(), "{text:?} is shown as {shown:?}, which is none");
    true
}
