//! Which rank this process is, and its place among the others: MPI is started, used and ended by one
//! thread of its own, and by nobody else.

use super::super::options::Options;
use super::super::run::Run;
use super::link::Link;
use super::message::Hello;
use super::mpi::World;
use super::queue::Far;
use super::{digest, manager, worker};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Where launchers tell a process its rank, before MPI does.
const VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

pub enum Role {
    /// There are no others.
    Alone(Box<Options>),
    /// Rank 0.
    First(Box<Options>, Seat),
    /// Another rank, which has done its part.
    Done(ExitCode),
    /// It cannot be started; a message.
    Failed(String),
}

/// Rank 0's place. Dropped, it ends the other ranks.
pub struct Seat {
    pub far: Arc<Far>,
    hello: Hello,
    jobs: Option<Sender<Job>>,
    /// Gone when the thread has ended MPI.
    over: Receiver<()>,
}

/// How long the end of MPI may take: a rank that is stopped in it would hold up rank 0 for ever.
const OVER_WAIT: Duration = Duration::from_secs(20);

enum Job {
    Work(Box<Options>, [u8; 32]),
    Manage(Arc<Run>, Arc<Far>, Hello),
}

/// Whether this process is to keep quiet about a command line that rank 0 complains of, too.
pub fn silent(args: &[OsString]) -> bool {
    let asked = args.iter().any(|arg| arg.as_bytes().starts_with(b"--mp"));
    let rank = || VARIABLES.iter().find_map(std::env::var_os);
    asked && rank().is_some_and(|rank| rank != "0")
}

/// What this process is to do. The work of another rank is done when this returns.
pub fn role(options: Box<Options>, args: &[OsString]) -> Role {
    if !options.own.mpi {
        return Role::Alone(options);
    }
    begin(options, args, World::start, World::end)
}

fn begin<L: Link + 'static>(
    options: Box<Options>,
    args: &[OsString],
    start: fn() -> Result<(L, usize), String>,
    end: fn(L, bool),
) -> Role {
    let (told, known) = bounded(1);
    let (jobs, job) = bounded(1);
    let (ending, over) = bounded::<()>(1);
    let serve = move || {
        let _ending = ending;
        match start() {
            Err(why) => drop(told.send(Err(why))),
            Ok((mut link, rank)) => {
                let alone = link.size() == 1;
                drop(told.send(Ok((rank, alone))));
                let all = serve(&mut link, rank, &job);
                end(link, all);
            }
        }
    };
    let thread = match std::thread::Builder::new().name("ranks".into()).spawn(serve) {
        Ok(thread) => thread,
        Err(e) => return Role::Failed(crate::gnu::diag::reason(&e)),
    };
    let arguments = digest::of(args);
    match known.recv() {
        Err(_) => Role::Failed("MPI does not start".into()),
        Ok(Err(why)) => Role::Failed(why),
        Ok(Ok((0, alone))) => {
            let far = Arc::new(Far::default());
            let hello = hello(&options, arguments);
            let seat = Seat { far, hello, jobs: Some(jobs), over };
            if alone { Role::Alone(options) } else { Role::First(options, seat) }
        }
        Ok(Ok(_)) => {
            let sent = jobs.send(Job::Work(options, arguments)).is_ok();
            let served = thread.join().is_ok();
            // What rank 0 has not been told of, it has noticed: this rank's code says no more.
            Role::Done(if sent && served { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn serve<L: Link>(link: &mut L, rank: usize, job: &Receiver<Job>) -> bool {
    match job.recv() {
        Ok(Job::Work(options, arguments)) => worker::serve(link, *options, arguments),
        Ok(Job::Manage(run, far, hello)) => manager::serve(link, run, far, hello),
        Err(_) if rank == 0 => manager::dismiss(link),
        Err(_) => false,
    }
}

/// What other ranks are to have in common with this one.
pub fn hello(options: &Options, arguments: [u8; 32]) -> Hello {
    let names = options.operands.iter().chain(&options.target);
    let relative = |name: &OsString| !name.as_bytes().starts_with(b"/");
    let needed = options.own.read_stdin || names.into_iter().any(relative);
    let directory = needed.then(std::env::current_dir).and_then(Result::ok);
    let ino = || super::super::stat::Stat::follow(".".as_ref()).map_or(0, |st| st.ino);
    Hello {
        program: env!("CARGO_PKG_VERSION").into(),
        arguments,
        directory: directory.map(|directory| (directory, ino())),
        umask: super::super::attrs::Process::new().umask,
        user: rustix::process::geteuid().as_raw(),
    }
}

impl Seat {
    /// The other ranks begin.
    pub fn start(&self, run: &Arc<Run>) {
        run.engine.lend();
        let job = Job::Manage(run.clone(), self.far.clone(), self.hello.clone());
        if let Some(jobs) = &self.jobs {
            // Where nobody takes it, there are no others.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.far.end();
        self.jobs = None;
        // Nothing is ever sent: it ends when the thread does, also by a panic, which has been told.
        let _ = self.over.recv_timeout(OVER_WAIT);
    }
}
