//! What a client has written and reads back among others: from its memory while nobody else could have
//! written there, from the servers otherwise.

mod common;

use std::sync::Arc;

use common::{READ, World, root};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags};
use proto::{Fid, FileKind};

const RW: OpenFlags = OpenFlags { write: true, noatime: true, ..READ };
const BLOCK: usize = 8192;
const BLOCKS: usize = 64;

fn make(c: &Client, name: &str) -> Arc<OpenFile> {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
    made.file.unwrap()
}

fn fill(f: &OpenFile, byte: u8) {
    for n in 0..BLOCKS {
        f.write((n * BLOCK) as u64, Data::Slice(&[byte; BLOCK])).unwrap();
    }
}

/// Each block holds one byte, and which.
fn bytes(f: &OpenFile) -> Vec<u8> {
    let mut buf = [0; BLOCK];
    let block = |n: usize| {
        assert_eq!(f.read((n * BLOCK) as u64, &mut buf).unwrap(), BLOCK);
        assert!(buf.iter().all(|b| *b == buf[0]), "block {n} is mixed");
        buf[0]
    };
    (0..BLOCKS).map(block).collect()
}

fn reads(c: &Client) -> u64 {
    c.stats().oss_messages.get("read").copied().unwrap_or(0)
}

/// The OSTs have what was written, and nobody asked them to make it durable.
fn taken(c: &Client) {
    common::until(|| c.stats().dirty_bytes == 0);
    assert!(c.stats().uncommitted_bytes > 0);
}

#[test]
fn what_was_written_alone_is_read_back_from_memory() {
    let world = World::new(2);
    let (a, b) = (world.client(), world.client());
    let f = make(&a, "f");
    fill(&f, 1);
    f.flush().unwrap();
    f.release();
    taken(&a);
    let fid = a.lookup(&root(), Fid::ROOT, b"f").unwrap().fid;
    let f = a.open(&root(), fid, READ).unwrap();
    let before = reads(&a);
    assert_eq!(bytes(&f), [1; BLOCKS]);
    assert_eq!(reads(&a), before);
    let g = b.open(&root(), fid, READ).unwrap();
    assert_eq!(bytes(&g), [1; BLOCKS]);
    g.release();
    f.release();
}

#[test]
fn what_another_wrote_meanwhile_is_never_covered() {
    let world = World::new(2);
    let (a, b) = (world.client(), world.client());
    for round in 0..6_u8 {
        let name = format!("f{round}");
        let f = make(&a, &name);
        fill(&f, 1);
        f.flush().unwrap();
        taken(&a);
        let g = b.open(&root(), f.fid(), RW).unwrap();
        g.write(5 * BLOCK as u64, Data::Slice(&[2; BLOCK])).unwrap();
        let mut expected = [1; BLOCKS];
        expected[5] = 2;
        if round % 2 == 0 {
            assert_eq!(bytes(&f), expected);
        }
        g.release();
        // It is a's alone again, now or soon.
        for n in 0..4 {
            let byte = 10 + n as u8;
            f.write((n * BLOCK) as u64, Data::Slice(&[byte; BLOCK])).unwrap();
            expected[n] = byte;
            assert_eq!(bytes(&f), expected, "round {round}, {n}");
            if n == 1 && round % 3 == 0 {
                let g = b.open(&root(), f.fid(), RW).unwrap();
                assert_eq!(bytes(&g), expected);
                g.write(9 * BLOCK as u64, Data::Slice(&[3; BLOCK])).unwrap();
                expected[9] = 3;
                g.release();
            }
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        f.release();
        let g = b.open(&root(), b.lookup(&root(), Fid::ROOT, name.as_bytes()).unwrap().fid, READ);
        let g = g.unwrap();
        assert_eq!(bytes(&g), expected);
        g.release();
    }
}

/// Reads that went past an OST's page cache.
fn past_cache(world: &World) -> u64 {
    world.osts.iter().flatten().map(|o| o.ost.stats().reads_past_cache).sum()
}

/// What one reader in a stride leaves out is for others: no OST keeps its blocks. What is read on and on it keeps.
#[test]
fn long_blocks_that_are_read_in_a_stride_are_kept_by_no_ost() {
    const LONG: usize = 1 << 20;
    const WRITERS: usize = 5;
    const STEPS: usize = 12;
    let world = World::new(2);
    let (a, b) = (world.client(), world.client());
    let f = make(&a, "f");
    for n in 0..WRITERS * STEPS {
        f.write((n * LONG) as u64, Data::Slice(&vec![n as u8; LONG])).unwrap();
    }
    f.flush().unwrap();
    f.release();
    let fid = b.lookup(&root(), Fid::ROOT, b"f").unwrap().fid;
    let f = b.open(&root(), fid, READ).unwrap();
    let mut buf = vec![0; LONG];
    let mut read = |n: usize| {
        assert_eq!(f.read((n * LONG) as u64, &mut buf).unwrap(), LONG);
        assert!(buf.iter().all(|byte| *byte == n as u8), "block {n}");
    };
    (0..STEPS).for_each(|n| read(1 + WRITERS * n));
    let there = past_cache(&world);
    assert!(there > STEPS as u64 / 2, "{there} of {STEPS}");
    let f = b.open(&root(), fid, READ).unwrap();
    for n in 0..WRITERS * STEPS {
        assert_eq!(f.read((n * LONG) as u64, &mut buf).unwrap(), LONG);
    }
    assert_eq!(past_cache(&world), there);
}
