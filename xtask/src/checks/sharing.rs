//! Two mounts of one file system: what one did, the other sees (invariant 3).

use super::grows::{By, Growing};
use super::{believed, grows, kept, kept_changes, kept_names, own_changes, paths, strides};
use crate::cx::Cx;
use crate::fs::{same, until};
use crate::plan::{Check, Need};
use crate::random::Random;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "sharing",
    about: "two mounts of one set of servers: each sees what the other closed, renamed, removed",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 2)?;
    let a = cluster.mount("a")?;
    let kept = kept::open(&a, "before")?;
    let grown = grows::open(&a, "growing-before", false)?;
    let appended = grows::open(&a, "appended-before", true)?;
    let b = cluster.mount("b")?;
    let (time, times) = (Duration::from_secs(cx.size(3, 1)), cx.size(600, 100));
    cx.case("opened before the other came, and read", || kept::read(&kept, &b, time));
    cx.case("opened before the other came, and written", || kept::written(&kept, &b, time));
    cx.case("opened before the other came, and locked", || kept::locked(&kept, &b, times));
    cx.case("opened before the other came, and listed", || kept::listed(&kept, &b, times / 2));
    drop(kept);
    let grow = |files: &Growing, by: By| grows::grow(files, by, cx.seed(), time);
    let before = || grow(&appended, By::Before(&b));
    cx.case("opened before the other came, and growing", || grow(&grown, By::Mounts(&[&b])));
    cx.case("opened before the other came, and growing by both", || {
        grow(&grown, By::Mounts(&[&a, &b]))
    });
    cx.case("opened before the other came, also to append, and growing by both", before);
    drop((grown, appended));
    cx.case("opened before the other came, written, and written over meanwhile", || overtaken(cx));
    let grown = grows::open(&a, "growing", false)?;
    cx.case("opened among others, and growing", || grow(&grown, By::Mounts(&[&b])));
    cx.case("opened among others, and growing by both", || grow(&grown, By::Mounts(&[&a, &b])));
    drop(grown);
    cx.case("appended, looked at and written over", || grows::rewritten(&a, &b, times));
    let kept = kept::open(&a, "among")?;
    cx.case("opened among others, and read", || kept::read(&kept, &b, time));
    cx.case("opened among others, and written", || kept::written(&kept, &b, time));
    cx.case("opened among others, and locked", || kept::locked(&kept, &b, times));
    cx.case("opened among others, and listed", || kept::listed(&kept, &b, times / 2));
    drop(kept);
    cx.case("read while its mount is stopped", || {
        let pid = cluster.mount_pid(&a)?;
        kept_changes::stopped(&a, &b, pid)
    });
    cx.case("a program that runs again, and is replaced", || {
        let read = || cluster.figure(&a, "osc.bytes_read");
        kept_changes::runs(&a, &b, &cx.set.pinstripe, read)
    });
    for length in [5_000, 50_000, 1_000_000] {
        let name = format!("each kind of change of {length} bytes");
        cx.case(&name, || kept_changes::each(&a, &b, length, cx.seed(), cx.size(400, 100)));
    }
    cx.case("closed data", || closed(&a, &b, cx.seed()));
    cx.case("synced data of an open file", || synced(&a, &b, cx.seed()));
    cx.case("growing and shrinking", || growing(&a, &b));
    cx.case("names", || names(&a, &b));
    cx.case("attributes", || attributes(&a, &b));
    cx.case("names looked at again while their mount is stopped", || {
        let pid = cluster.mount_pid(&a)?;
        kept_names::looked_at(&a, &b, pid)
    });
    cx.case("read when it was made, and looked at while its mount is stopped", || {
        kept_names::made_and_read(&a, cluster.mount_pid(&a)?)
    });
    cx.case("made here and read there, and read on here", || {
        kept_names::read_elsewhere(&a, &b, || cluster.figure(&a, "mdc.stats.ReadInline"))
    });
    cx.case("grown where its name is kept", || kept_names::grown(&a, &b, times / 5));
    let rounds = cx.size(3000, 500);
    cx.case("attributes, one by one", || believed::one_by_one(&a, &b, cx.seed(), rounds));
    let time = Duration::from_secs(cx.size(8, 3));
    cx.case("attributes while others look", || believed::while_others_look(&a, &b, time));
    let time = Duration::from_secs(cx.size(6, 2));
    cx.case("times on the mount that sets them", || own_changes::times(&a, &b, time));
    cx.case("links on the mount that makes them", || own_changes::links(&a, &b, time));
    cx.case("names on the mount that makes them", || own_changes::made(&a, &b, time));
    cx.case("a file's name on the mount that changes it", || {
        own_changes::renamed(&a, &b, time, false)
    });
    cx.case("a directory's name on the mount that changes it", || {
        own_changes::renamed(&a, &b, time, true)
    });
    cx.case("names that both change now and then", || {
        kept_names::changed_now_and_then(&a, &b, cx.seed(), 2 * time)
    });
    let rounds = cx.size(20, 6);
    cx.case("names that several change at once", || kept_names::contended(&a, &b, rounds));
    cx.case("a path walked again while its mount is stopped", || {
        let pid = cluster.mount_pid(&a)?;
        paths::walked(&a, &b, pid)
    });
    cx.case("a working directory in which the other makes names", || paths::worked_in(&a, &b));
    cx.case("names made where the other looks", || paths::made(&a, &b));
    // Last of these: where both mounts contend for names, a kernel may be given none for some minutes.
    let rounds = cx.size(400, 80);
    cx.case("directories moved while the other walks there", || {
        paths::moved(&a, &b, cx.seed(), rounds)
    });
    cx.case("appending from both", || appending(&a, &b));
    cx.case("removed while the other has it open", || removed(&a, &b));
    cx.case("directories and FIFOs removed while the other has them open", || {
        removed_specials(&a, &b)
    });
    cx.case("listing", || listing(&a, &b));
    cx.case("flock", || locks(&a, &b));
    let (c, d) = (cluster.mount_with("c", "localflock")?, cluster.mount_with("d", "localflock")?);
    cx.case("localflock", || local_locks(&c, &d, &a));

    for length in [47_008, 100_000] {
        cx.case(
            &format!("blocks of {length} bytes, of which each of three mounts writes its own"),
            || {
                let sent = |mnt: &Path| cluster.figure(mnt, "osc.stats.write");
                strides::written(&[&a, &b, &c], &d, length, sent)
            },
        );
    }
    let lazy = cluster.mount_with("e", "consistency=close-to-open")?;
    cx.case("close-to-open", || close_to_open(&a, &lazy, cx.seed()));
    let lazier = cluster.mount_with("f", "consistency=relaxed")?;
    cx.case("relaxed", || relaxed(&a, &lazier));
    cx.case("ping-pong", || ping_pong(&a, &b, cx.size(500, 50)));
    let others = [&b, &c, &d, &lazy, &lazier];
    cx.case("appending once the others have gone", || {
        appending_alone(&a, &b, || others.into_iter().try_for_each(|mnt| cluster.unmount(mnt)))
    });
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

