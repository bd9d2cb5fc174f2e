//! Called by mount(8), for a line of fstab(5) or for `mount -t pinstripe`: the program's name is `mount.pinstripe` then.
//!
//! Role: makes a command line of `pinstripe mount` of what mount(8) says to its helpers, `SPEC DIR [-sfnv]
//! [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, and an exit code as it expects of them of ours. Options that are flags of
//! `pinstripe mount` are given as `key=FILE`, `wait=SECONDS` and so on. Never does: mount.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, USAGE};
use crate::mounting;
use crate::record::Record;

/// The names under which mount(8) looks for a helper: of the types `pinstripe` and `fuse.pinstripe`.
const NAMES: [&str; 2] = ["mount.pinstripe", "mount.fuse.pinstripe"];
/// What detached commands are started again with, in front of all else.
const AGAIN: &str = "--daemon-child";
/// Options that are flags here.
const FLAGS: [&str; 5] = ["key", "wait", "config", "log_level", "log_file"];
/// Options of fstab(5) that say who may mount, and when.
const OF_FSTAB: [&str; 11] = [
    "auto", "noauto", "user", "nouser", "users", "owner", "group", "fail", "nofail", "_netdev",
    "defaults",
];
/// Exit codes for mount(8): wrong use, and a mount that failed.
const WRONG_USE: u8 = 1;
const FAILED: u8 = 32;

/// What mount(8) asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    address: OsString,
    mountpoint: OsString,
    options: Vec<String>,
    flags: Vec<(&'static str, String)>,
    again: bool,
    verbose: bool,
    /// Options that are not known are left out.
    sloppy: bool,
    /// Nothing is to be mounted.
    fake: bool,
}

/// Whether the program was called by one of its names for mount(8).
pub fn is_called(args: &[OsString]) -> bool {
    let name = args.first().and_then(|name| Path::new(name).file_name());
    name.and_then(OsStr::to_str).is_some_and(|name| NAMES.contains(&name))
}

/// The exit code that mount(8) expects.
pub fn code(of: u8) -> u8 {
    if of == USAGE { WRONG_USE } else { FAILED }
}

impl Asked {
    /// Reads the arguments, the first of which is the program's name.
    pub fn read(args: &[OsString]) -> Outcome<Asked> {
        let mut asked = Asked::default();
        let mut places = Vec::new();
        let mut args = args.iter().skip(1);
        while let Some(arg) = args.next() {
            let text = arg.to_str().unwrap_or_default();
            let letters = text.strip_prefix('-').filter(|_| text != AGAIN && text.len() > 1);
            match letters {
                None if text == AGAIN => asked.again = true,
                None => places.push(arg.clone()),
                Some("o") => asked.options(value(args.next(), "-o")?)?,
                Some("t") => drop(value(args.next(), "-t")?),
                Some("N") => {
                    let text = "a mount in another namespace (-N) is not supported; enter it with nsenter(1)";
                    return Err(Failure::usage(text));
                }
                Some(letters) => asked.letters(letters)?,
            }
        }
        match <[OsString; 2]>::try_from(places) {
            Ok([address, mountpoint]) => (asked.address, asked.mountpoint) = (address, mountpoint),
            Err(places) => {
                return Err(Failure::usage(format!(
                    "mount(8) gives an address and a mount point, but got {} arguments; by hand use `pinstripe mount`",
                    places.len()
                )));
            }
        }
        Ok(asked)
    }

    fn letters(&mut self, letters: &str) -> Outcome<()> {
        for letter in letters.chars() {
            match letter {
                's' => self.sloppy = true,
                'f' => self.fake = true,
                'v' => self.verbose = true,
                // Of /etc/mtab, which is none any more.
                'n' => {}
                other => {
                    return Err(Failure::usage(format!("mount(8) gives no option -{other}")));
                }
            }
        }
        Ok(())
    }

