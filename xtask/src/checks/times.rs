//! Times: nanoseconds, which operation moves which time, relatime and noatime, birth time.

use crate::cx::Cx;
use crate::fs::{Fs, How, until};
use crate::plan::{Check, Need};
use crate::probe::{Probe, compare};
use anyhow::{Result, ensure};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    XattrFlags, open, statx, utimensat,
};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "times",
    about: "nanoseconds, which operation moves which time, relatime, noatime, birth time",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let local = cx.dir("local")?;
    compare(cx, "exact", &fs.mnt, &local, exact)?;
    compare(cx, "moved", &fs.mnt, &local, moved)?;
    compare(cx, "relatime", &fs.mnt, &local, relatime)?;
    cx.case("birth time", || birth(&fs.mnt));
    cx.case("times after a restart", || restart(&mut fs));
    cx.case("down and fsck", || fs.down_and_check());
    let more = vec!["-o".to_owned(), "noatime".to_owned()];
    let mut fs = Fs::with(cx, "noatime", How { more, ..How::default() })?;
    cx.case("noatime", || {
        let file = fs.mnt.join("f");
        std::fs::write(&file, "text")?;
        set(&file, OLD, Timespec { tv_sec: OLD.tv_sec + 9, tv_nsec: 0 })?;
        std::fs::read(&file)?;
        ensure!(std::fs::metadata(&file)?.atime() == OLD.tv_sec, "reading moved the access time");
        let dir = fs.mnt.join("dir");
        std::fs::create_dir(&dir)?;
        set(&dir, OLD, OLD)?;
        ensure!(std::fs::read_dir(&dir)?.count() == 0);
        ensure!(std::fs::metadata(&dir)?.atime() == OLD.tv_sec, "listing moved the access time");
        Ok(())
    });
    cx.case("down and fsck, noatime", || fs.down_and_check());
    Ok(())
}

const OLD: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };

