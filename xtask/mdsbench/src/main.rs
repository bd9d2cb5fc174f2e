//! Creates, stats and unlinks per second of one metadata target, straight over the client library:
//! any number of sessions in this process with one request at a time each, driven by a few threads;
//! each has a socket of its own, as the clients of a cluster have, or those of a thread share one
//! (`--share`), as the sessions of a node can. Before that, how often a message goes to and fro over
//! as many sockets as there are sessions with nothing behind them. Prints one JSON object. `cargo
//! xtask bench mds` runs it.

mod floor;
mod load;

use anyhow::{Context, Result};
use clap::Parser;
use client::raw::MdsSession;
use net::{ClusterKey, ConnectOptions, Endpoint, Session};
use proto::mgs::{Config, KIND_MDT};
use proto::{Fid, Wire};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Sessions that are set up at the same time.
const CONNECTING: usize = 16;

#[derive(Parser)]
struct Args {
    /// Management service: HOST:PORT or unix:/PATH
    #[arg(long)]
    mgs: String,
    /// Cluster key
    #[arg(long)]
    key: Option<PathBuf>,
    /// Sessions
    #[arg(long, default_value_t = 1)]
    sessions: usize,
    /// Seconds of creating, and of stats; unlinking takes as long as it takes
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Threads that drive them
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Process of the target, whose processor time is told, too
    #[arg(long)]
    server: Option<u32>,
    /// All in one directory instead of one each
    #[arg(long)]
    shared: bool,
    /// The sessions of a thread share a connection instead of having one each
    #[arg(long)]
    share: bool,
    /// Name of the directory to work in; must not exist
    #[arg(long)]
    name: String,
}

fn main() -> Result<()> {
    let args = Args::parse();
    more_files();
    net::set_client_threads(args.threads);
    let phase = Duration::from_secs_f64(args.seconds);
    let floor = floor::run(args.sessions, args.threads, phase).context("bare sockets")?;
    let key = args.key.as_deref().map(ClusterKey::load).transpose()?;
    let (endpoint, fs) = target(&args, key.clone())?;
    let open = || {
        MdsSession::connect(&endpoint, "MDT0000", fs, key.clone(), args.share)
            .context("opening a session")
    };
    let first = open()?;
    let base = first.mkdir(Fid::ROOT, args.name.as_bytes()).context("making the directory")?.fid;
    let mut sessions = connect(args.sessions.saturating_sub(1), open)?;
    sessions.push(first);
    let cpu = || {
        (processor_seconds("self"), args.server.map_or(0.0, |p| processor_seconds(&p.to_string())))
    };
    let phases = load::run(sessions, base, args.shared, phase, cpu)?;
    let mut said = serde_json::json!({
        "sessions": args.sessions, "shared": args.shared, "share": args.share,
        "bare_per_second": floor,
    });
    for (name, p) in load::PHASES.iter().zip(phases) {
        let each = |seconds: f64| seconds * 1e6 / p.operations.max(1) as f64;
        said[*name] = serde_json::json!({
            "operations": p.operations,
            "per_second": p.operations as f64 / p.seconds,
            "client_us": each(p.client),
            "server_us": each(p.server),
        });
    }
    println!("{said}");
    // Thousands of sockets close themselves quicker than one after the other.
    std::process::exit(0)
}

/// Opens sessions, some at a time.
fn connect(count: usize, open: impl Fn() -> Result<MdsSession> + Sync) -> Result<Vec<MdsSession>> {
    let left = AtomicUsize::new(count);
    let take = || left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok();
    let some = || -> Result<Vec<MdsSession>> {
        let mut mine = Vec::new();
        while take() {
            mine.push(open()?);
        }
        Ok(mine)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTING).map(|_| scope.spawn(some)).collect();
        let mut all = Vec::with_capacity(count + 1);
        for t in threads {
            all.extend(t.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??);
        }
        Ok(all)
    })
}

/// User and system time of a process, all threads.
fn processor_seconds(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Every session is a descriptor.
fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    // What is refused shows when sessions are opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

/// Where MDT0000 is, and the file system's identity, from the management service.
fn target(args: &Args, key: Option<ClusterKey>) -> Result<(Endpoint, [u8; 16])> {
    let options = ConnectOptions { target: "MGS".into(), key, ..ConnectOptions::default() };
    let mgs = Session::connect(&args.mgs.parse()?, options)?;
    let reply = mgs.call(proto::ops::mgs::CONFIG, Vec::new(), Vec::new())?;
    let config = Config::from_bytes(&reply.body)?;
    mgs.close();
    let mdt = config.targets.0.iter().find(|t| t.kind == KIND_MDT && t.index == 0);
    let address = &mdt.context("no metadata target is known")?.address;
    Ok((address.parse()?, config.fs))
}