    fn options(&mut self, given: &str) -> Outcome<()> {
        for option in given.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            match (FLAGS.iter().find(|flag| **flag == name), value) {
                (Some(flag), Some(value)) => self.flags.push((flag, value.into())),
                (Some(flag), None) => {
                    return Err(Failure::usage(format!(
                        "the mount option {flag} needs a value: {flag}=..."
                    )));
                }
                _ if OF_FSTAB.contains(&name) || name == "comment" => {}
                _ => self.options.push(option.into()),
            }
        }
        Ok(())
    }

    /// The command line of `pinstripe mount` that does it; None: there is nothing to do.
    pub fn command(mut self, name: &OsStr) -> Outcome<Option<Vec<OsString>>> {
        if self.sloppy {
            let known = |option: &String| {
                mounting::Options::parse_apart(std::slice::from_ref(option)).is_ok()
            };
            self.options.retain(known);
        }
        if self.fake {
            mounting::Options::parse_apart(&self.options)?;
            return Ok(None);
        }
        if !self.again && self.is_done() {
            return Ok(None);
        }
        let mut args = vec![name.to_os_string()];
        args.extend(self.again.then(|| AGAIN.into()));
        args.push("mount".into());
        for (flag, value) in &self.flags {
            args.push(format!("--{}={value}", flag.replace('_', "-")).into());
        }
        // As with other file systems.
        args.push(if self.verbose { "-v" } else { "--quiet" }.into());
        if !self.options.is_empty() {
            args.extend(["-o".into(), self.options.join(",").into()]);
        }
        args.extend(["--".into(), self.address, self.mountpoint]);
        Ok(Some(args))
    }

    /// Whether it is mounted there already, as `mount -a` may ask once more.
    fn is_done(&self) -> bool {
        let Ok(mountpoint) = std::fs::canonicalize(PathBuf::from(&self.mountpoint)) else {
            return false;
        };
        let Ok(Some(record)) = Record::of(&mountpoint) else { return false };
        if record.process().is_none() {
            return false;
        }
        let line = std::fs::read(format!("/proc/{}/cmdline", record.process.pid));
        let address = self.address.as_encoded_bytes();
        line.is_ok_and(|line| line.split(|byte| *byte == 0).any(|arg| arg == address))
    }
}

fn value<'a>(given: Option<&'a OsString>, of: &str) -> Outcome<&'a str> {
    let text = given.and_then(|given| given.to_str());
    text.ok_or_else(|| Failure::usage(format!("{of} needs a value")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn command(text: &str) -> Outcome<Option<String>> {
        let args = args(text);
        let made = Asked::read(&args)?.command(&args[0])?;
        let words = |made: Vec<OsString>| {
            made.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        Ok(made.map(|made| words(made).join(" ")))
    }

    #[test]
    fn what_mount_says_is_a_command_line_of_ours() {
        assert!(is_called(&args("/sbin/mount.pinstripe a b")));
        assert!(is_called(&args("mount.fuse.pinstripe")) && !is_called(&args("pinstripe mount")));
        for (said, wanted) in [
            ("mount.pinstripe mgs:4747 /m", "mount.pinstripe mount --quiet -- mgs:4747 /m"),
            (
                "mount.pinstripe mgs:4747:/a /m -o rw,_netdev,noatime,key=/k,x-systemd.automount,wait=5",
                "mount.pinstripe mount --key=/k --wait=5 --quiet -o rw,noatime,x-systemd.automount -- mgs:4747:/a /m",
            ),
            (
                "mount.pinstripe mgs:4747 /m -nv -t pinstripe -o user,comment=x,log_file=/l",
                "mount.pinstripe mount --log-file=/l -v -- mgs:4747 /m",
            ),
            (
                "mount.pinstripe --daemon-child mgs:4747 /m -o ro",
                "mount.pinstripe --daemon-child mount --quiet -o ro -- mgs:4747 /m",
            ),
            (
                "mount.pinstripe mgs:4747 /m -s -o ro,frobnicate,zzz=1",
                "mount.pinstripe mount --quiet -o ro -- mgs:4747 /m",
            ),
        ] {
            assert_eq!(command(said).unwrap().as_deref(), Some(wanted), "{said}");
        }
        assert_eq!(command("mount.pinstripe mgs:4747 /m -f -o ro").unwrap(), None);
    }

    #[test]
    fn what_it_must_not_say_is_refused_by_name() {
        for (said, part) in [
            ("mount.pinstripe mgs:4747", "got 1 arguments"),
            ("mount.pinstripe a b c", "got 3 arguments"),
            ("mount.pinstripe a b -o", "-o needs a value"),
            ("mount.pinstripe a b -o key", "key=..."),
            ("mount.pinstripe a b -x", "-x"),
            ("mount.pinstripe a b -N 1", "nsenter"),
            ("mount.pinstripe a b -f -o frobnicate", "'frobnicate'"),
        ] {
            let e = command(said).unwrap_err();
            assert!(e.code == USAGE && e.text.contains(part), "{said}: {e}");
        }
        assert_eq!((code(USAGE), code(1)), (1, 32));
    }
}
