//! What is mounted below a mount, and what is in use there, stays in the tree when the kernel's names are dropped.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, spawn};

use std::sync::Arc;

use crate::common::{Place, Server, can_mount, run, until};

/// A bind mount, taken away with the test.
struct Bound(PathBuf);

impl Bound {
    fn new(from: &Path, to: PathBuf) -> Bound {
        assert!(Command::new("mount").arg("--bind").args([from, &to]).status().unwrap().success());
        Bound(to)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// A process, killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is in use on a mount.
struct Used {
    mnt: PathBuf,
    bound: Vec<Bound>,
    open: File,
    program: Running,
    /// Has a mount namespace of its own and something mounted there only.
    apart: Running,
}

impl Used {
    fn new(mnt: &Path, outside: &Path) -> Used {
        std::fs::create_dir_all(outside).unwrap();
        std::fs::write(outside.join("inside"), "kept").unwrap();
        for dir in ["dir", "a/b/c", "apart"] {
            std::fs::create_dir_all(mnt.join(dir)).unwrap();
        }
        for file in ["file", "a/open"] {
            std::fs::write(mnt.join(file), "covered").unwrap();
        }
        std::fs::copy("/bin/sleep", mnt.join("a/program")).unwrap();
        let bound = vec![
            Bound::new(outside, mnt.join("dir")),
            Bound::new(&outside.join("inside"), mnt.join("file")),
            Bound::new(outside, mnt.join("a/b/c")),
        ];
        let open = File::open(mnt.join("a/open")).unwrap();
        let mut program = Command::new(mnt.join("a/program"));
        let program = Running(program.arg("1000").current_dir(mnt.join("a/b")).spawn().unwrap());
        let mut apart = Command::new("unshare");
        apart.args(["-m", "--propagation", "private", "sh", "-c"]);
        let script = "mount --bind \"$0\" \"$1/apart\" && while read -r n; do cat \"$1/apart/inside\" >\"$0/$n\"; mv \"$0/$n\" \"$0/said-$n\"; done";
        apart.arg(script).args([outside, mnt]).stdin(Stdio::piped());
        let apart = Running(apart.spawn().unwrap());
        let used = Used { mnt: mnt.to_path_buf(), bound, open, program, apart };
        used.is_there(0, outside);
        used
    }

    #[track_caller]
    fn is_there(&self, turn: u32, outside: &Path) {
        use std::io::Write;
        for (name, bound) in ["dir/inside", "file", "a/b/c/inside"].iter().zip(&self.bound) {
            assert_eq!(std::fs::read_to_string(self.mnt.join(name)).unwrap(), "kept", "{name}");
            let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(table.lines().any(|l| l.split(' ').nth(4) == bound.0.to_str()), "{name}");
        }
        let links = [
            (format!("/proc/self/fd/{}", self.open.as_raw_fd()), "a/open"),
            (format!("/proc/{}/exe", self.program.0.id()), "a/program"),
            (format!("/proc/{}/cwd", self.program.0.id()), "a/b"),
        ];
        // The kernel takes what it does not believe out of the tree when it is used.
        let _ = std::fs::metadata(self.mnt.join("a/open"));
        let _ = std::fs::metadata(self.mnt.join("a/program"));
        for (link, name) in links {
            assert_eq!(std::fs::read_link(link).unwrap(), self.mnt.join(name));
        }
        let mut ask = self.apart.0.stdin.as_ref().unwrap();
        writeln!(ask, "{turn}").unwrap();
        let said = outside.join(format!("said-{turn}"));
        until("what is mounted elsewhere", || said.exists());
        assert_eq!(std::fs::read_to_string(said).unwrap(), "kept", "in another namespace");
    }
}

/// What another mount does beside what is mounted is seen at once, although all of it was known.
#[track_caller]
fn seen_at_once(one: &Path, two: &Path, prepared: &str) {
    for dir in ["", "a", "a/b"] {
        let (one, two) = (one.join(dir).join(prepared), two.join(dir).join(prepared));
        std::fs::write(two.join("absent"), "new").unwrap();
        std::fs::rename(two.join("known"), two.join("renamed")).unwrap();
        std::fs::remove_file(two.join("gone")).unwrap();
        std::fs::rename(two.join("moved"), two.join("over")).unwrap();
        assert_eq!(std::fs::read_to_string(one.join("absent")).unwrap(), "new");
        assert!(!one.join("known").exists() && one.join("renamed").exists());
        assert!(!one.join("gone").exists() && !one.join("moved").exists());
        assert_eq!(std::fs::read_to_string(one.join("over")).unwrap(), "first");
        assert!(!one.join("before").exists(), "renamed here, before");
    }
}

/// Names the kernel of a mount then knows: found, listed, made, linked, renamed, and absent.
fn prepare(one: &Path, name: &str) {
    for dir in ["", "a", "a/b"] {
        let dir = one.join(dir).join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("before"), "known").unwrap();
        std::fs::write(dir.join("moved"), "first").unwrap();
        std::fs::write(dir.join("over"), "second").unwrap();
        std::fs::rename(dir.join("before"), dir.join("known")).unwrap();
        std::fs::hard_link(dir.join("known"), dir.join("gone")).unwrap();
        assert!(!dir.join("absent").exists());
        assert_eq!(std::fs::read_dir(&dir).unwrap().flatten().count(), 4);
        for known in ["known", "gone", "moved", "over"] {
            std::fs::metadata(dir.join(known)).unwrap();
        }
    }
}

/// Makes, renames, looks up and removes without end.
fn busy(dir: PathBuf, end: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let end = Arc::clone(end);
    std::fs::create_dir_all(&dir).unwrap();
    let turn = move |n: u32| {
        let (from, to) = (dir.join(format!("f{n}")), dir.join(format!("g{}", n % 7)));
        std::fs::write(&from, "x").unwrap();
        std::fs::rename(&from, &to).unwrap();
        assert!(!from.exists());
        assert!(to.exists());
    };
    spawn(move || (0..).take_while(|_| !end.load(Relaxed)).map(turn).count() as u32)
}

#[test]
fn what_is_mounted_below_stays_when_another_comes_and_when_the_mdt_restarts() {
    if !can_mount() {
        return;
    }
    // SAFETY: it only asks.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("only root makes bind mounts: not tested");
        return;
    }
    let p = Place::new();
    let at = |name: &str| p.dir.path().join(name).to_str().unwrap().to_string();
    let (key, mgs, mdt, ost) = (at("key"), at("mgs"), at("mdt"), at("ost"));
    run(&["format", "--mgs", &mgs, "--mdt", &mdt, "--ost", &ost, "--key", &key]).ok();
    let listen = ["--listen", "127.0.0.1:0", "--key", &key];
    let words = ["--mgs", "--mgs-dir", &mgs, "--ost", &ost];
    let rest = Server::start(&[&words[..], &listen].concat());
    let words = ["--mdt", &mdt, "--mgs-addr", &rest.address];
    let serve_names = || Server::start(&[&words[..], &listen].concat());
    let names = serve_names();

