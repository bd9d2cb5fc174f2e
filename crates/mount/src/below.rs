//! Whether something is mounted below the mount.
//!
//! Role: looks through the tables of the mount namespaces that can be seen for a mount whose parent is of our
//! device; binds of our directories elsewhere are of it, too. Assumptions: a namespace without a process, or of
//! processes this one may not look into, cannot be seen. Never does: ask a file system anything, least of all
//! our own, which might be asked by the very thread that is to answer. It may take long all the same, where a process
//! is stuck.

use std::collections::HashSet;
use std::path::Path;

/// Device number of a mount: major, minor.
pub type Device = (u32, u32);

/// Whether anything is mounted below mounts of a device; also if that cannot be found out.
pub fn any(device: Device) -> bool {
    let of = |process: &Path| std::fs::read(process.join("mountinfo")).map(|t| below(&t, device));
    if of(Path::new("/proc/self")).unwrap_or(true) {
        return true;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    // A table shows what its process can reach from its root.
    let view = |process: &Path| {
        let link = |name| std::fs::read_link(process.join(name)).ok();
        Some((link("ns/mnt")?, link("root")?))
    };
    let mut seen: HashSet<_> = view(Path::new("/proc/self")).into_iter().collect();
    for process in processes.flatten() {
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let process = process.path();
        let Some(view) = view(&process).filter(|view| !seen.contains(view)) else { continue };
        match of(&process) {
            Ok(true) => return true,
            Ok(false) => drop(seen.insert(view)),
            // It ended, or may not be looked into.
            Err(_) => {}
        }
    }
    false
}

/// Whether a mountinfo table has a mount whose parent is of a device.
fn below(table: &[u8], (major, minor): Device) -> bool {
    let device = format!("{major}:{minor}");
    // Identifier, parent's identifier, device number; the rest does not matter.
    let mounts = || {
        table.split(|&b| b == b'\n').filter_map(|line| {
            let mut fields = line.split(|&b| b == b' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
    };
    let ours = |(_, _, of): &(&[u8], &[u8], &[u8])| *of == device.as_bytes();
    let ids: HashSet<&[u8]> = mounts().filter(ours).map(|(id, _, _)| id).collect();
    mounts().any(|(_, parent, _)| ids.contains(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
        40 22 0:31 / /mnt/a\\040b rw,nosuid - fuse.pinstripe pin rw,user_id=0\n\
        41 22 0:32 / /mnt/c rw - fuse.pinstripe pin rw\n\
        42 22 0:32 /sub /srv rw - fuse.pinstripe pin rw\n\
        43 41 254:0 /x /mnt/c/d rw shared:1 - ext4 /dev/root rw\n";

    #[test]
    fn what_is_mounted_below_is_found_by_its_parent() {
        let table = TABLE.as_bytes();
        assert!(below(table, (0, 32)), "a mount below");
        assert!(below(table, (254, 0)), "ours is below the root");
        assert!(!below(table, (0, 31)) && !below(table, (0, 3)) && !below(table, (4, 0)));
        let bound = TABLE.replace("43 41", "43 42");
        assert!(below(bound.as_bytes(), (0, 32)), "below a bind mount elsewhere");
        let aside = TABLE.replace("43 41", "43 22");
        assert!(!below(aside.as_bytes(), (0, 32)), "beside it");
    }

    #[test]
    fn torn_tables_are_read_as_far_as_they_go() {
        for end in 0..TABLE.len() {
            below(&TABLE.as_bytes()[..end], (0, 32));
        }
        assert!(!below(b"", (0, 32)) && !below(b"\n \n1 2\n", (0, 32)));
    }
}
