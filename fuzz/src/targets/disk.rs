//! What metadata and object targets keep on disk. Where a checksum seals the bytes, each input is
//! also tried with the right one, or nothing would get past it.

use super::{Target, tagged_zeros};
use mds::record;
use oss::{Boot, OstLabel, Verifier};
use proto::layout::ObjectId;
use proto::{Fid, FileKind, Layout, Wire};
use std::path::Path;

/// Longest all-zero record tried when looking for a valid one, in bytes.
const LONGEST: usize = 320;

fn record<T: Wire + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = record::decode::<T>(bytes) else { return false };
    let again = record::decode::<T>(&record::encode(&value));
    assert_eq!(again.as_ref(), Ok(&value), "does not survive its own encoding");
    true
}

fn versioned(decode: fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let mut found = tagged_zeros(decode, LONGEST);
    for length in 1..LONGEST {
        let mut input = vec![0; length];
        input[0] = record::VERSION;
        if decode(&input) {
            found.push(input);
        }
    }
    found
}

/// Tries `bytes`, and `bytes` with the checksum they should end with.
fn sealed(bytes: &[u8], decode: fn(&[u8]) -> bool) -> bool {
    let plain = decode(bytes);
    let Some(body) = bytes.len().checked_sub(4).map(|n| &bytes[..n]) else { return plain };
    let mut mended = body.to_vec();
    mended.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    plain | decode(&mended)
}

macro_rules! records {
    ($($name:literal: $type:ty),* $(,)?) => {
        vec![$(Target {
            name: $name,
            corpus: || versioned(record::<$type>),
            decode: record::<$type>,
        }),*]
    };
}

pub fn targets() -> Vec<Target> {
    let mut all = records! {
        "mds Inode": record::Inode,
        "mds Home": record::Home,
        "mds Xattrs": record::Xattrs,
        "mds Replies": record::Replies,
        "mds Log": mds::hot::Log,
    };
    all.extend([
        Target { name: "mds Dent", corpus: dents, decode: record::<record::Dent> },
        Target { name: "mds Garbage", corpus: garbage, decode: record::<record::Garbage> },
        Target { name: "mds key of an entry", corpus: entries, decode: entry },
        Target { name: "mds ACL", corpus: acls, decode: acl },
        Target { name: "mds label", corpus: mdt_labels, decode: |b| sealed(b, mdt_label) },
        Target { name: "oss label", corpus: ost_labels, decode: |b| sealed(b, ost_label) },
        Target { name: "oss boot record", corpus: boots, decode: |b| sealed(b, boot) },
        Target { name: "oss verifier", corpus: verifiers, decode: |b| sealed(b, verifier) },
        Target { name: "oss sidecar header", corpus: sidecars, decode: sidecar },
        Target { name: "oss object name", corpus: names, decode: name },
    ]);
    all
}

fn object() -> ObjectId {
    ObjectId { fid: Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 }, comp: 1, stripe: 2 }
}

fn dents() -> Vec<Vec<u8>> {
    vec![record::encode(&record::Dent { fid: object().fid, kind: FileKind::File })]
}

fn garbage() -> Vec<Vec<u8>> {
    let layout = Layout { generation: 1, stripe_size: 1 << 20, osts: vec![3, 0, 2] };
    vec![record::encode(&record::Garbage { layout })]
}

fn entries() -> Vec<Vec<u8>> {
    vec![mds::keys::entry(object().fid, 77, b"name")]
}

fn entry(bytes: &[u8]) -> bool {
    mds::keys::fid_of(bytes);
    mds::keys::parse_entry(bytes).is_some()
}

/// `u::rw-,u:7:r--,g::r--,m::rw-,o::---`.
fn acls() -> Vec<Vec<u8>> {
    let entries =
        [(1u16, 6u16, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    vec![bytes]
}

fn acl(bytes: &[u8]) -> bool {
    let Ok(Some(mut acl)) = proto::acl::Acl::decode(bytes) else { return false };
    let again = proto::acl::Acl::decode(&acl.encode());
    assert_eq!(again.ok().flatten().as_ref(), Some(&acl), "does not survive its own encoding");
    acl.inherit(0o666);
    acl.chmod(0o640);
    acl.mode() <= 0o777
}

fn mdt_labels() -> Vec<Vec<u8>> {
    let label = mds::MdtLabel { fs: [1; 16], fsname: "pin".into(), index: 0, uuid: [2; 16] };
    vec![mds::label::encode(&label)]
}

fn mdt_label(bytes: &[u8]) -> bool {
    mds::label::decode(bytes, Path::new("label")).is_ok()
}

fn ost_labels() -> Vec<Vec<u8>> {
    let label = OstLabel { fs: [1; 16], fs_name: "pin".into(), index: 3, uuid: [2; 16] };
    vec![label.to_bytes()]
}

fn ost_label(bytes: &[u8]) -> bool {
    OstLabel::from_bytes(bytes).is_ok()
}

fn boots() -> Vec<Vec<u8>> {
    let boot = Boot { epoch: 9, clean: false, all_until: 3, unclean: vec![5, 8], objects: 12 };
    vec![boot.to_bytes()]
}

fn boot(bytes: &[u8]) -> bool {
    let Ok(boot) = Boot::from_bytes(bytes) else { return false };
    boot.crashed(7);
    true
}

fn verifiers() -> Vec<Vec<u8>> {
    vec![Verifier { verifier: 9 << 32 | 1, machine: [5; 16] }.to_bytes()]
}

fn verifier(bytes: &[u8]) -> bool {
    Verifier::from_bytes(bytes).is_ok()
}

fn sidecars() -> Vec<Vec<u8>> {
    vec![oss::sidecar::header_bytes(&object(), 3).to_vec()]
}

fn sidecar(bytes: &[u8]) -> bool {
    oss::sidecar::read_header(bytes, &object()).is_ok()
}

fn names() -> Vec<Vec<u8>> {
    vec![oss::name::object_name(&object()).into_bytes()]
}

fn name(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Some(id) = oss::name::parse_name(text) else { return false };
    let again = oss::name::parse_name(&oss::name::object_name(&id));
    assert_eq!(again, Some(id), "does not survive its own encoding");
    true
}
