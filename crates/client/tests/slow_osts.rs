//! OSTs that answer late: they hold up what goes to them, and nothing else.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Client, Data, OpenFile, Options};
use proto::layout::LayoutSpec;
use proto::{Fid, FileKind};
use relay::Relay;

const LEN: usize = 200_000;
/// An OST that takes nothing is left aside after this long.
const LEFT_ASIDE: Duration = Duration::from_secs(3);
/// A session that says nothing is given up after this long, and nobody waits for its OST any more.
const GIVEN_UP: Duration = Duration::from_secs(8);

/// A file with one object, on this OST.
fn on(client: &Client, ost: i32, name: &str) -> Arc<OpenFile> {
    let spec = LayoutSpec { stripe_size: 1 << 20, stripe_count: 1, stripe_offset: ost };
    // The MDT looks for OSTs now and then.
    until(|| client.set_layout(&root(), Fid::ROOT, spec.clone()).is_ok());
    let mode = FileKind::File.mode_bits() | 0o644;
    let name = name.as_bytes();
    let made = client.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    made.file.unwrap()
}

fn put(file: &OpenFile, byte: u8) {
    file.write(0, Data::Owned(vec![byte; LEN].into())).unwrap();
}

fn uncommitted(client: &Client) -> u64 {
    client.stats().uncommitted_bytes
}

/// Many files take all the memory there is for what an OST does not take, and all threads that
/// could send.
#[test]
fn who_writes_elsewhere_goes_on() {
    const BIG: usize = 40 << 20;
    let world = World::new(2);
    let options = Options { max_dirty_mb: 16, max_uncommitted_mb: 16, ..Options::default() };
    let (client, relay) = Relay::before(&world, 1, options);
    let slow: Vec<_> = (0..12).map(|n| on(&client, 0, &format!("slow{n}"))).collect();
    let quick = on(&client, 1, "quick");
    relay.hold();
    std::thread::scope(|scope| {
        for file in &slow {
            scope.spawn(|| file.write(0, Data::Owned(vec![1; 2 << 20].into())).unwrap());
        }
        until(|| client.stats().dirty_bytes > 16 << 20);
        relay.holds();
        let begun = Instant::now();
        for at in (0..BIG).step_by(1 << 20) {
            quick.write(at as u64, Data::Owned(vec![2; 1 << 20].into())).unwrap();
        }
        quick.fsync(false).unwrap();
        on(&client, 1, "small").write(0, Data::Slice(b"small")).unwrap();
        assert!(begun.elapsed() < LEFT_ASIDE, "writes waited until the OST was left aside");
        relay.go_on();
    });
    client.sync_all().unwrap();
    let reader = world.client();
    let mut bytes = vec![0; BIG];
    let file = reader.open(&root(), quick.fid(), READ).unwrap();
    assert_eq!(file.read(0, &mut bytes).unwrap(), BIG);
    assert!(bytes.iter().all(|b| *b == 2));
    for file in &slow {
        let file = reader.open(&root(), file.fid(), READ).unwrap();
        assert_eq!(file.read(0, &mut bytes).unwrap(), 2 << 20);
        assert!(bytes[..2 << 20].iter().all(|b| *b == 1));
    }
}

/// Another client wants files that this one has alone, more of them on an OST that does not answer than it is called back
/// for at once. It gets all others from it.
#[test]
fn who_wants_files_that_lie_elsewhere_has_them_at_once() {
    const MANY: usize = 9;
    let world = World::new(2);
    let (client, relay) = Relay::before(&world, 1, Options::default());
    let other = world.client();
    let slow: Vec<_> = (0..MANY).map(|n| on(&client, 0, &format!("slow{n}"))).collect();
    let quick: Vec<_> = (0..MANY).map(|n| on(&client, 1, &format!("quick{n}"))).collect();
    // Once there are objects nothing but the writes themselves waits for the OST.
    slow.iter().chain(&quick).for_each(|file| put(file, 1));
    client.sync_all().unwrap();
    relay.hold();
    slow.iter().chain(&quick).for_each(|file| put(file, 2));
    let read = |file: &OpenFile| {
        let mut bytes = vec![0; LEN];
        let file = other.open(&root(), file.fid(), READ).unwrap();
        assert_eq!(file.read(0, &mut bytes).unwrap(), LEN);
        assert!(bytes.iter().all(|b| *b == 2), "older bytes were read");
    };
    std::thread::scope(|scope| {
        let wait: Vec<_> = slow.iter().map(|file| scope.spawn(|| read(file))).collect();
        relay.holds();
        let begun = Instant::now();
        quick.iter().for_each(|file| read(file));
        assert!(
            begun.elapsed() < GIVEN_UP,
            "what lies elsewhere waited until the OST was given up"
        );
        assert!(wait.iter().all(|w| !w.is_finished()), "what the OST does not have was read");
        relay.go_on();
    });
    // Nothing was lost.
    slow.iter().for_each(|file| file.fsync(false).unwrap());
}

