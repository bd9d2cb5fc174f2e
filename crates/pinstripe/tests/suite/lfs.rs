//! `lfs` against what real Lustre 2.17 printed (tests/data/lfs-2.17.txt), identifiers masked.

use std::process::Command;

use crate::common::{Place, Said, can_mount, pin};

/// Commands of the recorded session that plain layouts have, in their order.
const SESSION: &[&str] = &[
    "lfs setstripe -c 2 -S 2M f_c2",
    "lfs getstripe f_c2",
    "lfs getstripe -v f_c2",
    "lfs getstripe -y f_c2",
    "lfs getstripe -c f_c2",
    "mkdir d_def",
    "lfs setstripe -c 3 -S 1M d_def",
    "lfs getstripe d_def",
    "lfs setstripe -c 9 f_toomany",
    "lfs getstripe -c f_toomany",
    "lfs setstripe -c 2 f_c2",
    "lfs path2fid f_c2",
];

/// Output and exit status that the recording has for a command.
fn recorded(command: &str) -> (String, i32) {
    let text = include_str!("data/lfs-2.17.txt");
    let (_, rest) = text.split_once(&format!("$ {command}\n")).unwrap();
    let (out, rest) = rest.split_once("-> ").unwrap();
    (out.to_string(), rest.lines().next().unwrap().parse().unwrap())
}

/// Identifiers and the choice of OSTs are each file system's own.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = match line {
            l if l.starts_with("\t ") => "\tOBJECT".to_string(),
            l if l.starts_with("lmm_stripe_offset:") => "lmm_stripe_offset: N".to_string(),
            l if l.contains("l_ost_idx:") => "      - l_ost_idx: N".to_string(),
            l if l.contains("0x") && !l.contains("lmm_magic") => {
                let at = l.find("0x").unwrap();
                let brackets = if l[..at].ends_with('[') { "]" } else { "" };
                format!("{}FID{brackets}", &l[..at])
            }
            l => l.to_string(),
        };
        out += &line;
        out.push('\n');
    }
    out
}

fn lfs(p: &Place, words: &str) -> Said {
    let mut c = pin();
    c.arg("lfs").args(words.split_whitespace()).current_dir(&p.mnt);
    Said::of(c.output().unwrap())
}

#[test]
fn output_and_exit_codes_are_lustres() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&[]).ok();
    for command in SESSION {
        let (expect, code) = recorded(command);
        let (out, err, found) = match command.split_once(' ').unwrap() {
            ("lfs", words) => {
                let said = lfs(&p, words);
                (said.out, said.err, said.code)
            }
            (program, word) => {
                let ran = Command::new(program).arg(word).current_dir(&p.mnt).status().unwrap();
                (String::new(), String::new(), ran.code().unwrap())
            }
        };
        assert_eq!((masked(&format!("{out}{err}")), found), (masked(&expect), code), "{command}");
    }
    std::fs::write(p.mnt.join("d_def/child"), vec![1; 4 << 20]).unwrap();
    for command in ["lfs getstripe d_def/child", "lfs getstripe -r -d d_def"] {
        let said = lfs(&p, command.strip_prefix("lfs ").unwrap());
        assert_eq!(masked(&said.out), masked(&recorded(command).0), "{command}");
    }
    p.down().ok();
}

