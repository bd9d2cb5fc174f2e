//! An MDT that dies with what it had answered and not committed (invariants 1, 2 and 6): whoever goes on
//! sees what is, and an fsync that succeeds never hides a loss.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{World, root, until};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags};
use proto::{Errno, Fid, FileKind, SetAttr, attr::S_MODE};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };

/// Rounds; more by the environment variable LOSS_ROUNDS, from the seed LOSS_SEED.
const ROUNDS: u64 = 6;
const THREADS: u64 = 3;
/// Inline, and in objects.
const SIZES: [usize; 2] = [3000, 150_000];

/// What one thread was told of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    mode: u32,
    len: usize,
    byte: u8,
}

/// A file that one thread changes, and what it was told.
struct Own {
    client: Client,
    dir: Fid,
    file: Arc<OpenFile>,
    seen: Seen,
    /// Of lost data or attributes; of a lost name.
    told: [bool; 2],
    rng: StdRng,
    trail: Vec<String>,
}

impl Own {
    fn new(client: &Client, thread: u64, seed: u64) -> Own {
        let made = |dir, name: &str, mode, open| {
            client.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, open).unwrap()
        };
        let mode = FileKind::Dir.mode_bits() | 0o700;
        let dir = made(Fid::ROOT, &format!("t{thread}"), mode, None).attr.fid;
        let made = made(dir, "n0", FileKind::File.mode_bits() | 0o600, Some(RW));
        let file = made.file.unwrap();
        let len = SIZES[(thread % 2) as usize];
        file.write(0, Data::Slice(&vec![1; len])).unwrap();
        file.fsync(false).unwrap();
        let seen = Seen { name: "n0".into(), mode: 0o600, len, byte: 1 };
        let rng = StdRng::seed_from_u64(seed ^ thread << 40);
        Own { client: client.clone(), dir, file, seen, told: [false; 2], rng, trail: Vec::new() }
    }

    /// One change; false when it failed, which tells.
    fn change(&mut self) -> bool {
        let mut next = self.seen.clone();
        let outcome = match self.rng.random_range(0..4) {
            0 => {
                next.mode = 0o600 + self.rng.random_range(0..64);
                let set = SetAttr { valid: S_MODE, mode: next.mode, ..SetAttr::none() };
                self.client.setattr(&root(), self.file.fid(), set, None).map(|_| ())
            }
            1 => {
                next.byte = self.rng.random();
                let data = vec![next.byte; next.len];
                self.file.write(0, Data::Slice(&data)).map(|_| ())
            }
            2 => {
                next.name = format!("n{}", self.rng.random_range(0..1000));
                let (from, to) = (self.seen.name.as_bytes(), next.name.as_bytes());
                self.client.rename(&root(), self.dir, from, self.dir, to, 0).map(|_| ())
            }
            _ => {
                next.len = self.rng.random_range(1..next.len + 1000);
                let data = vec![next.byte; next.len];
                self.file
                    .truncate(next.len as u64)
                    .and_then(|_| self.file.write(0, Data::Slice(&data)).map(|_| ()))
            }
        };
        self.trail.push(format!("{next:?} {outcome:?}"));
        match outcome {
            Ok(()) => self.seen = next,
            Err(_) => self.told = [true; 2],
        }
        outcome.is_ok()
    }

    /// Closes the file and opens it again.
    fn reopen(&mut self) {
        self.file.release();
        match self.client.open(&root(), self.file.fid(), RW) {
            Ok(file) => self.file = file,
            Err(e) => {
                self.trail.push(format!("open {e:?}"));
                self.told = [true; 2];
            }
        }
    }

    fn sync(&mut self) {
        let done = (self.file.fsync(false), self.client.fsync_dir(self.dir));
        self.trail.push(format!("fsync {done:?}"));
        self.told[0] |= done.0.is_err();
        self.told[1] |= done.1.is_err();
    }
}

/// What a client sees of a file.
fn look(client: &Client, fid: Fid) -> Result<(u32, Vec<u8>), Errno> {
    let attr = client.getattr(&root(), fid)?;
    let file = client.open(&root(), fid, OpenFlags { write: false, ..RW })?;
    let mut data = vec![0; attr.size as usize + 1];
    let n = file.read(0, &mut data)?;
    data.truncate(n);
    Ok((attr.mode & 0o7777, data))
}

