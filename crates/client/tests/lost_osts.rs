//! OSTs that are lost for longer than a request waits (invariants 1 and 6).

mod common;

use std::time::Duration;

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Data, Options};
use proto::{Errno, Fid, FileKind};

const LONG: usize = 12_000_000;

/// Who syncs hears that what he waited for did not arrive. Nothing is lost with that, neither what was not
/// even sent nor what was on its way.
#[test]
fn syncfs_tells_what_it_waited_for_in_vain() {
    let mut world = World::new(1);
    let request_timeout = Duration::from_millis(400);
    let options = Options { request_timeout, max_rpcs_in_flight: 1, ..Options::default() };
    let c = world.client_with(options);
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let f = made.file.unwrap();
    f.write(0, Data::Owned(vec![5; LONG].into())).unwrap();
    c.sync_all().unwrap();
    world.stop_ost(0);
    f.write(0, Data::Owned(vec![6; LONG].into())).unwrap();
    assert_eq!(c.sync_all().unwrap_err(), Errno::EIO);
    assert_eq!(f.fsync(false).unwrap_err(), Errno::EIO);
    world.start_ost(0);
    until(|| f.fsync(false).is_ok());
    let other = world.client();
    let mut bytes = vec![0; LONG];
    let reads = other.open(&root(), f.fid(), READ).unwrap();
    assert_eq!(reads.read(0, &mut bytes).unwrap(), LONG);
    let arrived = bytes.iter().filter(|b| **b == 6).count();
    assert_eq!(arrived, LONG, "what was on its way was lost");
}
