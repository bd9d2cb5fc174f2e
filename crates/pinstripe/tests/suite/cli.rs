//! The command line as a contract: words, exit codes, messages, files made.

use std::os::unix::fs::PermissionsExt;

use crate::common::{pin, run};

#[test]
fn help_and_version() {
    let help = run(&["--help"]).ok();
    for word in ["up", "down", "server", "mount", "format", "status", "fsck", "lfs", "set_param"] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
        let page = run(&[word, "--help"]).ok();
        assert!(page.contains("Usage: pinstripe"), "{page}");
    }
    assert!(run(&["version"]).ok().starts_with("pinstripe 0."));
    assert!(run(&["--version"]).ok().starts_with("pinstripe 0."));
    let json: serde_json::Value = serde_json::from_str(&run(&["version", "--json"]).ok()).unwrap();
    assert_eq!(json["wire"], 3);
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("man");
    run(&["man", "--dir", out.to_str().unwrap()]).ok();
    let page = std::fs::read_to_string(out.join("pinstripe-up.1")).unwrap();
    assert!(page.contains("\\-\\-detach"));
    let page = std::fs::read_to_string(out.join("mount.pinstripe.8")).unwrap();
    assert!(page.contains("fstab(5)"));
    assert!(run(&["man"]).ok().contains(".TH pinstripe"));
}

#[test]
fn nonsense_ends_with_2_and_names_it() {
    for (words, part) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["up"], "MOUNTPOINT"),
        (&["up", "/m", "--frobnicate"], "--frobnicate"),
        (&["up", "/m", "--osts", "0"], "--osts"),
        (&["format"], "nothing to format"),
        (&["server"], "nothing to serve"),
        (&["server", "--ost", "/x"], "--listen"),
        (&["server", "--ost", "/x", "--listen", "127.0.0.1:0"], "--mgs-addr"),
        (&["server", "--ost", "/x", "--listen", "nonsense"], "'nonsense'"),
        (&["server", "--mgs", "--mgs-dir", "/x", "--listen", "0.0.0.0:0"], "--allow-remote"),
        (&["server", "--mgs", "--listen", "127.0.0.1:0"], "--mgs-dir"),
        (&["mount", "nonsense", "/"], "'nonsense'"),
        (&["fsck"], "--data"),
        (&["set_param", "loud"], "'loud'"),
        (&["--log-level", "loud", "version"], "loud"),
    ] {
        run(words).refused(2, &[part]);
    }
    run(&["lfs", "frobnicate"]).refused(4, &["frobnicate"]);
    run(&["lfs", "setstripe", "-c", "many", "/"]).refused(4, &["invalid stripe count 'many'"]);
    run(&["lfs", "setstripe", "-S", "100", "/"])
        .refused(4, &["lfs setstripe setstripe: invalid stripe size '100'", "Usage: setstripe"]);
    run(&["lfs", "getstripe", "/"]).refused(25, &["not in a Pinstripe file system"]);
    run(&["status", "/"]).refused(1, &["no Pinstripe of yours is mounted at /"]);
    run(&["down", "/"]).refused(1, &["/ is not a Pinstripe mount"]);
    run(&["fsck", "--data", "/nowhere/at/all"]).refused(1, &["/nowhere/at/all"]);
}

#[test]
fn the_configuration_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    let config = path.to_str().unwrap();
    for (text, parts) in [
        ("[up]\nostss = 3\n", &["c.toml", "'ostss' in [up]", "did you mean 'osts'?"][..]),
        ("frobnicate = 1\n", &["'frobnicate'"]),
        ("this is = = not toml", &["c.toml", "line 1"]),
        ("[up]\nosts = 'four'\n", &["line 2"]),
        ("log_level = 'loud'\n", &["log_level = 'loud'"]),
        ("[up]\nosts = 0\n", &["osts = 0"]),
        ("[up]\noptions = ['frobnicate']\n", &["unknown mount option 'frobnicate'"]),
    ] {
        std::fs::write(&path, text).unwrap();
        let mnt = dir.path().join("mnt");
        run(&["up", mnt.to_str().unwrap(), "--config", config]).refused(2, parts);
        assert!(!mnt.exists(), "a refused command made the mount point");
    }
    run(&["version", "--config", "/nowhere/c.toml"]).refused(1, &["/nowhere/c.toml"]);
}

#[test]
fn errors_are_json_when_asked() {
    let said = run(&["fsck", "--data", "/nowhere", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["code"], 1);
    assert!(json["error"].as_str().unwrap().contains("/nowhere"));
}

#[test]
fn format_makes_targets_and_a_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (key, ost, mdt) = (at("key"), at("ost"), at("mdt"));
    let out = run(&["format", "--ost", &ost, "--index", "3", "--fsname", "scratch", "--key", &key]);
    let out = out.ok();
    assert!(out.contains("made the cluster key") && out.contains("OST0003 of 'scratch'"), "{out}");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let before = std::fs::read(&key).unwrap();

    let again = ["format", "--ost", &ost, "--key", &key];
    run(&again).refused(1, &["OST0003", "'scratch'", "not touched"]);
    run(&["format", "--mdt", &ost, "--key", &key]).refused(1, &["OST0003"]);
    run(&["format", "--mdt", &mdt, "--ost", &mdt, "--key", &key]).refused(2, &["given twice"]);
    assert!(!dir.path().join("mdt").exists(), "all or nothing");

    std::fs::create_dir(&mdt).unwrap();
    std::fs::write(dir.path().join("mdt/thesis.tex"), "precious").unwrap();
    run(&["format", "--mdt", &mdt, "--key", &key]).refused(1, &["not empty", "thesis.tex"]);
    assert_eq!(std::fs::read(dir.path().join("mdt/thesis.tex")).unwrap(), b"precious");

    let json = run(&["format", "--mgs", &at("mgs"), "--key", &key, "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["key_is_new"], &json["targets"][0]["name"]), (&false.into(), &"MGS".into()));
    assert_eq!(std::fs::read(&key).unwrap(), before);

    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    run(&["format", "--ost", &at("o2"), "--key", &key]).refused(1, &["mode 0644"]);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&key, "not a key\n").unwrap();
    run(&["format", "--ost", &at("o2"), "--key", &key]).refused(1, &["key"]);
}

#[test]
fn a_metadata_target_is_formatted_with_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (key, mdt) = (at("key"), at("mdt"));
    let format = ["format", "--mdt", &mdt, "--key", &key];
    let fsck = ["fsck", "--mdt", &mdt];
    run(&format).ok();
    // As a kill just before the end leaves it.
    std::fs::remove_file(at("mdt/label")).unwrap();
    run(&fsck).refused(1, &["no metadata target", "pinstripe format"]);
    run(&format).ok();
    assert!(run(&fsck).ok().contains("clean"), "it never served, and nothing is missing");
    std::fs::remove_dir_all(at("mdt/store")).unwrap();
    let said = run(&fsck);
    assert!(said.code == 1 && said.out.contains("store-lost"), "{said:?}");
    run(&format).refused(1, &["already holds MDT0000", "not touched"]);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    use std::process::Stdio;
    let mut child =
        pin().arg("--help").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&out.stderr).contains("panicked"));
}
