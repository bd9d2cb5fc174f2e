//! fdatasync(2) of a little that was overwritten: one write that is durable when it is answered (invariant 1).

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags, Options};
use proto::layout::LayoutSpec;
use proto::{Errno, Fid, FileKind};
use relay::Relay;

const SIZE: usize = 4 << 20;

/// A file with objects, all of it on the disks of its OSTs.
fn filled(client: &Client) -> Arc<OpenFile> {
    made(client, b"f", SIZE)
}

fn made(client: &Client, name: &[u8], size: usize) -> Arc<OpenFile> {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = client.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Owned(vec![1; size].into())).unwrap();
    file.fsync(false).unwrap();
    file
}

/// A file on each OST.
fn on_each(client: &Client, osts: i32) -> Vec<Arc<OpenFile>> {
    let made = |ost: i32| {
        let spec = LayoutSpec { stripe_size: 1 << 20, stripe_count: 1, stripe_offset: ost };
        // The MDT looks for OSTs now and then.
        until(|| client.set_layout(&root(), Fid::ROOT, spec.clone()).is_ok());
        made(client, format!("on-{ost}").as_bytes(), 100_000)
    };
    (0..osts).map(made).collect()
}

/// Restarts the OSTs, and waits until the client has dealt with their return: it sends what waits for them then.
fn restart(world: &mut World, client: &Client, on_each: &[Arc<OpenFile>]) {
    on_each.iter().for_each(|file| put(file, 0, 1, 10));
    (0..on_each.len()).for_each(|ost| world.restart_ost(ost));
    until(|| client.stats().dirty_bytes == 0);
    on_each.iter().for_each(|file| file.fsync(false).unwrap());
}

fn striped(world: &World, stripes: i32) -> Client {
    let client = world.client();
    stripe(&client, stripes);
    client
}

fn stripe(client: &Client, stripes: i32) {
    let spec = LayoutSpec { stripe_size: 1 << 20, stripe_count: stripes, stripe_offset: -1 };
    client.set_layout(&root(), Fid::ROOT, spec).unwrap();
}

/// WRITEs and COMMITs so far.
fn messages(client: &Client) -> (u64, u64) {
    let stats = client.stats();
    (stats.oss_messages["write"], stats.oss_messages["commit"])
}

/// What something costs.
fn cost(client: &Client, what: impl FnOnce()) -> (u64, u64) {
    let before = messages(client);
    what();
    let after = messages(client);
    (after.0 - before.0, after.1 - before.1)
}

fn put(file: &OpenFile, at: usize, byte: u8, len: usize) {
    file.write(at as u64, Data::Owned(vec![byte; len].into())).unwrap();
}

fn bytes(client: &Client, fid: Fid, at: u64, len: usize) -> Vec<u8> {
    let file = client.open(&root(), fid, READ).unwrap();
    let mut bytes = vec![0; len];
    let read = file.read(at, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn a_little_that_is_overwritten_is_synced_by_its_write_alone() {
    let mut world = World::new(2);
    let client = world.client();
    let on_each = on_each(&client, 2);
    stripe(&client, 2);
    let file = filled(&client);
    for round in 2..9u8 {
        let at = usize::from(round) * 500_000;
        put(&file, at, round, 8192);
        assert_eq!(cost(&client, || file.fsync(true).unwrap()), (1, 0), "round {round}");
        // Nothing is left that the loss of an OST's memory would have to be made good for.
        restart(&mut world, &client, &on_each);
        assert_eq!(cost(&client, || file.fsync(true).unwrap()), (0, 0), "round {round}");
        assert_eq!(client.stats().uncommitted_bytes, 0);
        let seen = bytes(&world.client(), file.fid(), at as u64, 8192);
        assert!(seen == vec![round; 8192], "round {round}");
        // Who is alone again sends what it has, by itself.
        until(|| client.is_sole());
    }
    let sync = OpenFlags { sync: true, ..WRITE };
    let file = client.open(&root(), file.fid(), sync).unwrap();
    assert_eq!(cost(&client, || put(&file, 100_000, 9, 4096)), (1, 0), "O_DSYNC");
}

/// What takes more than a write, or another's word, is written as before: beside what the MDT does.
#[test]
fn what_is_more_than_one_write_has_its_commit() {
    let world = World::new(2);
    let client = striped(&world, 2);
    let file = filled(&client);
    let sync = || file.fsync(true).unwrap();
    put(&file, (1 << 20) - 100, 2, 200);
    assert_eq!(cost(&client, sync), (2, 2), "over two stripes");
    put(&file, SIZE, 3, 100_000);
    assert_eq!(cost(&client, sync), (1, 1), "the file grows");
    put(&file, 0, 4, 100);
    assert_eq!(cost(&client, || file.fsync(false).unwrap()), (1, 1), "times count, too");
    assert_eq!(bytes(&world.client(), file.fid(), 0, 100), [4; 100]);
}

#[test]
fn it_is_durable_when_it_returns_and_not_before() {
    let mut world = World::new(1);
    let (client, relay) = Relay::before(&world, 1, Options::default());
    let file = filled(&client);
    put(&file, 5000, 7, 8192);
    relay.hold();
    let (done, heard) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            file.fsync(true).unwrap();
            done.send(()).unwrap();
        });
        relay.holds();
        let early = heard.recv_timeout(Duration::from_millis(300));
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "its write is on its way");
        relay.go_on();
        heard.recv_timeout(Duration::from_secs(30)).unwrap();
    });
    world.restart_ost(0);
    assert_eq!(bytes(&world.client(), file.fid(), 5000, 8192), [7; 8192]);
}

/// An OST that refuses it is asked in the plain way before anything is given up, and then told of once.
#[test]
fn what_was_refused_is_told_once_and_nothing_else_is_lost() {
    let mut world = World::new(1);
    let client = striped(&world, 1);
    let file = filled(&client);
    file.truncate(2 * SIZE as u64).unwrap();
    file.fsync(false).unwrap();
    world.reserve = u64::MAX / 2;
    world.restart_ost(0);
    put(&file, SIZE + 4096, 8, 4096);
    assert_eq!(file.fsync(true).unwrap_err(), Errno::ENOSPC);
    file.fsync(true).unwrap();
    // What needs no room goes on.
    put(&file, 8192, 9, 4096);
    file.fsync(true).unwrap();
    let seen = bytes(&world.client(), file.fid(), 8192, 4096);
    assert!(seen == [9; 4096]);
}

/// An OST that is lost is waited for as long as a request may take, not twice.
#[test]
fn a_lost_ost_fails_it_and_what_comes_after_its_return_is_kept() {
    let mut world = World::new(1);
    let wait = Duration::from_secs(2);
    let client = world.client_with(Options { request_timeout: wait, ..Options::default() });
    let file = filled(&client);
    world.stop_ost(0);
    put(&file, 0, 2, 4096);
    let begun = Instant::now();
    assert_eq!(file.fsync(true).unwrap_err(), Errno::EIO);
    assert!(begun.elapsed() < wait * 2, "{:?}", begun.elapsed());
    world.start_ost(0);
    put(&file, 0, 3, 4096);
    until(|| file.fsync(true).is_ok());
    assert!(bytes(&world.client(), file.fid(), 0, 4096) == [3; 4096]);
}
