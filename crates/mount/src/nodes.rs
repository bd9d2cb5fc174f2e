//! Which nodes the kernel was told of.
//!
//! Role: when a lease goes, what the kernel caches of each must be dropped. Node ids are inode
//! numbers, which a FID gives and which give it back, so nothing else is kept. Never does: I/O.

use std::collections::HashMap;

use parking_lot::Mutex;

const SHARDS: usize = 64;

/// Look-ups the kernel has not forgotten, by node.
pub struct Nodes(Vec<Mutex<HashMap<u64, u64>>>);

impl Nodes {
    /// None yet.
    pub fn new() -> Nodes {
        Nodes((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, node: u64) -> &Mutex<HashMap<u64, u64>> {
        &self.0[(node ^ (node >> 24)) as usize % SHARDS]
    }

    /// The kernel is told of a node once more.
    pub fn told(&self, node: u64) {
        *self.shard(node).lock().entry(node).or_default() += 1;
    }

    /// The kernel gives `count` back.
    pub fn forget(&self, node: u64, count: u64) {
        let mut shard = self.shard(node).lock();
        if let Some(n) = shard.get_mut(&node) {
            *n = n.saturating_sub(count);
            if *n == 0 {
                shard.remove(&node);
            }
        }
    }

    /// All nodes the kernel knows.
    pub fn all(&self) -> Vec<u64> {
        self.0.iter().flat_map(|s| s.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_live_until_every_look_up_is_forgotten() {
        let n = Nodes::new();
        n.told(7);
        n.told(7);
        n.told(8);
        n.forget(7, 1);
        n.forget(8, 5);
        n.forget(9, 1);
        assert_eq!(n.all(), [7]);
        n.forget(7, 1);
        assert!(n.all().is_empty());
    }
}