#[test]
fn stripes_are_where_they_were_asked_for() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&[]).ok();
    lfs(&p, "setstripe -c 2 -S 64k -i 3 f").ok();
    std::fs::write(p.mnt.join("f"), b"few bytes").unwrap();
    assert_eq!(lfs(&p, "getstripe -i f").ok().trim(), "3");
    assert_eq!(lfs(&p, "getstripe -S f").ok().trim(), "65536");
    assert_eq!(std::fs::read(p.mnt.join("f")).unwrap(), b"few bytes");
    lfs(&p, "setstripe -c 1 -i 9 g").refused(22, &["'g'", "Invalid argument"]);
    assert!(!p.mnt.join("g").exists(), "a refused file does not stay");

    std::fs::create_dir_all(p.mnt.join("d/e")).unwrap();
    lfs(&p, "setstripe -c -1 d").ok();
    assert!(lfs(&p, "getstripe -d d").ok().starts_with("stripe_count:  -1 "));
    lfs(&p, "setstripe -d d").ok();
    assert!(lfs(&p, "getstripe -d d").ok().starts_with("stripe_count:  4 "));

    let fid = lfs(&p, "path2fid f").ok();
    std::fs::hard_link(p.mnt.join("f"), p.mnt.join("d/e/g")).unwrap();
    let paths = lfs(&p, &format!("fid2path . {}", fid.trim())).ok();
    let mut paths: Vec<&str> = paths.lines().collect();
    paths.sort_unstable();
    assert_eq!(paths, ["d/e/g", "f"]);
    lfs(&p, "fid2path . nonsense").refused(4, &["'nonsense' is not a FID"]);
    lfs(&p, "fid2path . [0x2deadbeef:0x1:0x0]").refused(2, &["No such file"]);

    let df = lfs(&p, "df .").ok();
    let names: Vec<&str> = df.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let expect = [
        "UUID",
        "pin-MDT0000_UUID",
        "pin-OST0000_UUID",
        "pin-OST0001_UUID",
        "pin-OST0002_UUID",
        "pin-OST0003_UUID",
        "filesystem_summary:",
    ];
    assert_eq!(names, expect);
    assert!(lfs(&p, "df -i .").ok().contains("IUse%"));
    assert!(lfs(&p, "df -h .").ok().contains("bytes"));
    p.down().ok();
}

/// JSON says what the text says, whose form real Lustre gave.
#[test]
fn json_says_what_the_text_says() {
    if !can_mount() {
        return;
    }
    let p = Place::new();
    p.up(&[]).ok();
    std::fs::create_dir(p.mnt.join("d")).unwrap();
    lfs(&p, "setstripe -c -1 d").ok();
    lfs(&p, "setstripe -c 2 -S 64k -i 3 d/f").ok();
    std::fs::write(p.mnt.join("d/f"), vec![1; 1 << 20]).unwrap();
    std::os::unix::fs::symlink("f", p.mnt.join("d/link")).unwrap();

    let json = |words: &str| -> serde_json::Value {
        serde_json::from_str(&lfs(&p, &format!("--json {words}")).ok()).unwrap()
    };
    let all = json("getstripe -r d");
    let [dir, file] = &all.as_array().unwrap()[..] else { panic!("{all}") };
    assert_eq!((&dir["path"], &dir["kind"]), (&"d".into(), &"directory".into()));
    assert_eq!((&dir["stripe_count"], &dir["objects"]), (&(-1).into(), &serde_json::Value::Null));
    assert_eq!((&file["path"], &file["kind"]), (&"d/f".into(), &"file".into()));
    for (letter, field) in [("c", "stripe_count"), ("S", "stripe_size"), ("i", "stripe_offset")] {
        let text = lfs(&p, &format!("getstripe -{letter} d/f")).ok();
        assert_eq!(file[field].as_i64(), text.trim().parse().ok(), "{field}: {file}");
    }
    let yaml = lfs(&p, "getstripe -y d/f").ok();
    let objects = file["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 2);
    for o in objects {
        let fid = o["l_fid"].as_str().unwrap().trim_matches(['[', ']']);
        let both = format!("- l_ost_idx: {}\n        l_fid:     {fid}\n", o["l_ost_idx"]);
        assert!(yaml.contains(&both), "{both} is not in {yaml}");
    }

    let fid = lfs(&p, "path2fid d/f").ok();
    assert_eq!(file["fid"], fid.trim());
    assert_eq!(json("path2fid d/f")[0], serde_json::json!({"path": "d/f", "fid": fid.trim()}));
    let paths = json(&format!("fid2path . {}", fid.trim()));
    assert_eq!(paths, serde_json::json!([{"fid": fid.trim(), "paths": ["d/f"]}]));

    // What cannot be shown is told in its place, and beside the list.
    let said = lfs(&p, "--json getstripe nothing d/f");
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("'nothing'"), "{}", said.err);
    let rest: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&rest[0]["path"], &rest[0]["code"]), (&"nothing".into(), &2.into()));
    assert_eq!(rest[1]["path"], "d/f");
    p.down().ok();
}
