//! Listeners: who may be listened to, where, and what becomes of a new connection.

use super::{ServerInner, handshake};
use crate::server::stats::up;
use crate::socket::Stream;
use crate::{Endpoint, NetError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, UnixListener};

/// Connections the kernel may hold for us.
const BACKLOG: u32 = 4096;
/// Pause when the process has no descriptor left for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _name: SocketFile },
}

/// Removes the socket's name when the listener ends.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Only our own: another server may have taken the name over.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.inode)
            && let Err(e) = std::fs::remove_file(&self.path)
        {
            tracing::debug!("{}: {e}", self.path.display());
        }
    }
}

/// Binds; must be called within a runtime. `keyed`: clients over TCP prove a key.
pub(crate) fn bind(endpoint: &Endpoint, keyed: bool) -> Result<(Listener, Endpoint), NetError> {
    let fail = |e: io::Error| NetError::Lost(format!("cannot listen at {endpoint}: {e}"));
    match endpoint {
        Endpoint::Tcp(address) => {
            let listener = bind_tcp(address, keyed)?;
            let real = listener.local_addr().map_err(fail)?;
            Ok((Listener::Tcp(listener), Endpoint::Tcp(real.to_string())))
        }
        Endpoint::Unix(path) => {
            private_directory(path)?;
            remove_stale(path)?;
            let listener = UnixListener::bind(path).map_err(fail)?;
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path, mode).map_err(fail)?;
            let inode = std::fs::symlink_metadata(path).map_err(fail)?.ino();
            let name = SocketFile { path: path.clone(), inode };
            Ok((Listener::Unix { listener, _name: name }, endpoint.clone()))
        }
        Endpoint::Local(_) => Err(NetError::Protocol("nothing to bind in process".into())),
    }
}

fn bind_tcp(address: &str, keyed: bool) -> Result<TcpListener, NetError> {
    let fail = |e: io::Error| NetError::Lost(format!("cannot listen at tcp:{address}: {e}"));
    let addresses: Vec<SocketAddr> =
        std::net::ToSocketAddrs::to_socket_addrs(address).map_err(fail)?.collect();
    if !keyed && addresses.iter().any(|a| !a.ip().is_loopback()) {
        return Err(NetError::Refused(format!(
            "listening at tcp:{address} lets other machines in, which needs a cluster key"
        )));
    }
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for a in addresses {
        let bound = || {
            let socket = if a.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(a)?;
            socket.listen(BACKLOG)
        };
        match bound() {
            Ok(listener) => return Ok(listener),
            Err(e) => last = e,
        }
    }
    Err(fail(last))
}

/// The directory of a Unix socket may be opened by its owner only, so that nobody connects between
/// bind and chmod; it is made if it is not there.
fn private_directory(path: &Path) -> Result<(), NetError> {
    let fail = |text: String| NetError::Refused(format!("unix:{}: {text}", path.display()));
    let Some(directory) = path.parent().filter(|p| p.is_absolute()) else {
        return Err(fail("the path must be absolute".into()));
    };
    if !directory.exists() {
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).create(directory).map_err(|e| fail(e.to_string()))?;
    }
    let meta = std::fs::metadata(directory).map_err(|e| fail(e.to_string()))?;
    let mine = rustix::process::geteuid().as_raw();
    if meta.mode() & 0o077 != 0 || meta.uid() != mine {
        return Err(fail(format!(
            "the directory must belong to user {mine} with mode 0700 (it belongs to user {}, mode \
             {:04o})",
            meta.uid(),
            meta.mode() & 0o7777
        )));
    }
    Ok(())
}

fn remove_stale(path: &Path) -> Result<(), NetError> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let fail = |text: &str| NetError::Refused(format!("unix:{}: {text}", path.display()));
    if !meta.file_type().is_socket() {
        return Err(fail("exists and is no socket"));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(fail("another server listens here"));
    }
    std::fs::remove_file(path).map_err(|e| fail(&e.to_string()))
}

/// Accepts for ever.
pub(crate) async fn accept(server: Arc<ServerInner>, listener: Listener) {
    loop {
        let accepted = match &listener {
            Listener::Tcp(l) => l.accept().await.map(|(s, _)| Stream::Tcp(s)),
            Listener::Unix { listener: l, .. } => l.accept().await.map(|(s, _)| Stream::Unix(s)),
        };
        match accepted {
            Ok(stream) => place(&server, stream),
            Err(e) => {
                server.log.warn("listener", &format!("cannot accept: {e}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Puts a new connection on the shard with the fewest.
fn place(server: &Arc<ServerInner>, stream: Stream) {
    let peer = stream.peer();
    if server.handshaking.load(Relaxed) >= server.options.max_handshakes {
        up(&server.counters.refused);
        server.log.warn(&peer, "too many connections are being set up");
        return;
    }
    if let Err(text) = stream.check_peer() {
        up(&server.counters.refused);
        server.log.warn(&peer, &text);
        return;
    }
    let shards = server.shards.lock();
    let Some(shard) = shards.iter().min_by_key(|s| s.load.load(Relaxed)) else { return };
    let (handle, load) = (shard.handle.clone(), shard.load.clone());
    drop(shards);
    load.fetch_add(1, Relaxed);
    server.handshaking.fetch_add(1, Relaxed);
    let moved = stream.into_std();
    let server = server.clone();
    handle.spawn(async move {
        let gauge = handshake::Gauge::new(server.clone(), load);
        match moved.and_then(crate::socket::StdStream::into_tokio) {
            Ok(stream) => handshake::serve(&server, stream, &peer, gauge).await,
            Err(e) => server.log.warn(&peer, &e.to_string()),
        }
    });
}
