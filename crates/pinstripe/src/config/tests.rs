use super::*;

#[test]
fn a_whole_file_is_read() {
    let c = Config::parse(
        "log_level = 'debug'\nkey = '/k'\n[up]\nosts = 8\noptions = ['noatime']\n\
         [server]\nmdt = ['/a', '/b']\nlisten = ['127.0.0.1:0']\n[mount]\nwait = 3\n",
    )
    .unwrap();
    assert_eq!(c.log_level.as_deref(), Some("debug"));
    assert_eq!((c.up.osts, c.up.options.len()), (Some(8), 1));
    assert_eq!(c.server.mdt, [PathBuf::from("/a"), "/b".into()]);
    assert_eq!(c.mount.wait, Some(3));
    assert_eq!(Config::parse("").unwrap(), Config::default());
}

#[test]
fn unknown_names_are_refused_by_name_with_a_hint() {
    for (text, name, hint) in [
        ("[up]\nmdst = 2\n", "'mdst' in [up]", "did you mean 'mdts'?"),
        ("[server]\nlisten-on = ['x']\n", "'listen-on' in [server]", "did you mean 'listen'?"),
        ("loglevel = 'info'\n", "'loglevel'", "did you mean 'log_level'?"),
        ("[mount]\nzzz = 1\n", "'zzz' in [mount]", "known are options, wait"),
        ("[servers]\nmgs = true\n", "'servers'", "did you mean 'server'?"),
    ] {
        let e = Config::parse(text).unwrap_err();
        assert!(e.contains(name) && e.contains(hint), "{e}");
    }
}

#[test]
fn wrong_types_and_broken_files_say_where() {
    for (text, part) in [
        ("[up]\nosts = 'many'\n", "line 2"),
        ("\n\n[up\n", "line 3"),
        ("up = 3\n", "line 1"),
        ("[up]\nosts = -1\n", "line 2"),
    ] {
        let e = Config::parse(text).unwrap_err();
        assert!(e.contains(part) && !e.contains('\n'), "{e}");
    }
}

/// The list that gives the hints is the one serde accepts.
#[test]
fn the_known_names_are_the_ones_of_the_structs() {
    for (table, names) in TABLES {
        let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let e = toml::from_str::<Config>(&format!("{head}no_such_name = 1\n")).unwrap_err();
        let accepted: Vec<&str> = e.message().split('`').skip(3).step_by(2).collect();
        assert_eq!(&accepted, names, "in [{table}]: {}", e.message());
    }
}
