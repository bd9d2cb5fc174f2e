//! Mount options, as given with `-o`: those of mount(8) and those of the client.

use std::time::Duration;

use client::Atime;

use crate::config::nearest;
use crate::failure::{Failure, Outcome};
use crate::memory::Memory;

/// What `-o` came to.
#[derive(Clone, Debug)]
pub struct Options {
    /// For the kernel.
    pub kernel: fuse::MountOptions,
    /// For the client.
    pub client: client::Options,
    /// Locks hold on this mount only.
    pub local_locks: bool,
    /// What of other mounts' work is seen at once.
    pub consistency: mount::Consistency,
}

/// Names that are understood of every file system.
const OF_ALL: &[&str] = &[
    "ro",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "async",
    "dirsync",
    "atime",
    "noatime",
    "relatime",
    "strictatime",
    "default_permissions",
    "defaults",
];

/// Names of our own.
const OWN: &[&str] = &[
    "allow_other",
    "nonempty",
    "forward_sync",
    "noforward_sync",
    "io_uring",
    "checksums",
    "nochecksums",
    "write_through",
    "max_dirty_mb",
    "max_read_ahead_mb",
    "max_cached_inodes",
    "max_rpcs_in_flight",
    "max_rpc_kb",
    "request_timeout",
    "flock",
    "localflock",
    "consistency",
    "pauses",
];

/// All names that are understood.
fn known() -> Vec<&'static str> {
    [OF_ALL, OWN].concat()
}

/// Options of fstab(5) that are for others than us: who may mount, and when.
const OF_FSTAB: &[&str] = &[
    "auto", "noauto", "user", "nouser", "users", "owner", "group", "fail", "nofail", "_netdev",
    "defaults", "comment",
];

/// What the option `pauses` makes of a client: one of so many points sleeps, for up to so long.
const PAUSES: (u32, Duration) = (8, Duration::from_millis(3));

/// Values of the option `consistency`.
const CONSISTENCY: &str = "posix|close-to-open|relaxed";

impl Options {
    /// Reads all `-o` arguments, later ones over earlier ones.
    pub fn parse(given: &[String]) -> Outcome<Options> {
        Options::over(client::Options::default(), given)
    }

    /// Of a mount of servers in other processes: every message has its price, so they are as large
    /// as they may be. (In process a message costs next to nothing, and small ones run side by side.)
    pub fn parse_apart(given: &[String]) -> Outcome<Options> {
        let apart = client::Options { max_rpc_bytes: proto::MAX_BULK, ..Default::default() };
        Options::over(apart, given)
    }

