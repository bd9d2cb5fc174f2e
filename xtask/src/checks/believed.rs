//! Attributes that a mount's kernel keeps while others change them: cases of `sharing` (invariant 3).

use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, utimensat};
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Files and directories that are changed. The first file has objects; the others live with the metadata.
const FILES: u64 = 6;
const DIRS: u64 = 3;
/// Threads of each mount that look while others change.
const LOOKERS: usize = 2;

/// The times among [`shown`].
const TIMES: std::ops::Range<usize> = 5..9;

/// What two mounts must say alike; access times are moved by reading.
fn shown(m: &Metadata) -> [i64; 10] {
    [
        i64::from(m.mode()),
        m.size() as i64,
        m.nlink() as i64,
        i64::from(m.uid()),
        i64::from(m.gid()),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec(),
        m.ino() as i64,
    ]
}

fn set_mtime(path: &Path, sec: i64) -> Result<()> {
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times =
        Timestamps { last_access: omit, last_modification: Timespec { tv_sec: sec, tv_nsec: 0 } };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// Changes one attribute of a file; what must be shown then: which of [`shown`], and its value.
fn change_file(random: &mut Random, at: usize, path: &Path, round: u64) -> Result<(usize, i64)> {
    let now = std::fs::metadata(path)?;
    let sizes = if at == 0 { 200_000 } else { 60_000 };
    Ok(match random.below(8) {
        0 => {
            let mode = 0o400 + random.below(0o400) as u32;
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
            (0, i64::from(libc_file() | mode))
        }
        1 => {
            let size = random.below(sizes);
            File::options().write(true).open(path)?.set_len(size)?;
            (1, size as i64)
        }
        2 => {
            std::fs::write(path, vec![7; 1 + random.below(sizes) as usize])?;
            (1, std::fs::metadata(path)?.size() as i64)
        }
        3 => {
            let link = path.with_extension("link");
            match now.nlink() {
                1 => std::fs::hard_link(path, link)?,
                _ => std::fs::remove_file(link)?,
            }
            (2, if now.nlink() == 1 { 2 } else { 1 })
        }
        4 => {
            chown(path, Some(round as u32), None)?;
            (3, round as i64)
        }
        5 => {
            set_mtime(path, round as i64)?;
            (5, round as i64)
        }
        6 => {
            rustix::fs::setxattr(path, "user.n", &round.to_le_bytes(), XattrFlags::empty())?;
            (8, std::fs::metadata(path)?.ctime_nsec())
        }
        _ => {
            let away = path.with_extension("away");
            std::fs::rename(path, &away)?;
            std::fs::rename(&away, path)?;
            (8, std::fs::metadata(path)?.ctime_nsec())
        }
    })
}

fn libc_file() -> u32 {
    rustix::fs::FileType::RegularFile.as_raw_mode()
}

/// Changes what is shown of a directory.
fn change_dir(random: &mut Random, _: usize, path: &Path, round: u64) -> Result<(usize, i64)> {
    let name = path.join(format!("{}", random.below(8)));
    let before = std::fs::metadata(path)?.nlink() as i64;
    Ok(match std::fs::metadata(&name) {
        Ok(m) if m.is_dir() => {
            std::fs::remove_dir(name)?;
            (2, before - 1)
        }
        Ok(_) => {
            std::fs::remove_file(name)?;
            (6, std::fs::metadata(path)?.mtime_nsec())
        }
        Err(_) if random.below(2) == 0 => {
            std::fs::create_dir(name)?;
            (2, before + 1)
        }
        Err(_) if random.below(3) == 0 => {
            set_mtime(path, round as i64)?;
            (5, round as i64)
        }
        Err(_) => {
            File::create(name)?;
            (6, std::fs::metadata(path)?.mtime_nsec())
        }
    })
}

/// Each change of one mount is seen by both at once, by name and through what is open, however often
/// they looked before.
pub fn one_by_one(a: &Path, b: &Path, seed: u64, rounds: u64) -> Result<()> {
    let mut random = Random::new(seed ^ 17);
    let files = (0..FILES).map(|n| PathBuf::from(format!("kept/f{n}")));
    let dirs = (0..DIRS).map(|n| PathBuf::from(format!("kept/d{n}")));
    let names: Vec<PathBuf> = files.chain(dirs).collect();
    std::fs::create_dir(a.join("kept"))?;
    for (n, name) in names.iter().enumerate() {
        let mount = if n % 2 == 0 { a } else { b };
        match n < FILES as usize {
            true => std::fs::write(mount.join(name), "x")?,
            false => std::fs::create_dir(mount.join(name))?,
        }
    }
    let open = |mount: &Path| -> Result<Vec<File>> {
        names.iter().map(|name| Ok(File::open(mount.join(name))?)).collect()
    };
    let open = [open(a)?, open(b)?];
    for round in 0..rounds {
        let at = random.index(names.len());
        let name = &names[at];
        for _ in 0..random.below(4) {
            let side = random.index(2);
            open[side][at].metadata()?;
            std::fs::metadata([a, b][side].join(name))?;
        }
        let changer = random.index(2);
        let path = [a, b][changer].join(name);
        let change = if at < FILES as usize { change_file } else { change_dir };
        let (which, value) = change(&mut random, at, &path, round)
            .with_context(|| format!("round {round}: {}", path.display()))?;
        let other = 1 - changer;
        // Whoever looks first asks; the order decides whose cache is looked at.
        let mut looks = [(other, true), (other, false), (changer, true), (changer, false)];
        for i in (1..looks.len()).rev() {
            looks.swap(i, random.index(i + 1));
        }
        let mut said = Vec::new();
        for (side, by_name) in looks {
            let m = match by_name {
                true => std::fs::metadata([a, b][side].join(name))?,
                false => open[side][at].metadata()?,
            };
            let mut seen = shown(&m);
            let who = format!("round {round}, {} by mount {side}", name.display());
            // While its size is asked of the objects its times are those of the objects' change.
            let lags = at == 0 && TIMES.contains(&which);
            let same = lags || seen[which] == value;
            ensure!(same, "{who}: field {which} is {}, not {value}", seen[which]);
            if at == 0 {
                seen[TIMES].fill(0);
            }
            said.push((who, seen));
        }
        for (who, seen) in &said {
            ensure!(seen == &said[0].1, "{who}: {seen:?}, but {}: {:?}", said[0].0, said[0].1);
        }
    }
    Ok(())
}

/// Numbers that only grow, as attributes; who looks never sees one that is older than what was done
/// before he looked. The file changes its name as well, so that kernels drop it and find it anew.
pub fn while_others_look(a: &Path, b: &Path, time: Duration) -> Result<()> {
    let dir = |mount: &Path| mount.join("grows");
    std::fs::create_dir(dir(a))?;
    std::fs::create_dir(dir(a).join("dir"))?;
    File::create(dir(a).join("n0"))?;
    set_mtime(&dir(a).join("n0"), 0)?;
    let (times, links) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let until = Instant::now() + time;
    let file_changes = |mount: &Path| -> Result<()> {
        for n in 1.. {
            if Instant::now() > until {
                break;
            }
            let name = |n: u64| dir(mount).join(format!("n{}", n / 4 % 3));
            if name(n) != name(n - 1) {
                std::fs::rename(name(n - 1), name(n))?;
            }
            set_mtime(&name(n), n as i64)?;
            times.store(n, SeqCst);
        }
        Ok(())
    };
    let dir_changes = |mounts: [&Path; 2]| -> Result<()> {
        for n in 1.. {
            if Instant::now() > until {
                break;
            }
            std::fs::create_dir(dir(mounts[n as usize % 2]).join(format!("dir/{n}")))?;
            links.store(n, SeqCst);
        }
        Ok(())
    };
    let look = |mount: &Path, at: usize| -> Result<()> {
        let open = File::open(dir(mount).join("dir"))?;
        let mut held: Option<File> = None;
        for turn in at as u64.. {
            if over.load(SeqCst) {
                break;
            }
            let done = links.load(SeqCst);
            let m = if turn % 2 == 0 {
                open.metadata()?
            } else {
                std::fs::metadata(dir(mount).join("dir"))?
            };
            ensure!(m.nlink() >= done + 2, "{} directories, but {done} were made", m.nlink() - 2);
            let name = dir(mount).join(format!("n{}", turn % 3));
            let done = times.load(SeqCst);
            let m = match &held {
                Some(file) if turn % 5 < 2 => file.metadata(),
                _ => std::fs::metadata(&name),
            };
            if let Ok(m) = m {
                ensure!(m.mtime() >= done as i64, "time {}, but {done} was set", m.mtime());
            }
            if turn % 64 == 0 {
                held = File::open(&name).ok().or(held);
            } else if turn % 64 == 32 {
                held = None;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let lookers: Vec<_> = [a, b]
            .into_iter()
            .flat_map(|mount| (0..LOOKERS).map(move |n| (mount, n)))
            .map(|(mount, n)| scope.spawn(move || look(mount, n)))
            .collect();
        let file = scope.spawn(|| file_changes(b));
        let done = dir_changes([a, b]);
        let file = file.join().unwrap_or_else(|_| anyhow::bail!("who changes the file panicked"));
        over.store(true, SeqCst);
        for looker in lookers {
            looker.join().unwrap_or_else(|_| anyhow::bail!("who looks panicked"))?;
        }
        done.context("changing the directory")?;
        file.context("changing the file")
    })?;
    let (times, links) = (times.load(SeqCst), links.load(SeqCst));
    ensure!(times > 10 && links > 10, "only {times} and {links} changes");
    Ok(())
}
