//! Mounting, its errors, dead mounts, ordinary users, and mounts that sync(2) reaches.

use crate::daemon::{self, Daemon};
use crate::memfs::{MemFs, Switches};
use crate::{Mounted, options, root, wait_for};
use pinstripe_fuse::{
    Config, Mount, MountError, MountOptions, MountState, abort, detach_dead, inspect, mount_table,
};
use rustix::mount::MountPropagationFlags;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

fn refusal(path: &Path) -> MountError {
    Mount::new(path, &options()).err().expect("must be refused")
}

#[test]
fn unusable_mount_points_are_named() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(refusal(&dir.path().join("none")), MountError::NoMountPoint(_)));
    assert!(matches!(refusal(&file), MountError::NotADirectory(_)));
    assert!(matches!(refusal(dir.path()), MountError::NotEmpty(_)));
    let m = Mounted::plain();
    assert!(matches!(refusal(m.dir.path()), MountError::AlreadyMounted(_)));
}

#[test]
fn a_missing_device_or_helper_is_named() {
    if !root() {
        return;
    }
    let dir = public_directory();
    let error = daemon::refused_for_nobody(dir.path(), "/nonexistent");
    assert!(error.contains("fusermount3 is not installed"), "{error}");

    own_namespace();
    let empty = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", "/dev", "tmpfs", empty, None).unwrap();
    assert!(matches!(refusal(&dir.path().join("mnt")), MountError::NoDevice(_)));
}

#[test]
fn the_mount_table_shows_what_was_asked_for() {
    if !root() {
        return;
    }
    let more = MountOptions {
        source: "a name, with\\blanks".into(),
        read_only: true,
        noexec: true,
        ..options()
    };
    let m = Mounted::with(MemFs::new(Switches::default()), &more, Config::default());
    let entry = mount_table().unwrap().into_iter().find(|e| e.mountpoint == m.dir.path()).unwrap();
    assert_eq!(
        (entry.fstype.as_str(), entry.source.to_str()),
        ("fuse.memfs", Some("a name, with\\blanks"))
    );
    assert_eq!(inspect(m.dir.path()).unwrap(), MountState::Alive(entry));
    assert_eq!(fs::write(m.path("f"), b"").unwrap_err().raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_mount_in_use_is_busy_but_can_be_detached() {
    if !root() {
        return;
    }
    let mut m = Mounted::plain();
    fs::write(m.path("f"), b"still here").unwrap();
    let open = fs::File::open(m.path("f")).unwrap();
    assert!(matches!(m.handle.unmount(false), Err(MountError::Busy(_))));
    m.handle.unmount(true).unwrap();
    assert_eq!(inspect(m.dir.path()).unwrap(), MountState::None);
    assert_eq!(std::io::read_to_string(&open).unwrap(), "still here");
    drop(open);
    m.running.take().unwrap().join().unwrap();
    assert!(m.fs.destroyed.load(Ordering::SeqCst));
    m.handle.unmount(false).unwrap();
}

#[test]
fn a_mount_that_is_not_served_goes_away() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    drop(Mount::new(dir.path(), &options()).unwrap());
    assert_eq!(inspect(dir.path()).unwrap(), MountState::None);
}

#[test]
fn the_mount_of_a_killed_daemon_is_recognised_and_replaced() {
    if !root() {
        return;
    }
    let mut daemon = Daemon::start("long-ttl", None);
    assert!(matches!(inspect(daemon.path()).unwrap(), MountState::Alive(_)));
    assert!(!detach_dead(daemon.path()).unwrap());
    fs::metadata(daemon.path()).unwrap();
    daemon.kill();
    // A ring is torn down by the kernel a moment after its process is gone.
    wait_for("the end of the connection", || {
        matches!(inspect(daemon.path()).unwrap(), MountState::Dead(_))
    });
    assert!(matches!(refusal(daemon.path()), MountError::DeadMount(_)));
    assert!(detach_dead(daemon.path()).unwrap());
    assert_eq!(inspect(daemon.path()).unwrap(), MountState::None);
    drop(Mount::new(daemon.path(), &options()).unwrap());
}

/// The kernel lets a killed daemon not end while a thread of it drops a page that another was to fill: nobody
/// who waits for the mount hears anything, and no signal ends him.
#[test]
fn a_killed_daemon_that_cannot_end_is_helped() {
    if !root() {
        return;
    }
    let mut daemon = Daemon::start("stuck", None);
    let file = daemon.path().join("gate");
    fs::write(&file, [1; 100]).unwrap();
    let mut reader = std::process::Command::new("cat").arg(&file).spawn().unwrap();
    wait_for("the dropping of a page", || waits_for_good(daemon.pid(), daemon::PAGES));
    daemon.kill_only();
    // Where the kernel ends it all the same there is nothing to do.
    if let MountState::Unresponsive(entry) = inspect(daemon.path()).unwrap() {
        assert!(!detach_dead(daemon.path()).unwrap());
        abort(&entry).unwrap();
    }
    wait_for("the end of the connection", || {
        matches!(inspect(daemon.path()).unwrap(), MountState::Dead(_))
    });
    assert!(!reader.wait().unwrap().success(), "nothing was read");
    daemon.kill();
    assert!(detach_dead(daemon.path()).unwrap());
}

/// Whether a thread of this name sleeps so that no signal wakes it.
fn waits_for_good(pid: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains(&format!("({name}) D "))
    })
}