    fn over(mut client: client::Options, given: &[String]) -> Outcome<Options> {
        fit(&mut client, Memory::here());
        let root = rustix::process::geteuid().is_root();
        let kernel = fuse::MountOptions {
            // sync(2) reaches a FUSE mount only so, and only root can have it.
            forward_sync: root,
            allow_other: root,
            nosuid: !root,
            nodev: !root,
            ..fuse::MountOptions::default()
        };
        let mut options = Options {
            kernel,
            client,
            local_locks: false,
            consistency: mount::Consistency::default(),
        };
        let words = given.iter().flat_map(|g| g.split(',')).map(str::trim);
        for word in words.filter(|w| !w.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => options.value(name, value)?,
                None => options.flag(word)?,
            }
        }
        Ok(options)
    }

    fn flag(&mut self, name: &str) -> Outcome<()> {
        let kernel = &mut self.kernel;
        match name {
            "ro" => kernel.read_only = true,
            "rw" => kernel.read_only = false,
            "suid" => kernel.nosuid = false,
            "nosuid" => kernel.nosuid = true,
            "dev" => kernel.nodev = false,
            "nodev" => kernel.nodev = true,
            "exec" => kernel.noexec = false,
            "noexec" => kernel.noexec = true,
            "sync" => kernel.sync = true,
            "async" => kernel.sync = false,
            "dirsync" => kernel.dirsync = true,
            "allow_other" => kernel.allow_other = true,
            "nonempty" => kernel.allow_nonempty = true,
            "forward_sync" => kernel.forward_sync = true,
            "noforward_sync" => kernel.forward_sync = false,
            "noatime" => self.atime(fuse::Atime::Noatime, Atime::Never),
            "atime" | "relatime" => self.atime(fuse::Atime::Relatime, Atime::Relative),
            "strictatime" => self.atime(fuse::Atime::Strictatime, Atime::Strict),
            "checksums" => self.client.checksums = true,
            "nochecksums" => self.client.checksums = false,
            "flock" => self.local_locks = false,
            "localflock" => self.local_locks = true,
            "write_through" => self.client.write_through = true,
            // Always so.
            "default_permissions" => {}
            other if other.starts_with("x-") || OF_FSTAB.contains(&other) => {}
            "remount" => {
                return Err(Failure::usage(
                    "options of what is mounted cannot be changed (remount); unmount it and mount it anew",
                ));
            }
            "io_uring" => {
                return Err(Failure::usage(
                    "the mount option io_uring needs a value: io_uring=auto|on|off".to_string(),
                ));
            }
            "consistency" => {
                return Err(Failure::usage(format!(
                    "the mount option consistency needs a value: consistency={CONSISTENCY}"
                )));
            }
            other if valued(other) => {
                return Err(Failure::usage(format!(
                    "the mount option {other} needs a value: {other}=N"
                )));
            }
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    fn atime(&mut self, kernel: fuse::Atime, client: Atime) {
        self.kernel.atime = kernel;
        self.client.atime = client;
    }

    fn value(&mut self, name: &str, value: &str) -> Outcome<()> {
        if name.starts_with("x-") || OF_FSTAB.contains(&name) {
            return Ok(());
        }
        let client = &mut self.client;
        match name {
            "io_uring" => {
                self.kernel.io_uring = value.parse().map_err(|_| {
                    let text = format!("io_uring={value}; use auto, on or off");
                    Failure::usage(format!("unknown value of a mount option: {text}"))
                })?;
            }
            "consistency" => {
                self.consistency = value.parse().map_err(|_| {
                    let text = format!("consistency={value}; use {CONSISTENCY}");
                    Failure::usage(format!("unknown value of a mount option: {text}"))
                })?;
            }
            "max_dirty_mb" => client.max_dirty_mb = number(name, value, 1, 65_536)?,
            "max_read_ahead_mb" => client.max_read_ahead_mb = number(name, value, 0, 65_536)?,
            "max_cached_inodes" => {
                client.max_cached_inodes = number(name, value, 1000, 100_000_000)?;
            }
            "max_rpcs_in_flight" => client.max_rpcs_in_flight = number(name, value, 1, 256)?,
            "max_rpc_kb" => {
                let most = proto::MAX_BULK >> 10;
                client.max_rpc_bytes = number(name, value, 64, most)? << 10;
            }
            "pauses" => {
                let seed = number(name, value, 0, u32::MAX)?;
                client.pauses = client::Pauses::seeded(seed.into(), PAUSES.0, PAUSES.1);
            }
            "request_timeout" => {
                let seconds = number(name, value, 1, 86_400)?;
                client.request_timeout = Duration::from_secs(seconds.into());
            }
            other if known().contains(&other) => {
                let text = format!("the mount option {other} takes no value, but got '{value}'");
                return Err(Failure::usage(text));
            }
            other => return Err(unknown(other)),
        }
        Ok(())
    }
}

/// Where memory is scarce there is less of all that grows with what is done.
fn fit(client: &mut client::Options, memory: Memory) {
    let part = |usual: u32| memory.part_of(usual.into()) as u32;
    client.max_dirty_mb = part(client.max_dirty_mb);
    client.max_uncommitted_mb = part(client.max_uncommitted_mb);
    client.max_read_ahead_mb = part(client.max_read_ahead_mb);
    client.max_cached_inodes = part(client.max_cached_inodes);
}

fn valued(name: &str) -> bool {
    name.starts_with("max_") && OWN.contains(&name) || ["request_timeout", "pauses"].contains(&name)
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Outcome<u32> {
    match value.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(Failure::usage(format!(
            "the mount option {name}={value} is out of range; use {least} to {most}"
        ))),
    }
}

fn unknown(name: &str) -> Failure {
    let hint = match nearest(name, &known()) {
        Some(known) => format!("did you mean {known}?"),
        None => format!("known are {}", known().join(", ")),
    };
    Failure::usage(format!("unknown mount option '{name}'; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Outcome<Options> {
        Options::parse(&[text.to_string()])
    }

    #[test]
    fn io_uring_is_chosen_by_name() {
        assert_eq!(parse("ro").unwrap().kernel.io_uring, fuse::IoUring::Auto);
        assert_eq!(parse("io_uring=on").unwrap().kernel.io_uring, fuse::IoUring::On);
        assert_eq!(parse("io_uring=off").unwrap().kernel.io_uring, fuse::IoUring::Off);
        assert!(parse("io_uring=maybe").is_err() && parse("io_uring").is_err());
    }

    #[test]
    fn the_last_word_on_locks_counts() {
        assert!(!parse("").unwrap().local_locks && parse("localflock").unwrap().local_locks);
        assert!(!parse("localflock,flock").unwrap().local_locks);
        assert!(parse("localflock=1").is_err());
    }

    #[test]
    fn options_reach_kernel_and_client() {
        let fstab = "defaults,_netdev,nofail,user=root,comment=x,x-systemd.automount,x-a=b";
        assert!(parse(fstab).is_ok());
        let o = parse("ro,noatime,max_dirty_mb=7,x-systemd.automount,nochecksums").unwrap();
        assert!(o.kernel.read_only && o.kernel.atime == fuse::Atime::Noatime);
        assert_eq!((o.client.atime, o.client.max_dirty_mb), (Atime::Never, 7));
        assert!(!o.client.checksums);
        assert!(!parse("ro,rw").unwrap().kernel.read_only);
        assert!(parse("").is_ok());
    }

    #[test]
    fn unknown_and_wrong_ones_are_refused_by_name() {
        for (text, part) in [
            ("frobnicate", "'frobnicate'"),
            ("remount,ro", "mount it anew"),
            ("noatim", "did you mean noatime?"),
            ("max_dirty_mb", "max_dirty_mb=N"),
            ("max_dirty_mb=0", "1 to 65536"),
            ("max_cached_inodes=999", "1000 to 100000000"),
            ("max_dirty_mb=x", "max_dirty_mb=x"),
            ("pauses", "pauses=N"),
            ("pauses=often", "pauses=often"),
            ("ro=1", "takes no value"),
            ("consistency", "consistency=posix|close-to-open|relaxed"),
            ("consistency=lax", "consistency=lax; use posix|"),
            ("zzz=1", "'zzz'"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.code == 2 && e.text.contains(part), "{text}: {e}");
        }
    }

    #[test]
    fn the_help_tells_of_every_option_of_our_own() {
        // What switches another back on, and one for tests.
        const UNTOLD: &[&str] = &["checksums", "forward_sync", "pauses"];
        let text = crate::cli::MOUNT_OPTIONS;
        let told: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for name in OWN.iter().filter(|n| !UNTOLD.contains(n)) {
            assert!(told.contains(name), "{name}");
        }
    }

    #[test]
    fn every_known_option_is_understood() {
        for name in known() {
            let text = match name {
                "io_uring" => "io_uring=auto".to_string(),
                "consistency" => "consistency=close-to-open".to_string(),
                "max_cached_inodes" => "max_cached_inodes=1000".to_string(),
                name if valued(name) => format!("{name}=64"),
                name => name.to_string(),
            };
            parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