/// Of an OST that answers this client no more another wants files that the first has alone, too: only those wait whose bytes
/// the OST does not have.
#[test]
fn what_asks_nothing_of_an_ost_that_hangs_is_given_at_once() {
    let world = World::new(2);
    let (client, relay) = Relay::before(&world, 1, Options::default());
    let other = world.client();
    let dirty = on(&client, 0, "dirty");
    let clean: Vec<_> = (0..4).map(|n| on(&client, 0, &format!("clean{n}"))).collect();
    clean.iter().chain([&dirty]).for_each(|file| put(file, 1));
    client.sync_all().unwrap();
    relay.hold();
    put(&dirty, 2);
    let read = |file: &OpenFile, byte| {
        let mut bytes = vec![0; LEN];
        let file = other.open(&root(), file.fid(), READ).unwrap();
        assert_eq!(file.read(0, &mut bytes).unwrap(), LEN);
        assert!(bytes.iter().all(|b| *b == byte), "{} of {byte}", bytes[0]);
    };
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| read(&dirty, 2));
        relay.holds();
        let begun = Instant::now();
        clean.iter().for_each(|file| read(file, 1));
        assert!(begun.elapsed() < GIVEN_UP, "clean files waited until the OST was given up");
        assert!(!wait.is_finished(), "what the OST does not have was read");
        relay.go_on();
    });
    dirty.fsync(false).unwrap();
}

/// A client that ends while it cannot give back a file waits for its OST as long as a request may, not as long as
/// the MDT lets itself be put off.
#[test]
fn the_end_does_not_wait_for_what_is_put_off() {
    let world = World::new(2);
    let request_timeout = Duration::from_secs(3);
    let options = Options { request_timeout, ..Options::default() };
    let (client, relay) = Relay::before(&world, 1, options);
    let other = world.client();
    let file = on(&client, 0, "slow");
    put(&file, 1);
    client.sync_all().unwrap();
    relay.hold();
    put(&file, 2);
    let fid = file.fid();
    std::thread::scope(|scope| {
        let recalls = client.stats().recalls;
        // It is told of a client that is gone, or has the file, once that has let go.
        let waits = scope.spawn(|| other.open(&root(), fid, READ).is_ok());
        until(|| client.stats().recalls > recalls);
        let begun = Instant::now();
        assert!(client.shutdown().is_err(), "what was lost is not told");
        assert!(begun.elapsed() < 3 * request_timeout, "{:?}", begun.elapsed());
        relay.go_on();
        assert!(waits.join().unwrap());
    });
}

/// Commits that nobody waits for: more files wait than there are threads, and than an OST is asked for at once.
#[test]
fn commits_of_an_ost_that_does_not_answer_hold_up_no_others() {
    const MANY: usize = 12;
    let world = World::new(2);
    let options = Options { dirty_expire: Duration::from_millis(100), ..Options::default() };
    let (client, relay) = Relay::before(&world, 1, options);
    let slow: Vec<_> = (0..MANY).map(|n| on(&client, 0, &format!("slow{n}"))).collect();
    let quick = on(&client, 1, "quick");
    slow.iter().for_each(|file| put(file, 1));
    put(&quick, 2);
    until(|| client.stats().dirty_bytes == 0);
    relay.hold();
    relay.holds();
    let begun = Instant::now();
    let of_slow = (MANY * LEN) as u64;
    // A few may have been asked for before.
    until(|| uncommitted(&client) <= of_slow);
    for round in 3..6 {
        put(&quick, round);
        until(|| uncommitted(&client) > of_slow);
        until(|| uncommitted(&client) <= of_slow);
    }
    assert!(begun.elapsed() < GIVEN_UP, "commits waited until the OST was given up");
    relay.go_on();
    until(|| uncommitted(&client) == 0);
    let reader = world.client();
    for file in &slow {
        let mut bytes = vec![0; LEN];
        let file = reader.open(&root(), file.fid(), READ).unwrap();
        assert_eq!(file.read(0, &mut bytes).unwrap(), LEN);
        assert!(bytes.iter().all(|b| *b == 1));
    }
}

/// What the crash of an OST's machine took is sent again, and committed like all else.
#[test]
fn what_a_restart_lost_goes_again() {
    let mut world = World::new(2);
    let options = Options { dirty_expire: Duration::from_millis(300), ..Options::default() };
    let client = world.client_with(options);
    let files: Vec<_> = (0..9).map(|n| on(&client, n % 2, &format!("f{n}"))).collect();
    for round in 1..4 {
        files.iter().for_each(|file| put(file, round));
        until(|| client.stats().dirty_bytes == 0);
        let before = client.stats().bytes_written;
        if uncommitted(&client) > 0 {
            world.restart_ost(0);
            until(|| client.stats().bytes_written > before);
        }
        until(|| uncommitted(&client) == 0 && client.stats().dirty_bytes == 0);
        let reader = world.client();
        for file in &files {
            let mut bytes = vec![0; LEN];
            let file = reader.open(&root(), file.fid(), READ).unwrap();
            assert_eq!(file.read(0, &mut bytes).unwrap(), LEN);
            assert!(bytes.iter().all(|b| *b == round), "round {round}");
        }
    }
}
