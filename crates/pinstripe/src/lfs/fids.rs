//! `lfs path2fid` and `lfs fid2path`.

use proto::{Errno, Fid};
use serde_json::{Value, json};

use super::whole::mount_of;
use super::{HELP, xattr};
use crate::cli::{Common, Fid2PathArgs, Path2FidArgs};
use crate::control::ask_paths;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::status::Place;

/// Shows the FID of each path.
pub fn path2fid(args: &Path2FidArgs, common: &Common) -> Outcome<()> {
    let mut all = Vec::new();
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
            _ if common.json => {
                all.push(json!({ "path": path.to_string_lossy(), "fid": fid.to_string() }));
            }
            [_] => out::line(&fid.to_string()),
            _ => out::line(&format!("{shown}: {fid}")),
        }
    }
    show(all, common);
    Ok(())
}

fn show(all: Vec<Value>, common: &Common) {
    if common.json {
        out::json_pretty(&Value::from(all));
    }
}

/// Shows the paths of each FID, from the root of what is mounted.
pub fn fid2path(args: &Fid2PathArgs, common: &Common) -> Outcome<()> {
    let mut all = Vec::new();
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
        let mut shown = Vec::new();
        for path in paths {
            let path = String::from_utf8_lossy(&path);
            let relative = path.trim_start_matches('/');
            shown.push(if relative.is_empty() { "/".to_string() } else { relative.to_string() });
        }
        match common.json {
            true => all.push(json!({ "fid": fid.to_string(), "paths": shown })),
            false => shown.iter().for_each(|path| out::line(path)),
        }
    }
    show(all, common);
    Ok(())
}