fn round(seed: u64, shared: bool) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(2);
    let client = world.client();
    let other = shared.then(|| world.client());
    let mut owns: Vec<Own> = (0..THREADS).map(|t| Own::new(&client, t, seed)).collect();
    client.sync_all().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for own in &mut owns {
            s.spawn(|| {
                while !stop.load(SeqCst) && own.change() {
                    if own.rng.random_ratio(1, 40) {
                        own.sync();
                    }
                    std::thread::sleep(Duration::from_micros(own.rng.random_range(0..3000)));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(1..80)));
        world.disk.hold();
        let lost =
            if rng.random() { rng.random_range(0..3000) } else { rng.random_range(0..700_000) };
        std::thread::sleep(Duration::from_micros(lost));
        world.disk.power_cut();
        world.stop_mdt_hard();
        world.start_mdt();
        std::thread::sleep(Duration::from_millis(rng.random_range(1..60)));
        stop.store(true, SeqCst);
    });
    for own in &mut owns {
        if rng.random() {
            own.reopen();
        }
        own.sync();
    }
    until(|| client.stats().waiting_ops == 0);
    let views: Vec<_> = owns.iter().map(|own| look(&client, own.file.fid())).collect();
    let observer = world.client();
    for (own, ours) in owns.iter_mut().zip(views) {
        let (fid, seen) = (own.file.fid(), own.seen.clone());
        let why = |what: &str, own: &Own| {
            let trail = own.trail[own.trail.len().saturating_sub(12)..].join("\n  ");
            format!("seed {seed}, shared {shared}: {what}; told {:?}\n  {trail}", own.told)
        };
        let theirs = look(&observer, fid);
        let brief = |l: &Result<(u32, Vec<u8>), Errno>| {
            l.as_ref()
                .map(|(m, d)| (*m, d.len(), d.first().copied(), d.last().copied()))
                .map_err(|e| *e)
        };
        assert!(
            ours == theirs,
            "{}",
            why(&format!("{:?} here, {:?} there", brief(&ours), brief(&theirs)), own)
        );
        let wanted = Ok((seen.mode, vec![seen.byte; seen.len]));
        let hidden = format!("hidden: {:?}, not {seen:?}", brief(&theirs));
        assert!(own.told[0] || theirs == wanted, "{}", why(&hidden, own));
        let named = observer.lookup(&root(), own.dir, seen.name.as_bytes()).map(|a| a.fid);
        let hidden = format!("hidden: {named:?} is {}", seen.name);
        assert!(own.told[1] || named == Ok(fid), "{}", why(&hidden, own));
    }
    drop((owns, other));
}

#[test]
fn a_loss_of_the_mdt_is_never_hidden() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("LOSS_SEED").unwrap_or(1);
    for seed in first..first + number("LOSS_ROUNDS").unwrap_or(ROUNDS) {
        round(seed, seed % 2 == 0);
    }
}

/// What was to be told of a file that the MDT has lost does not fail every sync from then on.
#[test]
fn a_file_that_is_lost_does_not_fail_every_sync() {
    let mut world = World::new(1);
    let (client, other) = (world.client(), world.client());
    client.sync_all().unwrap();
    world.disk.hold();
    let mode = FileKind::File.mode_bits() | 0o600;
    let made = client.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(RW)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Slice(&[1; 3000])).unwrap();
    // Its bytes are told now; its access time is not.
    assert_eq!(other.getattr(&root(), file.fid()).unwrap().size, 3000);
    let reads = client.open(&root(), file.fid(), OpenFlags { noatime: false, ..RW }).unwrap();
    assert_eq!(reads.read(0, &mut [0; 10]).unwrap(), 10);
    world.disk.power_cut();
    world.stop_mdt_hard();
    world.start_mdt();
    until(|| client.lookup(&root(), Fid::ROOT, b"f").is_err());
    let told = (client.sync_all(), file.fsync(false));
    assert!(told.0.is_err() && told.1.is_err(), "{told:?}");
    // Whatever else learns of it at the same time tells it once, too.
    until(|| client.sync_all().is_ok());
}

/// O_SYNC is an fsync after each write, also where the MDT restarts between the two.
#[test]
fn a_write_that_is_to_be_durable_does_not_hide_a_loss() {
    let mut world = World::new(1);
    let (client, other) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o600;
    let how = Some(OpenFlags { sync: true, ..RW });
    let made = client.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, how).unwrap();
    let file = made.file.unwrap();
    assert_eq!(file.write(0, Data::Slice(&[1; 150_000])), Ok(150_000));
    client.sync_all().unwrap();
    world.disk.hold();
    let changed = client.open(&root(), file.fid(), RW).unwrap();
    changed.truncate(200_000).unwrap();
    assert_eq!(other.getattr(&root(), file.fid()).unwrap().size, 200_000, "the MDT has answered");
    world.disk.power_cut();
    world.stop_mdt_hard();
    world.start_mdt();
    let next = file.write(0, Data::Slice(&[2; 1000]));
    let size = other.getattr(&root(), file.fid()).unwrap().size;
    assert!(next.is_err() || size == 200_000, "{next:?}, {size} bytes");
    assert_eq!(file.write(0, Data::Slice(&[2; 1000])), Ok(1000), "it is told once");
}
