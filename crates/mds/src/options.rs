//! Settings of a metadata target, each with its limits.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proto::TimeSpec;

/// Where the time comes from, so that tests can decide it.
pub trait Clock: Send + Sync {
    /// Now, in UTC.
    fn now(&self) -> TimeSpec;
}

/// The system's clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> TimeSpec {
        SystemTime::now().into()
    }
}

/// See the fields.
#[derive(Clone)]
pub struct MdtOptions {
    /// Files up to this size live inline, bytes (at most 65,536).
    pub dom_limit: u32,
    /// Memory for clean inodes, entries and blobs, bytes.
    pub cache_bytes: usize,
    /// How long a change may wait for others to share a commit.
    pub group_delay: Duration,
    /// Changed records after which a group is cut without waiting.
    pub group_records: usize,
    /// Commits handed to the store that are not durable yet; above it groups grow instead.
    pub max_commits: usize,
    /// Threads that fetch what is not in memory.
    pub readers: usize,
    /// How long unlinked files that were open at a crash wait for their clients.
    pub orphan_grace: Duration,
    /// How often the OSTs are asked for their space.
    pub poll_interval: Duration,
    /// How long a client may take to give back a lease before it is evicted. Clients believe what they were
    /// granted for 18 seconds after they last heard of the MDT: less than 20 is for tests.
    pub recall_timeout: Duration,
    /// How long an OST that cannot be reached holds up what an evicted client had. After that it
    /// counts as gone, and is told when it is back.
    pub fence_patience: Duration,
    /// Leases one client may have; above it the oldest are called back.
    pub leases_per_client: usize,
    /// Leases all clients together may have.
    pub leases_total: usize,
    /// Below this many free bytes only what frees space is done; must be above the store's own
    /// reserve and below the OSTs'. 0: what the store keeps, what it needs to compact, and a
    /// quarter of the file system, at most 56 MiB.
    pub reserve_bytes: u64,
    /// Seed of choices among equals.
    pub seed: u64,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Default for MdtOptions {
    fn default() -> MdtOptions {
        MdtOptions {
            dom_limit: proto::DEFAULT_DOM_LIMIT,
            cache_bytes: 256 << 20,
            group_delay: Duration::from_millis(5),
            group_records: 4000,
            max_commits: 3,
            readers: 2,
            orphan_grace: Duration::from_secs(60),
            poll_interval: Duration::from_secs(1),
            recall_timeout: Duration::from_secs(20),
            fence_patience: Duration::from_secs(30),
            leases_per_client: crate::leases::MAX_PER_CLIENT,
            leases_total: crate::leases::MAX_LEASES,
            reserve_bytes: 0,
            seed: 1,
            clock: Arc::new(SystemClock),
        }
    }
}
