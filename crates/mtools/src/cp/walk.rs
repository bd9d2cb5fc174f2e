//! The traversal: every name of the source in cp's own order, what is to become of it, and what stands in
//! its way. Decides, moves backups away and makes directories here; hands files to the engine.

use super::dir::{Dir, Rest};
use super::existing::{self, Way};
use super::links::Met;
use super::options::Follow;
use super::output::Notes;
use super::resume::{self, Again, Past};
use super::run::{Item, Run, arrow};
use super::stat::{CHMOD_BITS, Stat};
use super::{dispatch, same};
use crate::gnu::{diag, quote};
use rustix::fs::{CWD, Mode};
use std::ffi::OsString;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OWNER_ALL: u32 = 0o700;

/// The copy of one operand.
pub struct Walk<'a> {
    pub run: &'a Arc<Run>,
    /// As named, for messages about copying into itself.
    pub top_src: PathBuf,
    pub top_dst: PathBuf,
    /// The first directory made for this operand has been noted.
    first_dir: bool,
    /// Directories above the one that is copied, to find links that lead back to them.
    above: Vec<(u64, u64)>,
    /// A directory was found to be copied into itself.
    into_itself: bool,
    /// Something was a directory.
    directories: bool,
}

/// A name of the source, on its way to a name of the destination.
struct Step {
    src: PathBuf,
    dst: PathBuf,
    /// Nothing is at the destination, because its directory was made just now.
    fresh: bool,
    operand: bool,
    /// Device of the directory it lies in.
    dev: Option<u64>,
    parent: Arc<Dir>,
}

impl<'a> Walk<'a> {
    /// Copies one operand. `new`: it is known that nothing is at the destination.
    pub fn operand(run: &'a Arc<Run>, src: &Path, dst: &Path, new: bool) {
        let mut walk = Self {
            run,
            top_src: src.to_path_buf(),
            top_dst: dst.to_path_buf(),
            first_dir: false,
            above: Vec::new(),
            into_itself: false,
            directories: false,
        };
        let root = Dir::new(None);
        let step = Step {
            src: src.to_path_buf(),
            dst: dst.to_path_buf(),
            fresh: new,
            operand: true,
            dev: None,
            parent: root.clone(),
        };
        walk.visit(step);
        root.traversed(run, None);
        if walk.directories && run.made.lock().is_some() {
            // The next operand may be copied into what this one has made.
            run.engine.drain();
        }
    }

    fn visit(&mut self, step: Step) {
        let run = self.run;
        let o = &run.options;
        if run.stopped() {
            return run.output.fail();
        }
        let mut notes = run.output.take_place();
        let looked = if o.follows(step.operand) {
            Stat::follow(&step.src)
        } else {
            Stat::nofollow(&step.src)
        };
        let st = match looked {
            Ok(st) => st,
            Err(e) => return notes.errno(&format!("cannot stat {}", quote::always(&step.src)), &e),
        };
        if st.is_dir() && !o.recursive {
            let message =
                format!("-r not specified; omitting directory {}", quote::always(&step.src));
            return notes.error(&message);
        }
        if step.operand && self.named_before(&step, &st, &mut notes) {
            return;
        }
        let mut again = None;
        let way = match resume::look(run, &step.src, &st, &step.dst) {
            Past::Done => return self.done_before(step, st, notes),
            Past::Ours(there, how) => {
                again = Some(how);
                there.map_or(Way::Free { backup: None }, Way::There)
            }
            Past::Unknown if step.fresh => Way::Free { backup: None },
            Past::Unknown => {
                if self.keeps_links(&st, step.operand) && run.links.lock().met(st.id()) {
                    // How many names the destination has is known when all are made.
                    run.engine.drain();
                }
                existing::clear(run, &step.src, &st, &step.dst, step.operand, &mut notes)
            }
        };
        let (dst_st, backup) = match way {
            Way::Free { backup } => (None, backup),
            Way::There(dst_st) => (Some(dst_st), None),
            Way::Kept => return self.kept(step, st, notes),
            Way::Blocked => return notes.fail(),
        };
        if step.operand && !o.backup.on() && self.through_link(&step, &mut notes) {
            return;
        }
        if st.is_dir() {
            return self.directory(step, st, dst_st, again, notes);
        }
        let (new, kept) = again.map_or((dst_st.is_none(), false), |how| (how.new, how.kept));
        if !resume::begin(run, &st, &step.dst, new, kept) {
            return notes.fail();
        }
        step.parent.enter();
        let Step { src, dst, operand, parent, fresh, .. } = step;
        let mut item =
            Item { src, dst, st, dst_st, backup, operand, first: None, parent, notes, again };
        item.announce(run);
        let met = self.meet(&item);
        dispatch::send(run, item, met, fresh);
    }

