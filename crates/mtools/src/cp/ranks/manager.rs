//! Rank 0's side: who has what, who answers, and what happens to the work of those who do not.
//!
//! One thread gives out work and hears of it; a second one finishes what others have copied, so that slow
//! metadata never keeps the first from others. What a rank owes is bounded by [`FILES_MOST`] and its
//! threads. A rank that is silent for too long has its work taken back; it gets no more, and whatever it
//! still says is not believed.

use super::super::run::Run;
use super::link::Link;
use super::message::{
    ENTRIES_MOST, FileEnd, FileOrder, Hello, Message, Outcome, PartEnd, PartOrder,
};
use super::pause::Pause;
use super::queue::{self, Far, Waiting};
use super::wire::NAME_MOST;
use crate::engine::{Fault, Part, Reached, Seen, interrupt};
use crate::gnu::{diag, quote};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files a rank may owe.
pub const FILES_MOST: usize = 2 * ENTRIES_MOST;
/// Chunks a rank may owe: one for each of its threads and this many more, and never more than that.
const PARTS_AHEAD: usize = 2;
const PARTS_MOST: usize = 64;
/// Bytes of the files of one frame, unless one is larger.
const BATCH_BYTES: u64 = 16 << 20;
/// What others have ended and nobody has finished yet.
const ENDS_MOST: usize = 4096;
/// Files a rank may not see before it gets no more.
const UNSEEN_MOST: usize = 4;
/// How long the ranks are waited for at the end.
pub const END_WAIT: Duration = Duration::from_secs(10);

#[derive(PartialEq, Eq, Debug)]
enum State {
    /// Has not answered yet.
    Greeted,
    Ready,
    /// Gets no work, but is there.
    Refused,
    /// Does not answer.
    Lost,
    /// Has said good-bye.
    Gone,
}

struct Worker {
    state: State,
    host: String,
    threads: usize,
    files: HashMap<u64, Waiting>,
    parts: HashMap<u64, Part>,
    heard: Instant,
    asked: bool,
    unseen: usize,
}

/// What others have ended.
enum Ended {
    File(Box<Waiting>, FileEnd),
    Part(Part, Reached),
}

pub struct Manager<'a, L: Link> {
    link: &'a mut L,
    run: Arc<Run>,
    far: Arc<Far>,
    /// By rank; the first is ourselves.
    workers: Vec<Option<Worker>>,
    next: u64,
    silence: Duration,
    ends: Sender<Ended>,
}

/// Serves until all is done. False: a rank does not answer, so that nobody may wait for all of them.
pub fn serve<L: Link>(link: &mut L, run: Arc<Run>, far: Arc<Far>, hello: Hello) -> bool {
    let silence = Duration::from_secs(run.options.own.mpi_timeout as u64);
    let (ends, ended) = bounded(ENDS_MOST);
    let finisher = {
        let run = run.clone();
        std::thread::Builder::new().name("ranks-end".into()).spawn(move || finish(&run, &ended))
    };
    let mut manager = Manager { link, run, far, workers: Vec::new(), next: 0, silence, ends };
    match finisher {
        Ok(finisher) => {
            manager.greet(hello);
            let all = manager.work();
            drop(manager);
            // A panic there has been told.
            let _ = finisher.join();
            all
        }
        Err(e) => {
            diag::error(&format!("cannot start a thread for other ranks: {}", diag::reason(&e)));
            manager.far.close(&manager.run);
            manager.dismiss()
        }
    }
}

/// Ends ranks that were never needed; whether all are there to end.
pub fn dismiss<L: Link>(link: &mut L) -> bool {
    for rank in 1..link.size() {
        link.send(rank, Message::End.encode());
    }
    let (mut pause, end) = (Pause::default(), Instant::now() + END_WAIT);
    let mut left = link.size() - 1;
    while left > 0 && Instant::now() < end {
        match link.receive() {
            Some((_, frame)) => {
                left -= usize::from(matches!(Message::decode(&frame), Ok(Message::Bye)));
            }
            None => std::thread::sleep(pause.next()),
        }
    }
    left == 0
}

fn finish(run: &Arc<Run>, ended: &Receiver<Ended>) {
    for end in ended {
        match end {
            Ended::File(waiting, end) => match end.outcome {
                Outcome::Unseen(_) => queue::here_anew(run, *waiting),
                _ => queue::done(run, *waiting, end),
            },
            Ended::Part(part, reached) => {
                run.counts.elsewhere(0, reached.at.saturating_sub(part.from), reached.moved);
                part.ended(&run.engine, reached);
            }
        }
    }
}

