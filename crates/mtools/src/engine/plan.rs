//! How one file will be copied: decided once, from what both sides are.

use super::direct::Direct;
use super::pairs::Pair;
use super::{Data, Detection, Engine, Fault, Sparse, cached, extents};
use rustix::fs::{FileType, Stat, fstat};
use std::sync::Arc;

/// What is known before a regular file is copied.
pub struct Plan {
    pub pair: Arc<Pair>,
    /// The file system is asked to copy by itself, as long as it does.
    offload: bool,
    /// First byte copied, and the first one that is not. The end moves with the source unless [`Self::closed`].
    pub start: u64,
    pub end: u64,
    /// Nothing behind [`Self::end`] is copied, and what the destination has there stays.
    pub closed: bool,
    /// The source tells its holes.
    pub told: bool,
    /// Blocks of zeros of this size become holes; 0: they are written.
    pub zeros: usize,
    /// Holes are written as zeros.
    pub filled: bool,
    /// Destination before the copy: holes need no work behind its end.
    pub had: u64,
    pub detection: Detection,
    /// Both sides without the page cache, where that is tried.
    pub direct_src: Direct,
    pub direct_dst: Direct,
}

/// Both sides, as fstat saw them.
pub struct Sides {
    pub src: Stat,
    pub dst: Stat,
}

impl Sides {
    pub fn of(data: &Data) -> Result<Self, Fault> {
        let src = fstat(&data.src).map_err(|e| Fault::Read(e.into()))?;
        let dst = fstat(&data.dst).map_err(|e| Fault::Write(e.into()))?;
        Ok(Self { src, dst })
    }

    /// Both are regular files.
    pub fn regular(&self) -> bool {
        [&self.src, &self.dst].iter().all(|s| FileType::from_raw_mode(s.st_mode).is_file())
    }

    /// Size of the source.
    pub fn size(&self) -> u64 {
        self.src.st_size.max(0) as u64
    }
}

impl Plan {
    /// Of two regular files.
    pub fn new(engine: &Engine, data: &Data, sides: &Sides) -> Result<Self, Fault> {
        let settings = engine.settings();
        let pair = engine.pairs().of(&data.src, sides.src.st_dev, &data.dst, sides.dst.st_dev);
        let size = sides.size();
        let start = settings.offset.min(size);
        let end = settings.length.map_or(size, |n| start.saturating_add(n).min(size));
        let warm = || cached::mostly(&data.src, start, (end - start).min(LOOK));
        let mut plan = Self {
            offload: pair.offloads() && !(pair.only_cold && warm()),
            pair,
            start,
            end,
            closed: settings.ranged(),
            told: false,
            zeros: 0,
            filled: data.sparse == Sparse::Never,
            had: if data.fresh { 0 } else { sides.dst.st_size.max(0) as u64 },
            detection: Detection::No,
            direct_src: Direct::default(),
            direct_dst: Direct::default(),
        };
        plan.look_for_holes(data, sides)?;
        Ok(plan)
    }

    /// As cp decides it: a source with fewer blocks than its size needs has holes.
    fn look_for_holes(&mut self, data: &Data, sides: &Sides) -> Result<(), Fault> {
        const SECTOR: u64 = 512;
        let holes = (sides.src.st_blocks.max(0) as u64) < sides.size() / SECTOR;
        self.told = holes && extents::told(&data.src).map_err(Fault::Seek)?;
        // cp 9.1 looks for zeros in what is told to be data, too; later ones only when told to. Where the
        // file system copies by itself the bytes are not seen.
        let auto = data.sparse == Sparse::Auto && holes && !(self.told && self.offloads());
        let always = data.sparse == Sparse::Always;
        if always || auto {
            self.zeros = (sides.dst.st_blksize.max(512) as usize).min(ZEROS_MAX);
        }
        self.detection = match (self.told, self.zeros > 0) {
            (false, false) => Detection::No,
            (false, true) => Detection::Zeros,
            (true, true) if always => Detection::SeekHoleZeros,
            (true, _) => Detection::SeekHole,
        };
        Ok(())
    }

    /// Whether copy_file_range does more than read and write.
    pub fn offloads(&self) -> bool {
        self.offload && self.pair.offloads()
    }

    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// Bytes whose presence in the page cache stands for that of the file.
const LOOK: u64 = 8 << 20;
/// Largest block of zeros that becomes a hole: some network file systems tell blocks of many MiB.
pub const ZEROS_MAX: usize = 128 << 10;
