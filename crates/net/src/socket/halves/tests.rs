use super::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::AsyncReadExt;

const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn parts(stream: tokio::net::UnixStream) -> (Reader, Writer) {
    split(stream.into_std().unwrap().into()).unwrap()
}

/// Writes as much as goes in at once.
fn fill(writer: &Writer) -> usize {
    let piece = [7; 10_000];
    let mut all = 0;
    loop {
        match writer.try_write(&[IoSlice::new(&piece)]) {
            Ok(n) => all += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return all,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Whether a thread of this process sleeps, and how often it went to sleep.
fn sleeps(tid: i32) -> (bool, u64) {
    let told = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let field = |name: &str| {
        let line = told.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    };
    (field("State").starts_with('S'), field("voluntary_ctxt_switches").parse().unwrap())
}

#[test]
fn bytes_come_out_as_they_went_in_however_they_are_read() {
    runtime().block_on(async {
        let (a, b) = tokio::net::UnixStream::pair().unwrap();
        let ((mut reader, _writer), (_reader, writer)) = (parts(a), parts(b));
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let given = sent.clone();
        let sender = tokio::spawn(async move {
            let mut rest = &given[..];
            while !rest.is_empty() {
                let (x, y) = rest.split_at(rest.len() / 3);
                match writer.try_write(&[IoSlice::new(x), IoSlice::new(y)]) {
                    Ok(n) => rest = &rest[n..],
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        writer.room().unwrap().wait().await.unwrap();
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        });
        let mut got = bytes::BytesMut::new();
        let whole = async {
            for n in 1.. {
                let room = [1, 100, 47_008, 300_000][n % 4];
                let mut piece = bytes::BytesMut::with_capacity(room);
                if reader.read_buf(&mut piece).await.unwrap() == 0 {
                    break;
                }
                got.extend_from_slice(&piece);
            }
        };
        tokio::time::timeout(PATIENCE, whole).await.expect("the end was told");
        sender.await.unwrap();
        assert!(got == sent);
    });
}

#[test]
fn who_waits_for_nothing_but_bytes_is_not_woken_for_room() {
    let (mine, mut theirs) = UnixStream::pair().unwrap();
    mine.set_nonblocking(true).unwrap();
    let (say, said) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        runtime().block_on(async {
            let stream = tokio::net::UnixStream::from_std(mine).unwrap();
            let (mut reader, writer) = parts(stream);
            let me = rustix::thread::gettid().as_raw_nonzero().get();
            say.send((me, writer)).unwrap();
            let mut bytes = [0; 3];
            reader.read_exact(&mut bytes).await.unwrap();
            bytes
        })
    });
    let (thread, writer) = said.recv_timeout(PATIENCE).unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    while !sleeps(thread).0 {
        assert!(std::time::Instant::now() < end, "it waits");
        std::thread::yield_now();
    }
    let before = sleeps(thread).1;
    let mut out = vec![0; 20_000];
    for _ in 0..200 {
        let n = writer.try_write(&[IoSlice::new(&out)]).unwrap();
        std::io::Read::read_exact(&mut theirs, &mut out[..n]).unwrap();
        std::thread::yield_now();
    }
    // It may have been about to sleep when it was looked at.
    let woken = sleeps(thread).1 - before;
    assert!(woken <= 1, "the peer took everything out, and sent nothing: {woken}");
    theirs.write_all(b"now").unwrap();
    assert_eq!(&waiting.join().unwrap(), b"now");
}

#[test]
fn room_is_told_each_time_it_was_waited_for() {
    runtime().block_on(async {
        let (a, b) = tokio::net::UnixStream::pair().unwrap();
        let ((_reader, writer), (mut theirs, _writer)) = (parts(a), parts(b));
        let room = writer.room().unwrap();
        tokio::time::timeout(PATIENCE, room.wait()).await.expect("an empty one has room").unwrap();
        for _ in 0..5 {
            let filled = fill(&writer);
            assert!(filled > 0);
            let early = tokio::time::timeout(Duration::from_millis(20), room.wait()).await;
            assert!(early.is_err(), "a full one has none");
            let mut out = vec![0; filled];
            theirs.read_exact(&mut out).await.unwrap();
            tokio::time::timeout(PATIENCE, room.wait()).await.expect("room again").unwrap();
        }
    });
}

#[test]
fn the_end_of_either_side_is_told() {
    runtime().block_on(async {
        let (a, b) = tokio::net::UnixStream::pair().unwrap();
        let ((reader, writer), (mut theirs, their_writer)) = (parts(a), parts(b));
        let mut out = Vec::new();
        let end = tokio::time::timeout(PATIENCE, theirs.read_to_end(&mut out));
        drop(writer);
        assert_eq!(end.await.expect("told although the reader is alive").unwrap(), 0);
        drop(reader);
        let e = their_writer.try_write(&[IoSlice::new(b"x")]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
    });
}
