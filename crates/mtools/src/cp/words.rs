//! The words of the command line: GNU cp's options and ours, and the values they take.

use super::options::Clobber;
use super::own::OwnWord;
use crate::engine::{Reflink, Sparse};
use crate::gnu::getopt::{Has, Spec};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    Archive,
    AttributesOnly,
    Backup,
    Context,
    CopyContents,
    Debug,
    Dereference,
    FollowOperands,
    Force,
    Help,
    Interactive,
    KeepDirectorySymlink,
    Link,
    LinksKept,
    NoClobber,
    NoDereference,
    NoPreserve,
    NoTarget,
    OneFileSystem,
    Parents,
    Preserve,
    Recursive,
    Reflink,
    RemoveDestination,
    Sparse,
    StripSlashes,
    Suffix,
    SymbolicLink,
    Target,
    Update,
    Verbose,
    Version,
    Own(OwnWord),
}

pub static SPEC: Spec<Word> = Spec {
    shorts: &[
        (b'a', Has::No, Word::Archive),
        (b'b', Has::No, Word::Backup),
        (b'd', Has::No, Word::LinksKept),
        (b'f', Has::No, Word::Force),
        (b'H', Has::No, Word::FollowOperands),
        (b'i', Has::No, Word::Interactive),
        (b'l', Has::No, Word::Link),
        (b'L', Has::No, Word::Dereference),
        (b'n', Has::No, Word::NoClobber),
        (b'p', Has::No, Word::Preserve),
        (b'P', Has::No, Word::NoDereference),
        (b'r', Has::No, Word::Recursive),
        (b'R', Has::No, Word::Recursive),
        (b's', Has::No, Word::SymbolicLink),
        (b'S', Has::Required, Word::Suffix),
        (b't', Has::Required, Word::Target),
        (b'T', Has::No, Word::NoTarget),
        (b'u', Has::No, Word::Update),
        (b'v', Has::No, Word::Verbose),
        (b'x', Has::No, Word::OneFileSystem),
        (b'Z', Has::No, Word::Context),
    ],
    longs: &[
        ("archive", Has::No, Word::Archive),
        ("attributes-only", Has::No, Word::AttributesOnly),
        ("backup", Has::Optional, Word::Backup),
        ("copy-contents", Has::No, Word::CopyContents),
        ("debug", Has::No, Word::Debug),
        ("dereference", Has::No, Word::Dereference),
        ("force", Has::No, Word::Force),
        ("interactive", Has::No, Word::Interactive),
        ("link", Has::No, Word::Link),
        ("no-clobber", Has::No, Word::NoClobber),
        ("no-dereference", Has::No, Word::NoDereference),
        ("no-preserve", Has::Required, Word::NoPreserve),
        ("no-target-directory", Has::No, Word::NoTarget),
        ("one-file-system", Has::No, Word::OneFileSystem),
        ("parents", Has::No, Word::Parents),
        ("path", Has::No, Word::Parents),
        ("preserve", Has::Optional, Word::Preserve),
        ("recursive", Has::No, Word::Recursive),
        ("remove-destination", Has::No, Word::RemoveDestination),
        ("sparse", Has::Required, Word::Sparse),
        ("reflink", Has::Optional, Word::Reflink),
        ("strip-trailing-slashes", Has::No, Word::StripSlashes),
        ("suffix", Has::Required, Word::Suffix),
        ("symbolic-link", Has::No, Word::SymbolicLink),
        ("target-directory", Has::Required, Word::Target),
        ("update", Has::Optional, Word::Update),
        ("verbose", Has::No, Word::Verbose),
        ("keep-directory-symlink", Has::No, Word::KeepDirectorySymlink),
        ("context", Has::Optional, Word::Context),
        ("help", Has::No, Word::Help),
        ("version", Has::No, Word::Version),
    ],
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute {
    Mode,
    Timestamps,
    Ownership,
    Links,
    Context,
    Xattr,
    All,
}

pub static ATTRIBUTES: &[(&str, Attribute)] = &[
    ("mode", Attribute::Mode),
    ("timestamps", Attribute::Timestamps),
    ("ownership", Attribute::Ownership),
    ("links", Attribute::Links),
    ("context", Attribute::Context),
    ("xattr", Attribute::Xattr),
    ("all", Attribute::All),
];

pub static SPARSE: &[(&str, Sparse)] =
    &[("never", Sparse::Never), ("auto", Sparse::Auto), ("always", Sparse::Always)];

pub static REFLINK: &[(&str, Reflink)] =
    &[("auto", Reflink::Auto), ("always", Reflink::Always), ("never", Reflink::Never)];

/// Only where newer, and what is done where the destination exists.
pub static UPDATE: &[(&str, (bool, Clobber))] = &[
    ("all", (false, Clobber::Always)),
    ("none", (false, Clobber::Skip)),
    ("none-fail", (false, Clobber::Fail)),
    ("older", (true, Clobber::Always)),
];
