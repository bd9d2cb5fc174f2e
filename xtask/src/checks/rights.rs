//! Who may do what: modes, ACLs, setgid directories, sticky bit, supplementary groups, umask,
//! capabilities. Each step is done as some user on the mount and on the local file system.

use super::Aligned;
use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::probe::{Probe, compare};
use crate::proc::Cmd;
use crate::user::{User, act};
use anyhow::{Result, ensure};
use rustix::fs::{Access, Mode, OFlags, XattrFlags, lsetxattr, open, removexattr, setxattr};
use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{
    FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink,
};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "rights",
    about: "modes, ACLs, setgid, sticky, supplementary groups, umask, xattr name spaces, as users",
    needs: &[
        Need::Binary,
        Need::Apt("acl"),
        Need::Apt("attr"),
        Need::Apt("fuse3"),
        Need::Apt("util-linux"),
        Need::Root,
    ],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

const OWNER: User = User { uid: 3001, gid: 4001, groups: &[] };
const MEMBER: User = User { uid: 3002, gid: 4002, groups: &[4001, 4007] };
const OTHER: User = User { uid: 3003, gid: 4003, groups: &[] };
const USERS: &[(&str, User)] = &[("owner", OWNER), ("member", MEMBER), ("other", OTHER)];

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let local = cx.dir("local")?;
    for dir in [fs.mnt.as_path(), &local] {
        set_permissions(dir, Permissions::from_mode(0o755))?;
    }
    compare(cx, "modes", &fs.mnt, &local, modes)?;
    compare(cx, "directories", &fs.mnt, &local, directories)?;
    compare(cx, "sticky", &fs.mnt, &local, sticky)?;
    compare(cx, "setgid", &fs.mnt, &local, setgid)?;
    compare(cx, "changing", &fs.mnt, &local, changing)?;
    compare(cx, "set-id bits", &fs.mnt, &local, setid_bits)?;
    compare(cx, "acl", &fs.mnt, &local, acls)?;
    compare(cx, "default acl", &fs.mnt, &local, default_acls)?;
    compare(cx, "umask", &fs.mnt, &local, umask)?;
    compare(cx, "xattrs", &fs.mnt, &local, xattrs)?;
    compare(cx, "execution", &fs.mnt, &local, execution)?;
    cx.case("labels", || labels(&fs.mnt));
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

fn setup(path: &Path, mode: u32, user: User) -> Result<()> {
    chown(path, Some(user.uid), Some(user.gid))?;
    set_permissions(path, Permissions::from_mode(mode))?;
    Ok(())
}

fn open_as(user: User, path: &Path, flags: OFlags) -> Result<Result<(), rustix::io::Errno>> {
    act(user, || open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(|_| ()))
}

fn modes(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    for mode in [0o000, 0o400, 0o040, 0o004, 0o200, 0o020, 0o002, 0o644, 0o660, 0o077, 0o707] {
        let file = p.at(format!("{mode:o}"));
        std::fs::write(&file, "text")?;
        setup(&file, mode, OWNER)?;
        for (who, user) in USERS {
            for (what, flags) in
                [("read", OFlags::RDONLY), ("write", OFlags::WRONLY), ("both", OFlags::RDWR)]
            {
                p.say(format!("{mode:o} {who} {what}"), open_as(*user, &file, flags)?);
            }
            let may = act(*user, || rustix::fs::access(&file, Access::READ_OK | Access::WRITE_OK))?;
            p.say(format!("{mode:o} {who} access"), may);
        }
    }
    Ok(())
}

