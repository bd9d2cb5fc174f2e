//! Measures a fjall store: records/s at several commit sizes, reopening, and memory when idle.
//!
//! `commit_rate DIR [RECORDS] [IN_FLIGHT]`: DIR must not exist and is left behind. Records have keys of 24
//! bytes and values of 150, as a create has; keys come in 64 rising sequences, as from 64 directories.

use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use pinstripe_store::fjall_engine::{FjallOptions, acquire, format};
use pinstripe_store::{Commit, Store, StoreError, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: commit_rate DIR [RECORDS] [IN_FLIGHT]")?;
    let records: u64 = args.next().map_or(Ok(500_000), |a| a.parse())?;
    let in_flight: usize = args.next().map_or(Ok(4), |a| a.parse())?;
    let dir = Path::new(&dir);
    let options = FjallOptions::default();
    println!("resident before:      {} KiB", resident_kib());
    format(dir, &options)?;
    let mut last = 0;
    {
        let store = acquire(dir, "commit_rate", 0, &options)?;
        println!("resident when empty:  {} KiB", resident_kib());
        for size in [100, 1000, 5000] {
            last = run(store.as_ref(), last, records, size, in_flight)?;
        }
        println!("used on disk:         {} KiB", store.usage()?.used / 1024);
        store.close()?;
    }
    println!("resident when closed: {} KiB", resident_kib());
    let begin = Instant::now();
    let store = acquire(dir, "commit_rate", last, &options)?;
    println!("reopened in           {:?}", begin.elapsed());
    println!("resident reopened:    {} KiB", resident_kib());
    let begin = Instant::now();
    let found = store.scan(b"", None, 200_000)?.len();
    println!("cold scan:            {:.0} entries/s", found as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

/// Commits `records` in groups of `size`, with up to `in_flight` submitted and not yet done.
fn run(
    store: &dyn Store,
    mut last: u64,
    records: u64,
    size: u64,
    in_flight: usize,
) -> Result<u64, StoreError> {
    let (tx, rx) = mpsc::channel();
    let wait = || rx.recv().unwrap_or(Err(StoreError::Closed));
    let begin = Instant::now();
    let mut pending = 0;
    let end = last + records;
    while last < end {
        let writes: Vec<_> = (last..last + size).map(record).collect();
        let commit = Commit { prev_last: last, last: last + size, writes: writes.into() };
        last += size;
        if pending == in_flight {
            wait()?;
            pending -= 1;
        }
        let tx = tx.clone();
        store.submit(commit, Box::new(move |outcome| drop(tx.send(outcome))));
        pending += 1;
    }
    for _ in 0..pending {
        wait()?;
    }
    let rate = records as f64 / begin.elapsed().as_secs_f64();
    println!("{size:>5} per commit:     {rate:.0} records/s");
    Ok(last)
}

fn record(n: u64) -> Write {
    let mut key = Vec::with_capacity(24);
    key.extend_from_slice(&(n % 64).to_be_bytes());
    key.extend_from_slice(&[0; 8]);
    key.extend_from_slice(&n.to_be_bytes());
    Write::Put(key, vec![n as u8; 150])
}

/// Memory of this process that is in RAM.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
