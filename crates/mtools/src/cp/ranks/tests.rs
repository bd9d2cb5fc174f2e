//! Ranks in one process, with channels between them: what each copies, and what happens without one.

use super::super::attrs::Process;
use super::super::options::{Asked, Options, parse};
use super::super::run::Run;
use super::super::target;
use super::link::Link;
use super::message::{FileEnd, Message, Outcome, PartEnd, PartOrder};
use super::queue::Far;
use super::{digest, manager, seat, worker};
use crate::engine::{Engine, Reached};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Channels {
    rank: usize,
    to: Vec<Sender<(usize, Vec<u8>)>>,
    inbox: Receiver<(usize, Vec<u8>)>,
}

impl Channels {
    fn of(ranks: usize) -> Vec<Self> {
        let (to, from): (Vec<_>, Vec<_>) = (0..ranks).map(|_| unbounded()).unzip();
        let link = |(rank, inbox)| Self { rank, to: to.clone(), inbox };
        from.into_iter().enumerate().map(link).collect()
    }
}

impl Link for Channels {
    fn size(&self) -> usize {
        self.to.len()
    }

    fn send(&mut self, to: usize, frame: Vec<u8>) -> bool {
        self.to[to].send((self.rank, frame)).is_ok()
    }

    fn receive(&mut self) -> Option<(usize, Vec<u8>)> {
        self.inbox.try_recv().ok()
    }

    fn flush(&mut self, _: Duration) -> bool {
        true
    }
}

const FILES: usize = 700;
const BIG: usize = (6 << 20) + 777;

fn content(n: usize) -> Vec<u8> {
    let length = if n == 0 { BIG } else { n * 37 % 9000 };
    (0..length).map(|at| (at * 7 + n + at / 251) as u8).collect()
}

fn source(root: &Path) {
    for n in 0..FILES {
        let dir = root.join("src").join(format!("d{}", n % 7));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("f{n}")), content(n)).unwrap();
        if n % 50 == 3 {
            std::fs::hard_link(dir.join(format!("f{n}")), dir.join(format!("twin{n}"))).unwrap();
        }
    }
}

fn check(root: &Path) {
    for n in 0..FILES {
        let dir = root.join("dst").join(format!("d{}", n % 7));
        let name = dir.join(format!("f{n}"));
        assert!(std::fs::read(&name).unwrap() == content(n), "{n}");
        if n % 50 == 3 {
            let twin = dir.join(format!("twin{n}")).metadata().unwrap().ino();
            assert_eq!(name.metadata().unwrap().ino(), twin, "{n}");
        }
    }
}

fn words(root: &Path, more: &[&str]) -> Vec<OsString> {
    let fixed = ["-a", "--split-size=64K", "--mpi-timeout=1"];
    let mut words: Vec<OsString> = fixed.iter().chain(more).map(OsString::from).collect();
    words.extend([root.join("src").into(), root.join("dst").into()]);
    words
}

fn options(words: &[OsString]) -> Options {
    match parse(words, &mut Vec::new()) {
        Asked::Run(options) => *options,
        _ => panic!("{words:?}"),
    }
}

/// What the others are.
type Other = fn(Channels, Options, [u8; 32]);

/// Copies with these others; the run, as it is at the end.
fn copy(root: &Path, more: &[&str], others: &[Other]) -> Arc<Run> {
    let words = words(root, more);
    let arguments = digest::of(&words);
    let mut links = Channels::of(others.len() + 1).into_iter();
    let mut first = links.next().unwrap();
    for (other, link) in others.iter().zip(links) {
        let (other, options) = (*other, options(&words));
        std::thread::spawn(move || other(link, options, arguments));
    }
    let far = Arc::new(Far::default());
    let options = options(&words);
    let (hello, target) = (seat::hello(&options, arguments), target::settle(&options));
    let engine = Engine::new(options.own.engine.clone()).unwrap();
    let run = Arc::new(Run::new(options, Process::new(), engine, None, Some(far.clone())));
    run.engine.lend();
    let manager = {
        let (run, far) = (run.clone(), far.clone());
        std::thread::spawn(move || manager::serve(&mut first, run, far, hello))
    };
    target::copy(&run, target.unwrap_or_else(|(why, _)| panic!("{why}")));
    run.engine.drain();
    far.end();
    manager.join().unwrap();
    assert_eq!(run.engine.panics(), 0);
    run
}

fn works(mut link: Channels, options: Options, arguments: [u8; 32]) {
    worker::serve(&mut link, options, arguments);
}

/// Takes what it gets and never says more.
fn dies(mut link: Channels, _: Options, _: [u8; 32]) {
    link.send(0, Message::Ready("grave".into(), 4).encode());
    // Its end of the channel stays open: nobody can tell but by the silence.
    std::thread::sleep(Duration::from_secs(20));
}

