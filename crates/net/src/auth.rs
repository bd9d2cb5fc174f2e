//! Proof that both ends of a TCP connection hold the cluster key.
//!
//! Role: each side contributes a nonce and sees a MAC over both nonces and the `Hello`, so that
//! neither a recorded proof nor one made for another target is worth anything. Assumptions: what
//! follows on the connection is not encrypted; this keeps strangers out, not eavesdroppers.
//! Byte map: `docs/format.d/net.md`.

use crate::ClusterKey;
use hmac::{Hmac, Mac};
use proto::mgs::Welcome;
use sha2::Sha256;

proto::wire_struct! {
    /// Answer to `CONNECT` where a key is needed.
    Challenge {
        /// Random, used once.
        nonce: [u8; 32],
    }

    /// Body of `PROVE`.
    Proof {
        /// The client's nonce.
        nonce: [u8; 32],
        /// The client's MAC.
        mac: [u8; 32],
    }

    /// Answer to `PROVE`.
    Accepted {
        /// The server's MAC.
        mac: [u8; 32],
        /// As without a key.
        welcome: Welcome,
    }
}

/// Which end proves; in the MAC, so that one end's proof cannot be sent back as the other's.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Client,
    Server,
}

fn keyed(
    key: &ClusterKey,
    side: Side,
    server_nonce: &[u8; 32],
    client_nonce: &[u8; 32],
    hello: &[u8],
) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).ok()?;
    mac.update(match side {
        Side::Client => b"pinstripe session 1 client",
        Side::Server => b"pinstripe session 1 server",
    });
    mac.update(server_nonce);
    mac.update(client_nonce);
    mac.update(hello);
    Some(mac)
}

/// The proof of `side`.
pub(crate) fn prove(
    key: &ClusterKey,
    side: Side,
    server_nonce: &[u8; 32],
    client_nonce: &[u8; 32],
    hello: &[u8],
) -> [u8; 32] {
    keyed(key, side, server_nonce, client_nonce, hello)
        .map_or([0; 32], |mac| mac.finalize().into_bytes().into())
}

/// Checks a proof of `side`, in constant time.
pub(crate) fn verify(
    key: &ClusterKey,
    side: Side,
    server_nonce: &[u8; 32],
    client_nonce: &[u8; 32],
    hello: &[u8],
    proof: &[u8; 32],
) -> bool {
    keyed(key, side, server_nonce, client_nonce, hello)
        .is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

/// A nonce, from a cryptographic generator that the system seeds.
pub(crate) fn nonce() -> [u8; 32] {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Wire;

    #[test]
    fn golden_proof() {
        let key = ClusterKey([1; 32]);
        let proof = prove(&key, Side::Client, &[2; 32], &[3; 32], b"hello");
        let mut message = b"pinstripe session 1 client".to_vec();
        message.extend([2; 32]);
        message.extend([3; 32]);
        message.extend(b"hello");
        let mut mac = Hmac::<Sha256>::new_from_slice(&[1; 32]).unwrap();
        mac.update(&message);
        assert_eq!(proof[..], mac.finalize().into_bytes()[..]);
        assert!(verify(&key, Side::Client, &[2; 32], &[3; 32], b"hello", &proof));
    }

    #[test]
    fn every_part_counts() {
        let key = ClusterKey([1; 32]);
        let proof = prove(&key, Side::Client, &[2; 32], &[3; 32], b"hello");
        let other = ClusterKey([9; 32]);
        assert!(!verify(&other, Side::Client, &[2; 32], &[3; 32], b"hello", &proof));
        assert!(!verify(&key, Side::Server, &[2; 32], &[3; 32], b"hello", &proof));
        assert!(!verify(&key, Side::Client, &[3; 32], &[2; 32], b"hello", &proof));
        assert!(!verify(&key, Side::Client, &[2; 32], &[3; 32], b"hellp", &proof));
    }

    #[test]
    fn golden_bytes() {
        let proof = Proof { nonce: [1; 32], mac: [2; 32] };
        assert_eq!(proof.to_bytes(), [[1; 32], [2; 32]].concat());
        assert_eq!(Challenge { nonce: [4; 32] }.to_bytes(), [4; 32]);
        let welcome = Welcome {
            session: 0x0102,
            epoch: 3,
            version: 1,
            features: 4,
            credits: 5,
            resumed: true,
            data: vec![0xaa],
        };
        let mut expect = vec![9; 32];
        expect.extend([2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
        expect.extend([5, 0, 1, 1, 0, 0, 0, 0xaa]);
        assert_eq!(Accepted { mac: [9; 32], welcome }.to_bytes(), expect);
    }
}
