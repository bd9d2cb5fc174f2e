//! Everybody does anything to a dozen names at once. Nothing is verified except that each errno can
//! follow from such a race.

use super::child::{Context, Fault, Tried};
use rand::Rng;
use rand::seq::IndexedRandom;
use rustix::fs::{self as rfs, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::CString;

/// What a race between names can give a caller who may do everything.
const EXPECTED: [Errno; 16] = [
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::NOTEMPTY,
    Errno::INVAL,
    Errno::LOOP,
    Errno::NXIO,
    Errno::SPIPE,
    Errno::MLINK,
    Errno::NODATA,
    Errno::AGAIN,
    Errno::PERM,
    Errno::BUSY,
    Errno::OPNOTSUPP,
    Errno::NAMETOOLONG,
];
const NAMES: [&str; 12] =
    ["a", "b", "c", "d", "e", "f", "d/a", "d/b", "e/a", "e/f", "d/e/a", "f/d"];
/// Files stay below this.
const SIZE: u64 = 4 << 20;

pub(crate) fn run(context: &mut Context) -> Tried {
    let base = context.task.dir.join("race");
    while context.tick() {
        let mut name = || {
            let name = NAMES.choose(&mut context.rng).copied().unwrap_or("a");
            CString::new(base.join(name).into_os_string().into_encoded_bytes()).unwrap_or_default()
        };
        let (a, b) = (name(), name());
        let kind = context.rng.random_range(0..22);
        let number = context.rng.random_range(0..SIZE);
        let opened = Cell::new(false);
        match step(kind, &a, &b, number, &opened) {
            // Another mount replaced a name twice while it was looked up, see docs/semantics.md.
            Err(Errno::STALE) if context.task.several_mounts => {}
            Err(e) if !EXPECTED.contains(&e) => {
                let when = if opened.get() { " once it was open" } else { "" };
                return Err(Fault(format!("operation {kind} on {a:?}, {b:?}{when}: {e}")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn step(
    kind: u32,
    a: &CString,
    b: &CString,
    number: u64,
    opened: &Cell<bool>,
) -> Result<(), Errno> {
    let open = |flags: OFlags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rfs::openat(CWD, a, flags, Mode::from_raw_mode(0o644))?;
        opened.set(true);
        Ok::<_, Errno>(file)
    };
    let data = [number as u8; 3000];
    match kind {
        0 | 1 => open(OFlags::CREATE | OFlags::RDWR).map(drop),
        2 => rustix::io::pwrite(open(OFlags::CREATE | OFlags::RDWR)?, &data, number).map(drop),
        3 => rustix::io::write(open(OFlags::RDWR | OFlags::APPEND)?, &data).map(drop),
        4 => rustix::io::pread(open(OFlags::RDONLY)?, &mut [0; 5000], number).map(drop),
        5 => open(OFlags::RDWR | OFlags::TRUNC).map(drop),
        6 | 7 => rfs::mkdirat(CWD, a, Mode::from_raw_mode(0o755)),
        8 => rfs::unlinkat(CWD, a, AtFlags::REMOVEDIR),
        9 | 10 => rfs::unlinkat(CWD, a, AtFlags::empty()),
        11 | 12 => rfs::renameat_with(CWD, a, CWD, b, RenameFlags::empty()),
        13 if number.is_multiple_of(3) => rfs::renameat_with(CWD, a, CWD, b, RenameFlags::WHITEOUT),
        13 => rfs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE),
        14 => rfs::linkat(CWD, a, CWD, b, AtFlags::empty()),
        15 => rfs::symlinkat(if number.is_multiple_of(2) { c"d/a" } else { c"../f" }, CWD, a),
        16 => rfs::chmodat(
            CWD,
            a,
            Mode::from_raw_mode(0o700 | number as u32 & 0o77),
            AtFlags::empty(),
        ),
        17 => rfs::setxattr(a, c"user.race", &data[..40], XattrFlags::empty()),
        18 => rfs::listxattr(a, &mut [0u8; 4000][..]).map(drop),
        19 => rfs::mknodat(CWD, a, FileType::Fifo, Mode::from_raw_mode(0o600), 0),
        20 => {
            let dir = open(OFlags::RDONLY | OFlags::DIRECTORY)?;
            rfs::Dir::new(dir)?.try_for_each(|entry| entry.map(drop))
        }
        _ => {
            let file = open(OFlags::RDWR)?;
            rfs::ftruncate(&file, number)?;
            rfs::fsync(&file)
        }
    }
}
