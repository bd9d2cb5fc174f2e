//! A large file that all threads copy chunk by chunk.
//!
//! Chunks end in any order, therefore the last bytes wait until all chunks are whole: until then the
//! destination is shorter than its source, whatever happens. After an error it is cut to what is whole
//! from its start.

use super::lanes::{self, Lanes};
use super::parts::{PartFile, Seen};
use super::plan::Plan;
use super::pool::Shared;
use super::range::{Range, Reached};
use super::{Copied, Data, Done, Engine, Fault, interrupt, whole};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most chunks of a file; larger chunks are cut where there would be more.
pub const CHUNKS_MAX: u64 = 1 << 16;
/// Bytes held back until everything before them is whole.
pub const TAIL: u64 = 1 << 20;

/// One file under way.
pub struct Chunks {
    /// Gone when the file has ended.
    data: RwLock<Option<Data>>,
    plan: Plan,
    /// Bytes of a chunk, and where the tail begins.
    chunk: u64,
    tail: u64,
    count: u64,
    stop: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Those not given out yet: none behind one that failed, or where the source has become shorter.
    lanes: Lanes,
    /// Given out, and given back by one who has not copied them.
    returned: Vec<u64>,
    /// Chunks under way.
    open: u64,
    /// Of each chunk: up to where it is whole.
    whole: Vec<u64>,
    /// Sum of all ranges.
    sum: Reached,
    /// With the place where it happened: the first one counts.
    fault: Option<(u64, Fault)>,
    copied: Copied,
    done: Option<Done>,
}

impl Chunks {
    /// Of a plan longer than `split` bytes.
    pub fn new(data: Data, plan: Plan, split: u64, copied: Copied, done: Done) -> Self {
        interrupt::watch();
        let grain = TAIL.min(split);
        let tail = plan.start + plan.len().saturating_sub(1) / grain * grain;
        let body = tail - plan.start;
        let (split, lanes) = lanes::along(&data.dst, split, plan.start);
        let chunk = split.max(body.div_ceil(CHUNKS_MAX).next_multiple_of(grain));
        let count = body.div_ceil(chunk);
        let state = State {
            // Longer chunks than stripes belong to no lane.
            lanes: Lanes::new(if chunk == split { lanes } else { 1 }, count),
            returned: Vec::new(),
            open: 0,
            whole: (0..count).map(|n| plan.start + n * chunk).collect(),
            sum: Reached { offloaded: true, ..Reached::default() },
            fault: None,
            copied,
            done: Some(done),
        };
        let (data, state) = (RwLock::new(Some(data)), Mutex::new(state));
        Self { data, plan, chunk, tail, count, stop: AtomicBool::new(false), state }
    }

    pub fn bounds(&self, n: u64) -> (u64, u64) {
        let from = self.plan.start + n * self.chunk;
        (from, (from + self.chunk).min(self.tail))
    }

