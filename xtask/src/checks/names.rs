//! Names, links and directory operations at their limits, compared with the local file system.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::probe::{Probe, compare};
use anyhow::{Result, ensure};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags, fgetxattr, flistxattr,
    fsetxattr, linkat, mknodat, open, renameat_with, setxattr,
};
use std::ffi::OsStr;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

pub const CHECK: Check = Check {
    name: "names",
    about: "names to 255 bytes of any byte, links, renames, special files: as the local file system",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let local = cx.dir("local")?;
    compare(cx, "lengths", &fs.mnt, &local, lengths)?;
    compare(cx, "bytes", &fs.mnt, &local, bytes)?;
    compare(cx, "dots", &fs.mnt, &local, dots)?;
    compare(cx, "links", &fs.mnt, &local, links)?;
    compare(cx, "kinds", &fs.mnt, &local, kinds)?;
    compare(cx, "renames", &fs.mnt, &local, renames)?;
    compare(cx, "opens", &fs.mnt, &local, opens)?;
    compare(cx, "running", &fs.mnt, &local, running)?;
    compare(cx, "removed", &fs.mnt, &local, removed)?;
    compare(cx, "special", &fs.mnt, &local, special)?;
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

fn touch(path: impl AsRef<Path>) -> std::io::Result<()> {
    std::fs::File::options().write(true).create_new(true).open(path).map(|_| ())
}

fn exchange(p: &Probe, from: &str, to: &str, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, p.at(from), CWD, p.at(to), flags)
}

fn lengths(p: &mut Probe) -> Result<()> {
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    for (what, name) in [("255", &fits), ("256", &long)] {
        p.say(format!("create {what}"), touch(p.at(name)));
        p.say(format!("stat {what}"), std::fs::metadata(p.at(name)).map(|m| m.len()));
        p.say(format!("mkdir over {what}"), std::fs::create_dir(p.at(name)));
        p.say(format!("symlink {what}"), symlink("x", p.at(format!("s{}", &name[1..]))));
        p.say(
            format!("link {what}"),
            std::fs::hard_link(p.at(name), p.at(format!("h{}", &name[1..]))),
        );
        p.say(format!("rename to {what}"), {
            touch(p.at(format!("from-{what}")))?;
            std::fs::rename(p.at(format!("from-{what}")), p.at(format!("r{}", &name[1..])))
        });
        p.say(format!("unlink {what}"), std::fs::remove_file(p.at(name)));
        p.say(format!("rmdir {what}"), std::fs::remove_dir(p.at(name)));
        p.say(format!("readlink {what}"), std::fs::read_link(p.at(name)));
    }
    let deep = "a/".repeat(2047);
    p.say("path of 4096", std::fs::metadata(format!("{deep}bb")).map(|m| m.len()));
    p.say("path of 4095", std::fs::metadata(format!("{deep}b")).map(|m| m.len()));
    p.say("symlink of 4095", symlink("t".repeat(4095), p.at("long")));
    p.say("symlink of 4096", symlink("t".repeat(4096), p.at("longer")));
    p.say("its length", std::fs::symlink_metadata(p.at("long")).map(|m| m.len()));
    p.say("its text", std::fs::read_link(p.at("long")).map(|t| t.as_os_str().len()));
    p.say("empty symlink", symlink("", p.at("empty")));
    Ok(())
}

