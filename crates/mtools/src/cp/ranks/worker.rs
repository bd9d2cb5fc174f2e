//! What a rank but the first does: copies what it is told to, by name, with the same code as a thread of rank
//! 0 would, and tells what became of it. Never decides, walks or prints.

use super::super::attrs::Process;
use super::super::dir::Dir;
use super::super::links::First;
use super::super::options::Options;
use super::super::output::{Account, Message as Line, Output};
use super::super::resume::LASTING;
use super::super::run::{Item, Run};
use super::super::stat::Stat;
use super::super::{dispatch, same};
use super::link::Link;
use super::manager::FILES_MOST;
use super::message::{
    ENTRIES_MOST, FRAME_FULL, FileEnd, FileOrder, Hello, Message, Outcome, PartEnd, PartOrder,
};
use super::pause::Pause;
use crate::engine::{Data, Engine, Fault, Held, Home, Reached, Reflink, Seen, Sparse, interrupt};
use crate::gnu::{diag, quote};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Ends that may wait to be sent: more than rank 0 lets us owe.
const ENDS_MOST: usize = 4 * FILES_MOST;
/// How long the last words may take.
const FLUSH_WAIT: Duration = Duration::from_secs(10);
enum End {
    File(FileEnd),
    Part(PartEnd),
}

struct Worker<'a, L: Link> {
    link: &'a mut L,
    /// Until rank 0 has said how it was started.
    options: Option<Options>,
    arguments: [u8; 32],
    run: Option<Arc<Run>>,
    /// Has each task begin at once. Gone before the engine.
    held: Option<Held>,
    ends: Sender<End>,
    ended: Receiver<End>,
}

/// Serves rank 0 until it says that all is done. `false`: it is not understood.
pub fn serve<L: Link>(link: &mut L, options: Options, arguments: [u8; 32]) -> bool {
    let (ends, ended) = bounded(ENDS_MOST);
    let mut worker =
        Worker { link, options: Some(options), arguments, run: None, held: None, ends, ended };
    worker.work();
    drop(worker.held.take());
    if let Some(run) = &worker.run {
        run.engine.drain();
    }
    worker.link.send(0, Message::Bye.encode());
    worker.link.flush(FLUSH_WAIT)
}

