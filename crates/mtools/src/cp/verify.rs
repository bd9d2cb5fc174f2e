//! `--print-hash` and `--verify`: the digest of what was copied, and a look at what really arrived.
//!
//! Reads the source from its descriptor and the destination by its name, after its bytes were written
//! out and dropped from the page cache, so that it is the disk (or the server) that answers.

use super::own::Own;
use super::regular::Sides;
use crate::gnu::quote;
use crate::sum::budget::Budget;
use crate::sum::digest::{Digest, hex};
use crate::sum::hash;
use crate::sum::print::{is_odd, push_name, push_tagged, tree_tag};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// Bytes of one read.
const BLOCK: usize = 1 << 20;

/// What is to be said of a file that was copied.
pub enum Verdict {
    /// Nothing was asked for.
    Quiet,
    /// A line for standard output, as msum prints it.
    Line(Vec<u8>),
    /// The destination is not what it should be; a message.
    Wrong(String),
}

pub fn look(own: &Own, sides: &Sides) -> Verdict {
    if !own.print_hash && !own.verify {
        return Verdict::Quiet;
    }
    match compare(own, sides) {
        Ok(verdict) => verdict,
        Err(e) => Verdict::Wrong(format!(
            "cannot verify {}: {}",
            quote::always(sides.dst_name),
            crate::gnu::diag::reason(&e)
        )),
    }
}

fn compare(own: &Own, sides: &Sides) -> io::Result<Verdict> {
    let source = digest(own, sides.src)?;
    if own.verify {
        sides.dst.sync_data()?;
        rustix::fs::fadvise(sides.dst, 0, None, rustix::fs::Advice::DontNeed)?;
        let there = digest(own, &File::open(sides.dst_name)?)?;
        if there != source {
            return Ok(Verdict::Wrong(format!(
                "{} differs from {} after it was copied: its {} is {there}, not {source}; copy it again, and check \
                 the memory and the disk",
                quote::always(sides.dst_name),
                quote::always(sides.src_name),
                own.hash.name()
            )));
        }
    }
    Ok(if own.print_hash {
        Verdict::Line(line(own, &source, sides.dst_name.as_os_str()))
    } else {
        Verdict::Quiet
    })
}

/// Of whole regular files a tree hash, where that is asked for: by all processors together, however many files
/// are compared at once.
fn digest(own: &Own, file: &File) -> io::Result<String> {
    static PROCESSORS: LazyLock<Budget> = LazyLock::new(|| {
        Budget::new(|| std::thread::available_parallelism().map_or(1, usize::from))
    });
    if own.check_tree && file.metadata()?.is_file() {
        let digest = hash::tree(own.hash, own.engine.split_size, file, &PROCESSORS)?;
        return Ok(hex(&digest));
    }
    let mut digest = Digest::new(own.hash);
    let mut buffer = vec![0; BLOCK];
    let (begin, length) = (own.engine.offset, own.engine.length);
    let mut at = begin;
    let end = length.map_or(u64::MAX, |length| begin.saturating_add(length));
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(BLOCK).min(BLOCK);
        match file.read_at(&mut buffer[..most], at) {
            Ok(0) => break,
            Ok(n) => {
                digest.update(&buffer[..n]);
                at += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(hex(&digest.finish()))
}

/// As md5sum and its like print it, so that they can check it; a tree hash as msum does.
fn line(own: &Own, digest: &str, name: &OsStr) -> Vec<u8> {
    let odd = is_odd(name);
    let mut line = Vec::new();
    if odd {
        line.push(b'\\');
    }
    if own.check_tree {
        let tag = tree_tag(own.hash, own.engine.split_size);
        push_tagged(&mut line, &tag, name, odd, digest);
    } else {
        line.extend_from_slice(digest.as_bytes());
        line.extend_from_slice(b"  ");
        push_name(&mut line, name, odd);
    }
    line
}
