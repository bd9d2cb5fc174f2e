//! What container engines do: the upper and the work directory of an overlayfs lie on the mount. The
//! kernel takes them only from a file system that renames with a whiteout.

use super::tarball::rsync;
use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "overlay",
    about: "overlayfs with its upper directory on the mount, beside the same work done locally",
    needs: &[Need::Binary, Need::Apt("rsync"), Need::Apt("fuse3"), Need::Root],
    limit: 120,
    weight: 1,
    slow: false,
    run,
};

/// A lower layer.
const LOWER: &str = "\
mkdir -p kept gone/deep moved again links
for n in 1 2 3 4 5 6 7 8; do echo lower $n > kept/$n; echo lower $n > gone/deep/$n; done
echo text > moved/file; echo text > again/old; echo linked > links/one; ln links/one links/two
ln -s kept/1 link; mkfifo fifo; head -c 300000 /dev/zero | tr '\\0' x > large
";

/// What is done on top of it.
const WORK: &str = "\
rm kept/1; echo changed >> kept/2; chmod 600 kept/3; mv kept/4 kept/four; mv kept/5 kept/6
chown 1234:4321 kept/7; truncate -s 3 kept/8; mv -n kept/2 kept/3
rm -r gone; mkdir gone; echo new > gone/new
mv moved there; rm -r again; echo file > again
rm links/two; ln links/one links/three; echo more >> links/three
rm link; ln -s large link; rm fifo; mkdir fifo; echo y >> large
mkdir -p a/b/c; echo deep > a/b/c/d; mv a/b b; rmdir a
";

/// The same work is done at two times: what it leaves gets one.
const TIMES: &str = "find . -depth -exec touch -h -d '2001-02-03 04:05:06.789' {} +";

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let plain = cx.dir("plain")?;
    let layers = Layers::new(cx, &fs, &plain)?;
    cx.case("work in the union", || {
        layers.mount(cx)?;
        layers.both(cx, &plain, WORK)
    });
    cx.case("the union mounted anew", || {
        layers.unmount(cx)?;
        layers.mount(cx)?;
        rsync(cx, &plain, &layers.merged)
    });
    cx.case("whiteouts are what overlayfs makes of them", || {
        layers.unmount(cx)?;
        let gone = layers.upper.join("kept/1").symlink_metadata()?;
        let device = gone.file_type().is_char_device() && gone.rdev() == 0;
        ensure!(device, "not a character device 0:0: {gone:?}");
        Ok(())
    });
    cx.case("after a restart", || {
        fs.down_and_check()?;
        fs.up()?;
        layers.mount(cx)?;
        rsync(cx, &plain, &layers.merged)?;
        layers.both(cx, &plain, "rm -rf kept again b; mkdir kept")?;
        layers.unmount(cx)
    });
    cx.case("fsck finds nothing", || fs.down_and_check());
    Ok(())
}

/// The directories of a union.
struct Layers {
    lower: PathBuf,
    upper: PathBuf,
    work: PathBuf,
    merged: PathBuf,
}

impl Layers {
    /// Fills the lower layer, and `plain` with the same.
    fn new(cx: &Cx, fs: &Fs, plain: &Path) -> Result<Layers> {
        let lower = cx.dir("lower")?;
        let (upper, work) = (fs.mnt.join("upper"), fs.mnt.join("work"));
        std::fs::create_dir(&upper)?;
        std::fs::create_dir(&work)?;
        sh(cx, &lower, LOWER)?;
        cx.cmd("cp").arg("-a").arg(lower.join(".")).arg(plain).ok()?;
        Ok(Layers { lower, upper, work, merged: cx.dir("merged")? })
    }

    fn mount(&self, cx: &Cx) -> Result<()> {
        let dirs = [("lowerdir", &self.lower), ("upperdir", &self.upper), ("workdir", &self.work)];
        let options = dirs.map(|(name, dir)| format!("{name}={}", dir.display())).join(",");
        let mount = cx.cmd("mount").args(["-t", "overlay", "overlay", "-o", &options]);
        mount.arg(&self.merged).ok().context("overlayfs does not take the mount")?;
        Ok(())
    }

    /// Does the same in the union and in `plain`; they must not differ afterwards.
    fn both(&self, cx: &Cx, plain: &Path, script: &str) -> Result<()> {
        for dir in [self.merged.as_path(), plain] {
            sh(cx, dir, script)?;
            sh(cx, dir, TIMES)?;
        }
        rsync(cx, plain, &self.merged)
    }

    fn unmount(&self, cx: &Cx) -> Result<()> {
        cx.cmd("umount").arg(&self.merged).ok()?;
        Ok(())
    }
}

fn sh(cx: &Cx, dir: &Path, script: &str) -> Result<()> {
    cx.cmd("sh").args(["-e", "-c", script]).cwd(dir).ok()?;
    Ok(())
}
