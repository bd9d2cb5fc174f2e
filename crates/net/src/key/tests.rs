use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_key_comes_back_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let key = ClusterKey::generate();
    key.store(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(ClusterKey::load(&path).unwrap() == key);
    assert!(key.store(&path).is_err(), "a key is never overwritten");
    let shown = format!("{key:?}");
    assert!(shown.contains(&key.fingerprint()) && !shown.contains(&hex(&key.0)));
    assert_ne!(ClusterKey::generate().fingerprint(), key.fingerprint());
}

#[test]
fn golden_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let mut bytes = [0xab; 32];
    bytes[0] = 1;
    ClusterKey::from_bytes(bytes).store(&path).unwrap();
    let expect = format!("01{}\n", "ab".repeat(31));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expect);
}

#[test]
fn what_is_no_private_key_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let load = || ClusterKey::load(&path).unwrap_err().to_string();
    assert!(load().contains("No such file"));
    let good = "0f".repeat(32);
    for bad in ["", "xyz", &good[1..], &good.replace('f', "g"), &"é".repeat(32)] {
        std::fs::write(&path, bad).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(load().contains("hexadecimal"), "{bad:?}");
    }
    std::fs::write(&path, &good).unwrap();
    ClusterKey::load(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(load().contains("0640"));
}