fn set(path: &Path, access: Timespec, modification: Timespec) -> rustix::io::Result<()> {
    let times = Timestamps { last_access: access, last_modification: modification };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn exact(p: &mut Probe) -> Result<()> {
    let file = p.at("f");
    std::fs::write(&file, "x")?;
    for seconds in
        [0, 1, -1, -2_000_000_000, 2_147_483_647, 2_147_483_648, 4_294_967_296, 9_000_000_000]
    {
        for nanoseconds in [0, 1, 999_999_999] {
            let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            p.say(format!("set {seconds}.{nanoseconds}"), set(&file, time, time));
            let m = std::fs::metadata(&file)?;
            p.fact(
                format!("get {seconds}.{nanoseconds}"),
                (m.atime(), m.atime_nsec(), m.mtime(), m.mtime_nsec()),
            );
        }
    }
    set(&file, OLD, OLD)?;
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    p.say("omit access", set(&file, omit, Timespec { tv_sec: 7, tv_nsec: 8 }));
    let m = std::fs::metadata(&file)?;
    p.fact("access omitted", (m.atime(), m.mtime(), m.mtime_nsec()));
    p.say("omit modification", set(&file, now, omit));
    let m = std::fs::metadata(&file)?;
    p.fact("modification omitted", (m.atime() > 1_700_000_000, m.mtime()));
    p.say("both omitted", set(&file, omit, omit));
    p.say("nonsense", set(&file, Timespec { tv_sec: 1, tv_nsec: 1_000_000_000 }, OLD));
    symlink("f", p.at("l"))?;
    p.say("of a symlink", set(&p.at("l"), OLD, OLD));
    p.say(
        "the symlink has it",
        std::fs::symlink_metadata(p.at("l")).map(|m| (m.mtime(), m.mtime_nsec())),
    );
    Ok(())
}

/// Which of access, modification and change time differ from before.
fn changed(before: &std::fs::Metadata, path: &Path) -> Result<(bool, bool, bool)> {
    let now = std::fs::symlink_metadata(path)?;
    Ok((
        (now.atime(), now.atime_nsec()) != (before.atime(), before.atime_nsec()),
        (now.mtime(), now.mtime_nsec()) != (before.mtime(), before.mtime_nsec()),
        (now.ctime(), now.ctime_nsec()) != (before.ctime(), before.ctime_nsec()),
    ))
}

/// Waits until the clock of the file system has moved past the change time of `path`.
fn next_tick(path: &Path) -> Result<()> {
    let marker = path.with_extension("tick");
    let then = std::fs::symlink_metadata(path)?;
    until("the clock ticks", || {
        let made = std::fs::write(&marker, "x").and_then(|()| std::fs::metadata(&marker));
        let _ = std::fs::remove_file(&marker);
        made.is_ok_and(|m| (m.ctime(), m.ctime_nsec()) > (then.ctime(), then.ctime_nsec()))
    })
}

type Step = (&'static str, fn(&Path) -> std::io::Result<()>);

const STEPS: &[Step] = &[
    ("write", |f| std::fs::File::options().append(true).open(f)?.write_all(b"more")),
    ("write nothing", |f| std::fs::File::options().append(true).open(f)?.write(b"").map(|_| ())),
    ("truncate", |f| std::fs::File::options().write(true).open(f)?.set_len(1)),
    ("truncate to the same", |f| {
        let length = std::fs::metadata(f)?.len();
        std::fs::File::options().write(true).open(f)?.set_len(length)
    }),
    ("open with O_TRUNC", |f| std::fs::File::create(f).map(|_| ())),
    ("chmod", |f| std::fs::set_permissions(f, std::fs::Permissions::from_mode(0o600))),
    ("chown", |f| std::os::unix::fs::chown(f, Some(0), Some(0))),
    ("stat", |f| std::fs::metadata(f).map(|_| ())),
    ("open and close", |f| std::fs::File::open(f).map(|_| ())),
    ("link", |f| std::fs::hard_link(f, f.with_extension("link"))),
    ("unlink the link", |f| std::fs::remove_file(f.with_extension("link"))),
    ("setxattr", |f| Ok(rustix::fs::setxattr(f, "user.a", b"1", XattrFlags::empty())?)),
    ("removexattr", |f| Ok(rustix::fs::removexattr(f, "user.a")?)),
    ("rename", |f| {
        std::fs::rename(f, f.with_extension("renamed"))?;
        std::fs::rename(f.with_extension("renamed"), f)
    }),
    ("fallocate", |f| {
        let file = std::fs::File::options().write(true).open(f)?;
        Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 5000)?)
    }),
    ("create beside it", |f| std::fs::write(f.with_extension("new"), "x")),
    ("unlink beside it", |f| std::fs::remove_file(f.with_extension("new"))),
    ("mkdir beside it", |f| std::fs::create_dir(f.with_extension("dir"))),
    ("rmdir beside it", |f| std::fs::remove_dir(f.with_extension("dir"))),
    ("failed unlink", |f| {
        let _ = std::fs::remove_file(f.with_extension("missing"));
        Ok(())
    }),
];

fn moved(p: &mut Probe) -> Result<()> {
    let dir = p.at("dir");
    std::fs::create_dir(&dir)?;
    let file = dir.join("f");
    std::fs::write(&file, "text")?;
    for (what, step) in STEPS {
        set(&file, OLD, OLD)?;
        next_tick(&file)?;
        set(&dir, OLD, OLD)?;
        next_tick(&dir)?;
        let (of_file, of_dir) = (std::fs::metadata(&file)?, std::fs::metadata(&dir)?);
        p.say(*what, step(&file));
        p.fact(format!("{what}: file"), changed(&of_file, &file)?);
        // The access time of a directory is moved by listing only, and next_tick works in it.
        let (_, m, c) = changed(&of_dir, &dir)?;
        p.fact(format!("{what}: directory"), (m, c));
    }
    Ok(())
}

