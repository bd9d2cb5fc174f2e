//! The arithmetic, and that each workload does the work it claims.

use super::*;
use std::cell::RefCell;
use std::time::Duration;

#[test]
fn medians() {
    assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    assert!(median([]).is_nan());
}

#[test]
fn rounds_are_interleaved_and_ratios_are_rates() {
    let order = RefCell::new(String::new());
    let case = |name: &'static str, work: f64| {
        let order = &order;
        Case::new(name, move |_| {
            order.borrow_mut().push_str(name);
            Ok(Sample { seconds: 2.0, work, ..Sample::default() })
        })
    };
    let mut cases = [case("a", 30.0), case("b", 10.0)];
    let result = interleave("test", "things", 3, &mut cases).unwrap();
    assert_eq!(*order.borrow(), "abbaab");
    assert_eq!(result.ratios[0].ratio, 3.0);
    assert_eq!((result.cases[0].rate, result.cases[1].rate), (15.0, 5.0));
    assert!(result.to_string().contains("ratio 3.00"));
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["cases"][1]["median"]["seconds"], 2.0);
}

#[test]
fn process_figures_are_read_as_the_kernel_writes_them() {
    let stat = "7 (a b) c) S 1 7 7 0 -1 4 1 0 0 0 150 50 9 9 20 0 1 0 5 6 7 8";
    assert_eq!(process::ticks(stat), Some(200));
    assert_eq!(process::ticks("7 (x"), None);
    let text = "a-b ---p 0 0:0 0 [rollup]\nRss:    2048 kB\nPss:     1 kB\nPss_Dirty: 9 kB\n";
    assert_eq!(process::parse_memory(text), Memory { rss: 2 << 20, pss: 1024 });
    assert!(cpu_of(std::process::id()).is_some());
    assert!(memory(std::process::id()).unwrap().rss > 0);
    assert_eq!(cpu_of(u32::MAX), None);
}

#[test]
fn commands_that_fail_are_errors() {
    assert_eq!(command(&[], "true").unwrap().work, 1.0);
    assert!(command(&[], "exit 3").is_err());
}

#[test]
fn workloads_do_their_work() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    assert_eq!(io::write_sequential(&file, 1 << 20, 1 << 18, false).unwrap(), 1048576.0);
    assert_eq!(io::read_sequential(&file, 65_536, true).unwrap(), 1048576.0);
    assert!(io::read_random(&file, 4096, 4, Duration::from_millis(20), true).unwrap() > 0.0);
    assert!(io::read_random(&file, 1 << 21, 1, Duration::from_millis(20), false).is_err());
    let strided = dir.path().join("strided");
    assert_eq!(io::write_strided(&strided, 47_008 * 9, 47_008, 4).unwrap(), 47_008.0 * 9.0);
    assert_eq!(std::fs::metadata(&strided).unwrap().len(), 47_008 * 9);
    let top = dir.path().join("tree");
    assert_eq!(tree::create(&top, 250, 5000).unwrap(), 250.0);
    assert_eq!(tree::read(&top).unwrap(), 250.0);
    assert_eq!(tree::stat(&top).unwrap(), 250.0);
}