/// Runs the test again in a mount namespace of its own where every user may open /dev/fuse, unless every user may.
fn everybody_may_open_the_device() -> bool {
    let mode = fs::metadata("/dev/fuse").unwrap().permissions().mode();
    if mode & 0o006 == 0o006 {
        return true;
    }
    let dir = public_directory();
    let script =
        "mknod -m 666 \"$0/fuse\" c 10 229 && mount --bind \"$0/fuse\" /dev/fuse && exec \"$@\"";
    let status = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "mounting::an_ordinary_user_mounts_through_fusermount3", "--nocapture"])
        .status();
    assert!(status.unwrap().success());
    false
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    if !root() || !everybody_may_open_the_device() {
        return;
    }
    const NOBODY: u32 = 65534;
    let mut daemon = Daemon::start("user", Some(NOBODY));
    let top = mount_table().unwrap().into_iter().rfind(|e| e.mountpoint == daemon.path());
    let entry = top.unwrap();
    assert_eq!((entry.fstype.as_str(), entry.source.to_str()), ("fuse.memfs", Some("x,y")));
    // Without allow_other not even root may look into it, so only its owner can tell whether it lives.
    let as_user = |script: &str| {
        std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
            .current_dir(daemon.path().parent().unwrap())
            .status()
            .unwrap()
            .success()
    };
    assert!(as_user("echo works > mnt/f && test \"$(cat mnt/f)\" = works"));
    // The daemon unmounts itself, as that user, when its standard input ends.
    daemon.finish();
    assert_eq!(inspect(daemon.path()).unwrap(), MountState::None);
}

fn block() -> MountOptions {
    MountOptions { forward_sync: true, source: "name:/data".into(), ..options() }
}

fn loop_is_free(device: &Path) -> bool {
    let name = device.file_name().unwrap();
    !Path::new("/sys/block").join(name).join("loop").exists()
}

/// Gives this thread mounts of its own. Otherwise any process that makes a mount namespace at this moment gets a copy of
/// ours, which keeps the file system alive after its unmount here.
fn own_namespace() {
    // SAFETY: only affects this thread's view of the mount table and its working directory.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
}

#[test]
fn syncfs_reaches_a_block_mount_and_umount_waits_for_its_end() {
    if !root() {
        return;
    }
    own_namespace();
    let dir = tempfile::tempdir().unwrap();
    let mount = Mount::new(dir.path(), &block()).unwrap();
    if !mount.forward_sync() {
        eprintln!("skipped: {:?}", mount.forward_sync_refused());
        return;
    }
    let device = mount.loop_device().unwrap().to_owned();
    assert!(!loop_is_free(&device));
    let m = Mounted::on(dir, mount, MemFs::new(Switches::default()), Config::default());
    let entry = match inspect(m.dir.path()).unwrap() {
        MountState::Alive(entry) => entry,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (entry.fstype.as_str(), entry.source.as_ref()),
        ("fuseblk.memfs", device.as_os_str())
    );
    fs::write(m.path("f"), b"data").unwrap();
    rustix::fs::syncfs(fs::File::open(m.path("f")).unwrap()).unwrap();
    assert_eq!(m.fs.called("syncfs"), 1);
    m.unmount();
    assert!(m.fs.destroyed.load(Ordering::SeqCst));
    assert!(m.fs.called("release") > 0);
    m.end();
    wait_for("the loop device's end", || loop_is_free(&device));
}

#[test]
fn the_loop_device_of_a_killed_daemon_vanishes_with_its_mount() {
    if !root() {
        return;
    }
    let mut daemon = Daemon::start("block", None);
    let entry = match inspect(daemon.path()).unwrap() {
        MountState::Alive(entry) => entry,
        other => panic!("{other:?}"),
    };
    if !entry.fstype.starts_with("fuseblk") {
        eprintln!("skipped: no loop devices here");
        return;
    }
    daemon.kill();
    assert!(!loop_is_free(Path::new(&entry.source)));
    wait_for("the end of the connection", || detach_dead(daemon.path()).unwrap());
    wait_for("the loop device's end", || loop_is_free(Path::new(&entry.source)));
}

/// What a daemon of these tests mounts.
pub fn daemon_options(kind: &str) -> MountOptions {
    match kind {
        "block" => block(),
        "user" => MountOptions {
            source: "x,y".into(),
            subtype: "memfs".into(),
            default_permissions: true,
            io_uring: crate::ring::wish(),
            ..MountOptions::default()
        },
        _ => options(),
    }
}

/// A directory that everybody may enter.
pub fn public_directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("fuse-kernel-test-").tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
