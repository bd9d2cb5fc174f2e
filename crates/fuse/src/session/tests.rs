//! The INIT exchange with a kernel played by the test.

use super::*;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

struct Quiet;

impl Filesystem for Quiet {}

fn init(words: &[u32], len: usize) -> Vec<u8> {
    let mut body: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    body.resize(len, 0);
    let mut bytes = ((40 + len) as u32).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&26u32.to_ne_bytes());
    bytes.extend_from_slice(&2u64.to_ne_bytes());
    bytes.resize(40, 0);
    bytes.extend(body);
    bytes
}

/// Sends the requests one by one; returns the session's view and the answers (header and 16 words of each).
fn exchange(requests: &[Vec<u8>], config: &Config) -> (io::Result<InitInfo>, Vec<Vec<u32>>) {
    let (mut kernel, ours) = UnixStream::pair().unwrap();
    let shared = Shared { pool: Pool::new(65536), interrupts: Arc::default() };
    let channel = Channel::new(OwnedFd::from(ours), Arc::new(shared));
    std::thread::scope(|scope| {
        let session = scope.spawn(move || handshake(&channel, &Quiet, config, IoUring::Off));
        let mut answers = Vec::new();
        for request in requests {
            kernel.write_all(request).unwrap();
            let mut len = [0u8; 4];
            kernel.read_exact(&mut len).unwrap();
            let mut rest = vec![0u8; u32::from_ne_bytes(len) as usize - 4];
            kernel.read_exact(&mut rest).unwrap();
            answers
                .push(rest.chunks(4).map(|w| u32::from_ne_bytes(w.try_into().unwrap())).collect());
        }
        (session.join().unwrap(), answers)
    })
}

#[test]
fn a_new_kernel_gets_what_both_want() {
    let offered = u64::MAX;
    let request = init(&[7, 45, 131_072, offered as u32, (offered >> 32) as u32], 64);
    let config = Config { wanted: u64::MAX, ..Config::default() };
    let (info, answers) = exchange(&[request], &config);
    let info = info.unwrap();
    assert_eq!((info.minor, info.max_write, info.max_readahead), (45, 1 << 20, 131_072));
    // Words: error, number (2), then struct fuse_init_out.
    let out = &answers[0][3..];
    assert_eq!(answers[0][0], 0);
    assert_eq!(out[..3], [7, 45, 131_072]);
    assert_eq!(out[4], 256 | 192 << 16);
    assert_eq!(out[5..8], [1 << 20, 1, 256]);
    let flags = u64::from(out[3]) | u64::from(out[8]) << 32;
    assert_eq!(flags, info.granted);
    assert_eq!(flags & (1 << 16), 0, "WRITEBACK_CACHE is never negotiated");
    assert_ne!(flags & caps::CREATE_SUPP_GROUP, 0);
    assert_eq!(out.len(), 16);
}

#[test]
fn an_old_kernel_gets_less() {
    let offered = caps::DEFAULT as u32 & !(1 << 30) & !(1 << 22);
    let (info, answers) = exchange(&[init(&[7, 31, 4096, offered], 16)], &Config::default());
    let info = info.unwrap();
    assert_eq!((info.minor, info.max_write, info.max_readahead), (31, 131_072, 4096));
    assert_eq!(info.granted, u64::from(offered));
    assert_eq!(answers[0][3 + 8], 0);
}

#[test]
fn a_newer_major_version_is_asked_to_come_down() {
    let requests = [init(&[8, 1, 0, 0], 64), init(&[7, 40, 0, 0], 64)];
    let (info, answers) = exchange(&requests, &Config::default());
    assert_eq!(info.unwrap().minor, 40);
    assert_eq!(answers[0][3..5], [7, 45]);
}

#[test]
fn too_old_a_kernel_is_refused() {
    for version in [[7, 30], [6, 99]] {
        let request = init(&[version[0], version[1], 0, 0], 16);
        let (info, answers) = exchange(&[request], &Config::default());
        assert_eq!(info.unwrap_err().raw_os_error(), Some(libc::EPROTO));
        assert_eq!(answers[0][0] as i32, -libc::EPROTO);
    }
}
