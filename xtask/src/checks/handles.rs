//! File handles: what an NFS server gives its clients opens the file also when the kernel has forgotten
//! it, on a mount that never knew it, after a restart; and nothing else.

use crate::cx::Cx;
use crate::file_handle::FileHandle;
use crate::plan::{Check, Need};
use crate::probe::{Probe, compare};
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "handles",
    about: "files opened by handle: forgotten, moved, removed, on another mount, after a restart",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 120,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 2)?;
    let a = cluster.mount("a")?;
    let local = cx.dir("local")?;
    compare(cx, "as on a local file system", &a, &local, as_locally)?;
    let kept = Kept::new(&a)?;
    let b = cluster.mount("b")?;
    cx.case("on a mount that never knew them", || kept.open(&b));
    compare(cx, "beside another mount", &b, &local, as_locally)?;
    cx.case("moved by another mount", || {
        std::fs::rename(a.join("kept"), a.join("moved"))?;
        // Nobody has looked for it there: the path that the kernel shows may be the old one.
        kept.open_somewhere(&b)?;
        forget()?;
        kept.open_at(&b, "moved")?;
        std::fs::rename(a.join("moved"), a.join("kept"))?;
        forget()?;
        kept.open(&b)
    });
    cx.case("on mounts made anew", || {
        cluster.unmount(&a)?;
        cluster.unmount(&b)?;
        kept.open(&cluster.mount("a")?)?;
        kept.open(&cluster.mount("b")?)
    });
    cx.case("removed by another mount", || {
        std::fs::remove_dir_all(a.join("kept"))?;
        forget()?;
        let mount = File::open(&b)?;
        stale("the file", &kept.file.open(&mount))?;
        stale("the directory", &kept.dir.open(&mount))
    });
    cx.case("a mount of a part stays what it is", || part(&mut cluster, &a));
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

fn stale<T: Debug>(what: &str, outcome: &io::Result<T>) -> Result<()> {
    let stale = outcome.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ESTALE));
    ensure!(stale, "{what}: {outcome:?}");
    Ok(())
}

/// The kernel forgets what nobody uses, of all file systems; twice, as directories go after what is in them.
fn forget() -> io::Result<()> {
    rustix::fs::sync();
    (0..2).try_for_each(|_| std::fs::write("/proc/sys/vm/drop_caches", "3"))
}

fn text(mut file: File) -> io::Result<String> {
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| text)
}

/// Where a directory is that was opened by its handle.
fn path_of(dir: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

fn as_locally(p: &mut Probe) -> Result<()> {
    std::fs::create_dir_all(p.at("d/e"))?;
    std::fs::write(p.at("d/e/f"), "here")?;
    symlink("d", p.at("link"))?;
    let of = |name: &str| FileHandle::of(&p.at(name));
    let (dir, file, link) = (of("d/e")?, of("d/e/f")?, of("link")?);
    let (mount, root) = (File::open(&p.dir)?, p.dir.clone());
    let inside = |dir: File| -> io::Result<PathBuf> {
        Ok(path_of(&dir)?.strip_prefix(&root).map(Path::to_path_buf).unwrap_or_default())
    };
    forget()?;
    p.say("a file", file.open(&mount).and_then(text));
    p.say("a directory", dir.open(&mount).and_then(inside));
    p.say("a symlink", link.open(&mount).map(drop));
    let inode = std::fs::metadata(p.at("d/e/f"))?.ino();
    p.say("the same inode", file.open(&mount)?.metadata().map(|m| m.ino() == inode));
    std::fs::rename(p.at("d/e"), p.at("g"))?;
    std::fs::write(p.at("g/f"), "changed")?;
    forget()?;
    p.say("a directory that moved", dir.open(&mount).and_then(inside));
    p.say("a file that changed", file.open(&mount).and_then(text));
    std::fs::hard_link(p.at("g/f"), p.at("second"))?;
    std::fs::remove_file(p.at("g/f"))?;
    forget()?;
    p.say("a file by its second name", file.open(&mount).and_then(text));
    let held = file.open(&mount)?;
    std::fs::remove_file(p.at("second"))?;
    p.say("a file that is removed and open", file.open(&mount).and_then(text));
    drop(held);
    std::fs::remove_dir(p.at("g"))?;
    forget()?;
    p.say("a removed file", file.open(&mount).map(drop));
    p.say("a removed directory", dir.open(&mount).map(drop));
    for at in [2, 5] {
        let mut wrong = link.clone();
        wrong.bytes[at] ^= 0x55;
        p.say(format!("a handle whose byte {at} is wrong"), wrong.open(&mount).map(drop));
    }
    Ok(())
}

/// Handles of what stays.
struct Kept {
    file: FileHandle,
    dir: FileHandle,
}

impl Kept {
    fn new(mnt: &Path) -> Result<Kept> {
        std::fs::create_dir_all(mnt.join("kept/deep/er"))?;
        let path = mnt.join("kept/deep/er/file");
        std::fs::write(&path, "kept")?;
        let dir = FileHandle::of(&mnt.join("kept/deep/er"))?;
        Ok(Kept { file: FileHandle::of(&path)?, dir })
    }

    fn open(&self, mnt: &Path) -> Result<()> {
        self.open_at(mnt, "kept")
    }

    fn open_at(&self, mnt: &Path, name: &str) -> Result<()> {
        let (path, wanted) = (self.open_somewhere(mnt)?, mnt.join(name).join("deep/er"));
        ensure!(path == wanted, "the directory is at {path:?}, not {wanted:?}");
        Ok(())
    }

    /// Both are what they were; where the directory is.
    fn open_somewhere(&self, mnt: &Path) -> Result<PathBuf> {
        let mount = File::open(mnt)?;
        let found = self.file.open(&mount).and_then(text).context("the file")?;
        ensure!(found == "kept", "the file holds {found:?}");
        let dir = self.dir.open(&mount).context("the directory")?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        ensure!(names == [".", "..", "file"], "the directory lists {names:?}");
        Ok(path_of(&dir)?)
    }
}

/// A handle from outside the part that is mounted opens no directory, and leaves the mount's root alone.
fn part(cluster: &mut Cluster, whole: &Path) -> Result<()> {
    std::fs::create_dir_all(whole.join("part/inner"))?;
    std::fs::create_dir_all(whole.join("beside/inner"))?;
    let inner = FileHandle::of(&whole.join("part/inner"))?;
    let beside = FileHandle::of(&whole.join("beside"))?;
    let deep = FileHandle::of(&whole.join("beside/inner"))?;
    let part = cluster.mount_part("part", "/part")?;
    let (mount, before) = (File::open(&part)?, std::fs::metadata(&part)?);
    ensure!(path_of(&inner.open(&mount)?)? == part.join("inner"), "what is inside is not found");
    for outside in [&beside, &deep] {
        stale("from outside", &outside.open(&mount).map(|dir| path_of(&dir)))?;
    }
    let after = std::fs::metadata(&part)?;
    ensure!(before.ino() == after.ino() && before.nlink() == after.nlink(), "the root has changed");
    ensure!(std::fs::read_dir(&part)?.count() == 1, "the root lists something else");
    drop(mount);
    cluster.unmount(&part)
}
