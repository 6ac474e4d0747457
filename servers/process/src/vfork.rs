//! vfork: the thread of the parent that called waits until the child has given its memory back.
//!
//! Invariants: a vfork completes once, when the child says so or ends. The parent is told all
//! changes that the child reported before that, in their order, and then nothing more. The entry
//! stays until the parent was told, abandoned it, or ended.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use contracts::process::{ProcessError, ProcessId, StackChange};

use crate::table::MAX_PROCESSES;

/// Bytes of changes that one vfork may hold: what a stack can change at most, each second byte of
/// [`VFORK_STACK_BYTES_MAX`](contracts::process::VFORK_STACK_BYTES_MAX).
const CHANGES_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
struct Vfork {
    parent: ProcessId,
    changes: VecDeque<Vec<StackChange>>,
    bytes: usize,
    is_complete: bool,
}

/// All vforks, by child.
#[derive(Debug, Default)]
pub struct Vforks(BTreeMap<ProcessId, Vfork>);

impl Vforks {
    /// Enters a child that has the memory of `parent`.
    pub fn begin(&mut self, parent: ProcessId, child: ProcessId) {
        if self.0.len() >= MAX_PROCESSES {
            // Some parent never asks.
            self.0.retain(|_, vfork| !vfork.is_complete);
        }
        self.0.insert(child, Vfork { parent, changes: VecDeque::new(), bytes: 0, is_complete: false });
    }

    /// Adds what the child changed. `NotFound` if no vfork of it is under way, `TooMany` for more
    /// than a stack could change.
    pub fn add_changes(&mut self, child: ProcessId, changes: Vec<StackChange>) -> Result<(), ProcessError> {
        let vfork = self.0.get_mut(&child).filter(|vfork| !vfork.is_complete).ok_or(ProcessError::NotFound)?;
        let bytes = changes.iter().map(StackChange::message_bytes).sum::<usize>();
        if vfork.bytes + bytes > CHANGES_BYTES_MAX {
            return Err(ProcessError::TooMany);
        }
        vfork.bytes += bytes;
        if !changes.is_empty() {
            vfork.changes.push_back(changes);
        }
        Ok(())
    }

    /// Completes the vfork of a child that gave the memory back or ended. False if there is none,
    /// or it was complete.
    pub fn complete(&mut self, child: ProcessId) -> bool {
        self.0.get_mut(&child).is_some_and(|vfork| !core::mem::replace(&mut vfork.is_complete, true))
    }

    /// Takes what the parent of `child` is told next: changes, or an empty list at the end, which
    /// removes the entry. `None` until the vfork is complete. `NotFound` if there is none, or it is
    /// another parent's.
    pub fn take_changes(
        &mut self,
        parent: ProcessId,
        child: ProcessId,
    ) -> Option<Result<Vec<StackChange>, ProcessError>> {
        let Some(vfork) = self.0.get_mut(&child).filter(|vfork| vfork.parent == parent) else {
            return Some(Err(ProcessError::NotFound));
        };
        if !vfork.is_complete {
            return None;
        }
        let next = vfork.changes.pop_front();
        if next.is_none() {
            self.0.remove(&child);
        }
        Some(Ok(next.unwrap_or_default()))
    }

    /// Removes the entry of a child that was not started: nobody will ask for it.
    pub fn remove(&mut self, child: ProcessId) {
        self.0.remove(&child);
    }

    /// Removes the entry of a child whose parent does not ask any more.
    pub fn abandon(&mut self, parent: ProcessId, child: ProcessId) {
        self.0.retain(|other, vfork| *other != child || vfork.parent != parent);
    }

