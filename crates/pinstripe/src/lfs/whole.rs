//! Which mount a path is in.

use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure, Outcome};

/// All our mounts, in the order they were made.
pub fn mounts() -> Outcome<Vec<PathBuf>> {
    let table = fuse::mount_table().doing(|| "cannot read the mount table".into())?;
    let ours = table.into_iter().filter(|e| e.is_fuse() && e.fstype.ends_with(".pinstripe"));
    Ok(ours.map(|e| e.mountpoint).collect())
}

/// The mount that holds a path.
pub fn mount_of(path: &Path) -> Outcome<PathBuf> {
    let absolute = path.canonicalize().doing(|| format!("lfs: {}", path.display()))?;
    let holding = mounts()?.into_iter().filter(|m| absolute.starts_with(m));
    holding.max_by_key(|m| m.as_os_str().len()).ok_or_else(|| {
        Failure::run(format!("lfs: '{}' is not in a Pinstripe file system", path.display()))
    })
}
