//! A generated source tree: many small files as in a real one, and every odd thing a tree can hold.

use crate::random::Random;
use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::fs::{mknodat, setxattr, utimensat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Makes a tree of `files` files under `root`; the same seed makes the same tree.
pub fn make(root: &Path, seed: u64, files: usize) -> Result<()> {
    let mut random = Random::new(seed);
    let mut dirs = vec![root.to_path_buf()];
    std::fs::create_dir_all(root)?;
    for n in 0..files {
        if n % 12 == 0 {
            let parent = &dirs[random.index(dirs.len())];
            let dir = parent.join(format!("module_{n}"));
            std::fs::create_dir(&dir)?;
            dirs.push(dir);
        }
        let dir = dirs[random.index(dirs.len())].clone();
        let file = dir.join(name(&mut random, n));
        std::fs::write(&file, content(&mut random))?;
        decorate(&mut random, &file, &dir, n)?;
    }
    odd_names(root)?;
    for dir in dirs.iter().rev() {
        stamp(dir, &mut random)?;
    }
    Ok(())
}

fn name(random: &mut Random, n: usize) -> PathBuf {
    let suffix = ["rs", "c", "h", "txt", "toml", "py"][random.index(6)];
    PathBuf::from(format!("file_{n}.{suffix}"))
}

/// Sizes as in source trees: mostly a few KiB, rarely large, sometimes empty.
fn content(random: &mut Random) -> Vec<u8> {
    let length = match random.below(100) {
        0..5 => 0,
        5..85 => random.index(6_000),
        85..98 => random.index(70_000),
        _ => random.index(600_000),
    };
    let mut text = Vec::with_capacity(length);
    while text.len() < length {
        text.extend_from_slice(format!("{:016x} ", random.word()).as_bytes());
    }
    text.truncate(length);
    text
}

fn decorate(random: &mut Random, file: &Path, dir: &Path, n: usize) -> Result<()> {
    let mode = [0o644, 0o600, 0o755, 0o444, 0o4755, 0o2755][random.index(6)];
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode))?;
    match n % 50 {
        1 => std::fs::hard_link(file, dir.join(format!("hard_{n}")))?,
        2 => symlink(file.file_name().unwrap_or_default(), dir.join(format!("soft_{n}")))?,
        3 => symlink(format!("/nowhere/{n}"), dir.join(format!("dangling_{n}")))?,
        4 => {
            let value = random.bytes(40);
            setxattr(file, "user.note", &value, XattrFlags::empty())
                .context("the local file system takes no user.* attributes")?;
        }
        5 => std::os::unix::fs::chown(file, Some(1000 + n as u32), Some(2000))?,
        6 if n % 500 == 6 => {
            mknodat(CWD, dir.join(format!("fifo_{n}")), FileType::Fifo, Mode::RUSR, 0)?;
        }
        7 if n % 500 == 7 => {
            let null = rustix::fs::makedev(1, 3);
            mknodat(
                CWD,
                dir.join(format!("null_{n}")),
                FileType::CharacterDevice,
                Mode::RUSR,
                null,
            )?;
        }
        8 => std::fs::create_dir(dir.join(format!("empty_{n}")))?,
        _ => {}
    }
    stamp(file, random)
}

/// Sets a time with nanoseconds, some before 1970.
fn stamp(path: &Path, random: &mut Random) -> Result<()> {
    let seconds = random.below(2_000_000_000) as i64 - 100_000_000;
    let time = Timespec { tv_sec: seconds, tv_nsec: random.below(1_000_000_000) as i64 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Names that break careless programs.
fn odd_names(root: &Path) -> Result<()> {
    let dir = root.join("odd names");
    std::fs::create_dir(&dir)?;
    let long = [b'n'; 255];
    let names: &[&[u8]] = &[
        b" leading blank",
        b"new\nline",
        b"tab\there",
        b"-dash",
        b"\xff\xfe not utf-8",
        b"back\\slash",
        b"quote'\"`$(x)",
        "\u{fc}ml\u{e4}ut \u{1f980}".as_bytes(),
        b"...",
        b"*?[a]",
        b"\x01\x7f",
        &long,
    ];
    for name in names {
        std::fs::write(dir.join(OsStr::from_bytes(name)), name)?;
    }
    Ok(())
}