    let (one, two) = (Place::new(), Place::new());
    let mount = |place: &Place| {
        let mnt = place.mnt.to_str().unwrap();
        run(&["mount", &rest.address, mnt, "--key", &key]).ok();
    };
    for place in [&one, &two] {
        std::fs::create_dir(&place.mnt).unwrap();
    }
    mount(&one);
    let outside = p.dir.path().join("outside");
    let used = Used::new(&one.mnt, &outside);

    prepare(&one.mnt, "p1");
    mount(&two);
    used.is_there(1, &outside);
    seen_at_once(&one.mnt, &two.mnt, "p1");
    used.is_there(2, &outside);

    // Alone again, and busy when the next one comes.
    two.down().ok();
    prepare(&one.mnt, "p2");
    let end = Arc::<AtomicBool>::default();
    let all: Vec<_> = ["busy", "a/b/busy"].map(|dir| busy(one.mnt.join(dir), &end)).into();
    mount(&two);
    used.is_there(3, &outside);
    seen_at_once(&one.mnt, &two.mnt, "p2");
    end.store(true, Relaxed);
    assert!(all.into_iter().all(|busy| busy.join().unwrap() > 0));
    used.is_there(4, &outside);

    // A restarted MDT: with two mounts, and with one that has all to itself.
    let again = |names: Server| {
        names.stop();
        let names = serve_names();
        for place in [&one, &two].iter().filter(|place| place.mounted()) {
            until("the MDT", || std::fs::write(place.mnt.join("again"), "again").is_ok());
        }
        names
    };
    let names = again(names);
    used.is_there(5, &outside);
    prepare(&one.mnt, "p3");
    seen_at_once(&one.mnt, &two.mnt, "p3");
    two.down().ok();
    prepare(&one.mnt, "p4");
    let names = again(names);
    used.is_there(6, &outside);
    mount(&two);
    used.is_there(7, &outside);
    seen_at_once(&one.mnt, &two.mnt, "p4");
    used.is_there(8, &outside);

    drop(used);
    for place in [&two, &one] {
        place.down().ok();
    }
    names.stop();
    rest.stop();
}
