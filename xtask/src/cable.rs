//! Two network name spaces with a cable between them: servers in one, clients in the other, and nothing
//! else shared. Both go when it is dropped.

use crate::cx::Cx;
use crate::plan::Need;
use crate::servers::Transport;
use crate::sweep::net_prefix;
use anyhow::Result;

/// Addresses of the private link (RFC 5737's documentation range is routed nowhere).
pub const SERVER: &str = "192.0.2.1";
pub const CLIENT: &str = "192.0.2.2";

/// What a check needs that lays one, and mounts over it.
pub const NEEDS: &[Need] =
    &[Need::Binary, Need::Apt("iproute2"), Need::Apt("fuse3"), Need::Apt("util-linux"), Need::Root];

/// See the module.
pub struct Cable<'a> {
    cx: &'a Cx,
    /// Names of the name spaces.
    pub server: String,
    pub client: String,
}

impl<'a> Cable<'a> {
    /// Lays one; `tag`, a letter or two, tells it from others of the same run.
    pub fn lay(cx: &'a Cx, tag: &str) -> Result<Cable<'a>> {
        // The runner deletes what begins with this prefix.
        let run =
            rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get().cast_unsigned());
        let prefix = net_prefix(run);
        let (server, client) = (format!("{prefix}{tag}s"), format!("{prefix}{tag}c"));
        let cable = Cable { cx, server, client };
        let (server, client) = (cable.server.as_str(), cable.client.as_str());
        for name in [server, client] {
            cable.ip(&["netns", "add", name])?;
            cable.ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let pair = ["link", "add", "eth0", "netns", server, "type", "veth", "peer", "name", "eth0"];
        cable.ip(&[pair.as_slice(), &["netns", client]].concat())?;
        for (name, address) in [(server, SERVER), (client, CLIENT)] {
            cable.ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            cable.ip(&["-n", name, "link", "set", "eth0", "up"])?;
        }
        Ok(cable)
    }

    /// Runs ip(8).
    pub fn ip(&self, words: &[&str]) -> Result<()> {
        self.cx.cmd("ip").args(words).ok().map(|_| ())
    }

    /// Pulls the plug.
    pub fn cut(&self) -> Result<()> {
        self.ip(&["-n", &self.client, "link", "set", "eth0", "down"])
    }

    pub fn mend(&self) -> Result<()> {
        self.ip(&["-n", &self.client, "link", "set", "eth0", "up"])
    }

    /// For servers at this end.
    pub fn transport(&self) -> Transport {
        Transport::Namespace { name: self.server.clone(), ip: SERVER.to_owned() }
    }

    /// The option of nsenter(1) for the clients' name space.
    pub fn far(&self) -> String {
        format!("--net=/run/netns/{}", self.client)
    }

    /// The same for the servers'.
    pub fn near(&self) -> String {
        format!("--net=/run/netns/{}", self.server)
    }
}

impl Drop for Cable<'_> {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            let _ = self.cx.cmd("ip").args(["netns", "delete", name]).run();
        }
    }
}
