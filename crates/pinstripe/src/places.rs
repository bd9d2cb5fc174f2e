//! Where things lie: default directories, key files, sockets, and paths of mount points.
//!
//! Assumption: the environment is read once per call and passed in by tests. Never does: touch a
//! mount point that may be dead.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure, Outcome};

/// Longest path of a Unix socket, in bytes, without its final NUL.
pub const SOCKET_PATH_MAX: usize = 107;

/// What of the environment decides places.
#[derive(Clone, Debug, Default)]
pub struct Env {
    /// Whether we are root.
    pub root: bool,
    /// Effective user.
    pub uid: u32,
    /// $HOME.
    pub home: Option<PathBuf>,
    /// $XDG_STATE_HOME.
    pub state: Option<PathBuf>,
    /// $XDG_CONFIG_HOME.
    pub config: Option<PathBuf>,
    /// $XDG_RUNTIME_DIR.
    pub runtime: Option<PathBuf>,
    /// $PINSTRIPE_KEY.
    pub key: Option<PathBuf>,
}

impl Env {
    /// The real environment.
    pub fn real() -> Env {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let uid = rustix::process::geteuid();
        Env {
            root: uid.is_root(),
            uid: uid.as_raw(),
            home: absolute("HOME"),
            state: absolute("XDG_STATE_HOME"),
            config: absolute("XDG_CONFIG_HOME"),
            runtime: absolute("XDG_RUNTIME_DIR"),
            key: std::env::var_os("PINSTRIPE_KEY").map(PathBuf::from),
        }
    }

    /// Where `up` keeps files when nobody says where.
    pub fn data(&self, mountpoint: &Path) -> Outcome<PathBuf> {
        let state = match (&self.state, &self.home) {
            (Some(dir), _) => dir.clone(),
            (None, _) if self.root => "/var/lib".into(),
            (None, Some(home)) => home.join(".local/state"),
            (None, None) => {
                let text = "neither $HOME nor $XDG_STATE_HOME is set; say with --data DIR where \
                            files shall be kept";
                return Err(Failure::usage(text));
            }
        };
        Ok(state.join("pinstripe").join(escape(mountpoint)))
    }

    /// The cluster key used when nobody names one.
    pub fn key(&self) -> PathBuf {
        let config = match (&self.config, &self.home) {
            _ if self.key.is_some() => return self.key.clone().unwrap_or_default(),
            _ if self.root => "/etc".into(),
            (Some(dir), _) => dir.clone(),
            (None, Some(home)) => home.join(".config"),
            (None, None) => PathBuf::from("/etc"),
        };
        config.join("pinstripe/cluster.key")
    }

    /// Where running processes leave their records; made if missing, ours alone.
    pub fn runtime(&self) -> Outcome<PathBuf> {
        let dir = match &self.runtime {
            _ if self.root => "/run/pinstripe".into(),
            Some(dir) if dir.is_dir() => dir.join("pinstripe"),
            // Not $TMPDIR: `down` must find what `up` left, whatever it is set to.
            _ => PathBuf::from(format!("/tmp/pinstripe-{}", self.uid)),
        };
        make_private(&dir)?;
        let meta = std::fs::symlink_metadata(&dir).doing(|| format!("{}", dir.display()))?;
        if !meta.is_dir() || meta.uid() != self.uid || meta.mode() & 0o022 != 0 {
            let text = format!(
                "{} is not a directory that only you may write to; remove it, or set \
                 $XDG_RUNTIME_DIR to one",
                dir.display()
            );
            return Err(Failure::run(text));
        }
        Ok(dir)
    }
}

/// Where another user's processes may have left their records, as far as one can tell.
pub fn runtimes_of(uid: u32) -> [PathBuf; 2] {
    [format!("/run/user/{uid}/pinstripe").into(), format!("/tmp/pinstripe-{uid}").into()]
}

/// Makes a directory, and those above it, that only its owner may enter.
pub fn make_private(dir: &Path) -> Outcome<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.doing(|| format!("cannot make {}", dir.display()))
}

/// A path as one file name: `/` becomes `-`, and what could be mistaken is written `\xNN`.
pub fn escape(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for (i, b) in bytes.strip_prefix(b"/").unwrap_or(bytes).iter().enumerate() {
        match b {
            b'/' => out.push(b'-'),
            b'.' if i == 0 => out.extend(format!("\\x{b:02x}").bytes()),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => out.push(*b),
            _ => out.extend(format!("\\x{b:02x}").bytes()),
        }
    }
    if out.is_empty() {
        out.push(b'-');
    }
    // A name may have 255 bytes; longer ones end in a checksum of the whole.
    if out.len() > 200 {
        let crc = crc32c::crc32c(bytes);
        out.truncate(180);
        out.extend(format!("~{crc:08x}").bytes());
    }
    OsString::from_vec(out)
}

