//! The binary: exit codes, JSON, and the exerciser's processes.

use std::path::Path;
use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pinstripe-lab")).args(args).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn usage_errors_give_2() {
    assert_eq!(lab(&["nonsense"]).status.code(), Some(2));
    assert_eq!(lab(&["model"]).status.code(), Some(2));
    let without = ["model", "--dir", "/tmp", "--reference", "/tmp", "--without", "nonsense"];
    assert_eq!(lab(&without).status.code(), Some(2));
    let missing = ["durable-check", "--dir", "/nonexistent", "--log", "/nonexistent"];
    assert_eq!(lab(&missing).status.code(), Some(2));
}

#[test]
fn the_model_prints_json_and_0() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let args = ["model", "--json", "--ops", "300", "--dir", text(a.path())];
    let out = lab(&[&args[..], &["--reference", text(b.path())]].concat());
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((report["ops"].as_u64(), report["difference"].is_null()), (Some(300), true));
}

#[test]
fn what_was_synced_and_is_gone_gives_1() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let at = ["--dir", text(dir.path()), "--log", text(&log)];
    let write = [&["durable-write", "--ops", "60", "--threads", "2"][..], &at[..]].concat();
    assert_eq!(lab(&write).status.code(), Some(0));
    let check = [&["durable-check", "--json"][..], &at[..]].concat();
    assert_eq!(lab(&check).status.code(), Some(0));
    std::fs::remove_dir_all(dir.path().join("durable-1/t0")).unwrap();
    let out = lab(&check);
    assert_eq!(out.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(!report["violations"].as_array().unwrap().is_empty());
}

#[test]
fn processes_exercise_a_local_directory() {
    let dir = tempfile::tempdir().unwrap();
    for (command, seed) in
        [("exerciser", "0"), ("exerciser", "1"), ("exerciser", "2"), ("racer", "1")]
    {
        let args = [command, "--seconds", "1", "--seed", seed, "--dir", text(dir.path()), "--json"];
        let out = lab(&args);
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(report["totals"]["operations"].as_u64().unwrap() > 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "left something behind");
    }
}
