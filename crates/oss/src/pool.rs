//! A bounded pool of threads for requests that would make a transport thread wait.
//!
//! Role: a job goes straight to a thread that sleeps, to the one that went to sleep last, whose caches
//! are warm; where none sleeps it waits in a queue. Nobody looks for work by spinning: threads that find
//! none sleep at once, because where processors are shared their yields cost more than a wake-up. Never
//! does: hold its lock while a job runs.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Most requests waiting for a thread; above it the transport thread does the work itself, which
/// holds up its peers: back-pressure (invariant 8).
pub const POOL_QUEUE: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Not empty only while no thread sleeps.
    waiting: VecDeque<Job>,
    /// Threads that sleep, the last one to do so at the end.
    asleep: Vec<usize>,
    /// What was given to a thread that slept.
    given: Vec<Option<Job>>,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Vec<Condvar>,
}

/// Threads end when this is dropped and the queue is empty.
pub(crate) struct Pool(Arc<Shared>);

impl Pool {
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<Pool> {
        let threads = threads.max(1);
        let given = (0..threads).map(|_| None).collect();
        let state = Mutex::new(State { given, ..State::default() });
        let wake = (0..threads).map(|_| Condvar::new()).collect();
        // Ends those that were started if one cannot be.
        let pool = Pool(Arc::new(Shared { state, wake }));
        for me in 0..threads {
            let shared = pool.0.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-io{me}"));
            thread.spawn(move || {
                while let Some(job) = shared.next(me) {
                    job();
                }
            })?;
        }
        Ok(pool)
    }

    /// Runs `job` on a thread of the pool, or here when the queue is full.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let job: Job = Box::new(job);
        let mut state = self.0.state.lock();
        if let Some(who) = state.asleep.pop() {
            state.given[who] = Some(job);
            drop(state);
            self.0.wake[who].notify_one();
        } else if state.waiting.len() < POOL_QUEUE {
            state.waiting.push_back(job);
        } else {
            drop(state);
            job();
        }
    }
}

impl Shared {
    /// The next job of thread `me`; none when the pool ended.
    fn next(&self, me: usize) -> Option<Job> {
        let mut state = self.state.lock();
        if let Some(job) = state.waiting.pop_front() {
            return Some(job);
        }
        if state.ended {
            return None;
        }
        state.asleep.push(me);
        loop {
            self.wake[me].wait(&mut state);
            // Whoever gave it also took this thread off those that sleep.
            if let Some(job) = state.given[me].take() {
                return Some(job);
            }
            if state.ended {
                return None;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.wake.iter().for_each(|wake| {
            wake.notify_one();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn every_job_runs_once_also_those_left_when_it_ends() {
        let (say, said) = mpsc::channel();
        let pool = Pool::start("p", 3).unwrap();
        std::thread::scope(|scope| {
            for sender in 0..4u32 {
                let (pool, say) = (&pool, say.clone());
                scope.spawn(move || {
                    for n in 0..2000u32 {
                        let say = say.clone();
                        pool.run(move || say.send(sender * 2000 + n).unwrap());
                    }
                });
            }
        });
        drop((pool, say));
        let mut ran: Vec<u32> = said.iter().collect();
        ran.sort_unstable();
        assert!(ran == (0..8000).collect::<Vec<_>>(), "{} ran", ran.len());
    }

    #[test]
    fn all_threads_work_at_a_time_and_no_more_than_fit_wait() {
        let pool = Pool::start("p", 2).unwrap();
        let (say, said) = mpsc::channel();
        let mut holds = Vec::new();
        for _ in 0..2 {
            let (hold, held) = mpsc::channel::<()>();
            let say = say.clone();
            pool.run(move || {
                say.send(std::thread::current().id()).unwrap();
                let _ = held.recv();
            });
            holds.push(hold);
        }
        let both: HashSet<_> = (0..2).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(both.len(), 2);
        for _ in 0..POOL_QUEUE {
            let say = say.clone();
            pool.run(move || say.send(std::thread::current().id()).unwrap());
        }
        assert!(said.try_recv().is_err(), "they wait");
        let here = say.clone();
        pool.run(move || here.send(std::thread::current().id()).unwrap());
        assert_eq!(said.try_recv().unwrap(), std::thread::current().id(), "it runs at once");
        drop(holds);
        for _ in 0..POOL_QUEUE {
            assert!(both.contains(&said.recv_timeout(PATIENCE).unwrap()));
        }
    }

    #[test]
    fn one_after_the_other_they_run_on_the_same_thread() {
        let pool = Pool::start("p", 4).unwrap();
        let sleep = |all: usize| {
            let end = std::time::Instant::now() + PATIENCE;
            while pool.0.state.lock().asleep.len() < all {
                assert!(std::time::Instant::now() < end, "they sleep");
                std::thread::yield_now();
            }
        };
        let (say, said) = mpsc::channel();
        let mut who = HashSet::new();
        for _ in 0..50 {
            sleep(4);
            let say = say.clone();
            pool.run(move || say.send(std::thread::current().id()).unwrap());
            who.insert(said.recv_timeout(PATIENCE).unwrap());
        }
        assert_eq!(who.len(), 1);
    }
}
