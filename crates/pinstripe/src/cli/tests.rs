use clap::{CommandFactory, Parser};

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_grammar_holds_together() {
    Cli::command().debug_assert();
}

/// The names other programs call are a contract.
#[test]
fn the_contract_parses() {
    for line in [
        "pinstripe up /m",
        "pinstripe up /m --data /d --mdts 1 --osts 4 --detach -o noatime,ro",
        "pinstripe down /m",
        "pinstripe umount /m",
        "pinstripe server --mgs --mdt /a --mdt /b --ost /c --listen 127.0.0.1:0 --mgs-addr h:1",
        "pinstripe mount 127.0.0.1:7777:/sub /m -o ro",
        "pinstripe status --json",
        "pinstripe status /m --json",
        "pinstripe fsck --data /d --data-too --json",
        "pinstripe lfs getstripe -c /m/f",
        "pinstripe lfs getstripe -r -d -v -y /m/f",
        "pinstripe lfs setstripe -c -1 -S 2M -i 0 /m/f",
        "pinstripe lfs setstripe -d /m/d",
        "pinstripe lfs df -h -i /m",
        "pinstripe lfs path2fid /m/f",
        "pinstripe lfs fid2path /m [0x200000402:0x1:0x0]",
        "pinstripe format --ost /o --index 3 --fsname pin --key /k",
        "pinstripe get_param mgs.*",
        "pinstripe set_param log.level=debug",
        "pinstripe version",
        "pinstripe --log-level debug up /m",
        "pinstripe up /m --log-level debug --config /c -vv",
    ] {
        parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

#[test]
fn nonsense_is_a_usage_error() {
    for line in [
        "pinstripe up",
        "pinstripe up /m --mdts 0",
        "pinstripe up /m --osts many",
        "pinstripe up /m --ostss 4",
        "pinstripe frob",
        "pinstripe format --index 65535 --ost /o",
        "pinstripe format --fsname a/b --ost /o",
        "pinstripe up /m --log-level loud",
        "pinstripe lfs setstripe -d -c 2 /m",
        "pinstripe fsck --data /d --mdt /e",
    ] {
        let e = parse(line).expect_err(line);
        assert_eq!(e.exit_code(), 2, "{line}");
    }
}

#[test]
fn every_option_has_a_help_text() {
    fn walk(c: &clap::Command, path: &str) {
        for a in c.get_arguments().filter(|a| !a.is_hide_set()) {
            assert!(a.get_help().is_some(), "{path} {} has no help", a.get_id());
        }
        for s in c.get_subcommands() {
            assert!(s.get_about().is_some(), "{path} {} has no help", s.get_name());
            walk(s, &format!("{path} {}", s.get_name()));
        }
    }
    walk(&Cli::command(), "pinstripe");
}