fn bytes(p: &mut Probe) -> Result<()> {
    for byte in (1..=255u8).filter(|b| *b != b'/' && *b != b'.') {
        let name = [byte];
        p.say(format!("create {byte}"), std::fs::write(p.at(OsStr::from_bytes(&name)), name));
    }
    let mut found: Vec<_> = std::fs::read_dir(&p.dir)?
        .map(|e| e.map(|e| (e.file_name().as_bytes().to_vec(), e.file_type().ok())))
        .collect::<std::io::Result<_>>()?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    p.fact("all of them", found);
    for byte in (1..=255u8).filter(|b| *b != b'/' && *b != b'.') {
        p.say(format!("read {byte}"), std::fs::read(p.at(OsStr::from_bytes(&[byte]))));
    }
    let strange: &[&[u8]] =
        &[b"...", b".hidden", b" ", b"\xc3\x28", b"a\nb", b"\x7f\xff", b"A", b"a"];
    for name in strange.iter().filter(|n| n.len() > 1) {
        p.say(format!("strange {name:?}"), touch(p.at(OsStr::from_bytes(name))));
    }
    Ok(())
}

fn dots(p: &mut Probe) -> Result<()> {
    std::fs::create_dir(p.at("d"))?;
    p.say("mkdir .", std::fs::create_dir(p.at("d/.")));
    p.say("mkdir ..", std::fs::create_dir(p.at("d/..")));
    p.say("rmdir .", rustix::fs::rmdir(p.at("d/.")));
    p.say("rmdir ..", rustix::fs::rmdir(p.at("d/..")));
    p.say("unlink .", rustix::fs::unlink(p.at("d/.")));
    p.say("rename .", rustix::fs::rename(p.at("d/."), p.at("e")));
    p.say("rename to ..", rustix::fs::rename(p.at("d"), p.at("d/..")));
    p.say("symlink at .", rustix::fs::symlink("x", p.at("d/.")));
    p.say(
        "inode of .",
        Ok::<_, std::io::Error>(
            std::fs::metadata(p.at("d/."))?.ino() == std::fs::metadata(p.at("d"))?.ino(),
        ),
    );
    p.say(
        "inode of ..",
        Ok::<_, std::io::Error>(
            std::fs::metadata(p.at("d/.."))?.ino() == std::fs::metadata(&p.dir)?.ino(),
        ),
    );
    p.say("trailing slash on a file", {
        touch(p.at("f"))?;
        std::fs::metadata(p.at("f/")).map(|m| m.len())
    });
    p.say("mkdir with a slash", std::fs::create_dir(p.at("g/")));
    p.say("create with a slash", touch(p.at("h/")));
    Ok(())
}

fn links(p: &mut Probe) -> Result<()> {
    for n in 0..45 {
        symlink(if n == 0 { "end".into() } else { format!("l{}", n - 1) }, p.at(format!("l{n}")))?;
    }
    std::fs::write(p.at("end"), "end")?;
    p.say("40 symlinks", std::fs::read_to_string(p.at("l39")));
    p.say("41 symlinks", std::fs::read_to_string(p.at("l40")));
    symlink("self", p.at("self"))?;
    p.say("a symlink to itself", std::fs::read(p.at("self")));
    p.say(
        "O_NOFOLLOW",
        open(p.at("l0"), OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty()).map(|_| ()),
    );
    p.say("O_EXCL through a symlink", touch(p.at("self")));
    p.say("link of a file", std::fs::hard_link(p.at("end"), p.at("hard")));
    p.say("nlink", std::fs::metadata(p.at("end")).map(|m| m.nlink()));
    p.say("link over a file", std::fs::hard_link(p.at("end"), p.at("hard")));
    std::fs::create_dir(p.at("dir"))?;
    p.say("link of a directory", std::fs::hard_link(p.at("dir"), p.at("dirlink")));
    p.say("link of a symlink", linkat(CWD, p.at("l0"), CWD, p.at("sl"), AtFlags::empty()));
    p.say("it is a symlink", std::fs::symlink_metadata(p.at("sl")).map(|m| m.is_symlink()));
    p.say(
        "link through a symlink",
        linkat(CWD, p.at("l0"), CWD, p.at("hl"), AtFlags::SYMLINK_FOLLOW),
    );
    p.say("nlink then", std::fs::metadata(p.at("end")).map(|m| m.nlink()));
    p.say("unlink one", std::fs::remove_file(p.at("end")));
    p.say("read the other", std::fs::read_to_string(p.at("hard")));
    p.say("mode of a symlink", std::fs::symlink_metadata(p.at("l1")).map(|m| m.mode() & 0o7777));
    Ok(())
}

