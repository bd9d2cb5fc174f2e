//! The bytes of every message, as `docs/mcp-mpi.md` maps them, and what decoding does with others.

use super::super::output::Message as Line;
use super::message::*;
use super::wire::FRAME_MOST;
use crate::engine::{Copied, Fault, PartFile, Reached, Seen};
use std::io;

fn seen() -> Seen {
    Seen { ino: 0x11, size: 0x22, mtime: (-1, 0x33) }
}

fn all() -> Vec<(Message, &'static str)> {
    let hello = Hello {
        program: "0.1".into(),
        arguments: [0xaa; 32],
        directory: Some(("/w".into(), 7)),
        umask: 0o22,
        user: 1000,
    };
    let order = FileOrder { id: 5, anew: true, seen: seen(), src: "s".into(), dst: "d/e".into() };
    let copied = Copied { bytes: 9, moved: 8, reflinked: true, ..Copied::default() };
    let end = FileEnd {
        id: 5,
        outcome: Outcome::Done,
        failed: true,
        copied: Some(copied),
        lines: vec![Line::Out(b"o\n".to_vec()), Line::Err(b"e\n".to_vec())],
    };
    let unseen = FileEnd {
        id: 6,
        outcome: Outcome::Unseen(libc::ENOENT),
        failed: false,
        copied: None,
        lines: Vec::new(),
    };
    let file = PartFile {
        src_name: "s".into(),
        dst_name: "d".into(),
        src: seen(),
        dst_ino: 0x44,
        had: 0x55,
        end: 0x66,
    };
    let part = PartOrder { id: 7, from: 1, to: 0x66, file };
    let fault = Some(Fault::Write(io::Error::from_raw_os_error(libc::ENOSPC)));
    let reached = Reached { at: 3, written: 2, moved: 1, ended: false, offloaded: true, fault };
    let part_end = PartEnd { id: 7, outcome: Outcome::Failed, reached };
    vec![
        (
            Message::Hello(hello),
            "50534d52 0100 01 03000000 302e31 \
             aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 12000000 e8030000 \
             01 02000000 2f77 0700000000000000",
        ),
        (Message::Ready("h".into(), 8), "50534d52 0100 02 01000000 68 0800"),
        (Message::Refuse("h".into(), "no".into()), "50534d52 0100 03 01000000 68 02000000 6e6f"),
        (
            Message::Files(vec![order]),
            "50534d52 0100 04 0100 0500000000000000 01 1100000000000000 2200000000000000 \
             ffffffffffffffff 3300000000000000 01000000 73 03000000 642f65",
        ),
        (
            Message::FileEnds(vec![end, unseen]),
            "50534d52 0100 05 0200 0500000000000000 00 00000000 01 01 0900000000000000 \
             0800000000000000 01 0200 01 02000000 6f0a 02 02000000 650a \
             0600000000000000 02 02000000 00 00 0000",
        ),
        (
            Message::Part(part),
            "50534d52 0100 06 0700000000000000 0100000000000000 6600000000000000 1100000000000000 \
             2200000000000000 ffffffffffffffff 3300000000000000 4400000000000000 5500000000000000 \
             6600000000000000 01000000 73 01000000 64",
        ),
        (
            Message::PartEnd(part_end),
            "50534d52 0100 07 0700000000000000 01 00000000 0300000000000000 0200000000000000 \
             0100000000000000 00 01 02 1c000000",
        ),
        (Message::Ping, "50534d52 0100 08"),
        (Message::Pong, "50534d52 0100 09"),
        (Message::End, "50534d52 0100 0a"),
        (Message::Bye, "50534d52 0100 0b"),
    ]
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| String::from_utf8_lossy(pair).into_owned();
    digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).unwrap()).collect()
}

#[test]
fn the_bytes_are_those_of_the_document() {
    for (message, hex) in all() {
        let frame = message.encode();
        assert_eq!(frame, bytes(hex), "{message:?}");
        let back = Message::decode(&frame).unwrap();
        assert_eq!(format!("{back:?}"), format!("{message:?}"));
    }
}

#[test]
fn short_long_and_altered_frames_are_refused_or_read_and_never_panic() {
    for (message, _) in all() {
        let frame = message.encode();
        for end in 0..frame.len() {
            assert!(Message::decode(&frame[..end]).is_err(), "{message:?} cut at {end}");
        }
        let longer = [&frame[..], &[0]].concat();
        assert!(Message::decode(&longer).is_err(), "{message:?} with a byte more");
        for at in 0..frame.len() {
            for bit in 0..8 {
                let mut altered = frame.clone();
                altered[at] ^= 1 << bit;
                // Where it can be read it is the same in other words.
                if let Ok(read) = Message::decode(&altered) {
                    let again = Message::decode(&read.encode()).unwrap();
                    assert_eq!(format!("{again:?}"), format!("{read:?}"));
                }
            }
        }
    }
    assert!(Message::decode(&vec![0; FRAME_MOST + 1]).is_err());
}

#[test]
fn another_version_can_only_refuse_and_end() {
    for (message, _) in all() {
        let mut frame = message.encode();
        frame[4] = 2;
        let kept = matches!(message, Message::Refuse(..) | Message::End | Message::Bye);
        let read = Message::decode(&frame);
        assert_eq!(read.is_ok(), kept, "{message:?}");
        if let Err(why) = read {
            assert!(why.contains("version"), "{why}");
        }
    }
}

#[test]
fn the_largest_frames_fit() {
    let long = "n".repeat(2 * super::wire::NAME_MOST);
    let order =
        FileOrder { id: 1, anew: false, seen: seen(), src: long.clone().into(), dst: long.into() };
    let frame = Message::Files(vec![order; ENTRIES_MOST]).encode();
    assert!(frame.len() <= FRAME_MOST && Message::decode(&frame).is_ok());
    let line = Line::Err(vec![b'x'; 3 << 10]);
    let end = FileEnd {
        id: 1,
        outcome: Outcome::Done,
        failed: false,
        copied: None,
        lines: vec![line; 1000],
    };
    // What a worker sends at most: one more, however long, after the frame was not full.
    assert!(Message::FileEnds(vec![end.clone()]).encode().len() + FRAME_FULL <= FRAME_MOST);
    let Ok(Message::FileEnds(ends)) = Message::decode(&Message::FileEnds(vec![end]).encode())
    else {
        panic!("not read")
    };
    assert!(ends[0].lines.len() > 50);
}
