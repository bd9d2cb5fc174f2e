//! Requests per second and CPU per request from one session to thousands.
//!
//! `plateau [tcp|unix|local (latency only)] [SECONDS] [MAX_SESSIONS]`: an echo service with one shard, and clients
//! that keep 1 or 8 requests in flight per session. The CPU of the server's shard and of all other
//! threads is told apart by `/proc/self/task`.

use pinstripe_net::*;
use proto::mgs::Hello;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Echo {
    worker: std::sync::mpsc::Sender<(Request, Responder)>,
}

/// Answered by another thread, as a metadata target does.
const BY_WORKER: u16 = 0x0902;

impl Service for Echo {
    fn target(&self) -> String {
        "OST0000".into()
    }
    fn fs(&self) -> [u8; 16] {
        [0; 16]
    }
    fn epoch(&self) -> u32 {
        1
    }
    fn open(&self, _: &SessionRef, _: &Hello, _: bool) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
    fn request(&self, _: &SessionRef, request: Request, reply: Responder) {
        if request.header.opcode.get() == BY_WORKER {
            // A closed channel drops the request, which answers it with an error.
            let _ = self.worker.send((request, reply));
            return;
        }
        reply.send(Response::with_bulk(request.body.to_vec(), vec![request.bulk]));
    }
    fn closed(&self, _: &SessionRef, _: Closed) {}
}

/// CPU time of this process's threads by name, in clock ticks.
fn cpu(prefix: &str) -> u64 {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        if head.split_once('(').is_some_and(|(_, name)| name.starts_with(prefix)) {
            let fields: Vec<u64> = tail.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
            ticks += fields.get(12).unwrap_or(&0) + fields.get(13).unwrap_or(&0);
        }
    }
    ticks
}

struct Run {
    stop: AtomicBool,
    done: AtomicU64,
    flying: AtomicU64,
}

fn next(session: Arc<Session>, run: Arc<Run>) {
    if run.stop.load(Relaxed) {
        run.flying.fetch_sub(1, Relaxed);
        return;
    }
    let (again, counted) = (session.clone(), run.clone());
    let done = move |result: Result<Reply, NetError>| {
        if result.is_ok() {
            counted.done.fetch_add(1, Relaxed);
        }
        next(again, counted);
    };
    session.submit(0x0901, vec![7; 128], Vec::new(), Box::new(done));
}

fn measure(
    endpoint: &Endpoint,
    sessions: usize,
    depth: usize,
    time: Duration,
) -> Result<(), NetError> {
    let options = ConnectOptions { target: "OST0000".into(), ..ConnectOptions::default() };
    let sessions = (0..sessions)
        .map(|_| Session::connect(endpoint, options.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let run = Arc::new(Run {
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        flying: AtomicU64::new((sessions.len() * depth) as u64),
    });
    for s in &sessions {
        (0..depth).for_each(|_| next(s.clone(), run.clone()));
    }
    let (shard, client, start) = (cpu("net-shard"), cpu("net-client"), Instant::now());
    let before = run.done.load(Relaxed);
    std::thread::sleep(time);
    let count = run.done.load(Relaxed) - before;
    let seconds = start.elapsed().as_secs_f64();
    let us = |ticks: u64| ticks as f64 * 10_000.0 / count as f64;
    println!(
        "{:>6} sessions x {depth}: {:>9.0} requests/s, server {:>5.1} us CPU, client {:>5.1} us CPU",
        sessions.len(),
        count as f64 / seconds,
        us(cpu("net-shard") - shard),
        us(cpu("net-client") - client),
    );
    run.stop.store(true, Relaxed);
    while run.flying.load(Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn latency(endpoint: &Endpoint, opcode: u16, what: &str) -> Result<(), NetError> {
    let options = ConnectOptions { target: "OST0000".into(), ..ConnectOptions::default() };
    let session = Session::connect(endpoint, options)?;
    let mut batches = Vec::new();
    for _ in 0..60 {
        let start = Instant::now();
        for _ in 0..500 {
            session.call(opcode, vec![7; 128], Vec::new())?;
        }
        batches.push(start.elapsed().as_secs_f64() * 1e6 / 500.0);
    }
    // The scheduler's moods show in the median, the work itself in the best.
    batches.sort_by(f64::total_cmp);
    println!("one caller, {what}: best {:.1}, median {:.1} us a call", batches[0], batches[30]);
    Ok(())
}

/// 1 MiB there and back, eight at a time.
fn bulk(endpoint: &Endpoint) -> Result<(), NetError> {
    let options = ConnectOptions { target: "OST0000".into(), ..ConnectOptions::default() };
    let session = Session::connect(endpoint, options)?;
    let data = bytes::Bytes::from(vec![7u8; 1 << 20]);
    let (shard, client, start) = (cpu("net-shard"), cpu("net-client"), Instant::now());
    let rounds = 1000;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..rounds / 8 {
                    if let Err(e) = session.call(0x0901, Vec::new(), vec![data.clone()]) {
                        eprintln!("bulk: {e}");
                    }
                }
            });
        }
    });
    let gb = rounds as f64 * (1 << 20) as f64 / 1e9;
    let ms = |ticks: u64| ticks as f64 * 10.0 / gb;
    println!(
        "1 MiB both ways: {:.2} GB/s each way; CPU per GB: server {:.0} ms, client {:.0} ms",
        gb / start.elapsed().as_secs_f64(),
        ms(cpu("net-shard") - shard),
        ms(cpu("net-client") - client),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |n: usize, default: &str| args.get(n).map_or(default, String::as_str).to_string();
    let time = Duration::from_secs_f64(arg(1, "1").parse()?);
    let most: usize = arg(2, "8192").parse()?;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let server = Server::new(ServerOptions { shards: 1, ..ServerOptions::default() });
    let (worker, work) = std::sync::mpsc::channel::<(Request, Responder)>();
    std::thread::spawn(move || {
        for (request, reply) in work {
            reply.send(Response::ok(request.body.to_vec()));
        }
    });
    server.add(Arc::new(Echo { worker }));
    let dir = std::env::temp_dir().join(format!("plateau-{}", std::process::id()));
    let endpoint = match arg(0, "unix").as_str() {
        "tcp" => Endpoint::Tcp("127.0.0.1:0".into()),
        "local" => Endpoint::Local(server.local()),
        _ => Endpoint::Unix(dir.join("socket")),
    };
    let endpoint = server.listen(&endpoint)?;
    latency(&endpoint, 0x0901, "answered inline")?;
    latency(&endpoint, BY_WORKER, "answered by another thread")?;
    if matches!(endpoint, Endpoint::Local(_)) {
        // An inline answer comes on the caller's own thread: there is nothing to overlap.
        return Ok(());
    }
    bulk(&endpoint)?;
    for depth in [1, 8] {
        for sessions in [1, 16, 256, 2048, 8192] {
            if sessions <= most {
                measure(&endpoint, sessions, depth, time)?;
            }
        }
    }
    server.shutdown();
    if dir.exists() {
        std::fs::remove_dir(&dir)?;
    }
    Ok(())
}
