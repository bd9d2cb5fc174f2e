//! Two clients that share the files, with leases: whatever one did, the other sees at once
//! (invariant 3), compared with a directory of the local file system; and what both know costs no
//! message.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{World, root, until};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use proto::attr::S_MODE;
use proto::mds::C_EXCL;
use proto::{Attr, Errno, Fid, FileKind, SetAttr};

const READ: OpenFlags =
    OpenFlags { read: true, write: false, trunc: false, direct: false, sync: false, noatime: true };
const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..READ };
/// Inline, about the limit, and well beyond it.
const SIZES: [usize; 6] = [0, 1, 700, 65_536, 65_537, 300_000];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DIRS: [&str; 3] = ["", "x", "y"];

#[derive(Clone, Debug)]
enum Step {
    Create { at: (usize, usize), size: usize, seed: u8 },
    Write { at: (usize, usize), offset: usize, size: usize, seed: u8 },
    Truncate { at: (usize, usize), size: usize },
    Read { at: (usize, usize) },
    Stat { at: (usize, usize) },
    Chmod { at: (usize, usize), mode: u32 },
    Unlink { at: (usize, usize) },
    Rename { from: (usize, usize), to: (usize, usize) },
    Link { from: (usize, usize), to: (usize, usize) },
    Symlink { at: (usize, usize), target: u8 },
    Mkdir { dir: usize },
    Rmdir { dir: usize },
    List { dir: usize },
    Hold { at: (usize, usize) },
    ReadHeld,
}

fn place() -> impl Strategy<Value = (usize, usize)> {
    (0..DIRS.len(), 0..NAMES.len())
}

