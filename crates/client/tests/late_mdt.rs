//! An MDT that does not answer in the time a request has: callers are told so, and nothing that had been done
//! here is lost (invariant 1). When it answers, all is there, and who was told of a failure has nothing open.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Client, Data, OpenFile, Options};
use proto::{Errno, Fid, FileKind};
use relay::Relay;

/// What a request has.
const TIME: Duration = Duration::from_millis(300);
const BYTES: [u8; 3000] = [7; 3000];
/// More names than may wait to be told, with what is on its way.
const TOO_MANY: usize = 4000;

fn options() -> Options {
    Options { request_timeout: TIME, ..Options::default() }
}

fn held(w: &World) -> (Client, Relay) {
    Relay::before(w, 0, options())
}

fn dir(c: &Client, name: &str) -> Fid {
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let made = c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, None);
    made.unwrap().attr.fid
}

fn make(c: &Client, dir: Fid, name: &str) -> Result<Arc<OpenFile>, Errno> {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(WRITE))?;
    Ok(made.file.unwrap())
}

/// Makes a file with something in it.
fn put(c: &Client, dir: Fid, name: &str) -> Arc<OpenFile> {
    let file = make(c, dir, name).unwrap();
    file.write(0, Data::Slice(&BYTES)).unwrap();
    file
}

/// Whether the file of that name holds what [`put`] puts there.
fn holds(c: &Client, dir: Fid, name: &str) -> bool {
    let attr = c.lookup(&root(), dir, name.as_bytes()).unwrap();
    let mut found = [0; BYTES.len() + 1];
    let file = c.open(&root(), attr.fid, READ).unwrap();
    let n = file.read(0, &mut found).unwrap();
    file.release();
    found[..n] == BYTES
}

fn late(c: &Client) -> bool {
    c.stats().waiting_ops > 0
}

fn open_files(c: &Client) -> u64 {
    let status = c.status_json().unwrap();
    let of_mdt: serde_json::Value = serde_json::from_slice(&status[0]).unwrap();
    of_mdt["open_files"].as_u64().unwrap()
}

/// As long as three requests have, in which each fsync fails.
fn syncs_in_vain(file: &OpenFile) {
    let begun = Instant::now();
    while begun.elapsed() < 3 * TIME {
        assert_eq!(file.fsync(false), Err(Errno::EIO));
    }
}

#[test]
fn what_was_done_is_kept_until_the_mdt_answers() {
    let world = World::new(1);
    let (client, relay) = held(&world);
    let at = dir(&client, "d");
    let synced = put(&client, at, "synced");
    synced.fsync(false).unwrap();
    relay.hold();
    let names: Vec<_> = (0..500).map(|n| format!("f{n}")).collect();
    let files: Vec<_> = names.iter().map(|name| put(&client, at, name)).collect();
    client.rename(&root(), at, b"synced", at, b"renamed", 0).unwrap();
    syncs_in_vain(&files[0]);
    assert!(late(&client), "nothing waits");
    relay.go_on();
    until(|| files[0].fsync(false).is_ok());
    files.iter().for_each(|file| file.fsync(false).unwrap());
    files.iter().for_each(|file| file.release());
    synced.fsync(false).unwrap();
    client.sync_all().unwrap();
    let other = world.client();
    for name in names.iter().map(String::as_str).chain(["renamed"]) {
        assert!(holds(&other, at, name), "{name}");
    }
    assert_eq!(other.lookup(&root(), at, b"synced").unwrap_err(), Errno::ENOENT);
    assert_eq!(client.stats().surprises, 0);
}

