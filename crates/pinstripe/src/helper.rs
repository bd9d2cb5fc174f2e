//! Called by mount(8), for a line of fstab(5) or for `mount -t pinstripe`: the program's name is `mount.pinstripe` then.
//!
//! Role: makes a command line of `pinstripe mount` of what mount(8) says to its helpers, and an exit code as it expects
//! of them of ours. Options that are flags of `pinstripe mount` are given as `key=FILE`, `wait=SECONDS` and so on.
//! Never does: mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::failure::{Failure, Outcome, USAGE};
use crate::mounting;
use crate::record::Record;

/// The names under which mount(8) looks for a helper: of the types `pinstripe` and `fuse.pinstripe`.
const NAMES: [&str; 2] = ["mount.pinstripe", "mount.fuse.pinstripe"];
/// Options that are flags here.
const FLAGS: [&str; 5] = ["key", "wait", "config", "log_level", "log_file"];
/// Exit codes for mount(8): wrong use, and a mount that failed.
const WRONG_USE: u8 = 1;
const FAILED: u8 = 32;

/// What help says besides.
const MORE: &str = "Mount a Pinstripe file system; called by mount(8)

With a link of this name to pinstripe in /sbin, `mount -t pinstripe` works, and so do lines of fstab(5):

    HOST:PORT[:/SUBDIR]  /mnt  pinstripe  _netdev,nofail,key=FILE  0 0

It is `pinstripe mount`, see pinstripe-mount(1), and leaves alone what the same line has mounted already.";

/// Mount a Pinstripe file system; called by mount(8)
#[derive(Clone, Debug, Parser)]
#[command(name = "mount.pinstripe", bin_name = "mount.pinstripe", version, long_about = MORE)]
#[command(after_help = "Exit codes: 0, 1 for what makes no sense, 32 for a mount that failed.")]
pub struct HelperArgs {
    /// Address of the management service: HOST:PORT or unix:/PATH, and :/SUBDIR to mount less
    #[arg(value_name = "ADDR[:/SUBDIR]")]
    address: OsString,
    /// Where to mount: an empty directory
    mountpoint: PathBuf,
    /// Mount options, separated by commas: those of `pinstripe mount -o`, and key=FILE, wait=SECONDS, config=FILE,
    /// log_level=LEVEL and log_file=FILE
    #[arg(short = 'o', value_name = "OPTS", value_delimiter = ',')]
    options: Vec<String>,
    /// Leave out options that are not known
    #[arg(short)]
    sloppy: bool,
    /// Mount nothing, only look at the options
    #[arg(short)]
    fake: bool,
    /// Say what is mounted
    #[arg(short)]
    verbose: bool,
    /// Means nothing: there is no /etc/mtab
    #[arg(short = 'n')]
    _no_mtab: bool,
    /// The type, which is known
    #[arg(short = 't', value_name = "TYPE")]
    _type: Option<String>,
    /// Mounts in another namespace are refused
    #[arg(short = 'N', value_name = "NAMESPACE", hide = true)]
    namespace: Option<String>,
    /// Started again, in the background
    #[arg(long, hide = true)]
    daemon_child: bool,
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

impl HelperArgs {
    /// The command line of `pinstripe mount` that does it; None: there is nothing to do.
    pub fn line(self) -> Outcome<Option<Vec<OsString>>> {
        if self.namespace.is_some() {
            let text =
                "mounts in another namespace (-N) are not supported; enter it with nsenter(1)";
            return Err(Failure::usage(text));
        }
        let (flags, mut options) = sort(&self.options)?;
        if self.sloppy {
            options.retain(|option| parse(std::slice::from_ref(option)).is_ok());
        }
        parse(&options)?;
        if self.fake || (!self.daemon_child && self.is_done()) {
            return Ok(None);
        }
        let mut args: Vec<OsString> = vec!["pinstripe".into()];
        args.extend(self.daemon_child.then(|| "--daemon-child".into()));
        args.push("mount".into());
        args.extend(flags.into_iter().map(OsString::from));
        // As with other file systems.
        args.push(if self.verbose { "-v" } else { "--quiet" }.into());
        if !options.is_empty() {
            args.extend(["-o".into(), options.join(",").into()]);
        }
        args.extend(["--".into(), self.address, self.mountpoint.into()]);
        Ok(Some(args))
    }

