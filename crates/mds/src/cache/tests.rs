//! A directory that does not fit: whatever is read, changed, committed and forgotten in whatever order, what the cache
//! says of it is what a plain map says. The store is such a map, too, and answers readers with what it held when they
//! began.

use std::collections::{BTreeMap, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use proto::FileKind;

const DIR: Fid = Fid { seq: 0x400, oid: 1, ver: 0 };
/// Entries a reader brings.
const SCAN: usize = 7;

type Names = BTreeMap<Place, Dent>;

/// A reader under way.
struct Load {
    number: u64,
    /// Names from this hash on, or one name.
    wants: Result<u64, Vec<u8>>,
    saw: Names,
}

struct World {
    cache: Cache,
    truth: Names,
    store: Names,
    groups: VecDeque<(u64, Vec<Write>)>,
    loads: Vec<Load>,
    random: StdRng,
}

fn name(n: u64) -> Vec<u8> {
    format!("name-{n}").into_bytes()
}

impl World {
    fn new(seed: u64) -> World {
        let mut cache = Cache::new(4_000);
        cache.hand = Hand::new(16, 8);
        let random = StdRng::seed_from_u64(seed);
        let (truth, store) = Default::default();
        World { cache, truth, store, groups: VecDeque::new(), loads: Vec::new(), random }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.random_range(0..n)
    }

    /// As an operation does: what it changes it has read before.
    fn change(&mut self) {
        let name = name(self.random.random_range(0..300));
        if self.cache.entry(DIR, &name).is_none() {
            self.begin(Err(name.clone()));
            self.end(self.loads.len() - 1);
        }
        let put = self.below(3) > 0;
        let dent = Dent {
            fid: Fid { seq: 0x500, oid: self.below(1 << 30) as u32, ver: 0 },
            kind: FileKind::File,
        };
        let value = put.then_some(dent);
        match value.clone() {
            Some(dent) => self.truth.insert(place(&name), dent),
            None => self.truth.remove(&place(&name)),
        };
        self.cache.apply(Changes { entries: vec![(DIR, name, value)], ..Changes::default() });
    }

    fn begin(&mut self, wants: Result<u64, Vec<u8>>) {
        let number = self.cache.begin_load();
        self.loads.push(Load { number, wants, saw: self.store.clone() });
    }

    fn end(&mut self, at: usize) {
        let load = self.loads.swap_remove(at);
        let (found, all_of, absent) = match load.wants {
            Ok(first) => {
                let mut found: Vec<_> = load.saw.range((first, Box::default())..).collect();
                let more = found.len() > SCAN;
                found.truncate(SCAN);
                let end = found.last().filter(|_| more).map_or(TO_THE_END, |(p, _)| p.0);
                assert!(end > first, "more of one hash than a reader brings");
                (
                    found.iter().map(|(p, d)| (p.1.to_vec(), (*d).clone())).collect(),
                    first..end,
                    None,
                )
            }
            Err(name) => match load.saw.get(&place(&name)) {
                Some(dent) => (vec![(name, dent.clone())], 0..0, None),
                None => (Vec::new(), 0..0, Some(name)),
            },
        };
        self.cache.loaded_entries(DIR, found, all_of, absent.as_deref());
        self.cache.end_load(load.number);
    }

    fn cut(&mut self) {
        if self.cache.dirty() > 0 {
            let group = self.cache.cut(false);
            self.groups.push_back(group);
        }
    }

    fn commit(&mut self) {
        let Some((group, writes)) = self.groups.pop_front() else { return };
        for write in writes {
            match write {
                Write::Put(key, value) if key[0] == keys::ENTRY => {
                    let (_, hash, name) = keys::parse_entry(&key).unwrap();
                    self.store.insert((hash, name.into()), record::decode(&value).unwrap());
                }
                Write::Del(key) => {
                    let (_, hash, name) = keys::parse_entry(&key).unwrap();
                    assert!(self.store.remove(&(hash, name.into())).is_some(), "it was stored");
                }
                _ => {}
            }
        }
        self.cache.committed(group);
    }

    /// A page of a listing, whatever has to be fetched for it.
    fn page(&mut self, cookie: u64, max: usize) -> (Vec<(u64, Vec<u8>)>, bool) {
        loop {
            let from = match self.cache.page(DIR, cookie, max) {
                Ok(page) => {
                    let names = page.entries.iter().map(|(at, name, _)| (*at, name.to_vec()));
                    return (names.collect(), page.end);
                }
                Err(from) => from,
            };
            self.begin(Ok(from));
            self.end(self.loads.len() - 1);
        }
    }

    fn list(&mut self) {
        let (mut cookie, mut all) = (0, Vec::new());
        loop {
            let max = 1 + self.below(40) as usize;
            let (names, end) = self.page(cookie, max);
            cookie = names.last().map_or(cookie, |(at, _)| *at);
            all.extend(names.into_iter().map(|(_, name)| name));
            if end {
                break;
            }
            if self.below(3) == 0 {
                self.cache.shrink();
            }
        }
        let want: Vec<Vec<u8>> = self.truth.keys().map(|p| p.1.to_vec()).collect();
        assert_eq!(all, want);
    }

    fn look(&mut self) {
        let name = name(self.below(400));
        if let Some(found) = self.cache.entry(DIR, &name) {
            assert_eq!(found, self.truth.get(&place(&name)).cloned(), "{}", name.escape_ascii());
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..8 => self.change(),
            8..10 => self.cut(),
            10..12 => self.commit(),
            12..14 if self.loads.len() < 4 => {
                let wants = match self.below(2) {
                    0 => Err(name(self.below(300))),
                    _ => Ok(keys::name_hash(&name(self.below(300)))),
                };
                self.begin(wants);
            }
            14..16 if !self.loads.is_empty() => {
                let at = self.below(self.loads.len() as u64) as usize;
                self.end(at);
            }
            16..18 => self.cache.shrink(),
            18 if self.below(10) == 0 => self.list(),
            _ => self.look(),
        }
    }

    /// Everything is committed, and nothing is used any more.
    fn rest(&mut self) {
        self.cut();
        while !self.groups.is_empty() {
            self.commit();
        }
        while !self.loads.is_empty() {
            self.end(0);
        }
        assert_eq!(self.store, self.truth);
        self.list();
        self.cache.limit = 0;
        for _ in 0..3 * SEGMENTS {
            self.cache.shrink();
        }
        assert_eq!((self.cache.names, self.cache.weight, self.cache.dirs.len()), (0, 0, 0));
        self.list();
    }
}

#[test]
fn what_is_said_of_a_directory_is_what_a_map_says() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..3_000 {
            world.step();
        }
        world.rest();
    }
}

