//! Requests written down byte by byte, sent through a socket instead of the device.

use super::*;
use crate::buf::Pool;
use crate::channel::{Channel, Shared};
use crate::reply::Data;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Notes down what it is called with, and answers as it is told.
#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<String>>,
}

impl Recorder {
    fn note(&self, what: String) {
        self.seen.lock().push(what);
    }
}

impl Filesystem for Recorder {
    fn lookup(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        self.note(format!("lookup {parent} {name:?} by {} {} {}", req.uid(), req.gid(), req.pid()));
        reply.ok(Entry::negative(std::time::Duration::from_secs(2)));
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.note(format!("forget {nodeid} {nlookup}"));
    }

    fn setattr(&self, _: &Request, nodeid: u64, set: SetAttr, reply: Reply<AttrOut>) {
        self.note(format!("setattr {nodeid} {set:?}"));
        reply.err(Errno::new(libc::EPERM));
    }

    fn rename(
        &self,
        _: &Request,
        from: u64,
        name: &OsStr,
        to: u64,
        new: &OsStr,
        flags: u32,
        reply: Reply<()>,
    ) {
        self.note(format!("rename {from} {name:?} {to} {new:?} {flags}"));
        reply.ok(());
    }

    fn write(&self, _: &Request, n: u64, w: WriteIn, data: WriteData<'_>, reply: Reply<u32>) {
        self.note(format!("write {n} {w:?} {:?}", &*data));
        reply.ok(data.len() as u32);
    }

    fn read(&self, _: &Request, _: u64, read: ReadIn, reply: Reply<Data>) {
        match read.offset {
            0 => reply.slices(&[&b"ab"[..], b"", b"c"]),
            1 => reply.bytes(&[0; 100]),
            2 => reply.fill(|buf| Ok(buf.len() + 1)),
            _ => reply.fill(|buf| {
                buf.fill(b'z');
                Ok(2)
            }),
        }
    }

    fn copy_file_range(&self, _: &Request, _: u64, _: CopyIn, reply: Reply<u64>) {
        reply.ok(6);
    }

    fn setxattr(
        &self,
        _: &Request,
        _: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill: bool,
        reply: Reply<()>,
    ) {
        self.note(format!("setxattr {name:?} {value:?} {flags} {kill}"));
        reply.ok(());
    }

    fn getlk(&self, _: &Request, _: u64, lock: LockIn, reply: Reply<FileLock>) {
        self.note(format!("getlk {lock:?}"));
        panic!("while the reply is alive: {}", reply.unique());
    }
}

struct Bench {
    fs: Recorder,
    channel: Arc<Channel>,
    kernel: UnixStream,
    granted: u64,
}

impl Bench {
    fn new() -> Bench {
        let (kernel, ours) = UnixStream::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let shared = Shared { pool: Pool::new(65536), interrupts: Arc::default() };
        let channel = Arc::new(Channel::new(OwnedFd::from(ours), Arc::new(shared)));
        Bench { fs: Recorder::default(), channel, kernel, granted: caps::SUPPORTED }
    }

    /// Handles raw bytes; returns what was answered.
    fn raw(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buf = self.channel.shared.pool.get();
        let len = bytes.len().min(buf.read_area().len());
        buf.read_area()[..len].copy_from_slice(&bytes[..len]);
        let link = Link::Device(self.channel.clone());
        let target = Target { fs: &self.fs, link: &link, granted: self.granted };
        let call = || request(&target, &mut buf, len);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        let mut answer = Vec::new();
        // WouldBlock at the end of what is there.
        let _ = self.kernel.read_to_end(&mut answer);
        answer
    }

    /// Handles a request of node 5 with number 78; returns the answer's error and payload.
    fn call(&mut self, opcode: u32, body: &[&[u8]]) -> (i32, Vec<u8>) {
        let answer = self.raw(&message(opcode, body));
        let word = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, answer.len());
        assert_eq!(answer[8..16], 78u64.to_ne_bytes());
        (word(4) as i32, answer[16..].to_vec())
    }

    fn seen(&self) -> String {
        self.fs.seen.lock().join("; ")
    }
}

