//! Children that have their parent's memory on loan (vfork): the thread of the parent that lent it
//! goes on when the child has given it back.
//!
//! Invariants: a loan ends once, by the child's word or its end; who lent is told all that the
//! child left before that, in its order, and then nothing more. A loan is there until who lent was
//! told, gave up, or ended.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use contracts::process::{ProcessError, ProcessId, StackChange};

use crate::table::MAX_PROCESSES;

/// Bytes that one loan may hold: what a stack can change at most, each second byte of
/// [`LENT_BYTES_MAX`](contracts::process::LENT_BYTES_MAX).
const CHANGES_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
struct Loan {
    parent: ProcessId,
    changes: VecDeque<Vec<StackChange>>,
    bytes: usize,
    is_over: bool,
}

/// All of them, by child.
#[derive(Debug, Default)]
pub struct Loans(BTreeMap<ProcessId, Loan>);

impl Loans {
    /// `parent` lends its memory to a child that it made.
    pub fn begin(&mut self, parent: ProcessId, child: ProcessId) {
        if self.0.len() >= MAX_PROCESSES {
            // Somebody lends and never asks.
            self.0.retain(|_, loan| !loan.is_over);
        }
        self.0.insert(child, Loan { parent, changes: VecDeque::new(), bytes: 0, is_over: false });
    }

    /// The child changed this. `NotFound` if it has nothing on loan, `TooMany` for more than a
    /// stack could change.
    pub fn leave(&mut self, child: ProcessId, changes: Vec<StackChange>) -> Result<(), ProcessError> {
        let loan = self.0.get_mut(&child).filter(|loan| !loan.is_over).ok_or(ProcessError::NotFound)?;
        let bytes = changes.iter().map(StackChange::message_bytes).sum::<usize>();
        if loan.bytes + bytes > CHANGES_BYTES_MAX {
            return Err(ProcessError::TooMany);
        }
        loan.bytes += bytes;
        if !changes.is_empty() {
            loan.changes.push_back(changes);
        }
        Ok(())
    }

    /// The child gave back what it had, or ended. Was it a loan?
    pub fn end(&mut self, child: ProcessId) -> bool {
        self.0.get_mut(&child).is_some_and(|loan| !core::mem::replace(&mut loan.is_over, true))
    }

    /// What is next for who lent to `child`: changes, or an empty list at the end, after which the
    /// loan is no more. `None` while the child has it. `NotFound` for a loan that is not, or not
    /// this parent's.
    pub fn take(&mut self, parent: ProcessId, child: ProcessId) -> Option<Result<Vec<StackChange>, ProcessError>> {
        let Some(loan) = self.0.get_mut(&child).filter(|loan| loan.parent == parent) else {
            return Some(Err(ProcessError::NotFound));
        };
        if !loan.is_over {
            return None;
        }
        let next = loan.changes.pop_front();
        if next.is_none() {
            self.0.remove(&child);
        }
        Some(Ok(next.unwrap_or_default()))
    }

    /// Nobody will ask for this one: the child was not started.
    pub fn forget(&mut self, child: ProcessId) {
        self.0.remove(&child);
    }

    /// This parent does not ask any more.
    pub fn give_up(&mut self, parent: ProcessId, child: ProcessId) {
        self.0.retain(|other, loan| *other != child || loan.parent != parent);
    }

    /// The parent ended, or runs another program.
    pub fn forget_all(&mut self, parent: ProcessId) {
        self.0.retain(|_, loan| loan.parent != parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(offset: u32) -> Vec<StackChange> {
        vec![StackChange { offset, bytes: vec![1, 2] }]
    }

    #[test]
    fn who_lent_is_told_all_at_the_end() {
        let mut loans = Loans::default();
        loans.begin(2, 5);
        assert_eq!(loans.take(2, 5), None);
        loans.leave(5, change(8)).unwrap();
        loans.leave(5, Vec::new()).unwrap();
        loans.leave(5, change(16)).unwrap();
        assert_eq!(loans.take(2, 5), None, "the child still has it");
        assert_eq!(loans.take(3, 5), Some(Err(ProcessError::NotFound)), "another's");
        assert_eq!((loans.end(5), loans.end(5), loans.end(6)), (true, false, false));
        assert_eq!(loans.leave(5, change(24)), Err(ProcessError::NotFound), "it gave it back");
        assert_eq!(loans.take(2, 5), Some(Ok(change(8))));
        assert_eq!(loans.take(2, 5), Some(Ok(change(16))));
        assert_eq!(loans.take(2, 5), Some(Ok(Vec::new())));
        assert_eq!(loans.take(2, 5), Some(Err(ProcessError::NotFound)));
        assert!(loans.0.is_empty());
    }

    #[test]
    fn a_child_that_ends_without_a_word_gives_back() {
        let mut loans = Loans::default();
        loans.begin(2, 5);
        assert!(loans.end(5));
        assert_eq!(loans.take(2, 5), Some(Ok(Vec::new())));
        assert_eq!(loans.leave(9, change(0)), Err(ProcessError::NotFound), "nothing was lent to it");
    }

    #[test]
    fn nothing_is_kept_for_who_does_not_ask() {
        let mut loans = Loans::default();
        for child in 5..9 {
            loans.begin(if child < 7 { 2 } else { 3 }, child);
            loans.leave(child, change(0)).unwrap();
        }
        loans.forget_all(2);
        assert_eq!((loans.end(5), loans.end(7)), (false, true));
        loans.give_up(2, 7);
        assert_eq!(loans.take(3, 7), Some(Ok(change(0))), "another's");
        loans.give_up(3, 7);
        assert_eq!(loans.take(3, 7), Some(Err(ProcessError::NotFound)));
        loans.forget(8);
        assert!(loans.0.is_empty());
    }

    #[test]
    fn who_never_asks_fills_no_memory() {
        let mut loans = Loans::default();
        for child in 0..10_000 {
            loans.begin(2, child);
            loans.end(child);
        }
        assert!(loans.0.len() <= MAX_PROCESSES);
    }

    #[test]
    fn a_child_cannot_leave_without_end() {
        let mut loans = Loans::default();
        loans.begin(2, 5);
        let many = || vec![StackChange { offset: 0, bytes: vec![0; 700] }];
        let left = (0..1000).take_while(|_| loans.leave(5, many()).is_ok()).count();
        assert!((16..32).contains(&left), "{left}");
        assert_eq!(loans.leave(5, many()), Err(ProcessError::TooMany));
        loans.end(5);
        assert_eq!(
            core::iter::from_fn(|| loans.take(2, 5))
                .take_while(|taken| taken.as_ref().is_ok_and(|all| !all.is_empty()))
                .count(),
            left
        );
    }
}
