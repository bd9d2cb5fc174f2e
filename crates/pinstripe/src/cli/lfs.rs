//! Grammar of `lfs`: options and their letters are Lustre's.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};

/// `pinstripe lfs`
#[derive(Clone, Debug, Subcommand)]
pub enum LfsCommand {
    /// Show how files are striped, and the defaults of directories
    Getstripe(GetstripeArgs),
    /// Make a file with a striping, or set a directory's default
    Setstripe(SetstripeArgs),
    /// Show space or inodes per target
    Df(DfArgs),
    /// Show the FID of files
    Path2fid(Path2FidArgs),
    /// Show the paths of a FID
    Fid2path(Fid2PathArgs),
}

/// `lfs getstripe`
#[derive(Clone, Debug, Default, Args)]
pub struct GetstripeArgs {
    /// Show the directory itself, not what is in it
    #[arg(short = 'd', long = "directory")]
    pub directory: bool,
    /// Show the stripe count
    #[arg(short = 'c', long = "stripe-count", visible_alias = "count")]
    pub count: bool,
    /// Show the stripe size, in bytes
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size")]
    pub size: bool,
    /// Show the index of the first OST
    #[arg(short = 'i', long = "stripe-index", visible_alias = "index")]
    pub index: bool,
    /// Show everything
    #[arg(short = 'v', long = "verbose")]
    pub verbose: bool,
    /// Show as YAML
    #[arg(short = 'y', long = "yaml")]
    pub yaml: bool,
    /// Go into directories
    #[arg(short = 'r', long = "recursive")]
    pub recursive: bool,
    /// Show objects only
    #[arg(short = 'q', long = "quiet")]
    pub quiet: bool,
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// `lfs setstripe`
#[derive(Clone, Debug, Default, Args)]
pub struct SetstripeArgs {
    /// Number of stripes; 0: the default, -1: all OSTs
    #[arg(short = 'c', long = "stripe-count", visible_alias = "count", value_name = "COUNT")]
    #[arg(allow_hyphen_values = true)]
    pub count: Option<String>,
    /// Bytes per stripe, with k, m or g; a multiple of 64k; 0: the default
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size", value_name = "SIZE")]
    #[arg(allow_hyphen_values = true)]
    pub size: Option<String>,
    /// Index of the first OST; -1: any
    #[arg(short = 'i', long = "stripe-index", visible_alias = "index", value_name = "INDEX")]
    #[arg(allow_hyphen_values = true)]
    pub index: Option<String>,
    /// Remove a directory's default
    #[arg(short = 'd', long = "delete", conflicts_with_all = ["count", "size", "index"])]
    pub delete: bool,
    /// Files to make, or directories whose default to set
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// `lfs df`
#[derive(Clone, Debug, Default, Args)]
#[command(disable_help_flag = true)]
pub struct DfArgs {
    /// Sizes with units
    #[arg(short = 'h', long = "human-readable")]
    pub human: bool,
    /// Inodes instead of space
    #[arg(short = 'i', long = "inodes")]
    pub inodes: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    pub help: Option<bool>,
    /// Any path in the file system [default: all that are mounted]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
}

/// `lfs path2fid`
#[derive(Clone, Debug, Default, Args)]
pub struct Path2FidArgs {
    /// Files
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// `lfs fid2path`
#[derive(Clone, Debug, Default, Args)]
pub struct Fid2PathArgs {
    /// Any path in the file system
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
    /// FIDs, such as [0x200000402:0x1:0x0]
    #[arg(value_name = "FID", required = true)]
    pub fids: Vec<String>,
}
