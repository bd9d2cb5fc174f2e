//! The OSTs a metadata target knows: their space, and which of them a new file gets.
//!
//! Role: free-space-aware choice, sums for statfs. Filled by `server::poll`. Never does: I/O.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use proto::Errno;
use proto::layout::{DEFAULT_STRIPE_COUNT, LayoutSpec};
use proto::oss::Statfs;

/// An OST with less free space than this gets no new files, bytes.
pub const MIN_FREE: u64 = 4 << 20;

/// How often full OSTs are asked again while objects wait to be destroyed, about twenty times a second, before
/// somebody is told that they are full (invariant 8).
const MAX_PUT_OFF: u32 = 100;

/// What is known of one OST.
#[derive(Clone, Debug, Default)]
pub struct OstState {
    /// It answered the last time it was asked.
    pub up: bool,
    /// Its last answer.
    pub space: Option<Statfs>,
}

/// Sums over all OSTs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes.
    pub total: u64,
    /// Bytes.
    pub free: u64,
    /// Objects.
    pub objects: u64,
}

#[derive(Default)]
struct Inner {
    osts: BTreeMap<u32, OstState>,
    turns: Turns,
    random: u64,
    /// Somebody found them full and wants to be sure.
    ask: bool,
    /// They are being asked for that.
    due: bool,
    /// They were asked since.
    asked: bool,
    /// How often they were asked meanwhile while objects waited to be destroyed.
    put_off: u32,
    /// All were asked once.
    met: bool,
}

/// Round-robin: files in a row share no OST where there are enough, and each OST is the first of as many files as the
/// others. What fits in one stripe lies on the first alone.
#[derive(Default)]
struct Turns {
    next: usize,
    /// Files since the last shift.
    files: usize,
}

