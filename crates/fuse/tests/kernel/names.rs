//! The name space through system calls.

use crate::memfs::BTIME;
use crate::{Mounted, root};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

#[test]
fn files_directories_and_links_of_every_kind() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/f"), b"hello").unwrap();
    fs::hard_link(m.path("d/f"), m.path("g")).unwrap();
    assert_eq!(fs::metadata(m.path("g")).unwrap().nlink(), 2);
    symlink("d/f", m.path("s")).unwrap();
    assert_eq!(fs::read_link(m.path("s")).unwrap().to_str(), Some("d/f"));
    assert_eq!(fs::read(m.path("s")).unwrap(), b"hello");

    let fifo = m.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    let device = m.path("dev");
    let number = rustix::fs::makedev(259, 70_000);
    let kind = rustix::fs::FileType::BlockDevice;
    rustix::fs::mknodat(CWD, &device, kind, Mode::from(0o600), number).unwrap();
    assert_eq!(fs::metadata(&device).unwrap().rdev(), number);

    fs::set_permissions(m.path("g"), fs::Permissions::from_mode(0o4750)).unwrap();
    std::os::unix::fs::chown(m.path("g"), Some(5), Some(6)).unwrap();
    let meta = fs::metadata(m.path("d/f")).unwrap();
    assert_eq!((meta.mode(), meta.uid(), meta.gid()), (0o100750 | meta.mode() & 0o6000, 5, 6));

    assert_eq!(fs::remove_dir(m.path("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_file(m.path("d/f")).unwrap();
    fs::remove_dir(m.path("d")).unwrap();
    assert_eq!(fs::read(m.path("g")).unwrap(), b"hello");
    m.end();
}

#[test]
fn names_hold_any_byte_up_to_255() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let name = OsString::from_vec((1..=255).filter(|&b| b != b'/').chain([b'x']).collect());
    fs::write(m.path(&name), b"1").unwrap();
    let listed: Vec<_> =
        fs::read_dir(m.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(listed, [name]);
    let long = fs::write(m.path("n".repeat(256)), b"").unwrap_err();
    assert_eq!(long.raw_os_error(), Some(libc::ENAMETOOLONG));
}

#[test]
fn rename_with_flags() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let (a, b) = (m.path("a"), m.path("b"));
    fs::write(&a, b"a").unwrap();
    fs::write(&b, b"b").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    rename(RenameFlags::empty()).unwrap();
    assert!(!a.exists());
    assert_eq!(fs::read(&b).unwrap(), b"b");
}

#[test]
fn a_temporary_file_gets_a_name_later() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, m.dir.path(), flags, Mode::from(0o640)).unwrap();
    rustix::io::write(&file, b"tmp").unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, proc, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(m.path("named")).unwrap(), b"tmp");
}

#[test]
fn a_directory_of_100000_entries_lists_each_once() {
    if !root() {
        return;
    }
    const COUNT: usize = 100_000;
    let m = Mounted::plain();
    {
        let mut tree = m.fs.tree();
        for i in 0..COUNT {
            let id = tree.make(libc::S_IFREG | 0o644, 0, 0);
            tree.add(1, format!("file-{i:06}").as_ref(), id);
        }
    }
    let listed: HashSet<_> =
        fs::read_dir(m.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(listed.len(), COUNT);
    let again = fs::read_dir(m.dir.path()).unwrap().count();
    assert_eq!(again, COUNT);
    let stated = fs::read_dir(m.dir.path()).unwrap().take(500);
    assert!(stated.map(|e| e.unwrap().metadata().unwrap()).all(|meta| meta.is_file()));
    assert!(m.fs.called("readdirplus") > 0 && m.fs.called("readdir") > 0);
}

#[test]
fn extended_attributes() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let f = m.path("f");
    fs::write(&f, b"").unwrap();
    let value: Vec<u8> = (0..=255).collect();
    rustix::fs::setxattr(&f, "user.one", &value, XattrFlags::CREATE).unwrap();
    let twice = rustix::fs::setxattr(&f, "user.one", b"x", XattrFlags::CREATE);
    assert_eq!(twice, Err(rustix::io::Errno::EXIST));
    rustix::fs::setxattr(&f, "trusted.two", b"", XattrFlags::empty()).unwrap();
    let get = |name: &str, room: usize| {
        let mut buf = vec![0u8; room];
        rustix::fs::getxattr(&f, name, &mut buf[..]).map(|n| (n, buf))
    };
    let path = std::ffi::CString::new(f.to_str().unwrap()).unwrap();
    // SAFETY: a size of 0 asks for the size and writes nothing.
    let size =
        unsafe { libc::getxattr(path.as_ptr(), c"user.one".as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(size, 256);
    assert_eq!(get("user.one", 256).unwrap(), (256, value));
    assert_eq!(get("user.one", 255).unwrap_err(), rustix::io::Errno::RANGE);
    assert_eq!(get("user.none", 9).unwrap_err(), rustix::io::Errno::NODATA);
    let mut list = [0u8; 64];
    let n = rustix::fs::listxattr(&f, &mut list[..]).unwrap();
    assert_eq!(&list[..n], b"trusted.two\0user.one\0");
    rustix::fs::removexattr(&f, "user.one").unwrap();
    assert_eq!(get("user.one", 9).unwrap_err(), rustix::io::Errno::NODATA);
}

#[test]
fn statx_knows_the_time_of_birth_and_statfs_the_space() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    fs::write(m.path("f"), b"abc").unwrap();
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let s = rustix::fs::statx(CWD, m.path("f"), AtFlags::empty(), mask).unwrap();
    assert!(StatxFlags::from_bits_retain(s.stx_mask).contains(StatxFlags::BTIME));
    assert_eq!((s.stx_btime.tv_sec, s.stx_btime.tv_nsec), (BTIME.sec, BTIME.nsec));
    assert_eq!(s.stx_size, 3);
    assert_eq!(m.fs.called("statx"), 1);
    let space = rustix::fs::statvfs(m.dir.path()).unwrap();
    assert_eq!((space.f_blocks, space.f_bavail, space.f_ffree), (1000, 800, 60));
    assert_eq!(space.f_namemax, 255);
}

#[test]
fn times_are_kept_to_the_nanosecond_also_before_1970() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    fs::write(m.path("f"), b"").unwrap();
    let spec = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
    let times = rustix::fs::Timestamps {
        last_access: spec(-5, 999_999_999),
        last_modification: spec(7, 1),
    };
    rustix::fs::utimensat(CWD, m.path("f"), &times, AtFlags::empty()).unwrap();
    let meta = fs::metadata(m.path("f")).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec()), (-5, 999_999_999));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (7, 1));
}

#[test]
fn create_carries_the_parents_group_if_the_caller_is_in_it() {
    if !root() {
        return;
    }
    let m = Mounted::plain();
    let dir = m.path("d");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(0), Some(4242)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2775)).unwrap();
    let status = std::process::Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--groups=1,4242,7", "touch"])
        .arg(dir.join("f"))
        .status();
    assert!(status.unwrap().success());
    assert_eq!(*m.fs.supp_groups.lock().unwrap(), [4242]);
}
