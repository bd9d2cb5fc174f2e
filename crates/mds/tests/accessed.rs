//! Who holds attributes of a file hears when others have read it, and keeps them.

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::time::{Duration, Instant};

use common::{FILE, Solo};
use holder::{Holder, Way};
use pinstripe_mds::MdtOptions;
use proto::mds::*;
use proto::{Errno, Fid, TimeSpec};
use store::memory::MemoryDisk;

/// Some that look at a file, and its reader.
struct World {
    solo: Solo,
    holders: Vec<Holder>,
    reader: Holder,
    file: Fid,
    /// When it was read last.
    atime: TimeSpec,
}

impl World {
    fn new(holders: usize) -> World {
        let options = MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() };
        let solo = Solo::with(&MemoryDisk::new(), options);
        let reader = Holder::new(&solo);
        let holders: Vec<Holder> = (0..holders).map(|_| Holder::new(&solo)).collect();
        let file = reader.plain().make(Fid::ROOT, "file", FILE).unwrap();
        let atime = reader.client.attr(file).unwrap().atime;
        let world = World { solo, holders, reader, file, atime };
        world.holders.iter().for_each(|h| world.look(h));
        world
    }

    fn look(&self, holder: &Holder) {
        holder.run(vec![Op::GetAttr { fid: self.file }]);
        assert_eq!(holder.has(self.file) & LS_ATTR, LS_ATTR);
    }

    /// A read of so many seconds later than the file was made is told.
    fn read(&self, seconds: i64) -> TimeSpec {
        let atime = TimeSpec { sec: self.atime.sec + seconds, ..self.atime };
        let report =
            SizeReport { size: 0, exact: false, blocks: None, mtime: None, atime: Some(atime) };
        let res = self.reader.run(vec![Op::Report { fid: self.file, report }]);
        assert!(matches!(res[0], Res::Attr { .. }), "{res:?}");
        atime
    }
}

#[test]
fn all_who_hold_attributes_are_told_and_keep_them() {
    let world = World::new(2);
    let other = Holder::new(&world.solo);
    let at = world.read(1);
    common::until(|| world.holders.iter().all(|h| h.accessed().len() == 1));
    let truth = other.client.attr(world.file).unwrap();
    assert_eq!(truth.atime, at);
    for holder in &world.holders {
        assert_eq!(holder.accessed(), std::slice::from_ref(&truth));
        assert_eq!((holder.calls(), holder.has(world.file) & LS_ATTR), (0, LS_ATTR));
    }
    assert!(other.accessed().is_empty() && world.reader.accessed().is_empty());
    // Earlier than what is known: nothing is new.
    world.read(0);
    world.holders[1].release(vec![Lease { fid: world.file, bits: LS_ATTR }]);
    world.read(2);
    common::until(|| world.holders[0].accessed().len() == 2);
    assert_eq!(world.holders[1].accessed().len(), 1, "it holds nothing");
}

#[test]
fn who_is_slow_to_hear_is_told_the_last_of_many() {
    let world = World::new(1);
    let holder = &world.holders[0];
    holder.set_way(Way::Late);
    let first = world.read(1);
    common::until(|| holder.accessed().len() == 1);
    let later: Vec<TimeSpec> = (2..50).map(|n| world.read(n)).collect();
    assert_eq!(holder.accessed().len(), 1, "one message at a time");
    holder.answer_told(0);
    common::until(|| holder.accessed().len() == 2);
    let told: Vec<TimeSpec> = holder.accessed().iter().map(|a| a.atime).collect();
    assert_eq!(told, [first, later[later.len() - 1]]);
    holder.set_way(Way::Prompt);
    holder.answer_told(0);
    world.read(60);
    common::until(|| holder.accessed().len() == 3);
    assert_eq!(holder.calls(), 0);
}

#[test]
fn what_is_read_often_is_told_once_in_a_while() {
    let world = World::new(1);
    let holder = &world.holders[0];
    let begun = Instant::now();
    let last = (1..500).map(|n| world.read(n)).collect::<Vec<_>>()[498];
    common::until(|| holder.accessed().last().is_some_and(|told| told.atime == last));
    // One at once, and one in each second; what a round has begun may count twice.
    let most = 2 + begun.elapsed().as_secs() as usize;
    assert!(
        holder.accessed().len() <= most,
        "{} in {:?}",
        holder.accessed().len(),
        begun.elapsed()
    );
}

#[test]
fn what_cannot_be_told_is_called_back() {
    let world = World::new(1);
    let holder = &world.holders[0];
    holder.set_way(Way::Late);
    world.read(1);
    common::until(|| holder.accessed().len() == 1);
    holder.set_way(Way::Prompt);
    holder.answer_told(Errno::EOPNOTSUPP.status());
    common::until(|| holder.has(world.file) & LS_ATTR == 0);
    assert_eq!(holder.lost(), [Lease { fid: world.file, bits: LS_ATTR }]);
    world.look(holder);
    world.read(2);
    common::until(|| holder.accessed().len() == 2);
}