impl<L: Link> Worker<'_, L> {
    fn work(&mut self) {
        let mut pause = Pause::default();
        loop {
            // A signal takes this rank as any program; rank 0 gives its work to others.
            interrupt::end();
            while let Some((from, frame)) = self.link.receive() {
                pause.reset();
                if from == 0 && self.hear(&frame) {
                    return;
                }
            }
            if let Ok(end) = self.ended.recv_timeout(pause.next()) {
                pause.reset();
                self.report(end);
            }
        }
    }

    /// Whether all is done.
    fn hear(&mut self, frame: &[u8]) -> bool {
        match Message::decode(frame) {
            Err(wrong) => {
                self.refuse(&format!("it does not understand rank 0: {wrong}; start one version"))
            }
            Ok(Message::Hello(hello)) => self.greeted(&hello),
            Ok(Message::Files(files)) => files.into_iter().for_each(|order| self.file(order)),
            Ok(Message::Part(order)) => self.part(order),
            Ok(Message::Ping) => self.say(&Message::Pong),
            Ok(Message::End) => return true,
            Ok(_) => self.refuse("it was sent what only others than rank 0 say"),
        }
        false
    }

    fn say(&mut self, message: &Message) {
        // Rank 0 notices that nothing comes.
        self.link.send(0, message.encode());
    }

    fn refuse(&mut self, why: &str) {
        self.say(&Message::Refuse(host(), why.to_owned()));
    }

    fn greeted(&mut self, hello: &Hello) {
        let Some(mut options) = self.options.take() else { return };
        if let Err(why) = agree(hello, &self.arguments) {
            return self.refuse(&why);
        }
        // With one thread, tasks would run in this one, which then answers nobody.
        options.own.engine.threads = options.own.engine.threads.max(2);
        let engine = match Engine::new(options.own.engine.clone()) {
            Ok(engine) => engine,
            Err(e) => return self.refuse(&format!("it cannot start: {}", diag::reason(&e))),
        };
        rustix::process::umask(Mode::from_raw_mode(hello.umask));
        let threads = engine.settings().threads;
        self.held = Some(engine.hold());
        self.run = Some(Arc::new(Run::new(options, Process::new(), engine, None, None)));
        self.say(&Message::Ready(host(), threads as u16));
    }

    fn file(&self, order: FileOrder) {
        let Some(run) = self.run.clone() else { return };
        let (ends, engine) = (self.ends.clone(), run.clone());
        let home = Some(Home::of(&order.dst));
        engine.engine.submit(home, Box::new(move |_| file(&run, order, ends)));
    }

    fn part(&self, order: PartOrder) {
        let Some(run) = self.run.clone() else { return };
        let (ends, sparse) = (self.ends.clone(), run.options.sparse);
        let task = Box::new(move |engine: &Engine| {
            let (id, from) = (order.id, order.from);
            let copied = catch_unwind(AssertUnwindSafe(|| part(engine, order, sparse)));
            let panicked = || Fault::Write(io::Error::other("the copy panicked"));
            let end = match copied.unwrap_or_else(|_| Ok(Reached::failed(from, panicked()))) {
                Ok(reached) => PartEnd { id, outcome: Outcome::Done, reached },
                Err(e) => {
                    let reached = Reached { at: from, ..Reached::default() };
                    PartEnd { id, outcome: unseen(&e), reached }
                }
            };
            let _ = ends.send(End::Part(end));
        });
        run.engine.submit(None, task);
    }

    /// Tells what has ended, all there is of it.
    fn report(&mut self, first: End) {
        let (mut files, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        while let Some(end) = next {
            match end {
                End::Part(end) => self.say(&Message::PartEnd(end)),
                End::File(end) => {
                    bytes += size(&end);
                    files.push(end);
                }
            }
            if files.len() == ENTRIES_MOST || bytes >= FRAME_FULL {
                bytes = 0;
                let full = std::mem::take(&mut files);
                self.say(&Message::FileEnds(full));
            }
            next = self.ended.try_recv().ok();
        }
        if !files.is_empty() {
            self.say(&Message::FileEnds(files));
        }
    }
}

fn size(end: &FileEnd) -> usize {
    let bytes = |line: &Line| match line {
        Line::Out(bytes) | Line::Err(bytes) => bytes.len() + 5,
    };
    64 + end.lines.iter().map(bytes).sum::<usize>()
}

pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether this rank was started as rank 0 was; it goes to the same working directory.
fn agree(hello: &Hello, arguments: &[u8; 32]) -> Result<(), String> {
    if hello.program != env!("CARGO_PKG_VERSION") {
        return Err(format!(
            "it is mcp {}, rank 0 is mcp {}; install one version",
            env!("CARGO_PKG_VERSION"),
            hello.program
        ));
    }
    if hello.arguments != *arguments {
        return Err("it was started with other arguments than rank 0".into());
    }
    let user = rustix::process::geteuid().as_raw();
    if hello.user != user {
        return Err(format!("it runs as user {user}, rank 0 as user {}", hello.user));
    }
    let Some((directory, ino)) = &hello.directory else { return Ok(()) };
    let shown = quote::always(directory);
    let here = |path: &Path| Stat::follow(path).is_ok_and(|st| st.ino == *ino);
    if !here(Path::new(".")) {
        std::env::set_current_dir(directory).map_err(|e| {
            format!("cannot go to rank 0's working directory {shown}: {}", diag::reason(&e))
        })?;
    }
    if !here(Path::new(".")) {
        return Err(format!("its {shown} is not rank 0's working directory"));
    }
    Ok(())
}

