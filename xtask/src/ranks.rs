//! Runs of `mcp --mpi`: building it with MPI, starting ranks on this host or in network name spaces of their
//! own, finding them, and seeing that none is left.

use crate::cx::Cx;
use crate::proc::Cmd;
use crate::sweep::{self, Scope, net_prefix};
use crate::{steps, where_};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Ranks of every run.
pub const RANKS: usize = 4;
/// Seconds the build may take, and a run.
const BUILD_LIMIT: u64 = 400;
pub const RUN_LIMIT: u64 = 60;
/// What mpirun tells each rank.
const RANK: &str = "OMPI_COMM_WORLD_RANK";

/// Builds mcp with MPI, in a target directory of its own: in the common one it would take the place of the
/// mcp that other checks use.
pub fn build(cx: &Cx) -> Result<PathBuf> {
    let profile = steps::profile(cx.set.release);
    let target = where_::target().join("mpi");
    let words = ["build", "-p", "pinstripe-mtools", "--bin", "mcp", "--features", "mpi"];
    cx.cmd("cargo")
        .args(words)
        .args(["--profile", profile, "--jobs", &cx.set.jobs.to_string(), "--target-dir"])
        .arg(&target)
        .cwd(where_::root())
        .limit(BUILD_LIMIT)
        .ok()?;
    // A rebuild during the run must not change it.
    let mcp = cx.scratch().join("mcp");
    std::fs::copy(target.join(profile).join("mcp"), &mcp)?;
    Ok(mcp)
}

/// mpirun's own words for ranks on this host.
pub fn here() -> Vec<String> {
    ["--oversubscribe", "-n", &RANKS.to_string()].map(str::to_owned).to_vec()
}

/// mpirun, as root, with these words behind it.
pub fn mpirun(cmd: Cmd, words: &[String]) -> Cmd {
    cmd.env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("LC_ALL", "C")
        .args(words)
        .limit(RUN_LIMIT)
}

/// Processes of this check that are ranks, by their rank.
pub fn running(cx: &Cx) -> Vec<(usize, i32)> {
    let scope = Scope { dir: cx.scratch().to_path_buf(), tag: sweep::tag(cx.scratch()) };
    let rank_of = |pid: i32| -> Option<usize> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let text = String::from_utf8_lossy(&environment).into_owned();
        let rank = text.split('\0').find_map(|pair| pair.strip_prefix(RANK)?.strip_prefix('='))?;
        program.ends_with("mcp").then_some(rank.parse().ok()?)
    };
    let mut found: Vec<_> =
        sweep::processes(&scope).into_iter().filter_map(|pid| Some((rank_of(pid)?, pid))).collect();
    found.sort_unstable();
    found
}

/// Waits until all ranks run; they are named by rank.
pub fn all_running(cx: &Cx) -> Result<Vec<(usize, i32)>> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let found = running(cx);
        if found.len() == RANKS {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "after 20 s these ranks run: {found:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing of a run is left, but for a moment.
pub fn gone(cx: &Cx) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while !running(cx).is_empty() {
        ensure!(Instant::now() < end, "these ranks are left: {:?}", running(cx));
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Processor time of a process so far, in seconds.
pub fn processor_time(pid: i32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit(')').next().context("no stat")?;
    let ticks = |n: usize| -> Result<u64> {
        Ok(rest.split_whitespace().nth(n).context("a short stat")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A bridge with a host of its own for each rank: network, host name and mounts. All go when it is dropped.
pub struct Hosts<'a> {
    cx: &'a Cx,
    prefix: String,
    /// What mpirun starts others with.
    agent: PathBuf,
    /// Hosts it was asked for, a line each.
    pub log: PathBuf,
}

/// Addresses of a network that is routed nowhere (RFC 5737).
fn address(n: usize) -> String {
    format!("198.51.100.{n}")
}

impl<'a> Hosts<'a> {
    /// `blind`: on the last host an empty file system hides this directory.
    pub fn lay(cx: &'a Cx, blind: Option<&Path>) -> Result<Hosts<'a>> {
        let run =
            rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get().cast_unsigned());
        let scratch = cx.scratch();
        let hosts = Hosts {
            cx,
            // The runner deletes what begins with this prefix.
            prefix: format!("{}m", net_prefix(run)),
            agent: scratch.join("agent"),
            log: scratch.join("agent.log"),
        };
        let bridge = hosts.name(0);
        hosts.ip(&["netns", "add", &bridge])?;
        hosts.ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        hosts.ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for n in 1..=RANKS {
            let (host, port) = (hosts.name(n), format!("p{n}"));
            hosts.ip(&["netns", "add", &host])?;
            hosts.ip(&["-n", &host, "link", "set", "lo", "up"])?;
            let near = ["link", "add", "eth0", "netns", &host, "type", "veth"];
            let far = ["peer", "name", &port, "netns", &bridge];
            hosts.ip(&[near.as_slice(), &far].concat())?;
            hosts.ip(&["-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
            let address = format!("{}/24", address(n));
            hosts.ip(&["-n", &host, "address", "add", &address, "dev", "eth0"])?;
            hosts.ip(&["-n", &host, "link", "set", "eth0", "up"])?;
        }
        hosts.write_agent(blind)?;
        Ok(hosts)
    }

    /// Called as rsh would be: a host, and words for its shell.
    fn write_agent(&self, blind: Option<&Path>) -> Result<()> {
        let hide =
            blind.map_or(":".into(), |blind| format!("mount -t tmpfs none '{}'", blind.display()));
        let text = format!(
            "#!/bin/sh\n\
             n=${{1##*.}}; shift\n\
             echo \"$n\" >> '{log}'\n\
             hide=:\n\
             [ \"$n\" = {RANKS} ] && hide=\"{hide}\"\n\
             exec ip netns exec \"{prefix}$n\" unshare --uts --mount sh -c \
             'hostname \"host$0\"; eval \"$1\"; eval \"exec $2\"' \"$n\" \"$hide\" \"$*\"\n",
            log = self.log.display(),
            prefix = self.prefix,
        );
        std::fs::write(&self.agent, text)?;
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&self.agent, mode)?;
        Ok(())
    }

    fn name(&self, n: usize) -> String {
        format!("{}{n}", self.prefix)
    }

    fn ip(&self, words: &[&str]) -> Result<()> {
        self.cx.cmd("ip").args(words).ok().map(|_| ())
    }

    /// mpirun on the first of the hosts, and its words.
    pub fn mpirun(&self, words: &[String]) -> Cmd {
        let hosts: Vec<_> = (1..=RANKS).map(address).collect();
        let (hosts, agent) = (hosts.join(","), self.agent.display().to_string());
        let mca = |key: &str, value: &str| ["--mca".into(), key.into(), value.into()];
        let mut all: Vec<String> = vec!["--host".into(), hosts, "-n".into(), RANKS.to_string()];
        for (key, value) in [
            ("plm_rsh_agent", agent.as_str()),
            ("pml", "ob1"),
            ("btl", "tcp,self"),
            ("btl_tcp_if_include", "eth0"),
            ("oob_tcp_if_include", "eth0"),
        ] {
            all.extend(mca(key, value));
        }
        all.extend_from_slice(words);
        let start = ["netns", "exec", &self.name(1), "unshare", "--uts", "sh", "-c"];
        let named = ["hostname host1; exec mpirun \"$@\"", "mpirun"];
        mpirun(self.cx.cmd("ip").args(start).args(named), &all)
    }
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        for n in 0..=RANKS {
            let _ = self.cx.cmd("ip").args(["netns", "delete", &self.name(n)]).run();
        }
    }
}
