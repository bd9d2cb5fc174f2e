//! The workloads in this process on a local directory, and that the checks of the parent see
//! damage.

use super::child::{Task, work};
use super::{WORKLOADS, shared};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

fn task(dir: &std::path::Path, workloads: &[&str]) -> Task {
    Task {
        dir: dir.into(),
        seed: 4,
        index: 0,
        processes: 1,
        seconds: 1,
        workloads: workloads.iter().map(|w| w.to_string()).collect(),
        direct: true,
        several_mounts: false,
    }
}

#[test]
fn all_workloads_run_on_a_local_directory() {
    let dir = tempfile::tempdir().unwrap();
    shared::prepare(dir.path()).unwrap();
    let none: Vec<String> = Vec::new();
    assert_eq!(work(&task(dir.path(), &WORKLOADS)).unwrap(), none);
    assert_eq!(work(&task(dir.path(), &["racer", "racer"])).unwrap(), none);
}

#[test]
fn an_unknown_workload_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(work(&task(dir.path(), &["nonsense"])).is_err());
}

#[test]
fn damage_in_shared_files_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    shared::prepare(dir.path()).unwrap();
    let totals = |name: &str, n: u64| vec![BTreeMap::from([(name.to_string(), n)])];
    let verify =
        |name: &str, n| shared::verify(dir.path(), 4, &totals(name, n), &[name.to_string()]);
    assert!(verify("counter", 0).is_ok());
    assert!(verify("counter", 1).is_err());
    assert!(verify("append", 1).is_err());
    std::fs::write(dir.path().join("append"), [1; 100]).unwrap();
    assert!(verify("append", 0).is_err());
    std::fs::write(dir.path().join("exclusive/1"), 0u64.to_le_bytes()).unwrap();
    assert!(verify("exclusive", 0).is_err());
    assert!(verify("exclusive", 1).is_ok());
    let file = std::fs::File::create(dir.path().join("strided")).unwrap();
    let data = crate::pattern::make(47_008 * 40, 4, 0, 0);
    for block in 0..40 {
        let at = block * 47_008;
        file.write_all_at(&data[at..at + 47_008], at as u64).unwrap();
    }
    assert!(verify("strided", 1).is_ok());
    file.write_all_at(&[data[99] ^ 1], 99).unwrap();
    assert!(verify("strided", 1).is_err());
}
