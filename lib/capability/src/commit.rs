//! Two-phase commit: retype, revoke and the end of an object where other cores may hold
//! capabilities.
//!
//! ```text
//! coordinator                      every other living node
//! lock, drain, own vote
//! Prepare ───────────────────────► lock (or wait for a younger, or refuse), drain, judge
//!              ◄─────────────────── Vote
//! all yes: carry out, Decide ────► carry out, unlock
//!              ◄─────────────────── Done
//! ```
//!
//! The coordinator's own vote comes first, so most refusals cost no message. From its vote to the
//! decision a node's capabilities of the locked memory stay as they are, and none leave or arrive.
//! A revoke is answered, and its memory unlocked at the coordinator, when all are done; a retype
//! when it is decided, because the others have nothing to carry out.

use crate::ids::{Extent, NodeId, OperationId, RequestId, Slot, Stamp};
use crate::local::Plan;
use crate::lock::{Lock, Vote};
use crate::message::{Answer, Claim, Message, Refusal};
use crate::node::Node;
use crate::protocol::{Protocol, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What the coordinator does when all agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    Retype(Slot, Plan),
    Revoke(Slot),
    Reclaim,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Its own vote is awaited.
    Own,
    /// The others' votes are.
    Votes,
    /// It is decided; their `Done`s are awaited.
    Dones,
}

/// An operation at its coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operation {
    work: Work,
    stamp: Stamp,
    extent: Extent,
    claim: Claim,
    request: Option<RequestId>,
    phase: Phase,
    /// Who has not answered in this phase.
    pub waiting: BTreeSet<NodeId>,
    /// Something related remains elsewhere.
    remains: bool,
    pub since_ns: u64,
}

impl Operation {
    /// Whether it waits for other nodes.
    pub fn is_remote(&self) -> bool {
        self.phase != Phase::Own
    }
}

impl<P: Protocol> Node<P> {
    /// Starts an operation. For a retype its slots are reserved.
    pub(crate) fn begin(&mut self, work: Work, extent: Extent, claim: Claim, request: Option<RequestId>) {
        self.clock += 1;
        let stamp = Stamp { clock: self.clock, coordinator: self.me };
        let number = self.next();
        let (phase, waiting, since_ns) = (Phase::Own, [self.me].into(), self.now_ns);
        self.operations.insert(
            number,
            Operation { work, stamp, extent, claim, request, phase, waiting, remains: false, since_ns },
        );
        self.prepare(OperationId { coordinator: self.me, number }, stamp, extent, claim);
    }

    /// A voter's first phase.
    pub(crate) fn prepare(&mut self, operation: OperationId, stamp: Stamp, extent: Extent, claim: Claim) {
        match self.locks.take(operation, Lock { stamp, extent, claim, vote: Vote::Waiting }) {
            None => self.send(operation.coordinator, Message::Vote(operation, Err(Refusal::Busy))),
            Some(Vote::Waiting) => (),
            Some(_) => self.try_vote(operation),
        }
    }

    /// Votes, unless something sent off from here has yet to land.
    fn try_vote(&mut self, operation: OperationId) {
        let Some(lock) = self.locks.get(operation).copied().filter(|lock| lock.vote == Vote::Draining) else { return };
        if P::takes(Step::Drain) && self.outgoing.values().any(|outgoing| lock.extent.contains(outgoing.extent)) {
            return;
        }
        let verdict = self.judge(&lock);
        match verdict {
            Ok(_) => self.locks.set_vote(operation, Vote::Cast),
            Err(_) => _ = self.locks.remove(operation),
        }
        self.send(operation.coordinator, Message::Vote(operation, verdict));
        if verdict.is_err() {
            self.advance();
        }
    }

    /// Lets those vote that waited for a lock or a transfer.
    pub(crate) fn advance(&mut self) {
        self.locks.advance().into_iter().for_each(|operation| self.try_vote(operation));
    }

    /// Whether the claim may be carried out as far as this node knows, and whether something
    /// related then remains here.
    fn judge(&self, lock: &Lock) -> Result<bool, Refusal> {
        match lock.claim {
            Claim::Retype { depth, .. } if self.table.has_descendants(lock.extent, depth) => {
                Err(Refusal::HasDescendants)
            }
            Claim::Retype { depth, .. } => Ok(self.table.relates(lock.extent, depth, None)),
            Claim::Revoke { depth, capability } => Ok(self.table.relates(lock.extent, depth, Some(capability))),
            Claim::Reclaim { object } if self.table.holds(object) => Err(Refusal::InUse),
            Claim::Reclaim { .. } => Ok(false),
        }
    }

    pub(crate) fn vote_arrived(&mut self, id: OperationId, from: NodeId, verdict: Result<bool, Refusal>) {
        let Some(operation) = self.own(id) else { return };
        if operation.phase == Phase::Dones || !operation.waiting.remove(&from) {
            return;
        }
        match verdict {
            Ok(remains) => {
                operation.remains |= remains && operation.phase == Phase::Votes;
                self.go_on(id);
            }
            Err(refusal) => self.abort(id, refusal),
        }
    }

    fn own(&mut self, id: OperationId) -> Option<&mut Operation> {
        if id.coordinator == self.me { self.operations.get_mut(&id.number) } else { None }
    }