fn kinds(p: &mut Probe) -> Result<()> {
    std::fs::create_dir_all(p.at("full/inner"))?;
    touch(p.at("file"))?;
    p.say("open through a file", std::fs::read(p.at("file/x")));
    p.say("create through a file", touch(p.at("file/x")));
    p.say("mkdir through a file", std::fs::create_dir(p.at("file/x")));
    p.say("write to a directory", std::fs::write(p.at("full"), "x"));
    p.say("read a directory", std::fs::read(p.at("full")));
    p.say("unlink a directory", rustix::fs::unlink(p.at("full")));
    p.say("rmdir a file", rustix::fs::rmdir(p.at("file")));
    p.say("rmdir a full one", rustix::fs::rmdir(p.at("full")));
    p.say("rmdir a missing one", rustix::fs::rmdir(p.at("missing")));
    p.say("unlink a missing one", rustix::fs::unlink(p.at("missing")));
    p.say(
        "O_DIRECTORY on a file",
        open(p.at("file"), OFlags::DIRECTORY, Mode::empty()).map(|_| ()),
    );
    p.say("mkdir twice", std::fs::create_dir(p.at("full")));
    p.say("nlink of a directory", std::fs::metadata(p.at("full")).map(|m| m.nlink()));
    p.say("nlink of an empty one", std::fs::metadata(p.at("full/inner")).map(|m| m.nlink()));
    p.say("readlink of a file", std::fs::read_link(p.at("file")));
    p.say(
        "truncate a directory",
        rustix::fs::openat(CWD, p.at("full"), OFlags::WRONLY, Mode::empty()).map(|_| ()),
    );
    Ok(())
}

fn renames(p: &mut Probe) -> Result<()> {
    for name in ["a", "b", "d1/x/y", "d2", "d3", "full/x"] {
        if name.len() == 1 {
            std::fs::write(p.at(name), name)?;
        } else {
            std::fs::create_dir_all(p.at(name))?;
        }
    }
    p.say("over a file", rustix::fs::rename(p.at("a"), p.at("b")));
    p.say("content then", std::fs::read_to_string(p.at("b")));
    p.say("source is gone", std::fs::metadata(p.at("a")).map(|_| ()));
    p.say("directory into itself", rustix::fs::rename(p.at("d1"), p.at("d1/x/z")));
    p.say("onto its ancestor", rustix::fs::rename(p.at("d1/x/y"), p.at("d1")));
    p.say("directory over a file", rustix::fs::rename(p.at("d1"), p.at("b")));
    p.say("file over a directory", rustix::fs::rename(p.at("b"), p.at("d1")));
    p.say("over an empty directory", rustix::fs::rename(p.at("d2"), p.at("d3")));
    p.say("over a full directory", rustix::fs::rename(p.at("d3"), p.at("full")));
    p.say("onto itself", rustix::fs::rename(p.at("b"), p.at("b")));
    p.say("a missing one", rustix::fs::rename(p.at("missing"), p.at("b")));
    p.say("into a missing directory", rustix::fs::rename(p.at("b"), p.at("missing/b")));
    std::fs::hard_link(p.at("b"), p.at("b2"))?;
    p.say("onto its hard link", rustix::fs::rename(p.at("b"), p.at("b2")));
    p.say(
        "both are there",
        (std::fs::metadata(p.at("b")).and(std::fs::metadata(p.at("b2")))).map(|m| m.nlink()),
    );
    std::fs::write(p.at("c"), "c")?;
    p.say("NOREPLACE over one", exchange(p, "c", "b", RenameFlags::NOREPLACE));
    p.say("NOREPLACE", exchange(p, "c", "c2", RenameFlags::NOREPLACE));
    p.say("EXCHANGE", exchange(p, "c2", "b", RenameFlags::EXCHANGE));
    p.say("exchanged", std::fs::read_to_string(p.at("b")));
    p.say("EXCHANGE file and directory", exchange(p, "b", "d1", RenameFlags::EXCHANGE));
    p.say("inside the exchanged", std::fs::metadata(p.at("b/x/y")).map(|m| m.is_dir()));
    p.say("EXCHANGE with a missing one", exchange(p, "b", "missing", RenameFlags::EXCHANGE));
    p.say("EXCHANGE with its child", exchange(p, "b", "b/x", RenameFlags::EXCHANGE));
    p.say("both flags", exchange(p, "b", "c2", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE));
    p.say("to another directory", rustix::fs::rename(p.at("b/x"), p.at("full/moved")));
    p.say(
        "its ..",
        Ok::<_, std::io::Error>(
            std::fs::metadata(p.at("full/moved/.."))?.ino()
                == std::fs::metadata(p.at("full"))?.ino(),
        ),
    );
    p.say(
        "nlinks",
        Ok::<_, std::io::Error>((
            std::fs::metadata(p.at("b"))?.nlink(),
            std::fs::metadata(p.at("full"))?.nlink(),
        )),
    );
    Ok(())
}