/// Has begun what it got, wrongly, before it died.
fn dies_late(mut link: Channels, _: Options, _: [u8; 32]) {
    link.send(0, Message::Ready("grave".into(), 4).encode());
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if let Some((_, frame)) = link.receive()
            && let Ok(Message::Files(files)) = Message::decode(&frame)
        {
            files.iter().for_each(|order| std::fs::write(&order.dst, b"half").unwrap());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Is a host on which nothing is mounted.
fn sees_nothing(mut link: Channels, _: Options, _: [u8; 32]) {
    link.send(0, Message::Ready("blind".into(), 4).encode());
    answers(&mut link, libc::ENOENT, |part| PartEnd {
        id: part.id,
        outcome: Outcome::Unseen(libc::ENOENT),
        reached: Reached::default(),
    });
}

/// Sees nothing of small files, and says of chunks that they are copied, but not to their ends.
fn half_done(mut link: Channels, _: Options, _: [u8; 32]) {
    link.send(0, Message::Ready("lazy".into(), 4).encode());
    answers(&mut link, libc::EINTR, |part| {
        let reached = Reached { at: part.from + 1, ended: part.id % 2 == 0, ..Reached::default() };
        PartEnd { id: part.id, outcome: Outcome::Done, reached }
    });
}

/// Does not see small files, for this reason, and says what it is told to of chunks.
fn answers(link: &mut Channels, errno: i32, part: fn(&PartOrder) -> PartEnd) {
    let outcome = Outcome::Unseen(errno);
    loop {
        let answer = match link.receive().map(|(_, frame)| Message::decode(&frame).unwrap()) {
            Some(Message::Files(files)) => {
                let end = |id| FileEnd { id, outcome, failed: false, copied: None, lines: vec![] };
                Message::FileEnds(files.iter().map(|order| end(order.id)).collect())
            }
            Some(Message::Part(order)) => Message::PartEnd(part(&order)),
            Some(Message::End) => Message::Bye,
            _ => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        link.send(0, answer.encode());
    }
}

/// Says what is none.
fn babbles(mut link: Channels, _: Options, _: [u8; 32]) {
    link.send(0, Message::Ready("babel".into(), 4).encode());
    std::thread::sleep(Duration::from_millis(5));
    link.send(0, b"PSMRxyz".to_vec());
}

/// Was started with other arguments.
fn differs(mut link: Channels, options: Options, _: [u8; 32]) {
    worker::serve(&mut link, options, [1; 32]);
}

fn elsewhere(run: &Run) -> (u64, u64) {
    run.counts.elsewhere_so_far()
}

#[test]
fn others_copy_files_and_chunks() {
    let dir = tempfile::tempdir().unwrap();
    source(dir.path());
    let run = copy(dir.path(), &["--threads=2"], &[works, works, works]);
    check(dir.path());
    assert!(!run.output.failed());
    let files = FILES as u64;
    assert_eq!(run.counts.so_far(0).files, files);
    assert!(elsewhere(&run).0 > 0, "{:?}", elsewhere(&run));
}

#[test]
fn one_thread_has_others_too() {
    let dir = tempfile::tempdir().unwrap();
    source(dir.path());
    let run = copy(dir.path(), &["--threads=1"], &[works]);
    check(dir.path());
    assert!(!run.output.failed() && elsewhere(&run).0 > 0);
}

#[test]
fn what_the_dead_had_is_done_by_others() {
    for other in [dies as Other, dies_late] {
        let dir = tempfile::tempdir().unwrap();
        source(dir.path());
        let run = copy(dir.path(), &["--threads=2"], &[other, works]);
        check(dir.path());
        assert!(!run.output.failed());
        assert_eq!(run.counts.so_far(0).files, FILES as u64);
    }
}

#[test]
fn alone_with_the_dead_everything_is_done_here() {
    for threads in ["--threads=1", "--threads=3"] {
        let dir = tempfile::tempdir().unwrap();
        source(dir.path());
        let run = copy(dir.path(), &[threads], &[dies]);
        check(dir.path());
        assert!(!run.output.failed());
        assert_eq!(elsewhere(&run), (0, 0));
    }
}

#[test]
fn the_blind_the_mad_and_the_different_do_no_harm() {
    for other in [sees_nothing as Other, half_done, babbles, differs] {
        let dir = tempfile::tempdir().unwrap();
        source(dir.path());
        let run = copy(dir.path(), &["--threads=2"], &[other]);
        check(dir.path());
        assert!(!run.output.failed());
        assert_eq!(elsewhere(&run), (0, 0));
    }
}

/// A failure there is a failure here.
#[test]
fn failures_of_others_are_failures() {
    let dir = tempfile::tempdir().unwrap();
    source(dir.path());
    fn fails(mut link: Channels, _: Options, _: [u8; 32]) {
        link.send(0, Message::Ready("ill".into(), 4).encode());
        loop {
            let answer = match link.receive().map(|(_, frame)| Message::decode(&frame).unwrap()) {
                Some(Message::Files(files)) => {
                    let outcome = Outcome::Failed;
                    let end =
                        |id| FileEnd { id, outcome, failed: true, copied: None, lines: vec![] };
                    Message::FileEnds(files.iter().map(|order| end(order.id)).collect())
                }
                Some(Message::Part(part)) => {
                    let fault = crate::engine::Fault::Read(std::io::ErrorKind::Other.into());
                    let reached = Reached::failed(part.from, fault);
                    Message::PartEnd(PartEnd { id: part.id, outcome: Outcome::Done, reached })
                }
                Some(Message::End) => Message::Bye,
                _ => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            link.send(0, answer.encode());
        }
    }
    let run = copy(dir.path(), &["--threads=1"], &[fails]);
    assert!(run.output.failed());
}