/// The log has an end: who finds it full waits, and is told. What was taken before is kept.
#[test]
fn who_finds_the_log_full_is_told_and_what_was_taken_is_kept() {
    let world = World::new(1);
    let (client, relay) = held(&world);
    let at = dir(&client, "d");
    relay.hold();
    let name = |n: usize| format!("f{n}");
    let made = (0..TOO_MANY).map_while(|n| make(&client, at, &name(n)).ok()).count();
    assert!(made < TOO_MANY, "all were taken");
    // The next waits its time, too.
    assert_eq!(make(&client, at, "next").err(), Some(Errno::EIO));
    relay.go_on();
    until(|| client.sync_all().is_ok());
    make(&client, at, "after").unwrap();
    let other = world.client();
    for n in (0..made).map(name).chain(["after".into()]) {
        other.lookup(&root(), at, n.as_bytes()).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
}

/// One that is started anew later than that is told what the one before it had not been.
#[test]
fn an_mdt_that_was_away_for_longer_is_told_all() {
    let mut world = World::new(1);
    let client = world.client_with(options());
    let at = dir(&client, "d");
    client.sync_all().unwrap();
    world.stop_mdt();
    let file = put(&client, at, "f");
    syncs_in_vain(&file);
    world.start_mdt();
    until(|| file.fsync(false).is_ok());
    client.sync_all().unwrap();
    let other = world.client();
    assert!(holds(&other, at, "f"));
}

/// A directory is not given back while what was made in it has not been told, however long that takes.
#[test]
fn what_is_called_back_is_given_when_all_of_it_is_told() {
    let world = World::new(1);
    let other = world.client();
    let (client, relay) = held(&world);
    let at = dir(&client, "d");
    // Names are changed here first in a directory that was made here.
    let files: Vec<_> = (0..20).map(|n| put(&client, at, &format!("before{n}"))).collect();
    relay.hold();
    let more: Vec<_> = (0..20).map(|n| put(&client, at, &format!("held{n}"))).collect();
    assert!(late(&client), "nothing is done here first");
    let (tell, shown) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let found = holds(&other, at, "held19");
            tell.send(()).unwrap();
            found
        });
        relay.holds();
        assert!(shown.recv_timeout(4 * TIME).is_err(), "it was shown before it was told");
        relay.go_on();
        assert!(asks.join().unwrap());
    });
    for n in 0..20 {
        assert!(holds(&other, at, &format!("before{n}")) && holds(&other, at, &format!("held{n}")));
    }
    files.iter().chain(&more).for_each(|file| file.release());
    client.sync_all().unwrap();
}

/// Neither what is kept nor who waits for it holds up who leaves.
#[test]
fn who_leaves_does_not_wait_for_ever() {
    let world = World::new(1);
    let other = world.client_with(options());
    let (client, relay) = held(&world);
    let at = dir(&client, "d");
    put(&client, at, "before").release();
    client.sync_all().unwrap();
    relay.hold();
    let file = put(&client, at, "held");
    syncs_in_vain(&file);
    // The directory is called back meanwhile, which waits for the same.
    assert_eq!(other.lookup(&root(), at, b"held").err(), Some(Errno::EIO));
    assert_eq!(client.shutdown(), Err(Errno::EIO));
}

/// An unmount, or sync(2) of the whole machine, asks nothing of an MDT that is lost where all is on its disk. What is not is
/// never said to be.
#[test]
fn who_has_nothing_to_sync_does_not_wait_for_a_lost_mdt() {
    let mut world = World::new(1);
    let client = world.client_with(options());
    let at = dir(&client, "d");
    put(&client, at, "f").release();
    client.sync_all().unwrap();
    world.stop_mdt();
    until(|| client.sync_all().is_ok());
    put(&client, at, "g").release();
    assert_eq!(client.sync_all(), Err(Errno::EIO), "that is not there");
    world.start_mdt();
    until(|| client.sync_all().is_ok());
    assert!(holds(&world.client(), at, "g"));
    world.stop_mdt();
    until(|| client.sync_all().is_ok());
    assert_eq!(client.shutdown(), Ok(()));
}

/// What was opened for somebody who had been told that it failed is closed.
#[test]
fn what_is_opened_too_late_is_closed() {
    let world = World::new(1);
    let unknown = {
        let first = world.client();
        let at = dir(&first, "unknown");
        first.shutdown().unwrap();
        at
    };
    let (client, relay) = held(&world);
    let at = dir(&client, "known");
    client.sync_all().unwrap();
    relay.hold();
    // What is made and opened in a directory of which nothing is known goes along with this.
    put(&client, at, "held").release();
    assert_eq!(make(&client, unknown, "new").err(), Some(Errno::EIO));
    relay.go_on();
    until(|| client.sync_all().is_ok());
    client.lookup(&root(), unknown, b"new").unwrap();
    until(|| open_files(&client) == 0);
    assert!(holds(&client, at, "held"));
}
