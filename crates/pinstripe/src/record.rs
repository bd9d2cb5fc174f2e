//! Records of running processes: who serves which mount point, from where, and how to ask it.
//!
//! Role: one small JSON file per process that `up` or `mount` started, in the runtime directory;
//! found by mount point. A record whose process is gone means nothing. Root finds those of others
//! as well, and believes them no more than they could do themselves. A process that ends without having
//! stored all leaves word of that beside. Never does: hold anything else that could not be made anew.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure, Outcome};
use crate::places::{self, Env, escape};
use crate::process::{Process, ProcessId};
use crate::sealed::replace;

/// Version of the record's fields.
const VERSION: u32 = 1;
/// How long a process may take to end whose mount was taken away before its mount point is refused.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
/// Longest record of another user that is read, in bytes.
const OTHERS_MAX: u64 = 64 << 10;

/// One running process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of these fields.
    pub version: u32,
    /// The process.
    pub process: ProcessId,
    /// `up` or `mount`.
    pub role: String,
    /// Where it mounts.
    pub mountpoint: PathBuf,
    /// Where `up` keeps its files.
    pub data: Option<PathBuf>,
    /// Socket on which the process answers `status`.
    pub socket: PathBuf,
    /// Its log, when it runs in the background.
    pub log: Option<PathBuf>,
}

impl Record {
    /// A record of this process.
    pub fn own(role: &str, mountpoint: &Path, socket: &Path) -> Record {
        Record {
            version: VERSION,
            process: ProcessId::own(),
            role: role.into(),
            mountpoint: mountpoint.into(),
            data: None,
            socket: socket.into(),
            log: None,
        }
    }

    /// Writes it; the file goes when what this returns is dropped.
    pub fn publish(&self) -> Outcome<Published> {
        let path = Env::real().runtime()?.join(file_name(&self.mountpoint));
        let json = serde_json::to_vec_pretty(self).doing(|| "record".into())?;
        replace(&path, &json, 0o600).doing(|| format!("cannot write {}", path.display()))?;
        let _ = std::fs::remove_file(loss_beside(&path));
        Ok(Published { path, process: self.process })
    }

    /// The process, if it runs.
    pub fn process(&self) -> Option<Process> {
        self.process.find()
    }

    /// A process that was killed may be unable to end, and who waits for its mount would wait for ever:
    /// the kernel is told that no answer comes. Whether it was.
    pub fn end_dying(&self) -> bool {
        if !self.process.is_dying() {
            return false;
        }
        // Where another process has mounted something since, that answers.
        let shown = self.mountpoint.display();
        let Ok(fuse::MountState::Unresponsive(entry)) = fuse::inspect(&self.mountpoint) else {
            return false;
        };
        let told = fuse::abort(&entry);
        match &told {
            Ok(()) => tracing::warn!("process {} of {shown} cannot end", self.process.pid),
            Err(e) => tracing::warn!("{e}; process {} cannot end", self.process.pid),
        }
        told.is_ok()
    }

    /// The record of a mount point, also of a process that is gone; for root, of another user's
    /// mount, too.
    pub fn of(mountpoint: &Path) -> Outcome<Option<Record>> {
        let other = if Env::real().root { other_owner(mountpoint)? } else { None };
        if let Some(uid) = other {
            return Ok(of_user(&places::runtimes_of(uid), mountpoint, uid));
        }
        Ok(read(&Env::real().runtime()?.join(file_name(mountpoint))))
    }

    /// Refuses a mount point that a process serves. One that only ends, as its mount was taken away (umount(8)), is
    /// waited for; one that was killed and cannot end is helped.
    pub fn refuse_running(mountpoint: &Path) -> Outcome<()> {
        let Some(record) = Record::of(mountpoint)? else { return Ok(()) };
        let (shown, pid) = (mountpoint.display(), record.process.pid);
        if let Some(process) = record.process() {
            if !matches!(fuse::inspect(mountpoint), Ok(fuse::MountState::None)) {
                return Err(Failure::run(format!(
                    "{shown} is already mounted by process {pid}; `pinstripe down` ends it"
                )));
            }
            if !process.wait(ENDS_WITHIN) {
                return Err(Failure::run(format!(
                    "{shown} was unmounted, but process {pid} has not ended within {} s: it stores what was written, or \
                     its servers do not answer. Try again, or `pinstripe down --force {shown}` ends it",
                    ENDS_WITHIN.as_secs()
                )));
            }
        }
        record.end_dying();
        Ok(())
    }

    /// The records of all processes that run.
    pub fn running() -> Outcome<Vec<Record>> {
        let ours = std::fs::read_link("/proc/self/ns/mnt").ok();
        let space = |r: &Record| std::fs::read_link(format!("/proc/{}/ns/mnt", r.process.pid)).ok();
        let mut found = Self::all()?;
        found.retain(|(_, r)| r.process().is_some() && space(r) == ours);
        Ok(found.into_iter().map(|(_, r)| r).collect())
    }