fn opens(p: &mut Probe) -> Result<()> {
    std::fs::write(p.at("f"), "0123456789")?;
    let mut append = std::fs::File::options().append(true).read(true).open(p.at("f"))?;
    append.seek(std::io::SeekFrom::Start(2))?;
    p.say("append", append.write(b"ab"));
    p.say("after append", std::fs::read_to_string(p.at("f")));
    p.say(
        "O_TRUNC",
        std::fs::File::options().write(true).truncate(true).open(p.at("f")).map(|_| ()),
    );
    p.say("after O_TRUNC", std::fs::metadata(p.at("f")).map(|m| m.len()));
    p.say("O_EXCL", touch(p.at("f")));
    p.say("write to a read-only descriptor", std::fs::File::open(p.at("f"))?.write(b"x"));
    let mut unreadable = std::fs::File::options().write(true).open(p.at("f"))?;
    p.say("read from a write-only one", unreadable.read(&mut [0; 4]));
    for (label, flags) in [
        ("O_SYNC", OFlags::SYNC),
        ("O_DSYNC", OFlags::DSYNC),
        ("O_NOATIME", OFlags::NOATIME),
        ("O_PATH", OFlags::PATH),
        ("O_NONBLOCK", OFlags::NONBLOCK),
    ] {
        p.say(label, open(p.at("f"), OFlags::RDWR | flags, Mode::empty()).map(|_| ()));
    }
    let tmp = open(&p.dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
    p.say("O_TMPFILE", tmp.as_ref().map(|_| ()).map_err(|e| *e));
    if let Ok(tmp) = tmp {
        p.say("write it", rustix::io::write(&tmp, b"tmp"));
        p.say("its nlink", rustix::fs::fstat(&tmp).map(|s| s.st_nlink));
        p.say("link it", {
            let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&tmp));
            linkat(CWD, from, CWD, p.at("linked"), AtFlags::SYMLINK_FOLLOW)
        });
        p.say("read it", std::fs::read_to_string(p.at("linked")));
        p.say("nlink then", rustix::fs::fstat(&tmp).map(|s| s.st_nlink));
    }
    let excl = open(&p.dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL, Mode::RUSR);
    p.say("O_TMPFILE|O_EXCL", excl.map(|_| ()));
    Ok(())
}

