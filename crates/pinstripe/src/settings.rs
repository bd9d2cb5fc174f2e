//! What a command shall do: flags, and where they say nothing, the configuration file.

use crate::cli::CACHE_MB;
use crate::cli::{MountArgs, ServerArgs, UpArgs};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::label::check_fsname;

fn either<T: Clone>(flag: &mut Option<T>, file: &Option<T>) {
    if flag.is_none() {
        flag.clone_from(file);
    }
}

fn list<T: Clone>(flag: &mut Vec<T>, file: &[T]) {
    if flag.is_empty() {
        flag.extend_from_slice(file);
    }
}

fn switch(flag: &mut bool, file: Option<bool>) {
    *flag |= file.unwrap_or(false);
}

fn ranged(name: &str, value: Option<u32>, range: std::ops::RangeInclusive<u32>) -> Outcome<()> {
    match value {
        Some(n) if !range.contains(&n) => Err(Failure::usage(format!(
            "{name} = {n} is not in {}..{}",
            range.start(),
            range.end()
        ))),
        _ => Ok(()),
    }
}

fn cached(mib: Option<u32>) -> Outcome<()> {
    let (least, most) = (*CACHE_MB.start() as u32, *CACHE_MB.end() as u32);
    ranged("mdt_cache_mb", mib, least..=most)
}

fn named(name: Option<&String>) -> Outcome<()> {
    let bad = |n: &String| check_fsname(n).err().map(|e| format!("fsname = '{n}': {e}"));
    name.and_then(bad).map_or(Ok(()), |e| Err(Failure::usage(e)))
}

/// Fills `up`'s gaps.
pub fn up(mut args: UpArgs, config: &Config) -> Outcome<UpArgs> {
    let file = &config.up;
    either(&mut args.data, &file.data);
    either(&mut args.mdts, &file.mdts);
    either(&mut args.osts, &file.osts);
    either(&mut args.mdt_cache_mb, &file.mdt_cache_mb);
    either(&mut args.fsname, &file.fsname);
    list(&mut args.options, &file.options);
    list(&mut args.listen, &file.listen);
    switch(&mut args.detach, file.detach);
    switch(&mut args.allow_remote, file.allow_remote);
    ranged("mdts", args.mdts, 1..=1024)?;
    ranged("osts", args.osts, 1..=1024)?;
    cached(args.mdt_cache_mb)?;
    named(args.fsname.as_ref())?;
    Ok(args)
}

/// Fills `server`'s gaps.
pub fn server(mut args: ServerArgs, config: &Config) -> Outcome<ServerArgs> {
    let file = &config.server;
    switch(&mut args.mgs, file.mgs);
    either(&mut args.mgs_dir, &file.mgs_dir);
    list(&mut args.mdt, &file.mdt);
    either(&mut args.mdt_cache_mb, &file.mdt_cache_mb);
    list(&mut args.ost, &file.ost);
    list(&mut args.listen, &file.listen);
    switch(&mut args.allow_remote, file.allow_remote);
    either(&mut args.advertise, &file.advertise);
    either(&mut args.mgs_addr, &file.mgs_addr);
    either(&mut args.mgs_wait, &file.mgs_wait);
    either(&mut args.key.key, &config.key);
    switch(&mut args.format, file.format);
    either(&mut args.index, &file.index);
    either(&mut args.fsname, &file.fsname);
    cached(args.mdt_cache_mb)?;
    ranged("index", args.index, 0..=crate::label::INDEX_MAX)?;
    named(args.fsname.as_ref())?;
    Ok(args)
}

/// Fills `mount`'s gaps.
pub fn mount(mut args: MountArgs, config: &Config) -> MountArgs {
    list(&mut args.options, &config.mount.options);
    either(&mut args.wait, &config.mount.wait);
    either(&mut args.key.key, &config.key);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let text = "[up]\nosts = 8\nmdts = 2\noptions = ['ro']\ndetach = true\n";
        let config = Config::parse(text).unwrap();
        let args = UpArgs { osts: Some(3), ..UpArgs::default() };
        let up = up(args, &config).unwrap();
        assert_eq!((up.osts, up.mdts, up.detach), (Some(3), Some(2), true));
        assert_eq!(up.options, ["ro"]);
    }

    #[test]
    fn values_of_the_file_have_the_flags_ranges() {
        for text in
            ["[up]\nosts = 0\n", "[up]\nmdt_cache_mb = 15\n", "[up]\nfsname = 'much too long'\n"]
        {
            let config = Config::parse(text).unwrap();
            assert_eq!(up(UpArgs::default(), &config).unwrap_err().code, 2, "{text}");
        }
        let config = Config::parse("[server]\nindex = 65535\n").unwrap();
        let e = server(ServerArgs::default(), &config).unwrap_err();
        assert!(e.text.contains("index = 65535"), "{e}");
    }
}
