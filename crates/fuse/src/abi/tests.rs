//! Sizes and offsets as linux/fuse.h defines them, written down from the header and not derived from our structs.

use super::*;
use std::mem::offset_of;

#[test]
fn sizes_match_the_header() {
    let sizes = [
        (size_of::<InHeader>(), 40),
        (size_of::<OutHeader>(), 16),
        (size_of::<Attr>(), 88),
        (size_of::<Kstatfs>(), 80),
        (size_of::<FileLock>(), 24),
        (size_of::<EntryOut>(), 128),
        (size_of::<AttrOut>(), 104),
        (size_of::<OpenOut>(), 16),
        (size_of::<CreateOut>(), 144),
        (size_of::<WriteOut>(), 8),
        (size_of::<GetxattrOut>(), 8),
        (size_of::<IoctlOut>(), 16),
        (size_of::<Statx>(), 256),
        (size_of::<StatxOut>(), 288),
        (size_of::<Dirent>(), 24),
        (size_of::<GetattrIn>(), 16),
        (size_of::<MknodIn>(), 16),
        (size_of::<Rename2In>(), 16),
        (size_of::<SetattrIn>(), 88),
        (size_of::<CreateIn>(), 16),
        (size_of::<ReleaseIn>(), 24),
        (size_of::<FlushIn>(), 24),
        (size_of::<ReadIn>(), 40),
        (size_of::<WriteIn>(), 40),
        (size_of::<FsyncIn>(), 16),
        (size_of::<SetxattrIn>(), 16),
        (size_of::<LkIn>(), 48),
        (size_of::<InitCompatIn>(), 16),
        (size_of::<InitIn>(), 64),
        (size_of::<InitOut>(), 64),
        (size_of::<IoctlIn>(), 32),
        (size_of::<FallocateIn>(), 32),
        (size_of::<LseekIn>(), 24),
        (size_of::<CopyFileRangeIn>(), 56),
        (size_of::<StatxIn>(), 24),
        (size_of::<NotifyInvalInodeOut>(), 24),
        (size_of::<NotifyInvalEntryOut>(), 16),
        (size_of::<NotifyDeleteOut>(), 24),
    ];
    for (i, (ours, header)) in sizes.into_iter().enumerate() {
        assert_eq!(ours, header, "struct number {i}");
    }
}

#[test]
fn offsets_match_the_header() {
    assert_eq!(offset_of!(InHeader, unique), 8);
    assert_eq!(offset_of!(InHeader, pid), 32);
    assert_eq!(offset_of!(InHeader, total_extlen), 36);
    assert_eq!(offset_of!(Attr, atimensec), 48);
    assert_eq!(offset_of!(Attr, mode), 60);
    assert_eq!(offset_of!(Attr, flags), 84);
    assert_eq!(offset_of!(EntryOut, attr), 40);
    assert_eq!(offset_of!(SetattrIn, atimensec), 56);
    assert_eq!(offset_of!(SetattrIn, uid), 76);
    assert_eq!(offset_of!(InitOut, max_write), 20);
    assert_eq!(offset_of!(InitOut, max_pages), 28);
    assert_eq!(offset_of!(InitOut, flags2), 32);
    assert_eq!(offset_of!(InitOut, request_timeout), 40);
    assert_eq!(offset_of!(Statx, mode), 28);
    assert_eq!(offset_of!(Statx, attributes_mask), 56);
    assert_eq!(offset_of!(Statx, btime), 80);
    assert_eq!(offset_of!(Statx, rdev_major), 128);
    assert_eq!(offset_of!(StatxOut, stat), 32);
    assert_eq!(offset_of!(LkIn, lk_flags), 40);
}
