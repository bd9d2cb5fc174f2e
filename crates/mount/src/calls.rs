//! System calls in which threads wait for this mount.
//!
//! Role: tells them apart, how far they are, and which are begun anew by the kernel. Assumptions: a thread's system call, its
//! arguments and its stack are shown under /proc as long as it waits; two of the same thread that look the same may be one.
//! Never does: wait.

use std::sync::OnceLock;
use std::time::Duration;

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

/// The kernel's function that walks a path; it asks whether somebody may use a directory before it looks at names there.
const WALK: &str = "link_path_walk";
/// What those begin with that do so for file systems that lie over this one, and for servers in the kernel.
const LOOKS: [&str; 2] = ["lookup_one", "lookup_noperm"];
/// What the outermost function of a thread begins with: of system calls, and of threads of the kernel.
const OUTERMOST: [&str; 3] = ["entry_", "el0", "ret_from_fork"];

/// How far a thread is that asks for a directory's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// It walks a path, has not used any name there yet, and does not hold the directory's lock.
    Path,
    /// It has not used any name there yet, for what lies over this file system; that may hold the lock.
    Over,
    /// It has ended its walk.
    Ended,
}

/// How far a thread is that asks for a directory's attributes; None: that is
/// shown to root only, by kernels in which the walk is a function of its own, and if all of its stack is. For the first time that takes a while.
pub fn walks(thread: u32) -> Option<Walk> {
    if !walk_shows() {
        return None;
    }
    let stack = std::fs::read_to_string(format!("/proc/{thread}/stack")).ok()?;
    in_walk(&stack)
}

/// The kernel's function in which a thread waits for a FUSE file system, and what those that call it begin with.
const ASKS: [&str; 2] = ["request_wait_answer", "fuse_"];

/// What functions begin with in which a thread waits outside of any file system.
const IDLES: [&str; 14] = [
    "anon_pipe_",
    "pipe_",
    "do_wait",
    "futex_",
    "do_poll",
    "do_select",
    "do_epoll_wait",
    "ep_poll",
    "hrtimer_nanosleep",
    "do_nanosleep",
    "unix_stream_",
    "sk_wait_",
    "do_sigtimedwait",
    "sigsuspend",
];

/// Whether a thread has ended, or is seen to wait for something else than a FUSE file system: what it was told before
/// it has taken in. All that it waits in is shown to root only; who is the same user is shown the innermost function.
pub fn waits_elsewhere(thread: u32) -> bool {
    if has_ended(thread) {
        return true;
    }
    let shown = |what: &str| std::fs::read_to_string(format!("/proc/{thread}/{what}")).ok();
    // Of one that runs the rest tells nothing. If it ran between two looks and waits again, it has gone on, too.
    let waits = || shown("stat").is_some_and(|stat| in_wait(&stat));
    let elsewhere = || match stack_shows() {
        true => shown("stack").is_some_and(|stack| asks(&stack) == Some(false)),
        false => shown("wchan").is_some_and(|innermost| begins(&innermost, &IDLES)),
    };
    waits() && elsewhere() && waits()
}

/// For how long a thread has run so far; None: that is not shown.
pub fn ran(thread: u32) -> Option<Duration> {
    let shown = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    // Zero where the kernel does not count: who exists has run.
    shown.split(' ').next()?.parse().ok().filter(|ns| *ns > 0).map(Duration::from_nanos)
}

fn has_ended(thread: u32) -> bool {
    // Whoever it belongs to: it is asked whether it is there, and nothing is shown of it.
    let thread = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
    thread.is_some_and(|id| rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH))
}

/// Whether the stacks of others are shown.
pub fn stack_shows() -> bool {
    static SHOWS: OnceLock<bool> = OnceLock::new();
    *SHOWS.get_or_init(|| {
        std::fs::read_to_string("/proc/self/stack").is_ok_and(|stack| outermost(&stack).is_some())
    })
}

/// Of what /proc/TID/stat shows: whether a thread does not run, and waits to.
fn in_wait(stat: &str) -> bool {
    // The name before it may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('S' | 'D' | 'T' | 't' | 'I'))
}

/// Whether who has this stack may ask a FUSE file system for something. None: not all of it is shown.
fn asks(stack: &str) -> Option<bool> {
    outermost(stack)?;
    Some(functions(stack).any(|name| begins(name, &ASKS)))
}