/// Copies one file as a thread of rank 0 would.
fn file(run: &Arc<Run>, order: FileOrder, ends: Sender<End>) {
    let id = order.id;
    let st = match looked(run, &order) {
        Ok(st) => st,
        Err(e) => {
            let outcome = unseen(&e);
            let end = FileEnd { id, outcome, failed: false, copied: None, lines: Vec::new() };
            // The other end lives as long as we have something to tell.
            let _ = ends.send(End::File(end));
            return;
        }
    };
    const DONE: u8 = 1;
    const FAILED: u8 = 2;
    let outcome = Arc::new(AtomicU8::new(0));
    let first = First::new();
    let told = outcome.clone();
    first.when_there(Box::new(move |copied| {
        told.store(if copied.is_some() { DONE } else { FAILED }, Ordering::Release);
    }));
    let dst = order.dst.clone();
    // Rank 0 says in its journal that it is there: then it has to be.
    let noted = run.options.own.resume.is_some();
    let notes = Output::apart(Box::new(move |account: Account| {
        let Account { mut messages, mut failed, copied } = account;
        let outcome = match outcome.load(Ordering::Acquire) {
            DONE if noted && sync(&dst).is_err() => Outcome::Unseen(libc::EINTR),
            DONE => Outcome::Done,
            // Without a word about itself: it panicked.
            0 => {
                failed = true;
                let what = format!("an internal error stopped the copy of {}", quote::always(&dst));
                messages.push(Line::Err(diag::line(&what)));
                Outcome::Failed
            }
            // This rank is about to end by a signal.
            _ if interrupt::pending() => Outcome::Unseen(libc::EINTR),
            _ if Stat::follow(same::split(&dst).0).is_err() => Outcome::Unseen(libc::ENOENT),
            _ => Outcome::Failed,
        };
        let end = FileEnd { id, outcome, failed, copied, lines: messages };
        let _ = ends.send(End::File(end));
    }));
    if order.anew {
        // What a rank that does not answer left of it: it may still be writing to that.
        let _ = rustix::fs::unlinkat(CWD, &order.dst, AtFlags::empty());
    }
    let item = Item {
        src: order.src,
        dst: order.dst,
        st,
        dst_st: None,
        backup: None,
        operand: false,
        first: Some(first),
        parent: Dir::new(None),
        notes,
        again: None,
    };
    dispatch::copy_here(run, item);
}

fn looked(run: &Run, order: &FileOrder) -> io::Result<Stat> {
    let st = match run.options.follows(false) {
        true => Stat::follow(&order.src)?,
        false => Stat::nofollow(&order.src)?,
    };
    let mtime = (st.mtime.tv_sec, st.mtime.tv_nsec);
    let seen = Seen { ino: st.ino, size: st.size, mtime };
    if seen == order.seen && st.is_file() { Ok(st) } else { Err(Errno::STALE.into()) }
}

fn unseen(e: &io::Error) -> Outcome {
    Outcome::Unseen(e.raw_os_error().unwrap_or(libc::EIO))
}

/// Copies a chunk; an error means that nothing was done.
fn part(engine: &Engine, order: PartOrder, sparse: Sparse) -> io::Result<Reached> {
    let open = |path: &Path, how: OFlags| -> io::Result<File> {
        Ok(rustix::fs::openat(CWD, path, how | OFlags::CLOEXEC, Mode::empty())?.into())
    };
    let file = order.file;
    // Neither may be a FIFO by now, which would keep us waiting.
    let src = open(&file.src_name, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let dst = open(&file.dst_name, OFlags::WRONLY | OFlags::NONBLOCK)?;
    if Seen::of(&src)? != file.src || Seen::of(&dst)?.ino != file.dst_ino {
        return Err(Errno::STALE.into());
    }
    let data = Data {
        src,
        dst,
        src_name: file.src_name,
        dst_name: file.dst_name,
        size: file.src.size,
        sparse,
        reflink: Reflink::Never,
        fresh: file.had == 0,
        marks: None,
    };
    let mut reached = engine.copy_part(&data, file.had, file.end, order.from, order.to);
    if !local(&data.dst)
        && reached.fault.is_none()
        && let Err(e) = data.dst.sync_data()
    {
        (reached.at, reached.fault) = (order.from, Some(Fault::Write(e)));
    }
    Ok(reached)
}

/// Whether all that see it are on this host: elsewhere, what is written is to be pushed to the servers before another
/// host goes on with the file.
fn local(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|fs| LASTING.contains(&(fs.f_type as u64)))
}

/// Has a file lie where another host finds it even if this one fails.
fn sync(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    if local(&file) { Ok(()) } else { file.sync_data() }
}
