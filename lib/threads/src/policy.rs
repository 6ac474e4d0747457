//! Which thread is next.

use alloc::collections::VecDeque;

use crate::table::ThreadId;

/// A scheduler of threads. It is asked while a thread may be in the midst of an allocation: it
/// neither allocates nor frees, but in `reserve`.
pub trait Policy {
    /// There are now so many threads: makes room for them.
    fn reserve(&mut self, threads: usize);
    /// The thread can go on. It is told once, until `next` gives it.
    fn ready(&mut self, thread: ThreadId);
    /// Who goes on now; `None` if nobody can.
    fn next(&mut self) -> Option<ThreadId>;
}

/// First come, first served.
#[derive(Debug, Default)]
pub struct RoundRobin(VecDeque<ThreadId>);

impl Policy for RoundRobin {
    fn reserve(&mut self, threads: usize) {
        self.0.reserve(threads.saturating_sub(self.0.len()));
    }

    fn ready(&mut self, thread: ThreadId) {
        self.0.push_back(thread);
    }

    fn next(&mut self) -> Option<ThreadId> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_needs_no_allocation() {
        let mut policy = RoundRobin::default();
        policy.ready(ThreadId(0));
        policy.reserve(100);
        let room = policy.0.capacity();
        (1..100).for_each(|thread| policy.ready(ThreadId(thread)));
        assert_eq!(policy.0.capacity(), room);
    }
}
