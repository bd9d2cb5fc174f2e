//! The options that the genuine programs lack: how fast, which part, what is told beside the sums.

use crate::gnu::quote;
use std::ffi::OsStr;

/// The most threads that `--threads` takes.
pub const MAX_THREADS: usize = 256;
/// Limits of `--buffer-size`; the lower one and its multiples suit direct reads of any device.
pub const MIN_BUFFER: u64 = 4096;
pub const MAX_BUFFER: u64 = 64 << 20;
/// What a thread reads at once: it stays in the processor's own cache.
pub const DEFAULT_BUFFER: usize = 256 << 10;
/// The smallest chunk of a tree hash.
pub const MIN_SPLIT: u64 = 4096;
/// That of `--check-tree`: what mcp copies at once, so that both print the same.
pub const DEFAULT_SPLIT: u64 = crate::engine::SPLIT_DEFAULT;

#[derive(Clone, Debug)]
pub struct Own {
    /// None: as many as there are processors.
    pub asked_threads: Option<usize>,
    pub buffer: usize,
    /// The chunk of a tree hash; None: plain hashes.
    pub split: Option<u64>,
    pub direct: bool,
    pub advice: Advice,
    /// Large files are read by one thread and hashed by another.
    pub double_buffer: bool,
    pub offset: u64,
    /// At most so many bytes of each file.
    pub length: Option<u64>,
    /// Tree hashes, of the default chunk where no other is asked for.
    pub check_tree: bool,
    pub read_stdin: bool,
    pub stats: bool,
    pub json: bool,
    pub progress: bool,
}

/// What the kernel is told of our reading (`--fadvise-read`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Nothing.
    No,
    /// That it is in sequence, as the genuine programs say.
    Sequence,
    /// Also that what has been read is not wanted any more.
    Once,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            asked_threads: None,
            buffer: DEFAULT_BUFFER,
            split: None,
            direct: false,
            advice: Advice::Sequence,
            double_buffer: true,
            offset: 0,
            length: None,
            check_tree: false,
            read_stdin: false,
            stats: false,
            json: false,
            progress: false,
        }
    }
}

impl Own {
    pub fn set_threads(&mut self, value: &OsStr) -> Result<(), String> {
        let remedy = || format!("give a number from 1 to {MAX_THREADS}");
        let threads = within("--threads", value, 1, MAX_THREADS as u64, remedy)?;
        self.asked_threads = Some(threads as usize);
        Ok(())
    }

    pub fn set_buffer(&mut self, value: &OsStr) -> Result<(), String> {
        let remedy = || "give a size from 4K to 64M, such as 1M".to_string();
        let size = within("--buffer-size", value, MIN_BUFFER, MAX_BUFFER, remedy)?;
        self.buffer = size.next_multiple_of(MIN_BUFFER) as usize;
        Ok(())
    }

    pub fn set_split(&mut self, value: &OsStr) -> Result<(), String> {
        let remedy = || "give a size of at least 4K, such as 64M".to_string();
        self.split = Some(within("--split-size", value, MIN_SPLIT, i64::MAX as u64, remedy)?);
        Ok(())
    }

    pub fn set_offset(&mut self, value: &OsStr) -> Result<(), String> {
        self.offset = bytes("--offset", value)?;
        Ok(())
    }

    pub fn set_length(&mut self, option: &str, value: &OsStr) -> Result<(), String> {
        self.length = Some(bytes(option, value)?);
        Ok(())
    }

    /// Asks the system, which takes longer than to hash a small file: for those who need to know.
    pub fn threads(&self) -> usize {
        self.asked_threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
        })
    }

    /// A part of each file is meant.
    pub fn partial(&self) -> bool {
        self.offset != 0 || self.length.is_some()
    }
}

fn bytes(option: &str, value: &OsStr) -> Result<u64, String> {
    let remedy = || "give a number of bytes, such as 4096 or 64M".to_string();
    within(option, value, 0, i64::MAX as u64, remedy)
}

fn within(
    option: &str,
    value: &OsStr,
    min: u64,
    max: u64,
    remedy: impl Fn() -> String,
) -> Result<u64, String> {
    size(value)
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("invalid {option} value {}: {}", quote::locale(value), remedy()))
}

/// A number with an optional unit of 1024: K, M, G, T, P, also as KiB.
pub fn size(value: &OsStr) -> Option<u64> {
    let text = value.to_str()?;
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = &text[digits..];
    let unit = unit.strip_suffix("iB").unwrap_or(unit);
    let shift = match unit {
        "" if digits == text.len() => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let of = |text: &str| size(OsStr::new(text));
        assert_eq!(of("4096"), Some(4096));
        assert_eq!(of("2K"), Some(2048));
        assert_eq!(of("3GiB"), Some(3 << 30));
        for wrong in
            ["", "K", "-1", "+1", "1.5M", "1X", "iB", "1iB", "99999999999999999999", "9999999P"]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn wrong_values_are_named_with_their_option_and_a_remedy() {
        let e = Own::default().set_threads(OsStr::new("0")).unwrap_err();
        let quoted = quote::locale("0");
        assert_eq!(e, format!("invalid --threads value {quoted}: give a number from 1 to 256"));
    }
}
