//! `--help` and `--version`.

use crate::gnu::diag;

/// The version of GNU coreutils whose cp this one stands for.
const REFERENCE: &str = "9.7";

pub fn version() -> String {
    format!(
        "mcp (Pinstripe) {}\nStands for cp of GNU coreutils {REFERENCE}.\nLicence Apache-2.0.\n",
        env!("CARGO_PKG_VERSION")
    )
}

pub fn help() -> String {
    let name = String::from_utf8_lossy(diag::program());
    format!(
        "Usage: {name} [OPTION]... [-T] SOURCE DEST
  or:  {name} [OPTION]... SOURCE... DIRECTORY
  or:  {name} [OPTION]... -t DIRECTORY SOURCE...
Copy SOURCE to DEST, or multiple SOURCEs to DIRECTORY, with several threads.

{GNU}
Beyond cp:
{OWN}"
    )
}

const GNU: &str = "\
As cp, whose options mean what they mean there; what a long option needs, its short one needs, too.
  -a, --archive                as -dR --preserve=all
      --attributes-only        the attributes without the data
      --backup[=CONTROL]       keep what is overwritten: none, off, simple, never, existing, nil,
                               numbered, t (default: $VERSION_CONTROL, else existing)
  -b                           as --backup, without an argument
      --copy-contents          read special files when recursive
  -d                           as --no-dereference --preserve=links
      --debug                  say how each file is copied (implies -v)
  -f, --force                  remove a destination that cannot be opened, and try again
  -H                           follow symbolic links named as SOURCE
  -i, --interactive            ask before overwriting
      --keep-directory-symlink follow existing symbolic links to directories
  -l, --link                   hard links instead of copies
  -L, --dereference            follow all symbolic links in SOURCE
  -n, --no-clobber             overwrite nothing, silently
  -P, --no-dereference         follow no symbolic links in SOURCE
  -p                           as --preserve=mode,ownership,timestamps
      --preserve[=LIST]        keep mode, ownership, timestamps, links, context, xattr, all
      --no-preserve=LIST       do not keep them
      --parents                the whole name of SOURCE below DIRECTORY
  -R, -r, --recursive          directories with all that is in them
      --reflink[=WHEN]         share blocks: auto (default), always, never
      --remove-destination     remove an existing destination first
      --sparse=WHEN            holes: auto (default), always, never
      --strip-trailing-slashes remove slashes at the end of each SOURCE
  -s, --symbolic-link          symbolic links instead of copies
  -S, --suffix=SUFFIX          suffix of simple backups (default: $SIMPLE_BACKUP_SUFFIX, else ~)
  -t, --target-directory=DIR   copy all SOURCEs into DIR
  -T, --no-target-directory    DEST is a file, not a directory to copy into
      --update[=WHICH]         overwrite all, none, none-fail, older (default without it: all)
  -u                           as --update=older
  -v, --verbose                say what is done
  -x, --one-file-system        stay on the file system
  -Z, --context[=CTX]          security context (handed to the genuine cp where SELinux runs)
      --help, --version        print this, or the version, and end
";

const OWN: &str = super::own::HELP;