fn directories(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    for mode in [0o700, 0o750, 0o711, 0o744, 0o722, 0o733, 0o755] {
        let dir = p.at(format!("{mode:o}"));
        std::fs::create_dir(&dir)?;
        std::fs::write(dir.join("f"), "x")?;
        set_permissions(dir.join("f"), Permissions::from_mode(0o666))?;
        setup(&dir, mode, OWNER)?;
        for (who, user) in USERS {
            let label = |what: &str| format!("{mode:o} {who} {what}");
            let (list, read, create, remove, unlink) = act(*user, || {
                let new = dir.join(format!("new-{who}"));
                let made = std::fs::File::create(&new).map(|_| ());
                (
                    std::fs::read_dir(&dir).map(|d| d.count()),
                    std::fs::read(dir.join("f")),
                    made,
                    std::fs::remove_file(&new),
                    rustix::fs::rename(dir.join("f"), dir.join("g")),
                )
            })?;
            p.say(label("list"), list.map(|n| n > 0));
            p.say(label("read inside"), read);
            p.say(label("create"), create);
            p.say(label("remove"), remove);
            p.say(label("rename"), unlink);
            let _ = std::fs::rename(dir.join("g"), dir.join("f"));
        }
    }
    Ok(())
}

fn sticky(p: &mut Probe) -> Result<()> {
    let dir = p.at("tmp");
    std::fs::create_dir(&dir)?;
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    setup(&dir, 0o1777, User { uid: 3009, gid: 4009, groups: &[] })?;
    for (who, user) in USERS {
        let file = dir.join(format!("f-{who}"));
        std::fs::write(&file, "x")?;
        setup(&file, 0o666, OWNER)?;
        p.say(
            format!("{who} renames"),
            act(*user, || rustix::fs::rename(&file, dir.join("moved")))?,
        );
        p.say(format!("{who} removes"), act(*user, || rustix::fs::unlink(&file))?);
        let _ = std::fs::remove_file(dir.join("moved"));
        let over = dir.join(format!("over-{who}"));
        std::fs::write(&over, "x")?;
        let own = dir.join(format!("own-{who}"));
        std::fs::write(&own, "x")?;
        setup(&own, 0o600, *user)?;
        setup(&over, 0o666, OWNER)?;
        p.say(format!("{who} renames over"), act(*user, || rustix::fs::rename(&own, &over))?);
    }
    Ok(())
}

fn setgid(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    let dir = p.at("shared");
    std::fs::create_dir(&dir)?;
    setup(&dir, 0o2777, OWNER)?;
    for (who, user) in USERS {
        let (file, sub) = (dir.join(format!("f-{who}")), dir.join(format!("d-{who}")));
        act(*user, || std::fs::File::create(&file).map(|_| ()))??;
        act(*user, || std::fs::create_dir(&sub))??;
        act(*user, || symlink("x", dir.join(format!("l-{who}"))))??;
        for path in [file, sub.clone(), dir.join(format!("l-{who}"))] {
            let of = std::fs::symlink_metadata(&path)?;
            let name = path.file_name().unwrap_or_default().to_owned();
            p.fact(format!("group and mode of {name:?}"), (of.gid(), of.mode()));
        }
        let made = act(*user, || {
            open(
                dir.join(format!("x-{who}")),
                OFlags::CREATE | OFlags::WRONLY,
                Mode::from_raw_mode(0o2775),
            )
            .map(|_| ())
        })?;
        p.say(format!("{who} makes a setgid file"), made);
        let mode = std::fs::metadata(dir.join(format!("x-{who}"))).map(|m| m.mode());
        p.say(format!("its mode, by {who}"), mode);
    }
    Ok(())
}

