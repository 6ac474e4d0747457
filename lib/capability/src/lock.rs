//! The locks of a node: which memory is being decided about, by whom, and how far this node's vote
//! has come.
//!
//! Invariants: of two locks that overlap at most one is not `Waiting`; one that waits is older than
//! all that were there before it and overlap. A younger one is refused instead, so chains
//! of waiting run from older to younger and end.

use crate::ids::{Extent, OperationId, Stamp};
use crate::message::Claim;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How far a vote has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Vote {
    /// A younger operation holds an overlapping lock.
    Waiting,
    /// Locked; capabilities sent off from here have not arrived.
    Draining,
    /// Locked and voted yes.
    Cast,
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub stamp: Stamp,
    pub extent: Extent,
    pub claim: Claim,
    pub vote: Vote,
}

/// All locks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Locks(BTreeMap<OperationId, Lock>);

impl Locks {
    /// Takes the lock, or a place in line; `None` if an older operation has or awaits it.
    pub fn take(&mut self, operation: OperationId, mut lock: Lock) -> Option<Vote> {
        let mut others = self.0.values().filter(|other| other.extent.overlaps(lock.extent)).peekable();
        lock.vote = if others.peek().is_some() { Vote::Waiting } else { Vote::Draining };
        if others.any(|other| other.stamp < lock.stamp) {
            return None;
        }
        self.0.insert(operation, lock);
        Some(lock.vote)
    }

    pub fn get(&self, operation: OperationId) -> Option<&Lock> {
        self.0.get(&operation)
    }

    pub fn set_vote(&mut self, operation: OperationId, vote: Vote) {
        self.0.get_mut(&operation).expect("the caller found it").vote = vote;
    }

    pub fn remove(&mut self, operation: OperationId) -> Option<Lock> {
        self.0.remove(&operation)
    }

    pub fn iter(&self) -> impl Iterator<Item = (OperationId, &Lock)> {
        self.0.iter().map(|(operation, lock)| (*operation, lock))
    }

    /// Operations that may now try to vote: those that drain, and those whose turn has come, which
    /// drain from here on.
    pub fn advance(&mut self) -> Vec<OperationId> {
        let in_the_way = |operation: OperationId, lock: &Lock| {
            self.iter().any(|(other, held)| {
                other != operation
                    && held.extent.overlaps(lock.extent)
                    && (held.vote != Vote::Waiting || held.stamp < lock.stamp)
            })
        };
        let next = self.iter().filter(|(operation, lock)| lock.vote == Vote::Waiting && !in_the_way(*operation, lock));
        let next: Vec<OperationId> = next.map(|(operation, _)| operation).collect();
        next.into_iter().for_each(|operation| self.set_vote(operation, Vote::Draining));
        self.iter().filter(|(_, lock)| lock.vote == Vote::Draining).map(|(operation, _)| operation).collect()
    }

    /// Whether memory within a held lock is meant: nothing about it may change here.
    pub fn covers(&self, extent: Extent) -> bool {
        self.0.values().any(|lock| lock.vote != Vote::Waiting && lock.extent.contains(extent))
    }

    /// Whether any lock, held or awaited, overlaps.
    pub fn touches(&self, extent: Extent) -> bool {
        self.0.values().any(|lock| lock.extent.overlaps(extent))
    }
}
