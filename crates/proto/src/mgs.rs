//! Messages of session set-up and of the management service.

use crate::wire::List;

/// A metadata target.
pub const KIND_MDT: u8 = 1;
/// An object storage target.
pub const KIND_OST: u8 = 2;
/// The management service.
pub const KIND_MGS: u8 = 3;

/// `Hello::features`: only looks (status); never counts as a client that shares files.
pub const FEATURE_OBSERVER: u64 = 1;
/// `Hello::features` of the first session of a connection: more sessions are to follow on it. In
/// `Welcome::features`: they may.
pub const FEATURE_TRUNK: u64 = 2;

/// How the refusal of a client begins that was evicted: it comes back as its next incarnation.
pub const EVICTED: &str = "evicted: ";

/// A client's id in two parts: who it is, and how often it was evicted (its last four bytes,
/// little-endian).
pub fn incarnation(client: &[u8; 16]) -> ([u8; 12], u32) {
    let [who @ .., a, b, c, d] = *client;
    (who, u32::from_le_bytes([a, b, c, d]))
}

/// The id of a client's next incarnation.
pub fn reborn(client: &[u8; 16]) -> [u8; 16] {
    let (_, times) = incarnation(client);
    let mut next = *client;
    next[12..].copy_from_slice(&times.wrapping_add(1).to_le_bytes());
    next
}

crate::wire_struct! {
    /// First message of a session.
    Hello {
        /// Lowest wire version the client speaks.
        min_version: u8,
        /// Highest wire version the client speaks.
        max_version: u8,
        /// Who connects: random per client instance, kept over reconnects.
        client: [u8; 16],
        /// File system the client means; all zero: any (the MGS).
        fs: [u8; 16],
        /// Target wanted: `MGS`, `MDT0000`, `OST0001`, ...
        target: String,
        /// Feature bits the client wants.
        features: u64,
        /// Host and process, for `status`.
        description: String,
        /// Session to take up again after a lost connection; 0: a new one.
        resume: u64,
    }

    /// Answer to [`Hello`].
    Welcome {
        /// The session's number.
        session: u64,
        /// Epoch (boot count) of the target.
        epoch: u32,
        /// Wire version spoken from now on.
        version: u8,
        /// Feature bits both sides have.
        features: u64,
        /// Requests the client may have outstanding.
        credits: u16,
        /// Whether `resume` was taken up: the server still knows the session.
        resumed: bool,
        /// What the service says of the session ([`crate::mds::Grant`] for an MDT).
        data: Vec<u8>,
    }

    /// One target, as the MGS knows it.
    Target {
        /// `KIND_*`.
        kind: u8,
        /// Index within its kind.
        index: u32,
        /// Identity given at format.
        uuid: [u8; 16],
        /// Where it listens, as text: `tcp:HOST:PORT` or `unix:PATH`.
        address: String,
    }

    /// A server announces a target.
    Register {
        /// File system the target was formatted for.
        fs: [u8; 16],
        /// The target.
        target: Target,
    }

    /// All the MGS knows.
    Config {
        /// The file system.
        fs: [u8; 16],
        /// Its name.
        name: String,
        /// Changes with every registration.
        generation: u64,
        /// Known targets.
        targets: List<Target>,
    }
}

impl Target {
    /// The target's name: `MDT0000`, `OST0003`, `MGS`.
    pub fn name(&self) -> String {
        target_name(self.kind, self.index)
    }
}

/// The name of a target.
pub fn target_name(kind: u8, index: u32) -> String {
    match kind {
        KIND_MDT => format!("MDT{index:04x}"),
        KIND_OST => format!("OST{index:04x}"),
        _ => "MGS".to_string(),
    }
}
