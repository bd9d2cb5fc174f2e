//! What the kernel caches, and that notifications make it forget.

use crate::memfs::Switches;
use crate::{Mounted, root};
use pinstripe_fuse::open_flags;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn cached() -> Mounted {
    let open_flags = open_flags::KEEP_CACHE;
    let ttl = Duration::from_secs(3600);
    Mounted::switched(Switches { ttl, open_flags, ..Switches::default() })
}

fn id(m: &Mounted, name: &str) -> u64 {
    m.fs.tree().find(1, name.as_ref()).unwrap()
}

/// Changes a file behind the kernel's back.
fn change(m: &Mounted, name: &str, data: &[u8]) -> u64 {
    let id = id(m, name);
    let mut tree = m.fs.tree();
    let node = tree.node(id).unwrap();
    node.data = data.to_vec();
    node.attr.size = data.len() as u64;
    id
}

#[test]
fn inval_inode_drops_attributes_and_data() {
    if !root() {
        return;
    }
    let m = cached();
    fs::write(m.path("f"), b"old").unwrap();
    // A read from the file system makes the access time unknown, a second one is served from the cache.
    assert_eq!(fs::read(m.path("f")).unwrap(), b"old");
    assert_eq!(fs::read(m.path("f")).unwrap(), b"old");
    let id = change(&m, "f", b"newer");
    assert_eq!(fs::read(m.path("f")).unwrap(), b"old");
    assert!(m.notifier.inval_inode(id, 0, 0).unwrap());
    assert_eq!(fs::read(m.path("f")).unwrap(), b"newer");
    assert!(!m.notifier.inval_inode(id + 1000, 0, 0).unwrap());
}

#[test]
fn what_is_stored_is_read_and_moves_the_end_without_a_question() {
    if !root() {
        return;
    }
    let m = cached();
    fs::write(m.path("f"), b"old").unwrap();
    let file = fs::File::open(m.path("f")).unwrap();
    let read = || {
        let mut back = [0; 16];
        let n = file.read_at(&mut back, 0).unwrap();
        back[..n].to_vec()
    };
    assert_eq!([read(), read()], [b"old", b"old"]);
    let id = change(&m, "f", b"old and new");
    assert!(m.notifier.store(id, 0, b"old and new").unwrap());
    let reads = m.fs.called("read");
    assert_eq!(read(), b"old and new");
    assert_eq!(m.fs.called("read"), reads, "it is there");
    assert!(m.notifier.store(id, 0, b"OLD").unwrap());
    assert_eq!(read(), b"OLD and new", "the end stays where it is");
    assert_eq!(m.fs.called("read"), reads);
    assert!(!m.notifier.store(id + 1000, 0, b"x").unwrap());
}

#[test]
fn negative_entries_are_cached_until_they_are_invalidated() {
    if !root() {
        return;
    }
    let m = cached();
    for _ in 0..3 {
        assert!(!m.path("absent").exists());
    }
    assert_eq!(m.fs.called("lookup"), 1);
    let file = m.fs.tree().make(libc::S_IFREG | 0o644, 0, 0);
    m.fs.tree().add(1, "absent".as_ref(), file);
    assert!(!m.path("absent").exists());
    assert!(m.notifier.inval_entry(1, "absent".as_ref()).unwrap());
    assert!(m.path("absent").exists());
}

#[test]
fn entries_expire_one_by_one_or_all_at_once() {
    if !root() {
        return;
    }
    let m = cached();
    for name in ["a", "b"] {
        fs::write(m.path(name), b"").unwrap();
    }
    let stat = || ["a", "b"].map(|name| m.path(name).exists());
    let lookups = m.fs.called("lookup");
    assert_eq!(stat(), [true, true]);
    assert_eq!(m.fs.called("lookup"), lookups);
    m.fs.tree().remove(1, "a".as_ref()).unwrap();
    m.fs.tree().remove(1, "b".as_ref()).unwrap();
    assert_eq!(stat(), [true, true]);
    assert!(m.notifier.expire_entry(1, "a".as_ref()).unwrap());
    assert_eq!(stat(), [false, true]);
    match m.notifier.inc_epoch() {
        Ok(done) => {
            assert!(done);
            assert_eq!(stat(), [false, false]);
        }
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EINVAL)),
    }
}

#[test]
fn delete_removes_a_name_that_refers_to_the_child() {
    if !root() {
        return;
    }
    let m = cached();
    for name in ["f", "g"] {
        fs::write(m.path(name), b"").unwrap();
    }
    let (f, g) = (id(&m, "f"), id(&m, "g"));
    m.fs.tree().remove(1, "f".as_ref()).unwrap();
    assert!(m.path("f").exists());
    assert!(m.notifier.delete(1, f, "f".as_ref()).unwrap());
    assert!(!m.path("f").exists());
    assert!(!m.notifier.delete(1, g + 1, "g".as_ref()).unwrap());
    assert!(m.path("g").exists());
}

#[test]
fn notifications_after_the_end_are_not_errors() {
    if !root() {
        return;
    }
    let m = cached();
    let notifier = m.notifier.clone();
    m.end();
    assert!(!notifier.inval_inode(1, 0, 0).unwrap());
}
