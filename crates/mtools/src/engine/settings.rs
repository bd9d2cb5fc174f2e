//! What a run of the engine can be told, with its limits.
//!
//! Sizes are bytes. Numbers out of range are brought into range, never refused: the command line refuses
//! what makes no sense before it comes here.

/// Most threads of a run.
pub const THREADS_MAX: usize = 256;
/// Threads where nothing is said: at least, because small files wait for the disk and not for a processor,
/// and at most.
pub const THREADS_DEFAULT: (usize, usize) = (8, 16);
/// Smallest and largest buffer. Buffers are multiples of the smallest.
pub const BUFFER_RANGE: (usize, usize) = (4 << 10, 64 << 20);
/// Buffer where nothing is said.
pub const BUFFER_DEFAULT: usize = 1 << 20;
/// Smallest chunk a file is split into.
pub const SPLIT_MIN: u64 = 64 << 10;
/// Chunk where nothing is said.
pub const SPLIT_DEFAULT: u64 = 32 << 20;

/// Whether to do something: when it is measured to help, always, or never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Switch {
    #[default]
    Auto,
    On,
    Off,
}

/// How bytes are moved. `Default` is right for most.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Files and chunks copied at once, 1 to [`THREADS_MAX`]; with 1 no thread is started and everything
    /// runs in order. Default: the processors, within [`THREADS_DEFAULT`].
    pub threads: usize,
    /// Bytes of one read or write, within [`BUFFER_RANGE`].
    pub buffer_size: usize,
    /// Files larger than this are split into chunks of this size, at least [`SPLIT_MIN`]; 0: never.
    pub split_size: u64,
    /// Reads the next block while this one is written.
    pub double_buffer: Switch,
    /// O_DIRECT at the source.
    pub direct_read: Switch,
    /// O_DIRECT at the destination.
    pub direct_write: Switch,
    /// Drops what was read from the page cache.
    pub fadvise_read: Switch,
    /// Starts writing out early, and drops what was written from the page cache.
    pub fadvise_write: Switch,
    /// Allocates the destination before it is written.
    pub preallocate: Switch,
    /// First byte copied, to the same place of the destination (`--offset`). With this or [`Self::length`] the
    /// destination keeps what is outside of the range.
    pub offset: u64,
    /// Bytes copied (`--length`); to the end when `None`.
    pub length: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let (least, most) = THREADS_DEFAULT;
        Self {
            threads: std::thread::available_parallelism()
                .map_or(least, usize::from)
                .clamp(least, most),
            buffer_size: BUFFER_DEFAULT,
            split_size: SPLIT_DEFAULT,
            double_buffer: Switch::Auto,
            direct_read: Switch::Auto,
            direct_write: Switch::Auto,
            fadvise_read: Switch::Auto,
            fadvise_write: Switch::Auto,
            preallocate: Switch::Auto,
            offset: 0,
            length: None,
        }
    }
}

impl Settings {
    /// Everything within its range.
    pub(super) fn settled(mut self) -> Self {
        self.threads = self.threads.clamp(1, THREADS_MAX);
        let (least, most) = BUFFER_RANGE;
        self.buffer_size = self.buffer_size.clamp(least, most).next_multiple_of(least).min(most);
        if self.split_size != 0 {
            self.split_size = self.split_size.max(SPLIT_MIN).next_multiple_of(least as u64);
        }
        self
    }

    /// Only a part of each file is copied.
    pub fn ranged(&self) -> bool {
        self.offset != 0 || self.length.is_some()
    }
}