    /// The next chunk nobody has.
    pub fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        // Those count as under way, also when no more are given out.
        if let Some(n) = state.returned.pop() {
            return Some(n);
        }
        let n = state.lanes.take()?;
        state.open += 1;
        Some(n)
    }

    /// A chunk that was taken and not copied can be taken again.
    pub fn returned(&self, n: u64) {
        self.state.lock().returned.push(n);
    }

    /// What another process must know to copy a chunk.
    pub fn described(&self) -> Option<PartFile> {
        let data = self.data.read();
        let data = data.as_ref()?;
        Some(PartFile {
            src_name: data.src_name.clone(),
            dst_name: data.dst_name.clone(),
            src: Seen::of(&data.src).ok()?,
            dst_ino: Seen::of(&data.dst).ok()?.ino,
            had: self.plan.had,
            end: self.plan.end,
        })
    }

    /// Notes how a chunk ended; `true` when it was the last one.
    fn ended(&self, n: u64, reached: Reached) -> bool {
        let mut state = self.state.lock();
        state.open -= 1;
        state.whole[n as usize] = reached.at;
        state.sum.add(&reached);
        state.lanes.ended(n);
        if reached.fault.is_some() || interrupt::pending() {
            state.lanes.cut(0);
        } else if reached.ended {
            // Those before this one still go to their ends.
            state.lanes.cut(n);
        }
        self.stop.fetch_or(reached.fault.is_some(), Ordering::Relaxed);
        if let Some(fault) = reached.fault
            && state.fault.as_ref().is_none_or(|(at, _)| *at > n)
        {
            state.fault = Some((n, fault));
        }
        state.lanes.is_empty() && state.open == 0
    }

    /// A chunk has ended; with the last one the file is finished.
    pub fn settle(&self, engine: &Engine, n: u64, reached: Reached) {
        if self.ended(n, reached) {
            /// Whoever drains must not wait for a file whose owner's words panicked.
            struct Finished<'a>(&'a Engine);
            impl Drop for Finished<'_> {
                fn drop(&mut self) {
                    self.0.pool().finished();
                }
            }
            let _finished = Finished(engine);
            self.finish(engine);
        }
    }

    fn range<'a>(&'a self, engine: &'a Engine, data: &'a Data) -> Range<'a> {
        Range { engine, data, plan: &self.plan, stop: &self.stop }
    }

    /// A chunk, unless an earlier run has copied it.
    fn part(&self, engine: &Engine, data: &Data, from: u64, to: u64) -> Reached {
        if data.marks.as_deref().is_some_and(|marks| marks.has(from, to)) {
            return Reached { at: to, written: to, ..Reached::default() };
        }
        let reached = self.range(engine, data).copy(from, to);
        note(data, from, to, &reached);
        reached
    }

    /// An earlier run has copied it.
    pub fn known(&self, from: u64, to: u64) -> bool {
        let data = self.data.read();
        let marks = data.as_ref().and_then(|data| data.marks.as_deref());
        marks.is_some_and(|marks| marks.has(from, to))
    }

    /// Another process has copied a chunk, as far as `reached`.
    pub fn note(&self, from: u64, to: u64, reached: &Reached) {
        if let Some(data) = &*self.data.read() {
            note(data, from, to, reached);
        }
    }

    /// The first byte that is not whole.
    fn whole(&self, state: &State) -> u64 {
        let partly = (0..self.count).find(|n| state.whole[*n as usize] < self.bounds(*n).1);
        partly.map_or(self.tail, |n| state.whole[n as usize])
    }

    /// The last bytes, the size, and whom to tell.
    fn finish(&self, engine: &Engine) {
        let (mut sum, fault, mut copied, done) = {
            let mut state = self.state.lock();
            let mut sum = std::mem::take(&mut state.sum);
            sum.at = self.whole(&state);
            (sum, state.fault.take(), state.copied, state.done.take())
        };
        let Some(data) = self.data.write().take() else { return };
        let result = match fault {
            Some((_, fault)) => Err(fault),
            None if interrupt::pending() => Err(Fault::Interrupted),
            None => caught(|| self.last(engine, &data, &mut sum, &mut copied)),
        };
        // What is known of its parts holds as long as nothing is cut away.
        if result.is_err() && data.marks.is_none() {
            whole::cut(&data, &self.plan, sum.at);
        }
        if let Some(done) = done {
            done(data, result.map(|()| copied));
        }
    }

    fn last(
        &self,
        engine: &Engine,
        data: &Data,
        sum: &mut Reached,
        copied: &mut Copied,
    ) -> Result<(), Fault> {
        // A source that became shorter ends where its first short chunk ended.
        sum.ended = sum.at < self.tail;
        if sum.ended {
            whole::cut(data, &self.plan, sum.at);
            sum.written = sum.written.min(sum.at);
        } else {
            let mut reached = self.range(engine, data).copy(self.tail, self.plan.end);
            sum.add(&reached);
            (sum.at, sum.ended) = (reached.at, reached.ended);
            if let Some(fault) = reached.fault.take() {
                return Err(fault);
            }
        }
        whole::end(&self.range(engine, data), sum, copied)
    }
}

impl Shared for Chunks {
    fn help(&self, engine: &Engine) -> bool {
        let Some(n) = self.take() else { return false };
        let (from, to) = self.bounds(n);
        let reached = {
            let data = self.data.read();
            let copy = || match &*data {
                Some(data) => Ok(self.part(engine, data, from, to)),
                None => Err(Fault::Read(io::ErrorKind::NotFound.into())),
            };
            caught(copy).unwrap_or_else(|fault| Reached::failed(from, fault))
        };
        self.settle(engine, n, reached);
        true
    }

    fn more(&self) -> bool {
        !self.state.lock().returned.is_empty()
    }
}

/// For a later run, where all of the chunk is there.
fn note(data: &Data, from: u64, to: u64, reached: &Reached) {
    if reached.at == to
        && reached.fault.is_none()
        && let Some(marks) = &data.marks
    {
        marks.note(from, to);
    }
}

/// A panic becomes the file's fault.
fn caught<T>(body: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Fault::Write(io::Error::other("the copy panicked"))))
}