    /// Whether the same was asked for and is mounted there, as `mount -a` asks for all lines again.
    fn is_done(&self) -> bool {
        let Ok(mountpoint) = std::fs::canonicalize(&self.mountpoint) else { return false };
        let Ok(Some(record)) = Record::of(&mountpoint) else { return false };
        if record.process().is_none() {
            return false;
        }
        let Ok(line) = std::fs::read(format!("/proc/{}/cmdline", record.process.pid)) else {
            return false;
        };
        let args = line.split(|byte| *byte == 0).filter(|arg| !arg.is_empty());
        let args: Vec<OsString> = args.map(|arg| OsStr::from_bytes(arg).into()).collect();
        // By hand it is another command line: whether that means the same is not looked at.
        is_called(&args)
            && HelperArgs::try_parse_from(args).is_ok_and(|other| {
                (other.address, other.options) == (self.address.clone(), self.options.clone())
            })
    }
}

/// As `pinstripe mount` reads them.
fn parse(options: &[String]) -> Outcome<mounting::Options> {
    mounting::Options::parse_apart(options)
}

/// Flags of ours, and mount options.
fn sort(given: &[String]) -> Outcome<(Vec<String>, Vec<String>)> {
    let (mut flags, mut options) = (Vec::new(), Vec::new());
    for option in given.iter().map(|option| option.trim()).filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        match value {
            Some(value) if FLAGS.contains(&name) => {
                flags.push(format!("--{}={value}", name.replace('_', "-")));
            }
            None if FLAGS.contains(&name) => {
                let text = format!("the mount option {name} needs a value: {name}=...");
                return Err(Failure::usage(text));
            }
            _ => options.push(option.to_string()),
        }
    }
    Ok((flags, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Outcome<Option<String>> {
        let args = HelperArgs::try_parse_from(text.split(' '));
        let made = args.map_err(|e| Failure::usage(e.to_string()))?.line()?;
        let words = |made: Vec<OsString>| {
            let words = made.iter().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        Ok(made.map(words))
    }

    #[test]
    fn what_mount_says_is_a_command_line_of_ours() {
        let called = |name: &str| is_called(&[name.into()]);
        assert!(called("/sbin/mount.pinstripe") && called("mount.fuse.pinstripe"));
        assert!(!called("pinstripe") && !is_called(&[]));
        for (said, wanted) in [
            ("m mgs:4747 /m", "pinstripe mount --quiet -- mgs:4747 /m"),
            (
                "m mgs:4747:/a /m -o rw,_netdev,noatime,key=/k,x-systemd.automount,wait=5",
                "pinstripe mount --key=/k --wait=5 --quiet -o rw,_netdev,noatime,x-systemd.automount -- mgs:4747:/a /m",
            ),
            (
                "m mgs:4747 /m -nv -t pinstripe -o user,comment=x,log_file=/l",
                "pinstripe mount --log-file=/l -v -o user,comment=x -- mgs:4747 /m",
            ),
            (
                "m --daemon-child mgs:4747 /m -o ro",
                "pinstripe --daemon-child mount --quiet -o ro -- mgs:4747 /m",
            ),
            (
                "m mgs:4747 /m -s -o ro,frobnicate,zzz=1",
                "pinstripe mount --quiet -o ro -- mgs:4747 /m",
            ),
        ] {
            assert_eq!(command(said).ok().flatten().as_deref(), Some(wanted), "{said}");
        }
        assert_eq!(command("m mgs:4747 /m -f -o ro"), Ok(None));
    }

    #[test]
    fn what_it_must_not_say_is_refused_by_name() {
        for (said, part) in [
            ("m mgs:4747", "MOUNTPOINT"),
            ("m a b c", "'c'"),
            ("m a b -o key", "key=..."),
            ("m a b -x", "'-x'"),
            ("m a b -N 1", "nsenter"),
            ("m a b -f -o frobnicate", "'frobnicate'"),
            ("m a b -o remount,ro", "mount it anew"),
        ] {
            let refused = command(said).err();
            let named = refused.as_ref().is_some_and(|e| e.code == USAGE && e.text.contains(part));
            assert!(named, "{said}: {refused:?}");
        }
        assert_eq!((code(USAGE), code(1)), (1, 32));
    }
}
