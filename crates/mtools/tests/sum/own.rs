//! `msum`'s own options. What is computed is compared with what the genuine programs say of the parts.

use crate::common::{Place, Seen, args, see};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

const CHUNK: usize = 65_536;

fn place() -> Place {
    let place = Place::new(env!("CARGO_BIN_EXE_msum"));
    let long: Vec<u8> =
        (0..6_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    place.file("long", &long);
    place.file("even", &long[..3 * CHUNK]);
    place.file("short", b"a");
    place.file("empty", b"");
    place
}

fn run(place: &Place, line: &str, stdin: &[u8]) -> Seen {
    let mut words = line.split(' ');
    let name = words.next().unwrap();
    see(place.ours(name, &args(&words.collect::<Vec<_>>())), stdin)
}

/// What the genuine program says of these bytes.
fn digest(place: &Place, bytes: &[u8]) -> Vec<u8> {
    let seen = see(place.genuine("sha256sum", &[]), bytes);
    let hex = String::from_utf8(seen.stdout).unwrap();
    (0..32).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// The tree hash as docs/mtools.md defines it.
fn tree(place: &Place, bytes: &[u8]) -> String {
    let mut root = b"MSUM-TREE\n".to_vec();
    for chunk in bytes.chunks(CHUNK) {
        root.extend(digest(place, chunk));
    }
    root.extend((bytes.len() as u64).to_le_bytes());
    root.extend((CHUNK as u64).to_le_bytes());
    digest(place, &root).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn tree_hashes_are_what_the_document_says() {
    let place = place();
    let mut expected = String::new();
    for name in ["long", "even", "short", "empty"] {
        let bytes = std::fs::read(place.path().join(name)).unwrap();
        expected += &format!("MSUM-TREE-SHA256-{CHUNK} ({name}) = {}\n", tree(&place, &bytes));
    }
    for options in [
        "",
        "--threads=1",
        "--threads=7 --buffer-size=4K",
        "--direct-read",
        "--no-double-buffer -b",
    ] {
        let line = format!("sha256sum --split-size=64K {options} long even short empty");
        let seen = run(&place, &line.replace("  ", " "), b"");
        assert_eq!((seen.code, seen.stderr.as_slice()), (Some(0), &b""[..]), "{options}");
        assert_eq!(String::from_utf8(seen.stdout).unwrap(), expected, "{options}");
    }
    let bytes = std::fs::read(place.path().join("long")).unwrap();
    let piped = run(&place, "msum --split-size=64K", &bytes);
    let line = format!("MSUM-TREE-SHA256-{CHUNK} (-) = {}\n", tree(&place, &bytes));
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), line);
}

/// `mcp --check-tree` names what it has copied, and msum computes the same of either side.
#[test]
fn tree_hashes_of_copies_are_those_of_msum() {
    let place = place();
    let odd = std::ffi::OsStr::from_bytes(b"n\\a\n\xff");
    place.file(odd, b"odd");
    let names = ["long", "even", "short", "empty"];
    for options in ["--threads=1", "--threads=5 --verify", "--verify"] {
        let _ = std::fs::remove_dir_all(place.path().join("to"));
        std::fs::create_dir(place.path().join("to")).unwrap();
        let line = format!("--print-hash --check-tree --split-size=64K {options}");
        let mut words = args(&line.split(' ').collect::<Vec<_>>());
        words.extend(args(&names));
        words.extend([odd.into(), "to".into()]);
        let seen = mcp(&place, &words);
        assert_eq!((seen.code, seen.stderr.as_slice()), (Some(0), &b""[..]), "{options}");
        let mut expected = String::new();
        for name in names {
            let bytes = std::fs::read(place.path().join(name)).unwrap();
            let tree = tree(&place, &bytes);
            expected += &format!("MSUM-TREE-SHA256-{CHUNK} (to/{name}) = {tree}\n");
        }
        let told = seen.stdout.strip_prefix(expected.as_bytes());
        let last = std::path::Path::new("to").join(odd);
        let last = see(place.ours("msum", &["--split-size=64K".into(), last.into()]), b"");
        assert_eq!(told, Some(&last.stdout[..]), "{}", seen.stdout.escape_ascii());
        place.file("list", &seen.stdout);
        let checked = run(&place, "msum --check --check-tree --quiet list", b"");
        assert_eq!(checked, Seen { code: Some(0), stdout: vec![], stderr: vec![] });
        let mut bytes = std::fs::read(place.path().join("to/long")).unwrap();
        bytes[4_000_000] ^= 1;
        place.file("to/long", &bytes);
        let checked = run(&place, "msum --check --quiet list", b"");
        assert_eq!((checked.code, checked.stdout), (Some(1), b"to/long: FAILED\n".to_vec()));
    }
}

fn mcp(place: &Place, words: &[std::ffi::OsString]) -> Seen {
    let mut mcp = std::process::Command::new(env!("CARGO_BIN_EXE_mcp"));
    mcp.args(words).current_dir(place.path()).env("LC_ALL", "C").env("PINSTRIPE_NO_FALLBACK", "1");
    see(mcp, b"")
}

#[test]
fn the_default_chunk_is_one_for_mcp_and_msum() {
    let place = place();
    let tree = run(&place, "msum --check-tree long", b"").stdout;
    assert!(tree.starts_with(b"MSUM-TREE-SHA256-33554432 (long) = "), "{}", tree.escape_ascii());
    assert_eq!(run(&place, "msum --check-tree --no-check-tree short", b"").stdout.len(), 64 + 8);
    let seen = mcp(&place, &args(&["--print-hash", "--check-tree", "long", "copy"]));
    assert_eq!(
        seen.stdout,
        String::from_utf8(tree).unwrap().replace("(long)", "(copy)").as_bytes()
    );
    for wrong in [
        "--check-tree",
        "--print-hash --check-tree --length=1",
        "--verify --check-tree --hash-type=crc",
    ] {
        let words: Vec<_> = wrong.split(' ').chain(["long", "never"]).collect();
        let seen = mcp(&place, &args(&words));
        assert_eq!(seen.code, Some(1));
        assert!(String::from_utf8_lossy(&seen.stderr).contains("--check-tree"), "{seen:?}");
        assert!(!place.path().join("never").exists(), "{wrong}");
    }
}

#[test]
fn tree_hashes_are_checked_and_pass_for_no_others() {
    let place = place();
    for (name, words) in [
        ("sha256sum", ""),
        ("b2sum", "-l 128 "),
        ("cksum", "-a sha512 "),
        ("cksum", "-a sm3 --base64 "),
    ] {
        let list =
            run(&place, &format!("{name} {words}--split-size=64K long even short empty"), b"")
                .stdout;
        assert_eq!(list.split(|b| *b == b'\n').count(), 5, "{}", list.escape_ascii());
        place.file("list", &list);
        let genuine = see(place.genuine(name, &args(&["-c", "list"])), b"");
        assert_eq!(genuine.code, Some(1));
        assert_eq!(genuine.stdout, b"", "a genuine program takes a tree hash for its own");
        let ours = run(&place, &format!("{name} -c list"), b"");
        assert_eq!(
            (ours.code, ours.stdout),
            (Some(0), b"long: OK\neven: OK\nshort: OK\nempty: OK\n".to_vec())
        );
    }
    let list = run(&place, "md5sum --split-size=64K long short", b"").stdout;
    place.file("list", &list);
    let mut bytes = std::fs::read(place.path().join("long")).unwrap();
    bytes[5_000_000] ^= 1;
    place.file("long", &bytes);
    let seen = run(&place, "md5sum -c list", b"");
    assert_eq!((seen.code, seen.stdout), (Some(1), b"long: FAILED\nshort: OK\n".to_vec()));
    assert_eq!(run(&place, "sha1sum -c list", b"").stdout, b"");
}

#[test]
fn parts_of_files() {
    let place = place();
    let bytes = std::fs::read(place.path().join("long")).unwrap();
    for (offset, length) in [
        (0, 0),
        (0, 1),
        (1, 4096),
        (4096, 4096),
        (5_999_999, 100),
        (7_000_000, 5),
        (12_345, 5_900_000),
    ] {
        let end = (offset + length).min(bytes.len());
        let part = &bytes[offset.min(end)..end];
        let expected = see(place.genuine("sha1sum", &[]), part).stdout;
        let range = format!("--offset={offset} --range-length={length}");
        for line in [
            format!("sha1sum {range}"),
            format!("sha1sum --offset={offset} --length={length}"),
            format!("msum --hash-type=sha1 {range} --no-double-buffer"),
            format!("cksum -a sha1 --untagged {range}"),
        ] {
            assert_eq!(run(&place, &line, &bytes).stdout, expected, "{line}");
            let named = String::from_utf8(expected.clone()).unwrap().replace("  -", "  long");
            for direct in
                ["--direct-read", "--fadvise-read", "--no-fadvise-read", "--buffer-size=8K"]
            {
                let seen = run(&place, &format!("{line} {direct} long"), b"");
                assert_eq!(String::from_utf8(seen.stdout).unwrap(), named, "{line} {direct}");
            }
        }
    }
}

#[test]
fn names_from_standard_input() {
    let place = place();
    place.file("n\nl", b"x");
    let expected = see(place.genuine("sha256sum", &args(&["short", "long", "none", "empty"])), b"");
    assert_eq!(run(&place, "sha256sum --read-stdin", b"short\nlong\nnone\nempty"), expected);
    let expected = see(place.genuine("md5sum", &args(&["-z", "n\nl", "short"])), b"");
    assert_eq!(run(&place, "md5sum --read-stdin -z", b"n\nl\0short\0"), expected);
    assert_eq!(run(&place, "md5sum --read-stdin", b"").code, Some(0));
}

#[test]
fn msum_is_sha256_unless_told() {
    let place = place();
    for (word, name) in
        [("", "sha256sum"), ("--hash-type=md5 ", "md5sum"), ("--hash-type=blake2b ", "b2sum")]
    {
        let expected = see(place.genuine(name, &args(&["short", "long"])), b"");
        assert_eq!(run(&place, &format!("msum {word}short long"), b""), expected);
    }
    let expected = see(place.genuine("b2sum", &args(&["-l", "64", "short"])), b"");
    assert_eq!(run(&place, "msum --hash-type=blake2b --digest-length=64 short", b""), expected);
    let expected = see(place.genuine("cksum", &args(&["short"])), b"");
    assert_eq!(run(&place, "msum --hash-type=crc short", b""), expected);
}

#[test]
fn wrong_values_name_option_value_and_remedy() {
    let place = place();
    for (line, words) in [
        ("--threads=0 short", ["--threads", "'0'", "1 to 256"]),
        ("--threads=x short", ["--threads", "'x'", "1 to 256"]),
        ("--buffer-size=1 short", ["--buffer-size", "'1'", "4K"]),
        ("--buffer-size=1E short", ["--buffer-size", "'1E'", "such as 1M"]),
        ("--split-size=10 short", ["--split-size", "'10'", "such as 64M"]),
        ("--offset=-1 short", ["--offset", "'-1'", "4096"]),
        ("--length=1.5 short", ["--length", "'1.5'", "4096"]),
        ("--hash-type=sha short", ["--hash-type", "'sha'", "sha256"]),
        ("--hash-type=crc --split-size=1M short", ["--split-size", "CRC", "sha256"]),
        ("--split-size=1M -c short", ["--split-size", "--check", "leave it out"]),
        ("--split-size=1M --offset=5 short", ["--split-size", "--offset", "leave"]),
        ("--read-stdin short", ["--read-stdin", "operands", "leave"]),
    ] {
        let seen = run(&place, &format!("msum {line}"), b"");
        let told = String::from_utf8(seen.stderr).unwrap();
        assert_eq!(seen.code, Some(1), "{line}");
        assert!(words.iter().all(|word| told.contains(word)), "{line}: {told}");
        assert_eq!(seen.stdout, b"");
    }
}

#[test]
fn statistics_do_not_touch_standard_output() {
    let place = place();
    let plain = run(&place, "sha256sum long short", b"");
    let seen = run(&place, "sha256sum --json --progress long short", b"");
    assert_eq!(seen.stdout, plain.stdout);
    let stats: serde_json::Value = serde_json::from_slice(&seen.stderr).unwrap();
    assert_eq!((stats["files"].as_u64(), stats["bytes"].as_u64()), (Some(2), Some(6_000_002)));
    assert_eq!(stats["ok"].as_bool(), Some(true));
    let seen = run(&place, "sha256sum --print-stats long short", b"");
    assert!(String::from_utf8(seen.stderr).unwrap().contains("2 files, 6000002 bytes"));
    let seen =
        run(&place, "sha256sum --json --no-json --print-stats --no-print-stats long short", b"");
    assert_eq!(seen, plain);
}

/// Who sends a line through a pipe may wait for its answer before the next one.
#[test]
fn answers_come_before_the_next_question() {
    let place = place();
    let mut command = place.ours("md5sum", &args(&["-c"]));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut questions = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..40 {
        writeln!(questions, "0cc175b9c0f1b6a831c399e269772661  short").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "short: OK\n");
    }
    drop(questions);
    assert!(child.wait().unwrap().success());
}

