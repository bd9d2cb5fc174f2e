//! A session: the INIT exchange, the reader threads, and how they end.

/// What a session asks the kernel for, and how many threads serve it.
#[derive(Clone, Debug)]
pub struct Config {
    /// [`caps`](crate::caps) bits to ask for; the kernel grants those it knows.
    pub wanted: u64,
    /// Largest write and read in bytes, a multiple of 4096, to 16 MiB. The kernel's `fs.fuse.max_pages_limit` (1 MiB) caps it.
    pub max_write: u32,
    /// Bytes the kernel may read ahead per file.
    pub max_readahead: u32,
    /// Asynchronous requests (read-ahead, direct I/O) the kernel keeps in flight.
    pub max_background: u16,
    /// Asynchronous requests from which on the kernel calls the device congested.
    pub congestion_threshold: u16,
    /// Granularity of times in nanoseconds, 1..=1e9.
    pub time_gran: u32,
    /// Reader threads kept ready, at least 1.
    pub min_threads: usize,
    /// Most reader threads; more are only started while all are busy in handlers.
    pub max_threads: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            wanted: crate::caps::DEFAULT,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 256,
            congestion_threshold: 192,
            time_gran: 1,
            min_threads: 2,
            max_threads: 16,
        }
    }
}

/// What the kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitInfo {
    /// Minor protocol version both sides speak (major is 7).
    pub minor: u32,
    /// Capabilities in force.
    pub granted: u64,
    /// Capabilities the kernel offered.
    pub offered: u64,
    /// Largest write and read in bytes.
    pub max_write: u32,
    pub max_readahead: u32,
}
