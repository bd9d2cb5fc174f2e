//! Writer and checker on a local directory: nothing is missed, and each kind of damage is seen.

use super::log::{self, Line};
use super::*;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

struct Run {
    dir: tempfile::TempDir,
    log: PathBuf,
}

fn run(seed: u64, ops: u64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("fs")).unwrap();
    let log = dir.path().join("log");
    let options = WriteOptions {
        dir: dir.path().join("fs"),
        log: log.clone(),
        seed,
        threads: 3,
        limit: Duration::from_secs(120),
        ops,
        grace: Duration::from_secs(5),
        syncfs: true,
        seq_file: None,
    };
    let report = write(&options).unwrap();
    assert_eq!((report.odd.len(), report.stuck), (0, 0), "{report:?}");
    assert_eq!(report.done, 3 * ops);
    Run { dir, log }
}

impl Run {
    fn check(&self) -> CheckReport {
        check(&self.dir.path().join("fs"), &self.log, None).unwrap()
    }

    fn top(&self, path: &str) -> PathBuf {
        self.dir.path().join("fs/durable-5").join(path)
    }

    /// A step appended to the log as done, without doing it (or having it begun only).
    fn pretend(&self, step: Step, done: bool) {
        let mut file = OpenOptions::new().append(true).open(&self.log).unwrap();
        let begin = Line::Begin { n: 1 << 40, thread: 0, at: None, step };
        let mut lines = vec![begin];
        lines.extend(done.then_some(Line::Done { n: 1 << 40, thread: 0, at: None }));
        for line in lines {
            writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
        }
    }
}

fn create(path: &str, len: u64) -> Step {
    let path = path.to_string();
    Step::Create { path, len, generation: 7, sync: Sync::Fsync, name_sync: true }
}

#[test]
fn what_was_written_checks() {
    for seed in [1, 2, 3] {
        let report = run(seed, 250).check();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!((report.done, report.open), (750, 0));
        assert!(report.files > 5, "{report:?}");
    }
}

#[test]
fn lost_and_resurrected_names_are_seen() {
    let run = run(5, 20);
    run.pretend(create("t0/lost", 10), true);
    assert_eq!(run.check().violations, ["t0/lost is lost"]);
    File::create(run.top("t0/lost")).unwrap().write_all(&step::data(0, 10, 7)).unwrap();
    assert!(run.check().violations.is_empty());
    run.pretend(Step::Unlink { path: "t0/lost".into() }, true);
    assert_eq!(run.check().violations, ["t0/lost should not be there"]);
}

#[test]
fn damaged_contents_are_seen() {
    let run = run(5, 20);
    run.pretend(create("t0/f", 9000), true);
    let file =
        File::options().read(true).write(true).create_new(true).open(run.top("t0/f")).unwrap();
    let data = step::data(0, 9000, 7);
    file.write_all_at(&data, 0).unwrap();
    assert!(run.check().violations.is_empty());
    file.write_all_at(&[!data[5000]], 5000).unwrap();
    assert!(run.check().violations[0].contains("byte 5000"));
    file.write_all_at(&data, 0).unwrap();
    file.set_len(8999).unwrap();
    assert!(run.check().violations[0].contains("size is 8999"));
    file.set_len(9001).unwrap();
    assert!(run.check().violations[0].contains("size is 9001"));
}

#[test]
fn a_step_under_way_may_have_happened_or_not() {
    let run = run(5, 20);
    let path = "t0/f".to_string();
    run.pretend(create(&path, 6000), true);
    let file =
        File::options().read(true).write(true).create_new(true).open(run.top("t0/f")).unwrap();
    file.write_all_at(&step::data(0, 6000, 7), 0).unwrap();
    let (off, len) = (5000, 4000);
    run.pretend(Step::Write { path, off, len, generation: 9, sync: Sync::Fsync }, false);
    assert!(run.check().violations.is_empty());
    // Half of it arrived.
    let new = step::data(off, len, 9);
    file.write_all_at(&new[..512], off).unwrap();
    assert!(run.check().violations.is_empty());
    // Bytes of nobody.
    file.write_all_at(&[!new[600], !new[601], !new[602]], off + 600).unwrap();
    assert!(!run.check().violations.is_empty());
}

#[test]
fn torn_and_foreign_logs() {
    let run = run(5, 5);
    let mut file = OpenOptions::new().append(true).open(&run.log).unwrap();
    file.write_all(b"{\"Begin\":{\"n\":1").unwrap();
    assert!(run.check().violations.is_empty());
    file.write_all(b"garbage\n").unwrap();
    assert!(log::read(&run.log).is_err());
    std::fs::write(
        &run.log,
        "{\"Run\":{\"version\":9,\"seed\":1,\"threads\":1,\"top\":\"x\",\"at\":null}}\n",
    )
    .unwrap();
    let error = log::read(&run.log).unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
}
