//! `lfs setstripe`.

use std::fs::{File, OpenOptions};
use std::path::Path;

use proto::Errno;
use proto::layout::LayoutSpec;
use proto::lov::Lov;
use rustix::fs::FallocateFlags;

use super::{HELP, xattr};
use crate::cli::SetstripeArgs;
use crate::failure::{Failure, Outcome};

const USAGE: &str = "Create a file with specified striping, or
set the default layout on an existing directory.
Usage: setstripe [--stripe-count|-c STRIPE_COUNT]
\t\t[--stripe-index|-i START_OST_IDX]
\t\t[--stripe-size|-S STRIPE_SIZE]
\t\tFILENAME|DIRECTORY
       setstripe --delete|-d DIRECTORY";

/// Makes the files, or sets the directories' defaults.
pub fn run(args: &SetstripeArgs) -> Outcome<()> {
    let spec = spec(args).map_err(|text| {
        Failure::with_code(HELP, format!("lfs setstripe setstripe: {text}\n{USAGE}"))
    })?;
    for path in &args.paths {
        let done = if args.delete { delete(path) } else { set(path, &spec) };
        done.map_err(|e| {
            let text = match e {
                Errno::EEXIST => "stripe already set".to_string(),
                Errno::EOPNOTSUPP => "not in a Pinstripe file system".to_string(),
                e => xattr::text(e),
            };
            let text = format!("lfs setstripe: setstripe error for '{}': {text}", path.display());
            Failure::with_code(xattr::code(e), text)
        })?;
    }
    Ok(())
}

fn delete(dir: &Path) -> Result<(), Errno> {
    match xattr::remove(dir, xattr::LOV) {
        Err(Errno::ENODATA) => Ok(()),
        other => other,
    }
}

fn set(path: &Path, spec: &LayoutSpec) -> Result<(), Errno> {
    let lov = Lov::of_spec(spec).encode();
    match std::fs::metadata(path) {
        Ok(m) if m.is_dir() => return xattr::set(path, xattr::LOV, &lov),
        Ok(_) => {
            let file = File::options().write(true).open(path).map_err(|e| Errno::of(&e))?;
            xattr::set_open(&file, xattr::LOV, &lov)?;
            return place(&file);
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Errno::of(&e)),
    }
    let new = OpenOptions::new().write(true).create_new(true).open(path);
    let file = new.map_err(|e| Errno::of(&e))?;
    xattr::set_open(&file, xattr::LOV, &lov).and_then(|()| place(&file)).inspect_err(|_| {
        // What was not there before does not stay behind a refusal.
        let _ = std::fs::remove_file(path);
    })
}

/// Has the objects chosen now, as Lustre does: a file whose stripes somebody chose is not kept
/// inline. Room beyond what inline files may have cannot be reserved without objects; it is given
/// back at once.
fn place(file: &File) -> Result<(), Errno> {
    let errno = |e: rustix::io::Errno| Errno(e.raw_os_error());
    let beyond = u64::from(proto::DEFAULT_DOM_LIMIT) + 1;
    rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, beyond).map_err(errno)?;
    rustix::fs::ftruncate(file, 0).map_err(errno)
}

fn spec(args: &SetstripeArgs) -> Result<LayoutSpec, String> {
    let mut spec = LayoutSpec::DEFAULT;
    if let Some(text) = &args.size {
        let bad = || format!("invalid stripe size '{text}'");
        spec.stripe_size = parse_size(text).and_then(|n| u32::try_from(n).ok()).ok_or_else(bad)?;
        spec.check().map_err(|_| bad())?;
    }
    if let Some(text) = &args.count {
        let bad = || format!("invalid stripe count '{text}'");
        spec.stripe_count = text.parse().map_err(|_| bad())?;
        spec.check().map_err(|_| bad())?;
    }
    if let Some(text) = &args.index {
        let bad = || format!("invalid stripe offset '{text}'");
        spec.stripe_offset = text.parse().map_err(|_| bad())?;
        spec.check().map_err(|_| bad())?;
    }
    Ok(spec)
}

/// Bytes, with k, m, g, t for binary multiples.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let last = text.chars().last()?;
    let shift = match last.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        c if c.is_ascii_digit() => 0,
        _ => return None,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_lfs_reads_them() {
        for (text, bytes) in [("65536", 65536), ("2M", 2 << 20), ("64k", 65536), ("1g", 1 << 30)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "+5", "1.5M", "9x", "99999999999999999999", "99999999999g"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        let with = |size: &str, count: &str, index: &str| {
            let some = |s: &str| (!s.is_empty()).then(|| s.to_string());
            let (size, count, index) = (some(size), some(count), some(index));
            spec(&SetstripeArgs { size, count, index, ..Default::default() })
        };
        assert_eq!(with("100", "", "").unwrap_err(), "invalid stripe size '100'");
        assert_eq!(with("8g", "", "").unwrap_err(), "invalid stripe size '8g'");
        assert_eq!(with("", "two", "").unwrap_err(), "invalid stripe count 'two'");
        assert_eq!(with("", "-2", "").unwrap_err(), "invalid stripe count '-2'");
        assert_eq!(with("", "", "70000").unwrap_err(), "invalid stripe offset '70000'");
        let spec = with("2M", "-1", "3").unwrap();
        assert_eq!((spec.stripe_size, spec.stripe_count, spec.stripe_offset), (2 << 20, -1, 3));
    }
}
