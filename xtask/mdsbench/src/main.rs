//! Creates, stats and unlinks per second of one metadata target, straight over the client library:
//! any number of sessions in this process, each with one request at a time, as processes of a
//! cluster have. Prints one JSON object. `cargo xtask bench mds` runs it.

mod load;

use anyhow::{Context, Result};
use clap::Parser;
use client::raw::MdsSession;
use net::{ClusterKey, ConnectOptions, Endpoint, Session};
use proto::mgs::{Config, KIND_MDT};
use proto::{Fid, Wire};
use std::path::PathBuf;
use std::time::Duration;

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
    /// All in one directory instead of one each
    #[arg(long)]
    shared: bool,
    /// Name of the directory to work in; must not exist
    #[arg(long)]
    name: String,
}

fn main() -> Result<()> {
    let args = Args::parse();
    more_files();
    let key = args.key.as_deref().map(ClusterKey::load).transpose()?;
    let (endpoint, fs) = target(&args, key.clone())?;
    let connect = || MdsSession::connect(&endpoint, "MDT0000", fs, key.clone());
    let first = connect()?;
    let base = first.mkdir(Fid::ROOT, args.name.as_bytes()).context("making the directory")?.fid;
    let mut sessions = vec![first];
    while sessions.len() < args.sessions {
        sessions.push(connect().with_context(|| format!("session {}", sessions.len()))?);
    }
    let rates = load::run(sessions, base, args.shared, Duration::from_secs_f64(args.seconds))?;
    println!(
        "{}",
        serde_json::json!({
            "sessions": args.sessions,
            "shared": args.shared,
            "creates": rates.creates,
            "stats": rates.stats,
            "unlinks": rates.unlinks,
            "operations": rates.operations,
        })
    );
    Ok(())
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
