//! Messages of the kernel. They come from a trusted side, but a newer kernel may say new things.

use super::Target;

/// Highest opcode tried.
const OPCODES: u32 = 60;

pub fn targets() -> Vec<Target> {
    vec![Target { name: "fuse message", corpus, decode }]
}

/// A header of every opcode with zeros, and with a name, for its arguments.
fn corpus() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for opcode in 1..=OPCODES {
        for arguments in [vec![0; 128], b"name\0other\0".to_vec()] {
            let mut message = Vec::new();
            message.extend_from_slice(&(40 + arguments.len() as u32).to_le_bytes());
            message.extend_from_slice(&opcode.to_le_bytes());
            message.extend_from_slice(&7u64.to_le_bytes());
            message.extend_from_slice(&1u64.to_le_bytes());
            message.resize(40, 0);
            message.extend_from_slice(&arguments);
            found.push(message);
        }
    }
    found
}

fn decode(bytes: &[u8]) -> bool {
    // Only opening /dev/null can fail; what it answers is not judged here.
    let _ = fuse::fuzz::decode(bytes);
    false
}