fn message(opcode: u32, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(40 + body.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(&opcode.to_ne_bytes());
    bytes.extend_from_slice(&78u64.to_ne_bytes());
    bytes.extend_from_slice(&5u64.to_ne_bytes());
    for id in [10u32, 11, 12, 0] {
        bytes.extend_from_slice(&id.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

fn u64s<const N: usize>(values: [u64; N]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn u32s<const N: usize>(values: [u32; N]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

#[test]
fn lookup_answers_a_negative_entry() {
    let mut bench = Bench::new();
    let (error, payload) = bench.call(1, &[b"na\xffme\0"]);
    assert_eq!((error, payload.len()), (0, 128));
    assert_eq!(payload[..8], [0; 8]);
    assert_eq!(payload[16..24], 2u64.to_ne_bytes());
    assert_eq!(bench.seen(), "lookup 5 \"na\\xFFme\" by 10 11 12");
}

#[test]
fn forgets_are_not_answered() {
    let mut bench = Bench::new();
    assert_eq!(bench.raw(&message(2, &[&u64s([3])])), []);
    let batch = message(42, &[&u32s([2, 0]), &u64s([7, 1, 8, 2])]);
    assert_eq!(bench.raw(&batch), []);
    let short = message(42, &[&u32s([3, 0]), &u64s([7, 1, 8, 2])]);
    assert_eq!(bench.raw(&short), []);
    let huge = message(42, &[&u32s([u32::MAX, 0])]);
    assert_eq!(bench.raw(&huge), []);
    assert_eq!(bench.seen(), "forget 5 3; forget 7 1; forget 8 2");
}

#[test]
fn setattr_gives_only_what_is_valid() {
    let mut bench = Bench::new();
    let valid = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 6 | 1 << 11;
    let mut body = u32s([valid, 0]);
    body.extend(u64s([33, 44, 55, -66i64 as u64, 77, 88]));
    body.extend(u32s([1, 2, 3, 0o644, 0, 9, 8, 0]));
    assert_eq!(bench.call(4, &[&body]), (-libc::EPERM, vec![]));
    let expected = SetAttr {
        mode: Some(0o644),
        size: Some(44),
        atime: Some(SetTime::At(Time { sec: -66, nsec: 1 })),
        mtime: Some(SetTime::Now),
        fh: Some(33),
        kill_suidgid: true,
        ..SetAttr::default()
    };
    assert_eq!(bench.seen(), format!("setattr 5 {expected:?}"));
}

#[test]
fn both_forms_of_rename() {
    let mut bench = Bench::new();
    assert_eq!(bench.call(12, &[&u64s([6]), b"a\0b\0"]), (0, vec![]));
    assert_eq!(bench.call(45, &[&u64s([6]), &u32s([2, 0]), b"a\0b\0"]), (0, vec![]));
    assert_eq!(bench.seen(), r#"rename 5 "a" 6 "b" 0; rename 5 "a" 6 "b" 2"#);
    assert_eq!(bench.call(45, &[&u64s([6]), &u32s([2, 0]), b"a\0b"]).0, -libc::EINVAL);
}

#[test]
fn write_hands_over_exactly_its_data() {
    let mut bench = Bench::new();
    let body = [u64s([1, 4096]), u32s([3, 1 << 1 | 1 << 2]), u64s([99]), u32s([1, 0])].concat();
    let (error, payload) = bench.call(16, &[&body, b"xyz"]);
    assert_eq!((error, payload), (0, u32s([3, 0])));
    let args = WriteIn {
        fh: 1,
        offset: 4096,
        flags: 1,
        lock_owner: Some(99),
        from_cache: false,
        kill_suidgid: true,
    };
    assert_eq!(bench.seen(), format!("write 5 {args:?} {:?}", b"xyz"));
    assert_eq!(bench.call(16, &[&body, b"xy"]).0, -libc::EINVAL);
    assert_eq!(bench.call(16, &[&body, b"wxyz"]).0, -libc::EINVAL);
    assert_eq!(bench.call(16, &[&body[..39]]).0, -libc::EINVAL);
}

#[test]
fn read_answers_never_exceed_what_was_asked_for() {
    let mut bench = Bench::new();
    let mut read = |offset: u64| {
        let body = [u64s([0, offset]), u32s([9, 0]), u64s([0]), u32s([0, 0])].concat();
        bench.call(15, &[&body])
    };
    assert_eq!(read(0), (0, b"abc".to_vec()));
    assert_eq!(read(1), (-libc::EIO, vec![]));
    assert_eq!(read(2), (-libc::EIO, vec![]));
    assert_eq!(read(3), (0, b"zz".to_vec()));
}

#[test]
fn copied_bytes_are_counted_in_the_width_of_the_request() {
    let mut bench = Bench::new();
    assert_eq!(bench.call(47, &[&u64s([0; 7])]), (0, u32s([6, 0])));
    assert_eq!(bench.call(53, &[&u64s([0; 7])]), (0, u64s([6])));
}

#[test]
fn setxattr_has_the_form_that_was_negotiated() {
    let mut bench = Bench::new();
    bench.call(21, &[&u32s([2, 1, 1, 0]), b"user.a\0vv"]);
    bench.granted = 0;
    bench.call(21, &[&u32s([2, 2]), b"user.b\0ww"]);
    let expected = r#"setxattr "user.a" [118, 118] 1 true; setxattr "user.b" [119, 119] 2 false"#;
    assert_eq!(bench.seen(), expected);
    assert_eq!(bench.call(21, &[&u32s([3, 0]), b"user.b\0ww"]).0, -libc::EINVAL);
}

#[test]
fn a_panic_with_the_reply_at_hand_answers_eio() {
    let mut bench = Bench::new();
    let body = [u64s([1, 2, 3, 4]), u32s([libc::F_WRLCK as u32, 5, 1, 0])].concat();
    assert_eq!(bench.call(31, &[&body]).0, -libc::EIO);
    let lock = FileLock { start: 3, end: 4, kind: libc::F_WRLCK, pid: 5 };
    let expected = LockIn { fh: 1, owner: 2, lock, flock: true, wait: false };
    assert_eq!(bench.seen(), format!("getlk {expected:?}"));
}

#[test]
fn what_is_not_known_or_not_implemented_is_enosys() {
    let mut bench = Bench::new();
    for opcode in [37, 40, 48, 99, 4096, u32::MAX] {
        assert_eq!(bench.call(opcode, &[]).0, -libc::ENOSYS, "opcode {opcode}");
    }
    assert_eq!(bench.call(50, &[&u64s([0])]).0, -libc::ENOSYS);
}

#[test]
fn an_interrupt_reaches_the_table() {
    let mut bench = Bench::new();
    assert_eq!(bench.raw(&message(36, &[&u64s([1234])])), []);
    assert!(bench.channel.shared.interrupts.is_interrupted(1234));
}

#[test]
fn a_wrong_length_is_answered_if_the_number_is_there() {
    let mut bench = Bench::new();
    let mut bytes = message(1, &[b"a\0"]);
    bytes[0] += 1;
    assert_eq!(bench.raw(&bytes)[4..8], (-libc::EIO).to_ne_bytes());
    assert_eq!(bench.raw(&bytes[..39]), []);
}

proptest! {
    #[test]
    fn any_arguments_get_one_answer(
        opcode in 0u32..60,
        extension_words in 0u8..4,
        body in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
    ) {
        let mut bench = Bench::new();
        let mut bytes = message(opcode, &[&body]);
        bytes[36] = extension_words;
        let answer = bench.raw(&bytes);
        if matches!(opcode, 2 | 36 | 38 | 42) && answer.is_empty() {
            return Ok(());
        }
        let len = u32::from_ne_bytes(answer[..4].try_into().unwrap());
        prop_assert_eq!(len as usize, answer.len());
    }
}

proptest! {
    #[test]
    fn the_door_for_fuzzers_takes_anything(
        opcode in 0u32..60,
        body in proptest::collection::vec(any::<u8>(), 0..100),
        raw in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        crate::fuzz::decode(&message(opcode, &[&body])).unwrap();
        crate::fuzz::decode(&raw).unwrap();
    }
}
