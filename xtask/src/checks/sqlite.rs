//! SQLite with its write-ahead log and its rollback journals; the local file system says what
//! the outcome has to be.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use anyhow::{Context, Result, ensure};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "sqlite",
    about: "the same workload as on the local file system, writers beside each other, kill -9",
    needs: &[Need::Binary, Need::Apt("sqlite3"), Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

const JOURNALS: &[&str] = &["wal", "delete", "truncate", "persist"];
/// Rows each of two processes adds to one database at the same time.
const SHARED: u64 = 150;

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let local = cx.dir("local")?;
    for journal in JOURNALS {
        cx.case(&format!("workload, journal {journal}"), || {
            let script = workload(journal, cx.size(40, 8));
            let here = run_script(cx, &fs.mnt.join(format!("{journal}.db")), &script)?;
            let there = run_script(cx, &local.join(format!("{journal}.db")), &script)?;
            crate::fs::same("dump", here.as_bytes(), there.as_bytes())
        });
        cx.case(&format!("two writers, journal {journal}"), || two_writers(cx, &fs.mnt, journal));
        cx.case(&format!("killed writer, journal {journal}"), || killed(cx, &fs.mnt, journal));
    }
    cx.case("intact after a restart", || {
        fs.down()?;
        fs.up()?;
        for journal in JOURNALS {
            intact(cx, &fs.mnt.join(format!("{journal}.db")))?;
        }
        Ok(())
    });
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

/// Transactions of inserts, updates, deletes, an index and a vacuum, then a dump.
fn workload(journal: &str, rounds: u32) -> String {
    let mut script = format!(
        "pragma journal_mode={journal};\npragma synchronous=full;\n\
         create table t(id integer primary key, k integer, v blob);\n\
         create index t_k on t(k);\n"
    );
    for round in 0..rounds {
        script += &format!(
            "begin;\n\
             with recursive n(i) as (select 1 union all select i+1 from n where i < 400)\n\
             insert into t(k, v) select (i * 7919 + {round}) % 1000, \
             cast(printf('%0*d', 20 + (i * 31) % 900, i) as blob) from n;\n\
             update t set v = cast('x' || v as blob) where k % 17 = {round} % 17;\n\
             delete from t where k % 23 = {round} % 23;\n\
             {};\n",
            if round % 7 == 6 { "rollback" } else { "commit" }
        );
    }
    script += "vacuum;\npragma integrity_check;\n.dump\n";
    script
}

fn run_script(cx: &Cx, database: &Path, script: &str) -> Result<String> {
    let out = cx.cmd("sqlite3").arg("-bail").arg(database).input(script).limit(200).ok()?;
    let text = out.text();
    ensure!(text.lines().nth(1) == Some("ok"), "integrity_check:\n{}", out.tail());
    Ok(text)
}

fn intact(cx: &Cx, database: &Path) -> Result<()> {
    let out = cx.cmd("sqlite3").arg(database).arg("pragma integrity_check").ok()?.text();
    ensure!(out.trim() == "ok", "{}: {out}", database.display());
    Ok(())
}

fn create(cx: &Cx, database: &Path, journal: &str) -> Result<()> {
    let text = format!("pragma journal_mode={journal}; create table t(who text, n integer);");
    cx.cmd("sqlite3").arg("-bail").arg(database).arg(text).ok()?;
    Ok(())
}

/// `.timeout` and one transaction a row, so that the two have to lock each other out.
fn rows(who: &str, count: u64) -> String {
    let mut script = String::from(".timeout 60000\n");
    for n in 0..count {
        script += &format!("begin immediate; insert into t values('{who}', {n}); commit;\n");
    }
    script
}

fn two_writers(cx: &Cx, dir: &Path, journal: &str) -> Result<()> {
    let database = dir.join(format!("shared-{journal}.db"));
    create(cx, &database, journal)?;
    let count = cx.size(SHARED, 30);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let write = |who: &'static str| {
            let database = &database;
            scope.spawn(move || {
                let cmd = crate::proc::Cmd::new("sqlite3").arg("-bail").arg(database);
                cmd.input(rows(who, count)).limit(200).ok().map(|_| ())
            })
        };
        let threads = [write("a"), write("b")];
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Ok(()))).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    let sum = "select count(*), count(distinct who || n) from t";
    let out = cx.cmd("sqlite3").arg(&database).arg(sum).ok()?.text();
    let wanted = format!("{0}|{0}", 2 * count);
    ensure!(out.trim() == wanted, "{} rows instead of {wanted}", out.trim());
    intact(cx, &database)
}

/// kill -9 of a writer: the journal must bring the database back to a whole transaction.
fn killed(cx: &Cx, dir: &Path, journal: &str) -> Result<()> {
    let database = dir.join(format!("killed-{journal}.db"));
    create(cx, &database, journal)?;
    let script = cx.scratch().join(format!("killed-{journal}.sql"));
    std::fs::write(&script, rows("k", 100_000))?;
    let mut writer = cx
        .cmd("sqlite3")
        .arg(&database)
        .arg(format!(".read {}", script.display()))
        .start(&cx.scratch().join("killed.log"))?;
    crate::fs::until("the writer has written", || count(cx, &database).is_ok_and(|n| n >= 20))?;
    writer.kill();
    intact(cx, &database)?;
    let first = count(cx, &database)?;
    cx.cmd("sqlite3").arg(&database).arg("insert into t values('after', 1)").ok()?;
    ensure!(count(cx, &database)? == first + 1, "a row added after the kill is missing");
    Ok(())
}

fn count(cx: &Cx, database: &Path) -> Result<u64> {
    let script = ".timeout 20000\nselect count(*) from t;\n";
    let out = cx.cmd("sqlite3").arg("-bail").arg(database).input(script).quiet().ok()?;
    out.text().trim().parse().context("no count")
}
