//! Starts that are refused or cut short: what they leave, and what the next one makes of it.

use proto::mgs::{KIND_MDT, KIND_OST, Register, Target};

use super::*;
use crate::label::Label;
use crate::mgs::MgsState;

fn wish(osts: Option<u32>) -> Wish {
    Wish { osts, ..Wish::default() }
}

#[track_caller]
fn prepared(dir: &Path, osts: Option<u32>) -> Counts {
    Volume::prepare(dir, &wish(osts)).unwrap().0.counts()
}

/// A refusal with all of these parts that leaves the directory as it was.
#[track_caller]
fn refused(dir: &Path, wish: &Wish, parts: &[&str]) {
    let before = names(dir);
    let e = Volume::prepare(dir, wish).unwrap_err();
    for part in parts {
        assert!(e.text.contains(part), "{part:?} is missing in {:?}", e.text);
    }
    assert_eq!(names(dir), before);
}

/// What lies in a directory, with the text of `pinstripe.json`.
fn names(dir: &Path) -> Vec<String> {
    let read = std::fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> =
        read.map(|e| e.unwrap().file_name().to_str().unwrap().to_string()).collect();
    names.push(std::fs::read_to_string(dir.join(FILE)).unwrap_or_default());
    names.sort();
    names
}

#[test]
fn a_growth_that_something_is_in_the_way_of_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(prepared(dir, Some(2)).osts, 2);
    let (ost, other) = (dir.join("ost2"), tempfile::tempdir().unwrap());
    std::fs::create_dir(&ost).unwrap();
    std::fs::write(ost.join("thesis.tex"), "precious").unwrap();
    refused(dir, &wish(Some(4)), &["ost2 is in the way of OST0002", "move it"]);
    std::fs::remove_dir_all(&ost).unwrap();
    std::os::unix::fs::symlink(other.path(), &ost).unwrap();
    refused(dir, &wish(Some(4)), &["ost2 is in the way of OST0002"]);
    std::fs::remove_file(&ost).unwrap();
    targets::format(Role::Ost, &ost, [7; 16], "pin", 2).unwrap();
    refused(dir, &wish(Some(3)), &["ost2 is in the way of OST0002"]);
    std::fs::remove_dir_all(&ost).unwrap();
    assert_eq!(prepared(dir, None).osts, 2);

    // A target in its place is one that a start made which was cut short.
    let (volume, _) = Volume::prepare(dir, &wish(None)).unwrap();
    let fs = fs_uuid(&volume.key().unwrap().text, "pin");
    drop(volume);
    targets::format(Role::Ost, &ost, fs, "pin", 2).unwrap();
    let uuid = targets::identify(Role::Ost, &ost).unwrap().uuid;
    std::fs::create_dir(dir.join("ost3")).unwrap();
    assert_eq!(prepared(dir, Some(4)).osts, 4);
    assert_eq!(targets::identify(Role::Ost, &ost).unwrap().uuid, uuid);
}

#[test]
fn a_first_start_that_is_refused_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("thesis.tex"), "precious").unwrap();
    refused(dir, &wish(None), &["thesis.tex", "empty directory"]);
    std::fs::remove_file(dir.join("thesis.tex")).unwrap();
    std::fs::write(dir.join("ost3"), "a file").unwrap();
    refused(dir, &wish(None), &["ost3 is in the way of OST0003"]);
    assert_eq!(prepared(dir, Some(2)).osts, 2);
}

/// Writes down what a start that was cut short had done and was to do.
fn cut_short(dir: &Path, counts: Counts, making: Counts) {
    let making = Some(making);
    let facts = Facts { version: VERSION, name: "pin".into(), counts, making };
    std::fs::write(dir.join(FILE), serde_json::to_vec(&facts).unwrap()).unwrap();
}

