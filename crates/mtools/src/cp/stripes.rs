//! `--stripe-count`: how many stripes a new file gets, on Lustre and Pinstripe.
//!
//! Both take a layout as the extended attribute `lustre.lov` of a file that has no bytes. Other file
//! systems are known by one statfs(2) a device, and nothing is asked of them. Never fails a copy: a layout is
//! a matter of speed. What was asked for by name and cannot be had is told once a run.

use super::osts::Osts;
use super::output::Notes;
use super::same;
use super::stat::Stat;
use crate::engine::{ANY, LOV, Layout, Told};
use crate::gnu::{diag, quote};
use parking_lot::Mutex;
use rustix::fs::{OFlags, XattrFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `LL_SUPER_MAGIC` and that of FUSE, as statfs(2) tells them.
const LUSTRE: u64 = 0x0bd0_0bd0;
const FUSE: u64 = 0x6573_5546;
/// `O_LOV_DELAY_CREATE`: Lustre makes no objects before the layout is set. It is a combination of flags
/// that mean nothing for a regular file elsewhere.
const DELAY: OFlags = OFlags::from_bits_retain(0x2100);
/// Stripes beyond which Lustre has no layout.
const MOST: u64 = 2000;
/// Files up to Lustre's default stripe size have no second stripe to be put anywhere.
const AUTO_LEAST: u64 = 1 << 20;
/// An object is to take at most one part in so many of the smallest OST's free space.
const SHARE: u64 = 100;
/// How long what the OSTs have free is believed.
const OSTS_AGE: Duration = Duration::from_secs(10);
/// Devices remembered; beyond it all are asked again.
const DEVICES_MAX: usize = 64;
/// Directories between a directory and its mount point.
const DEPTH_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Count {
    /// See [`auto`]; what that leaves at one stripe, and a composite default, stays the directory's.
    #[default]
    Auto,
    Exactly(u16),
    /// `Ns`: N for each power of two of the square root: 1 + floor(N * sqrt(GiB)).
    Root(u16),
    /// `Nl`: linear: 1 + floor(N * GiB).
    Linear(u16),
    /// The source's.
    Keep,
}

/// `auto`, `keep`, a number (-1: all OSTs), or a number with `s` or `l`.
pub fn parse(value: &OsStr) -> Result<Count, String> {
    let text = value.to_str().unwrap_or_default();
    let number = |text: &str| text.parse::<u16>().ok().filter(|n| (1..=MOST as u16).contains(n));
    let count = match text {
        "auto" => Some(Count::Auto),
        "keep" => Some(Count::Keep),
        "-1" => Some(Count::Exactly(ANY)),
        _ => match (text.strip_suffix('s'), text.strip_suffix('l')) {
            (Some(n), _) => number(n).map(Count::Root),
            (_, Some(n)) => number(n).map(Count::Linear),
            _ => number(text).map(Count::Exactly),
        },
    };
    count.ok_or_else(|| {
        format!(
            "invalid value {} for '--stripe-count': give auto, keep, -1 for all, a number from 1 to {MOST}, or \
             such a number with s (times the root of the size in GiB) or l (times the size in GiB)",
            quote::always(value)
        )
    })
}

/// What a file system makes of layouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Unstriped,
    Lustre,
    Pinstripe,
}

/// One that is copied to.
#[derive(Clone, Copy)]
struct Device {
    dev: u64,
    kind: Kind,
    /// What it told, and when.
    osts: Option<(Instant, Option<Osts>)>,
}

#[derive(Default)]
pub struct Stripes {
    devices: Mutex<HashMap<u64, Device>>,
    warned: AtomicBool,
}

impl Stripes {
    /// Flags to open a new file with, so that its layout can be set.
    pub fn flags(&self, count: Count, size: u64, dst: &Path) -> OFlags {
        let lustre = |device: &Device| device.kind == Kind::Lustre;
        match self.striped(count, size, dst).filter(lustre) {
            Some(device) if self.wanted(count, size, dst, &device) != Wanted::Default => DELAY,
            _ => OFlags::empty(),
        }
    }

