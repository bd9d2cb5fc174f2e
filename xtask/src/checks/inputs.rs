//! Bad input: each gets a clear message and a non-zero exit, never a panic or a hang, and nothing
//! is lost by it (invariant 12).

use crate::cx::Cx;
use crate::fs::{Fs, How, is_mounted, same};
use crate::plan::{Check, Need};
use crate::proc::Out;
use crate::random::Random;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "inputs",
    about: "wrong versions, foreign, missing, duplicate targets, bad mount points, garbage, keys",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Apt("util-linux"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    cx.case("unknown words", || words(cx));
    mount_points(cx)?;
    cx.case("no /dev/fuse", || no_device(cx));
    cx.case("fsck of what is read-only", || read_only(cx));
    targets(cx)?;
    damaged(cx)?;
    network(cx)?;
    Ok(())
}

/// Demands a refusal that mentions one of `wanted`.
fn says(out: Out, wanted: &[&str]) -> Result<()> {
    let out = out.refused()?;
    let text = out.all().to_lowercase();
    let found = wanted.iter().any(|w| text.contains(&w.to_lowercase()));
    ensure!(found, "the message mentions none of {wanted:?}:\n{}", out.tail());
    Ok(())
}

fn words(cx: &Cx) -> Result<()> {
    let mnt = cx.dir("words")?;
    let refusals: &[(&[&str], &[&str])] = &[
        (&["frobnicate"], &["frobnicate"]),
        (&["up", "--frobnicate"], &["frobnicate"]),
        (&["status", "--frobnicate"], &["frobnicate"]),
        (&["lfs", "frobnicate"], &["frobnicate"]),
        (&["lfs", "getstripe", "/"], &["pinstripe", "not"]),
        (&["lfs", "setstripe", "-c", "nonsense", "/"], &["nonsense"]),
        (&["status", "/"], &["/", "mount"]),
        (&["down", "/"], &["/", "mount"]),
        (&["fsck", "--data", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["mount", "nonsense address", "/"], &["nonsense address", "address"]),
    ];
    for (line, wanted) in refusals {
        says(cx.pinstripe().args(*line).limit(30).run()?, wanted)?;
    }
    let data = cx.scratch().join("words-data");
    let up = || cx.pinstripe().arg("up").arg(&mnt).arg("--data").arg(&data).arg("--detach");
    says(up().args(["-o", "frobnicate"]).limit(60).run()?, &["frobnicate"])?;
    says(up().args(["--osts", "0"]).limit(60).run()?, &["osts", "0"])?;
    let config = cx.scratch().join("config.toml");
    std::fs::write(&config, "frobnicate = 1\n")?;
    says(up().arg("--config").arg(&config).limit(60).run()?, &["frobnicate"])?;
    std::fs::write(&config, "this is = = not toml")?;
    says(up().arg("--config").arg(&config).limit(60).run()?, &["config.toml"])?;
    ensure!(!is_mounted(&mnt), "a refused command mounted something");
    Ok(())
}

fn up(cx: &Cx, mnt: &Path, data: &Path) -> Result<Out> {
    cx.pinstripe().arg("up").arg(mnt).arg("--data").arg(data).arg("--detach").limit(90).run()
}

fn mount_points(cx: &Cx) -> Result<()> {
    let data = cx.scratch().join("points-data");
    cx.case("a mount point that is not empty", || {
        let mnt = cx.dir("full-mnt")?;
        std::fs::write(mnt.join("precious"), "x")?;
        says(up(cx, &mnt, &data)?, &["empty"])?;
        ensure!(mnt.join("precious").exists(), "the file in it is gone");
        Ok(())
    });
    cx.case("a mount point that is a file", || {
        let mnt = cx.scratch().join("file-mnt");
        std::fs::write(&mnt, "x")?;
        says(up(cx, &mnt, &data)?, &["director"])
    });
    cx.case("a mount point in use", || {
        let mnt = cx.dir("busy-mnt")?;
        cx.cmd("mount").args(["-t", "tmpfs", "none"]).arg(&mnt).ok()?;
        let out = up(cx, &mnt, &data);
        cx.cmd("umount").arg(&mnt).ok()?;
        says(out?, &["mounted", "in use", "busy"])
    });
    cx.case("the same one twice", || {
        let mut fs = Fs::new(cx, "twice")?;
        std::fs::write(fs.mnt.join("f"), "first")?;
        says(up(cx, &fs.mnt, &fs.data)?, &["already", "in use", "mounted"])?;
        let second = cx.dir("twice-mnt")?;
        says(up(cx, &second, &fs.data)?, &["already", "in use", "locked", "running"])?;
        same("the first goes on", &std::fs::read(fs.mnt.join("f"))?, b"first")?;
        fs.down_and_check()
    });
    cx.case("data in a place that cannot be written", || {
        let mnt = cx.dir("nowhere-mnt")?;
        says(up(cx, &mnt, Path::new("/proc/nowhere"))?, &["/proc/nowhere"])
    });
    cx.case("data in a directory that holds something else", || {
        let (mnt, data) = (cx.dir("else-mnt")?, cx.dir("else-data")?);
        std::fs::write(data.join("thesis.tex"), "precious")?;
        says(up(cx, &mnt, &data)?, &["thesis.tex", "empty", "holds", "not a pinstripe"])?;
        same("thesis.tex", &std::fs::read(data.join("thesis.tex"))?, b"precious")
    });
    Ok(())
}

/// In a mount name space of its own where the device is hidden.
fn no_device(cx: &Cx) -> Result<()> {
    let (mnt, data) = (cx.dir("device-mnt")?, cx.scratch().join("device-data"));
    let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && \
        mknod -m 666 /dev/urandom c 1 9 && exec \"$@\"";
    let out = cx
        .cmd("unshare")
        .args(["--mount", "--", "sh", "-c", script, "sh"])
        .arg(&cx.set.pinstripe)
        .arg("up")
        .arg(&mnt)
        .arg("--data")
        .arg(&data)
        .arg("--detach")
        .limit(90)
        .run()?;
    says(out, &["/dev/fuse"])
}

/// A snapshot, say: it is refused with the way out, and that way works.
fn read_only(cx: &Cx) -> Result<()> {
    let (fs, _) = stopped(cx, "read-only")?;
    let there = cx.dir("read-only-view")?;
    let script =
        "mount --bind \"$1\" \"$2\" && mount -o remount,ro,bind \"$2\" && shift 2 && exec \"$@\"";
    let view = |script: &str, check: &Path| {
        let enter = cx.cmd("unshare").args(["--mount", "--", "sh", "-c", script, "sh"]);
        let enter = enter.arg(&fs.data).arg(&there).arg(&cx.set.pinstripe).args(["fsck", "--data"]);
        enter.arg(check).limit(60).run()
    };
    let refused = view(script, &there)?;
    says(refused, &["check a copy of it, or an overlay"])?;
    let (changes, over) = (cx.dir("read-only-changes")?, cx.dir("read-only-over")?);
    let overlay = format!(
        "mount -t tmpfs none {0} && mkdir {0}/upper {0}/work && mount -t overlay none {1} \
         -o lowerdir={2},upperdir={0}/upper,workdir={0}/work",
        changes.display(),
        over.display(),
        there.display(),
    );
    let script = script.replace("shift 2", &format!("{overlay} && shift 2"));
    view(&script, &over)?.ok().map(|_| ())
}

fn format(cx: &Cx, words: &[&str], dirs: &[(&str, &Path)], key: &Path) -> Result<Out> {
    let mut cmd = cx.pinstripe().arg("format").args(words).arg("--key").arg(key);
    for (role, dir) in dirs {
        cmd = cmd.arg(role).arg(dir);
    }
    cmd.limit(60).run()
}

/// A stopped file system of `up` with two OSTs and one file in it.
fn stopped(cx: &Cx, name: &str) -> Result<(Fs, PathBuf)> {
    let mut fs = Fs::with(cx, name, How { osts: 2, ..How::default() })?;
    std::fs::write(fs.mnt.join("f"), vec![3; 300_000])?;
    fs.down()?;
    let find = |prefix: &str| -> Result<PathBuf> {
        let entries = std::fs::read_dir(&fs.data)?.flatten();
        let mut found: Vec<_> = entries
            .map(|e| e.path())
            .filter(|p| {
                let name = p.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
                p.is_dir() && name.starts_with(prefix)
            })
            .collect();
        found.sort();
        found.pop().with_context(|| format!("no {prefix} directory in {}", fs.data.display()))
    };
    let ost = find("ost")?;
    Ok((fs, ost))
}

fn targets(cx: &Cx) -> Result<()> {
    cx.case("format refuses what holds data", || {
        let (key, dir) = (cx.scratch().join("format.key"), cx.dir("format-dir")?);
        std::fs::write(dir.join("photo.jpg"), "precious")?;
        says(format(cx, &[], &[("--ost", &dir)], &key)?, &["photo.jpg", "empty", "holds"])?;
        ensure!(dir.join("photo.jpg").exists(), "the photo is gone");
        let fresh = cx.scratch().join("format-fresh");
        format(cx, &[], &[("--ost", &fresh)], &key)?.ok()?;
        says(format(cx, &[], &[("--ost", &fresh)], &key)?, &["already", "holds", "empty"])
    });
    cx.case("a missing target", || {
        let (mut fs, ost) = stopped(cx, "missing")?;
        let aside = cx.scratch().join("missing-aside");
        std::fs::rename(&ost, &aside)?;
        let label = ost.file_name().unwrap_or_default().to_string_lossy().into_owned();
        says(up(cx, &fs.mnt, &fs.data)?, &[&label, "missing", "OST0001"])?;
        std::fs::rename(&aside, &ost)?;
        back(&mut fs)
    });
    cx.case("a duplicate target", || {
        let (mut fs, ost) = stopped(cx, "duplicate")?;
        let copy = ost.with_file_name("ost9999");
        cx.cmd("cp").arg("-a").arg(&ost).arg(&copy).ok()?;
        let key = cx.scratch().join("duplicate.key");
        format(cx, &[], &[("--mgs", &cx.scratch().join("duplicate-mgs"))], &key)?.ok()?;
        let out = cx
            .pinstripe()
            .args(["server", "--mgs", "--mgs-dir"])
            .arg(cx.scratch().join("duplicate-mgs"))
            .args(["--listen", "127.0.0.1:0", "--key"])
            .arg(&key)
            .arg("--ost")
            .arg(&ost)
            .arg("--ost")
            .arg(&copy)
            .limit(60)
            .run()?;
        says(out, &["OST0001", "duplicate", "twice", "same"])?;
        std::fs::remove_dir_all(&copy)?;
        back(&mut fs)
    });
    cx.case("a target of another file system", || {
        let (mut fs, ost) = stopped(cx, "ours")?;
        let (_other, foreign) = stopped(cx, "theirs")?;
        let aside = cx.scratch().join("ours-aside");
        std::fs::rename(&ost, &aside)?;
        cx.cmd("cp").arg("-a").arg(&foreign).arg(&ost).ok()?;
        says(up(cx, &fs.mnt, &fs.data)?, &["another file system", "foreign", "belongs"])?;
        std::fs::remove_dir_all(&ost)?;
        std::fs::rename(&aside, &ost)?;
        back(&mut fs)
    });
    Ok(())
}

/// After the cause is gone everything is there again.
fn back(fs: &mut Fs) -> Result<()> {
    fs.up()?;
    same("f", &std::fs::read(fs.mnt.join("f"))?, &[3; 300_000])?;
    fs.down_and_check()
}

/// Every small file that describes a target: cut, emptied, overwritten with noise.
fn damaged(cx: &Cx) -> Result<()> {
    let (mut fs, ost) = stopped(cx, "damaged")?;
    let mut labels: Vec<_> = std::fs::read_dir(&ost)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.metadata().is_ok_and(|m| m.is_file() && m.len() > 0 && m.len() < 8192))
        .collect();
    labels.sort();
    ensure!(!labels.is_empty(), "no file describes the target in {}", ost.display());
    let mut random = Random::new(cx.seed());
    for label in &labels {
        let whole = std::fs::read(label)?;
        let name = label.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let newer = String::from_utf8_lossy(&whole).replacen("version = 1", "version = 999", 1);
        let damages: Vec<(&str, Vec<u8>)> = vec![
            ("cut", whole[..whole.len() / 2].to_vec()),
            ("empty", Vec::new()),
            ("noise", random.bytes(whole.len())),
            ("a newer version", newer.into_bytes()),
        ];
        for (what, bytes) in damages.into_iter().filter(|(_, bytes)| *bytes != whole) {
            cx.case(&format!("{name}: {what}"), || {
                std::fs::write(label, &bytes)?;
                let out = up(cx, &fs.mnt, &fs.data);
                let restored = std::fs::write(label, &whole);
                let out = out?;
                // A file nobody needs may be damaged; then it has to come up.
                if out.status.success() {
                    let intact = same("f", &std::fs::read(fs.mnt.join("f"))?, &[3; 300_000]);
                    cx.pinstripe().arg("down").arg(&fs.mnt).ok()?;
                    intact
                        .context("it came up with a damaged description, but without its data")?;
                } else {
                    says(out, &[&name, "ost", "version", "corrupt", "damaged"])?;
                }
                restored.map_err(Into::into)
            });
        }
    }
    cx.case("all there after the repair", || back(&mut fs));
    Ok(())
}

