//! Starts that are refused or cut short: what they leave, and what the next one makes of it.

use super::*;

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