    /// Gives a file without bytes its layout; `new`: nothing was there before.
    pub fn set(&self, count: Count, file: &Striped, new: bool, notes: &mut Notes) {
        if count == Count::Auto && !new {
            return;
        }
        let Some(device) = self.striped(count, file.size, file.name) else { return };
        let layout = match self.wanted(count, file.size, file.name, &device) {
            Wanted::Default => return,
            Wanted::Stripes(count) => Layout { count, size: 0 },
            Wanted::Source => match Told::of(file.src) {
                Some(Told::Plain(layout)) => layout,
                _ => return,
            },
        };
        if !new && has(file.dst, layout) {
            return;
        }
        let set = rustix::fs::fsetxattr(file.dst, LOV, &layout.encode(), XattrFlags::empty());
        if let Err(e) = set
            && count != Count::Auto
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            notes.warn(&format!(
                "warning: cannot give {} {}: {}; it keeps those it has",
                quote::always(file.name),
                words(layout.count),
                diag::reason(&e.into())
            ));
        }
    }

    fn wanted(&self, count: Count, size: u64, dst: &Path, device: &Device) -> Wanted {
        let (dir, _) = same::split(dst);
        match count {
            Count::Keep => Wanted::Source,
            Count::Exactly(n) => Wanted::Stripes(n),
            Count::Root(n) => {
                let n = scaled(f64::from(n), size, f64::sqrt);
                Wanted::Stripes(capped(n, self.osts(dir, device)))
            }
            Count::Linear(n) => {
                let n = scaled(f64::from(n), size, |gib| gib);
                Wanted::Stripes(capped(n, self.osts(dir, device)))
            }
            Count::Auto => match auto(size, self.osts(dir, device)) {
                0 | 1 => Wanted::Default,
                _ if composite(dir, device.dev) => Wanted::Default,
                n => Wanted::Stripes(n),
            },
        }
    }

    /// Where a file is made, if that is to do with stripes at all.
    fn striped(&self, count: Count, size: u64, dst: &Path) -> Option<Device> {
        if count == Count::Auto && size <= AUTO_LEAST {
            return None;
        }
        let (dir, _) = same::split(dst);
        let dev = Stat::follow(dir).ok()?.dev;
        let mut devices = self.devices.lock();
        if devices.len() >= DEVICES_MAX {
            devices.clear();
        }
        let new = || Device { dev, kind: kind(dir), osts: None };
        let device = *devices.entry(dev).or_insert_with(new);
        (device.kind != Kind::Unstriped).then_some(device)
    }

    fn osts(&self, dir: &Path, device: &Device) -> Option<Osts> {
        if let Some((when, osts)) = device.osts
            && when.elapsed() < OSTS_AGE
        {
            return osts;
        }
        let osts = match device.kind {
            Kind::Unstriped => None,
            Kind::Lustre => Osts::of_lustre(device.dev),
            Kind::Pinstripe => Osts::of_pinstripe(dir),
        };
        let told = Device { osts: Some((Instant::now(), osts)), ..*device };
        self.devices.lock().insert(device.dev, told);
        osts
    }
}

/// A file that gets stripes.
pub struct Striped<'a> {
    pub size: u64,
    pub src: &'a File,
    pub dst: &'a File,
    pub name: &'a Path,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// What the directory says.
    Default,
    Stripes(u16),
    /// Those of the source.
    Source,
}

/// Whether an older file has such a layout by chance.
fn has(file: &File, layout: Layout) -> bool {
    let like = |there: Layout| {
        there.count == layout.count && (layout.size == 0 || there.size == layout.size)
    };
    matches!(Told::of(file), Some(Told::Plain(there)) if like(there))
}

fn words(count: u16) -> String {
    match count {
        ANY => "stripes on all OSTs".into(),
        0 => "the default number of stripes".into(),
        1 => "1 stripe".into(),
        n => format!("{n} stripes"),
    }
}

fn kind(dir: &Path) -> Kind {
    match rustix::fs::statfs(dir).map_or(0, |fs| fs.f_type as u64) {
        LUSTRE => Kind::Lustre,
        // Every file of a Pinstripe has one.
        FUSE if rustix::fs::getxattr(dir, "lustre.fid", &mut [0; 256][..]).is_ok() => {
            Kind::Pinstripe
        }
        _ => Kind::Unstriped,
    }
}

/// Whether new files of a directory get a composite layout: by its own default, or where it has none by that
/// of the file system, which is its root's.
fn composite(dir: &Path, dev: u64) -> bool {
    let default = Told::of_directory(dir).or_else(|| Told::of_directory(&root(dir, dev)?));
    default == Some(Told::Composite)
}

