//! Random operations against a model of a POSIX namespace, with restarts and power cuts, and a
//! cache so small that nearly everything misses.

mod common;
#[path = "common/posix.rs"]
mod posix;

use std::time::Duration;

use common::{Client, Solo};
use pinstripe_mds::MdtOptions;
use posix::{Act, Posix};
use proptest::prelude::*;
use proto::mds::*;
use store::memory::MemoryDisk;

fn options(tiny: bool) -> MdtOptions {
    MdtOptions {
        cache_bytes: if tiny { 2_000 } else { 64 << 20 },
        group_delay: Duration::from_millis(1),
        group_records: if tiny { 3 } else { 4000 },
        orphan_grace: Duration::ZERO,
        ..MdtOptions::default()
    }
}

/// Runs acts; after each the result must be the model's. The models after every act, with the
/// transaction number the answer carried.
fn run(c: &Client, model: &mut Posix, acts: &[Act]) -> (Vec<(u64, Posix)>, u64) {
    let mut states = Vec::new();
    let mut synced = 0;
    for act in acts {
        let fid = c.fid();
        let Some(op) = model.op(act, fid) else { continue };
        let sync = matches!(op, Op::Sync {});
        let (res, transno) = c.call(&op);
        let expect = model.apply(act, fid);
        assert_eq!(posix::outcome(&res), expect, "{act:?} {op:?}");
        if let Res::Opened { open, .. } = &res {
            model.opened(act, open.handle);
        }
        states.push((transno, model.clone()));
        if sync {
            synced = states.len();
        }
    }
    (states, synced as u64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_model_over_restarts(
        rounds in proptest::collection::vec(proptest::collection::vec(posix::act(), 1..60), 1..4),
        tiny: bool,
    ) {
        let disk = MemoryDisk::new();
        let mut model = Posix::new();
        for acts in &rounds {
            let s = Solo::with(&disk, options(tiny));
            let c = s.client();
            posix::compare(&c, &model);
            run(&c, &mut model, acts);
            posix::compare(&c, &model);
            common::check(&disk, s, &[c]);
            model.restart();
        }
    }

    #[test]
    fn a_power_cut_leaves_a_prefix_with_all_that_was_synced(
        before in proptest::collection::vec(posix::act(), 1..60),
        after in proptest::collection::vec(posix::act(), 0..40),
        tiny: bool,
        held: bool,
    ) {
        let disk = MemoryDisk::new();
        let mut model = Posix::new();
        let s = Solo::with(&disk, options(tiny));
        let c = s.client();
        let mut states = vec![(0, model.clone())];
        let (more, synced) = run(&c, &mut model, &before);
        states.extend(more);
        if held {
            // From here on nothing becomes durable.
            disk.hold();
        }
        let after: Vec<Act> = after.into_iter().filter(|a| !(held && matches!(a, Act::Sync))).collect();
        let (more, later) = run(&c, &mut model, &after);
        let synced = if later > 0 { states.len() as u64 - 1 + later } else { synced };
        states.extend(more);
        disk.power_cut();
        s.server.shutdown();
        drop((c, s));

        let s = Solo::with(&disk, options(tiny));
        let c = s.client();
        let fits = states.iter().enumerate().skip(synced as usize).find_map(|(i, (_, m))| {
            let mut m = m.clone();
            m.restart();
            posix::difference(&c, &m).is_none().then_some(i)
        });
        prop_assert!(fits.is_some(), "no prefix at or after {} of {}", synced, states.len());
        common::check(&disk, s, &[c]);
    }
}
