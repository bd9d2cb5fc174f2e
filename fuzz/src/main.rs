//! Fuzzing of every decoder on a stable toolchain: seeded mutation of valid bytes, for a bounded
//! time. A decoder may refuse anything; it may not panic, overflow, hang or allocate without
//! bound. The seed and the target replay a finding; its bytes are also written to a file.

mod mutate;
mod targets;

use mutate::Mutator;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use targets::Target;

/// Longest input tried, in bytes.
const LONGEST: usize = 64 << 10;
/// A single input may take this long; more is a hang (or a quadratic decoder).
const SLOW: Duration = Duration::from_secs(5);

struct Args {
    seconds: u64,
    seed: u64,
    crashes: PathBuf,
    only: Option<String>,
}

fn args() -> Result<Args, String> {
    let mut args =
        Args { seconds: 60, seed: 1, crashes: std::env::temp_dir().join("fuzz"), only: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{word} {value}: {e}"));
        match word.as_str() {
            "--seconds" => args.seconds = number()?,
            "--seed" => args.seed = number()?,
            "--crashes" => args.crashes = value.into(),
            "--target" => args.only = Some(value),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("pinstripe-fuzz: {e}");
            return ExitCode::from(2);
        }
    };
    let all = targets::all();
    let chosen: Vec<_> =
        all.iter().filter(|t| args.only.as_ref().is_none_or(|name| name == t.name)).collect();
    if chosen.is_empty() {
        eprintln!("pinstripe-fuzz: no such target");
        return ExitCode::from(2);
    }
    let share = Duration::from_secs(args.seconds) / u32::try_from(chosen.len()).unwrap_or(1);
    let mut failed = false;
    for target in chosen {
        match run(target, share, args.seed, &args.crashes) {
            Ok((inputs, accepted)) => {
                eprintln!("{}: {inputs} inputs, {accepted} accepted", target.name);
                println!("ok {}", target.name);
            }
            Err(what) => {
                eprintln!("{}: {what}", target.name);
                println!("FAIL {}", target.name);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Feeds `target` for `share`; how many inputs there were and were accepted. The error says what went wrong and where the input lies.
fn run(target: &Target, share: Duration, seed: u64, crashes: &Path) -> Result<(u64, u64), String> {
    let corpus = (target.corpus)();
    let mut mutator = Mutator::new(seed, corpus);
    let end = Instant::now() + share;
    let (mut inputs, mut accepted) = (0, 0);
    while Instant::now() < end {
        for _ in 0..64 {
            let input = mutator.next(LONGEST);
            let start = Instant::now();
            let decode = target.decode;
            let result = std::panic::catch_unwind(|| decode(&input));
            inputs += 1;
            let what = match result {
                Err(_) => "panicked",
                Ok(_) if start.elapsed() > SLOW => "took more than 5 s",
                Ok(true) => {
                    accepted += 1;
                    mutator.keep(input);
                    continue;
                }
                Ok(false) => continue,
            };
            let file = crashes.join(format!("{}-{seed}-{inputs}", target.name));
            let kept =
                std::fs::create_dir_all(crashes).and_then(|()| std::fs::write(&file, &input));
            let place = kept.map_or_else(|e| e.to_string(), |()| file.display().to_string());
            return Err(format!("{what} on input {inputs} of seed {seed}, kept in {place}"));
        }
    }
    Ok((inputs, accepted))
}
