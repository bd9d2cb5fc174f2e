//! From the kernel's bytes to fixed structs, names and extensions. Every access is bounds-checked: any bytes may come in.

use crate::abi::{self, InHeader};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::FromBytes;

/// The request's bytes do not have the form its opcode demands; answered with EINVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) type Parsed<T> = Result<T, Malformed>;

/// Groups taken over from one extension; more are ignored. The kernel sends one.
const SUPP_GROUPS_MAX: u32 = 64;

/// Splits a message into its header, the arguments, and the extensions after them.
pub(crate) fn message(bytes: &[u8]) -> Parsed<(InHeader, Args<'_>, &[u8])> {
    let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
    if header.len as usize != bytes.len() {
        return Err(Malformed);
    }
    let extensions = usize::from(header.total_extlen) * 8;
    let split = body.len().checked_sub(extensions).ok_or(Malformed)?;
    let (args, extensions) = body.split_at(split);
    Ok((header, Args(args), extensions))
}

/// What is left of a request's arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a>(pub(crate) &'a [u8]);

impl<'a> Args<'a> {
    /// The next fixed struct.
    pub(crate) fn fixed<T: FromBytes>(&mut self) -> Parsed<T> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    /// The next string; it ends with a NUL, and is not empty.
    pub(crate) fn name(&mut self) -> Parsed<&'a OsStr> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        if end == 0 {
            return Err(Malformed);
        }
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Parsed<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// What extensions a request carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    pub(crate) groups: Vec<u32>,
    /// Name without NUL, value.
    pub(crate) security: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Parses the extension blocks; unknown kinds are skipped.
pub(crate) fn extensions(mut bytes: &[u8]) -> Parsed<Extensions> {
    let mut found = Extensions::default();
    while !bytes.is_empty() {
        let mut block = Args(bytes);
        let head: abi::ExtHeader = block.fixed()?;
        let size = head.size as usize;
        if size < size_of::<abi::ExtHeader>() {
            return Err(Malformed);
        }
        let payload = bytes.get(size_of::<abi::ExtHeader>()..size).ok_or(Malformed)?;
        match head.typ {
            count @ 0..=abi::EXT_MAX_SECCTX => security(payload, count, &mut found.security)?,
            abi::EXT_GROUPS => groups(payload, &mut found.groups)?,
            _ => {}
        }
        // Blocks are padded to eight bytes; the last one may lack the padding.
        bytes = bytes.get(size.next_multiple_of(8)..).unwrap_or(&[]);
    }
    Ok(found)
}

fn groups(payload: &[u8], into: &mut Vec<u32>) -> Parsed<()> {
    let mut args = Args(payload);
    let count: u32 = args.fixed()?;
    for _ in 0..count.min(SUPP_GROUPS_MAX) {
        into.push(args.fixed()?);
    }
    Ok(())
}

fn security(payload: &[u8], count: u32, into: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Parsed<()> {
    let mut args = Args(payload);
    for _ in 0..count {
        let one: abi::Secctx = args.fixed()?;
        if one.size == 0 {
            continue;
        }
        let name = args.name()?;
        let value = args.bytes(one.size as usize)?;
        into.push((name.as_bytes().to_vec(), value.to_vec()));
        let used = payload.len() - args.0.len();
        let padding = used.next_multiple_of(8) - used;
        args.bytes(padding.min(args.0.len()))?;
    }
    Ok(())
}

/// The INIT request: its fixed part and the second word of flags, if the kernel knows of it.
pub(crate) fn init(args: &mut Args<'_>) -> Parsed<(abi::InitCompatIn, u64)> {
    let mut longer = *args;
    let head: abi::InitCompatIn = args.fixed()?;
    let mut flags = u64::from(head.flags);
    if flags & crate::caps::INIT_EXT != 0 {
        let full: abi::InitIn = longer.fixed()?;
        flags |= u64::from(full.flags2) << 32;
    }
    Ok((head, flags))
}

#[cfg(test)]
mod tests;
