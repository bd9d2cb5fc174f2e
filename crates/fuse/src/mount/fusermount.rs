//! Mounting as an ordinary user: the set-uid helper fusermount3 mounts, and hands the device over a socket.

use super::{Atime, MountError, MountOptions, escaped};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HELPER: &str = "fusermount3";

pub(super) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let os = |e: io::Error| MountError::Os(mountpoint.into(), "cannot mount on", e);
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| os(e.into()))?;
    // The helper gets its end as standard input, so that no descriptor must survive exec otherwise.
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(option_list(options)).arg("--").arg(mountpoint);
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
    let output = run(&mut command)?;
    drop(command);
    if !output.status.success() {
        return Err(MountError::Fusermount(complaint(&output)));
    }
    receive_device(&ours).map_err(os)?.ok_or_else(|| {
        MountError::Fusermount(format!("did not hand over the device; {}", complaint(&output)))
    })
}

pub(super) fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(HELPER);
    command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(mountpoint);
    let output = run(command.stdin(Stdio::null()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = complaint(&output);
    Err(if text.contains("busy") {
        MountError::Busy(mountpoint.into())
    } else {
        MountError::Fusermount(text)
    })
}

fn run(command: &mut Command) -> Result<Output, MountError> {
    // Its messages are recognised ("busy"), so they must not be translated.
    match command.env("LC_ALL", "C").output() {
        Ok(output) => Ok(output),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(MountError::NoFusermount),
        Err(e) => Err(MountError::Fusermount(e.to_string())),
    }
}

fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim().trim_start_matches("fusermount3:").trim();
    if text.is_empty() { output.status.to_string() } else { text.to_owned() }
}

fn option_list(options: &MountOptions) -> String {
    let mut list = vec![format!("fsname={}", escaped(options.source.as_ref()))];
    if !options.subtype.is_empty() {
        list.push(format!("subtype={}", escaped(options.subtype.as_ref())));
    }
    let switches = [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.read_only, "ro"),
        (options.nosuid, "nosuid"),
        (options.nodev, "nodev"),
        (options.noexec, "noexec"),
        (options.sync, "sync"),
        (options.dirsync, "dirsync"),
        (options.atime == Atime::Noatime, "noatime"),
    ];
    list.extend(switches.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
    list.join(",")
}

/// The descriptor that came with one byte; None when the helper closed the socket without.
fn receive_device(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut iov = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_backslashes_do_not_end_an_option() {
        let options = MountOptions {
            source: r"a,b\c".into(),
            subtype: "x".into(),
            noexec: true,
            ..MountOptions::default()
        };
        assert_eq!(option_list(&options), r"fsname=a\,b\\c,subtype=x,noexec");
    }
}