/// FIFOs are read in the order of the operands, while other threads hash what comes later.
#[test]
fn fifos_are_read_in_order() {
    let place = place();
    for name in ["one", "two"] {
        let path = place.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
    }
    let files = args(&["long", "long", "long", "one", "long", "two", "short"]);
    let mut command = place.ours("sha1sum", &files);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    // The second opening would wait for ever if the program had read the second FIFO first.
    for (name, bytes) in [("one", b"1"), ("two", b"2")] {
        std::fs::write(place.path().join(name), bytes).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = lines.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(names, ["long", "long", "long", "one", "long", "two", "short"]);
    let expected = see(place.genuine("sha1sum", &[]), b"2").stdout;
    assert!(lines.contains(std::str::from_utf8(&expected[..40]).unwrap()));
}

/// At most 64 MiB and two buffers per thread.
#[test]
fn memory_stays_within_its_limit() {
    let place = place();
    for i in 0..64 {
        std::fs::copy(place.path().join("long"), place.path().join(format!("l{i}"))).unwrap();
    }
    let names: Vec<String> = (0..64).map(|i| format!("l{i}")).collect();
    for options in ["--threads=4 --buffer-size=8M", "--threads=4 --buffer-size=8M --split-size=1M"]
    {
        let seen = run(&place, &format!("sha1sum {options} {}", names.join(" ")), b"");
        assert_eq!(seen.code, Some(0));
    }
    // SAFETY: the structure is ours, and all zeros is one of its values.
    let peak = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage), 0);
        usage.ru_maxrss
    };
    assert!(peak <= (64 + 2 * 4 * 8) << 10, "{peak} KiB");
}
