//! SEEK: where data and holes are.

use proto::Errno;
use proto::oss::{Found, Seek};
use rustix::fs::{SeekFrom, seek};

use crate::ost::{Ost, errno};
use crate::stats::Verb;

impl Ost {
    /// Finds data or a hole at or after an offset.
    ///
    /// ENXIO: the offset is at or beyond the object's end, or no data follows.
    pub fn seek(&self, req: &Seek) -> Result<Found, Errno> {
        self.counted(Verb::Seek, || {
            let object = self.existing(&req.object)?.ok_or(Errno::ENXIO)?;
            if req.offset >= object.size() {
                return Err(Errno::ENXIO);
            }
            let at = req.offset;
            let from = if req.hole { SeekFrom::Hole(at) } else { SeekFrom::Data(at) };
            Ok(Found { offset: seek(object.fd(), from).map_err(errno)? })
        })
    }
}