fn closed(a: &Path, b: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    for length in [0, 1, 5_000, 70_000, 3_000_000] {
        let (x, y) = (random.bytes(length), random.bytes(length / 2));
        std::fs::write(a.join("f"), &x)?;
        same("written by a", &std::fs::read(b.join("f"))?, &x)?;
        std::fs::write(b.join("f"), &y)?;
        same("written by b", &std::fs::read(a.join("f"))?, &y)?;
    }
    Ok(())
}

fn synced(a: &Path, b: &Path, seed: u64) -> Result<()> {
    let data = Random::new(seed).bytes(2_000_000);
    let mut file = std::fs::File::create(a.join("open"))?;
    file.write_all(&data)?;
    file.sync_all()?;
    let reader = std::fs::File::open(b.join("open"))?;
    let mut back = vec![0; data.len()];
    reader.read_exact_at(&mut back, 0)?;
    same("synced", &back, &data)?;
    file.write_all_at(b"changed", 1_000_000)?;
    file.sync_all()?;
    let mut back = [0; 7];
    reader.read_exact_at(&mut back, 1_000_000)?;
    same("changed and synced", &back, b"changed")
}

/// A reader with a cached size and cached pages sees the new end, both ways.
fn growing(a: &Path, b: &Path) -> Result<()> {
    std::fs::write(a.join("grow"), vec![1; 1000])?;
    ensure!(std::fs::read(b.join("grow"))?.len() == 1000, "first size");
    for length in [7_000, 100_000, 3_000_000, 50, 0, 200_000] {
        let file = std::fs::File::options().write(true).open(a.join("grow"))?;
        file.set_len(0)?;
        file.write_all_at(&vec![3; length], 0)?;
        drop(file);
        let size = std::fs::metadata(b.join("grow"))?.len();
        ensure!(size == length as u64, "size {size}, not {length}");
        same("content", &std::fs::read(b.join("grow"))?, &vec![3; length])?;
    }
    Ok(())
}

