//! A connection that is cut after each number of bytes of a request, and of its reply: every
//! request has its effect once, every caller gets its answer (invariant 4).

use crate::common::*;
use parking_lot::Mutex;
use pinstripe_net::*;
use proto::frame::HEADER_LEN;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request's body; the answer's is the same.
const BODY: usize = 5;

/// How many more bytes pass: to the server, to the client; then the connection is cut, once.
type Left = Arc<Mutex<[Option<usize>; 2]>>;

/// Carries bytes between clients that come to `at` and the server at `to`.
fn line(at: &Path, to: &Path, left: &Left) {
    let listener = UnixListener::bind(at).unwrap();
    let (to, left) = (to.to_owned(), left.clone());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let Ok(server) = UnixStream::connect(&to) else { return };
            let ends = [(&client, &server), (&server, &client)];
            for (way, (from, to)) in ends.into_iter().enumerate() {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let left = left.clone();
                std::thread::spawn(move || carry(from, to, way, &left));
            }
        }
    });
}

fn carry(mut from: UnixStream, mut to: UnixStream, way: usize, left: &Left) {
    let mut buf = [0; 4096];
    loop {
        let n = from.read(&mut buf).unwrap_or(0);
        let mut left = left.lock();
        let (pass, cut) = match left[way] {
            Some(most) if n >= most => (most, true),
            Some(most) => {
                left[way] = Some(most - n);
                (n, false)
            }
            None => (n, n == 0),
        };
        if cut {
            left[way] = None;
        }
        drop(left);
        let broken = to.write_all(&buf[..pass]).is_err();
        if cut || broken || n == 0 {
            // Whoever is at either end hears of it.
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// A session over a line that can be cut, and comes back at once.
struct Cut {
    w: World,
    s: Arc<Session>,
    left: Left,
    _dir: tempfile::TempDir,
}

fn connected(options: ConnectOptions) -> Cut {
    let w = World::new(Kind::Unix, quick());
    let Endpoint::Unix(server) = &w.endpoint else { panic!("not a socket") };
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("line");
    let left = Left::default();
    line(&at, server, &left);
    let moment = Duration::from_millis(1);
    let backoff = Backoff { first: moment, most: moment, ..Backoff::default() };
    let s = Session::connect(&Endpoint::Unix(at), ConnectOptions { backoff, ..options }).unwrap();
    Cut { w, s, left, _dir: dir }
}

#[test]
fn a_line_cut_at_any_byte_of_a_request_or_its_reply_repeats_nothing() {
    let cut = connected(options());
    let Cut { w, s, left, .. } = &cut;
    let frame = HEADER_LEN + BODY;
    for way in [0, 1] {
        for bytes in 0..=frame {
            let body = vec![way as u8, bytes as u8, 1, 2, 3];
            assert_eq!(body.len(), BODY);
            let results = Results::default();
            left.lock()[way] = Some(bytes);
            s.submit(HOLD, body.clone(), vec![], results.sink());
            until("an answer", || {
                w.target.release();
                results.len() == 1
            });
            assert_eq!(results.bodies(), std::slice::from_ref(&body));
            assert_eq!(w.target.runs.lock()[&body].len(), 1, "{bytes} bytes, way {way}");
            // With the last byte of the reply there the cut may be still to come.
            left.lock()[way] = None;
        }
    }
    assert!(s.stats().lost >= frame as u64, "{:?}", s.stats());
    assert_eq!(w.target.runs.lock().len(), 2 * (frame + 1));
}

#[test]
fn an_end_right_behind_an_answer_is_told_at_once() {
    // Only the end itself tells that it ended.
    let cut = connected(ConnectOptions { ping_interval: 10 * PATIENCE, ..options() });
    let Cut { s, left, .. } = &cut;
    for n in 1..=100 {
        let results = Results::default();
        left.lock()[1] = Some(HEADER_LEN + BODY);
        s.submit(ECHO, vec![0; BODY], vec![], results.sink());
        until("an answer", || results.len() == 1);
        assert!(results.0.lock()[0].is_ok());
        until("the end is known", || s.stats().lost >= n);
        until("it is back", || s.is_connected());
    }
}
