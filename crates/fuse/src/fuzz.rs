//! The decoder's door for fuzzers: any bytes as a message of the kernel. Answers go nowhere.

use crate::abi;
use crate::buf::Pool;
use crate::caps;
use crate::channel::{Channel, Link, Shared};
use crate::dispatch::{self, Target};
use crate::fs::Filesystem;
use crate::parse;
use std::fs::File;
use std::io;
use std::sync::Arc;

struct Nothing;

impl Filesystem for Nothing {}

/// Takes `bytes` (at most 8 KiB of them) through every decoder. Must never panic.
///
/// # Errors
/// Only if /dev/null cannot be opened.
pub fn decode(bytes: &[u8]) -> io::Result<()> {
    let shared = Shared { pool: Pool::new(0), interrupts: Arc::default() };
    let null = File::options().write(true).open("/dev/null")?;
    let channel = Arc::new(Channel::new(null.into(), Arc::new(shared)));
    let mut buf = channel.shared.pool.get();
    let len = bytes.len().min(buf.read_area().len());
    buf.read_area()[..len].copy_from_slice(&bytes[..len]);
    if let Ok((header, mut args, _)) = parse::message(buf.request(len))
        && header.opcode == abi::op::INIT
    {
        // Refusing is all that a bad INIT may do.
        let _ = parse::init(&mut args);
    }
    for granted in [0, caps::SUPPORTED] {
        let link = Link::Device(channel.clone());
        let target = Target { fs: &Nothing, link: &link, granted };
        dispatch::request(&target, &mut buf, len);
        buf.read_area()[..len].copy_from_slice(&bytes[..len]);
    }
    Ok(())
}
