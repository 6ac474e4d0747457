//! What each thread does, without its registers: a step machine.
//!
//! Invariant: a thread is `Ready` exactly if the policy was told and has not given it since.

use alloc::boxed::Box;
use alloc::vec::Vec;

use abi::ExceptionInfo;

use crate::policy::Policy;

/// Most threads of a program, ended ones that nobody joined included.
pub const THREADS_MAX: usize = 4096;

/// Names a thread of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub usize);

/// How a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned this.
    Returned(u64),
    /// It did what the processor or the kernel refuses.
    Faulted(ExceptionInfo),
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are 4096 threads. Remedy: join some.
    TooMany,
    /// No such thread, or somebody has joined it.
    NotFound,
    /// A thread joins itself, or somebody else waits to join it.
    Busy,
    /// The kernel's reason: no memory for a stack, or another build of it.
    Kernel(abi::Error),
}

/// What a thread does.
///
/// | from | by what | to |
/// |---|---|---|
/// | `Ready` | the policy gives it (`pick`) | `Running` |
/// | `Running` | `yield_now` | `Ready` |
/// | `Running` | `block`, and it was not woken before | `Blocked` |
/// | `Running` | `join` of one that has not ended | `Joining` |
/// | `Running` | `end` | `Ended` |
/// | `Blocked` | `wake` | `Ready` |
/// | `Joining` | the other ends | `Ready` |
///
/// One that was joined is gone. Each change asserts the state that it begins from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Running,
    Blocked,
    Joining(ThreadId),
    Ended(Outcome),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: State,
    /// It was woken before it blocked.
    is_woken: bool,
    joiner: Option<ThreadId>,
}

/// The threads of a program.
pub struct Table {
    entries: Vec<Option<Entry>>,
    policy: Box<dyn Policy>,
    current: Option<ThreadId>,
}

impl Table {
    pub fn new(policy: Box<dyn Policy>) -> Table {
        Table { entries: Vec::new(), policy, current: None }
    }

    pub fn current(&self) -> Option<ThreadId> {
        self.current
    }

    /// How many have not ended.
    pub fn living(&self) -> usize {
        let ended = |entry: &&Entry| !matches!(entry.state, State::Ended(_));
        self.entries.iter().flatten().filter(ended).count()
    }

    /// Whether it will not run again.
    pub fn has_ended(&self, thread: ThreadId) -> bool {
        let entry = self.entries.get(thread.0).and_then(Option::as_ref);
        entry.is_none_or(|entry| matches!(entry.state, State::Ended(_)))
    }

    fn entry(&mut self, thread: ThreadId) -> Option<&mut Entry> {
        self.entries.get_mut(thread.0)?.as_mut()
    }

    /// A new thread that is ready.
    pub fn add(&mut self) -> Result<ThreadId, Refused> {
        let free = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        if free == THREADS_MAX {
            return Err(Refused::TooMany);
        }
        if free == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[free] = Some(Entry { state: State::Ready, is_woken: false, joiner: None });
        self.policy.reserve(self.entries.len());
        self.policy.ready(ThreadId(free));
        Ok(ThreadId(free))
    }

    /// Who runs now.
    pub fn pick(&mut self) -> Option<ThreadId> {
        debug_assert!(self.current.is_none());
        let thread = self.policy.next()?;
        let entry = self.entry(thread).expect("the policy gives what it was told");
        assert!(entry.state == State::Ready, "the policy gave a thread that was not ready");
        entry.state = State::Running;
        self.current = Some(thread);
        Some(thread)
    }

    /// The current thread stops running and is in `state` from now on.
    fn stop(&mut self, state: State) -> Option<&mut Entry> {
        let thread = self.current.take()?;
        let entry = self.entry(thread)?;
        assert!(entry.state == State::Running, "a thread stops that does not run");
        entry.state = state;
        if state == State::Ready {
            self.policy.ready(thread);
        }
        self.entry(thread)
    }

    /// The current thread yields.
    pub fn yield_now(&mut self) {
        self.stop(State::Ready);
    }

    /// The current thread waits to be woken; `false`: it was, before.
    pub fn block(&mut self) -> bool {
        let Some(current) = self.current else { return false };
        let was_woken = self.entry(current).is_some_and(|entry| core::mem::take(&mut entry.is_woken));
        if !was_woken {
            self.stop(State::Blocked);
        }
        !was_woken
    }

    /// Wakes a thread, or lets its next `block` pass. A thread that ended is no error.
    pub fn wake(&mut self, thread: ThreadId) -> Result<(), Refused> {
        let entry = self.entry(thread).ok_or(Refused::NotFound)?;
        if entry.state == State::Blocked {
            entry.state = State::Ready;
            self.policy.ready(thread);
        } else {
            entry.is_woken = true;
        }
        Ok(())
    }

    /// The current thread waits for the end of another. `Some`: it has ended, and its entry is
    /// free. `None`: it waits; to be asked again.
    pub fn join(&mut self, other: ThreadId) -> Result<Option<Outcome>, Refused> {
        let current = self.current;
        let entry = self.entry(other).ok_or(Refused::NotFound)?;
        if let State::Ended(outcome) = entry.state {
            if entry.joiner.is_some() && entry.joiner != current {
                return Err(Refused::Busy);
            }
            self.entries[other.0] = None;
            return Ok(Some(outcome));
        }
        if current == Some(other) || entry.joiner.is_some() {
            return Err(Refused::Busy);
        }
        // Outside of threads there is nobody to wait.
        let Some(current) = current else { return Ok(None) };
        entry.joiner = Some(current);
        self.stop(State::Joining(other));
        Ok(None)
    }

    /// The current thread has ended.
    pub fn end(&mut self, outcome: Outcome) {
        let joiner = self.stop(State::Ended(outcome)).and_then(|entry| entry.joiner);
        if let Some(joiner) = joiner
            && let Some(entry) = self.entry(joiner)
        {
            assert!(matches!(entry.state, State::Joining(_)), "a thread is joined by one that does not wait");
            entry.state = State::Ready;
            self.policy.ready(joiner);
        }
    }
}
