use super::*;

#[test]
fn entries_have_the_kernels_bytes_and_respect_the_limit() {
    let mut buf = DirBuf::new(64);
    assert!(buf.add(7, 9, libc::S_IFDIR | 0o755, OsStr::new("ab")));
    let mut golden = Vec::new();
    golden.extend_from_slice(&7u64.to_ne_bytes());
    golden.extend_from_slice(&9u64.to_ne_bytes());
    golden.extend_from_slice(&2u32.to_ne_bytes());
    golden.extend_from_slice(&4u32.to_ne_bytes());
    golden.extend_from_slice(b"ab\0\0\0\0\0\0");
    assert_eq!(buf.bytes(), golden);
    assert!(!buf.add(7, 9, libc::S_IFREG, OsStr::new("123456789")));
    assert!(buf.add(7, 9, libc::S_IFREG, OsStr::new("12345678")));
    assert_eq!(buf.bytes().len(), 64);
    assert!(!buf.add(7, 9, libc::S_IFREG, OsStr::new("1")));
}

#[test]
fn plus_entries_start_with_the_entry() {
    let mut buf = DirPlusBuf::new(160);
    let mut entry = Entry { nodeid: 5, ..Entry::default() };
    entry.attr.ino = 6;
    entry.attr.mode = libc::S_IFREG | 0o644;
    assert!(buf.add(&entry, 3, OsStr::new("12345678")));
    assert_eq!(buf.bytes().len(), 160);
    assert_eq!(buf.bytes()[..8], 5u64.to_ne_bytes());
    assert_eq!(buf.bytes()[128..136], 6u64.to_ne_bytes());
    assert_eq!(buf.bytes()[148..152], 8u32.to_ne_bytes());
    assert!(!buf.add(&entry, 3, OsStr::new("x")));
}
