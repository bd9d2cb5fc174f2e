//! A file system of separate server processes, one per target, and its mounts.

use crate::cx::Cx;
use crate::fs::{self, is_mounted, kill9, until};
use crate::proc::{Cmd, Running};
use anyhow::{Context, Result, ensure};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the servers listen on.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Loopback.
    Tcp,
    /// Sockets in the scratch directory.
    Unix,
    /// This address, inside the network namespace of that name.
    Namespace { name: String, ip: String },
}

/// One server process and how to start it again.
pub struct Server {
    pub name: String,
    words: Vec<String>,
    pub address: String,
    running: Option<Running>,
    log: PathBuf,
}

/// The servers and mounts; all are ended when dropped.
pub struct Cluster {
    program: PathBuf,
    pub dir: PathBuf,
    pub key: PathBuf,
    transport: Transport,
    pub servers: Vec<Server>,
    mounts: Vec<PathBuf>,
    osts: u32,
    /// Mount options for mounts that are not given any, as words.
    options: Vec<String>,
}

impl Cluster {
    /// Formats and starts one MGS, one MDT and `osts` OSTs, a process each.
    pub fn new(cx: &Cx, name: &str, transport: Transport, osts: u32) -> Result<Self> {
        let dir = cx.dir(name)?;
        let mut cluster = Self {
            program: cx.set.pinstripe.clone(),
            key: dir.join("key"),
            dir,
            transport,
            servers: Vec::new(),
            mounts: Vec::new(),
            osts,
            options: cx.set.option_words(),
        };
        cluster.format()?;
        cluster.add("mgs", &["--mgs", "--mgs-dir"])?;
        cluster.add("mdt0", &["--mdt"])?;
        for n in 0..osts {
            cluster.add(&format!("ost{n}"), &["--ost"])?;
        }
        Ok(cluster)
    }

    fn format(&self) -> Result<()> {
        let mut cmd = self.command(&["format"]).arg("--mgs").arg(self.dir.join("mgs"));
        cmd = cmd.arg("--mdt").arg(self.dir.join("mdt0"));
        for n in 0..self.osts {
            cmd = cmd.arg("--ost").arg(self.dir.join(format!("ost{n}")));
        }
        cmd.ok()?;
        ensure!(self.key.exists(), "`format` made no key");
        let mode = std::fs::metadata(&self.key)?.permissions().mode();
        ensure!(mode & 0o7777 == 0o600, "the key has mode {mode:o}");
        Ok(())
    }

    /// A command with the key of this cluster.
    pub fn command(&self, words: &[&str]) -> Cmd {
        Cmd::new(&self.program).args(words).arg("--key").arg(&self.key)
    }