    /// The records of processes that are gone and left a dead mount behind.
    pub fn dead() -> Outcome<Vec<Record>> {
        let mut found = Self::all()?;
        for (_, record) in &found {
            record.end_dying();
        }
        found.retain(|(name, r)| {
            *name == file_name(&r.mountpoint)
                && r.process().is_none()
                && matches!(fuse::inspect(&r.mountpoint), Ok(fuse::MountState::Dead(_)))
        });
        Ok(found.into_iter().map(|(_, r)| r).collect())
    }

    /// All records with their files' names, by mount point.
    fn all() -> Outcome<Vec<(std::ffi::OsString, Record)>> {
        let dir = Env::real().runtime()?;
        let read_dir = std::fs::read_dir(&dir).doing(|| format!("{}", dir.display()))?;
        let mut found: Vec<_> = read_dir
            .filter_map(|e| e.ok())
            .filter(|e| e.path().extension().is_some_and(|x| x == "json"))
            .filter_map(|e| Some((e.file_name(), read(&e.path())?)))
            .collect();
        found.sort_by(|a, b| a.1.mountpoint.cmp(&b.1.mountpoint));
        Ok(found)
    }
}

/// What became of what was written, if the last process of a mount point has left word of a loss; it is told once.
pub fn take_loss(mountpoint: &Path) -> Option<String> {
    let path = loss_beside(&Env::real().runtime().ok()?.join(file_name(mountpoint)));
    let text = std::fs::read_to_string(&path).ok()?;
    let _ = std::fs::remove_file(path);
    Some(text)
}

fn loss_beside(record: &Path) -> PathBuf {
    record.with_extension("loss")
}

/// A record that is removed with the process's end.
#[derive(Debug)]
pub struct Published {
    path: PathBuf,
    process: ProcessId,
}

impl Published {
    /// Leaves word of how the mount ended, for who waits for that.
    pub fn ended<T>(&self, outcome: &Outcome<T>) {
        let Err(why) = outcome else { return };
        if let Err(e) = replace(&loss_beside(&self.path), why.text.as_bytes(), 0o600) {
            tracing::warn!("nobody is told how the mount ended: {e}");
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // A successor may have written its own by now.
        if read(&self.path).is_some_and(|r| r.process == self.process) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn read(path: &Path) -> Option<Record> {
    decode(&std::fs::read(path).ok()?)
}

fn decode(json: &[u8]) -> Option<Record> {
    let record: Record = serde_json::from_slice(json).ok()?;
    (record.version == VERSION).then_some(record)
}

/// The other user whose process serves what is mounted on an absolute path.
pub fn other_owner(mountpoint: &Path) -> Outcome<Option<u32>> {
    let table = fuse::mount_table().doing(|| "cannot read the mount table".into())?;
    let top = table.into_iter().rfind(|e| e.mountpoint == mountpoint);
    let ours = top.filter(|e| e.is_fuse() && e.fstype.ends_with(".pinstripe"));
    let own = rustix::process::geteuid().as_raw();
    Ok(ours.and_then(|e| e.owner()).filter(|uid| *uid != own))
}

/// What another user's process left. That user may have written anything there: a link, a pipe,
/// the number of a process of somebody else.
fn of_user(dirs: &[PathBuf], mountpoint: &Path, uid: u32) -> Option<Record> {
    let name = file_name(mountpoint);
    let record = |dir: &PathBuf| {
        let meta = std::fs::symlink_metadata(dir).ok()?;
        let path = (meta.is_dir() && meta.uid() == uid).then(|| dir.join(&name))?;
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let plain = file.metadata().is_ok_and(|m| m.is_file() && m.uid() == uid);
        let mut json = Vec::new();
        plain.then_some(file)?.take(OTHERS_MAX).read_to_end(&mut json).ok()?;
        let record = decode(&json)?;
        let process = std::fs::metadata(format!("/proc/{}", record.process.pid)).ok()?;
        (process.uid() == uid && record.mountpoint == mountpoint).then_some(record)
    };
    dirs.iter().find_map(record)
}

/// Mount points are names within a mount namespace.
fn file_name(mountpoint: &Path) -> std::ffi::OsString {
    let space = std::fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let digits: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let mut name = escape(mountpoint);
    name.push(format!("@{digits}.json"));
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::os::unix::process::CommandExt;

    #[test]
    fn of_another_user_only_his_own_processes_are_believed() {
        const USER: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let dirs = [top.path().join("absent"), top.path().join("records")];
        let (dir, mnt) = (&dirs[1], Path::new("/m"));
        std::fs::create_dir(dir).unwrap();
        let path = dir.join(file_name(mnt));
        let write = |pid: u32| {
            let mut record = Record::own("up", mnt, Path::new("/s"));
            record.process.pid = pid;
            std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        };
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("1000").uid(USER).current_dir("/").spawn().unwrap();
        let found = || of_user(&dirs, mnt, USER).map(|r| r.process.pid);
        write(child.id());
        assert_eq!(found(), None, "root's file in root's directory");
        chown(dir, Some(USER), None).unwrap();
        chown(&path, Some(USER), None).unwrap();
        assert_eq!(found(), Some(child.id()));
        write(std::process::id());
        assert_eq!(found(), None, "a process of root");
        write(child.id());
        let aside = top.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        symlink(&aside, &path).unwrap();
        assert_eq!(found(), None, "a link");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
