//! Check files that a generator with a seed has written, beside the genuine programs.

use super::common::{Place, Random, args};

/// Check files in a run.
const LISTS: usize = 400;

const DIGESTS: [(&str, &str, &str); 4] = [
    ("a", "MD5", "0cc175b9c0f1b6a831c399e269772661"),
    ("a", "SHA1", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),
    ("a", "BLAKE2b-128", "27c35e6e9373877f29e562464e46497e"),
    ("empty", "SHA256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
];

/// A line that is right, or nearly.
fn line(random: &mut Random) -> Vec<u8> {
    let (file, tag, digest) = DIGESTS[random.below(DIGESTS.len())];
    let name = if random.one_in(4) {
        random.pick(&["none", "", "dir", "a b", "empty", " a", "*a", ")"])
    } else {
        file
    };
    let mut line = if random.one_in(2) {
        let gap = random.pick(&["  ", " *", " ", "\t", "   "]);
        format!("{digest}{gap}{name}")
    } else {
        let (open, equals) =
            (random.pick(&[" (", "(", "  ("]), random.pick(&[") = ", ")= ", ")=", ") "]));
        format!("{tag}{open}{name}{equals}{digest}")
    };
    for (one_in, before) in [(10, " "), (20, "\t"), (10, "\\"), (40, "#")] {
        if random.one_in(one_in) {
            line.insert_str(0, before);
        }
    }
    let mut line = line.into_bytes();
    if random.one_in(3) {
        damage(random, &mut line);
    }
    if random.one_in(10) {
        line.push(b'\r');
    }
    line.push(b'\n');
    line
}

fn damage(random: &mut Random, line: &mut Vec<u8>) {
    let at = random.below(line.len());
    // Carriage returns, backslashes, NUL and base64 differ between versions in how they are shown or read.
    let byte = b" \t()=*-0aAfFgGx\n"[random.below(16)];
    match random.below(4) {
        0 => line[at] = byte,
        1 => line.insert(at, byte),
        2 => drop(line.remove(at)),
        _ => line.truncate(at),
    }
}

#[test]
fn random_check_files() {
    let place = Place::new(env!("CARGO_BIN_EXE_msum"));
    place.file("a", b"a");
    place.file("empty", b"");
    std::fs::create_dir(place.path().join("dir")).unwrap();
    let mut random = Random::new();
    for _ in 0..LISTS {
        let lines = random.below(12);
        let list: Vec<u8> = (0..lines).flat_map(|_| line(&mut random)).collect();
        // Eight digits of BLAKE2b are taken for base64 by cksum from 9.2 on.
        let digits = |line: &[u8]| {
            line.trim_ascii_start().iter().take_while(|b| b.is_ascii_hexdigit()).count()
        };
        if list.split(|b| *b == b'\n').any(|line| digits(line) == 8) {
            continue;
        }
        place.file("list", &list);
        let program = random.pick(&[
            &["md5sum"][..],
            &["sha1sum"],
            &["b2sum"],
            &["sha256sum"],
            &["cksum"],
            &["cksum", "-a", "md5"],
            &["cksum", "-a", "blake2b"],
        ]);
        let mut words = program[1..].to_vec();
        words.extend(["-c", "list"]);
        for option in ["-w", "--quiet", "--status", "--strict", "--ignore-missing", "-w"] {
            if random.one_in(3) {
                words.push(option);
            }
        }
        place.same(program[0], &args(&words), b"a");
    }
}
