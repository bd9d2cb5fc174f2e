//! Tables that were large once.
//!
//! Role: a hash table keeps the memory of the most it ever held; here one that holds little of that gives the
//! rest back. Assumptions: called where something is taken out, so that what is moved is paid for by many
//! removals. Never does: take anything out.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// A table for fewer keeps its memory.
const KEPT: usize = 128;
/// One that holds less than this part of what it has room for is sparse.
const PART: usize = 8;

/// Gives back what a table that became sparse does not need; it has room for twice what it holds then.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    let room = table.capacity();
    if room > KEPT && table.len() < room / PART {
        table.shrink_to((2 * table.len()).max(KEPT / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_became_sparse_gives_back_and_keeps_what_is_in_it() {
        let mut table: HashMap<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        let most = table.capacity();
        let mut moves = 0;
        for n in 10..100_000 {
            table.remove(&n);
            let before = table.capacity();
            give_back(&mut table);
            let (room, len) = (table.capacity(), table.len());
            assert!(room <= KEPT || len >= room / PART, "room for {room}, and {len} are in it");
            moves += usize::from(table.capacity() < before / 2);
        }
        assert!(table.capacity() <= KEPT && most >= 100_000, "{}", table.capacity());
        assert!((1..10).contains(&moves), "moved {moves} times");
        assert!((0..10).all(|n| table.get(&n) == Some(&n)) && table.len() == 10);
    }
}
