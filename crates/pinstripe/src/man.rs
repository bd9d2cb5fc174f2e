//! Manual pages, made from the grammar of the command line.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::{Cli, ManArgs};
use crate::failure::{Doing, Outcome};
use crate::helper::HelperArgs;
use crate::out;

/// Prints pinstripe(1), or writes all pages into a directory.
pub fn run(args: &ManArgs) -> Outcome<()> {
    let mut root = Cli::command();
    root.build();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(root).render(&mut page).doing(|| "pinstripe(1)".into())?;
        out::text(&String::from_utf8_lossy(&page));
        return Ok(());
    };
    std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))?;
    let cannot = || format!("cannot write to {}", dir.display());
    clap_mangen::generate_to(root, dir).doing(cannot)?;
    let mut page = Vec::new();
    let helper = Man::new(HelperArgs::command()).section("8");
    helper.render(&mut page).doing(|| "mount.pinstripe(8)".into())?;
    std::fs::write(dir.join("mount.pinstripe.8"), page).doing(cannot)
}