/// A listing that others change meanwhile has each name once that is there all the time.
#[test]
fn a_listing_goes_on_whatever_is_forgotten_and_changed_meanwhile() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        (0..500).for_each(|_| world.change());
        let mut lasting: Vec<_> = world.truth.keys().cloned().collect();
        let (mut cookie, mut seen) = (0, Vec::new());
        loop {
            let (names, end) = world.page(cookie, 3);
            cookie = names.last().map_or(cookie, |(at, _)| *at);
            seen.extend(names.into_iter().map(|(_, name)| place(&name)));
            if end {
                break;
            }
            (0..3).for_each(|_| world.step());
            lasting.retain(|p| world.truth.contains_key(p));
        }
        assert!(seen.is_sorted_by(|a, b| a < b), "a name comes twice, or out of order");
        assert!(lasting.iter().all(|p| seen.contains(p)), "a name is left out");
    }
}

/// What a listing has passed goes, and what comes next was not read yet: memory for a few parts is enough, and each
/// is read once.
#[test]
fn a_listing_needs_memory_for_a_part_and_reads_each_once() {
    let mut world = World::new(1);
    world.store =
        (0..2_000).map(|n| (place(&name(n)), Dent { fid: DIR, kind: FileKind::File })).collect();
    world.truth = world.store.clone();
    let (mut cookie, mut reads, mut most) = (0, 0, 0);
    loop {
        let before = world.cache.next_load;
        let (names, end) = world.page(cookie, 5);
        reads += world.cache.next_load - before;
        cookie = names.last().map_or(cookie, |(at, _)| *at);
        most = most.max(world.cache.weight);
        world.cache.shrink();
        if end {
            break;
        }
    }
    assert!(reads <= 2_000 / (SCAN as u64 - 1) + 1, "{reads} parts were read");
    assert!(most < 10_000, "{most} bytes were held");
}

/// Directories and inodes are of the same age when they go, however many there are of each.
#[test]
fn the_hand_goes_round_directories_as_fast_as_round_inodes() {
    let mut cache = Cache::new(usize::MAX);
    let dir = |n: u32| Fid { seq: 0x400, oid: n, ver: 0 };
    for n in 0..100 {
        let found = (0..50).map(|i| (name(i), Dent { fid: DIR, kind: FileKind::File }));
        cache.loaded_entries(dir(n), found.collect(), 0..TO_THE_END, None);
    }
    cache.limit = 0;
    // The first round takes their second chance, and no directory.
    let mut rounds = Vec::new();
    for slice in 0..2 * SEGMENTS {
        let (freed, _) = cache.sweep_dirs(0);
        if freed > 0 {
            rounds.push(slice);
        }
    }
    assert!(cache.dirs.is_empty());
    let near = SEGMENTS - SEGMENTS / 8;
    assert!(rounds[0] >= near, "the first goes in slice {} of {SEGMENTS}", rounds[0]);
    assert!(rounds.len() >= 50, "all go in {} slices", rounds.len());
}

/// However few directories there are, and however little room: an operation that needs several finds those that were
/// fetched first when the last one comes.
#[test]
fn what_was_fetched_just_now_outlives_a_sweep() {
    let mut cache = Cache::new(0);
    let dir = |n: u32| Fid { seq: 0x400, oid: n, ver: 0 };
    for n in 0..5 {
        let found = vec![(name(1), Dent { fid: DIR, kind: FileKind::File })];
        cache.loaded_entries(dir(n), found, 0..TO_THE_END, None);
        cache.loaded_inode(dir(n), None);
    }
    let here = |cache: &Cache| (cache.names, cache.inodes.iter().map(|i| i.len()).sum::<usize>());
    cache.shrink();
    assert_eq!(here(&cache), (5, 5));
    (0..3).for_each(|_| cache.shrink());
    assert_eq!(here(&cache), (0, 0));
}

/// Names that are made all over a directory do not keep what was made before: its memory is for what is used.
#[test]
fn a_directory_that_grows_all_the_time_stays_within_its_memory() {
    let mut world = World::new(1);
    world.cache.apply(Changes { born: vec![DIR], ..Changes::default() });
    let mut most = 0;
    for n in 0..30_000 {
        let dent = Dent { fid: DIR, kind: FileKind::File };
        let name = name(n);
        if world.cache.entry(DIR, &name).is_none() {
            world.cache.loaded_entries(DIR, Vec::new(), 0..0, Some(&name));
        }
        let entries = vec![(DIR, name, Some(dent))];
        world.cache.apply(Changes { entries, ..Changes::default() });
        if n % 2_000 == 0 {
            world.cut();
            world.commit();
            most = most.max(world.cache.weight);
            world.cache.shrink();
        }
    }
    assert!(most < 6 * 2_000 * (ENTRY_WEIGHT + 16), "{most} bytes were held");
}
