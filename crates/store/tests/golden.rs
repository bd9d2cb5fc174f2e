//! The bytes on disk are the ones `docs/format.d/store.md` describes. The constants were computed
//! from that description by another program.

use pinstripe_store::chain::{CommitRecord, RECORD_BYTES, verify};
use pinstripe_store::fjall_engine::committed::{Committed, SLOT_BYTES};
use pinstripe_store::fjall_engine::identity;
use pinstripe_store::{Commit, StoreError, Write};
use proptest::prelude::*;

const FORMAT: &str = "\
5053434f4d4d4954010002000000000000000000000000000100000000000000\
0000000000000000000000000000000000000000000000000000000000000000\
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\
0000000000000000000000000000000000000000000000000000000000000000\
439b7dac40407a2f3a36da9ba54cbb6ae739b117f487f099f4592702f834f782";
const ACQUIRE: &str = "\
5053434f4d4d4954010001000000000001000000000000000200000000000000\
0000000000000000000000000000000000000000000000000000000000000000\
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\
439b7dac40407a2f3a36da9ba54cbb6ae739b117f487f099f4592702f834f782\
3245676f538e0161ae787f87b9a8521b3c4e14d29cfe009eb9a7b596f640f3f2";
const COMMIT: &str = "\
5053434f4d4d4954010000000000000001000000000000000300000000000000\
0000000000000000080706050403020102000000000000001a00000000000000\
ad115c5b926a5c3f8e86ac8553fa8576f30d27809646277546525f46b01ea1d4\
3245676f538e0161ae787f87b9a8521b3c4e14d29cfe009eb9a7b596f640f3f2\
97c4051b1971c1868cbf4ebdca9ecec23cdc4c02f4d66e5a17aa2bcff7ac817c";
const SLOT: &str = "\
5053434f4d544400010000000000000001000000000000000300000000000000\
080706050403020197c4051b1971c1868cbf4ebdca9ecec23cdc4c02f4d66e5a\
17aa2bcff7ac817c000000006d65eb46";
const STORE: &str = "505353544f5245000100010000000000000000000000000000000000809c8a30";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn chain() -> [CommitRecord; 3] {
    let format = CommitRecord::format();
    let acquire = format.acquire();
    let commit = acquire
        .commit(&Commit {
            prev_last: 0,
            last: 0x0102_0304_0506_0708,
            writes: vec![
                Write::Put(b"key".to_vec(), b"value".to_vec()),
                Write::Del(b"gone".to_vec()),
            ]
            .into(),
        })
        .unwrap();
    [format, acquire, commit]
}

#[test]
fn commit_records_have_their_documented_bytes() {
    for (record, golden) in chain().iter().zip([FORMAT, ACQUIRE, COMMIT]) {
        assert_eq!(hex(&record.encode()), golden);
        assert_eq!(CommitRecord::decode(&record.encode()).unwrap(), *record);
    }
}

#[test]
fn side_files_have_their_documented_bytes() {
    let slot = Committed::from(&chain()[2]);
    assert_eq!(hex(&slot.encode()), SLOT);
    assert_eq!(Committed::decode(&slot.encode()).unwrap(), Some(slot));
    assert_eq!(hex(&identity::encode()), STORE);
    identity::check(&identity::encode(), "STORE").unwrap();
}

#[test]
fn a_changed_byte_is_noticed_anywhere() {
    let [format, acquire, commit] = chain();
    for at in 0..RECORD_BYTES {
        let mut bytes = commit.encode();
        bytes[at] ^= 1;
        let error = CommitRecord::decode(&bytes).unwrap_err();
        // The version's high byte makes it a newer one; all else fails the hash.
        let expected = if at == 9 { "Version" } else { "Corrupt" };
        let name = format!("{error:?}");
        assert!(name.starts_with(expected), "byte {at}: {name}");
    }
    for at in 0..SLOT_BYTES {
        let mut bytes = Committed::from(&commit).encode();
        bytes[at] ^= 1;
        assert_eq!(Committed::decode(&bytes), Ok(None), "byte {at}");
    }
    verify(vec![commit, format, acquire]).unwrap();
    for broken in [vec![format, commit], vec![acquire, commit], vec![]] {
        let error = verify(broken).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    }
}

#[test]
fn newer_versions_are_refused_by_name() {
    let mut bytes = chain()[2].encode();
    bytes[8] = 2;
    let error = CommitRecord::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("commit record has format version 2"), "{error}");

    let mut bytes = identity::encode();
    bytes[8] = 9;
    let error = identity::check(&bytes, "/srv/STORE").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("/srv/STORE has format version 9"), "{error}");

    let mut bytes = Committed::from(&chain()[2]).encode();
    bytes[8] = 3;
    let crc = crc32c::crc32c(&bytes[..76]);
    bytes[76..].copy_from_slice(&crc.to_le_bytes());
    let error = Committed::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("has format version 3"), "{error}");
}

proptest! {
    #[test]
    fn decoders_survive_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        prefix in 0usize..=160,
    ) {
        let mut mixed = chain()[2].encode()[..prefix].to_vec();
        mixed.extend_from_slice(&bytes);
        for input in [&bytes, &mixed] {
            let _ = CommitRecord::decode(input);
            let _ = Committed::decode(input);
            let _ = identity::check(input, "STORE");
        }
    }
}