/// What a program runs from is not changed below it, however it is opened. (The kernel asks FUSE to cut before it
/// looks whether it may, where a file is opened for reading only.)
fn running(p: &mut Probe) -> Result<()> {
    // Larger than what is kept with the inode, too.
    let sleep = std::fs::read("/bin/sleep")?;
    for (label, length) in [("small", sleep.len()), ("large", sleep.len() + 300_000)] {
        let mut bytes = sleep.clone();
        bytes.resize(length, 0);
        let file = p.at(label);
        // Written by another process: what other threads start meanwhile must not inherit its descriptor.
        std::fs::write(p.at("bytes"), &bytes)?;
        let copied = std::process::Command::new("cp").arg(p.at("bytes")).arg(&file).status()?;
        ensure!(copied.success(), "cp: {copied}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
        let mut child = std::process::Command::new(&file).arg("60").spawn()?;
        for (how, flags) in [
            ("O_WRONLY", OFlags::WRONLY),
            ("O_RDWR", OFlags::RDWR),
            ("O_WRONLY|O_TRUNC", OFlags::WRONLY | OFlags::TRUNC),
            ("O_RDONLY|O_TRUNC", OFlags::RDONLY | OFlags::TRUNC),
        ] {
            let opened = open(&file, flags, Mode::empty()).map(|_| ());
            p.say(format!("{label}: {how} while it runs"), opened);
        }
        let truncate = std::process::Command::new("truncate").args(["-s", "0"]).arg(&file).output();
        p.say(format!("{label}: truncate"), truncate.map(|t| t.status.code()));
        p.say(format!("{label}: it runs"), child.try_wait());
        child.kill()?;
        p.say(format!("{label}: its end"), child.wait().map(|s| s.signal()));
        p.say(format!("{label}: whole"), std::fs::read(&file).map(|now| now == bytes));
        let cut = open(&file, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).map(|_| ());
        p.say(format!("{label}: O_RDONLY|O_TRUNC after it"), cut);
        p.say(format!("{label}: length"), std::fs::metadata(&file).map(|m| m.len()));
    }
    Ok(())
}

fn removed(p: &mut Probe) -> Result<()> {
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(p.at("f"))?;
    file.write_all(&vec![1; 300_000])?;
    std::fs::remove_file(p.at("f"))?;
    p.say("write to a removed file", file.write(&[2; 100]));
    p.say("its size", file.metadata().map(|m| (m.len(), m.nlink())));
    file.rewind()?;
    let mut all = Vec::new();
    p.say("read it", file.read_to_end(&mut all));
    p.fact("first and last", (all.first().copied(), all.last().copied()));
    p.say("truncate it", file.set_len(10));
    p.say("the name is free", touch(p.at("f")));
    p.say("fsync it", file.sync_all());
    std::fs::create_dir(p.at("d"))?;
    let dir = std::fs::File::open(p.at("d"))?;
    std::fs::remove_dir(p.at("d"))?;
    p.say("create in a removed directory", {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&dir, "x", flags, Mode::RUSR).map(|_| ())
    });
    p.say("its nlink", dir.metadata().map(|m| m.nlink()));
    p.say("mkdir in it", rustix::fs::mkdirat(&dir, "y", Mode::RWXU));
    std::fs::write(p.at("over"), "old")?;
    std::fs::write(p.at("new"), "new")?;
    let mut old = std::fs::File::open(p.at("over"))?;
    std::fs::rename(p.at("new"), p.at("over"))?;
    let mut text = String::new();
    p.say("read what was renamed over", old.read_to_string(&mut text));
    p.fact("it says", text);
    held(p)
}

