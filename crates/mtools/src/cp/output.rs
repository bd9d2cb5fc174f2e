//! What is printed, in the order in which a program that does one thing after another prints it.
//!
//! Every item of the traversal takes a place in a line ([`Notes`]) when the traversal meets it, and gives
//! its messages when it is done, on whatever thread; they appear when all before it have given theirs.
//! Standard output is buffered as the C library does, and written before anything goes to standard
//! error. Its limit is [`WINDOW`] items that are not done (design: no queue is unbounded).

use crate::bar;
use crate::engine::Copied;
use crate::gnu::{diag, start};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Items between the first that is not done and the last that was met.
const WINDOW: u64 = 65_536;

/// Bytes gathered for a standard output that is no terminal.
const BUFFER: usize = 4096;

/// Bytes for standard output or standard error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// What one item gave.
pub struct Account {
    pub messages: Vec<Message>,
    pub failed: bool,
    /// Where it is a file whose bytes are there.
    pub copied: Option<Copied>,
}

/// Who gets the account of an item that has no place in a line.
type Apart = Box<dyn FnOnce(Account) + Send>;

struct Line {
    /// The next place to be given.
    next: u64,
    /// The first that has not given its messages.
    head: u64,
    done: BTreeMap<u64, Vec<Message>>,
    buffer: Vec<u8>,
    terminal: bool,
    /// Standard output could not be written.
    broken: Option<io::Error>,
}

/// Standard output and standard error of a run.
pub struct Output {
    line: Mutex<Line>,
    moved: Condvar,
    failed: AtomicBool,
    apart: Mutex<Option<Apart>>,
}

/// A place in the line; its messages are given when it is dropped.
pub struct Notes {
    place: u64,
    messages: Vec<Message>,
    copied: Option<Copied>,
    output: Arc<Output>,
}

impl Output {
    pub fn new() -> Arc<Self> {
        Self::with(io::stdout().is_terminal(), None)
    }

    /// Messages that are not printed here: `then` gets them, once.
    pub fn apart(then: Apart) -> Notes {
        Self::with(false, Some(then)).take_place()
    }

    fn with(terminal: bool, apart: Option<Apart>) -> Arc<Self> {
        Arc::new(Self {
            line: Mutex::new(Line {
                next: 0,
                head: 0,
                done: BTreeMap::new(),
                buffer: Vec::new(),
                terminal,
                broken: None,
            }),
            moved: Condvar::new(),
            failed: AtomicBool::new(false),
            apart: Mutex::new(apart),
        })
    }

    /// The next place; waits while too many before it are not done.
    pub fn take_place(self: &Arc<Self>) -> Notes {
        let mut line = self.line.lock();
        while line.next - line.head >= WINDOW {
            self.moved.wait(&mut line);
        }
        let place = line.next;
        line.next += 1;
        Notes { place, messages: Vec::new(), copied: None, output: self.clone() }
    }

    /// Something could not be done: the exit code will say so.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Writes what is buffered; an error is told once, as GNU's close_stdout does.
    pub fn end(&self) {
        let mut line = self.line.lock();
        line.flush();
        if let Some(e) = line.broken.take() {
            diag::error(&format!("write error: {}", diag::reason(&e)));
            self.fail();
        }
    }

    fn give(&self, place: u64, messages: Vec<Message>) {
        let mut line = self.line.lock();
        if place != line.head {
            line.done.insert(place, messages);
            return;
        }
        line.print(messages);
        line.head += 1;
        loop {
            let head = line.head;
            let Some(messages) = line.done.remove(&head) else { break };
            line.print(messages);
            line.head += 1;
        }
        drop(line);
        self.moved.notify_all();
    }
}

impl Line {
    fn print(&mut self, messages: Vec<Message>) {
        for message in messages {
            match message {
                Message::Out(bytes) => {
                    self.buffer.extend_from_slice(&bytes);
                    if self.terminal || self.buffer.len() >= BUFFER {
                        self.flush();
                    }
                }
                Message::Err(bytes) => {
                    self.flush();
                    bar::clear();
                    // Nobody is left to tell when standard error cannot be written.
                    let _ = io::stderr().write_all(&bytes);
                }
            }
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let result = if start::was_closed(1) {
            Err(rustix::io::Errno::BADF.into())
        } else {
            bar::clear();
            write_all(&self.buffer)
        };
        self.buffer.clear();
        if let Err(e) = result
            && self.broken.is_none()
        {
            self.broken = Some(e);
        }
    }
}

/// Past Rust's own buffer of standard output, which would keep what could not be written.
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

impl Notes {
    /// A line on standard output.
    pub fn say(&mut self, text: &str) {
        self.say_bytes(text.as_bytes().to_vec());
    }

    /// One with a name as it is.
    pub fn say_bytes(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        self.messages.push(Message::Out(line));
    }

    /// `program: message` on standard error, without a failure.
    pub fn warn(&mut self, message: &str) {
        self.messages.push(Message::Err(diag::line(message)));
    }

    /// `program: message` on standard error; the run has failed.
    pub fn error(&mut self, message: &str) {
        self.warn(message);
        self.output.fail();
    }

    /// `program: message: reason`.
    pub fn errno(&mut self, message: &str, e: &io::Error) {
        self.error(&format!("{message}: {}", diag::reason(e)));
    }

    pub fn fail(&self) {
        self.output.fail();
    }

    /// For whoever asked for the account of this item alone.
    pub fn count(&mut self, copied: &Copied) {
        self.copied = Some(*copied);
    }

    /// Messages as another process gave them.
    pub fn add(&mut self, messages: Vec<Message>) {
        self.messages.extend(messages);
    }

    /// Prints what was said so far, when all before have given theirs: somebody is about to be asked.
    pub fn speak(&mut self) {
        let mut line = self.output.line.lock();
        while line.head != self.place {
            self.output.moved.wait(&mut line);
        }
        let messages = std::mem::take(&mut self.messages);
        line.print(messages);
        line.flush();
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        let apart = self.output.apart.lock().take();
        match apart {
            Some(then) => {
                then(Account { messages, failed: self.output.failed(), copied: self.copied });
            }
            None => self.output.give(self.place, messages),
        }
    }
}
