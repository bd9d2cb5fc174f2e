//! `msum` under the names of the checksum programs beside the genuine ones: standard output, standard
//! error and exit code, byte for byte.
//!
//! Reference is 9.7; where the genuine programs here are older, what has changed since is left out.

use super::common::{Place, args};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const DIGESTS: [&str; 7] =
    ["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"];
const WORDS: [&str; 11] =
    ["bsd", "sysv", "crc", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "sm3"];
const A: &str = "0cc175b9c0f1b6a831c399e269772661";

fn place() -> Place {
    let place = Place::new(env!("CARGO_BIN_EXE_msum"));
    let odd: [&[u8]; 9] =
        [b"a", b"b\\s", b"n\nl", b"c\rr", b"with blank", b"it's", b"\xff\xfe", b"colon:", b"*star"];
    for name in odd {
        place.file(OsStr::from_bytes(name), b"a");
    }
    place.file("empty", b"");
    // Longer than every buffer and than what one thread reads alone, and not a multiple of anything.
    let long: Vec<u8> =
        (0..9_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    place.file("long", &long);
    place.file("middle", &long[..70_001]);
    std::fs::create_dir(place.path().join("dir")).unwrap();
    place
}

/// The words of `line`, separated by blanks.
fn same(place: &Place, line: &str, stdin: &[u8]) {
    let mut words = line.split(' ').filter(|w| !w.is_empty());
    let name = words.next().unwrap();
    place.same(name, &args(&words.collect::<Vec<_>>()), stdin);
}

#[test]
fn every_algorithm_of_every_length() {
    let place = place();
    for name in DIGESTS {
        for options in ["", "-b", "-t", "--tag", "-z", "--tag -z", "--tag -b", "-t --tag"] {
            same(&place, &format!("{name} {options} a empty middle long -"), b"standard input");
        }
        same(&place, name, b"standard input");
    }
    for word in WORDS {
        for options in ["", "--untagged", "-z", "--tag"] {
            same(&place, &format!("cksum -a {word} {options} a empty middle long -"), b"in");
            same(&place, &format!("cksum -a {word} {options}"), b"in");
        }
    }
    for bits in [8, 16, 24, 128, 256, 504, 512, 0] {
        same(&place, &format!("b2sum -l {bits} a"), b"");
        same(&place, &format!("b2sum --length={bits} --tag a"), b"");
        same(&place, &format!("cksum -a blake2b -l {bits} a long"), b"");
    }
}

#[test]
fn every_length_near_a_block() {
    let place = place();
    for len in [1, 55, 56, 63, 64, 65, 111, 112, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
        place.file("it", &bytes);
        for name in DIGESTS {
            same(&place, &format!("{name} it"), b"");
        }
        for word in WORDS {
            same(&place, &format!("cksum -a {word} it"), b"");
        }
    }
}

#[test]
fn odd_names_and_missing_files() {
    let place = place();
    let names: [&[u8]; 15] = [
        b"a",
        b"b\\s",
        b"n\nl",
        b"c\rr",
        b"with blank",
        b"it's",
        b"\xff\xfe",
        b"colon:",
        b"*star",
        b"none",
        b"",
        b"no\nne",
        b"dir",
        b"none/a",
        b"a/b",
    ];
    let names = names.map(OsStr::from_bytes);
    for name in ["md5sum", "b2sum", "sha512sum"] {
        for options in [&[][..], &["--tag"], &["-z"], &["-b"]] {
            let mut all = args(options);
            all.push("--".into());
            all.extend(args(&names));
            place.same(name, &all, b"");
        }
    }
    for word in ["crc", "bsd", "sysv", "sha1"] {
        // The genuine one overlooked read errors there, directories among them.
        let overlooks = word == "crc" && place.version < (9, 4);
        let names: Vec<_> = names.iter().filter(|name| !overlooks || **name != "dir").collect();
        let mut all = args(&["-a", word, "--"]);
        all.extend(args(&names));
        place.same("cksum", &all, b"");
    }
}

#[test]
fn grammar_and_contradictions() {
    let place = place();
    for line in [
        "--foo",
        "-x",
        "-cx",
        "--s",
        "--t",
        "--=x",
        "--check=x",
        "--tag -c a",
        "-c -b a",
        "-c -t a",
        "-z -c a",
        "-z -c --tag",
        "--tag -c -b",
        "--tag -t a",
        "--tag -b -t a",
        "-b --tag a",
        "-t --tag a",
        "--warn a",
        "-w a",
        "--quiet a",
        "--status a",
        "--strict a",
        "--ignore-missing a",
        "--strict --status",
        "--strict -w",
        "-b --status --quiet",
        "--warn --status",
        "--quiet -w",
        "--ignore-missing --strict",
        "a -b a",
        "-- -b a",
        "a -",
        "- a -",
        "--bin a",
        "--te a",
        "--z a",
        "--text a",
        "-bt a",
        "-tb a",
        "--tag -bz a",
        "--st",
        "--sta",
        "--str",
        "-h",
        "none -x",
    ] {
        for name in ["md5sum", "sha224sum", "b2sum"] {
            same(&place, &format!("{name} {line}"), b"x");
        }
    }
    for line in [
        "-l x",
        "-l 7",
        "-l -1",
        "-l 0x8",
        "-l 010",
        "-l 8k",
        "-l",
        "--length",
        "--l=8",
        "--length=",
        "-l +8",
        "-l 16 -l 8",
        "-l x --foo",
        "--foo -l x",
        "-l 7 --tag -t",
    ] {
        same(&place, &format!("b2sum {line}"), b"x");
    }
    place.same("b2sum", &args(&["-l", " 8"]), b"x");
    place.same("b2sum", &args(&["-l", "8 "]), b"x");
    for line in [
        "--foo",
        "-l x",
        "-l 8",
        "-l 0",
        "-a md5 -l 8",
        "-a md5 -l 0",
        "-a blake2b -l 7",
        "-l 8 -c",
        "-a",
        "--u",
        "-w",
        "--strict",
        "-z -c",
        "--ignore-missing",
        "-a md5 --untagged a",
        "--untagged a",
        "--tag a",
        "-a md5 --tag --untagged a",
        "-a md5 --untagged --tag a",
        "-a md5 -a sha1 a",
        "--algorithm=sha1 a",
        "--algo sha1 a",
        "-amd5 a",
        "-c none",
        "--length",
    ] {
        same(&place, &format!("cksum {line}"), b"x");
    }
}

/// What 9.2 and later versions have brought.
#[test]
fn grammar_of_later_versions() {
    let place = place();
    if place.version < (9, 7) {
        println!("not compared: the genuine cksum is {:?}", place.version);
        return;
    }
    for line in [
        "-a foo a",
        "-ac",
        "-a sha a",
        "--algorithm= a",
        "-a crc32b a long -",
        "-a crc32b",
        "-a crc32b -c",
        "-a crc -c",
        "-a bsd -c",
        "-a sysv -c a",
        "-a md5 -t a",
        "-a md5 -b a",
        "-a md5 -b --untagged a",
        "-a md5 -t --untagged a",
        "--base64 -a md5 a",
        "-a md5 --tag -b --untagged a",
        "-a md5 -t --untagged --tag a",
        "--base64 a",
        "--raw a",
        "--raw a a",
        "--raw -a bsd a",
        "--raw -a sysv a",
        "--raw -a md5 a",
        "--raw -c a",
        "--raw -c a a",
        "--base64 -c a",
        "--raw --base64 -a md5 a",
        "--raw --base64 -a crc -c",
        "--tag -c a",
        "--tag -c -z",
        "-t -c",
        "-t -z -c",
        "--warn --tag -t",
        "--raw a a -w",
        "-l 7 -a sysv -c",
        "-a md5 -l 7",
        "-b a",
        "-t a",
        "--b",
        "--t",
        "--r a",
        "--raw -z -a md5",
        "--base64 -a md5 --untagged -",
        "--base64 -a crc32b",
        "-a sysv -b",
        "-a sysv -t",
        "--debug -a crc32b -c",
        "-a blake2b -l 24 --base64 a",
        "--raw -a blake2b -l 8 a",
        "--=x",
    ] {
        same(&place, &format!("cksum {line}"), b"x");
    }
    for name in [&b"a"[..], b"b\\s", b"n\nl", b"c\rr"] {
        let escaped = String::from_utf8_lossy(name).replace('\\', "\\\\").replace('\n', "\\n");
        let list = format!("\\{A}  {}\n\\{A}  none\\n\n", escaped.replace('\r', "\\r"));
        place.same("md5sum", &args(&["-c"]), list.as_bytes());
    }
    let list = "MD5 (a) = DMF1ucDxtqgxw5niaXcmYQ==\nMD5 (a) = DMF1ucDxtqgxw5niaXcmYR==\n\
                MD5 (a) = DMF1ucDxtqgxw5niaXcmYQ=\nMD5 (a) = DMF1ucDxtqgxw5niaXcmYQ==x\nDMF1uc==  a\n";
    place.same("cksum", &args(&["-c", "-w"]), list.as_bytes());
    let list = "DMF1ucDxtqgxw5niaXcmYQ==  a\nDMF1ucDxtqgxw5niaXcmYQ== a\n";
    place.same("cksum", &args(&["-c", "-w", "-a", "md5"]), list.as_bytes());
}

/// Check files, each with several options.
#[test]
fn check_files() {
    let place = place();
    let b2 = "27c35e6e9373877f29e562464e46497e";
    let lists = [
        format!("{A}  a\n"),
        format!("{A}  a\r\n\r\n\n{A} *a"),
        format!("#x\n  {A}  a\n\t{A} *a\n #\n"),
        format!("{A} a\n{A} a\n"),
        format!("{A} a\n{A}  a\n{A} *a\n"),
        format!("{A}  a\n{A} a\n"),
        format!("{A}\ta\n{A}\t\ta\n"),
        format!("{A}  -\n{A} -\n"),
        format!("MD5 (a) = {A}\nMD5(a)= {A}\nMD5(a)={A}\nMD5 (a)\t =\t{A}\n"),
        format!("MD5  (a) = {A}\nMD5 (a) = {A}0\nMD5 (a) {A}\nmd5 (a) = {A}\nMD5 (a)x= {A}\n"),
        format!(
            "MD5 (a) =\nMD5 () = {A}\nMD5 (a)) = {A}\nMD5 (a = {A})\nMD5\nMD5 \nMD5 (\nMD5 (a)\n"
        ),
        format!(" MD5 (a) = {A} \n MD5 (a) = {A}\r\n{A}  a\n"),
        format!("\\\\{A}  a\n\\{A}  a\\\n\\{A}  a\\0\n\\{A}  a\n"),
        format!("{A}  a\0b\nMD5 (a\0b) = {A}\n"),
        format!("{A}  a\n{A}  none\n{A}  none2\nbad\n"),
        format!("{A}  a\n{A}  none\n"),
        format!("{A}  none\n"),
        format!("{A}  dir\n"),
        format!("{A}  \n{A}   \n{A} \n{A}\n"),
        format!("{A}  empty\n{A}  empty\nbad\nbad\n"),
        format!("{A}  empty\n"),
        format!("{}  a\n", A.to_uppercase()),
        "bad\n".into(),
        "bad".into(),
        String::new(),
        "\n\n\r\n".into(),
        format!("MD5 (a) = {A}\nSHA1 (a) = 86f7e437faa5a7fce15d1ddcb9eaeaea377667b8\n{A}  a\n"),
        format!("CRC (a) = 1\nBSD (a) = 1\nSYSV (a) =1\nMD5\nMD5-3 (a) = {A}\nMD5x (a) = {A}\nx\n"),
        format!("BLAKE2b-128 (a) = {b2}\n{b2}  a\nBLAKE2b-128(a)={b2}\nBLAKE2b (a) = {b2}\n"),
        "BLAKE2b-7 (a) = 27\nBLAKE2b- (a) = 27\nBLAKE2b-0 (a) = 27\nBLAKE2b-1024 (a) = 27\n".into(),
        "BLAKE2b-+8 (a) = 27\nBLAKE2b-8k (a) = 27\nBLAKE2b-8-x (a) = 27\nBLAKE2b- 8 (a) = 27\n"
            .into(),
        "BLAKE2b-08 (a) = 27\nBLAKE2b-8 (a) = 272\nBLAKE2b-8 (a) = 2\nBLAKE2b-16 (a) = 27\n".into(),
        "27  a\n272  a\n22  a\n2  a\n27\n27 \n27  \n".into(),
    ];
    let options = [
        "",
        "-w",
        "--status",
        "--quiet",
        "--strict",
        "--ignore-missing",
        "--status -w",
        "-w --quiet",
        "--strict -w",
        "--ignore-missing --status",
        "--ignore-missing --quiet --strict",
    ];
    for list in &lists {
        place.file("list", list.as_bytes());
        for options in options {
            for name in ["md5sum", "sha1sum", "b2sum", "cksum", "cksum -a md5", "cksum -a blake2b"]
            {
                same(&place, &format!("{name} -c {options} list"), b"");
            }
        }
        same(&place, "md5sum -c", list.as_bytes());
        same(&place, "md5sum -c -w - list none dir -", list.as_bytes());
        same(&place, "cksum -a md5 -c -w list list", b"");
    }
}

/// Many files, and many lines: more than one thread takes them, and the order stays.
#[test]
fn many_files_stay_in_order() {
    let place = place();
    let mut names = Vec::new();
    for i in 0..400usize {
        let name = format!("f{i}");
        let bytes: Vec<u8> = (0..(i * 7919) % 20_011).map(|b| (b * i) as u8).collect();
        if i % 37 != 5 {
            place.file(&name, &bytes);
        }
        names.push(name);
        if i % 100 == 50 {
            names.push("dir".into());
            names.push("-".into());
        }
    }
    names.insert(3, "long".into());
    place.same("sha256sum", &args(&names), b"standard input");
    let list = super::common::see(place.genuine("sha256sum", &args(&names)), b"").stdout;
    let list = String::from_utf8(list).unwrap().replacen("f7\n", "f8\n", 1) + "bad\n";
    place.file("list", list.as_bytes());
    for options in ["-c list", "-c -w --quiet list", "-c", "-c --ignore-missing list list"] {
        same(&place, &format!("sha256sum {options}"), list.as_bytes());
    }
}

/// Closed and full outputs, and a closed input.
#[test]
fn streams_that_fail() {
    let place = place();
    let shell = |program: &std::process::Command, rest: &str| {
        let path = program.get_program().to_str().unwrap();
        let mut shell = std::process::Command::new("bash");
        shell.current_dir(place.path()).env("LC_ALL", "C");
        shell.arg("-c").arg(format!("exec -a md5sum {path} {rest}"));
        super::common::see(shell, b"x")
    };
    for rest in [
        ">/dev/full",
        "a >/dev/full",
        "a none a >/dev/full",
        "-z a >/dev/full",
        "a >&-",
        "- <&-",
        "a - <&-",
        "-c - <&-",
        "none >&-",
        "-c /dev/null >/dev/full",
    ] {
        let ours = shell(&place.ours("md5sum", &[]), rest);
        let genuine = shell(&place.genuine("md5sum", &[]), rest);
        assert_eq!(ours, genuine, "md5sum {rest}");
    }
}

#[test]
fn files_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    let place = place();
    place.file("secret", b"a");
    let set = |name: &str, mode| {
        let path = place.path().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set("secret", 0);
    set(".", 0o755);
    place.file("list", format!("{A}  secret\n{A}  a\n").as_bytes());
    let root = rustix::process::geteuid().is_root();
    // As a plain user: root may read everything. The program must lie where that user may run it.
    let copy = place.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_msum"), &copy).unwrap();
    for words in
        [&["secret", "a"][..], &["-c", "list"], &["-c", "secret"], &["-c", "--status", "list"]]
    {
        let run = |file: &std::path::Path| {
            let mut command = Command::new("bash");
            if root {
                command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash"]);
            }
            command.current_dir(place.path()).env("LC_ALL", "C");
            command
                .arg("-c")
                .arg(r#"f=$1; shift; exec -a md5sum "$f" "$@""#)
                .arg("-")
                .arg(file)
                .args(words);
            super::common::see(command, b"")
        };
        let genuine = place.genuine("md5sum", &[]);
        let genuine = run(std::path::Path::new(genuine.get_program()));
        assert!(
            String::from_utf8_lossy(&genuine.stderr).contains("Permission denied"),
            "{genuine:?}"
        );
        assert_eq!(run(&copy), genuine, "{words:?}");
    }
}
