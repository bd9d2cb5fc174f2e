//! `lfs path2fid` and `lfs fid2path`.

use proto::Fid;

use super::xattr;
use crate::cli::{Fid2PathArgs, Path2FidArgs};
use crate::failure::{Failure, Outcome};
use crate::out;

/// Shows the FID of each path.
pub fn path2fid(args: &Path2FidArgs) -> Outcome<()> {
    for path in &args.paths {
        let shown = path.display();
        let value = xattr::get(path, xattr::FID).map_err(|e| {
            let text = format!("path2fid: can't get fid for {shown}: {}", xattr::text(e));
            Failure::with_code(xattr::code(e), format!("lfs {text}"))
        })?;
        let text = String::from_utf8_lossy(&value);
        let fid: Fid =
            text.trim_end_matches('\0').parse().map_err(|e| Failure::run(format!("{e}")))?;
        match args.paths.as_slice() {
            [_] => out::line(&fid.to_string()),
            _ => out::line(&format!("{shown}: {fid}")),
        }
    }
    Ok(())
}

pub fn fid2path(_args: &Fid2PathArgs) -> Outcome<()> {
    Ok(())
}
