//! How many OSTs a file system has, and what is free on the smallest, as far as its mount tells a plain user.
//!
//! - Pinstripe: the extended attribute `lustre.osts` (`docs/format.md`).
//! - Lustre: its parameters `osc.FSNAME-OST*.kbytesavail`, which are files; FSNAME is the mount's, from mountinfo.
//!
//! Needs no library of Lustre's. Where nothing is told, nothing is known: never an error.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where Lustre has shown its parameters, newest first.
const PARAMETERS: [&str; 2] = ["/sys/fs/lustre/osc", "/proc/fs/lustre/osc"];
/// Longest answer of a mount: 2,000 OSTs fit.
const ANSWER_MAX: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Osts {
    /// At least one.
    pub count: u16,
    /// Bytes free on the smallest, where at least one tells.
    pub least: Option<u64>,
}

impl Osts {
    /// Of the Pinstripe that has this directory.
    pub fn of_pinstripe(dir: &Path) -> Option<Self> {
        let mut bytes = vec![0; ANSWER_MAX];
        let length = rustix::fs::getxattr(dir, "lustre.osts", &mut bytes[..]).ok()?;
        let lines = std::str::from_utf8(&bytes[..length]).ok()?.lines();
        let free = lines.map(|line| line.split_once(' ').and_then(|(_, free)| free.parse().ok()));
        Self::sum(free)
    }

    /// Of the Lustre that is mounted as this device.
    pub fn of_lustre(dev: u64) -> Option<Self> {
        let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
        let name = name(&mounts, dev)?;
        PARAMETERS.iter().find_map(|dir| Self::of_parameters(Path::new(dir), name))
    }

    /// A directory `FSNAME-OST0000-osc-ffff8800` for each OST, and for each mount of it.
    fn of_parameters(dir: &Path, name: &[u8]) -> Option<Self> {
        let prefix = [name, b"-OST"].concat();
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(dir).ok()?.flatten() {
            let (file, path) = (entry.file_name(), entry.path());
            let Some(rest) = file.as_bytes().strip_prefix(&prefix[..]) else { continue };
            let index = rest.split(|b| *b == b'-').next().unwrap_or_default().to_vec();
            let text = std::fs::read_to_string(path.join("kbytesavail")).unwrap_or_default();
            let free = text.trim().parse::<u64>().ok().map(|kib| kib.saturating_mul(1024));
            all.insert(index, free);
        }
        Self::sum(all.into_values())
    }

    fn sum(free: impl Iterator<Item = Option<u64>>) -> Option<Self> {
        let (mut count, mut least) = (0u16, None);
        for free in free {
            count = count.saturating_add(1);
            least = [least, free].into_iter().flatten().min();
        }
        (count > 0).then_some(Self { count, least })
    }
}

/// FSNAME of the Lustre that is mounted as this device: its source is `NID[:NID...]:/FSNAME[/DIRECTORY]`.
fn name(mounts: &[u8], dev: u64) -> Option<&[u8]> {
    let dev = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    mounts.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<_> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let (kind, source) = (*fields.get(dash + 1)?, *fields.get(dash + 2)?);
        if *fields.get(2)? != dev.as_bytes() || kind != b"lustre" {
            return None;
        }
        let at = source.windows(2).position(|two| two == b":/")?;
        source[at + 2..].split(|b| *b == b'/').next().filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lustre_mount_is_found_by_its_device() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            90 22 0:51 / /a rw,noatime shared:5 - lustre 10.0.0.1@tcp:10.0.0.2@tcp:/scratch rw,flock\n\
            91 22 0:52 / /b rw - lustre 10.0.0.1@tcp:/projects/users rw\n\
            92 22 0:53 / /c rw - nfs host:/export rw\n";
        let of = |minor| name(mounts, rustix::fs::makedev(0, minor));
        assert_eq!(of(51), Some(&b"scratch"[..]));
        assert_eq!(of(52), Some(&b"projects"[..]));
        assert_eq!((of(53), of(54), name(b"", 1)), (None, None, None));
    }

    #[test]
    fn parameters_of_one_file_system_count_and_two_mounts_of_it_once() {
        let dir = tempfile::tempdir().unwrap();
        for (name, kib) in [
            ("lustre-OST0000-osc-ffff1", "5000\n"),
            ("lustre-OST0001-osc-ffff1", "300\n"),
            ("lustre-OST0001-osc-ffff2", "300\n"),
            ("lustre2-OST0000-osc-ffff3", "1\n"),
            ("lustre-OST000a-osc-ffff1", ""),
        ] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("kbytesavail"), kib).unwrap();
        }
        let osts = |name: &str| Osts::of_parameters(dir.path(), name.as_bytes());
        assert_eq!(osts("lustre"), Some(Osts { count: 3, least: Some(300 << 10) }));
        assert_eq!(osts("other"), None);
        assert_eq!(Osts::of_parameters(&dir.path().join("none"), b"lustre"), None);
    }
}