    /// Removes the entries of a parent that ended or runs another program.
    pub fn remove_all_of(&mut self, parent: ProcessId) {
        self.0.retain(|_, vfork| vfork.parent != parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(offset: u32) -> Vec<StackChange> {
        vec![StackChange { offset, bytes: vec![1, 2] }]
    }

    #[test]
    fn the_parent_is_told_all_changes_at_the_end() {
        let mut vforks = Vforks::default();
        vforks.begin(2, 5);
        assert_eq!(vforks.take_changes(2, 5), None);
        vforks.add_changes(5, change(8)).unwrap();
        vforks.add_changes(5, Vec::new()).unwrap();
        vforks.add_changes(5, change(16)).unwrap();
        assert_eq!(vforks.take_changes(2, 5), None, "the child still has it");
        assert_eq!(vforks.take_changes(3, 5), Some(Err(ProcessError::NotFound)), "another's");
        assert_eq!((vforks.complete(5), vforks.complete(5), vforks.complete(6)), (true, false, false));
        assert_eq!(vforks.add_changes(5, change(24)), Err(ProcessError::NotFound), "the vfork is complete");
        assert_eq!(vforks.take_changes(2, 5), Some(Ok(change(8))));
        assert_eq!(vforks.take_changes(2, 5), Some(Ok(change(16))));
        assert_eq!(vforks.take_changes(2, 5), Some(Ok(Vec::new())));
        assert_eq!(vforks.take_changes(2, 5), Some(Err(ProcessError::NotFound)));
        assert!(vforks.0.is_empty());
    }

    #[test]
    fn the_end_of_a_child_completes_its_vfork() {
        let mut vforks = Vforks::default();
        vforks.begin(2, 5);
        assert!(vforks.complete(5));
        assert_eq!(vforks.take_changes(2, 5), Some(Ok(Vec::new())));
        assert_eq!(vforks.add_changes(9, change(0)), Err(ProcessError::NotFound), "it is not of a vfork");
    }

    #[test]
    fn nothing_is_kept_for_a_parent_that_does_not_ask() {
        let mut vforks = Vforks::default();
        for child in 5..9 {
            vforks.begin(if child < 7 { 2 } else { 3 }, child);
            vforks.add_changes(child, change(0)).unwrap();
        }
        vforks.remove_all_of(2);
        assert_eq!((vforks.complete(5), vforks.complete(7)), (false, true));
        vforks.abandon(2, 7);
        assert_eq!(vforks.take_changes(3, 7), Some(Ok(change(0))), "another's");
        vforks.abandon(3, 7);
        assert_eq!(vforks.take_changes(3, 7), Some(Err(ProcessError::NotFound)));
        vforks.remove(8);
        assert!(vforks.0.is_empty());
    }

    #[test]
    fn a_parent_may_ask_late() {
        let mut vforks = Vforks::default();
        vforks.begin(2, 5);
        let most = || vec![StackChange { offset: 0, bytes: vec![1; CHANGES_BYTES_MAX - 4] }];
        assert_eq!(vforks.add_changes(5, most()), Ok(()));
        vforks.complete(5);
        vforks.begin(3, 6);
        assert_eq!(vforks.take_changes(2, 5), Some(Ok(most())), "whatever other is begun");
    }

    #[test]
    fn a_parent_that_never_asks_fills_no_memory() {
        let mut vforks = Vforks::default();
        for child in 0..10_000 {
            vforks.begin(2, child);
            vforks.complete(child);
        }
        assert!(vforks.0.len() <= MAX_PROCESSES);
    }

    #[test]
    fn a_child_cannot_report_changes_without_end() {
        let mut vforks = Vforks::default();
        vforks.begin(2, 5);
        let many = || vec![StackChange { offset: 0, bytes: vec![0; 700] }];
        let left = (0..1000).take_while(|_| vforks.add_changes(5, many()).is_ok()).count();
        assert!((16..32).contains(&left), "{left}");
        assert_eq!(vforks.add_changes(5, many()), Err(ProcessError::TooMany));
        vforks.complete(5);
        assert_eq!(
            core::iter::from_fn(|| vforks.take_changes(2, 5))
                .take_while(|taken| taken.as_ref().is_ok_and(|all| !all.is_empty()))
                .count(),
            left
        );
    }
}