#[test]
fn what_a_start_was_to_make_the_next_one_makes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let none = Counts { mdts: 0, osts: 0 };
    cut_short(dir, none, Counts { mdts: 1, osts: 3 });
    let e = Volume::open_stopped(dir).unwrap_err();
    assert!(e.text.contains("cut short"), "{e}");
    assert_eq!(prepared(dir, None), Counts { mdts: 1, osts: 3 });
    // Killed while it made the second one.
    cut_short(dir, none, Counts { mdts: 1, osts: 3 });
    std::fs::remove_dir_all(dir.join("ost1")).unwrap();
    std::fs::rename(dir.join("ost2"), dir.join(".new-OST0001")).unwrap();
    refused(dir, &Wish { name: Some("else".into()), ..wish(None) }, &["'pin'"]);
    assert_eq!(prepared(dir, None), Counts { mdts: 1, osts: 3 });
    assert!(!std::fs::read_to_string(dir.join(FILE)).unwrap().contains("making"));
    // A growth that was cut short is finished, or given up.
    let have = Counts { mdts: 1, osts: 3 };
    cut_short(dir, have, Counts { mdts: 1, osts: 5 });
    assert_eq!(prepared(dir, Some(3)), have);
    cut_short(dir, have, Counts { mdts: 1, osts: 5 });
    assert_eq!(prepared(dir, None).osts, 5);
}

#[test]
fn a_lost_description_does_not_leave_targets_out() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let named = Wish { name: Some("else".into()), ..wish(Some(3)) };
    Volume::prepare(dir, &named).unwrap();
    let label = Label::read(&dir.join("mgs")).unwrap().unwrap();
    let mut state = MgsState::open(&dir.join("mgs"), label.fs, "else").unwrap();
    for (kind, count) in [(KIND_MDT, 1), (KIND_OST, 3)] {
        for index in 0..count {
            let uuid = [index as u8 + kind; 16];
            let target = Target { kind, index, uuid, address: "unix:/x".into() };
            state.register(&Register { fs: label.fs, target }).unwrap();
        }
    }
    let forget = || std::fs::remove_file(dir.join(FILE)).unwrap();
    let aside = tempfile::tempdir_in(dir.parent().unwrap()).unwrap();
    let moved = |name: &str, away: bool| {
        let (here, there) = (dir.join(name), aside.path().join(name));
        let (from, to) = if away { (here, there) } else { (there, here) };
        std::fs::rename(from, to).unwrap();
    };
    forget();
    moved("ost1", true);
    moved("ost2", true);
    let parts = ["OST0001 is missing", "ost1", "Also missing: OST0002", FILE];
    refused(dir, &wish(None), &parts);
    refused(dir, &wish(Some(1)), &["holds 3 osts"]);
    moved("ost2", false);
    moved("ost1", false);
    assert_eq!(prepared(dir, None).osts, 3);
    assert_eq!(Volume::open_stopped(dir).unwrap().name(), "else");

    // Without the list, too, only the user knows.
    forget();
    moved("mgs", true);
    refused(dir, &wish(None), &["1 mdts and 3 osts", "--osts"]);
    moved("ost2", true);
    let all = Wish { name: Some("else".into()), mdts: Some(1), osts: Some(3) };
    refused(dir, &all, &["OST0002 is missing"]);
    moved("ost2", false);
    assert_eq!(Volume::prepare(dir, &all).unwrap().0.counts().osts, 3);

    // A first start of a program that wrote its description last.
    forget();
    std::fs::remove_dir_all(dir.join("ost2")).unwrap();
    assert_eq!(prepared(dir, None), DEFAULT_COUNTS);
}

#[test]
fn a_lost_key_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepared(dir, Some(1));
    let (key, aside) = (dir.join(KEY), dir.join("run/aside"));
    std::fs::rename(&key, &aside).unwrap();
    refused(dir, &wish(None), &["the cluster key", key.to_str().unwrap(), "bring it back"]);
    // Nor where the description was lost, or the first start was cut short.
    std::fs::remove_file(dir.join(FILE)).unwrap();
    refused(dir, &wish(None), &["the cluster key"]);
    cut_short(dir, Counts { mdts: 0, osts: 0 }, Counts { mdts: 1, osts: 1 });
    refused(dir, &wish(None), &["the cluster key"]);
    std::fs::rename(&aside, &key).unwrap();
    assert_eq!(prepared(dir, None).osts, 1);
}
