//! `pinstripe down`: ends a mount and the process behind it.
//!
//! Order: unmount first, so that a mount in use is left alone and said so; the process then ends
//! by itself, and is waited for. A dead mount is detached.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::{MountEntry, MountError, MountState};
use net::Endpoint;

use crate::cli::{Common, DownArgs};
use crate::control;
use crate::failure::{Doing, Failure, Outcome};
use crate::later;
use crate::locked;
use crate::out;
use crate::places;
use crate::record::{Record, take_loss};

/// Time a process has to flush and end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time to reach a process, and for its answer about its servers.
const ANSWERS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// With --force: time before it is told not to wait for files in use.
const ASKED_TWICE: Duration = Duration::from_secs(1);
/// With --force: time before it is ended.
const FORCED: Duration = Duration::from_secs(10);
/// At most so many of those who use a mount are named.
const NAMED: usize = 10;

/// Runs the command.
pub fn run(args: &DownArgs, common: &Common) -> Outcome<()> {
    let mountpoint = places::mountpoint(&args.mountpoint)?;
    let record = Record::of(&mountpoint)?;
    let ended = record.as_ref().is_some_and(Record::end_dying);
    let process = record.as_ref().and_then(Record::process);
    // The kernel waits for what was written while it unmounts, and the process while it ends.
    let shown = mountpoint.display();
    let waits = format!(
        "what was written to {shown} is still being stored; waiting for it. \
         `pinstripe down --force {shown}` does not wait"
    );
    let _waiting = (!args.force).then(|| later::say(waits)).transpose()?;
    // Who forces an end asks for nothing.
    let target = record.as_ref().filter(|_| process.is_some() && !args.force).and_then(Target::ask);
    let unmounted = match unmount(&mountpoint, args.force, target)? {
        // Where the kernel's control files are not mounted its connection ends with the mount, unless that is busy.
        Unmounted::Nothing if ended => Unmounted::Dead,
        unmounted => unmounted,
    };
    let Some((record, process)) = record.zip(process) else {
        return match unmounted {
            Unmounted::Dead => say(&mountpoint, None, common),
            Unmounted::Served => {
                eprintln!(
                    "pinstripe: no record of the process that served {} is found; it may still be \
                     storing what was written",
                    mountpoint.display()
                );
                say(&mountpoint, None, common)
            }
            Unmounted::Nothing => Err(Failure::run(format!(
                "{} is not a Pinstripe mount; `pinstripe status` lists those that are",
                mountpoint.display()
            ))),
        };
    };
    let pid = record.process.pid;
    if unmounted == Unmounted::Nothing || args.force {
        // Nothing to unmount: it is starting, ending, or was unmounted lazily, which files that
        // are in use keep it from hearing of.
        process.terminate();
    }
    if args.force && !process.wait(ASKED_TWICE) {
        // A second time does not wait for busy files; what was written is still stored.
        process.terminate();
    }
    if !process.wait(if args.force { FORCED } else { PATIENCE }) {
        if !args.force {
            let text = format!(
                "{} is unmounted, but process {pid} still runs after {} s; --force ends it",
                mountpoint.display(),
                PATIENCE.as_secs()
            );
            return Err(Failure::run(text));
        }
        tracing::warn!("process {pid} did not end in {} s and is killed", FORCED.as_secs());
        process.kill();
        process.wait(FORCED);
    }
    // It may have left its mount behind when it was killed.
    fuse::detach_dead(&mountpoint).doing(|| "cannot unmount".into())?;
    if let Some(why) = take_loss(&mountpoint) {
        let log = record.log.iter().map(|log| format!(" (its log is {})", log.display()));
        let text = format!("{shown} is unmounted: {why}{}", log.collect::<String>());
        // Who forces an end has asked for it.
        if !args.force {
            return Err(Failure::run(text));
        }
        eprintln!("pinstripe: {text}");
    }
    say(&mountpoint, Some(pid), common)
}

/// What was taken away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unmounted {
    /// Nothing of ours was there.
    Nothing,
    /// The mount of a process that is gone.
    Dead,
    /// A mount that was served.
    Served,
}

/// What the process behind a mount says of its metadata target.
#[derive(Clone, Copy)]
struct Target {
    /// It is there.
    connected: bool,
    /// The servers have all that was written.
    stored: bool,
}

impl Target {
    /// None: there is no answer.
    fn ask(record: &Record) -> Option<Target> {
        let socket = Endpoint::Unix(record.socket.clone());
        let session = control::open_within(&socket, None, ANSWERS).ok()?;
        let status = control::ask_status(&session);
        session.close();
        let mount = &status.ok()?["mount"];
        let is = |what: &str| mount[what].as_bool();
        Some(Target { connected: is("connected")?, stored: is("stored")? })
    }
}

