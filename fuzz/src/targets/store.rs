//! What the store keeps beside its records: the chain of commits, the committed slot, its label.

use super::Target;
use store::chain::CommitRecord;
use store::fjall_engine::committed::Committed;
use store::fjall_engine::identity;

pub fn targets() -> Vec<Target> {
    vec![
        Target { name: "store commit record", corpus: records, decode: record },
        Target { name: "store committed slot", corpus: slots, decode: slot },
        Target {
            name: "store identity",
            corpus: || vec![identity::encode().to_vec()],
            decode: |bytes| identity::check(bytes, "STORE").is_ok(),
        },
    ]
}

fn records() -> Vec<Vec<u8>> {
    let first = CommitRecord::format();
    vec![first.encode().to_vec(), first.acquire().encode().to_vec()]
}

fn record(bytes: &[u8]) -> bool {
    let Ok(record) = CommitRecord::decode(bytes) else { return false };
    assert_eq!(record.encode().as_slice(), bytes, "two encodings of one record");
    true
}

fn slots() -> Vec<Vec<u8>> {
    vec![Committed::from(&CommitRecord::format()).encode().to_vec()]
}

fn slot(bytes: &[u8]) -> bool {
    matches!(Committed::decode(bytes), Ok(Some(_)))
}