/// What was removed stays usable through the descriptors of whoever has it open.
fn held(p: &mut Probe) -> Result<()> {
    let fifo = |name: &str| mknodat(CWD, p.at(name), FileType::Fifo, Mode::RWXU, 0);
    fifo("fifo-removed")?;
    fifo("fifo-over")?;
    for name in ["dir-removed", "dir-over", "dir-new"] {
        std::fs::create_dir(p.at(name))?;
    }
    let (user, none) = ("user.a", XattrFlags::empty());
    for name in ["dir-removed", "dir-over"] {
        setxattr(p.at(name), user, b"before", none)?;
    }
    std::fs::write(p.at("file-new"), "")?;
    let names = ["fifo-removed", "fifo-over", "dir-removed", "dir-over"];
    let mut files = Vec::new();
    for name in names {
        let dir = name.starts_with("dir");
        files.push(std::fs::File::options().read(true).write(!dir).open(p.at(name))?);
    }
    std::fs::remove_file(p.at("fifo-removed"))?;
    std::fs::rename(p.at("file-new"), p.at("fifo-over"))?;
    std::fs::remove_dir(p.at("dir-removed"))?;
    std::fs::rename(p.at("dir-new"), p.at("dir-over"))?;
    for (name, file) in names.into_iter().zip(&files) {
        let mut value = [0u8; 20];
        p.say(
            format!("{name}: get"),
            fgetxattr(file, user, &mut value).map(|n| value[..n].to_vec()),
        );
        p.say(format!("{name}: set"), fsetxattr(file, "trusted.a", b"after", none));
        p.say(format!("{name}: list"), flistxattr(file, &mut [0u8; 100]));
        p.say(format!("{name}: chmod"), rustix::fs::fchmod(file, Mode::RUSR));
        p.say(format!("{name}: stat"), file.metadata().map(|m| (m.mode(), m.nlink())));
        p.say(format!("{name}: sync"), file.sync_all());
    }
    Ok(())
}

fn special(p: &mut Probe) -> Result<()> {
    let device = rustix::fs::makedev(1, 3);
    let mode = Mode::RUSR | Mode::WUSR;
    p.say("mkfifo", mknodat(CWD, p.at("fifo"), FileType::Fifo, mode, 0));
    p.say("character device", mknodat(CWD, p.at("null"), FileType::CharacterDevice, mode, device));
    p.say(
        "block device",
        mknodat(CWD, p.at("block"), FileType::BlockDevice, mode, rustix::fs::makedev(7, 99)),
    );
    p.say("socket by mknod", mknodat(CWD, p.at("sock"), FileType::Socket, mode, 0));
    p.say("regular by mknod", mknodat(CWD, p.at("regular"), FileType::RegularFile, mode, 0));
    for name in ["fifo", "null", "block", "sock", "regular"] {
        p.say(
            format!("stat {name}"),
            std::fs::symlink_metadata(p.at(name)).map(|m| (m.mode(), m.rdev(), m.len())),
        );
    }
    p.say(
        "write to the device",
        std::fs::File::options().write(true).open(p.at("null")).and_then(|mut f| f.write(b"gone")),
    );
    p.say("read the device", std::fs::read(p.at("null")));
    // The path of a socket is short, that of the check may not be.
    let here = std::env::current_dir()?;
    std::env::set_current_dir(&p.dir)?;
    let listener = UnixListener::bind("bound");
    p.say(
        "bind a socket",
        listener
            .as_ref()
            .map(|_| ())
            .map_err(|e| std::io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(0))),
    );
    p.say("connect to it", std::os::unix::net::UnixStream::connect("bound").map(|_| ()));
    std::env::set_current_dir(here)?;
    p.say("its kind", std::fs::symlink_metadata(p.at("bound")).map(|m| m.file_type().is_socket()));
    let fifo = p.at("fifo");
    let writer = std::thread::spawn(move || std::fs::write(fifo, "through"));
    p.say("through the FIFO", std::fs::read_to_string(p.at("fifo")));
    p.say("its writer", writer.join().unwrap_or(Ok(())));
    let kinds: Result<Vec<_>, std::io::Error> = {
        let mut found: Vec<_> = std::fs::read_dir(&p.dir)?
            .map(|e| e.and_then(|e| Ok((e.file_name(), e.file_type()?))))
            .collect::<std::io::Result<_>>()?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    };
    p.say("kinds in the directory", kinds);
    Ok(())
}
