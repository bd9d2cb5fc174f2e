//! Messages of the wire protocol. What decodes must encode to something that decodes the same.

use super::{Target, tagged_zeros};
use proto::frame::{HEADER_LEN, Header};
use proto::{Layout, Wire, mds, mgs, oss};

/// Longest all-zero body tried when looking for a valid one, in bytes.
const LONGEST: usize = 320;

fn roundtrip<T: Wire + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = T::from_bytes(bytes) else { return false };
    let again = T::from_bytes(&value.to_bytes());
    assert_eq!(again.as_ref(), Ok(&value), "does not survive its own encoding");
    true
}

macro_rules! messages {
    ($($name:literal: $type:ty),* $(,)?) => {
        pub fn targets() -> Vec<Target> {
            vec![
                Target { name: "frame header", corpus: headers, decode: header },
                Target { name: "layout::Layout", corpus: layouts, decode: roundtrip::<Layout> },
                $(Target {
                    name: $name,
                    corpus: || tagged_zeros(roundtrip::<$type>, LONGEST),
                    decode: roundtrip::<$type>,
                }),*
            ]
        }
    };
}

messages! {
    "mgs::Hello": mgs::Hello,
    "mgs::Welcome": mgs::Welcome,
    "mgs::Register": mgs::Register,
    "mgs::Config": mgs::Config,
    "mds::Compound": mds::Compound,
    "mds::CompoundReply": mds::CompoundReply,
    "mds::Op": mds::Op,
    "mds::Res": mds::Res,
    "mds::Recall": mds::Recall,
    "mds::LeaseRecall": mds::LeaseRecall,
    "mds::Unwatched": mds::Unwatched,
    "mds::Accessed": mds::Accessed,
    "mds::Grant": mds::Grant,
    "mds::DirEntry": mds::DirEntry,
    "attr::Attr": proto::attr::Attr,
    "attr::SetAttr": proto::attr::SetAttr,
    "layout::LayoutSpec": proto::layout::LayoutSpec,
    "oss::Read": oss::Read,
    "oss::ReadReply": oss::ReadReply,
    "oss::WriteReq": oss::WriteReq,
    "oss::WriteList": oss::WriteList,
    "oss::Written": oss::Written,
    "oss::CommitReq": oss::CommitReq,
    "oss::Punch": oss::Punch,
    "oss::Glimpse": oss::Glimpse,
    "oss::Glimpsed": oss::Glimpsed,
    "oss::Destroy": oss::Destroy,
    "oss::Statfs": oss::Statfs,
    "oss::Seek": oss::Seek,
    "oss::CopyReq": oss::CopyReq,
    "oss::Allocate": oss::Allocate,
}

fn layouts() -> Vec<Vec<u8>> {
    vec![Layout { generation: 1, stripe_size: 1 << 20, osts: vec![3, 0, 2] }.to_bytes()]
}

fn headers() -> Vec<Vec<u8>> {
    let body = b"body";
    let mut header = Header::request(proto::ops::mds::COMPOUND, 7);
    header.seal(body, 0);
    let mut bytes = zerocopy::IntoBytes::as_bytes(&header).to_vec();
    bytes.extend_from_slice(body);
    vec![bytes]
}

fn header(bytes: &[u8]) -> bool {
    let Ok(header) = Header::parse(bytes) else { return false };
    assert!(header.body_len.get() <= proto::MAX_BODY, "a body above its limit passed");
    assert!(header.bulk_len.get() <= proto::MAX_BULK, "a bulk part above its limit passed");
    header.verify(&bytes[HEADER_LEN..]).is_ok()
}
