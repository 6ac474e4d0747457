//! Cores that start and stop while operations are under way.
//!
//! All nodes are told of the same changes in the same order, each in its own time; a message is
//! looked at only by a receiver that has come as far as its sender was. When a core stops, its
//! objects and everybody's capabilities of them are gone, and nobody waits for it any more. Its own
//! operations may be open at some nodes and carried out at others:
//!
//! ```text
//! every living node                       the lowest of them
//! Down: Flush(open, carried out) ───────► waits for all
//!                            ◄─────────── Resolve(carried out by anyone)
//! carry out or drop what is open
//! ```
//!
//! If it stops in turn, everybody flushes again to the next. What was carried out is remembered
//! until a later Resolve shows that no open operation of that coordinator is left, or the
//! coordinator, alive, says that all have it.

use crate::ids::{NodeId, OperationId};
use crate::lock::Vote;
use crate::message::Message;
use crate::node::Node;
use crate::protocol::{Protocol, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What the lowest living node has heard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Collection {
    waiting: BTreeSet<NodeId>,
    members: BTreeSet<NodeId>,
    unresolved: BTreeSet<NodeId>,
    committed: BTreeSet<OperationId>,
}

impl<P: Protocol> Node<P> {
    pub(crate) fn up(&mut self, view: u64, node: NodeId) {
        assert!(view == self.view + 1, "changes of who lives are told in order");
        self.view = view;
        self.live.insert(node);
        self.ask_newcomer(node);
        self.look_at_held_back();
    }

    pub(crate) fn down(&mut self, view: u64, node: NodeId) {
        assert!(view == self.view + 1 && node != self.me, "changes of who lives are told in order, to the living");
        self.view = view;
        self.down_view = view;
        self.live.remove(&node);
        let hidden = self.table.delete_of_home(node);
        hidden.into_iter().for_each(|object| self.queue_invalidation(object));
        self.outgoing_without(node);
        self.invalidations_without(node);
        self.operations_without(node);
        self.drop_uncast(node);
        self.flush(node);
        self.look_for_orphans();
        self.advance();
        self.look_at_held_back();
    }

    /// Locks of a dead coordinator for which this node has not voted: they cannot have been
    /// decided.
    fn drop_uncast(&mut self, node: NodeId) {
        let of_it = self.locks.iter().filter(|(operation, _)| operation.coordinator == node);
        let (cast, uncast): (Vec<_>, Vec<_>) =
            of_it.map(|(operation, lock)| (operation, lock.vote == Vote::Cast)).partition(|(_, cast)| *cast);
        for (operation, _) in uncast.into_iter().chain(if P::takes(Step::Resolve) { Vec::new() } else { cast }) {
            self.locks.remove(operation);
        }
    }

    fn flush(&mut self, dead: NodeId) {
        self.unresolved.insert(dead);
        let lowest = *self.live.first().expect("this node lives");
        self.collection = (lowest == self.me).then(|| Collection {
            waiting: self.live.clone(),
            members: self.live.clone(),
            unresolved: BTreeSet::new(),
            committed: BTreeSet::new(),
        });
        let committed = self.committed.iter().filter(|operation| !self.live.contains(&operation.coordinator)).copied();
        let (view, unresolved, committed) = (self.down_view, self.unresolved.clone(), committed.collect());
        self.send(lowest, Message::Flush { view, unresolved, committed });
    }

    pub(crate) fn flushed(
        &mut self,
        from: NodeId,
        view: u64,
        unresolved: BTreeSet<NodeId>,
        committed: BTreeSet<OperationId>,
    ) {
        // An older flush is repeated by its sender when it learns of the death that made it old.
        let Some(collection) = self.collection.as_mut().filter(|_| view == self.down_view) else { return };
        collection.waiting.remove(&from);
        collection.unresolved.extend(unresolved);
        collection.committed.extend(committed);
        if collection.waiting.is_empty() {
            let Collection { members, unresolved: dead, committed, .. } = collection.clone();
            self.collection = None;
            let resolve = Message::Resolve { view, dead, committed };
            members.into_iter().for_each(|node| self.send(node, resolve.clone()));
        }
    }

    pub(crate) fn resolve(&mut self, view: u64, dead: &BTreeSet<NodeId>, committed: &BTreeSet<OperationId>) {
        if view != self.down_view {
            return;
        }
        self.unresolved.retain(|node| !dead.contains(node));
        let open = self.locks.iter().map(|(operation, _)| operation).filter(|o| dead.contains(&o.coordinator));
        let open: Vec<OperationId> = open.collect();
        open.into_iter().for_each(|operation| self.carry_out(operation, committed.contains(&operation)));
        let live = &self.live;
        self.committed.retain(|o| live.contains(&o.coordinator) || dead.contains(&o.coordinator));
        self.advance();
    }
}
