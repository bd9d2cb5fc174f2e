//! Standard output and error: what is printed stays in order, and a failed write is told once, at the
//! end, as GNU's programs do.

use crate::bar;
use crate::gnu::{diag, start};
use rustix::io::Errno;

/// Bytes that may wait to be written.
const HELD_BACK: usize = 64 << 10;

pub struct Out {
    held: Vec<u8>,
    /// Output consists of lines, which the genuine programs write one by one.
    lines: bool,
    failed: Option<Failed>,
}

enum Failed {
    /// At a line; the reason is lost by the time the genuine program tells it.
    Early,
    AtEnd(Errno),
}

impl Out {
    pub fn new(lines: bool) -> Self {
        Self { held: Vec::new(), lines, failed: None }
    }

    pub fn print(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= HELD_BACK {
            self.flush();
        }
    }

    /// `program: message` on standard error, behind what has been printed.
    pub fn error(&mut self, message: &str) {
        self.flush();
        bar::clear();
        diag::error(message);
    }

    pub fn flush(&mut self) {
        if let Err(e) = self.write() {
            self.failed.get_or_insert(if self.lines { Failed::Early } else { Failed::AtEnd(e) });
        }
    }

    fn write(&mut self) -> Result<(), Errno> {
        let held = std::mem::take(&mut self.held);
        let mut left = held.as_slice();
        if left.is_empty() || self.failed.is_some() {
            return Ok(());
        }
        bar::clear();
        if start::was_closed(1) {
            self.failed = Some(Failed::AtEnd(Errno::BADF));
            return Ok(());
        }
        while !left.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), left) {
                Ok(len) => left = &left[len..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        // The room is used again.
        self.held = held;
        self.held.clear();
        Ok(())
    }

    /// False when something could not be written.
    pub fn close(mut self) -> bool {
        self.flush();
        match self.failed {
            None => return true,
            Some(Failed::Early) => diag::error("write error"),
            Some(Failed::AtEnd(e)) => {
                diag::error(&format!("write error: {}", diag::strerror(e.raw_os_error())));
            }
        }
        false
    }
}