/// The functions of a stack, the innermost first. A line of it is `[<0>] name+0x1/0x2 [module]`.
fn functions(stack: &str) -> impl Iterator<Item = &str> {
    stack.lines().filter_map(|line| line.split(' ').nth(1))
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|with| name.starts_with(with))
}

/// The outermost function of a stack; None: not all of it is shown.
fn outermost(stack: &str) -> Option<&str> {
    functions(stack).last().filter(|name| begins(name, &OUTERMOST))
}

/// Whether this kernel shows who walks.
pub fn walk_shows() -> bool {
    static SHOWS: OnceLock<bool> = OnceLock::new();
    *SHOWS.get_or_init(|| {
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        symbols.lines().filter_map(|line| line.split(' ').nth(2)).any(|name| name.starts_with(WALK))
    })
}

/// None: not all of the stack is shown.
fn in_walk(stack: &str) -> Option<Walk> {
    outermost(stack)?;
    Some(if functions(stack).any(|name| begins(name, &LOOKS)) {
        Walk::Over
    } else if functions(stack).any(|name| name.starts_with(WALK)) {
        Walk::Path
    } else {
        Walk::Ended
    })
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
    fn who_holds_the_lock_is_told_from_who_walks() {
        let stack = |names: &[&str]| {
            let line = |name: &&str| format!("[<0>] {name}+0x145/0x210\n");
            names.iter().map(line).collect::<String>()
        };
        let asks =
            ["request_wait_answer", "fuse_do_getattr", "fuse_permission", "inode_permission"];
        let end = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
        let of = |more: &[&str]| in_walk(&stack(&[&asks[..], more, &end[..]].concat()));
        assert_eq!(
            of(&["link_path_walk", "__filename_parentat", "do_renameat2"]),
            Some(Walk::Path)
        );
        assert_eq!(of(&["link_path_walk.isra.0", "path_openat"]), Some(Walk::Path));
        assert_eq!(of(&["lookup_one_unlocked", "ovl_lookup", "path_openat"]), Some(Walk::Over));
        assert_eq!(of(&["lookup_one", "ovl_create", "link_path_walk"]), Some(Walk::Over));
        assert_eq!(of(&["may_delete", "vfs_rename", "__x64_sys_rename"]), Some(Walk::Ended));
        assert_eq!(of(&["path_openat", "do_filp_open"]), Some(Walk::Ended));
        assert_eq!(in_walk(&stack(&asks)), None, "who called is not shown");
        assert_eq!(in_walk(""), None);
    }

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
        let shown = std::fs::read_to_string(format!("/proc/{id}/wchan")).unwrap_or_default();
        assert!(begins(&shown, &IDLES) || matches!(&*shown, "" | "0"), "{shown}");
        if stack_shows() {
            assert!(waits_elsewhere(id));
        }
        drop(to);
        assert_eq!(thread.join().unwrap(), 0);
        while !waits_elsewhere(id) {
            assert!(std::time::Instant::now() < until, "it has ended");
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_runs_may_do_what_he_was_told_for() {
        let me = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert!(!waits_elsewhere(me));
        let before = ran(me);
        let much = before.map(|before| before + Duration::from_millis(20));
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while ran(me) < much {
            assert!(std::time::Instant::now() < until, "it runs: {before:?}");
        }
        let stat = |state: char| format!("12 (a) R (b) {state} 1 1 1 0 -1 4194304 1");
        assert!(in_wait(&stat('S')) && in_wait(&stat('D')));
        assert!(!in_wait(&stat('R')) && !in_wait("") && !has_ended(me));
        let stack = |names: &[&str]| {
            names.iter().map(|name| format!("[<0>] {name}+0x1/0x2\n")).collect::<String>()
        };
        let end = "entry_SYSCALL_64_after_hwframe";
        assert_eq!(asks(&stack(&["do_wait", "__x64_sys_wait4", end])), Some(false));
        assert_eq!(asks(&stack(&["request_wait_answer", "lookup_fast", end])), Some(true));
        assert_eq!(asks(&stack(&["folio_wait", "fuse_change_attributes", end])), Some(true));
        assert_eq!(asks(&stack(&["do_wait"])), None, "who called is not shown");
    }
}
