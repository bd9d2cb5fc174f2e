//! An ordinary user, without any privilege but the set-uid `fusermount3`.

use crate::cx::Cx;
use crate::fs::{is_mounted, same, until};
use crate::plan::{Check, Need};
use crate::proc::Cmd;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FileType, Mode};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

pub const CHECK: Check = Check {
    name: "user-mount",
    about: "an ordinary user does up, works, down, up again, through fusermount3",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Apt("util-linux"), Need::Root],
    limit: 200,
    weight: 1,
    slow: false,
    run,
};

/// A user every Debian has.
const NOBODY: u32 = 65534;

fn as_nobody(program: &Path) -> Cmd {
    let id = NOBODY.to_string();
    Cmd::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all"])
        .arg("--")
        .arg(program)
        .env_remove("HOME")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_STATE_HOME")
        .cwd("/")
}

/// Set in the process that sees a device of its own.
const INSIDE: &str = "PINSTRIPE_XTASK_INSIDE";

/// Everywhere users may mount, udev gives `/dev/fuse` mode 0666. Where nobody did (a container, a
/// bare machine), the check runs again in a mount name space that has such a device.
fn with_open_device(cx: &Cx) -> Result<()> {
    let mode = std::fs::metadata("/dev/fuse").context("/dev/fuse")?.mode();
    if mode & 0o666 == 0o666 || std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let device = cx.scratch().join("fuse");
    let node = rustix::fs::makedev(10, 229);
    rustix::fs::mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR, node)?;
    std::fs::set_permissions(&device, std::fs::Permissions::from_mode(0o666))?;
    let error = std::process::Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "mount --bind \"$1\" /dev/fuse && shift && exec \"$@\"",
            "sh",
        ])
        .arg(device)
        .arg(std::env::current_exe()?)
        .args(["one", &serde_json::to_string(&cx.set)?])
        .env(INSIDE, "1")
        .exec();
    Err(error).context("unshare")
}

fn run(cx: &Cx) -> Result<()> {
    with_open_device(cx)?;
    let home = cx.dir("home")?;
    chown(&home, Some(NOBODY), Some(NOBODY))?;
    let (mnt, data) = (home.join("mnt"), home.join("data"));
    let pin = || as_nobody(&cx.set.pinstripe).env("HOME", &home).env("TMPDIR", &home);
    let sh = |script: &str| as_nobody(Path::new("/bin/sh")).arg("-c").arg(script).cwd(&home);
    let up = || pin().arg("up").arg(&mnt).arg("--data").arg(&data).arg("--detach").ok().map(|_| ());
    std::fs::create_dir(&mnt)?;
    chown(&mnt, Some(NOBODY), Some(NOBODY))?;
    let mounted = cx.case("up", || {
        up()?;
        ensure!(is_mounted(&mnt), "nothing is mounted");
        Ok(())
    });
    ensure!(mounted, "an ordinary user cannot mount");
    let content = Random::new(cx.seed()).bytes(2 << 20);
    std::fs::write(cx.scratch().join("content"), &content)?;
    cx.case("works in it", || {
        let from = cx.scratch().join("content");
        sh(&format!("cp {} mnt/f && mkdir mnt/d && ln mnt/f mnt/d/g && ln -s f mnt/l", from.display())).ok()?;
        sh("chmod 600 mnt/f && mv mnt/d/g mnt/g && rmdir mnt/d && echo more >> mnt/new && cat mnt/new").ok()?;
        same("read back", &sh("cat mnt/g").quiet().ok()?.stdout, &content)?;
        sh("chown root mnt/f").run()?.refused()?;
        sh("mknod mnt/null c 1 3").run()?.refused()?;
        Ok(())
    });
    cx.case("root cannot enter without allow_other", || {
        let denied = std::fs::read_dir(&mnt);
        ensure!(denied.is_err_and(|e| e.raw_os_error() == Some(13)), "root can enter");
        Ok(())
    });
    cx.case("status", || {
        let out = pin().arg("status").arg(&mnt).arg("--json").ok()?;
        serde_json::from_slice::<serde_json::Value>(&out.stdout)?;
        Ok(())
    });
    cx.case("data is the user's own", || {
        let m = std::fs::metadata(&data)?;
        ensure!(m.uid() == NOBODY && m.mode() & 0o077 == 0, "others may enter: {:o}", m.mode());
        Ok(())
    });
    cx.case("down", || {
        pin().arg("down").arg(&mnt).ok()?;
        until("it is unmounted", || !is_mounted(&mnt))
    });
    cx.case("up again", || {
        up()?;
        same("read back", &sh("cat mnt/g").quiet().ok()?.stdout, &content)?;
        pin().arg("down").arg(&mnt).ok().map(|_| ())
    });
    if is_mounted(&mnt) {
        pin().arg("down").arg(&mnt).run()?;
    }
    Ok(())
}
