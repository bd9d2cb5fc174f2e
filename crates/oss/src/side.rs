//! The records beside the label and the boot record: the verifier, and who is shut out. They come with
//! the target's use, so that they are not there is no damage.

use std::path::Path;

use rustix::io::Errno;

use crate::fences::{FENCES, FENCES_BYTES, Fences};
use crate::files::Dir;
use crate::label::RECORD_MAX;
use crate::verifier::{VERIFIER, Verifier};
use crate::{LabelError, OstError};

/// What to do about a damaged verifier.
const WITHOUT_VERIFIER: &str =
    "remove the file, and clients send again what they have not seen committed";
/// What to do about a damaged list of fences.
const WITHOUT_FENCES: &str =
    "it says which clients are shut out: unmount all clients, then remove the file";

/// The verifier of an earlier process.
pub(crate) fn verifier(root: &Dir, path: &Path) -> Result<Option<Verifier>, OstError> {
    read(root, path, VERIFIER, RECORD_MAX, Verifier::from_bytes, WITHOUT_VERIFIER)
}

/// Who is shut out.
pub(crate) fn fences(root: &Dir, path: &Path) -> Result<Option<Fences>, OstError> {
    read(root, path, FENCES, FENCES_BYTES, Fences::from_bytes, WITHOUT_FENCES)
}

fn read<T>(
    root: &Dir,
    path: &Path,
    name: &str,
    limit: usize,
    decode: fn(&[u8]) -> Result<T, LabelError>,
    remedy: &'static str,
) -> Result<Option<T>, OstError> {
    match root.read(name, limit) {
        Ok(bytes) => decode(&bytes).map(Some).map_err(|why| OstError::Record {
            path: path.join(name),
            why,
            remedy,
        }),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(OstError::io(format!("reading {}", path.join(name).display()))(e)),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ost, OstLabel, OstOptions};

    #[test]
    fn a_target_with_a_damaged_record_says_which_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let label = OstLabel { fs: [7; 16], fs_name: "t".into(), index: 0, uuid: [9; 16] };
        Ost::format(dir.path(), &label).unwrap();
        Ost::open(dir.path(), OstOptions::default()).unwrap().close().unwrap();
        for (name, remedy) in [("verifier", "remove the file"), ("fences", "unmount all clients")] {
            let path = dir.path().join(name);
            std::fs::write(&path, b"no record").unwrap();
            let refused = Ost::open(dir.path(), OstOptions::default()).map(drop).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains(&path.display().to_string()) && text.contains(remedy), "{text}");
            std::fs::remove_file(&path).unwrap();
        }
        Ost::open(dir.path(), OstOptions::default()).unwrap().close().unwrap();
    }
}