    /// What the program answers where the servers are.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let cmd = match &self.transport {
            Transport::Namespace { name, .. } => Cmd::new("nsenter")
                .arg(format!("--net=/run/netns/{name}"))
                .arg("--")
                .arg(&self.program),
            _ => Cmd::new(&self.program),
        };
        let said = cmd.args(words).arg("--key").arg(&self.key).quiet().ok()?;
        Ok(String::from_utf8(said.stdout)?)
    }

    /// A figure of a mount.
    pub fn figure(&self, mount: &Path, name: &str) -> Result<u64> {
        let mount = mount.to_str().context("not UTF-8")?;
        let said = self.ask(&["get_param", "--json", name, "--mount", mount])?;
        fs::figure(said.as_bytes(), name)
    }

    /// Where the management service listens.
    pub fn address(&self) -> String {
        self.servers.first().map(|s| s.address.clone()).unwrap_or_default()
    }

    fn add(&mut self, name: &str, role: &[&str]) -> Result<()> {
        let listen = match &self.transport {
            Transport::Tcp => "127.0.0.1:0".to_owned(),
            Transport::Unix => {
                let dir = self.dir.join("sockets");
                std::fs::create_dir_all(&dir)?;
                // Sockets in a directory that others may enter are refused.
                std::fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
                format!("unix:{}", dir.join(name).display())
            }
            Transport::Namespace { ip, .. } => format!("{ip}:0"),
        };
        let mut words: Vec<String> = vec!["server".into()];
        words.extend(role.iter().map(|w| (*w).to_owned()));
        words.push(self.dir.join(name).display().to_string());
        if name != "mgs" {
            words.extend(["--mgs-addr".into(), self.address()]);
        }
        if matches!(self.transport, Transport::Namespace { .. }) {
            words.push("--allow-remote".into());
        }
        let log = self.dir.join(format!("{name}.log"));
        let server = Server { name: name.to_owned(), words, address: listen, running: None, log };
        self.servers.push(server);
        self.start(self.servers.len() - 1)
    }

    /// Starts server `at`, on the address it had before if it ran already.
    pub fn start(&mut self, at: usize) -> Result<()> {
        let (program, key, transport) =
            (self.program.clone(), self.key.clone(), self.transport.clone());
        let server = &mut self.servers[at];
        let _ = std::fs::remove_file(&server.log);
        let mut cmd = match &transport {
            Transport::Namespace { name, .. } => {
                Cmd::new("nsenter").arg(format!("--net=/run/netns/{name}")).arg("--").arg(&program)
            }
            _ => Cmd::new(&program),
        };
        cmd = cmd.args(&server.words).args(["--listen", &server.address]).arg("--key").arg(&key);
        let mut running = cmd.start(&server.log)?;
        let log = server.log.clone();
        let mut address = None;
        until(&format!("{} listens", server.name), || {
            address = listening(&log);
            address.is_some() || !running.alive()
        })?;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        server.address = address.with_context(|| format!("{}: {}", server.name, said()))?;
        server.running = Some(running);
        Ok(())
    }

    /// Position of a server by name.
    pub fn find(&self, name: &str) -> Result<usize> {
        self.servers.iter().position(|s| s.name == name).with_context(|| name.to_owned())
    }

    /// The process of server `at`.
    pub fn pid(&self, at: usize) -> Option<u32> {
        self.servers.get(at)?.running.as_ref().map(Running::pid)
    }

    /// kill -9 of server `at`, which is gone afterwards.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut running) = self.let_die(at) {
            running.kill();
        }
    }

    /// kill -9 of server `at`, which may not have ended yet.
    pub fn let_die(&mut self, at: usize) -> Option<Running> {
        let running = self.servers[at].running.take()?;
        kill9(running.pid().cast_signed());
        Some(running)
    }

    /// Asks server `at` to end, and waits for it.
    pub fn stop(&mut self, at: usize) -> Result<()> {
        let Some(mut running) = self.servers[at].running.take() else { return Ok(()) };
        running.signal(rustix::process::Signal::TERM);
        running.ok(60).with_context(|| self.servers[at].name.clone())
    }

    /// Mounts it at a new mount point.
    pub fn mount(&mut self, name: &str) -> Result<PathBuf> {
        let mnt = self.dir.join(name);
        std::fs::create_dir_all(&mnt)?;
        self.mount_at(&mnt, &[])?;
        Ok(mnt)
    }

    /// As `mount`, with options for `-o`.
    pub fn mount_with(&mut self, name: &str, options: &str) -> Result<PathBuf> {
        let mnt = self.dir.join(name);
        std::fs::create_dir_all(&mnt)?;
        self.mounts.push(mnt.clone());
        let address = self.address();
        self.command(&["mount", &address, "-o", options]).arg(&mnt).limit(120).ok()?;
        ensure!(is_mounted(&mnt), "`mount` returned, but nothing is mounted");
        Ok(mnt)
    }

    /// As `mount`, of a directory of it only.
    pub fn mount_part(&mut self, name: &str, dir: &str) -> Result<PathBuf> {
        let mnt = self.dir.join(name);
        std::fs::create_dir_all(&mnt)?;
        self.mounts.push(mnt.clone());
        let address = format!("{}:{dir}", self.address());
        let cmd = self.command(&["mount", &address]).args(&self.options).arg(&mnt);
        cmd.limit(120).ok()?;
        ensure!(is_mounted(&mnt), "`mount` returned, but nothing is mounted");
        Ok(mnt)
    }

    /// Mounts it at `mnt`; `wrapper` is put before the command.
    pub fn mount_at(&mut self, mnt: &Path, wrapper: &[&str]) -> Result<()> {
        let address = self.address();
        let cmd = match wrapper.split_first() {
            None => self.command(&["mount", &address]),
            Some((first, rest)) => Cmd::new(first)
                .args(rest)
                .arg(&self.program)
                .args(["mount", &address])
                .arg("--key")
                .arg(&self.key),
        };
        // One that was killed is mounted again at the same place.
        if !self.mounts.iter().any(|m| m == mnt) {
            self.mounts.push(mnt.to_path_buf());
        }
        cmd.args(&self.options).arg(mnt).limit(120).ok()?;
        ensure!(is_mounted(mnt), "`mount` returned, but nothing is mounted");
        std::fs::read_dir(mnt).context("the new mount cannot be read")?;
        Ok(())
    }

    /// The process that serves a mount: the one that was told of its mount point.
    pub fn mount_pid(&self, mnt: &Path) -> Result<i32> {
        let wanted = mnt.display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if line.split(|b| *b == 0).any(|word| word == wanted.as_bytes()) {
                found.push(pid);
            }
        }
        match found[..] {
            [one] => Ok(one),
            _ => anyhow::bail!("{found:?} serve {wanted}"),
        }
    }

    /// Unmounts one.
    pub fn unmount(&mut self, mnt: &Path) -> Result<()> {
        Cmd::new(&self.program).arg("down").arg(mnt).limit(120).ok()?;
        self.mounts.retain(|m| m != mnt);
        ensure!(!is_mounted(mnt), "`down` returned, but the mount is still there");
        Ok(())
    }

    /// Unmounts, stops all servers and checks the targets.
    pub fn stop_and_check(&mut self) -> Result<()> {
        for mnt in self.mounts.clone() {
            self.unmount(&mnt)?;
        }
        for at in (0..self.servers.len()).rev() {
            self.stop(at)?;
        }
        for server in &self.servers {
            let log = std::fs::read_to_string(&server.log).unwrap_or_default();
            ensure!(!log.contains("panicked at"), "{} panicked:\n{log}", server.name);
        }
        self.fsck()
    }

    /// Checks the targets, which must not be in use.
    pub fn fsck(&self) -> Result<()> {
        let mut cmd = Cmd::new(&self.program).arg("fsck").arg("--mdt").arg(self.dir.join("mdt0"));
        for n in 0..self.osts {
            cmd = cmd.arg("--ost").arg(self.dir.join(format!("ost{n}")));
        }
        cmd.arg("--data-too").limit(600).ok().map(|_| ())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mnt in &self.mounts {
            let down = Cmd::new(&self.program).args(["down", "--force"]).arg(mnt);
            let _ = down.limit(20).run();
        }
    }
}

/// The address in the line `listening on ADDR`.
fn listening(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let line = text.lines().find_map(|l| l.split_once("listening on "))?;
    Some(line.1.trim().to_owned())
}