impl Turns {
    /// The place of the first of `count` OSTs out of `all`.
    fn first(&mut self, count: usize, all: usize) -> usize {
        let first = self.next % all;
        self.next = first + count;
        self.files += 1;
        // Steps of this length come back to where they began without having been everywhere.
        let common = gcd(count, all);
        if common > 1 && self.files >= all / common {
            self.next += 1;
            self.files = 0;
        }
        first
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// See the module.
pub struct OstTable(Mutex<Inner>);

impl OstTable {
    /// No OSTs yet; `seed` decides how ties are broken.
    pub fn new(seed: u64) -> OstTable {
        OstTable(Mutex::new(Inner { random: seed | 1, ..Inner::default() }))
    }

    /// The set of OSTs that exist.
    pub fn set(&self, indexes: impl IntoIterator<Item = u32>) {
        let mut t = self.0.lock();
        let old = std::mem::take(&mut t.osts);
        t.osts =
            indexes.into_iter().map(|i| (i, old.get(&i).cloned().unwrap_or_default())).collect();
    }

    /// The outcome of asking one; `None`: no answer.
    pub fn report(&self, index: u32, space: Option<Statfs>) {
        if let Some(o) = self.0.lock().osts.get_mut(&index) {
            o.up = space.is_some();
            o.space = space.or(o.space.take());
        }
    }

    /// Whether somebody waits for the OSTs to be asked.
    pub fn wants_look(&self) -> bool {
        self.0.lock().ask
    }

    /// All are asked now: who waits for that hears of it, and not who comes later. `destroying`: objects wait to be
    /// destroyed, so that space comes back by itself; that is waited for, too, but not for ever.
    pub fn begin_look(&self, destroying: bool) {
        let mut t = self.0.lock();
        if t.ask && destroying && t.put_off < MAX_PUT_OFF {
            t.put_off += 1;
            return;
        }
        t.put_off = 0;
        t.due = std::mem::take(&mut t.ask);
    }

    /// All were asked.
    pub fn looked(&self) {
        let mut t = self.0.lock();
        t.met |= !t.osts.is_empty();
        t.asked |= std::mem::take(&mut t.due);
    }

    /// Whether an index is that of an OST.
    pub fn exists(&self, index: u32) -> bool {
        self.0.lock().osts.contains_key(&index)
    }

    /// State of all.
    pub fn all(&self) -> BTreeMap<u32, OstState> {
        self.0.lock().osts.clone()
    }

    /// Sums; a local file system that several OSTs share counts once.
    pub fn space(&self) -> Space {
        let t = self.0.lock();
        let mut seen = HashMap::new();
        let mut sum = Space::default();
        for s in t.osts.values().filter_map(|o| o.space.as_ref()) {
            sum.objects += s.objects;
            if seen.insert(s.fsid, ()).is_none() {
                sum.total += s.total;
                sum.free += s.free;
            }
        }
        sum
    }

    /// OSTs for a new file. EAGAIN until all were asked once, while none answers, or not the one wished for;
    /// ENOSPC when all are full.
    pub fn choose(&self, spec: &LayoutSpec, size_hint: u64) -> Result<Vec<u32>, Errno> {
        let mut t = self.0.lock();
        // The first to answer must not get all.
        if !t.met {
            return Err(Errno::EAGAIN);
        }
        let open: Vec<(u32, u64)> = t
            .osts
            .iter()
            .filter_map(|(i, o)| Some((*i, o.space.as_ref().filter(|_| o.up)?.free)))
            .collect();
        let room: Vec<(u32, u64)> = open.iter().copied().filter(|o| o.1 >= MIN_FREE).collect();
        if room.is_empty() {
            // Full only when every one of them said so, and lately: space may have come back since
            // they were asked, so they are asked once more before the answer is no.
            let told = !t.osts.is_empty() && open.len() == t.osts.len();
            let lately = std::mem::replace(&mut t.asked, false);
            t.ask |= !lately;
            return Err(if told && lately { Errno::ENOSPC } else { Errno::EAGAIN });
        }
        // Whoever finds them full next must have them asked anew.
        t.asked = false;
        let want = match spec.stripe_count {
            0 => DEFAULT_STRIPE_COUNT as usize,
            n if n < 0 => t.osts.len(),
            n => n as usize,
        };
        let count = want.min(room.len());
        if spec.stripe_offset >= 0 {
            let first = t.osts.get(&(spec.stripe_offset as u32));
            if first.is_some_and(|o| !o.up || o.space.is_none()) {
                return Err(Errno::EAGAIN);
            }
            return from_index(&room, spec.stripe_offset as u32, count);
        }
        let most = room.iter().map(|o| o.1).max().unwrap_or(0);
        let least = room.iter().map(|o| o.1).min().unwrap_or(0);
        // Round-robin while they are about equally full or the file is small beside them.
        if least >= most / 4 * 3 && size_hint < least / 8 {
            let first = t.turns.first(count, room.len());
            return Ok((0..count).map(|i| room[(first + i) % room.len()].0).collect());
        }
        Ok(t.weighted(room, count))
    }
}

fn from_index(room: &[(u32, u64)], first: u32, count: usize) -> Result<Vec<u32>, Errno> {
    let at = room.iter().position(|o| o.0 == first).ok_or(Errno::ENOSPC)?;
    Ok((0..count).map(|i| room[(at + i) % room.len()].0).collect())
}

impl Inner {
    /// xorshift64*: only breaks ties, nothing depends on its quality.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// By lot, with free space as the weight.
    fn weighted(&mut self, mut room: Vec<(u32, u64)>, count: usize) -> Vec<u32> {
        let mut chosen = Vec::with_capacity(count);
        for _ in 0..count {
            let total: u128 = room.iter().map(|o| u128::from(o.1)).sum();
            let mut at = u128::from(self.random()) % total.max(1);
            let pick = room.iter().position(|o| {
                let hit = at < u128::from(o.1);
                at = at.saturating_sub(u128::from(o.1));
                hit
            });
            chosen.push(room.swap_remove(pick.unwrap_or(0)).0);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(free: &[u64]) -> OstTable {
        let t = OstTable::new(7);
        t.set(0..free.len() as u32);
        for (i, f) in free.iter().enumerate() {
            let s = Statfs {
                total: 1 << 40,
                free: *f,
                files: 0,
                files_free: 0,
                objects: 1,
                fsid: i as u64,
            };
            t.report(i as u32, Some(s));
        }
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        look(&t, false);
        t
    }
    const G: u64 = 1 << 30;

    fn look(t: &OstTable, destroying: bool) {
        t.begin_look(destroying);
        t.looked();
    }

    fn spec(count: i32, offset: i32) -> LayoutSpec {
        LayoutSpec { stripe_size: 0, stripe_count: count, stripe_offset: offset }
    }

    #[test]
    fn equal_osts_take_turns() {
        let t = table(&[G, G, G, G]);
        let firsts: Vec<u32> = (0..4).map(|_| t.choose(&spec(1, -1), 0).unwrap()[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 3]);
        assert_eq!(t.choose(&spec(-1, 2), 0).unwrap(), [2, 3, 0, 1]);
        assert_eq!(t.choose(&spec(9, -1), 0).unwrap().len(), 4);
    }

    #[test]
    fn each_is_the_first_as_often_and_has_as_many_stripes() {
        for all in 1..=9_usize {
            for count in 1..=all {
                let t = table(&vec![G; all]);
                let files = 4 * all;
                let (mut firsts, mut stripes) = (vec![0; all], vec![0; all]);
                for _ in 0..files {
                    let osts = t.choose(&spec(count as i32, -1), 0).unwrap();
                    firsts[osts[0] as usize] += 1;
                    osts.iter().for_each(|o| stripes[*o as usize] += 1);
                }
                assert!(firsts.iter().all(|n| *n == 4), "{count} of {all}: {firsts:?}");
                assert!(stripes.iter().all(|n| *n == 4 * count), "{count} of {all}: {stripes:?}");
            }
        }
        let t = table(&[G; 8]);
        let firsts: Vec<u32> = (0..8).map(|_| t.choose(&spec(4, -1), 0).unwrap()[0]).collect();
        assert_eq!(firsts, [0, 4, 1, 5, 2, 6, 3, 7], "and two in a row share none");
    }

    #[test]
    fn emptier_osts_get_more() {
        let t = table(&[100 * G, G, G]);
        let hits = (0..1000).filter(|_| t.choose(&spec(1, -1), 0).unwrap() == [0]).count();
        assert!(hits > 900, "{hits}");
    }

    #[test]
    fn full_and_silent_differ() {
        let t = table(&[0, 1]);
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        assert!(t.wants_look());
        look(&t, false);
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::ENOSPC));
        // Each refusal rests on a look of its own.
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        assert_eq!(table(&[]).choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        let t = table(&[0, G]);
        t.report(1, None);
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        assert_eq!(t.choose(&spec(1, 1), 0), Err(Errno::EAGAIN));
        assert_eq!(table(&[0, G]).choose(&spec(4, -1), 0).unwrap(), [1]);
        let t = table(&[G, G]);
        t.report(1, None);
        assert_eq!(t.choose(&spec(1, 1), 0), Err(Errno::EAGAIN), "it may come back");
        assert_eq!(t.choose(&spec(1, 7), 0), Err(Errno::ENOSPC));
    }

    #[test]
    fn space_that_is_about_to_come_back_is_waited_for_but_not_for_ever() {
        let t = table(&[0, 1]);
        let again = || t.choose(&spec(1, -1), 0);
        assert_eq!(again(), Err(Errno::EAGAIN));
        for _ in 0..MAX_PUT_OFF {
            look(&t, true);
            assert!(t.wants_look());
            assert_eq!(again(), Err(Errno::EAGAIN));
        }
        look(&t, true);
        assert_eq!(again(), Err(Errno::ENOSPC));
        assert_eq!(again(), Err(Errno::EAGAIN));
        look(&t, true);
        assert_eq!(again(), Err(Errno::EAGAIN), "from the beginning");
        look(&t, false);
        assert_eq!(again(), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_look_counts_for_nothing_once_there_was_room() {
        let t = table(&[0]);
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        look(&t, false);
        let s =
            |free| Statfs { total: 1 << 40, free, files: 0, files_free: 0, objects: 1, fsid: 0 };
        t.report(0, Some(s(G)));
        assert_eq!(t.choose(&spec(1, -1), 0).unwrap(), [0]);
        t.report(0, Some(s(0)));
        t.begin_look(false);
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN));
        t.looked();
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::EAGAIN), "that look began before");
        look(&t, false);
        assert_eq!(t.choose(&spec(1, -1), 0), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_shared_disk_counts_once() {
        let t = OstTable::new(1);
        t.set([0, 1]);
        let s = Statfs { total: 10, free: 5, files: 0, files_free: 0, objects: 2, fsid: 9 };
        t.report(0, Some(s.clone()));
        t.report(1, Some(s));
        assert_eq!(t.space(), Space { total: 10, free: 5, objects: 4 });
    }
}
