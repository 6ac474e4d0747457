//! One-phase commit: taking translations of a segment away, or narrowing them, on every core.
//!
//! Nothing has to be agreed on: each node downgrades what it has and says so. When all have, no
//! translation that was there at the start allows more than was left. Translations made later by
//! holders of capabilities are not meant; who wants none revokes.

use crate::ids::{NodeId, RequestId, Slot};
use crate::message::{Answer, Message, Refusal};
use crate::node::Node;
use crate::protocol::{Protocol, Step};
use abi::{ObjectType, Rights};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// One that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Invalidation {
    pub waiting: BTreeSet<NodeId>,
    pub since_ns: u64,
    request: RequestId,
}

impl<P: Protocol> Node<P> {
    pub(crate) fn invalidate(
        &mut self,
        request: RequestId,
        slot: Slot,
        keep: Rights,
    ) -> Result<Option<Answer>, Refusal> {
        let held = self.find(slot)?;
        if held.kind != ObjectType::Segment {
            return Err(Refusal::WrongType);
        }
        if !held.rights.contains(Rights::WRITE) {
            return Err(Refusal::NoRights);
        }
        let (object, remote) = (held.object, held.remote);
        self.downgrade(object, keep);
        let others = self.others();
        if !remote || others.is_empty() {
            return Ok(Some(Answer::Done));
        }
        let number = self.next();
        let waiting = if P::takes(Step::AwaitInvalidation) { others.clone() } else { BTreeSet::new() };
        self.invalidations.insert(number, Invalidation { waiting, since_ns: self.now_ns, request });
        others.into_iter().for_each(|node| self.send(node, Message::Invalidate(number, object, keep)));
        self.finish_invalidation(number);
        Ok(None)
    }

    pub(crate) fn invalidated(&mut self, number: u64, from: NodeId) {
        if let Some(invalidation) = self.invalidations.get_mut(&number) {
            invalidation.waiting.remove(&from);
            self.finish_invalidation(number);
        }
    }

    fn finish_invalidation(&mut self, number: u64) {
        if self.invalidations.get(&number).is_some_and(|invalidation| invalidation.waiting.is_empty()) {
            let done = self.invalidations.remove(&number).expect("was just there");
            self.reply(done.request, Ok(Answer::Done));
        }
    }

    /// A node stopped: nobody waits for it.
    pub(crate) fn invalidations_without(&mut self, node: NodeId) {
        let numbers: Vec<u64> = self.invalidations.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.invalidated(number, node));
    }
}