fn changing(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o777))?;
    for (who, user) in USERS {
        let file = p.at(format!("f-{who}"));
        std::fs::write(&file, "x")?;
        setup(&file, 0o644, OWNER)?;
        let steps = act(*user, || {
            [
                ("chmod", set_permissions(&file, Permissions::from_mode(0o600))),
                ("chown to other", chown(&file, Some(3003), None)),
                ("chown to itself", chown(&file, Some(3001), None)),
                ("chgrp to 4001", chown(&file, None, Some(4001))),
                ("chgrp to 4007", chown(&file, None, Some(4007))),
                ("chown of nothing", chown(&file, None, None)),
                (
                    "truncate",
                    std::fs::File::options().write(true).open(&file).and_then(|f| f.set_len(0)),
                ),
            ]
        })?;
        for (what, outcome) in steps {
            p.say(format!("{who}: {what}"), outcome);
        }
        let utimes = act(*user, || {
            let stamp = rustix::fs::Timespec { tv_sec: 5, tv_nsec: 5 };
            let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let set = |t| {
                let times = rustix::fs::Timestamps { last_access: t, last_modification: t };
                rustix::fs::utimensat(rustix::fs::CWD, &file, &times, rustix::fs::AtFlags::empty())
            };
            (set(stamp), set(now))
        })?;
        p.say(format!("{who}: sets times"), utimes.0);
        p.say(format!("{who}: sets times to now"), utimes.1);
        let of = std::fs::metadata(&file)?;
        p.fact(format!("after {who}"), (of.uid(), of.gid(), of.mode()));
        let link = p.at(format!("l-{who}"));
        symlink("x", &link)?;
        p.say(format!("{who}: lchown"), act(*user, || lchown(&link, Some(3003), None))?);
    }
    Ok(())
}

/// Set-user-id and set-group-id go away when someone else writes, and on chown.
fn setid_bits(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o777))?;
    for mode in [0o4777, 0o2777, 0o6777, 0o2767, 0o6711] {
        for (who, user) in [("member", MEMBER), ("root", User { uid: 0, gid: 0, groups: &[] })] {
            let file = p.at(format!("w{mode:o}-{who}"));
            std::fs::write(&file, "x")?;
            setup(&file, mode, OWNER)?;
            let wrote = act(user, || {
                std::fs::File::options()
                    .write(true)
                    .open(&file)
                    .and_then(|mut f| std::io::Write::write(&mut f, b"y"))
            })?;
            p.say(format!("{mode:o} written by {who}"), wrote);
            p.say(format!("{mode:o} mode after {who}"), std::fs::metadata(&file).map(|m| m.mode()));
            setup(&file, mode, OWNER)?;
            let cut = act(user, || {
                std::fs::File::options().write(true).open(&file).and_then(|f| f.set_len(0))
            })?;
            p.say(format!("{mode:o} cut by {who}"), cut);
            p.say(
                format!("{mode:o} mode after the cut"),
                std::fs::metadata(&file).map(|m| m.mode()),
            );
        }
        let file = p.at(format!("c{mode:o}"));
        std::fs::write(&file, "x")?;
        setup(&file, mode, OWNER)?;
        for (who, user) in USERS {
            p.say(
                format!("{mode:o} chown of nothing by {who}"),
                act(*user, || chown(&file, None, None))?,
            );
            p.say(format!("{mode:o} mode after it"), std::fs::metadata(&file).map(|m| m.mode()));
        }
        p.say(format!("{mode:o} chown"), chown(&file, Some(3002), Some(4002)));
        p.say(format!("{mode:o} mode after chown"), std::fs::metadata(&file).map(|m| m.mode()));
        p.say(format!("{mode:o} chmod by a stranger to the group"), {
            setup(&file, 0o755, User { uid: 3001, gid: 4009, groups: &[] })?;
            act(OWNER, || set_permissions(&file, Permissions::from_mode(mode)))?
        });
        p.say(format!("{mode:o} mode then"), std::fs::metadata(&file).map(|m| m.mode()));
    }
    Ok(())
}

fn setfacl(words: &[&str], path: &Path) -> Result<()> {
    Cmd::new("setfacl").args(words).arg(path).quiet().ok().map(|_| ())
}

fn getfacl(path: &Path) -> Result<String> {
    let out = Cmd::new("getfacl").args(["-cnE"]).arg(path).quiet().ok()?;
    Ok(out.text())
}

