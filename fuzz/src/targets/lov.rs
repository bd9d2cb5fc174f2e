//! The `lustre.lov` attribute, which any user may set.

use super::Target;
use proto::layout::LayoutSpec;
use proto::lov::Lov;

pub fn targets() -> Vec<Target> {
    vec![Target { name: "lov::Lov", corpus, decode }]
}

fn corpus() -> Vec<Vec<u8>> {
    let spec = LayoutSpec { stripe_size: 1 << 20, stripe_count: 4, stripe_offset: -1 };
    vec![Lov::of_spec(&spec).encode()]
}

fn decode(bytes: &[u8]) -> bool {
    let Ok(lov) = Lov::decode(bytes) else { return false };
    let again = Lov::decode(&lov.encode());
    assert_eq!(again.as_ref().ok(), Some(&lov), "does not survive its own encoding");
    true
}