    /// The next phase, if nobody is waited for.
    fn go_on(&mut self, id: OperationId) {
        let (settled, others) = (self.settled(), self.others());
        let Some(operation) = self.own(id).filter(|operation| operation.waiting.is_empty()) else { return };
        match operation.phase {
            Phase::Own => {
                operation.phase = Phase::Votes;
                operation.waiting = if P::takes(Step::Prepare) { others.clone() } else { BTreeSet::new() };
                let message = operation.prepare_message(id, settled);
                others.into_iter().for_each(|node| self.send(node, message.clone()));
                self.go_on(id);
            }
            Phase::Votes => self.commit(id, others),
            Phase::Dones => self.finish(id),
        }
    }

    fn commit(&mut self, id: OperationId, others: BTreeSet<NodeId>) {
        let Some(operation) = self.own(id) else { return };
        operation.phase = Phase::Dones;
        operation.waiting = others.clone();
        let Operation { work, claim, request, remains, .. } = operation.clone();
        match (work, claim) {
            (Work::Retype(slot, plan), _) => {
                let ram = self.table.get(slot).expect("the Ram is locked").object;
                if !remains {
                    self.table.clear_remote(ram);
                }
                let answer = self.apply_retype(slot, plan);
                request.into_iter().for_each(|request| self.reply(request, Ok(answer.clone())));
                self.locks.remove(id);
            }
            (Work::Revoke(slot), Claim::Revoke { capability, .. }) => {
                assert!(self.table.get(slot).is_some(), "the capability is locked");
                self.delete_derived(capability);
                if !P::takes(Step::LockUntilDone) {
                    self.locks.remove(id);
                }
            }
            (Work::Reclaim, Claim::Reclaim { object }) => {
                self.table.remove_record(object);
                self.orphans.remove(&object);
                self.locks.remove(id);
            }
            _ => unreachable!("work and claim are made together"),
        }
        others.into_iter().for_each(|node| self.send(node, Message::Decide(id, true)));
        self.advance();
        self.go_on(id);
    }

    fn finish(&mut self, id: OperationId) {
        let Some(operation) = self.operations.remove(&id.number) else { return };
        self.locks.remove(id);
        if let (Claim::Revoke { capability, .. }, Some(request)) = (operation.claim, operation.request) {
            if !operation.remains {
                self.table.clear_remote_of(capability);
            }
            self.reply(request, Ok(Answer::Done));
        }
        self.advance();
    }

    /// Drops an operation that is not decided.
    fn abort(&mut self, id: OperationId, refusal: Refusal) {
        let Some(operation) = self.operations.remove(&id.number) else { return };
        self.locks.remove(id);
        if operation.phase == Phase::Votes {
            self.others().into_iter().for_each(|node| self.send(node, Message::Decide(id, false)));
        }
        if let Work::Retype(_, plan) = operation.work {
            self.table.unreserve(plan.count as usize);
        }
        if let Claim::Reclaim { object } = operation.claim {
            self.reclaim_refused(object, refusal);
        }
        operation.request.into_iter().for_each(|request| self.reply(request, Err(refusal)));
        self.advance();
    }

    /// A voter's second phase.
    pub(crate) fn decided(&mut self, operation: OperationId, commit: bool) {
        self.carry_out(operation, commit);
        if commit {
            self.send(operation.coordinator, Message::Done(operation));
        }
        self.advance();
    }

    /// Unlocks, and does what was decided.
    pub(crate) fn carry_out(&mut self, operation: OperationId, commit: bool) {
        let Some(lock) = self.locks.remove(operation) else { return };
        if commit {
            self.committed.insert(operation);
            if let Claim::Revoke { capability, .. } = lock.claim {
                self.delete_derived(capability);
            }
        }
    }

    pub(crate) fn done_arrived(&mut self, id: OperationId, from: NodeId) {
        let Some(operation) = self.own(id) else { return };
        if operation.phase == Phase::Dones && operation.waiting.remove(&from) {
            self.go_on(id);
        }
    }

    /// A node that started is asked as well, if it is not too late for it to matter.
    pub(crate) fn ask_newcomer(&mut self, node: NodeId) {
        let settled = self.settled();
        let me = self.me;
        let asking = self
            .operations
            .iter_mut()
            .filter(|(_, operation)| operation.phase == Phase::Votes && P::takes(Step::Prepare));
        let asked = asking.map(|(number, operation)| {
            operation.waiting.insert(node);
            operation.prepare_message(OperationId { coordinator: me, number: *number }, settled)
        });
        let asked: Vec<Message> = asked.collect();
        asked.into_iter().for_each(|message| self.send(node, message));
    }

    /// A node stopped, and the capabilities of its objects are gone: what was to be done through
    /// those is dropped, and nobody waits for it.
    pub(crate) fn operations_without(&mut self, node: NodeId) {
        let gone = |operation: &Operation| match (operation.work, operation.claim) {
            // By name: a slot may hold another by now.
            (Work::Retype(slot, _), Claim::Retype { capability, .. })
            | (Work::Revoke(slot), Claim::Revoke { capability, .. }) => {
                operation.phase != Phase::Dones && self.table.get(slot).is_none_or(|held| held.id != capability)
            }
            _ => false,
        };
        let id = |number: &u64| OperationId { coordinator: self.me, number: *number };
        let (gone, kept): (Vec<OperationId>, Vec<OperationId>) =
            self.operations.keys().map(id).partition(|id| gone(&self.operations[&id.number]));
        gone.into_iter().for_each(|id| self.abort(id, Refusal::Gone));
        for id in kept {
            if let Some(operation) = self.own(id) {
                operation.waiting.remove(&node);
                self.go_on(id);
            }
        }
    }
}

impl Operation {
    fn prepare_message(&self, operation: OperationId, settled: u64) -> Message {
        Message::Prepare { operation, stamp: self.stamp, settled, extent: self.extent, claim: self.claim }
    }
}
