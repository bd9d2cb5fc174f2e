//! Tasks that wait for a thread.
//!
//! They go out in the order of their coming, but for those whose directory another thread makes something in
//! already: the kernel lets one create in a directory at a time, so two threads are faster in two directories. Where
//! every directory in sight is busy, the oldest task goes out. Tasks of one directory are never out of order, and a task
//! is only passed over while an earlier one of its directory runs: so one that waits for an earlier one still
//! finds that one started or next in turn. Never runs a task, never waits.

use super::Task;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// The directory a task makes something in. Two that are taken for one are slower, not wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home(u64);

impl Home {
    /// Of what is made under this name.
    pub fn of(name: &Path) -> Self {
        let mut hash = DefaultHasher::new();
        name.parent().map(Path::as_os_str).hash(&mut hash);
        Self(hash.finish())
    }
}

/// Tasks of one directory that came after one another.
struct Group {
    home: Option<Home>,
    tasks: VecDeque<Task>,
}

#[derive(Default)]
pub struct Waiting {
    groups: VecDeque<Group>,
    tasks: usize,
    /// Where running tasks are, each as often as there are any.
    busy: Vec<Home>,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.tasks
    }

    pub fn is_empty(&self) -> bool {
        self.tasks == 0
    }

    pub fn push(&mut self, home: Option<Home>, task: Task) {
        self.tasks += 1;
        match self.groups.back_mut().filter(|last| last.home == home) {
            Some(last) => last.tasks.push_back(task),
            None => self.groups.push_back(Group { home, tasks: VecDeque::from([task]) }),
        }
    }

    /// The next task; where it is stays busy until [`Self::left`].
    pub fn take(&mut self) -> Option<(Option<Home>, Task)> {
        let free = |group: &Group| group.home.is_none_or(|home| !self.busy.contains(&home));
        let at = self.groups.iter().position(free).unwrap_or(0);
        let group = self.groups.get_mut(at)?;
        let (home, task) = (group.home, group.tasks.pop_front()?);
        if group.tasks.is_empty() {
            self.groups.remove(at);
        }
        self.tasks -= 1;
        self.busy.extend(home);
        Some((home, task))
    }

    /// A task that was there has ended.
    pub fn left(&mut self, home: Home) {
        if let Some(at) = self.busy.iter().position(|busy| *busy == home) {
            self.busy.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Settings};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const ANYWHERE: &str = "";

    /// Tasks `(directory, number)`; what comes out by the numbers they tell.
    struct Tried {
        waiting: Waiting,
        engine: Engine,
        told: Arc<AtomicUsize>,
    }

    impl Tried {
        fn new(tasks: &[&str]) -> Self {
            let told = Arc::new(AtomicUsize::new(usize::MAX));
            let mut waiting = Waiting::default();
            for (n, dir) in tasks.iter().enumerate() {
                let told = told.clone();
                waiting.push(home(dir), Box::new(move |_| told.store(n, Ordering::Relaxed)));
            }
            Self { waiting, engine: Engine::new(Settings::default()).unwrap(), told }
        }

        fn take(&mut self) -> Option<usize> {
            let (_, task) = self.waiting.take()?;
            task(&self.engine);
            Some(self.told.load(Ordering::Relaxed))
        }

        fn left(&mut self, dir: &str) {
            self.waiting.left(home(dir).unwrap());
        }
    }

    fn home(dir: &str) -> Option<Home> {
        (dir != ANYWHERE).then(|| Home::of(&Path::new(dir).join("name")))
    }

    #[test]
    fn a_busy_directory_is_passed_over_and_comes_next_when_it_is_free() {
        let mut tried = Tried::new(&["a", "a", "b", "a", "b"]);
        assert_eq!(tried.waiting.len(), 5);
        assert_eq!(tried.take(), Some(0));
        assert_eq!(tried.take(), Some(2), "the other directory");
        tried.left("a");
        assert_eq!(tried.take(), Some(1));
        tried.left("a");
        assert_eq!(tried.take(), Some(3), "a later group of a directory that is free");
        tried.left("b");
        assert_eq!(tried.take(), Some(4));
        assert_eq!(tried.take(), None);
        assert!(tried.waiting.is_empty());
    }

    #[test]
    fn where_all_are_busy_the_oldest_goes() {
        let mut tried = Tried::new(&["a", "a", "a", ANYWHERE]);
        assert_eq!(tried.take(), Some(0));
        assert_eq!(tried.take(), Some(3), "one that is nowhere hinders nobody");
        assert_eq!(tried.take(), Some(1));
        tried.left("a");
        assert_eq!(tried.take(), Some(2), "one of two has left, it is still busy");
        assert_eq!(tried.take(), None);
    }
}
