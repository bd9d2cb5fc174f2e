//! The files of a round.
//!
//! Assumptions: made through one of the mounts, which may be given up meanwhile where others are.

use super::drive::{Options, PAGE, START_MODE};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Length of the large file, so that it lies on the OSTs.
const LARGE_LEN: u64 = 4 << 20;
/// How long a mount that is given up again and again may fail to make them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a directory with the files of a round; its name. Where mounts are given up, the one that prepares a
/// round may be among them, and is told of its loss: then another is made.
pub(super) fn prepare_patiently(options: &Options, round: u64) -> io::Result<String> {
    let lost = |e: &io::Error| e.raw_os_error() == Some(libc::EIO);
    let end = Instant::now() + PATIENCE;
    for n in 0.. {
        let name = format!("coherence-{}-{round}-{n}", options.seed);
        match prepare(&options.dirs[0].join(&name)) {
            Err(e) if lost(&e) && options.sync && Instant::now() < end => {}
            done => return done.map(|()| name),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn prepare(dir: &Path) -> io::Result<()> {
    for d in ["", "one", "two", "made"] {
        std::fs::create_dir(dir.join(d))?;
    }
    std::fs::write(dir.join("small"), [0; PAGE])?;
    std::fs::write(dir.join("pages"), [0; 2 * PAGE])?;
    let large = File::create(dir.join("large"))?;
    large.set_len(LARGE_LEN)?;
    large.write_all_at(&[0; PAGE], LARGE_LEN - PAGE as u64)?;
    super::strides::prepare(dir)?;
    std::fs::write(dir.join("mode"), "")?;
    std::fs::set_permissions(dir.join("mode"), PermissionsExt::from_mode(START_MODE as u32))?;
    File::create(dir.join("log"))?.sync_all()?;
    large.sync_all()
}