fn acls(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    let lists: &[&[&str]] = &[
        &["-m", "u:3003:rw"],
        &["-m", "u:3003:rw,m::r"],
        &["-m", "g:4007:rw"],
        &["-m", "g:4003:---,u:3002:r"],
        &["-m", "u:3001:---"],
        &["-m", "g:4002:r,g:4007:w"],
    ];
    for (n, list) in lists.iter().enumerate() {
        let file = p.at(format!("f{n}"));
        std::fs::write(&file, "text")?;
        setup(&file, 0o640, OWNER)?;
        setfacl(list, &file)?;
        p.fact(format!("{list:?}"), getfacl(&file)?);
        p.say(format!("{list:?} mode"), std::fs::metadata(&file).map(|m| m.mode()));
        for (who, user) in USERS {
            for (what, flags) in
                [("read", OFlags::RDONLY), ("write", OFlags::WRONLY), ("both", OFlags::RDWR)]
            {
                p.say(format!("{list:?} {who} {what}"), open_as(*user, &file, flags)?);
            }
        }
        set_permissions(&file, Permissions::from_mode(0o604))?;
        p.fact(format!("{list:?} after chmod"), getfacl(&file)?);
    }
    let dir = p.at("dir");
    std::fs::create_dir(&dir)?;
    std::fs::write(dir.join("f"), "x")?;
    setup(&dir, 0o700, OWNER)?;
    setfacl(&["-m", "u:3003:x"], &dir)?;
    for (who, user) in USERS {
        p.say(format!("{who} passes"), act(*user, || std::fs::read(dir.join("f")))?);
        p.say(format!("{who} lists"), act(*user, || std::fs::read_dir(&dir).map(|d| d.count()))?);
    }
    setfacl(&["-b"], &dir)?;
    p.fact("after -b", getfacl(&dir)?);
    let file = p.at("foreign");
    std::fs::write(&file, "x")?;
    p.say(
        "a stranger sets an ACL",
        act(OTHER, || {
            setxattr(&file, "system.posix_acl_access", &[2, 0, 0, 0], XattrFlags::empty())
        })?,
    );
    p.say(
        "nonsense as an ACL",
        setxattr(&file, "system.posix_acl_access", b"nonsense", XattrFlags::empty()),
    );
    Ok(())
}

fn default_acls(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    let dir = p.at("dir");
    std::fs::create_dir(&dir)?;
    setup(&dir, 0o777, OWNER)?;
    setfacl(&["-d", "-m", "u::rwx,g::rx,o::-,u:3003:rw,g:4007:rwx"], &dir)?;
    p.fact("the default", getfacl(&dir)?);
    for (who, user) in USERS {
        let made = act(*user, || {
            let (file, sub) = (dir.join(format!("f-{who}")), dir.join(format!("d-{who}")));
            std::fs::File::create(file).map(|_| ()).and(std::fs::create_dir(sub))
        })?;
        p.say(format!("{who} creates"), made);
        p.fact(format!("file of {who}"), getfacl(&dir.join(format!("f-{who}")))?);
        p.fact(format!("directory of {who}"), getfacl(&dir.join(format!("d-{who}")))?);
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )?;
    p.fact("a FIFO", getfacl(&dir.join("fifo"))?);
    symlink("x", dir.join("link"))?;
    p.fact("below", {
        std::fs::create_dir(dir.join("d-owner/below"))?;
        getfacl(&dir.join("d-owner/below"))?
    });
    for (who, user) in USERS {
        let file = dir.join("f-owner");
        p.say(format!("{who} writes"), open_as(*user, &file, OFlags::WRONLY)?);
    }
    let strange = p.at("strange");
    std::fs::create_dir(&strange)?;
    setup(&strange, 0o2775, User { uid: 3001, gid: 4009, groups: &[] })?;
    for name in ["system.posix_acl_default", "system.posix_acl_access"] {
        let acl = get(&dir, "system.posix_acl_default")?;
        let done = act(OWNER, || setxattr(&strange, name, &acl, XattrFlags::empty()))?;
        p.say(format!("{name} by an owner outside the group"), done);
        p.say("set-gid then", std::fs::metadata(&strange).map(|m| m.mode()));
    }
    setfacl(&["-k"], &dir)?;
    p.fact("after -k", getfacl(&dir)?);
    Ok(())
}