fn network(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Tcp, 1)?;
    let mnt = cluster.mount("mnt")?;
    std::fs::write(mnt.join("f"), "before")?;
    let addresses: Vec<_> =
        cluster.servers.iter().map(|s| (s.name.clone(), s.address.clone())).collect();
    for (name, address) in &addresses {
        cx.case(&format!("garbage to the {name}"), || garbage(address, cx.seed()));
    }
    cx.case("the servers go on", || {
        same("f", &std::fs::read(mnt.join("f"))?, b"before")?;
        Ok(std::fs::write(mnt.join("g"), "after")?)
    });
    let mount = |key: &Path, mnt: &Path| -> Result<Out> {
        cx.pinstripe()
            .args(["mount", &cluster.address(), "--wait", "5", "--key"])
            .arg(key)
            .arg(mnt)
            .limit(90)
            .run()
    };
    cx.case("a wrong key", || {
        let other = cx.scratch().join("other.key");
        format(cx, &[], &[("--ost", &cx.scratch().join("other-ost"))], &other)?.ok()?;
        says(mount(&other, &cx.dir("wrong-mnt")?)?, &["key"])
    });
    cx.case("no key", || says(mount(Path::new("/nowhere/key"), &cx.dir("nokey-mnt")?)?, &["key"]));
    cx.case("a key others can read", || {
        let open = cx.scratch().join("open.key");
        std::fs::copy(&cluster.key, &open)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&open, mode)?;
        says(mount(&open, &cx.dir("open-mnt")?)?, &["open.key", "mode", "permission", "readable"])
    });
    cx.case("nobody listens", || {
        let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let out = cx
            .pinstripe()
            .args(["mount", &free, "--wait", "2", "--key"])
            .arg(&cluster.key)
            .arg(cx.dir("none-mnt")?)
            .limit(90)
            .run()?;
        says(out, &[&free, "refused", "reach"])
    });
    cx.case("a server of another release", || newer_server(cx, &cluster.key));
    for (name, address) in &addresses {
        cx.case(&format!("a client of another release at the {name}"), || newer_client(address));
    }
    cx.case("a wider listener must be asked for", || {
        let out = cluster
            .command(&["server", "--mgs", "--listen", "0.0.0.0:0"])
            .arg("--mgs-dir")
            .arg(cluster.dir.join("wide"))
            .limit(60)
            .run()?;
        says(out, &["--allow-remote", "0.0.0.0"])
    });
    cx.case("a subdirectory that is not there", || {
        let address = format!("{}:/absent/dir", cluster.address());
        let out =
            cluster.command(&["mount", &address]).arg(cx.dir("absent-mnt")?).limit(90).run()?;
        says(out, &["absent"])
    });
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

