use super::*;
use zerocopy::IntoBytes;

#[test]
fn an_entry_has_the_kernels_bytes() {
    let entry = Entry {
        nodeid: 1,
        generation: 2,
        entry_ttl: Duration::new(3, 5),
        attr_ttl: Duration::new(4, 6),
        attr: Attr {
            ino: 7,
            size: 8,
            blocks: 9,
            atime: Time { sec: -1, nsec: 13 },
            mtime: Time { sec: 11, nsec: 14 },
            ctime: Time { sec: 12, nsec: 15 },
            mode: 16,
            nlink: 17,
            uid: 18,
            gid: 19,
            rdev: 20,
            blksize: 21,
            flags: 22,
        },
    };
    let mut golden = Vec::new();
    for word in [1, 2, 3, 4u64] {
        golden.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [5, 6u32] {
        golden.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [7, 8, 9, u64::MAX, 11, 12] {
        golden.extend_from_slice(&word.to_ne_bytes());
    }
    for word in 13..=22u32 {
        golden.extend_from_slice(&word.to_ne_bytes());
    }
    assert_eq!(entry_out(&entry).as_bytes(), golden);
}

#[test]
fn device_numbers_survive_the_packing() {
    for (major, minor) in [(0, 0), (8, 1), (259, 7), (0xfff, 0xfffff), (1, 0x12345)] {
        assert_eq!(decode_dev(encode_dev(major, minor)), (major, minor));
    }
    assert_eq!(encode_dev(8, 1), 0x0801);
}

#[test]
fn statx_claims_the_time_of_birth_only_when_known() {
    assert_eq!(statx_out(&Statx::default()).stat.mask, 0x7ff);
    let known = Statx { btime: Some(Time { sec: 5, nsec: 6 }), ..Statx::default() };
    let out = statx_out(&known);
    assert_eq!((out.stat.mask, out.stat.btime.sec, out.stat.btime.nsec), (0xfff, 5, 6));
}

#[test]
fn times_before_the_epoch_have_positive_nanoseconds() {
    use std::time::UNIX_EPOCH;
    let t = Time::from(UNIX_EPOCH - Duration::from_nanos(1));
    assert_eq!((t.sec, t.nsec), (-1, 999_999_999));
}