fn umask(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o777))?;
    let old = rustix::process::umask(Mode::empty());
    for mask in [0o000, 0o022, 0o077, 0o777, 0o027] {
        rustix::process::umask(Mode::from_raw_mode(mask));
        let (file, dir, fifo) =
            (p.at(format!("f{mask:o}")), p.at(format!("d{mask:o}")), p.at(format!("p{mask:o}")));
        open(&file, OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o666))?;
        rustix::fs::mkdir(&dir, Mode::from_raw_mode(0o777))?;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o666),
            0,
        )?;
        for path in [file, dir, fifo] {
            let mode = std::fs::metadata(&path)?.mode();
            p.fact(format!("{:?}", path.file_name()), mode);
        }
    }
    rustix::process::umask(old);
    Ok(())
}

/// A label that is there is there; one that is not is no attribute at all where no label means
/// anything.
fn labels(mnt: &Path) -> Result<()> {
    let file = mnt.join("labelled");
    std::fs::write(&file, "x")?;
    let name = "security.selinux";
    let absent = if Path::new("/sys/fs/selinux/enforce").exists() {
        rustix::io::Errno::NODATA
    } else {
        rustix::io::Errno::OPNOTSUPP
    };
    ensure!(get(&file, name) == Err(absent), "an absent label: {:?}", get(&file, name));
    setxattr(&file, name, b"a:b:c:s0\0", XattrFlags::empty())?;
    ensure!(get(&file, name).as_deref() == Ok(&b"a:b:c:s0\0"[..]), "{:?}", get(&file, name));
    removexattr(&file, name)?;
    ensure!(get(&file, name) == Err(absent), "a removed label: {:?}", get(&file, name));
    Ok(())
}

fn xattrs(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    let file = p.at("f");
    std::fs::write(&file, "x")?;
    setup(&file, 0o644, OWNER)?;
    symlink("f", p.at("l"))?;
    let none = XattrFlags::empty();
    for (who, user) in USERS.iter().chain([&("root", User { uid: 0, gid: 0, groups: &[] })]) {
        for name in ["user.a", "trusted.a", "security.a", "system.nonsense", "nonsense.a", "user."]
        {
            p.say(
                format!("{who} sets {name}"),
                act(*user, || setxattr(&file, name, who.as_bytes(), none))?,
            );
            p.say(format!("{who} gets {name}"), act(*user, || get(&file, name))?);
        }
        p.say(format!("{who} lists"), act(*user, || list(&file))?);
    }
    p.say("CREATE over one", setxattr(&file, "user.a", b"1", XattrFlags::CREATE));
    p.say("REPLACE of none", setxattr(&file, "user.none", b"1", XattrFlags::REPLACE));
    p.say("REPLACE", setxattr(&file, "user.a", b"2", XattrFlags::REPLACE));
    p.say("empty value", setxattr(&file, "user.empty", b"", none));
    p.say("get the empty value", get(&file, "user.empty"));
    p.say("remove", removexattr(&file, "user.a"));
    p.say("remove again", removexattr(&file, "user.a"));
    p.say("user.* of a symlink", lsetxattr(p.at("l"), "user.a", b"1", none));
    p.say("trusted.* of a symlink", lsetxattr(p.at("l"), "trusted.a", b"1", none));
    p.say("name of 255", setxattr(&file, format!("user.{}", "n".repeat(250)), b"1", none));
    p.say("name of 256", setxattr(&file, format!("user.{}", "n".repeat(251)), b"1", none));
    p.say("value of 65537", setxattr(&file, "user.long", &[0; 65537], none));
    p.say("value of 1500", setxattr(&file, "user.long", &[7; 1500], none));
    p.say("get 1500", get(&file, "user.long").map(|v| v.len()));
    p.say("short buffer", rustix::fs::getxattr(&file, "user.long", &mut [0u8; 10]).map(|_| ()));
    p.say("short buffer for the list", rustix::fs::listxattr(&file, &mut [0u8; 3]).map(|_| ()));
    p.say("on a directory", setxattr(&p.dir, "user.dir", b"1", none));
    p.say("a capability", setxattr(&file, CAPABILITY, &NET_ADMIN, none));
    std::fs::write(&file, "more")?;
    p.say("gone after a write", get(&file, CAPABILITY));
    capability_and_direct_writes(p)
}