/// Frames of other releases begin so; no program of today reads on.
const NEWER: &[u8; 4] = b"PST\x63";

fn newer_server(cx: &Cx, key: &Path) -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let mut frame = [0; 64];
        frame[..NEWER.len()].copy_from_slice(NEWER);
        client.write_all(&frame)?;
        client.read_to_end(&mut Vec::new()).map(drop)
    });
    let mount = cx.pinstripe().args(["mount", &address, "--wait", "5", "--key"]).arg(key);
    let out = mount.arg(cx.dir("newer-mnt")?).limit(90).run()?;
    // For the case that the command never came; how the server saw the end is its own.
    drop(TcpStream::connect(&address));
    let _ = server.join();
    ensure!(out.all().contains(&address), "the address is not named:\n{}", out.tail());
    says(out, &["version 99"])
}

fn newer_client(address: &str) -> Result<()> {
    let mut stream = dial(address)?;
    let mut greeting = [0; 200];
    greeting[..NEWER.len()].copy_from_slice(NEWER);
    stream.write_all(&greeting)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("reading the answer")?;
    let text = String::from_utf8_lossy(&answer);
    ensure!(answer.starts_with(b"PST") && text.contains("version 99"), "the answer is {text:?}");
    Ok(())
}

fn dial(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address.trim_start_matches("tcp:"))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(stream)
}

/// Noise, a plain HTTP request, a cut frame, silence: the server must close or stay quiet, and
/// not wait for ever with memory taken.
fn garbage(address: &str, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut header = [0u8; 64];
    header[..4].copy_from_slice(b"PST\x03");
    let mut huge = header;
    huge[8..16].fill(0xff);
    let mut half = header.to_vec();
    half.truncate(30);
    let inputs: Vec<Vec<u8>> = vec![
        random.bytes(100_000),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        header.to_vec(),
        huge.to_vec(),
        half,
        vec![0; 64],
        vec![0xff; 4096],
        Vec::new(),
    ];
    for input in inputs {
        let mut stream = dial(address)?;
        // The server may close before it has read everything.
        let _ = stream.write_all(&input);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.take(1 << 20).read_to_end(&mut answer);
        ensure!(answer.len() < 1 << 16, "{} bytes in answer to garbage", answer.len());
    }
    Ok(())
}