/// The absolute path of a mount point without links. What is mounted already is not touched: it
/// may be dead, or its servers away.
pub fn mountpoint(path: &Path) -> Outcome<PathBuf> {
    let absolute = std::path::absolute(path).doing(|| format!("{}", path.display()))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let resolved = parent.canonicalize().map(|p| p.join(name));
    let resolved = resolved.doing(|| format!("{}", parent.display()))?;
    let table = fuse::mount_table().doing(|| "cannot read the mount table".into())?;
    if table.iter().any(|e| e.mountpoint == resolved) {
        return Ok(resolved);
    }
    match resolved.canonicalize() {
        Ok(p) => Ok(p),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(resolved),
        Err(e) => Err(Failure::run(format!("{}: {e}", path.display()))),
    }
}

/// A socket path that fits: in `dir`, or, when that is too long, among the runtime records.
pub fn socket(dir: &Path, name: &str) -> Outcome<PathBuf> {
    let near = dir.join(name);
    if near.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok(near);
    }
    let crc = crc32c::crc32c(near.as_os_str().as_bytes());
    let far = Env::real().runtime()?.join(format!("{crc:08x}-{name}"));
    if far.as_os_str().len() > SOCKET_PATH_MAX {
        let text = format!("{} is too long for a socket; use a shorter path", near.display());
        return Err(Failure::run(text));
    }
    Ok(far)
}

/// Sockets of this age, in seconds, have somebody listening, or nobody will.
const SOCKET_SETTLED: u64 = 60;

/// Removes the sockets `PID.sock` in `dir` that killed processes left behind: nobody listens on them. Best effort.
pub fn sweep_sockets(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_suffix(".sock")?.parse::<u32>().ok());
        // A process that lives is not bothered with a connection.
        if pid.is_none_or(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            continue;
        }
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if age.is_some_and(|age| age.as_secs() >= SOCKET_SETTLED) && is_deserted(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A socket on which nobody listens, in whatever namespace of processes.
fn is_deserted(socket: &Path) -> bool {
    let refused = std::io::ErrorKind::ConnectionRefused;
    std::os::unix::net::UnixStream::connect(socket).is_err_and(|e| e.kind() == refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, SystemTime};

    #[test]
    fn only_old_sockets_of_mounts_without_a_listener_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        // Beyond the largest number of a process. One listens in another namespace.
        let listens = UnixListener::bind(path("5000010.sock")).unwrap();
        let alive = format!("{}.sock", std::process::id());
        for name in ["5000011.sock", "5000012.sock", "pinstripe.sock", "0a1b-9.sock", &alive] {
            drop(UnixListener::bind(path(name)).unwrap());
        }
        std::fs::write(path("5000013.sock"), b"no socket").unwrap();
        std::fs::write(path("x.json"), b"{}").unwrap();
        let old = SystemTime::now() - Duration::from_secs(2 * SOCKET_SETTLED);
        for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
            if entry.file_name() != "5000012.sock" {
                let time = rustix::fs::Timespec {
                    tv_sec: old.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64,
                    tv_nsec: 0,
                };
                let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
                let flags = rustix::fs::AtFlags::empty();
                rustix::fs::utimensat(rustix::fs::CWD, entry.path(), &times, flags).unwrap();
            }
        }
        sweep_sockets(dir.path());
        let left = |name: &str| path(name).exists();
        for kept in ["5000010.sock", "5000012.sock", "pinstripe.sock", "0a1b-9.sock", "x.json"] {
            assert!(left(kept), "{kept}");
        }
        assert!(left(&alive) && !left("5000011.sock"));
        // A plain file refuses connections as well; the name is ours.
        assert!(!left("5000013.sock"));
        drop(listens);
    }

    #[test]
    fn defaults_follow_the_environment() {
        let user = Env { uid: 7, home: Some("/users/u".into()), ..Env::default() };
        let m = Path::new("/users/u/mnt");
        let data = user.data(m).unwrap();
        assert_eq!(data, Path::new("/users/u/.local/state/pinstripe/users-u-mnt"));
        assert_eq!(user.key(), Path::new("/users/u/.config/pinstripe/cluster.key"));
        let root = Env { root: true, ..Env::default() };
        assert_eq!(root.data(m).unwrap(), Path::new("/var/lib/pinstripe/users-u-mnt"));
        let state = Env { state: Some("/s".into()), ..root };
        assert_eq!(state.data(m).unwrap(), Path::new("/s/pinstripe/users-u-mnt"));
        assert!(Env::default().data(m).unwrap_err().text.contains("--data"));
    }

    #[test]
    fn different_paths_get_different_names() {
        let names = ["/a/b", "/a-b", "/a\\x2db", "/", "/a b", "/a/b/"].map(Path::new).map(escape);
        for (i, a) in names.iter().enumerate() {
            assert!(!a.as_bytes().contains(&b'/'));
            assert!(names.iter().skip(i + 1).all(|b| a != b), "{a:?}");
        }
        let long = format!("/{}", "x".repeat(3000));
        assert!(escape(Path::new(&long)).len() < 255);
    }
}