    /// A file named twice is copied once.
    fn named_before(&self, step: &Step, st: &Stat, notes: &mut Notes) -> bool {
        let mut named = self.run.named.lock();
        let Some(named) = &mut *named else { return false };
        if !st.is_dir() && !self.run.options.backup.on() && named.seen(&step.src, st) {
            notes.warn(&format!(
                "warning: source file {} specified more than once",
                quote::always(&step.src)
            ));
            return true;
        }
        named.note(&step.src, st);
        false
    }

    /// Nothing is to be copied, but another name of the same file may be linked to what is there.
    fn kept(&mut self, step: Step, st: Stat, notes: Notes) {
        // Whether links are to be kept does not matter here, as with cp.
        if !self.run.options.update {
            return;
        }
        step.parent.enter();
        let Step { src, dst, operand, parent, .. } = step;
        let mut item = Item {
            src,
            dst,
            st,
            dst_st: Some(st),
            backup: None,
            operand,
            first: None,
            parent,
            notes,
            again: None,
        };
        match self.run.links.lock().meet(st.id()) {
            Met::First(first) => {
                item.first = Some(first);
                item.done_before(self.run);
            }
            Met::Again(first) => dispatch::send_kept(self.run, item, first),
        }
    }

    /// An earlier run has completed it; other names of the same file may still be to come.
    fn done_before(&mut self, step: Step, st: Stat, notes: Notes) {
        step.parent.enter();
        let links = self.keeps_links(&st, step.operand);
        let Step { src, dst, operand, parent, .. } = step;
        let (dst_st, backup, first, again) = (Some(st), None, None, None);
        let mut item = Item { src, dst, st, dst_st, backup, operand, first, parent, notes, again };
        if links && let Met::First(first) = self.run.links.lock().meet(st.id()) {
            item.first = Some(first);
        }
        self.run.counts.before();
        item.done_before(self.run);
    }

    /// An earlier operand has made a symbolic link here, and writing would follow it.
    fn through_link(&self, step: &Step, notes: &mut Notes) -> bool {
        if self.run.made.lock().is_none() {
            return false;
        }
        let Ok(st) = Stat::nofollow(&step.dst) else { return false };
        if !st.is_symlink() || !self.run.was_made(&step.dst, &st) {
            return false;
        }
        let (src, dst) = (quote::always(&step.src), quote::always(&step.dst));
        notes.error(&format!("will not copy {src} through just-created symlink {dst}"));
        true
    }

    fn keeps_links(&self, st: &Stat, operand: bool) -> bool {
        let o = &self.run.options;
        o.preserve.links
            && !o.hard_link
            && (st.nlink > 1
                || operand && o.follow(true) == Follow::Operands
                || o.follow(true) == Follow::Always)
    }

    fn meet(&self, item: &Item) -> Option<Met> {
        self.keeps_links(&item.st, item.operand).then(|| self.run.links.lock().meet(item.st.id()))
    }

    fn directory(
        &mut self,
        step: Step,
        st: Stat,
        dst_st: Option<Stat>,
        again: Option<Again>,
        mut notes: Notes,
    ) {
        self.directories = true;
        let before = self.before(&step, &st);
        if let Some(before) = &before
            && self.met(&step, before, &mut notes)
        {
            return;
        }
        // What is not made is not known, unless it was before.
        let forget = |walk: &Self| {
            if before.is_none() {
                walk.run.links.lock().forget_dir(st.id());
            }
        };
        if self.above.contains(&st.id()) {
            notes.error(&format!("cannot copy cyclic symbolic link {}", quote::always(&step.src)));
            return forget(self);
        }
        let new = again.map_or(dst_st.is_none(), |how| how.new);
        let fresh = dst_st.is_none();
        let omitted = if !new {
            0
        } else if self.run.options.preserve.ownership {
            st.perm() & 0o077
        } else {
            st.perm() & 0o022
        };
        let (dst_st, restore) = match dst_st {
            Some(dst_st) => match again {
                Some(how) => self.widened(&step, dst_st, how.perm),
                None => (dst_st, None),
            },
            None => match self.make_directory(&step, &st, omitted, &mut notes) {
                Some(made) => made,
                None => return forget(self),
            },
        };
        if step.operand {
            self.run.note_made(&step.dst);
        }
        drop(notes);
        self.run.counts.directory();
        let dir = Dir::new(Some(step.parent.clone()));
        let other_file_system =
            self.run.options.one_file_system && step.dev.is_some_and(|dev| dev != st.dev);
        if !other_file_system {
            self.contents(&step, &st, fresh, &dir);
        }
        let notes = self.run.output.take_place();
        let rest = Rest { src: step.src, dst: step.dst, st, dst_st, new, omitted, restore, notes };
        dir.traversed(self.run, Some(rest));
    }