fn names(a: &Path, b: &Path) -> Result<()> {
    // Negative entries are cached as well.
    ensure!(!b.join("n1").exists(), "n1 is there too early");
    std::fs::write(a.join("n1"), "1")?;
    ensure!(b.join("n1").exists(), "a name made by a is not seen by b");
    std::fs::rename(a.join("n1"), a.join("n2"))?;
    ensure!(!b.join("n1").exists() && b.join("n2").exists(), "a rename is not seen");
    std::fs::create_dir(b.join("d"))?;
    std::fs::rename(a.join("n2"), a.join("d/n3"))?;
    ensure!(std::fs::read_to_string(b.join("d/n3"))? == "1", "moved into a directory");
    ensure!(std::fs::File::options().write(true).create_new(true).open(b.join("d/n3")).is_err());
    std::fs::remove_file(b.join("d/n3"))?;
    ensure!(std::fs::File::open(a.join("d/n3")).is_err(), "a removed name is still there");
    std::fs::remove_dir(a.join("d"))?;
    ensure!(std::fs::create_dir(b.join("d")).is_ok(), "the name of a removed directory");
    std::fs::remove_dir(b.join("d"))?;
    Ok(())
}

fn attributes(a: &Path, b: &Path) -> Result<()> {
    let (fa, fb) = (a.join("attr"), b.join("attr"));
    std::fs::write(&fa, "x")?;
    for mode in [0o600, 0o640, 0o4755] {
        std::fs::metadata(&fb)?;
        std::fs::set_permissions(&fa, std::fs::Permissions::from_mode(mode))?;
        ensure!(std::fs::metadata(&fb)?.mode() & 0o7777 == mode, "mode {mode:o} is not seen");
    }
    std::os::unix::fs::chown(&fb, Some(7), Some(8))?;
    ensure!(std::fs::metadata(&fa)?.uid() == 7, "the owner is not seen");
    rustix::fs::setxattr(&fa, "user.a", b"1", rustix::fs::XattrFlags::empty())?;
    let mut value = [0; 8];
    ensure!(rustix::fs::getxattr(&fb, "user.a", value.as_mut_slice())? == 1, "the xattr");
    std::fs::hard_link(&fb, b.join("attr2"))?;
    ensure!(std::fs::metadata(&fa)?.nlink() == 2, "the link count");
    let inode = |p: &Path| std::fs::metadata(p).map(|m| m.ino());
    ensure!(inode(&fa)? == inode(&fb)?, "inode numbers differ between mounts");
    Ok(())
}

/// A mount that pauses now and then between the arrival of a write and its answer.
fn overtaken(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "overtaken", Transport::Unix, 1)?;
    let a = cluster.mount_with("a", &format!("pauses={}", cx.seed()))?;
    let kept = kept::open(&a, "before")?;
    let b = cluster.mount("b")?;
    kept::overtaken(&kept, &b, cx.size(200, 60))?;
    let also = kept::others(&kept, &b)?;
    kept::looked_at(&kept, cx.size(400, 100)).context("looked at meanwhile")?;
    drop(also);
    drop(kept);
    cluster.stop_and_check()
}

fn appending(a: &Path, b: &Path) -> Result<()> {
    let open =
        |dir: &Path| std::fs::File::options().append(true).create(true).open(dir.join("log"));
    let (mut x, mut y) = (open(a)?, open(b)?);
    let mut wanted = Vec::new();
    for n in 0..200 {
        let line = format!("line {n}\n").into_bytes();
        if n % 2 == 0 {
            x.write_all(&line)?
        } else {
            y.write_all(&line)?
        }
        wanted.extend_from_slice(&line);
    }
    drop((x, y));
    same("the log, by a", &std::fs::read(a.join("log"))?, &wanted)?;
    same("the log, by b", &std::fs::read(b.join("log"))?, &wanted)
}

