//! What was made and written here first is made known to the MDT, and while that is under way the file
//! is closed: whoever writes it next is not overwritten later by what was written before (invariant 3).

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::sync::Arc;

use common::{READ, World, root};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags, Options};
use proto::mds::C_EXCL;
use proto::{Fid, FileKind};
use relay::Relay;

const RW: OpenFlags = OpenFlags { write: true, ..READ };
const OLD: [u8; 4096] = [1; 4096];
const NEW: [u8; 8] = [2; 8];

/// A client whose messages to the MDT can be held back.
fn held(w: &World) -> (Client, Relay) {
    Relay::before(w, 0, Options::default())
}

fn make(
    c: &Client,
    dir: Fid,
    name: &str,
    kind: FileKind,
    open: Option<OpenFlags>,
) -> (Fid, Option<Arc<OpenFile>>) {
    let mode = kind.mode_bits() | 0o755;
    let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", C_EXCL, open).unwrap();
    (made.attr.fid, made.file)
}

fn bytes(f: &OpenFile) -> Vec<u8> {
    let mut buf = vec![0; OLD.len()];
    let n = f.read(0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

#[test]
fn a_file_that_is_closed_while_it_is_made_known_is_not_written_over() {
    let w = World::new(1);
    let (one, relay) = held(&w);
    let two = w.client();
    for round in 0..20 {
        // Names are changed here first in a directory that was made here.
        let (dir, _) = make(&one, Fid::ROOT, &format!("d{round}"), FileKind::Dir, None);
        let (_, file) = make(&one, dir, "f", FileKind::File, Some(RW));
        let file = file.unwrap();
        file.write(0, Data::Slice(&OLD)).unwrap();
        relay.hold();
        std::thread::scope(|scope| {
            let known = scope.spawn(|| one.fsync_dir(dir));
            relay.holds();
            file.release();
            relay.go_on();
            known.join().unwrap().unwrap();
        });
        let fid = two.lookup(&root(), dir, b"f").unwrap().fid;
        let there = two.open(&root(), fid, RW).unwrap();
        assert_eq!(bytes(&there), OLD, "what was written before it was closed, round {round}");
        there.write(0, Data::Slice(&NEW)).unwrap();
        one.sync_all().unwrap();
        assert_eq!(bytes(&there)[..NEW.len()], NEW, "round {round}");
        there.release();
        let here = one.open(&root(), fid, READ).unwrap();
        assert_eq!(bytes(&here)[..NEW.len()], NEW, "seen by who made it, round {round}");
        here.release();
    }
    one.shutdown().unwrap();
    two.shutdown().unwrap();
}
