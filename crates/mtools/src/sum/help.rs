//! What `--help` and `--version` say.

use super::program::Program;

/// The coreutils whose behaviour is meant.
const REFERENCE: &str = "9.7";

pub fn version(program: Program) -> String {
    let name = program.name();
    let version = env!("CARGO_PKG_VERSION");
    match program {
        Program::Msum => format!("msum (Pinstripe) {version}\n"),
        _ => format!(
            "{name} (Pinstripe msum) {version}\nStands in for {name} of GNU coreutils {REFERENCE}.\n"
        ),
    }
}

pub fn help(program: Program) -> String {
    let mut text = format!("Usage: {} [OPTION]... [FILE]...\n", program.name());
    text.push_str(match program {
        Program::Plain(..) => "Compute the digest of each FILE, or check digests.\n",
        Program::B2sum => "Compute the BLAKE2b digest of each FILE, or check digests.\n",
        Program::Cksum => "Compute the CRC or digest of each FILE, or check digests.\n",
        Program::Msum => "Compute the SHA-256 or another digest of each FILE, or check digests.\n",
    });
    text.push_str("Without FILE, or where FILE is -, standard input is read.\n\n");
    match program {
        Program::Plain(..) => {}
        Program::B2sum => text.push_str(LENGTH),
        Program::Cksum => {
            text.push_str(CKSUM);
            text.push_str(LENGTH);
        }
        Program::Msum => text.push_str(MSUM),
    }
    text.push_str(COMMON);
    text.push_str(OWN);
    if !matches!(program, Program::B2sum | Program::Cksum) {
        text.push_str("      --length=BYTES       the same as --range-length\n");
    }
    text.push_str(
        "\n      --help               print this and exit\n      --version            print the version \
         and exit\n\nSizes take K, M, G, T, P (1024). See msum(1).\n",
    );
    text
}

const CKSUM: &str = "\
  -a, --algorithm=TYPE     bsd, sysv, crc (default), crc32b, md5, sha1, sha224, sha256,
                           sha384, sha512, blake2b or sm3
      --base64             digests in base64
      --debug              tell which of the machine's instructions are used
      --raw                the digest's bytes alone
      --untagged           DIGEST  NAME instead of TAG (NAME) = DIGEST
";

const MSUM: &str = "\
      --hash-type=TYPE     sha256 (default), md5, sha1, sha224, sha384, sha512, blake2b,
                           sm3, bsd, sysv, crc or crc32b
      --digest-length=BITS of blake2b: a multiple of 8, to 512
      --untagged           DIGEST  NAME instead of TAG (NAME) = DIGEST (default)
";

const LENGTH: &str = "  -l, --length=BITS        of blake2b: a multiple of 8, to 512\n";

const COMMON: &str = "  -b, --binary             an asterisk before the name
  -c, --check              read digests from the FILEs and check them
      --tag                TAG (NAME) = DIGEST
  -t, --text               a blank before the name (default)
  -z, --zero               end lines with NUL, and do not escape names

With --check:
      --ignore-missing     files that do not exist are no failure
      --quiet              do not print OK
      --status             print nothing; the exit code tells
      --strict             lines of a wrong format are a failure
  -w, --warn               tell lines of a wrong format
";

const OWN: &str = "
How, and which part (these have no counterpart in coreutils; those without a value also
have a --no- form):
      --threads=N          at most so many (default: the processors available)
      --buffer-size=SIZE   read so much at once (default 256K)
      --split-size=SIZE    tree hashes of chunks of that size, in lines of their own format
      --check-tree         tree hashes, of chunks of 32M without --split-size
      --double-buffer      read large files ahead by a thread of its own (default)
      --direct-read        pass by the page cache
      --fadvise-read       do not keep in the page cache what was read
      --offset=BYTES       begin there in each file
      --range-length=BYTES at most so much of each file
      --read-stdin         names of files from standard input, a line each (NUL with -z)
      --print-stats        at the end, files, bytes and speed on standard error
      --json               the same as JSON
      --progress           a bar, where standard error is a terminal
";