/// A descriptor that was opened beside others, and one from before they came, find the end that they moved.
fn appending_alone(a: &Path, b: &Path, leave: impl FnOnce() -> Result<()>) -> Result<()> {
    let open =
        |dir: &Path| std::fs::File::options().append(true).create(true).open(dir.join("alone"));
    let (mut early, mut wanted) = (open(a)?, Vec::new());
    let mut write = |file: &mut std::fs::File, text: String| -> Result<()> {
        file.write_all(text.as_bytes())?;
        wanted.extend(text.into_bytes());
        Ok(())
    };
    write(&mut early, "first\n".into())?;
    let mut theirs = open(b)?;
    let mut late = open(a)?;
    for n in 0..20_000 {
        write(&mut theirs, format!("theirs {n}\n"))?;
        if n % 5_000 == 0 {
            write(&mut late, format!("ours {n}\n"))?;
        }
    }
    drop(theirs);
    leave()?;
    for n in 0..100 {
        write(&mut early, format!("early {n}\n"))?;
        write(&mut late, format!("late {n}\n"))?;
    }
    same("what was appended", &std::fs::read(a.join("alone"))?, &wanted)?;
    // Also through pages that the kernel filled where it took the end to be.
    let file = open(a)?;
    let mut back = vec![0; wanted.len()];
    std::fs::File::open(a.join("alone"))?.read_exact_at(&mut back, 0)?;
    file.sync_all()?;
    same("read once more", &back, &wanted)
}

fn removed(a: &Path, b: &Path) -> Result<()> {
    let data = vec![9; 500_000];
    std::fs::write(a.join("gone"), &data)?;
    let file = std::fs::File::options().read(true).write(true).open(b.join("gone"))?;
    std::fs::remove_file(a.join("gone"))?;
    ensure!(!b.join("gone").exists(), "the name is still there");
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 0)?;
    same("an open file that was removed elsewhere", &back, &data)?;
    file.write_all_at(b"still", 10)?;
    file.sync_all()?;
    Ok(())
}

/// As on a local file system: no link is left, attributes can be changed, nothing can be made in it.
fn removed_specials(a: &Path, b: &Path) -> Result<()> {
    let (dir, fifo) = (b.join("gone-dir"), b.join("gone-fifo"));
    std::fs::create_dir(&dir)?;
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)?;
    let open = std::fs::File::open(&dir)?;
    let held = std::fs::File::options().read(true).write(true).open(&fifo)?;
    std::fs::remove_dir(a.join("gone-dir"))?;
    std::fs::remove_file(a.join("gone-fifo"))?;
    ensure!(!dir.exists() && !fifo.exists(), "the names are still there");
    for (what, file) in [("the directory", &open), ("the FIFO", &held)] {
        let links = file.metadata().with_context(|| format!("fstat of {what}"))?.nlink();
        ensure!(links == 0, "{what} has {links} links");
        file.set_permissions(std::fs::Permissions::from_mode(0o711))?;
        ensure!(file.metadata()?.mode() & 0o777 == 0o711, "the mode of {what}");
    }
    let inside = format!("/proc/self/fd/{}/new", std::os::fd::AsRawFd::as_raw_fd(&open));
    let made = std::fs::File::create(inside).map_err(|e| e.raw_os_error());
    ensure!(made.is_err_and(|e| e == Some(rustix::io::Errno::NOENT.raw_os_error())), "it was made");
    removed_and_let_go(a, b)
}

/// The one who removed it holds it a while longer: the mode it had, whoever set it, is kept when he lets it go.
fn removed_and_let_go(a: &Path, b: &Path) -> Result<()> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open, statvfs};
    let mode = std::fs::Permissions::from_mode;
    let used = || statvfs(b).map(|s| s.f_files - s.f_ffree);
    for (who, early, late) in [("the other", 0o604, 0o604), ("who has it open", 0o640, 0o711)] {
        let (before, name) = (used()?, format!("let-go-{early:o}"));
        mknodat(CWD, b.join(&name), FileType::Fifo, Mode::from_raw_mode(0o640), 0)?;
        let held = std::fs::File::options().read(true).write(true).open(b.join(&name))?;
        std::fs::set_permissions(a.join(&name), mode(early))?;
        let shown = || Ok::<_, anyhow::Error>(held.metadata()?.mode() & 0o777);
        ensure!(shown()? == early, "the mode while it has a name");
        let theirs = open(a.join(&name), OFlags::PATH, Mode::empty())?;
        std::fs::remove_file(a.join(&name))?;
        if late != early {
            held.set_permissions(mode(late))?;
        }
        drop(theirs);
        // The other's kernel gives it back in its own time.
        until("the MDT destroys it", || used().is_ok_and(|now| now <= before))?;
        ensure!(shown()? == late, "the mode that {who} had set is {:o}, not {late:o}", shown()?);
    }
    Ok(())
}

