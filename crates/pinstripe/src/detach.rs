//! Going to the background: the program starts itself again in a session of its own and waits for
//! its word.
//!
//! Protocol: the child writes one JSON line to its standard output, `{"text": ..}` when it is of
//! use or `{"code": .., "error": ..}` when it is not, and then gives that output up. A child that
//! dies without a word is reported with the end of its log.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure, Outcome};
use crate::out;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Word {
    Ready { text: String },
    Failed { code: u8, error: String },
}

/// Starts this command again in the background and returns what to print when it is ready. What
/// the process says later goes to `log`.
pub fn start(log: &Path) -> Outcome<String> {
    let open = OpenOptions::new().create(true).append(true).open(log);
    let errors = open.doing(|| format!("cannot open the log {}", log.display()))?;
    let exe = std::env::current_exe().doing(|| "cannot find this program".into())?;
    let mut args = std::env::args_os();
    let mut command = Command::new(exe);
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.arg("--daemon-child").args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().doing(|| "cannot start a process".into())?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).doing(|| "the background process".into())?;
    }
    match serde_json::from_str(&line) {
        Ok(Word::Ready { text }) => Ok(text),
        Ok(Word::Failed { code, error }) => {
            let _ = child.wait();
            Err(Failure::with_code(code, error))
        }
        Err(_) => {
            let status = child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
            let text = format!(
                "the background process ended ({status}) before it was ready; {} ends with: {}",
                log.display(),
                last_line(log)
            );
            Err(Failure::run(text))
        }
    }
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("nothing").to_string()
}

/// In the child: leaves the starter's session and terminal.
pub fn settle() {
    // Fails only for a process that leads its group already; then there is nothing to leave.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
}

/// In the child: it can be used now.
pub fn ready(text: &str) {
    say(&Word::Ready { text: text.into() });
}

/// In the child: it cannot be used.
pub fn failed(e: &Failure) {
    say(&Word::Failed { code: e.code, error: e.text.clone() });
}

fn say(word: &Word) {
    let line = serde_json::to_string(word).unwrap_or_default();
    let mut stdout = std::io::stdout().lock();
    // A starter that went away does not stop the daemon.
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    let _ = stdout.flush();
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

/// Tells whoever waits that the command is ready: the starter, or the terminal.
pub fn announce(text: &str, child: bool) {
    if child { ready(text) } else { out::text(text) }
}