const CAPABILITY: &str = "security.capability";
/// CAP_NET_ADMIN, permitted.
const NET_ADMIN: [u8; 20] = [1, 0, 0, 2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Writes past the page cache take a capability as others do, also one that was set after the file was opened and
/// beside other attributes, and whoever writes.
fn capability_and_direct_writes(p: &mut Probe) -> Result<()> {
    let none = XattrFlags::empty();
    let mut block = Aligned::new(4096);
    let block = &*block.bytes();
    let root = User { uid: 0, gid: 0, groups: &[] };
    for (who, user) in USERS.iter().chain([&("root", root)]) {
        let file = p.at(format!("direct-{who}"));
        std::fs::write(&file, vec![1; 8192])?;
        chown(&file, Some(user.uid), Some(user.gid))?;
        p.say(format!("{who}: another attribute"), setxattr(&file, "user.a", b"1", none));
        let flags = OFlags::DIRECT.bits() as i32;
        let direct = File::options().write(true).custom_flags(flags).open(&file)?;
        for round in 0..2 {
            p.say(format!("{who}: set {round}"), setxattr(&file, CAPABILITY, &NET_ADMIN, none));
            let write = || direct.write_at(block, 4096);
            p.say(format!("{who}: write {round}"), act(*user, write)?);
            p.say(format!("{who}: left {round}"), get(&file, CAPABILITY));
            p.say(format!("{who}: write again {round}"), act(*user, write)?);
        }
        p.say(format!("{who}: the other one"), get(&file, "user.a"));
    }
    Ok(())
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    let n = rustix::fs::getxattr(path, name, buffer.as_mut_slice())?;
    buffer.truncate(n);
    Ok(buffer)
}

fn list(path: &Path) -> rustix::io::Result<Vec<String>> {
    let mut buffer = vec![0; 70_000];
    let n = rustix::fs::listxattr(path, buffer.as_mut_slice())?;
    let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
    let mut names: Vec<_> = text.split_terminator('\0').map(str::to_owned).collect();
    // Ours shows the layout besides; a local file system has none.
    names.retain(|name| !name.starts_with("lustre."));
    names.sort();
    Ok(names)
}

fn execution(p: &mut Probe) -> Result<()> {
    set_permissions(&p.dir, Permissions::from_mode(0o755))?;
    let program = p.at("program");
    std::fs::copy("/bin/true", &program)?;
    for mode in [0o755, 0o700, 0o710, 0o701, 0o644] {
        setup(&program, mode, OWNER)?;
        for (who, user) in USERS {
            let ran = Cmd::new("setpriv")
                .args(["--reuid", &user.uid.to_string(), "--regid", &user.gid.to_string()])
                .args(["--groups", &groups(*user)])
                .arg(&program)
                .quiet()
                .run()?;
            p.fact(format!("{mode:o} {who}"), ran.status.code());
        }
    }
    let script = p.at("script");
    std::fs::write(&script, "#!/bin/sh\nexit 7\n")?;
    set_permissions(&script, Permissions::from_mode(0o755))?;
    p.fact("a script", Cmd::new(&script).quiet().run()?.status.code());
    let writer = std::fs::File::options().write(true).open(&script)?;
    p.say(
        "running what is open for writing",
        std::process::Command::new(&script).status().map(|s| s.code()),
    );
    drop(writer);
    Ok(())
}

fn groups(user: User) -> String {
    let all: Vec<_> = std::iter::once(user.gid).chain(user.groups.iter().copied()).collect();
    all.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
