//! Callers that are killed while a handler blocks: they go, the handler goes on and hears of it.

use super::*;
use pinstripe_fuse::*;
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};

#[derive(Default)]
struct Seen {
    open: bool,
    entered: Vec<&'static str>,
    /// Whether the kernel took the answer.
    taken: Vec<(&'static str, bool)>,
}

/// One file; what `stuck` names blocks until the gate opens.
struct Stuck {
    stuck: &'static [&'static str],
    seen: Mutex<Seen>,
    gate: Condvar,
}

impl Stuck {
    fn pass<T: Body>(&self, what: &'static str, reply: Reply<T>, value: T) {
        let mut seen = self.seen.lock().unwrap();
        seen.entered.push(what);
        while self.stuck.contains(&what) && !seen.open {
            seen = self.gate.wait(seen).unwrap();
        }
        let taken = reply.deliver(Ok(value));
        seen.taken.push((what, taken));
    }

    fn has_entered(&self, what: &str) -> bool {
        self.seen.lock().unwrap().entered.contains(&what)
    }

    fn taken(&self, what: &str) -> Option<bool> {
        self.seen.lock().unwrap().taken.iter().find(|(w, _)| *w == what).map(|(_, t)| *t)
    }
}

fn attr(ino: u64) -> Attr {
    let mode = if ino == 1 { 0o40_755 } else { 0o100_644 };
    Attr { ino, mode, nlink: 1, size: 100, ..Attr::default() }
}

impl Filesystem for Stuck {
    fn lookup(&self, _: &Request, _: u64, name: &OsStr, reply: Reply<Entry>) {
        if name != "f" {
            return reply.err(Errno::ENOENT);
        }
        let ttl = Duration::from_secs(100);
        let entry =
            Entry { nodeid: 2, generation: 0, entry_ttl: ttl, attr_ttl: ttl, attr: attr(2) };
        reply.ok(entry);
    }

    fn getattr(&self, _: &Request, nodeid: u64, _: Option<u64>, reply: Reply<AttrOut>) {
        reply.ok(AttrOut { attr: attr(nodeid), ttl: Duration::from_secs(100) });
    }

    fn open(&self, _: &Request, _: u64, _: OpenIn, reply: Reply<Open>) {
        self.pass("open", reply, Open { fh: 7, flags: open_flags::DIRECT_IO });
    }

    fn write(&self, _: &Request, _: u64, _: WriteIn, data: WriteData<'_>, reply: Reply<u32>) {
        self.pass("write", reply, data.len() as u32);
    }

    fn flush(&self, _: &Request, _: u64, _: u64, _: u64, reply: Reply<()>) {
        self.pass("flush", reply, ());
    }

    fn release(&self, _: &Request, _: u64, _: ReleaseIn, reply: Reply<()>) {
        reply.ok(());
    }
}

/// Opened whatever comes, or nothing here would ever end.
struct End<'a>(&'a Stuck, Handle, Child);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.seen.lock().unwrap().open = true;
        self.0.gate.notify_all();
        let _ = self.2.kill();
        let _ = self.2.wait();
        let _ = self.1.unmount(true);
    }
}

fn killed_while(stuck: &'static [&'static str]) {
    if !root() {
        return;
    }
    let seen = Mutex::default();
    let fs = Arc::new(Stuck { stuck, seen, gate: Condvar::new() });
    let dir = tempfile::Builder::new().prefix("fuse-kernel-test-").tempdir().unwrap();
    let mount = Mount::new(dir.path(), &options()).unwrap();
    let session = Session::new(fs.clone(), mount, Config::default()).unwrap();
    let (handle, running) = (session.handle(), session.spawn().unwrap());
    // Opens the file and writes to it, without a second descriptor.
    let mut tee = Command::new("tee");
    let tee = tee.arg("-a").arg(dir.path().join("f")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut end = End(&fs, handle, tee.spawn().unwrap());
    let mut input = end.2.stdin.take().unwrap();
    input.write_all(b"something").unwrap();
    drop(input);
    wait_for("the request", || fs.has_entered(stuck[0]));
    end.2.kill().unwrap();
    wait_for("the end of who was killed", || end.2.try_wait().unwrap().is_some());
    drop(end);
    for what in stuck {
        wait_for("the handlers' end", || fs.taken(what).is_some());
        assert_eq!(fs.taken(what), Some(false), "the kernel waited for {what}");
    }
    running.join().unwrap();
}

#[test]
fn a_killed_caller_of_open_is_let_go() {
    killed_while(&["open"]);
}

/// The FLUSH of its open file comes when it is on its way out, where no signal reaches it.
#[test]
fn a_killed_writer_is_let_go_twice() {
    killed_while(&["write", "flush"]);
}

#[test]
fn a_killed_caller_of_flush_is_let_go() {
    killed_while(&["flush"]);
}

/// Who executes a program closes its files where Linux lets nobody read its `/proc/PID/stat`: who looks whether it is
/// dying must not keep its answer back.
#[test]
fn a_caller_that_executes_a_program_is_answered_however_long_it_took() {
    if !root() {
        return;
    }
    let (seen, gate) = (Mutex::default(), Condvar::new());
    let fs = Arc::new(Stuck { stuck: &["flush"], seen, gate });
    let dir = tempfile::Builder::new().prefix("fuse-kernel-test-").tempdir().unwrap();
    let mount = Mount::new(dir.path(), &options()).unwrap();
    let session = Session::new(fs.clone(), mount, Config::default()).unwrap();
    let (handle, running) = (session.handle(), session.spawn().unwrap());
    // What perl opens is closed when it executes another program.
    let run = "open(my $f, '+<', $ARGV[0]) or die; exec 'true'";
    let mut perl = Command::new("perl");
    let child = perl.arg("-e").arg(run).arg(dir.path().join("f")).spawn().unwrap();
    let mut end = End(&fs, handle, child);
    wait_for("the FLUSH", || fs.has_entered("flush"));
    // Several looks of the watch.
    std::thread::sleep(Duration::from_millis(1600));
    fs.seen.lock().unwrap().open = true;
    fs.gate.notify_all();
    wait_for("the program's end", || end.2.try_wait().unwrap().is_some());
    assert_eq!(fs.taken("flush"), Some(true));
    drop(end);
    running.join().unwrap();
}
