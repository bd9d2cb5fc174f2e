use pinstripe_store::memory::{MemoryDisk, acquire};
use pinstripe_store::{Commit, StoreError, Write};
use std::sync::mpsc;

#[test]
fn a_commit_is_read_back_after_another_acquire() {
    let disk = MemoryDisk::new();
    let store = acquire(&disk, "a", 0).unwrap();
    let (tx, rx) = mpsc::channel();
    let commit =
        Commit { prev_last: 0, last: 3, writes: vec![Write::Put(b"k".to_vec(), b"v".to_vec())] };
    store.submit(commit.clone(), Box::new(move |r| tx.send(r).unwrap()));
    assert_eq!(rx.recv().unwrap(), Ok(()));
    let second = acquire(&disk, "b", 3).unwrap();
    assert_eq!((second.info().epoch, second.info().last), (2, 3));
    assert_eq!(second.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(matches!(store.get(b"k"), Err(StoreError::Fenced { .. })));
}
