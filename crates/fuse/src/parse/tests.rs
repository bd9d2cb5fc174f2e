use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// A message as the kernel builds it, from numbers.
fn header(len: u32, opcode: u32, extlen_words: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(&opcode.to_ne_bytes());
    bytes.extend_from_slice(&77u64.to_ne_bytes());
    bytes.extend_from_slice(&5u64.to_ne_bytes());
    for id in [1000u32, 1001, 1002] {
        bytes.extend_from_slice(&id.to_ne_bytes());
    }
    bytes.extend_from_slice(&extlen_words.to_ne_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

#[test]
fn a_message_splits_into_header_arguments_and_extensions() {
    let mut bytes = header(40 + 8 + 16, 1, 2);
    bytes.extend_from_slice(b"name\0\0\0\0");
    bytes.extend_from_slice(&[9; 16]);
    let (head, mut args, extensions) = message(&bytes).unwrap();
    assert_eq!((head.unique, head.nodeid), (77, 5));
    assert_eq!((head.uid, head.gid, head.pid), (1000, 1001, 1002));
    assert_eq!(args.name().unwrap(), "name");
    assert_eq!(extensions, [9; 16]);
}

#[test]
fn wrong_lengths_are_refused() {
    assert!(message(&[]).is_err());
    assert!(message(&header(40, 1, 0)[..39]).is_err());
    assert!(message(&header(41, 1, 0)).is_err());
    assert!(message(&header(39, 1, 0)).is_err());
    assert!(message(&header(40, 1, 1)).is_err());
    assert!(message(&header(40, 1, 0)).is_ok());
}

#[test]
fn names_need_their_nul_and_a_byte() {
    assert!(Args(b"abc").name().is_err());
    assert!(Args(b"\0").name().is_err());
    let mut two = Args(b"a\0b\0");
    assert_eq!((two.name().unwrap(), two.name().unwrap()), ("a".as_ref(), "b".as_ref()));
    assert!(two.name().is_err());
}

fn words(words: &[u32]) -> Vec<u8> {
    words.as_bytes().to_vec()
}

#[test]
fn groups_and_security_contexts_come_as_extensions() {
    // One security context of value length 3, then one group; each block padded to eight bytes.
    let mut bytes = words(&[8 + 8 + 12, 1, 3, 0]);
    bytes.extend_from_slice(b"security\0abc\0\0\0\0");
    bytes.extend(words(&[16, 32, 1, 4242]));
    let found = extensions(&bytes).unwrap();
    assert_eq!(found.groups, [4242]);
    assert_eq!(found.security, [(b"security".to_vec(), b"abc".to_vec())]);
}

#[test]
fn unknown_extensions_are_skipped_and_broken_ones_refused() {
    let mut bytes = words(&[12, 99, 7, 0]);
    bytes.extend(words(&[16, 32, 1, 5]));
    assert_eq!(extensions(&bytes).unwrap().groups, [5]);
    assert!(extensions(&words(&[7, 99])).is_err());
    assert!(extensions(&words(&[16, 99])).is_err());
    assert!(extensions(&words(&[16, 32, 2, 5])).is_err());
    assert!(extensions(&[1, 2, 3]).is_err());
}

#[test]
fn old_and_new_forms_of_init_are_understood() {
    let old = words(&[7, 31, 131_072, 3]);
    assert_eq!(init(&mut Args(&old)).unwrap().1, 3);
    let mut new = words(&[7, 45, 131_072, 1 << 30, 5]);
    new.resize(64, 0);
    let (head, flags) = init(&mut Args(&new)).unwrap();
    assert_eq!((head.minor, flags), (45, 1 << 30 | 5 << 32));
    assert!(init(&mut Args(&new[..40])).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_taken_apart_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = message(&bytes);
        let _ = extensions(&bytes);
        let _ = init(&mut Args(&bytes));
    }
}