fn listing(a: &Path, b: &Path) -> Result<()> {
    std::fs::create_dir(a.join("list"))?;
    let count = |dir: &Path| std::fs::read_dir(dir.join("list")).map(Iterator::count);
    for n in 0..50 {
        let (maker, viewer) = if n % 2 == 0 { (a, b) } else { (b, a) };
        std::fs::write(maker.join(format!("list/{n}")), "")?;
        ensure!(count(viewer)? == n + 1, "{} entries after {} were made", count(viewer)?, n + 1);
    }
    for n in 0..50 {
        let (remover, viewer) = if n % 2 == 0 { (b, a) } else { (a, b) };
        std::fs::remove_file(remover.join(format!("list/{n}")))?;
        ensure!(count(viewer)? == 49 - n, "a removed entry is still listed");
    }
    Ok(())
}

fn locks(a: &Path, b: &Path) -> Result<()> {
    std::fs::write(a.join("lock"), "")?;
    let (x, y) = (std::fs::File::open(a.join("lock"))?, std::fs::File::open(b.join("lock"))?);
    flock(&x, FlockOperation::LockExclusive)?;
    ensure!(flock(&y, FlockOperation::NonBlockingLockShared).is_err(), "two have the lock");
    flock(&x, FlockOperation::Unlock)?;
    flock(&y, FlockOperation::NonBlockingLockExclusive)?;
    drop(y);
    crate::fs::until("a lock of a closed file is free", || {
        flock(&x, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Locks of these mounts are nobody else's business; among the processes of one they hold.
fn local_locks(c: &Path, d: &Path, coherent: &Path) -> Result<()> {
    std::fs::write(c.join("local"), "")?;
    let open = |dir: &Path| std::fs::File::options().write(true).open(dir.join("local"));
    let files = [open(c)?, open(d)?, open(coherent)?];
    for file in &files {
        flock(file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive)?;
    }
    let second = open(c)?;
    ensure!(
        flock(&second, FlockOperation::NonBlockingLockShared).is_err(),
        "two descriptors of one mount have the lock"
    );
    drop(files);
    crate::fs::until("a lock of a closed file is free", || {
        flock(&second, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// An open sees what another mount had closed, whatever was read before; and appends meet.
fn close_to_open(strict: &Path, lazy: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed ^ 5);
    for length in [10, 70_000, 3_000_000, 500, 0, 200_000] {
        let data = random.bytes(length);
        std::fs::write(strict.join("cto"), &data)?;
        same("first", &std::fs::read(lazy.join("cto"))?, &data)?;
        same("from the kernel's pages", &std::fs::read(lazy.join("cto"))?, &data)?;
        let data = random.bytes(length);
        std::fs::write(strict.join("cto"), &data)?;
        same("as long, other bytes", &std::fs::read(lazy.join("cto"))?, &data)?;
        let data = random.bytes(length / 3);
        std::fs::write(lazy.join("cto"), &data)?;
        same("written by the lazy one", &std::fs::read(strict.join("cto"))?, &data)?;
        same("and seen by itself", &std::fs::read(lazy.join("cto"))?, &data)?;
    }
    std::fs::remove_file(strict.join("log"))?;
    appending(strict, lazy)?;
    // Names may be a second old.
    ensure!(!lazy.join("late").exists(), "a name of another test");
    std::fs::write(strict.join("late"), "x")?;
    crate::fs::until("the name is seen", || lazy.join("late").exists())
}

/// All that another mount did is seen within a moment.
fn relaxed(strict: &Path, lazier: &Path) -> Result<()> {
    for text in ["one", "another", "a third, which is longer"] {
        std::fs::write(strict.join("relaxed"), text)?;
        crate::fs::until("the text is seen", || {
            std::fs::read_to_string(lazier.join("relaxed")).is_ok_and(|t| t == text)
        })?;
    }
    std::fs::write(lazier.join("relaxed"), "back")?;
    same("written by the lazy one", &std::fs::read(strict.join("relaxed"))?, b"back")
}

/// Each overwrites what the other wrote, hundreds of times, through files kept open.
fn ping_pong(a: &Path, b: &Path, rounds: u64) -> Result<()> {
    let open = |dir: &Path| {
        std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("p"))
    };
    let (x, y) = (open(a)?, open(b)?);
    for round in 0..rounds {
        let (writer, reader) = if round % 2 == 0 { (&x, &y) } else { (&y, &x) };
        let value = round.to_le_bytes();
        writer.write_all_at(&value, 4096)?;
        let mut back = [0; 8];
        reader.read_exact_at(&mut back, 4096)?;
        ensure!(back == value, "round {round}: {} is read", u64::from_le_bytes(back));
    }
    Ok(())
}
