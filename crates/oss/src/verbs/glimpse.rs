//! GLIMPSE: sizes and times of objects.

use proto::oss::{Glimpse, Glimpsed, ObjectAttr};
use proto::wire::List;
use proto::{Errno, TimeSpec};
use rustix::fs::{FileType, Stat, fstat};

use crate::name::object_path;
use crate::ost::{Ost, errno};
use crate::stats::Verb;

const ABSENT: ObjectAttr =
    ObjectAttr { exists: false, size: 0, blocks: 0, mtime: TimeSpec { sec: 0, nsec: 0 } };

impl Ost {
    /// What is known of each object, in the request's order; absent ones are told as such.
    pub fn glimpse(&self, req: &Glimpse) -> Result<Glimpsed, Errno> {
        self.counted(Verb::Glimpse, || {
            let mut objects = Vec::with_capacity(req.objects.0.len());
            for id in &req.objects.0 {
                let stat = match self.cache.peek(id) {
                    // A write that is not done has no size: a READ after this finds all bytes below it.
                    Some(open) => fstat(open.fd()).map(|s| (s, Some(open.size()))),
                    None => self.objects.stat(&object_path(id)).map(|s| (s, None)),
                };
                objects.push(match stat {
                    Ok((s, size)) => attr(&s, size),
                    Err(rustix::io::Errno::NOENT) => ABSENT,
                    Err(e) => return Err(errno(e)),
                });
            }
            Ok(Glimpsed { objects: List(objects) })
        })
    }
}

fn attr(s: &Stat, size: Option<u64>) -> ObjectAttr {
    if FileType::from_raw_mode(s.st_mode) != FileType::RegularFile {
        return ABSENT;
    }
    ObjectAttr {
        exists: true,
        size: size.unwrap_or(s.st_size as u64),
        blocks: s.st_blocks as u64,
        mtime: TimeSpec { sec: s.st_mtime, nsec: s.st_mtime_nsec as u32 },
    }
}
