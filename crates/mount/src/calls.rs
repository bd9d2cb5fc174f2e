//! System calls in which threads wait for this mount.
//!
//! Role: tells them apart, how far they are, and which are begun anew by the kernel. Assumptions: a thread's system call, its arguments and its
//! stack are shown under /proc as long as it waits; two of the same thread that look the same may be one.
//! Never does: wait.

/// A system call of a thread, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call(String);

impl Call {
    /// The one in which a thread waits, by its number here; None: it is not known, or not to be seen from here.
    pub fn of(thread: u32) -> Option<Call> {
        let said = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
        Call::shown(&said)
    }

    pub(crate) fn shown(said: &str) -> Option<Call> {
        let said = said.trim();
        // "running" or "-1 ..." is no call that waits.
        let number = said.split(' ').next()?.parse::<libc::c_long>().ok()?;
        (number >= 0).then(|| Call(said.into()))
    }

    /// Whether it changes names, and is begun anew after ESTALE.
    pub fn changes_names(&self) -> bool {
        let number = self.0.split(' ').next().and_then(|n| n.parse::<libc::c_long>().ok());
        number.is_some_and(|number| CHANGE_NAMES.contains(&number))
    }
}

/// Whether a thread that asks for a directory's attributes still walks a path, before it uses any name there; None: that is
/// shown to root only.
pub fn walks(thread: u32) -> Option<bool> {
    let stack = std::fs::read_to_string(format!("/proc/{thread}/stack")).ok()?;
    (!stack.is_empty()).then(|| stack.contains("link_path_walk"))
}

/// System calls that change names, by their numbers on this machine.
const CHANGE_NAMES: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_all_that_is_shown_of_them() {
        let at = |path: u64| format!("{} {path:#x} 0x0 0x7ffc 0x7f01\n", libc::SYS_unlinkat);
        let (one, other) = (Call::shown(&at(1)).unwrap(), Call::shown(&at(2)).unwrap());
        assert!(one == Call::shown(&at(1)).unwrap() && one != other);
        assert!(one.changes_names());
        let stats = Call::shown(&format!("{} 0x1\n", libc::SYS_statx)).unwrap();
        assert!(!stats.changes_names());
        for none in ["running\n", "-1 0x7ffc 0x7f01\n", "", "x"] {
            assert_eq!(Call::shown(none), None);
        }
    }

    /// What the kernel shows of a thread that reads from an empty pipe.
    #[test]
    fn a_thread_that_waits_shows_its_call() {
        let (mut from, to) = std::io::pipe().unwrap();
        let (say, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let me = std::fs::read_link("/proc/thread-self").unwrap();
            let id: u32 = me.file_name().unwrap().to_str().unwrap().parse().unwrap();
            say.send(id).unwrap();
            std::io::Read::read(&mut from, &mut [0]).unwrap()
        });
        let id = said.recv().unwrap();
        let reads = format!("{} ", libc::SYS_read);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !Call::of(id).is_some_and(|call| call.0.starts_with(&reads)) {
            assert!(std::time::Instant::now() < until, "it waits");
            std::thread::yield_now();
        }
        assert!(!Call::of(id).unwrap().changes_names());
        drop(to);
        assert_eq!(thread.join().unwrap(), 0);
    }
}
