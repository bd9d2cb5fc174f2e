//! `lfs path2fid` and `lfs fid2path`.

use proto::{Errno, Fid};

use super::whole::mount_of;
use super::{HELP, xattr};
use crate::cli::{Fid2PathArgs, Path2FidArgs};
use crate::control::ask_paths;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::status::Place;

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

/// Shows the paths of each FID, from the root of the file system.
pub fn fid2path(args: &Fid2PathArgs) -> Outcome<()> {
    let session = Place::of_mount(&mount_of(&args.mountpoint)?)?.open()?;
    for text in &args.fids {
        let fid: Fid =
            text.parse().map_err(|e| Failure::with_code(HELP, format!("lfs fid2path: {e}")))?;
        let paths = ask_paths(&session, fid).map_err(|e| {
            // As Lustre says it of a file that is gone.
            let e = if e == Errno::ESTALE { Errno::ENOENT } else { e };
            let text = format!("lfs fid2path: cannot find '{text}': {}", xattr::text(e));
            Failure::with_code(xattr::code(e), text)
        })?;
        for path in paths {
            let shown = String::from_utf8_lossy(&path);
            let relative = shown.trim_start_matches('/');
            out::line(if relative.is_empty() { "/" } else { relative });
        }
    }
    Ok(())
}
