//! The frame reader against what was written, for any way of cutting the stream.

use bytes::BufMut;
use pinstripe_net::{FrameReader, NetError, encode_frame};
use proptest::prelude::*;
use proto::frame::Header;

type Whole = (u64, Vec<u8>, Vec<u8>);

fn frames() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    // Long bulk is read straight to its place.
    let bulk = prop_oneof![bytes(64), (0usize..70_000).prop_map(|n| vec![n as u8; n])];
    proptest::collection::vec((bytes(300), bulk), 0..8)
}

fn stream(frames: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let one = |(xid, f): (usize, &(Vec<u8>, Vec<u8>))| {
        encode_frame(Header::request(9, xid as u64), &f.0, &f.1)
    };
    frames.iter().enumerate().flat_map(one).collect()
}

/// Reads in pieces as a connection does: into place where the reader wants it so.
fn read(mut bytes: &[u8], cuts: &[usize], straight: bool) -> Result<Vec<Whole>, NetError> {
    let mut reader = FrameReader::default();
    let mut found = Vec::new();
    let mut cuts = cuts.iter().cycle();
    while !bytes.is_empty() {
        let n = (*cuts.next().unwrap()).clamp(1, bytes.len());
        let mut on = |h: Header, body: bytes::Bytes, bulk: bytes::Bytes| {
            found.push((h.xid.get(), body.to_vec(), bulk.to_vec()));
            Ok(())
        };
        let taken = match reader.rest().filter(|_| straight) {
            Some(mut rest) => {
                let n = n.min(rest.remaining_mut());
                rest.put_slice(&bytes[..n]);
                reader.filled(&mut on)?;
                n
            }
            None => {
                reader.feed(&bytes[..n], &mut on)?;
                n
            }
        };
        bytes = &bytes[taken..];
    }
    assert!(reader.is_between());
    Ok(found)
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(
        frames in frames(),
        cuts in proptest::collection::vec(prop_oneof![1usize..80, 1usize..50_000], 1..20),
        straight in any::<bool>(),
    ) {
        let expect: Vec<Whole> =
            frames.iter().cloned().enumerate().map(|(x, (a, b))| (x as u64, a, b)).collect();
        prop_assert_eq!(read(&stream(&frames), &cuts, straight).unwrap(), expect);
    }

    #[test]
    fn any_bytes_end_in_frames_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
        cut in 1usize..100,
        magic in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(b"PST\x03");
        }
        let mut reader = FrameReader::default();
        for piece in bytes.chunks(cut) {
            if reader.feed(piece, |_, _, _| Ok(())).is_err() {
                break;
            }
        }
    }

    #[test]
    fn a_flipped_bit_of_header_or_body_is_noticed(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        at in 0usize..2112,
    ) {
        let mut bytes = encode_frame(Header::request(9, 1), &body, &[]);
        let at = at % (bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
        let mut reader = FrameReader::default();
        let mut whole = 0;
        let fed = reader.feed(&bytes, |_, _, _| { whole += 1; Ok(()) });
        // A larger length waits for bytes that never come; it gives no frame either.
        prop_assert!(whole == 0 && (fed.is_err() || !reader.is_between()));
    }
}

#[test]
fn a_stranger_is_known_by_the_first_byte() {
    let mut reader = FrameReader::default();
    let e = reader.feed(b"G", |_, _, _| Ok(())).unwrap_err();
    assert!(e.to_string().contains("not a Pinstripe frame"), "{e}");
}
