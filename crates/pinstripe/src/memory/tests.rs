use super::*;

const MIB: u64 = 1 << 20;

/// What is found below files of these contents.
fn found(files: &[(&str, &str)]) -> u64 {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    Memory::below(root.path()).bytes
}

const MACHINE: (&str, &str) =
    ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         1000 kB\n");

#[test]
fn the_least_of_all_limits_counts() {
    assert_eq!(found(&[MACHINE]), 8192 * MIB);
    let v2 = ("proc/self/cgroup", "0::/a/b\n");
    let unlimited = ("sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_eq!(found(&[MACHINE, v2, unlimited]), 8192 * MIB);
    let above = ("sys/fs/cgroup/a/memory.max", "536870912\n");
    assert_eq!(found(&[MACHINE, v2, unlimited, above]), 512 * MIB);
    let high = ("sys/fs/cgroup/a/b/memory.high", "268435456\n");
    assert_eq!(found(&[MACHINE, v2, unlimited, above, high]), 256 * MIB);
}

#[test]
fn groups_of_the_first_kind_count_and_those_a_container_does_not_see() {
    let v1 = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/0123\n0::/\n");
    let none = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_eq!(found(&[MACHINE, v1, none]), 8192 * MIB);
    let own = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    assert_eq!(found(&[MACHINE, v1, own]), 1024 * MIB);
    let cpu = ("sys/fs/cgroup/cpu,cpuacct/x/memory.max", "1\n");
    assert_eq!(found(&[MACHINE, v1, own, cpu]), 1024 * MIB);
}

#[test]
fn nonsense_is_no_limit() {
    for text in ["", "MemTotal:\n", "MemTotal: x kB\n", "MemTotal: 99999999999999999999 kB\n"] {
        assert_eq!(found(&[("proc/meminfo", text), ("proc/self/cgroup", "::\n:\nx\n")]), u64::MAX);
    }
}

#[test]
fn little_memory_makes_small_caches() {
    let part = |bytes| Memory { bytes }.part_of(256 * MIB);
    assert_eq!(part(u64::MAX), 256 * MIB);
    assert_eq!(part(ENOUGH), 256 * MIB);
    assert_eq!(part(512 * MIB), 32 * MIB);
    assert_eq!(part(0), 16 * MIB);
    let threads = |bytes| Memory { bytes }.threads();
    assert_eq!((threads(ENOUGH), threads(512 * MIB), threads(0)), (None, Some(64), Some(32)));
    assert!(Memory { bytes: ENOUGH - 1 }.part_of(u64::MAX) > u64::MAX / 4 * 3, "no overflow");
}
