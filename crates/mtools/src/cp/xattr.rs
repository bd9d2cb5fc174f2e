//! Extended attributes, as `cp --preserve=xattr` carries them over: all but those that
//! `/etc/xattr.conf` says are permissions or not to be copied.

use super::options::Options;
use super::output::Notes;
use super::place::Place;
use crate::gnu::quote;
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

const CONF: &str = "/etc/xattr.conf";

/// Where there is no such file: those that are permissions, and those only the kernel writes.
const USUAL: &[&str] = &[
    "system.nfs4_acl",
    "system.nfs4acl",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "security.evm",
];

/// Copies the attributes; false when one could not be.
pub fn copy(src: Place, dst: Place, options: &Options, notes: &mut Notes) -> bool {
    let told = Told {
        all: options.attributes_only || options.preserve.xattr_required,
        some: !options.quiet_xattr,
    };
    let names = match src.xattr_names() {
        Ok(names) => names,
        Err(Errno::NOSYS | Errno::OPNOTSUPP) => return true,
        Err(e) => {
            told.tell(notes, &format!("listing attributes of {}", quote::always(src.path())), e);
            return false;
        }
    };
    let mut good = true;
    let mut unsupported = false;
    for name in names.iter().filter(|name| wanted(name)) {
        let shown = quote::always(OsStr::from_bytes(name.to_bytes()));
        let value = match src.xattr(name) {
            Ok(value) => value,
            Err(Errno::NODATA) => continue,
            Err(e) => {
                told.tell(
                    notes,
                    &format!("getting attribute {shown} of {}", quote::always(src.path())),
                    e,
                );
                good = false;
                continue;
            }
        };
        match dst.set_xattr(name, &value) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => unsupported = true,
            Err(e) => {
                told.tell(
                    notes,
                    &format!("setting attribute {shown} for {}", quote::always(dst.path())),
                    e,
                );
                good = false;
            }
        }
    }
    if unsupported {
        told.tell(
            notes,
            &format!("setting attributes for {}", quote::always(dst.path())),
            Errno::OPNOTSUPP,
        );
    }
    good && !unsupported
}

/// Which errors are worth a message.
struct Told {
    all: bool,
    some: bool,
}

impl Told {
    fn tell(&self, notes: &mut Notes, what: &str, e: Errno) {
        let common = matches!(e, Errno::OPNOTSUPP | Errno::NODATA);
        if self.all || self.some && !common {
            notes.warn(&format!("{what}: {}", crate::gnu::diag::strerror(e.raw_os_error())));
        }
    }
}

fn wanted(name: &CStr) -> bool {
    static SKIPPED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let skipped = SKIPPED.get_or_init(|| match std::fs::read_to_string(CONF) {
        Ok(text) => text
            .lines()
            .filter_map(|line| line.split('#').next()?.split_whitespace().next())
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        Err(_) => USUAL.iter().map(|word| word.as_bytes().to_vec()).collect(),
    });
    !skipped.iter().any(|pattern| match pattern.strip_suffix(b"*") {
        Some(start) => name.to_bytes().starts_with(start),
        None => name.to_bytes() == pattern,
    })
}