impl<L: Link> Manager<'_, L> {
    fn greet(&mut self, hello: Hello) {
        self.workers.push(None);
        for rank in 1..self.link.size() {
            self.workers.push(Some(Worker {
                state: State::Greeted,
                host: String::new(),
                threads: 0,
                files: HashMap::new(),
                parts: HashMap::new(),
                heard: Instant::now(),
                asked: true,
                unseen: 0,
            }));
            if !self.link.send(rank, Message::Hello(hello.clone()).encode()) {
                self.lose(rank, "cannot be reached");
            }
        }
    }

    fn work(&mut self) -> bool {
        let mut pause = Pause::default();
        loop {
            let mut moved = false;
            while let Some((from, frame)) = self.link.receive() {
                self.hear(from, &frame);
                moved = true;
            }
            moved |= self.give();
            self.watch();
            if self.far.ending() {
                return self.dismiss();
            }
            if moved {
                pause.reset();
            }
            std::thread::sleep(pause.next());
        }
    }

    fn worker(&mut self, rank: usize) -> Option<&mut Worker> {
        self.workers.get_mut(rank).and_then(Option::as_mut)
    }

    fn ready(&self) -> impl Iterator<Item = usize> + use<L> {
        let ready = |w: &Option<Worker>| w.as_ref().is_some_and(|w| w.state == State::Ready);
        let ranks: Vec<_> = (1..self.workers.len()).filter(|n| ready(&self.workers[*n])).collect();
        ranks.into_iter()
    }

    /// Whether anything was given to anybody.
    fn give(&mut self) -> bool {
        let sharers = 2 * (self.ready().count() + 1);
        let mut given = false;
        for rank in self.ready() {
            while self.give_part(rank) {
                given = true;
            }
            given |= self.give_files(rank, sharers);
        }
        given
    }

    fn give_part(&mut self, rank: usize) -> bool {
        let engine = &self.run.engine;
        let Some(Some(worker)) = self.workers.get_mut(rank) else { return false };
        if worker.state != State::Ready
            || worker.parts.len() >= (worker.threads + PARTS_AHEAD).min(PARTS_MOST)
        {
            return false;
        }
        let Some(part) = engine.take_part() else { return false };
        let short = |path: &Path| path.as_os_str().len() <= NAME_MOST;
        let file = part.file().filter(|f| short(&f.src_name) && short(&f.dst_name));
        let Some(file) = file else {
            part.give_back(engine);
            return false;
        };
        self.next += 1;
        let order = PartOrder { id: self.next, from: part.from, to: part.to, file };
        worker.owes();
        worker.parts.insert(self.next, part);
        if !self.link.send(rank, Message::Part(order).encode()) {
            self.lose(rank, "cannot be reached");
        }
        true
    }

    fn give_files(&mut self, rank: usize, sharers: usize) -> bool {
        let Some(Some(worker)) = self.workers.get_mut(rank) else { return false };
        let room = FILES_MOST - worker.files.len().min(FILES_MOST);
        // Few at a time would be many frames.
        if worker.state != State::Ready || room < ENTRIES_MOST / 2 {
            return false;
        }
        let taken = self.far.take(room.min(ENTRIES_MOST), sharers, BATCH_BYTES);
        if taken.is_empty() {
            return false;
        }
        worker.owes();
        let mut orders = Vec::new();
        for waiting in taken {
            self.next += 1;
            orders.push(order(self.next, &waiting));
            worker.files.insert(self.next, waiting);
        }
        if !self.link.send(rank, Message::Files(orders).encode()) {
            self.lose(rank, "cannot be reached");
        }
        true
    }

    fn hear(&mut self, from: usize, frame: &[u8]) {
        let Some(worker) = self.worker(from) else { return };
        if matches!(worker.state, State::Lost) {
            return;
        }
        worker.heard = Instant::now();
        worker.asked = false;
        match Message::decode(frame) {
            Err(wrong) => self.lose(from, &format!("sent what is no message: {wrong}")),
            Ok(Message::Ready(host, threads)) => {
                (worker.host, worker.threads) = (host, usize::from(threads));
                if worker.state == State::Greeted {
                    worker.state = State::Ready;
                }
            }
            Ok(Message::Refuse(host, why)) => {
                (worker.host, worker.state) = (host, State::Refused);
                self.tell(from, &format!("{why}; it gets no work"));
            }
            Ok(Message::FileEnds(ends)) => ends.into_iter().for_each(|end| self.file(from, end)),
            Ok(Message::PartEnd(end)) => self.part(from, end),
            Ok(Message::Pong) => {}
            Ok(Message::Bye) => worker.state = State::Gone,
            Ok(_) => self.lose(from, "sent what only rank 0 says"),
        }
    }

    fn file(&mut self, from: usize, end: FileEnd) {
        let waiting = self.worker(from).and_then(|w| w.files.remove(&end.id));
        // One it does not owe (any more) is not believed.
        let Some(waiting) = waiting else { return };
        if let Outcome::Unseen(errno) = end.outcome {
            self.unseen(from, &waiting.item.src, &waiting.item.dst, errno);
        }
        self.settle(Ended::File(Box::new(waiting), end));
    }

    fn part(&mut self, from: usize, end: PartEnd) {
        let part = self.worker(from).and_then(|w| w.parts.remove(&end.id));
        let Some(part) = part else { return };
        let (reached, file) = (end.reached, part.file());
        let told = matches!(&reached.fault, Some(fault) if !matches!(fault, Fault::Interrupted));
        if end.outcome == Outcome::Done
            && (told || reached.fault.is_none() && reached.at == part.to)
        {
            return self.settle(Ended::Part(part, reached));
        }
        // Also what it says of a source that has ended there is for us to see.
        part.give_back(&self.run.engine);
        if let (Outcome::Unseen(errno), Some(file)) = (end.outcome, file) {
            self.unseen(from, &file.src_name, &file.dst_name, errno);
        }
    }

    fn settle(&self, end: Ended) {
        // The other end lives as long as this one.
        let _ = self.ends.send(end);
    }

    /// A rank does not see what is here; where it is here indeed, that counts.
    fn unseen(&mut self, rank: usize, src: &Path, dst: &Path, errno: i32) {
        let (dir, _) = super::super::same::split(dst);
        if errno == libc::EINTR || !src.exists() || !dir.exists() {
            return;
        }
        let Some(worker) = self.worker(rank) else { return };
        worker.unseen += 1;
        if worker.unseen == UNSEEN_MOST && worker.state == State::Ready {
            worker.state = State::Refused;
            let why = format!(
                "does not see {}, or where it is copied to, as rank 0 does: {}; it gets no more work: mount \
                 both sides there as here",
                quote::always(src),
                diag::strerror(errno)
            );
            self.tell(rank, &why);
        }
    }

    /// Asks who is silent, and takes back what he owes who is silent for too long.
    fn watch(&mut self) {
        let now = Instant::now();
        if interrupt::pending() {
            // Whatever is under way ends here; whoever sent the signal knows.
            (1..self.workers.len()).for_each(|rank| self.forsake(rank));
            return;
        }
        for rank in 1..self.workers.len() {
            let silence = self.silence;
            let Some(worker) = self.worker(rank) else { continue };
            let owes = !worker.files.is_empty() || !worker.parts.is_empty();
            if !(owes && worker.state != State::Lost || worker.state == State::Greeted) {
                continue;
            }
            let silent = now.saturating_duration_since(worker.heard);
            if silent > silence {
                let why = format!("has not answered for {} s", silence.as_secs());
                self.lose(rank, &why);
            } else if silent > silence / 4 && !worker.asked {
                worker.asked = true;
                if !self.link.send(rank, Message::Ping.encode()) {
                    self.lose(rank, "cannot be reached");
                }
            }
        }
        if self.workers.iter().flatten().all(|w| {
            matches!(w.state, State::Lost | State::Gone | State::Refused)
                && w.files.is_empty()
                && w.parts.is_empty()
        }) {
            self.far.close(&self.run);
        }
    }

    fn lose(&mut self, rank: usize, why: &str) {
        let Some(worker) = self.worker(rank) else { return };
        if worker.state == State::Lost {
            return;
        }
        let owed = worker.files.len() + worker.parts.len();
        let rest = if owed > 0 { "; what it had is given out again" } else { "" };
        self.tell(rank, &format!("{why}{rest}"));
        self.forsake(rank);
    }

    /// Takes back what a rank has, and waits for it no more.
    fn forsake(&mut self, rank: usize) {
        let Some(worker) = self.worker(rank) else { return };
        worker.state = State::Lost;
        let files: Vec<_> = worker.files.drain().map(|(_, waiting)| waiting).collect();
        let parts: Vec<_> = worker.parts.drain().map(|(_, part)| part).collect();
        self.far.again(&self.run, files);
        for part in parts {
            part.give_back(&self.run.engine);
        }
    }

    fn tell(&mut self, rank: usize, what: &str) {
        let Some(worker) = self.worker(rank) else { return };
        let host = &worker.host;
        let place = if host.is_empty() { String::new() } else { format!(" on {host}") };
        diag::error(&format!("warning: rank {rank}{place}: {what}"));
    }

    /// Has all ranks end; false where one does not answer.
    fn dismiss(&mut self) -> bool {
        for rank in 1..self.link.size() {
            if self.worker(rank).is_none_or(|w| w.state != State::Lost) {
                self.link.send(rank, Message::End.encode());
            }
        }
        let there = |w: &Worker| !matches!(w.state, State::Lost | State::Gone);
        let (mut pause, end) = (Pause::default(), Instant::now() + END_WAIT.min(self.silence));
        while self.workers.iter().flatten().any(there) && Instant::now() < end {
            match self.link.receive() {
                Some((from, frame)) => self.hear(from, &frame),
                None => std::thread::sleep(pause.next()),
            }
        }
        self.workers.iter().flatten().all(|w| w.state == State::Gone)
    }
}

impl Worker {
    /// It is about to owe something: silence counts from now.
    fn owes(&mut self) {
        if self.files.is_empty() && self.parts.is_empty() {
            self.heard = Instant::now();
            self.asked = false;
        }
    }
}

fn order(id: u64, waiting: &Waiting) -> FileOrder {
    let (item, st) = (&waiting.item, &waiting.item.st);
    let mtime = (st.mtime.tv_sec, st.mtime.tv_nsec);
    FileOrder {
        id,
        anew: waiting.anew,
        seen: Seen { ino: st.ino, size: st.size, mtime },
        src: item.src.clone(),
        dst: item.dst.clone(),
    }
}