    /// Where the directory was copied to before.
    fn before(&self, step: &Step, st: &Stat) -> Option<PathBuf> {
        let mut links = self.run.links.lock();
        if step.operand { links.meet_dir(st.id(), &step.dst) } else { links.dir(st.id()) }
    }

    /// Whether a directory that was copied to `before`, or is the copy itself, is left alone.
    fn met(&mut self, step: &Step, before: &Path, notes: &mut Notes) -> bool {
        let o = &self.run.options;
        if same::same_entry(&step.src, before) {
            notes.error(&format!(
                "cannot copy a directory, {}, into itself, {}",
                quote::always(&self.top_src),
                quote::always(&self.top_dst)
            ));
            self.into_itself = true;
            return true;
        }
        if same::same_entry(&step.dst, before) {
            notes.warn(&format!(
                "warning: source directory {} specified more than once",
                quote::always(&self.top_src)
            ));
            return true;
        }
        if o.follows(step.operand) {
            return false;
        }
        notes.error(&format!(
            "will not create hard link {} to directory {}",
            quote::always(&step.dst),
            quote::always(before)
        ));
        true
    }

    /// The directory as it was made, and the mode to come back to.
    fn make_directory(
        &mut self,
        step: &Step,
        st: &Stat,
        omitted: u32,
        notes: &mut Notes,
    ) -> Option<(Stat, Option<u32>)> {
        let shown = quote::always(&step.dst);
        if !resume::begin(self.run, st, &step.dst, true, false) {
            notes.fail();
            return None;
        }
        if let Err(e) =
            rustix::fs::mkdirat(CWD, &step.dst, Mode::from_raw_mode(st.perm() & !omitted))
        {
            notes.errno(&format!("cannot create directory {shown}"), &e.into());
            return None;
        }
        let dst_st = match Stat::nofollow(&step.dst) {
            Ok(dst_st) => dst_st,
            Err(e) => {
                notes.errno(&format!("cannot stat {shown}"), &e);
                return None;
            }
        };
        resume::made(self.run, &step.dst, &dst_st);
        let mut restore = None;
        if dst_st.mode & OWNER_ALL != OWNER_ALL {
            restore = Some(dst_st.perm());
            let wide = Mode::from_raw_mode(dst_st.perm() | OWNER_ALL);
            if let Err(e) = rustix::fs::chmodat(CWD, &step.dst, wide, rustix::fs::AtFlags::empty())
            {
                notes.errno(&format!("setting permissions for {shown}"), &e.into());
                return None;
            }
        }
        if !self.first_dir {
            self.first_dir = true;
            self.run.links.lock().meet_dir(dst_st.id(), &step.dst);
        }
        if self.run.options.verbose {
            notes.say(&arrow(&step.src, &step.dst, None));
        }
        Some((dst_st, restore))
    }

    /// A directory that an earlier run has made: as it was then, and open to be written to.
    fn widened(&mut self, step: &Step, dst_st: Stat, perm: u32) -> (Stat, Option<u32>) {
        let narrow = dst_st.mode & OWNER_ALL != OWNER_ALL;
        if narrow {
            let wide = Mode::from_raw_mode(dst_st.perm() | OWNER_ALL);
            // What cannot be done in it says so.
            let _ = rustix::fs::chmodat(CWD, &step.dst, wide, rustix::fs::AtFlags::empty());
        }
        if !self.first_dir {
            self.first_dir = true;
            self.run.links.lock().meet_dir(dst_st.id(), &step.dst);
        }
        let made = Stat { mode: dst_st.mode & !CHMOD_BITS | perm, ..dst_st };
        (made, (narrow || dst_st.perm() != perm).then_some(perm))
    }

    fn contents(&mut self, step: &Step, st: &Stat, new: bool, dir: &Arc<Dir>) {
        let names = match names(&step.src) {
            Ok(names) => names,
            Err(e) => {
                let mut notes = self.run.output.take_place();
                return notes.errno(&format!("cannot access {}", quote::always(&step.src)), &e);
            }
        };
        self.above.push(st.id());
        for name in names {
            self.visit(Step {
                src: step.src.join(&name),
                dst: step.dst.join(&name),
                fresh: new,
                operand: false,
                dev: Some(st.dev),
                parent: dir.clone(),
            });
            if self.into_itself {
                break;
            }
        }
        self.above.pop();
    }
}

/// The names in a directory by their inodes' numbers: about as they lie on the disk, and cp's order.
fn names(dir: &Path) -> std::io::Result<Vec<OsString>> {
    let mut found = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|e| (e.ino(), e.file_name())))
        .collect::<Result<Vec<_>, _>>()?;
    found.sort_by_key(|(ino, _)| *ino);
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

/// Panics of the engine's tasks are failures, told once.
pub fn tell_panics(run: &Run) {
    if run.engine.panics() > 0 {
        diag::error(
            "an internal error stopped the copy of some files; their destinations are not complete",
        );
        run.output.fail();
    }
}
