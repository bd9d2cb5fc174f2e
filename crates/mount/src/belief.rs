//! What the kernel may keep among several mounts: attributes under a lease, and the names of directories.
//!
//! Role: gives them their time, and takes it back when the lease goes. A time goes only with answers that
//! the kernel drops when it was told meanwhile to forget the inode's attributes: those to GETATTR,
//! STATX, LOOKUP and READDIRPLUS. The answers to SETATTR, CREATE, MKNOD, MKDIR, SYMLINK, LINK and TMPFILE it
//! takes as they are. Where a directory is stands under the lease on its attributes, too, which whoever moves or
//! removes it changes; so its name gets the same time, and is taken back by [`crate::names`]. Other names
//! rest on the lease on their directory: to forget one takes its directory's lock, which may be held by who waits for
//! this very call-back. That is rare for the parent of a directory, and common for a directory that several remove
//! files from; so nobody waits for it ([`crate::entries`]).
//! Order: a node is noted as believed, and its name, then the lease is asked for, then the kernel is told; who takes
//! the lease away does so before it looks at the note. A name may be found for an inode that the
//! kernel does not hold yet, and then there is nothing to forget: whoever takes the lease away waits a
//! moment until there is. That it was held and has been dropped since the question, the kernel sees
//! for itself, from protocol 7.44 on surely; before, only who asks by node is given a time.
//! Never does: hold a lock while it tells the kernel.

use std::time::{Duration, Instant};

use proto::{Attr, Fid};

use crate::caches::Caches;
use crate::nodes::Nodes;

/// Taken off each time, because the kernel counts from when the asker wakes up, in ticks of its own.
const MARGIN: Duration = Duration::from_millis(200);
/// How long an answer may be on its way from the device to where the kernel keeps it.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Longest pause between two looks whether it is there.
const LOOK: Duration = Duration::from_millis(2);
/// First minor version of the protocol whose kernels drop what was asked before an inode was dropped.
const COUNTS_EVICTIONS: u32 = 44;

/// How the kernel asked for attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Of an inode that it holds.
    ByNode,
    /// Of a name: it may not hold the inode yet.
    ByName,
}

/// Whether a kernel of this minor version may be given times with names.
pub fn by_name(minor: u32) -> bool {
    minor >= COUNTS_EVICTIONS
}

/// The time attributes of a node are given; `left` tells for how long they are the truth unless a
/// call-back says otherwise.
fn time(nodes: &Nodes, node: u64, asked: Asked, left: impl Fn() -> Option<Duration>) -> Duration {
    let now = || left().map(|left| left.saturating_sub(MARGIN)).unwrap_or_default();
    let first = now();
    // The second look is the one that counts; the first spares the note where there is no lease.
    if first.is_zero() || !nodes.believe(node, first, asked == Asked::ByName) {
        return Duration::ZERO;
    }
    now().min(first)
}

impl Caches {
    /// How long attributes that are told now may be kept by the kernel for a lease's sake.
    pub fn leased(&self, a: &Attr, asked: Asked) -> Duration {
        if asked == Asked::ByName && !self.times_names() {
            return Duration::ZERO;
        }
        let node = self.node(a.fid);
        let time = time(&self.nodes, node, asked, || self.client.vouches(a));
        // After the note: who puts a gate up drops what is noted.
        if a.is_dir() && self.gates.entries.is_gated(node) { Duration::ZERO } else { time }
    }

    /// How long the name of a file, or that there is none (`to`), may be kept by the kernel: the lease on the
    /// directory stands for it. `again`: as in [`crate::entries::Entries::keep`].
    pub fn entry_ttl(&self, name: (u64, &[u8]), to: Option<Fid>, again: Option<u32>) -> Duration {
        let keeps = self.keeps_leased_names(false) && (again.is_none() || self.gates.keeps_again());
        if matches!(name.1, b"." | b"..") || !keeps {
            return Duration::ZERO;
        }
        let left = || {
            let left = self.client.vouches_for_name(self.fid(name.0), name.1, to);
            left.map(|left| left.saturating_sub(MARGIN)).unwrap_or_default()
        };
        let first = left();
        let alone = || self.client.is_alone_in(self.fid(name.0));
        if first.is_zero() || !self.gates.entries.keep(name, again, alone(), first) {
            return Duration::ZERO;
        }
        // After the note: whoever takes the lease away now finds it.
        left().min(first)
    }

    /// How long the name of a directory may be kept by the kernel, whose attributes are given this time: the lease on
    /// them stands for where it is, too. `again`: as in [`crate::nodes::Nodes::named`].
    pub fn name_ttl(
        &self,
        a: &Attr,
        name: (u64, &[u8]),
        again: Option<u32>,
        attr: Duration,
    ) -> Duration {
        let node = self.node(a.fid);
        let kept = || !matches!(name.1, b"." | b"..") && self.keeps_leased_names(again.is_some());
        if attr.is_zero() || !a.is_dir() || !kept() || !self.nodes.may_keep(node, again.is_some()) {
            return Duration::ZERO;
        }
        let noted = self.nodes.named(node, name, again);
        if !noted || !self.gates.entries.keep_dir(name.0, name.1, attr) {
            return Duration::ZERO;
        }
        // After the note: whoever takes the lease away now finds it.
        let left = self.client.vouches(a).map(|left| left.saturating_sub(MARGIN));
        left.unwrap_or_default().min(attr)
    }

