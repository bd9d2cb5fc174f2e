//! What the tests share: a target in a temporary directory and short ways to call it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pinstripe_oss::{Ost, OstError, OstLabel, OstOptions};
use proto::layout::ObjectId;
use proto::oss::*;
use proto::wire::List;
use proto::{Errno, Fid};

pub fn label() -> OstLabel {
    OstLabel { fs: [7; 16], fs_name: "test".into(), index: 3, uuid: [9; 16] }
}

pub fn options() -> OstOptions {
    OstOptions { reserve_bytes: Some(0), direct_write_min: 8192, ..OstOptions::default() }
}

pub fn fresh(dir: &Path) -> Arc<Ost> {
    Ost::format(dir, &label()).unwrap();
    Ost::open(dir, options()).unwrap()
}

/// Opens again what was just dropped; a background thread may hold it for a moment.
pub fn reopen(dir: &Path) -> Arc<Ost> {
    reopen_with(dir, options()).unwrap()
}

/// As [`reopen`], with options; why it cannot be.
pub fn reopen_with(dir: &Path, options: OstOptions) -> Result<Arc<Ost>, OstError> {
    for _ in 0..1_000_000 {
        match Ost::open(dir, options.clone()) {
            Err(e) if e.to_string().contains("in use") => std::thread::yield_now(),
            other => return other,
        }
    }
    panic!("the target stays in use");
}

pub fn id(n: u32) -> ObjectId {
    ObjectId { fid: Fid::new(proto::fid::SEQ_FIRST, n), comp: 0, stripe: (n % 4) as u16 }
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |x: &mut u64| {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x as u8
    };
    (0..len).map(|_| next(&mut x)).collect()
}

pub fn write(ost: &Ost, n: u32, offset: u64, data: &[u8], flags: u8) -> Result<Written, Errno> {
    let sums = if flags & W_NO_SUMS != 0 { Vec::new() } else { sums(offset, data) };
    let req = WriteReq { object: id(n), offset, flags, sums: List(sums) };
    ost.write(&req, &Bytes::copy_from_slice(data))
}

/// Pieces with their checksums, and their bytes.
pub fn list(n: u32, pieces: &[(u64, Vec<u8>)], flags: u8) -> (WriteList, Bytes) {
    let sums = match flags & W_NO_SUMS {
        0 => pieces.iter().flat_map(|(at, data)| sums(*at, data)).collect(),
        _ => Vec::new(),
    };
    let place = |(at, data): &(u64, Vec<u8>)| Piece { offset: *at, len: data.len() as u32 };
    let places = List(pieces.iter().map(place).collect());
    let data: Vec<u8> = pieces.iter().flat_map(|(_, data)| data.clone()).collect();
    (WriteList { object: id(n), flags, pieces: places, sums: List(sums) }, data.into())
}

/// Reads and checks the checksums that came along.
pub fn read(ost: &Ost, n: u32, offset: u64, len: u32, flags: u8) -> Result<Bytes, Errno> {
    let (reply, data) = ost.read(&Read { object: id(n), offset, len, flags })?;
    if flags & W_NO_SUMS == 0 {
        assert_eq!(check_sums(offset, &data, &reply.sums.0), Ok(()));
    }
    Ok(data)
}

pub fn commit(ost: &Ost, n: &[u32]) -> Result<Committed, Errno> {
    ost.commit(&CommitReq { objects: List(n.iter().map(|n| id(*n)).collect()) })
}

pub fn punch(ost: &Ost, n: u32, offset: u64, end: u64, how: u8) -> Result<Written, Errno> {
    ost.punch(&Punch { object: id(n), offset, end, how })
}

pub fn glimpse(ost: &Ost, n: u32) -> ObjectAttr {
    ost.glimpse(&Glimpse { objects: List(vec![id(n)]) }).unwrap().objects.0.remove(0)
}
