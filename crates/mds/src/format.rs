//! Making a directory a metadata target: its store first, its label last.
//!
//! Role: a format that is cut short leaves either no target, and can be done again, or a whole one.
//! So a label without a store means that the store was lost: another in its place would hand out
//! the same FIDs again (invariant 11). Never does: remove a store that was ever opened.

use std::fs;
use std::path::{Path, PathBuf};

use store::StoreError;
use store::fjall_engine::{self, FjallOptions};

use crate::label::{self, LabelError, MdtLabel, io};
use crate::server::MdtError;

/// Directory of the store within a target.
pub const STORE: &str = "store";
/// Where it is made.
const NEW: &str = "store.new";

/// Makes `dir`, which is missing or holds nothing, a target.
pub fn format(dir: &Path, label: &MdtLabel) -> Result<(), MdtError> {
    fs::create_dir_all(dir).map_err(io(dir))?;
    for path in left_over(dir)? {
        fs::remove_dir_all(&path).map_err(io(&path))?;
    }
    let (new, path) = (dir.join(NEW), dir.join(STORE));
    let fail = |source| MdtError::Store { path: path.display().to_string(), source };
    let options = FjallOptions::for_new(dir).map_err(fail)?;
    fjall_engine::format(&new, &options).map_err(fail)?;
    fs::rename(&new, &path).map_err(io(&path))?;
    label::sync(dir)?;
    Ok(label::write(dir, label)?)
}

/// Refuses a directory that holds anything but what a format left that was cut short.
pub fn refuse_used(dir: &Path) -> Result<(), LabelError> {
    left_over(dir).map(|_| ())
}

/// The store of a target; `None`: it is lost, as every target was made with one.
pub fn store(dir: &Path) -> Result<Option<PathBuf>, StoreError> {
    let path = dir.join(STORE);
    Ok(fjall_engine::is_store(&path)?.then_some(path))
}

/// Stores of a format that was cut short. Anything else in `dir` is refused by its name.
fn left_over(dir: &Path) -> Result<Vec<PathBuf>, LabelError> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(io(dir))?,
    };
    let mut stores = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io(dir))?;
        let (name, path) = (entry.file_name(), entry.path());
        match name.to_str() {
            Some("lost+found" | label::NEW) => {}
            Some(NEW) if fjall_engine::is_unused(&path) => stores.push(path),
            // It came to this place when it was whole.
            Some(STORE) if whole_and_unused(&path) => stores.push(path),
            _ => {
                let found = name.to_string_lossy().into_owned();
                return Err(LabelError::NotEmpty { path: dir.into(), found });
            }
        }
    }
    Ok(stores)
}

fn whole_and_unused(store: &Path) -> bool {
    fjall_engine::is_store(store).is_ok_and(|there| there) && fjall_engine::is_unused(store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mdt, MdtOptions};

    fn target() -> (tempfile::TempDir, MdtLabel) {
        let label = MdtLabel { fs: [1; 16], fsname: "ab".into(), index: 0, uuid: [3; 16] };
        let dir = tempfile::tempdir().unwrap();
        format(dir.path(), &label).unwrap();
        (dir, label)
    }

    fn names(dir: &Path) -> Vec<String> {
        let read = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            read.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_with_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        refuse_used(dir.path()).unwrap();
        refuse_used(&dir.path().join("absent")).unwrap();
        for name in ["thesis.tex", "label", "store", "store.new"] {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("thesis.tex"), "").unwrap();
            let e = refuse_used(dir.path()).unwrap_err().to_string();
            assert!(e.contains(name), "{e}");
            fs::remove_dir_all(&path).unwrap();
        }
        assert!(matches!(label::read(dir.path()), Err(LabelError::Missing(_))));
    }

    /// Every state that a kill may leave, from the last to the first.
    #[test]
    fn a_format_that_was_cut_short_is_done_again() {
        let (dir, label) = target();
        let at = |name: &str| dir.path().join(name);
        let cuts: [&dyn Fn(); 5] = [
            &|| fs::rename(at("label"), at("label.new")).unwrap(),
            &|| fs::remove_file(at("label")).unwrap(),
            &|| fs::rename(at("store"), at("store.new")).unwrap(),
            &|| fs::remove_file(at("store.new/STORE")).unwrap(),
            &|| fs::remove_file(at("store.new/committed")).unwrap(),
        ];
        for n in 0..cuts.len() {
            // The first leaves `label.new`, all others neither.
            cuts[n.min(1)..=n].iter().for_each(|cut| cut());
            let e = Mdt::open(dir.path(), MdtOptions::default()).err().unwrap();
            assert!(matches!(e, MdtError::Label(LabelError::Missing(_))), "{n}: {e}");
            refuse_used(dir.path()).unwrap();
            format(dir.path(), &label).unwrap();
            assert_eq!(names(dir.path()), ["label", "store"], "{n}");
            // Opening it would be use.
            assert!(whole_and_unused(&at("store")), "{n}");
        }
        Mdt::open(dir.path(), MdtOptions::default()).unwrap().close().unwrap();
    }

    #[test]
    fn a_store_that_was_used_is_never_removed() {
        let (dir, label) = target();
        Mdt::open(dir.path(), MdtOptions::default()).unwrap().close().unwrap();
        fs::remove_file(dir.path().join("label")).unwrap();
        for (from, to) in [(STORE, STORE), (STORE, NEW)] {
            fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
            let e = format(dir.path(), &label).unwrap_err().to_string();
            assert!(e.contains(to), "{e}");
            // Nor without the note of its owner.
            let _ = fs::remove_file(dir.path().join(to).join("OWNER"));
            let e = format(dir.path(), &label).unwrap_err().to_string();
            assert!(e.contains(to), "{e}");
        }
    }

    #[test]
    fn a_lost_store_is_not_made_anew() {
        let (dir, label) = target();
        Mdt::open(dir.path(), MdtOptions::default()).unwrap().close().unwrap();
        let (store, aside) = (dir.path().join(STORE), dir.path().join("aside"));
        fs::rename(&store, &aside).unwrap();
        let refused = |what: &str| {
            let e = Mdt::open(dir.path(), MdtOptions::default()).err().unwrap();
            assert!(matches!(e, MdtError::StoreLost { .. }), "{what}: {e}");
            let text = e.to_string();
            assert!(text.contains(store.to_str().unwrap()), "{what}: {text}");
            assert!(
                text.contains("copy") && text.contains("nothing was changed"),
                "{what}: {text}"
            );
            let found = crate::check::check_dir(dir.path()).unwrap().problems;
            assert_eq!(found.iter().map(|p| p.kind).collect::<Vec<_>>(), ["store-lost"], "{what}");
            assert!(format(dir.path(), &label).is_err(), "{what}");
        };
        refused("nothing");
        assert!(!store.exists());
        std::os::unix::fs::symlink("/nowhere/store", &store).unwrap();
        refused("a link that leads nowhere");
        fs::remove_file(&store).unwrap();
        fs::create_dir(&store).unwrap();
        refused("the mount point of a disk that is not there");
        assert_eq!(names(&store), [""; 0]);
        fs::remove_dir(&store).unwrap();
        fs::write(&store, "").unwrap();
        refused("a file");
        fs::remove_file(&store).unwrap();
        fs::rename(&aside, &store).unwrap();
        Mdt::open(dir.path(), MdtOptions::default()).unwrap().close().unwrap();
    }

    /// The root is made when a target is first opened; until then it is not missing.
    #[test]
    fn a_target_that_never_served_is_clean() {
        let (dir, _) = target();
        assert_eq!(crate::check::check_dir(dir.path()).unwrap().problems, []);
    }
}
