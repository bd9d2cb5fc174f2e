//! Who was granted what.
//!
//! Role: leases by inode, and per session a count and an order of use, so that the oldest can be
//! called back. Bounded by [`super::MAX_PER_CLIENT`] and [`super::MAX_LEASES`], which the caller
//! enforces with [`Table::oldest`]. Never does: decide.

use std::collections::VecDeque;

use proto::Fid;
use rustc_hash::FxHashMap as HashMap;

use super::EXCLUSIVE;

/// Leases of one inode: nearly always one session's.
#[derive(Debug, Default)]
struct Holders {
    first: (u64, u8),
    rest: Vec<(u64, u8)>,
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        std::iter::once(self.first).filter(|h| h.1 != 0).chain(self.rest.iter().copied())
    }

    /// Sets a session's bits; whether it had none before, whether it has none now.
    fn set(&mut self, session: u64, f: impl FnOnce(u8) -> u8) -> (bool, bool) {
        if self.first.1 != 0 && self.first.0 == session {
            self.first.1 = f(self.first.1);
            let gone = self.first.1 == 0;
            if gone && let Some(next) = self.rest.pop() {
                self.first = next;
            }
            return (false, gone);
        }
        if let Some(at) = self.rest.iter().position(|h| h.0 == session) {
            self.rest[at].1 = f(self.rest[at].1);
            let gone = self.rest[at].1 == 0;
            if gone {
                self.rest.swap_remove(at);
            }
            return (false, gone);
        }
        let bits = f(0);
        match bits {
            0 => {}
            _ if self.first.1 == 0 => self.first = (session, bits),
            _ => self.rest.push((session, bits)),
        }
        (true, bits == 0)
    }
}

/// One session's leases: when each was granted last, and an order that is brought up to date when
/// it is asked for.
#[derive(Debug, Default)]
struct Owned {
    used: HashMap<Fid, u64>,
    order: VecDeque<(Fid, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Table {
    inodes: HashMap<Fid, Holders>,
    sessions: HashMap<u64, Owned>,
    total: usize,
    clock: u64,
}

impl Table {
    /// Leases (an inode and a session each).
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Leases of a session.
    pub fn count(&self, session: u64) -> usize {
        self.sessions.get(&session).map_or(0, |o| o.used.len())
    }

    /// Whether a session has some of these bits of anything.
    pub fn has_any(&self, session: u64, bits: u8) -> bool {
        let owned = self.sessions.get(&session);
        owned.is_some_and(|o| o.used.keys().any(|f| self.of(*f, session) & bits != 0))
    }

    /// The session with the most.
    pub fn richest(&self) -> Option<u64> {
        self.sessions.iter().max_by_key(|(_, o)| o.used.len()).map(|(s, _)| *s)
    }

    /// What a session has of an inode.
    pub fn of(&self, fid: Fid, session: u64) -> u8 {
        let h = self.inodes.get(&fid);
        h.and_then(|h| h.iter().find(|h| h.0 == session)).map_or(0, |h| h.1)
    }

    /// What others have of an inode.
    pub fn others(&self, fid: Fid, session: u64) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.holders(fid).filter(move |h| h.0 != session)
    }

    /// What all sessions have of an inode.
    pub fn holders(&self, fid: Fid) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.inodes.get(&fid).into_iter().flat_map(Holders::iter)
    }

    /// Another session that has an exclusive lease of an inode.
    pub fn excluded_by(&self, fid: Fid, session: u64) -> Option<u64> {
        self.others(fid, session).find(|h| h.1 & EXCLUSIVE != 0).map(|h| h.0)
    }

    /// Grants as much of `bits` as what others have leaves room for.
    pub fn grant(&mut self, fid: Fid, session: u64, bits: u8) -> u8 {
        let others = self
            .others(fid, session)
            .fold((false, false), |a, h| (true, a.1 || h.1 & EXCLUSIVE != 0));
        let bits = match others {
            (_, true) => 0,
            (true, _) => bits & !EXCLUSIVE,
            _ => bits,
        };
        if bits == 0 {
            return 0;
        }
        self.clock += 1;
        let (new, _) = self.inodes.entry(fid).or_default().set(session, |b| b | bits);
        let owned = self.sessions.entry(session).or_default();
        owned.used.insert(fid, self.clock);
        if new {
            owned.order.push_back((fid, self.clock));
            self.total += 1;
        }
        bits
    }

    /// Takes bits away.
    pub fn take(&mut self, fid: Fid, session: u64, bits: u8) {
        let Some(h) = self.inodes.get_mut(&fid) else { return };
        let (absent, gone) = h.set(session, |b| b & !bits);
        if h.first.1 == 0 {
            self.inodes.remove(&fid);
        }
        if !absent && gone {
            self.total -= 1;
            self.unown(fid, session);
        }
    }

    fn unown(&mut self, fid: Fid, session: u64) {
        let Some(o) = self.sessions.get_mut(&session) else { return };
        o.used.remove(&fid);
        // What was given back stays in the order until it is met; it must not outgrow the rest.
        if o.order.len() > 2 * o.used.len() + 64 {
            let used = &o.used;
            let mut seen = rustc_hash::FxHashSet::default();
            o.order.retain(|(f, _)| used.contains_key(f) && seen.insert(*f));
        }
        if o.used.is_empty() {
            self.sessions.remove(&session);
        }
    }

    /// An inode is gone.
    pub fn forget(&mut self, fid: Fid) {
        let Some(h) = self.inodes.remove(&fid) else { return };
        for (session, _) in h.iter() {
            self.total -= 1;
            self.unown(fid, session);
        }
    }

    /// A session is gone; the inodes it had leases of.
    pub fn drop_session(&mut self, session: u64) -> Vec<Fid> {
        let owned = self.sessions.remove(&session).unwrap_or_default();
        for fid in owned.used.keys() {
            self.total -= 1;
            if let Some(h) = self.inodes.get_mut(fid) {
                h.set(session, |_| 0);
                if h.first.1 == 0 {
                    self.inodes.remove(fid);
                }
            }
        }
        owned.used.into_keys().collect()
    }

    /// Up to `max` leases of a session that were granted longest ago; they move to the end of the
    /// order, so that asking again names others.
    pub fn oldest(&mut self, session: u64, max: usize) -> Vec<(Fid, u8)> {
        let mut found = Vec::new();
        let Some(o) = self.sessions.get_mut(&session) else { return found };
        for _ in 0..o.order.len() {
            if found.len() == max {
                break;
            }
            let Some((fid, stamp)) = o.order.pop_front() else { break };
            match o.used.get(&fid) {
                None => continue,
                Some(now) if *now > stamp => o.order.push_back((fid, *now)),
                Some(now) => {
                    o.order.push_back((fid, *now));
                    let h = self.inodes.get(&fid);
                    let bits = h.and_then(|h| h.iter().find(|h| h.0 == session));
                    found.extend(bits.map(|h| (fid, h.1)));
                }
            }
        }
        found
    }

    /// Every lease: inode, session, bits (for checks).
    pub fn all(&self) -> impl Iterator<Item = (Fid, u64, u8)> + '_ {
        self.inodes.iter().flat_map(|(f, h)| h.iter().map(|(s, b)| (*f, s, b)))
    }
}
