//! `-i`: asks before a file is overwritten, in cp's words.

use super::options::Options;
use super::output::Notes;
use super::stat::Stat;
use crate::gnu::{diag, quote};
use rustix::fs::{Access, AtFlags, CWD};
use std::io::{self, Write};
use std::path::Path;

/// Whether the user says yes.
pub fn overwrite(o: &Options, dst: &Path, st: &Stat, notes: &mut Notes) -> bool {
    notes.speak();
    let mut question = diag::program().to_vec();
    question.extend_from_slice(words(o, dst, st).as_bytes());
    let _ = io::stderr().write_all(&question);
    yes()
}

fn words(o: &Options, dst: &Path, st: &Stat) -> String {
    let dst_shown = quote::always(dst);
    let writable = st.is_symlink()
        || rustix::process::geteuid().is_root()
        || rustix::fs::accessat(CWD, dst, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    if writable {
        return format!(": overwrite {dst_shown}? ");
    }
    let (mode, letters) = (st.perm(), letters(st.perm()));
    if o.remove_destination || o.force {
        format!(": replace {dst_shown}, overriding mode {mode:04o} ({letters})? ")
    } else {
        format!(": unwritable {dst_shown} (mode {mode:04o}, {letters}); try anyway? ")
    }
}

/// `rwxr-x--T`, as ls shows it.
fn letters(perm: u32) -> String {
    let mut out = String::with_capacity(9);
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = perm >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, perm & special != 0) {
            (true, true) => set,
            (false, true) => set.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// A line of standard input that begins with y or Y; read byte by byte, because the next question's answer
/// is not ours.
fn yes() -> bool {
    let mut first = None;
    let mut byte = [0];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
            Ok(1) if byte[0] != b'\n' => {
                first.get_or_insert(byte[0]);
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => return matches!(first, Some(b'y' | b'Y')),
        }
    }
}