    /// Attributes of an inode changed by a request that the kernel does not count as a change when it
    /// takes an older answer. To be called when it is done and not answered.
    pub fn touched(&self, node: u64) {
        if let Some(belief) = self.nodes.belief(node)
            && let Some(n) = self.notifier()
        {
            self.nodes.dropping(node);
            // Attributes only, and whoever asked holds the inode: this waits for nobody.
            let _ = n.inval_inode(node, -1, 0);
            self.nodes.disbelieved(node, belief);
        }
    }

    /// The kernel's attributes of these nodes are dropped, as by [`Caches::drop_attributes`], where it may believe any. Two
    /// that do so at the same time do not rely on each other.
    pub fn drop_believed(&self, nodes: impl Iterator<Item = u64>) {
        let believed = nodes.filter_map(|node| Some((node, self.nodes.belief(node)?)));
        let believed: Vec<(u64, u64)> = believed.collect();
        self.drop_attributes(believed.iter().map(|(node, _)| *node));
        believed.into_iter().for_each(|(node, belief)| self.nodes.disbelieved(node, belief));
    }

    /// The kernel's attributes of these nodes are dropped, also those that are on their way.
    pub fn drop_attributes(&self, nodes: impl IntoIterator<Item = u64>) {
        let Some(n) = self.notifier() else { return };
        // What fails for another reason than that there is no such inode is a mount that ended.
        let absent = |node: &u64| matches!(n.inval_inode(*node, -1, 0), Ok(false));
        let drop = |node: &u64| {
            self.nodes.dropping(*node);
            absent(node)
        };
        let mut left: Vec<u64> = nodes.into_iter().filter(drop).collect();
        let (begun, mut pause) = (Instant::now(), Duration::from_micros(50));
        loop {
            // Either the kernel makes it of the answer, or has dropped it and says so.
            left.retain(|node| self.nodes.named_within(*node, ON_ITS_WAY));
            if left.is_empty() || begun.elapsed() > ON_ITS_WAY {
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK);
            left.retain(absent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::FileKind;
    use std::cell::Cell;

    const LEFT: Duration = Duration::from_secs(10);

    #[test]
    fn what_is_left_of_belief_is_given_and_noted_first() {
        let nodes = Nodes::within(1000);
        nodes.told(7, FileKind::File);
        let looks = Cell::new(0);
        let left = || {
            looks.set(looks.get() + 1);
            assert_eq!(
                nodes.belief(7).is_some(),
                looks.get() > 1,
                "noted before the look that counts"
            );
            Some(LEFT)
        };
        assert_eq!(time(&nodes, 7, Asked::ByNode, left), LEFT - MARGIN);
        assert!(!nodes.named_within(7, ON_ITS_WAY), "the kernel holds it");
        assert_eq!(time(&nodes, 7, Asked::ByName, || Some(LEFT)), LEFT - MARGIN);
        assert!(nodes.named_within(7, ON_ITS_WAY) && !nodes.named_within(7, Duration::ZERO));
        nodes.forget(7, 1);
        assert!(!nodes.named_within(7, ON_ITS_WAY) && nodes.belief(7).is_none());
    }

    #[test]
    fn nothing_is_given_without_a_lease_or_for_what_the_kernel_does_not_know() {
        let nodes = Nodes::within(1000);
        assert_eq!(time(&nodes, 7, Asked::ByNode, || Some(LEFT)), Duration::ZERO);
        nodes.told(7, FileKind::File);
        assert_eq!(time(&nodes, 7, Asked::ByNode, || None), Duration::ZERO);
        assert_eq!(time(&nodes, 7, Asked::ByNode, || Some(MARGIN / 2)), Duration::ZERO);
        assert!(nodes.belief(7).is_none() && nodes.believed().is_empty());
    }

    #[test]
    fn a_lease_that_goes_while_it_is_noted_gives_nothing() {
        let nodes = Nodes::within(1000);
        nodes.told(7, FileKind::File);
        let looks = Cell::new(0);
        let left = || {
            looks.set(looks.get() + 1);
            (looks.get() == 1).then_some(LEFT)
        };
        assert_eq!(time(&nodes, 7, Asked::ByName, left), Duration::ZERO);
        assert_eq!(nodes.believed(), [7], "who took it away may have to look");
    }

    #[test]
    fn the_root_is_always_known() {
        let nodes = Nodes::within(1000);
        assert_eq!(time(&nodes, 1, Asked::ByNode, || Some(LEFT)), LEFT - MARGIN);
        assert_eq!(nodes.believed(), [1]);
    }
}
