//! Names of objects' files: `objects/HH/SEQ.OID.VER.COMP.STRIPE`, all lower-case hexadecimal.
//!
//! HH, the directory, is a hash of the identifier, so that no directory grows with one client's
//! sequence. A name is canonical: parsing and printing give the same text or it is no object's.

use proto::Fid;
use proto::layout::ObjectId;
use proto::wire::Wire;

/// Directories under `objects`, made by format.
pub const BUCKETS: u32 = 256;
/// What a sidecar's name has after its object's.
pub const SIDECAR_SUFFIX: &str = ".sum";

/// The directory an object's file lies in, as a name under `objects`.
pub fn bucket(id: &ObjectId) -> String {
    format!("{:02x}", crc32c::crc32c(&id.to_bytes()) % BUCKETS)
}

/// The file name of an object, without its directory.
pub fn object_name(id: &ObjectId) -> String {
    let f = id.fid;
    format!("{:x}.{:x}.{:x}.{:x}.{:x}", f.seq, f.oid, f.ver, id.comp, id.stripe)
}

/// Path of an object under `objects`.
pub fn object_path(id: &ObjectId) -> String {
    format!("{}/{}", bucket(id), object_name(id))
}

/// Path of an object's sidecar under `objects`.
pub fn sidecar_path(id: &ObjectId) -> String {
    format!("{}{SIDECAR_SUFFIX}", object_path(id))
}

/// Reads an object's file name; `None` for any other text.
pub fn parse_name(name: &str) -> Option<ObjectId> {
    let mut parts = name.split('.').map(|p| u64::from_str_radix(p, 16).ok());
    let mut next = || parts.next().flatten();
    let fid = Fid { seq: next()?, oid: next()?.try_into().ok()?, ver: next()?.try_into().ok()? };
    let id = ObjectId { fid, comp: next()?.try_into().ok()?, stripe: next()?.try_into().ok()? };
    (object_name(&id) == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_name() {
        let id = ObjectId { fid: Fid::new(0x2_0000_0401, 0x1f), comp: 0, stripe: 10 };
        assert_eq!(object_path(&id), format!("{}/200000401.1f.0.0.a", bucket(&id)));
        assert_eq!(bucket(&id), "54");
        for bad in
            ["", "1.2.3.4", "1.2.3.4.5.6", "01.2.3.4.5", "+1.2.3.4.5", "A.2.3.4.5", "1.2.3.4.10000"]
        {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn names_round_trip(seq: u64, oid: u32, ver: u32, comp: u16, stripe: u16) {
            let id = ObjectId { fid: Fid { seq, oid, ver }, comp, stripe };
            prop_assert_eq!(parse_name(&object_name(&id)), Some(id));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f.+x]{0,40}") {
            if let Some(id) = parse_name(&text) {
                prop_assert_eq!(object_name(&id), text);
            }
        }
    }
}
