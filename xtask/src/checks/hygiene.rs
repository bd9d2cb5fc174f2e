//! Rules no compiler knows: no path of a developer's machine, nothing left for later, crates that
//! depend only downwards, promises that name their test.

use crate::cx::Cx;
use crate::plan::Check;
use crate::where_;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "hygiene",
    about: "no machine paths, nothing left for later, layering, promises that name their tests",
    needs: &[],
    limit: 60,
    weight: 1,
    slow: false,
    run,
};

/// Lines a source file should stay under.
const LINES: usize = 600;

/// What no file may say, in pieces so that this one does not.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/tmp/", "t-"), "a path of one machine"),
    (concat!("deb.deb", "ian.org"), "a package host"),
    (concat!("static.cra", "tes.io"), "a package host"),
    (concat!("index.cra", "tes.io"), "a package host"),
    (concat!("TO", "DO"), "work left for later"),
    (concat!("FIX", "ME"), "work left for later"),
    (concat!("XX", "X"), "work left for later"),
    (concat!("todo", "!("), "work left for later"),
    (concat!("unimpl", "emented!("), "work left for later"),
    (concat!("#[ign", "ore"), "a test that does not run"),
    (concat!("allow(dead", "_code)"), "dead code"),
    (concat!("<<<<", "<<< "), "a merge that was not finished"),
    (concat!(">>>>", ">>> "), "a merge that was not finished"),
];

/// The layers from the bottom up; a crate may use those listed with it.
const LAYERS: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("net", &["proto"]),
    ("store", &["proto"]),
    ("mds", &["proto", "net", "store"]),
    ("oss", &["proto", "net", "store"]),
    ("client", &["proto", "net"]),
    ("fuse", &[]),
    ("mount", &["proto", "net", "client", "fuse"]),
    ("lab", &["proto", "net", "store", "mds", "oss", "client", "fuse", "mount"]),
    ("pinstripe", &["proto", "net", "store", "mds", "oss", "client", "fuse", "mount", "lab"]),
];

fn run(cx: &Cx) -> Result<()> {
    let files = tracked(cx)?;
    cx.case("words", || words(&files));
    cx.case("layers", layers);
    cx.case("promises", || promises(&files));
    for (lines, file) in long_files(&files) {
        cx.note(format!("{} has {lines} lines (limit {LINES})", file.display()));
    }
    Ok(())
}

/// The files git knows, relative to the root; all files when there is no git.
fn tracked(cx: &Cx) -> Result<Vec<PathBuf>> {
    let out = cx
        .cmd("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .cwd(where_::root())
        .run();
    if let Ok(out) = out
        && out.status.success()
    {
        let names = out.text();
        return Ok(names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from).collect());
    }
    let mut files = Vec::new();
    walk(&where_::root(), &mut files)?;
    Ok(files)
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path.strip_prefix(where_::root())?.to_path_buf());
        }
    }
    Ok(())
}

fn words(files: &[PathBuf]) -> Result<()> {
    let mut found = Vec::new();
    for file in files.iter().filter(|f| !f.ends_with("Cargo.lock")) {
        let Ok(text) = std::fs::read_to_string(where_::root().join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            for (word, why) in FORBIDDEN {
                if line.contains(word) {
                    found.push(format!("{}:{}: {word}: {why}", file.display(), number + 1));
                }
            }
        }
    }
    if found.is_empty() { Ok(()) } else { bail!("{}", found.join("\n")) }
}

fn long_files(files: &[PathBuf]) -> Vec<(usize, PathBuf)> {
    let rust = files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs"));
    rust.filter_map(|file| {
        let text = std::fs::read_to_string(where_::root().join(file)).ok()?;
        let lines = text.lines().count();
        (lines > LINES).then(|| (lines, file.clone()))
    })
    .collect()
}

/// Crates depend only downwards. Tests of a crate may use what they like.
fn layers() -> Result<()> {
    let mut wrong = Vec::new();
    for (name, allowed) in LAYERS {
        let file = where_::root().join("crates").join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        for used in dependencies(&text) {
            let ours = LAYERS.iter().any(|(n, _)| *n == used);
            if ours && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{name} depends on {used}"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Names under `[dependencies]`, without our prefix.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && !line.starts_with('#') {
            let name = line.split(['=', '.']).next().unwrap_or_default().trim();
            let name = name.strip_prefix("pinstripe-").unwrap_or(name);
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Every test that docs/semantics.md names (`Test: \`name\`` or `Tests: \`a\`, \`b\``) is there:
/// a function of that name, a check, or a case of a check.
fn promises(files: &[PathBuf]) -> Result<()> {
    let file = where_::root().join("docs/semantics.md");
    let Ok(text) = std::fs::read_to_string(&file) else { bail!("docs/semantics.md is missing") };
    let known = known_tests(files);
    let items = items(&text);
    let named: Vec<_> = items.iter().flat_map(|i| i.lines()).flat_map(named_tests).collect();
    if named.is_empty() {
        bail!("docs/semantics.md names no test");
    }
    let untested: Vec<_> =
        items.iter().filter(|i| i.lines().flat_map(named_tests).count() == 0).cloned().collect();
    if !untested.is_empty() {
        bail!("promises without a test:\n{}", untested.join("\n"));
    }
    let absent: Vec<_> = named.iter().filter(|n| !known.contains(n.as_str())).collect();
    if absent.is_empty() { Ok(()) } else { bail!("no such test or check: {absent:?}") }
}

/// The items of the lists, each with the lines that belong to it.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("- ") {
            items.push(line.to_owned());
            inside = true;
        } else if inside && line.starts_with("  ") {
            if let Some(item) = items.last_mut() {
                item.push('\n');
                item.push_str(line);
            }
        } else {
            inside = false;
        }
    }
    items
}

fn named_tests(line: &str) -> Vec<String> {
    let lower = line.to_lowercase();
    let Some(at) = ["tests:", "test:"].iter().find_map(|w| lower.find(w)) else {
        return Vec::new();
    };
    let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
    line.get(at..).unwrap_or_default().split('`').skip(1).step_by(2).map(last).collect()
}

fn known_tests(files: &[PathBuf]) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = super::ALL.iter().map(|c| c.name.to_owned()).collect();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let Ok(text) = std::fs::read_to_string(where_::root().join(file)) else { continue };
        for line in text.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("fn ") {
                let end = rest.find(['(', '<']).unwrap_or(0);
                known.insert(rest[..end].to_owned());
            }
            if let Some((_, rest)) = line.split_once("cx.case(\"") {
                known.insert(rest.split('"').next().unwrap_or_default().to_owned());
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::{dependencies, items, named_tests};

    #[test]
    fn dependencies_are_those_of_the_plain_section() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nproto.workspace = true\n\
            pinstripe-net = { path = \"a\" }\n# store\n[dev-dependencies]\nlab = \"1\"\n";
        assert_eq!(dependencies(manifest), ["proto", "net"]);
    }

    #[test]
    fn promised_tests_are_found() {
        assert_eq!(named_tests("Renames are atomic. Tests: `a::b`, `c`"), ["b", "c"]);
        assert_eq!(items("# h\n- a\n  b\n\n- c\ntext\n  d"), ["- a\n  b", "- c"]);
        assert_eq!(named_tests("uses `x` without a word"), Vec::<String>::new());
    }
}
