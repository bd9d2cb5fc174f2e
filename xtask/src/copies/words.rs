//! Random command lines of cp: options that both programs have, and operands that exist, or do not.

use super::world::NAMES;
use crate::random::Random;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Options that need no argument apart, and how often one is taken in a thousand.
///
/// Not `--backup=simple`: cp 9.1 moves such a backup of `dir/file` to `file~`.
const OPTIONS: &[(&str, u64)] = &[
    ("-a", 150),
    ("-r", 250),
    ("-R", 150),
    ("-p", 150),
    ("-d", 60),
    ("-P", 80),
    ("-L", 80),
    ("-H", 60),
    ("-f", 80),
    ("-n", 60),
    ("-u", 80),
    ("-v", 300),
    ("-b", 60),
    ("-l", 40),
    ("-s", 40),
    ("-x", 40),
    ("-T", 50),
    ("--backup=t", 40),
    ("--backup=nil", 20),
    ("--suffix=.bak", 20),
    ("--parents", 60),
    ("--attributes-only", 40),
    ("--remove-destination", 60),
    ("--sparse=always", 80),
    ("--sparse=never", 60),
    ("--reflink=auto", 40),
    ("--reflink=never", 40),
    ("--no-preserve=mode", 50),
    ("--no-preserve=links", 30),
    ("--no-preserve=all", 20),
    ("--no-pres=timestamps,xattr", 20),
    ("--preserve=links", 50),
    ("--preserve=xattr", 40),
    ("--preserve=all", 50),
    ("--preserve=mode,timestamps", 40),
    ("--preserve=ownership", 40),
    ("--strip-trailing-slashes", 40),
    ("--arch", 20),
    ("--deref", 20),
    ("--re", 5),
    ("-q", 4),
    ("--sparse=a", 4),
    ("--backup=z", 4),
    ("--preserve=mode,foo", 4),
];

/// The words behind `cp`, which runs in a directory of `root` beside `src`.
pub fn command(random: &mut Random, root: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = OPTIONS
        .iter()
        .filter(|(_, often)| random.below(1000) < *often / 2)
        .map(|(word, _)| OsString::from(word))
        .collect();
    let recursive = ["-a", "-r", "-R", "--arch"].iter().any(|r| words.iter().any(|w| w == r));
    let sources = [1, 1, 1, 2, 3][random.index(5)];
    let mut operands: Vec<_> = (0..sources).map(|_| source(random, recursive, root)).collect();
    if random.below(8) == 0 {
        words.push("-t".into());
        words.push(destination(random));
    } else {
        operands.push(destination(random));
    }
    if random.below(3) > 0 {
        words.push("--".into());
    }
    words.extend(operands);
    words
}

fn path(random: &mut Random, base: &str, deep: u64) -> OsString {
    let mut path = base.as_bytes().to_vec();
    for _ in 0..random.below(deep + 1) {
        path.push(b'/');
        path.extend_from_slice(NAMES[random.index(NAMES.len())]);
    }
    OsString::from_vec(path)
}

fn source(random: &mut Random, recursive: bool, root: &Path) -> OsString {
    let mut path = match random.below(20) {
        0 => OsString::from("../src/nothing"),
        1 => OsString::from("../src/."),
        // Inside the destination: the same file, or the directory itself.
        2 => path(random, "dst", 2),
        3..8 => OsString::from("../src"),
        _ => path(random, "../src", 2),
    };
    if random.below(10) == 0 {
        path.push("/");
    }
    // Reading a FIFO would wait for a writer for ever.
    let there = Path::new(&path).strip_prefix("..").map(|below| root.join(below));
    let waits = |file: &Path| std::fs::metadata(file).is_ok_and(|m| m.file_type().is_fifo());
    if !recursive && there.is_ok_and(|file| waits(&file)) {
        return "../src/nothing".into();
    }
    path
}

fn destination(random: &mut Random) -> OsString {
    let mut path = match random.below(12) {
        0 => OsString::from("new"),
        1 => OsString::from("nowhere/new"),
        2..6 => path(random, "dst", 2),
        6 => OsString::from("."),
        _ => OsString::from("dst"),
    };
    if random.below(10) == 0 {
        path.push("/");
    }
    path
}

/// Options of ours, which must change nothing: shown, and as words.
pub fn own(random: &mut Random) -> (String, Vec<String>) {
    let threads = [1, 2, 4, 7][random.index(4)];
    let mut words = vec![format!("--threads={threads}")];
    if random.below(2) == 0 {
        words.push(format!("--split-size={}K", [64, 100, 128][random.index(3)]));
    }
    if random.below(2) == 0 {
        words.push(format!("--buffer-size={}K", [4, 16, 64][random.index(3)]));
    }
    for (word, often) in [
        ("--no-double-buffer", 4),
        ("--direct-write", 8),
        ("--direct-read", 8),
        ("--preallocate", 8),
    ] {
        if random.below(often) == 0 {
            words.push(word.into());
        }
    }
    (words.join(" "), words)
}