/// Reading moves the access time only if it is not later than the modification.
fn relatime(p: &mut Probe) -> Result<()> {
    let file = p.at("f");
    std::fs::write(&file, "text")?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs() as i64;
    let at = |seconds: i64| Timespec { tv_sec: seconds, tv_nsec: 0 };
    for (what, access, modification) in [
        ("access before modification", now - 100, now - 50),
        ("access after modification", now - 50, now - 100),
        ("access two days old", now - 200_000, now - 300_000),
        ("access to come", now + 1000, now),
    ] {
        set(&file, at(access), at(modification))?;
        let mut text = Vec::new();
        std::fs::File::open(&file)?.read_to_end(&mut text)?;
        let moved = std::fs::metadata(&file)?.atime() != access;
        p.fact(what, moved);
        set(&file, at(access), at(modification))?;
        let (from, to) = (std::fs::File::open(&file)?, std::fs::File::create(p.at("copy"))?);
        rustix::fs::copy_file_range(&from, None, &to, None, 4)?;
        p.fact(format!("{what}, copied from"), std::fs::metadata(&file)?.atime() != access);
        looked_at(p, what, at(access), at(modification))?;
    }
    Ok(())
}

/// So does listing a directory, and reading a symbolic link or following it; but not for who asked for that.
fn looked_at(p: &mut Probe, what: &str, access: Timespec, modification: Timespec) -> Result<()> {
    let (dir, link) = (p.at(format!("listed {what}")), p.at(format!("link {what}")));
    std::fs::create_dir(&dir)?;
    std::fs::write(dir.join("in it"), "text")?;
    let moved =
        |path: &Path| Ok::<_, std::io::Error>(path.symlink_metadata()?.atime() != access.tv_sec);
    let list = |flags| {
        let opened = open(&dir, OFlags::RDONLY | OFlags::DIRECTORY | flags, Mode::empty())?;
        let names = rustix::fs::Dir::new(opened)?;
        anyhow::Ok(names.filter_map(Result::ok).count())
    };
    set(&dir, access, modification)?;
    p.fact(format!("{what}: names"), list(OFlags::NOATIME)?);
    p.fact(format!("{what}: listed with O_NOATIME"), moved(&dir)?);
    std::fs::write(dir.join("more"), "text")?;
    set(&dir, access, modification)?;
    p.fact(format!("{what}: names again"), list(OFlags::empty())?);
    p.fact(format!("{what}: listed"), moved(&dir)?);
    set(&dir, access, modification)?;
    p.fact(format!("{what}: set after it"), moved(&dir)?);
    for (how, follow) in [("read", false), ("followed", true)] {
        // Another one: what a link holds is kept.
        let link = link.with_extension(how);
        symlink("f", &link)?;
        set(&link, access, modification)?;
        let done =
            if follow { std::fs::metadata(&link).map(drop) } else { link.read_link().map(drop) };
        p.say(format!("{what}: {how}"), done);
        p.fact(format!("{what}: link {how}"), moved(&link)?);
    }
    Ok(())
}

fn birth(dir: &Path) -> Result<()> {
    let file = dir.join("born");
    std::fs::write(&file, "x")?;
    let born = || -> Result<(i64, u32)> {
        let s = statx(CWD, &file, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME | StatxFlags::ALL)?;
        ensure!(s.stx_mask & StatxFlags::BTIME.bits() != 0, "statx knows no birth time");
        Ok((s.stx_btime.tv_sec, s.stx_btime.tv_nsec))
    };
    let first = born()?;
    next_tick(&file)?;
    std::fs::write(&file, "more")?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    set(&file, OLD, OLD)?;
    ensure!(born()? == first, "the birth time moved");
    let m = std::fs::metadata(&file)?;
    ensure!(
        (m.ctime(), m.ctime_nsec()) > (first.0, i64::from(first.1)),
        "changed before its birth"
    );
    Ok(())
}

fn restart(fs: &mut Fs) -> Result<()> {
    let file = fs.mnt.join("kept");
    std::fs::write(&file, vec![1; 200_000])?;
    set(&file, OLD, Timespec { tv_sec: -5, tv_nsec: 999_999_999 })?;
    let before = std::fs::metadata(&file)?;
    fs.down()?;
    fs.up()?;
    let (a, m, c) = changed(&before, &file)?;
    ensure!(!a && !m && !c, "changed by the restart: access {a}, modification {m}, change {c}");
    Ok(())
}