/// What lies on a mount point. Who looks there waits for servers that are lost, and the mount is in use till then: what
/// lacks nothing is not looked at.
fn inspect(mountpoint: &Path, target: Option<Target>) -> std::io::Result<MountState> {
    if target.is_some_and(|target| !target.connected && target.stored)
        && let Some(entry) = fuse::mounted(mountpoint)?.filter(MountEntry::is_fuse)
    {
        return Ok(MountState::Alive(entry));
    }
    fuse::inspect(mountpoint)
}

/// Takes our mount away, if there is one.
fn unmount(mountpoint: &Path, force: bool, target: Option<Target>) -> Outcome<Unmounted> {
    let state = inspect(mountpoint, target);
    let state = state.doing(|| format!("cannot inspect {}", mountpoint.display()))?;
    let (entry, lazy, was) = match state {
        MountState::None | MountState::Other(_) => return Ok(Unmounted::Nothing),
        MountState::Dead(entry) => (entry, true, Unmounted::Dead),
        MountState::Alive(entry) => (entry, force, Unmounted::Served),
        MountState::Unresponsive(entry) if force => (entry, true, Unmounted::Served),
        MountState::Unresponsive(_) => {
            let shown = mountpoint.display();
            let text = match target {
                Some(Target { connected: false, .. }) => format!(
                    "the metadata target of {shown} cannot be reached, and may lack some of what was done there; \
                     start it again, or give that up with --force"
                ),
                _ => format!("the process behind {shown} does not answer; --force ends it"),
            };
            return Err(Failure::run(text));
        }
    };
    if !entry.fstype.ends_with(".pinstripe") {
        let text = format!("{} is a {} mount, not Pinstripe's", mountpoint.display(), entry.fstype);
        return Err(Failure::run(text));
    }
    // In use, too, is what somebody is just looking up, or has open who was killed a moment ago.
    let unmounted = locked::patiently(
        || users(mountpoint),
        |e| matches!(e, MountError::Busy(_)),
        || fuse::unmount(mountpoint, lazy),
    );
    match unmounted {
        Ok(()) => Ok(was),
        Err(MountError::Busy(_)) => {
            let users: Vec<_> = users(mountpoint).iter().take(NAMED).map(u32::to_string).collect();
            let by = if users.is_empty() { "" } else { " by process " };
            Err(Failure::run(format!(
                "{} is in use{by}{}; end those processes, or use --force",
                mountpoint.display(),
                users.join(", ")
            )))
        }
        Err(e) => Err(Failure::run(e.to_string())),
    }
}

/// Who has files open or mapped or their working directory there, as far as this user may know.
fn users(mountpoint: &Path) -> Vec<u32> {
    let is_inside = |path: &Path| path.starts_with(mountpoint);
    let inside = |pid: &u32| {
        let proc = Path::new("/proc").join(pid.to_string());
        let links = ["cwd", "root", "exe"].map(|l| proc.join(l));
        let fds = std::fs::read_dir(proc.join("fd")).into_iter().flatten();
        let fds = fds.filter_map(|e| e.ok().map(|e| e.path()));
        let maps = std::fs::read(proc.join("maps")).unwrap_or_default();
        let is_link_inside = |l: PathBuf| std::fs::read_link(l).is_ok_and(|t| is_inside(&t));
        links.into_iter().chain(fds).any(is_link_inside)
            || mapped(&maps).any(|file| is_inside(Path::new(OsStr::from_bytes(file))))
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(inside).collect()
}

/// The files in what proc_pid_maps(5) describes.
fn mapped(maps: &[u8]) -> impl Iterator<Item = &[u8]> {
    maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'/')?;
        Some(&line[at..])
    })
}

fn say(mountpoint: &Path, pid: Option<u32>, common: &Common) -> Outcome<()> {
    if common.json {
        let mountpoint = mountpoint.display().to_string();
        out::json(&serde_json::json!({ "mountpoint": mountpoint, "pid": pid }));
    } else {
        out::line(&format!("{} is unmounted", mountpoint.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn mapped_files_are_found() {
        let maps = b"559-55a r--p 00000000 fe:00 42     /usr/bin/cat\n\
                     7f0-7f1 rw-p 00000000 00:00 0 \n\
                     7f1-7f2 rw-s 00000000 00:2f 7      /mnt/with blank (deleted)\n\
                     7ff-800 rw-p 00000000 00:00 0      [stack]\n";
        let found: Vec<_> = mapped(maps).collect();
        assert_eq!(found, [&b"/usr/bin/cat"[..], b"/mnt/with blank (deleted)"]);
    }
}
