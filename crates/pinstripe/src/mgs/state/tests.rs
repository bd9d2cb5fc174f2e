use super::*;
use proptest::prelude::*;

const FS: [u8; 16] = [7; 16];

fn target(kind: u8, index: u32, uuid: u8, address: &str) -> Register {
    let t = Target { kind, index, uuid: [uuid; 16], address: address.into() };
    Register { fs: FS, target: t }
}

#[test]
fn golden_bytes_of_the_list() {
    let config = Config {
        fs: FS,
        name: "pin".into(),
        generation: 2,
        targets: List(vec![target(KIND_OST, 1, 9, "unix:/s").target]),
    };
    let mut expect = b"PSTMGS\0\0".to_vec();
    expect.extend([1, 0, 0, 0, 67, 0, 0, 0]);
    expect.extend(FS);
    expect.extend([3, 0, 0, 0, b'p', b'i', b'n', 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    expect.extend([2, 1, 0, 0, 0]);
    expect.extend([9; 16]);
    expect.extend([7, 0, 0, 0]);
    expect.extend(b"unix:/s");
    let crc = crc32c::crc32c(&expect);
    expect.extend(crc.to_le_bytes());
    assert_eq!(MgsState::encode(&config), expect);
    assert_eq!(MgsState::decode(&expect), Ok(config));
}

#[test]
fn registrations_and_moves_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = MgsState::open(dir.path(), FS, "pin").unwrap();
    s.register(&target(KIND_OST, 0, 2, "tcp:127.0.0.1:1")).unwrap();
    s.register(&target(KIND_MDT, 0, 1, "tcp:127.0.0.1:2")).unwrap();
    let before = s.config().generation;
    s.register(&target(KIND_OST, 0, 2, "tcp:127.0.0.1:3")).unwrap();
    assert!(s.config().generation > before);
    let kept = s.config().clone();
    s.register(&target(KIND_OST, 0, 2, "tcp:127.0.0.1:3")).unwrap();
    assert_eq!(s.config(), &kept, "the same again changes nothing");
    drop(s);
    let s = MgsState::open(dir.path(), FS, "pin").unwrap();
    assert_eq!(s.config(), &kept);
    let found: Vec<_> = kept.targets.0.iter().map(|t| (t.name(), t.address.as_str())).collect();
    assert_eq!(
        found,
        [("MDT0000".into(), "tcp:127.0.0.1:2"), ("OST0000".into(), "tcp:127.0.0.1:3")]
    );
}

#[test]
fn strangers_and_duplicates_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = MgsState::open(dir.path(), FS, "pin").unwrap();
    s.register(&target(KIND_OST, 3, 2, "tcp:a:1")).unwrap();
    let kept = s.config().clone();
    let e = s.register(&target(KIND_OST, 3, 4, "tcp:a:1")).unwrap_err();
    assert!(e.to_string().contains("OST0003"), "{e}");
    let mut other = target(KIND_OST, 4, 4, "tcp:a:1");
    other.fs = [8; 16];
    let e = s.register(&other).unwrap_err();
    assert!(matches!(&e, RegisterError::OtherFs { .. }) && e.to_string().contains("pin"), "{e}");
    for bad in [
        target(9, 0, 1, "a"),
        target(KIND_OST, INDEX_MAX + 1, 1, "a"),
        target(KIND_OST, 5, 1, ""),
        target(KIND_OST, 5, 1, &"a".repeat(MAX_ADDRESS + 1)),
    ] {
        assert!(matches!(s.register(&bad), Err(RegisterError::Invalid(_))), "{bad:?}");
    }
    assert_eq!(s.config(), &kept);
}

#[test]
fn a_list_that_cannot_be_used_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = MgsState::open(dir.path(), FS, "pin").unwrap();
    s.register(&target(KIND_OST, 3, 2, "tcp:a:1")).unwrap();
    let path = dir.path().join(STATE_FILE);
    let good = std::fs::read(&path).unwrap();
    let e = MgsState::open(dir.path(), [9; 16], "pin").unwrap_err();
    assert!(e.contains("another file system") && e.contains(STATE_FILE), "{e}");
    std::fs::write(&path, &good[..good.len() - 3]).unwrap();
    let e = MgsState::open(dir.path(), FS, "pin").unwrap_err();
    assert!(e.contains("damaged"), "{e}");
    let mut newer = good.clone();
    newer[8] = 2;
    std::fs::write(&path, &newer).unwrap();
    let e = MgsState::open(dir.path(), FS, "pin").unwrap_err();
    assert!(e.contains("version 2"), "{e}");
}

proptest! {
    #[test]
    fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = MgsState::decode(&bytes);
        let _ = MgsState::decode(&KIND.seal(&bytes));
    }
}