/// The highest directory above that is on this device.
fn root(dir: &Path, dev: u64) -> Option<std::path::PathBuf> {
    let mut at = dir.to_path_buf();
    let mut id = Stat::follow(&at).ok()?.id();
    for _ in 0..DEPTH_MAX {
        let up = at.join("..");
        let st = Stat::follow(&up).ok()?;
        if st.dev != dev || st.id() == id {
            return Some(at);
        }
        (at, id) = (up, st.id());
    }
    None
}

/// 1 + floor(sqrt(GiB)); more where an object would else take more than 1 % of what the smallest OST has free;
/// never more than there are OSTs.
fn auto(size: u64, osts: Option<Osts>) -> u16 {
    let wanted = scaled(1.0, size, f64::sqrt);
    let least = osts.and_then(|osts| osts.least);
    let fit = least.map_or(1, |least| size.div_ceil((least / SHARE).max(1)).min(MOST) as u16);
    capped(wanted.max(fit), osts)
}

fn capped(count: u16, osts: Option<Osts>) -> u16 {
    osts.map_or(count, |osts| count.min(osts.count))
}

/// 1 + floor(n * scale(GiB)), at most [`MOST`].
fn scaled(n: f64, size: u64, scale: impl Fn(f64) -> f64) -> u16 {
    let gib = size as f64 / f64::from(1 << 30);
    (1.0 + (n * scale(gib)).floor()).min(MOST as f64) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_with_the_root_of_the_size() {
        const GIB: u64 = 1 << 30;
        let auto = |size| scaled(1.0, size, f64::sqrt);
        assert_eq!([0, GIB - 1, GIB, 4 * GIB, 100 * GIB].map(auto), [1, 1, 2, 3, 11]);
        assert_eq!(scaled(2.0, 4 * GIB, |gib| gib), 9);
    }

    #[test]
    fn words_are_told_apart_and_wrong_ones_refused() {
        let words = ["auto", "keep", "-1", "4", "2s", "3l"].map(|w| parse(OsStr::new(w)).unwrap());
        assert_eq!(
            words,
            [
                Count::Auto,
                Count::Keep,
                Count::Exactly(ANY),
                Count::Exactly(4),
                Count::Root(2),
                Count::Linear(3)
            ]
        );
        for wrong in ["0", "", "s", "2001", "4x", "-2"] {
            assert!(parse(OsStr::new(wrong)).unwrap_err().contains("--stripe-count"), "{wrong}");
        }
    }

    #[test]
    fn auto_never_goes_beyond_the_osts_and_spreads_where_one_is_nearly_full() {
        const GIB: u64 = 1 << 30;
        let osts = |count, least| Some(Osts { count, least });
        // Nothing known, or more room than it takes.
        assert_eq!((auto(4 * GIB, None), auto(4 * GIB, osts(8, None))), (3, 3));
        assert_eq!(auto(4 * GIB, osts(8, Some(1000 * GIB))), 3);
        assert_eq!(auto(4 * GIB, osts(2, Some(1000 * GIB))), 2);
        // An object of 1 GiB is 1 % of 100 GiB: four of them, or as many as there are OSTs.
        assert_eq!(auto(4 * GIB, osts(8, Some(100 * GIB))), 4);
        assert_eq!(auto(4 * GIB + 1, osts(8, Some(100 * GIB))), 5);
        assert_eq!(auto(4 * GIB, osts(3, Some(100 * GIB))), 3);
        assert_eq!(auto(4 * GIB, osts(8, Some(0))), 8);
        assert_eq!(auto(u64::MAX >> 1, osts(u16::MAX, Some(0))), MOST as u16);
    }

    #[test]
    fn a_local_file_system_is_asked_for_nothing() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let stripes = Stripes::default();
        let dst = dir.path().join("file");
        assert!(stripes.striped(Count::Exactly(3), 1 << 40, &dst).is_none());
        assert_eq!(stripes.flags(Count::Exactly(3), 1 << 40, &dst), OFlags::empty());
        assert_eq!(stripes.devices.lock().len(), 1);
    }

    #[test]
    fn the_root_is_where_the_device_begins() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let dev = Stat::follow(dir.path()).unwrap().dev;
        let root = root(dir.path(), dev).unwrap();
        let up = Stat::follow(&root.join("..")).unwrap();
        assert!(up.dev != dev || up.same(&Stat::follow(&root).unwrap()));
        assert_eq!(Stat::follow(&root).unwrap().dev, dev);
    }
}
