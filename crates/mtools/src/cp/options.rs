//! What the command line asks for. The grammar is GNU cp's (current; 9.1 lacks `--debug`, the argument of
//! `--update` and `--keep-directory-symlink`), with options of our own beside it.

use super::backup::{self, Backup};
use super::own::{Own, OwnWord};
use super::words::{self, Word};
use crate::engine::{Reflink, Sparse};
use crate::gnu::getopt::{Getopt, keyword};
use crate::gnu::quote;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Which symbolic links of the source are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    Never,
    /// Those named on the command line (`-H`).
    Operands,
    Always,
}

/// What is done where the destination exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clobber {
    Always,
    /// `-i`
    Ask,
    /// `-n`, `--update=none`
    Skip,
    /// `--update=none-fail`
    Fail,
}

/// Attributes the copy takes from the source.
#[derive(Clone, Copy, Default, Debug)]
pub struct Preserve {
    pub mode: bool,
    pub ownership: bool,
    pub timestamps: bool,
    pub links: bool,
    pub xattr: bool,
    /// Failing to keep mode, owner or times is a failure of the copy.
    pub required: bool,
    /// The same for extended attributes.
    pub xattr_required: bool,
    /// `--no-preserve=mode`: new files get the default permissions.
    pub default_mode: bool,
}

/// A run of mcp, as asked for.
pub struct Options {
    follow: Follow,
    pub recursive: bool,
    /// Special files are read as if they were regular.
    pub as_regular: bool,
    pub clobber: Clobber,
    /// `-u`: only where the source is newer.
    pub update: bool,
    /// `-f`
    pub force: bool,
    pub remove_destination: bool,
    pub backup: Backup,
    pub hard_link: bool,
    pub symbolic_link: bool,
    pub preserve: Preserve,
    pub attributes_only: bool,
    /// `-a`: what a file system cannot keep is not worth a message.
    pub quiet_xattr: bool,
    pub sparse: Sparse,
    pub reflink: Reflink,
    pub one_file_system: bool,
    pub keep_directory_symlink: bool,
    pub verbose: bool,
    pub debug: bool,
    pub parents: bool,
    pub strip_slashes: bool,
    pub target: Option<OsString>,
    pub no_target: bool,
    pub operands: Vec<OsString>,
    pub own: Own,
}

/// What a command line comes to.
pub enum Asked {
    Run(Box<Options>),
    Help,
    Version,
    /// Only the genuine program can do it.
    Genuine(String),
    /// A message, and whether the hint to `--help` follows.
    Wrong(String, bool),
}

/// Warnings are printed by the caller, behind the program's name.
pub fn parse(args: &[OsString], warnings: &mut Vec<String>) -> Asked {
    let mut raw = Raw::default();
    let mut getopt = Getopt::new(&words::SPEC, args.iter().cloned()).own(super::own::LONGS);
    while let Some(next) = getopt.next() {
        let step = match next {
            Ok((word, value)) => {
                raw.note(word, value.as_ref());
                raw.take(word, value, warnings)
            }
            Err(message) => Err(Asked::Wrong(message, true)),
        };
        if let Err(end) = step {
            return end;
        }
    }
    let operands = getopt.operands();
    raw.finish(operands)
}

/// Options as they come, before they are seen together.
struct Raw {
    o: Options,
    follow: Option<Follow>,
    copy_contents: bool,
    make_backups: bool,
    control: Option<OsString>,
    suffix: Option<OsString>,
    context_required: bool,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            o: Options {
                follow: Follow::Always,
                recursive: false,
                as_regular: true,
                clobber: Clobber::Always,
                update: false,
                force: false,
                remove_destination: false,
                backup: Backup::none(),
                hard_link: false,
                symbolic_link: false,
                preserve: Preserve::default(),
                attributes_only: false,
                quiet_xattr: false,
                sparse: Sparse::Auto,
                reflink: Reflink::Auto,
                one_file_system: false,
                keep_directory_symlink: false,
                verbose: false,
                debug: false,
                parents: false,
                strip_slashes: false,
                target: None,
                no_target: false,
                operands: Vec::new(),
                own: Own::default(),
            },
            follow: None,
            copy_contents: false,
            make_backups: false,
            control: None,
            suffix: None,
            context_required: false,
        }
    }
}