fn size() -> impl Strategy<Value = usize> {
    prop::sample::select(SIZES.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (place(), size(), any::<u8>()).prop_map(|(at, size, seed)| Step::Create { at, size, seed }),
        3 => (place(), size(), size(), any::<u8>())
            .prop_map(|(at, offset, size, seed)| Step::Write { at, offset, size, seed }),
        2 => (place(), size()).prop_map(|(at, size)| Step::Truncate { at, size }),
        6 => place().prop_map(|at| Step::Read { at }),
        6 => place().prop_map(|at| Step::Stat { at }),
        1 => (place(), 0u32..0o1000).prop_map(|(at, mode)| Step::Chmod { at, mode }),
        3 => place().prop_map(|at| Step::Unlink { at }),
        3 => (place(), place()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (place(), place()).prop_map(|(from, to)| Step::Link { from, to }),
        1 => (place(), any::<u8>()).prop_map(|(at, target)| Step::Symlink { at, target }),
        2 => (1..DIRS.len()).prop_map(|dir| Step::Mkdir { dir }),
        1 => (1..DIRS.len()).prop_map(|dir| Step::Rmdir { dir }),
        3 => (0..DIRS.len()).prop_map(|dir| Step::List { dir }),
        2 => place().prop_map(|at| Step::Hold { at }),
        3 => Just(Step::ReadHeld),
    ]
}

fn bytes(size: usize, seed: u8) -> Vec<u8> {
    (0..size).map(|i| (i as u8).wrapping_mul(7).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// What an operation showed.
#[derive(Debug, PartialEq)]
enum Seen {
    Done,
    Data(Vec<u8>),
    Stat { kind: &'static str, size: u64, mode: u32, links: u64 },
    Names(BTreeSet<Vec<u8>>),
    Fails(i32),
}

fn kind(attr: &Attr) -> &'static str {
    match attr.kind() {
        FileKind::Dir => "dir",
        FileKind::Symlink => "link",
        _ => "file",
    }
}

/// One client, driven by names.
struct Side {
    client: Client,
    /// Where everything happens.
    base: Fid,
    held: Option<Arc<OpenFile>>,
}

impl Side {
    fn dir(&self, dir: usize) -> Result<Fid, Errno> {
        match DIRS[dir] {
            "" => Ok(self.base),
            name => Ok(self.client.lookup(&root(), self.base, name.as_bytes())?.fid),
        }
    }

    fn find(&self, at: (usize, usize)) -> Result<Attr, Errno> {
        self.client.lookup(&root(), self.dir(at.0)?, NAMES[at.1].as_bytes())
    }

    /// As open(2) would, without following links.
    fn file(&self, at: (usize, usize)) -> Result<Attr, Errno> {
        let attr = self.find(at)?;
        match attr.kind() {
            FileKind::File => Ok(attr),
            _ => Err(Errno::ELOOP),
        }
    }

    fn read(file: &OpenFile) -> Vec<u8> {
        let mut all = vec![0; 1 << 20];
        let n = file.read(0, &mut all).unwrap();
        all.truncate(n);
        all
    }

    fn put(file: &OpenFile, offset: usize, data: &[u8]) {
        Side::add(file, offset, data);
        file.flush().unwrap();
        file.release();
    }

    fn add(file: &OpenFile, offset: usize, data: &[u8]) {
        file.write(offset as u64, Data::Slice(data)).unwrap();
    }

    fn run(&mut self, step: &Step) -> Result<Seen, Errno> {
        let c = &self.client;
        let mode = FileKind::File.mode_bits() | 0o644;
        match step.clone() {
            Step::Create { at, size, seed } => {
                let (dir, name) = (self.dir(at.0)?, NAMES[at.1].as_bytes());
                let made = c.create(&root(), dir, name, mode, 0, 0, b"", C_EXCL, Some(WRITE))?;
                Side::put(&made.file.unwrap(), 0, &bytes(size, seed));
                Ok(Seen::Done)
            }
            Step::Write { at, offset, size, seed } => {
                let file = c.open(&root(), self.file(at)?.fid, WRITE)?;
                Side::put(&file, offset, &bytes(size, seed));
                Ok(Seen::Done)
            }
            Step::Truncate { at, size } => {
                c.setattr(&root(), self.file(at)?.fid, SetAttr::size(size as u64), None)?;
                Ok(Seen::Done)
            }
            Step::Read { at } => {
                let file = c.open(&root(), self.file(at)?.fid, READ)?;
                let all = Side::read(&file);
                file.release();
                Ok(Seen::Data(all))
            }
            Step::Stat { at } => {
                let found = self.find(at)?;
                let attr = c.getattr(&root(), found.fid)?;
                assert_eq!(
                    (found.size, found.mode, found.nlink),
                    (attr.size, attr.mode, attr.nlink)
                );
                let (mode, links) = (attr.mode & 0o777, u64::from(attr.nlink));
                Ok(Seen::Stat { kind: kind(&attr), size: attr.size, mode, links })
            }
            Step::Chmod { at, mode } => {
                let set = SetAttr { valid: S_MODE, mode, ..SetAttr::none() };
                c.setattr(&root(), self.file(at)?.fid, set, None)?;
                Ok(Seen::Done)
            }
            Step::Unlink { at } => {
                c.unlink(&root(), self.dir(at.0)?, NAMES[at.1].as_bytes())?;
                Ok(Seen::Done)
            }
            Step::Rename { from, to } => {
                let (d1, d2) = (self.dir(from.0)?, self.dir(to.0)?);
                let (n1, n2) = (NAMES[from.1].as_bytes(), NAMES[to.1].as_bytes());
                c.rename(&root(), d1, n1, d2, n2, 0)?;
                Ok(Seen::Done)
            }
            Step::Link { from, to } => {
                let (fid, dir) = (self.find(from)?.fid, self.dir(to.0)?);
                c.link(&root(), fid, dir, NAMES[to.1].as_bytes())?;
                Ok(Seen::Done)
            }
            Step::Symlink { at, target } => {
                let (dir, name) = (self.dir(at.0)?, NAMES[at.1].as_bytes());
                let mode = FileKind::Symlink.mode_bits() | 0o777;
                c.create(&root(), dir, name, mode, 0, 0, &[b'a' + target % 26], C_EXCL, None)?;
                Ok(Seen::Done)
            }
            Step::Mkdir { dir } => {
                let mode = FileKind::Dir.mode_bits() | 0o755;
                c.create(&root(), self.base, DIRS[dir].as_bytes(), mode, 0, 0, b"", C_EXCL, None)?;
                Ok(Seen::Done)
            }
            Step::Rmdir { dir } => {
                c.rmdir(&root(), self.base, DIRS[dir].as_bytes())?;
                Ok(Seen::Done)
            }
            Step::List { dir } => {
                let (dir, mut from, mut names) = (self.dir(dir)?, 0, BTreeSet::new());
                loop {
                    let page = c.readdir(&root(), dir, from, 65_536, true)?;
                    from = page.entries.last().map_or(from, |e| e.cookie);
                    names.extend(page.entries.into_iter().map(|e| e.name));
                    if page.end {
                        return Ok(Seen::Names(names));
                    }
                }
            }
            Step::Hold { at } => {
                self.held = Some(c.open(&root(), self.file(at)?.fid, READ)?);
                Ok(Seen::Done)
            }
            Step::ReadHeld => match &self.held {
                Some(file) => {
                    let data = Side::read(file);
                    assert_eq!(file.attr()?.size, data.len() as u64);
                    Ok(Seen::Data(data))
                }
                None => Ok(Seen::Done),
            },
        }
    }
}

/// The local file system.
struct Local {
    dir: PathBuf,
    held: [Option<fs::File>; 2],
}

impl Local {
    fn at(&self, at: (usize, usize)) -> PathBuf {
        self.dir.join(DIRS[at.0]).join(NAMES[at.1])
    }

    fn open(path: &Path, write: bool) -> std::io::Result<fs::File> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut how = fs::OpenOptions::new();
        how.read(!write).write(write).custom_flags(libc::O_NOFOLLOW);
        how.open(path)
    }

    fn read(file: &fs::File) -> std::io::Result<Vec<u8>> {
        let mut all = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut all, 0)?;
        Ok(all)
    }

    fn run(&mut self, side: usize, step: &Step) -> std::io::Result<Seen> {
        match step.clone() {
            Step::Create { at, size, seed } => {
                let file = fs::OpenOptions::new().write(true).create_new(true).open(self.at(at))?;
                file.set_permissions(fs::Permissions::from_mode(0o644))?;
                file.write_all_at(&bytes(size, seed), 0)?;
            }
            Step::Write { at, offset, size, seed } => {
                Local::open(&self.at(at), true)?.write_all_at(&bytes(size, seed), offset as u64)?;
            }
            Step::Truncate { at, size } => {
                Local::open(&self.at(at), true)?.set_len(size as u64)?;
            }
            Step::Read { at } => {
                return Ok(Seen::Data(Local::read(&Local::open(&self.at(at), false)?)?));
            }
            Step::Stat { at } => {
                let m = fs::symlink_metadata(self.at(at))?;
                let kind = if m.is_symlink() { "link" } else { "file" };
                let (size, mode, links) = (m.len(), m.mode() & 0o777, m.nlink());
                return Ok(Seen::Stat { kind, size, mode, links });
            }
            Step::Chmod { at, mode } => {
                let file = Local::open(&self.at(at), false)?;
                file.set_permissions(fs::Permissions::from_mode(mode))?;
            }
            Step::Unlink { at } => fs::remove_file(self.at(at))?,
            Step::Rename { from, to } => fs::rename(self.at(from), self.at(to))?,
            Step::Link { from, to } => fs::hard_link(self.at(from), self.at(to))?,
            Step::Symlink { at, target } => {
                symlink(OsStr::from_bytes(&[b'a' + target % 26]), self.at(at))?;
            }
            Step::Mkdir { dir } => fs::create_dir(self.dir.join(DIRS[dir]))?,
            Step::Rmdir { dir } => fs::remove_dir(self.dir.join(DIRS[dir]))?,
            Step::List { dir } => {
                let names = fs::read_dir(self.dir.join(DIRS[dir]))?;
                let names = names.map(|e| e.unwrap().file_name().as_bytes().to_vec());
                return Ok(Seen::Names(names.collect()));
            }
            Step::Hold { at } => self.held[side] = Some(Local::open(&self.at(at), false)?),
            Step::ReadHeld => {
                if let Some(file) = &self.held[side] {
                    return Ok(Seen::Data(Local::read(file)?));
                }
            }
        }
        Ok(Seen::Done)
    }
}

/// Runs steps by two clients in a directory of their own.
fn compare(clients: &[Client; 2], dir: &str, steps: &[(usize, Step)]) -> Result<(), TestCaseError> {
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let made = clients[0].create(&root(), Fid::ROOT, dir.as_bytes(), mode, 0, 0, b"", C_EXCL, None);
    let base = made.unwrap().attr.fid;
    let local = tempfile::tempdir().unwrap();
    let mut model = Local { dir: local.path().into(), held: [None, None] };
    let mut sides = clients.clone().map(|client| Side { client, base, held: None });
    for (i, (who, step)) in steps.iter().enumerate() {
        let seen = sides[*who].run(step).unwrap_or_else(|e| Seen::Fails(e.0));
        let expect = model.run(*who, step);
        let expect = expect.unwrap_or_else(|e| Seen::Fails(e.raw_os_error().unwrap()));
        let told = || format!("{} instead of {}", brief(&seen), brief(&expect));
        prop_assert!(seen == expect, "step {i}, {step:?} by {who}: {}", told());
    }
    Ok(())
}

#[test]
fn each_sees_at_once_what_the_other_did() {
    let world = World::new(2);
    let clients = [world.client(), world.client()];
    let mut runner = TestRunner::new(ProptestConfig {
        max_shrink_iters: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cases = std::cell::Cell::new(0);
    let steps = prop::collection::vec((0usize..2, step()), 1..90);
    let outcome = runner.run(&steps, |steps| {
        cases.set(cases.get() + 1);
        compare(&clients, &format!("case{}", cases.get()), &steps)
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
}

fn brief(seen: &Seen) -> String {
    format!("{seen:?}").chars().take(200).collect()
}

fn messages(c: &Client) -> u64 {
    let stats = c.stats();
    stats.mds_messages + stats.oss_messages.values().sum::<u64>()
}

/// A striped file is known like a small one once those who wrote it have closed it, however many.
#[test]
fn a_striped_file_is_known_once_nobody_writes_it() {
    let world = World::new(2);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let (fid, first) = (made.attr.fid, made.file.unwrap());
    let data = bytes(3 << 20, 7);
    first.write(0, Data::Slice(&data[..2 << 20])).unwrap();
    let second = b.open(&root(), fid, WRITE).unwrap();
    second.write(2 << 20, Data::Slice(&data[2 << 20..])).unwrap();
    for file in [&first, &second] {
        file.flush().unwrap();
        file.release();
    }
    a.sync_all().unwrap();
    b.sync_all().unwrap();
    for c in [&a, &b] {
        let attr = c.lookup(&root(), Fid::ROOT, b"f").unwrap();
        assert_eq!(attr.size, data.len() as u64);
        assert!(attr.blocks * 512 >= attr.size, "{} blocks", attr.blocks);
        let file = c.open(&root(), fid, READ).unwrap();
        let before = messages(c);
        let mut came = Vec::new();
        for at in (0..data.len()).step_by(4096) {
            let mut buf = [0; 4096];
            assert_eq!(file.read(at as u64, &mut buf).unwrap(), 4096);
            came.extend(buf);
        }
        assert!(came == data);
        let asked = messages(c) - before;
        assert!(asked <= 8, "{asked} messages");
        file.release();
        let before = messages(c);
        for _ in 0..20 {
            assert_eq!(c.lookup(&root(), Fid::ROOT, b"f").unwrap().size, data.len() as u64);
            assert_eq!(c.getattr(&root(), fid).unwrap().size, data.len() as u64);
        }
        assert_eq!(messages(c), before);
    }
    // One of them writes on, and the other sees it.
    let file = a.open(&root(), fid, WRITE).unwrap();
    file.write(3 << 20, Data::Slice(b"more")).unwrap();
    assert_eq!(b.getattr(&root(), fid).unwrap().size, data.len() as u64 + 4);
}

/// A second pass over a tree costs no message, on each client.
#[test]
fn what_is_known_costs_no_message() {
    let world = World::new(2);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let dir = a.create(&root(), Fid::ROOT, b"include", mode, 0, 0, b"", 0, None).unwrap().attr.fid;
    let mode = FileKind::File.mode_bits() | 0o644;
    for i in 0..20u8 {
        let name = format!("h{i}.h");
        let made =
            a.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", C_EXCL, Some(WRITE)).unwrap();
        Side::put(&made.file.unwrap(), 0, &bytes(3000, i));
    }
    let pass = |c: &Client| {
        for i in 0..20u8 {
            let absent = c.lookup(&root(), Fid::ROOT, format!("h{i}.h").as_bytes());
            assert_eq!(absent.unwrap_err(), Errno::ENOENT);
            let fid = c.lookup(&root(), dir, format!("h{i}.h").as_bytes()).unwrap().fid;
            assert_eq!(c.getattr(&root(), fid).unwrap().size, 3000);
            let file = c.open(&root(), fid, READ).unwrap();
            assert_eq!(Side::read(&file), bytes(3000, i));
            file.release();
        }
    };
    for c in [&a, &b] {
        pass(c);
        let before = messages(c);
        (0..4).for_each(|_| pass(c));
        assert_eq!(messages(c), before);
    }
    assert!(b.stats().leases >= 20);
    // And it is not for ever.
    let fid = b.lookup(&root(), dir, b"h3.h").unwrap().fid;
    Side::put(&b.open(&root(), fid, WRITE).unwrap(), 0, b"changed");
    let file = a.open(&root(), fid, READ).unwrap();
    assert_eq!(&Side::read(&file)[..7], b"changed");
    assert!(a.stats().recalls > 0);
}

/// A file that is open under a lease only lives on when another removes its name.
#[test]
fn an_open_file_outlives_its_name() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    Side::put(&made.file.unwrap(), 0, b"kept");
    let fid = made.attr.fid;
    let first = b.open(&root(), fid, READ).unwrap();
    let second = b.open(&root(), fid, READ).unwrap();
    first.release();
    a.unlink(&root(), Fid::ROOT, b"f").unwrap();
    assert_eq!(Side::read(&second), b"kept");
    assert_eq!(second.attr().unwrap().nlink, 0);
    second.release();
    until(|| a.getattr(&root(), fid).is_err());
}

/// A restart of the MDT ends all leases: what another does after it is seen by who has noticed it.
#[test]
fn a_restart_ends_what_was_believed() {
    let mut world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    Side::put(&made.file.unwrap(), 0, b"old");
    a.sync_all().unwrap();
    let fid = made.attr.fid;
    let held = b.open(&root(), fid, READ).unwrap();
    assert_eq!(Side::read(&held), b"old");
    let epoch = b.cache_epoch();
    world.restart_mdt();
    // Until it notices that its connection has ended it knows nothing of the restart.
    until(|| b.cache_epoch() != epoch);
    Side::put(&a.open(&root(), fid, WRITE).unwrap(), 0, b"new");
    assert_eq!(Side::read(&held), b"new");
    assert_eq!(b.getattr(&root(), fid).unwrap().size, 3);
}

/// A rename between two names of one file does nothing, also where only another knows that they are.
#[test]
fn two_names_of_one_file_both_stay() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    Side::put(&made.file.unwrap(), 0, b"x");
    assert_eq!(b.lookup(&root(), Fid::ROOT, b"g").unwrap_err(), Errno::ENOENT);
    a.link(&root(), made.attr.fid, Fid::ROOT, b"g").unwrap();
    b.rename(&root(), Fid::ROOT, b"f", Fid::ROOT, b"g", 0).unwrap();
    for name in [&b"f"[..], b"g"] {
        assert_eq!(b.lookup(&root(), Fid::ROOT, name).unwrap().nlink, 2);
    }
}

/// Small files are written and closed here and told later, many in one message; whoever else looks
/// sees what was done so far, at once.
#[test]
fn small_files_stay_with_who_writes_them_until_another_looks() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let make = |name: &str| {
        let name = name.as_bytes();
        let made = a.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", C_EXCL, Some(WRITE));
        made.unwrap().file.unwrap()
    };
    make("warm").release();
    let before = messages(&a);
    for i in 0..40u8 {
        let file = make(&format!("o{i}"));
        for (n, part) in bytes(8000, i).chunks(1000).enumerate() {
            Side::add(&file, n * 1000, part);
        }
        assert_eq!(file.attr().unwrap().size, 8000);
        file.flush().unwrap();
        file.release();
    }
    a.sync_all().unwrap();
    let told = messages(&a) - before;
    assert!(told <= 40 + 6, "{told} messages for 40 creates");
    let see = |name: &str| {
        let fid = b.lookup(&root(), Fid::ROOT, name.as_bytes()).unwrap().fid;
        let size = b.getattr(&root(), fid).unwrap().size as usize;
        let data = Side::read(&b.open(&root(), fid, READ).unwrap());
        assert_eq!(size, data.len());
        data
    };
    for i in 0..40u8 {
        assert_eq!(see(&format!("o{i}")), bytes(8000, i));
    }
    // Not told yet, in every state: open, closed, grown, cut, renamed.
    let open = make("open");
    Side::add(&open, 0, b"one");
    assert_eq!(see("open"), b"one");
    Side::add(&open, 3, b"two");
    assert_eq!(see("open"), b"onetwo");
    open.truncate(4).unwrap();
    assert_eq!(see("open"), b"onet");
    for state in 0..4 {
        let name = format!("s{state}");
        let file = make(&name);
        Side::put(&file, 0, b"data");
        match state {
            0 => {}
            1 => {
                let again = a.open(&root(), file.fid(), WRITE).unwrap();
                Side::put(&again, 4, &bytes(70_000, 3));
            }
            2 => drop(a.setattr(&root(), file.fid(), SetAttr::size(9), None).unwrap()),
            _ => {
                let to = b"moved";
                a.rename(&root(), Fid::ROOT, name.as_bytes(), Fid::ROOT, to, 0).unwrap();
                assert_eq!(a.getattr(&root(), file.fid()).unwrap().size, 4);
            }
        }
        let expected = match state {
            0 | 3 => b"data".to_vec(),
            1 => [&b"data"[..], &bytes(70_000, 3)].concat(),
            _ => b"data\0\0\0\0\0".to_vec(),
        };
        assert_eq!(see(if state == 3 { "moved" } else { &name }), expected, "state {state}");
    }
}

/// A restart of the MDT takes the leases away, not what was written under them.
#[test]
fn what_was_written_under_a_lease_survives_a_restart() {
    let mut world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let file = made.file.unwrap();
    file.fsync(false).unwrap();
    Side::add(&file, 0, b"under the lease");
    world.restart_mdt();
    until(|| b.getattr(&root(), file.fid()).is_ok_and(|attr| attr.size == 15));
    assert_eq!(a.getattr(&root(), file.fid()).unwrap().size, 15);
    Side::add(&file, 15, b", and after");
    let read = Side::read(&b.open(&root(), file.fid(), READ).unwrap());
    assert_eq!(read, b"under the lease, and after");
}
