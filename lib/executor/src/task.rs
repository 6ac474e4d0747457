//! Tasks and their wakers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::ptr;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::{Account, account, with};

/// A task as it is kept.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

/// Names a task; stays invalid after the task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId {
    index: u32,
    count: u32,
}

/// The future given to `block_on`.
pub(crate) const MAIN: TaskId = TaskId { index: u32::MAX, count: 0 };

struct Entry {
    /// Raised when the task ends, so that its old wakers mean nothing.
    count: u32,
    live: bool,
    queued: bool,
    /// Who is worked for while it is polled.
    account: Account,
    /// Absent while it is being polled.
    future: Option<BoxedTask>,
}

pub(crate) struct Tasks {
    entries: Vec<Entry>,
    free: Vec<u32>,
    ready: VecDeque<TaskId>,
    main_ready: bool,
}

impl Tasks {
    pub const fn new() -> Tasks {
        Tasks { entries: Vec::new(), free: Vec::new(), ready: VecDeque::new(), main_ready: false }
    }

    fn entry(&mut self, task: TaskId) -> Option<&mut Entry> {
        self.entries.get_mut(task.index as usize).filter(|entry| entry.live && entry.count == task.count)
    }

    pub fn wake(&mut self, task: TaskId) {
        if task == MAIN {
            self.main_ready = true;
        } else if let Some(entry) = self.entry(task)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push_back(task);
        }
    }

    /// Wakes every task there is.
    pub fn wake_all(&mut self) {
        self.main_ready = true;
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.live && !entry.queued {
                entry.queued = true;
                self.ready.push_back(TaskId { index: index as u32, count: entry.count });
            }
        }
    }

    /// A task without a future.
    fn reserve(&mut self, account: Account) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { count: 0, live: false, queued: false, account, future: None });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        (entry.live, entry.queued, entry.account) = (true, false, account);
        TaskId { index, count: entry.count }
    }

    pub fn any_ready(&self) -> bool {
        self.main_ready || !self.ready.is_empty()
    }

    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    pub fn take_main_ready(&mut self) -> bool {
        core::mem::take(&mut self.main_ready)
    }

    /// Who was worked for by some tasks is no more: `to` is.
    pub fn pass_all(&mut self, from: Account, to: Account) {
        let theirs = self.entries.iter_mut().filter(|entry| entry.account == from);
        theirs.for_each(|entry| entry.account = to);
    }

    /// The next ready task that still lives, with its future taken out, and who is worked for.
    fn take_next(&mut self) -> Option<(TaskId, BoxedTask, Account)> {
        while let Some(task) = self.ready.pop_front() {
            if let Some(entry) = self.entry(task) {
                entry.queued = false;
                if let Some(future) = entry.future.take() {
                    return Some((task, future, entry.account));
                }
            }
        }
        None
    }

    /// One that lives.
    #[cfg(not(target_os = "none"))]
    fn any(&self) -> Option<TaskId> {
        let index = self.entries.iter().position(|entry| entry.live)?;
        Some(TaskId { index: index as u32, count: self.entries[index].count })
    }

    fn end(&mut self, task: TaskId) -> Option<BoxedTask> {
        let entry = self.entry(task)?;
        entry.live = false;
        entry.count = entry.count.wrapping_add(1);
        let future = entry.future.take();
        self.free.push(task.index);
        future
    }
}

/// Starts a task; it is polled for the first time after those that are ready now.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> TaskId {
    spawn_boxed(Box::pin(future))
}

/// Starts a task that lies on the heap already.
fn spawn_boxed(future: BoxedTask) -> TaskId {
    with(|executor| {
        let task = executor.tasks.reserve(account::current());
        if let Some(entry) = executor.tasks.entry(task) {
            entry.future = Some(future);
        }
        executor.tasks.wake(task);
        task
    })
}

/// Names a task whose future will come by [`begin`].
pub fn reserve() -> TaskId {
    with(|executor| executor.tasks.reserve(account::current()))
}

/// Starts the reserved task and polls it at once: what needs not wait has ended then. Not to be
/// called from inside a task.
pub fn begin(task: TaskId, future: BoxedTask) {
    poll(task, future);
}

/// Ends a task at the point where it waits. Fine if it has ended.
pub fn abort(task: TaskId) {
    // The future is dropped outside of the borrow: its parts may wake or spawn.
    drop(with(|executor| executor.tasks.end(task)));
}

/// For tests: ends all tasks, as the component's end does.
#[cfg(not(target_os = "none"))]
pub fn abort_all() {
    while let Some(task) = with(|executor| executor.tasks.any()) {
        abort(task);
    }
}

/// Polls the next ready task; false if there is none.
pub(crate) fn poll_next() -> bool {
    let Some((task, future, account)) = with(|executor| executor.tasks.take_next()) else { return false };
    account::work_for(account);
    poll(task, future);
    true
}

fn poll(task: TaskId, mut future: BoxedTask) {
    let waker = waker(task);
    let finished = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
    let over = with(|executor| {
        if finished {
            executor.tasks.end(task);
            return Some(future);
        }
        match executor.tasks.entry(task) {
            Some(entry) => {
                entry.future = Some(future);
                None
            }
            // It was aborted while it ran.
            None => Some(future),
        }
    });
    drop(over);
}

/// A waker without allocation: its data word is the task's name.
pub(crate) fn waker(task: TaskId) -> Waker {
    let word = (task.count as usize) << 32 | task.index as usize;
    let raw = RawWaker::new(ptr::without_provenance(word), &WAKER);
    // SAFETY: the functions of `WAKER` treat the word as a number and never as memory, so they may
    // be called from anywhere, any number of times; called on another thread (hosts only) they
    // reach that thread's executor, where the name means nothing or causes a spurious poll.
    unsafe { Waker::from_raw(raw) }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(|word| RawWaker::new(word, &WAKER), wake, wake, |_| ());

fn wake(word: *const ()) {
    let word = word.addr();
    with(|executor| executor.tasks.wake(TaskId { index: word as u32, count: (word >> 32) as u32 }));
}

/// Lets every other ready task run once.
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// Future of [`yield_now`].
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