impl Raw {
    /// Keeps what the journal knows the command by: not how fast it is to be done, or what is shown.
    fn note(&mut self, word: Word, value: Option<&OsString>) {
        let matters = match word {
            Word::Own(own) => matches!(own, OwnWord::Offset | OwnWord::Length),
            word => !matches!(word, Word::Verbose | Word::Debug),
        };
        if matters {
            self.o.own.said.push((format!("{word:?}"), value.cloned()));
        }
    }

    fn take(
        &mut self,
        word: Word,
        value: Option<OsString>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Asked> {
        let o = &mut self.o;
        match word {
            Word::Archive => {
                self.follow = Some(Follow::Never);
                let p = &mut o.preserve;
                (p.links, p.ownership, p.mode, p.timestamps, p.xattr, p.required) =
                    (true, true, true, true, true, true);
                o.quiet_xattr = true;
                o.recursive = true;
            }
            Word::AttributesOnly => o.attributes_only = true,
            Word::Backup => {
                self.make_backups = true;
                if value.is_some() {
                    self.control = value;
                }
            }
            Word::CopyContents => self.copy_contents = true,
            Word::Debug => (o.debug, o.verbose) = (true, true),
            Word::LinksKept => {
                o.preserve.links = true;
                self.follow = Some(Follow::Never);
            }
            Word::Force => o.force = true,
            Word::FollowOperands => self.follow = Some(Follow::Operands),
            Word::Dereference => self.follow = Some(Follow::Always),
            Word::NoDereference => self.follow = Some(Follow::Never),
            Word::Interactive => o.clobber = Clobber::Ask,
            Word::Link => o.hard_link = true,
            Word::NoClobber => o.clobber = Clobber::Skip,
            Word::Preserve => self.preserve(value.as_deref(), true)?,
            Word::NoPreserve => self.preserve(value.as_deref(), false)?,
            Word::KeepDirectorySymlink => o.keep_directory_symlink = true,
            Word::Parents => o.parents = true,
            Word::Recursive => o.recursive = true,
            Word::Reflink => {
                o.reflink = choose("--reflink", value.as_deref(), Reflink::Always, words::REFLINK)?
            }
            Word::RemoveDestination => o.remove_destination = true,
            Word::Sparse => {
                o.sparse = choose("--sparse", value.as_deref(), Sparse::Auto, words::SPARSE)?
            }
            Word::StripSlashes => o.strip_slashes = true,
            Word::SymbolicLink => o.symbolic_link = true,
            Word::Suffix => {
                self.make_backups = true;
                self.suffix = value;
            }
            Word::Target => {
                if o.target.is_some() {
                    return Err(Asked::Wrong(
                        "multiple target directories specified".into(),
                        false,
                    ));
                }
                o.target = value;
            }
            Word::NoTarget => o.no_target = true,
            Word::Update => self.update(value.as_deref())?,
            Word::Verbose => o.verbose = true,
            Word::OneFileSystem => o.one_file_system = true,
            Word::Context => {
                if selinux() {
                    return Err(Asked::Genuine("option -Z on a kernel with SELinux".into()));
                }
                if value.is_some() {
                    warnings.push(
                        "warning: ignoring --context; it requires an SELinux-enabled kernel".into(),
                    );
                }
            }
            Word::Help => return Err(Asked::Help),
            Word::Version => return Err(Asked::Version),
            Word::Own(word) => {
                return super::own::take(&mut o.own, word, value.as_deref())
                    .map_err(|e| Asked::Wrong(e, true));
            }
        }
        Ok(())
    }

    fn update(&mut self, value: Option<&OsStr>) -> Result<(), Asked> {
        let (update, clobber) = choose("--update", value, (true, Clobber::Always), words::UPDATE)?;
        self.o.update = update;
        if clobber != Clobber::Always || matches!(self.o.clobber, Clobber::Fail) {
            self.o.clobber = clobber;
        }
        Ok(())
    }

    fn preserve(&mut self, list: Option<&OsStr>, on: bool) -> Result<(), Asked> {
        let option = if on { "--preserve" } else { "--no-preserve" };
        let p = &mut self.o.preserve;
        let Some(list) = list else {
            (p.mode, p.ownership, p.timestamps, p.required) = (true, true, true, true);
            return Ok(());
        };
        for word in list.as_bytes().split(|b| *b == b',') {
            let what = choose(
                option,
                Some(OsStr::from_bytes(word)),
                words::Attribute::All,
                words::ATTRIBUTES,
            )?;
            let all = what == words::Attribute::All;
            let is = |one| all || what == one;
            if is(words::Attribute::Mode) {
                (p.mode, p.default_mode) = (on, !on);
            }
            if is(words::Attribute::Timestamps) {
                p.timestamps = on;
            }
            if is(words::Attribute::Ownership) {
                p.ownership = on;
            }
            if is(words::Attribute::Links) {
                p.links = on;
            }
            if is(words::Attribute::Xattr) {
                p.xattr = on;
                p.xattr_required = on && !all || all && p.xattr_required;
            }
            if what == words::Attribute::Context {
                self.context_required = on;
            }
        }
        if on {
            p.required = true;
        }
        Ok(())
    }

    fn finish(mut self, operands: Vec<OsString>) -> Asked {
        let wrong = |message: &str| Asked::Wrong(message.into(), true);
        let o = &mut self.o;
        if o.hard_link && o.symbolic_link {
            return wrong("cannot make both hard and symbolic links");
        }
        if let Some(message) = super::own::contradiction(&o.own) {
            return wrong(&message);
        }
        if o.clobber == Clobber::Skip {
            o.update = false;
        }
        if self.make_backups && o.clobber == Clobber::Skip {
            return wrong("options --backup and --no-clobber are mutually exclusive");
        }
        if o.reflink == Reflink::Always && o.sparse != Sparse::Auto {
            return wrong("--reflink can be used only with --sparse=auto");
        }
        if self.make_backups {
            o.backup = match backup::Backup::asked(self.control.as_deref(), self.suffix.as_deref())
            {
                Ok(backup) => backup,
                Err(e) => return Asked::Wrong(e, true),
            };
        }
        if self.context_required && !selinux() {
            let message = "cannot preserve security context without an SELinux-enabled kernel";
            return Asked::Wrong(message.into(), false);
        }
        if selinux() && (self.context_required || o.quiet_xattr) {
            return Asked::Genuine("keeping SELinux contexts".into());
        }
        o.follow = match self.follow {
            Some(follow) => follow,
            None if o.recursive && !o.hard_link => Follow::Never,
            None => Follow::Always,
        };
        if o.recursive {
            o.as_regular = self.copy_contents;
        }
        o.operands = operands;
        Asked::Run(Box::new(self.o))
    }
}

/// One of `words`, which may be abbreviated; `none` where no value was given.
fn choose<T: Copy + PartialEq>(
    option: &str,
    value: Option<&OsStr>,
    none: T,
    words: &[(&'static str, T)],
) -> Result<T, Asked> {
    match value {
        None => Ok(none),
        Some(value) => keyword(option, value, words).map_err(|e| Asked::Wrong(e, true)),
    }
}

fn selinux() -> bool {
    std::fs::exists("/sys/fs/selinux/enforce").unwrap_or(false)
}

impl Options {
    /// `-H` means the operands alone: what lies in them is not followed.
    pub fn follow(&self, operand: bool) -> Follow {
        if self.follow == Follow::Operands && !operand { Follow::Never } else { self.follow }
    }

    /// The source is looked at behind symbolic links.
    pub fn follows(&self, operand: bool) -> bool {
        self.follow(operand) != Follow::Never
    }

    /// Why the destination was not copied, where `--verbose` shows it.
    pub fn skipped(&self, dst: &std::path::Path) -> Option<String> {
        self.debug.then(|| format!("skipped {}", quote::always(dst)))
    }
}
