//! A node: all state of one core's capabilities, and `step`.
//!
//! Invariants: every call is answered once; `effects` is empty between steps; a number given out by
//! `next` names one thing only (capability, object, operation, transfer) in this life of the core.
//! Queues are bounded by their peers: a peer has at most one outstanding message per call of its
//! own, and calls are bounded by its callers.

use crate::commit::Operation;
use crate::ids::{CapabilityId, Extent, NodeId, ObjectId, OperationId, RequestId, Slot};
use crate::invalidate::Invalidation;
use crate::lock::Locks;
use crate::membership::Collection;
use crate::message::{Answer, Effect, Envelope, Event, Message, Refusal};
use crate::protocol::{Protocol, Sound, Step};
use crate::reclaim::Orphan;
use crate::table::{Capability, Record, Table};
use crate::transfer::Outgoing;
use abi::{ObjectType, Rights};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::marker::PhantomData;

/// After so long without an answer a node is suspected.
pub const SUSPECT_NS: u64 = 50_000_000;
/// After so long the end of an object is tried again that met a lock.
pub const RETRY_NS: u64 = 100_000;

/// One core's capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node<P: Protocol = Sound> {
    pub(crate) me: NodeId,
    /// Number of the last change of who lives that it was told.
    pub(crate) view: u64,
    /// Who lives, itself included.
    pub(crate) live: BTreeSet<NodeId>,
    pub(crate) table: Table,
    pub(crate) locks: Locks,
    /// Lamport's clock.
    pub(crate) clock: u64,
    number: u64,
    /// Two-phase operations it coordinates.
    pub(crate) operations: BTreeMap<u64, Operation>,
    /// One-phase operations it coordinates.
    pub(crate) invalidations: BTreeMap<u64, Invalidation>,
    /// Capabilities on their way to other nodes.
    pub(crate) outgoing: BTreeMap<u64, Outgoing>,
    /// Objects at home here that may have no capability any more.
    pub(crate) orphans: BTreeMap<ObjectId, Orphan>,
    /// Operations of others that were carried out here and may still be open elsewhere.
    pub(crate) committed: BTreeSet<OperationId>,
    /// Dead coordinators whose operations may be open here.
    pub(crate) unresolved: BTreeSet<NodeId>,
    /// The last change that was a death.
    pub(crate) down_view: u64,
    /// At the lowest living node after a death: what the others say.
    pub(crate) collection: Option<Collection>,
    /// Messages of senders that have seen a later change.
    held_back: Vec<(NodeId, Envelope)>,
    pub(crate) now_ns: u64,
    effects: Vec<Effect>,
    protocol: PhantomData<P>,
}

impl<P: Protocol> Node<P> {
    /// A core that starts, with memory of its own in its first slot. `live` is who lives after the
    /// change numbered `view` that told of its start, itself included; `slots` how many
    /// capabilities it can hold.
    pub fn new(me: NodeId, memory: Extent, view: u64, live: BTreeSet<NodeId>, slots: usize) -> Node<P> {
        assert!(
            me.life > 0 && live.contains(&me) && slots > 0 && memory.pages > 0,
            "a node starts alive, with a slot and a page"
        );
        let mut table = Table::new(slots);
        let object = ObjectId { home: me, number: 0 };
        table.add_record(object, Record { kind: ObjectType::Ram, extent: memory, depth: 0, origin: Vec::new() });
        table.reserve(1);
        table.insert(Capability {
            id: CapabilityId::root(me.core),
            object,
            kind: ObjectType::Ram,
            extent: memory,
            depth: 0,
            rights: Rights::ALL,
            lineage: Vec::new(),
            // What an earlier life handed out may still be in use.
            remote: me.life > 1 && P::takes(Step::Flag),
        });
        Node {
            me,
            view,
            live,
            table,
            locks: Locks::default(),
            clock: 0,
            number: 0,
            operations: BTreeMap::new(),
            invalidations: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            orphans: BTreeMap::new(),
            committed: BTreeSet::new(),
            unresolved: BTreeSet::new(),
            down_view: 0,
            collection: None,
            held_back: Vec::new(),
            now_ns: 0,
            effects: Vec::new(),
            protocol: PhantomData,
        }
    }

    /// Its name.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// What it holds.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.operations.is_empty()
            && self.invalidations.is_empty()
            && self.outgoing.is_empty()
            && self.orphans.is_empty()
            && self.unresolved.is_empty()
            && self.held_back.is_empty()
            && self.locks.iter().next().is_none()
    }

    /// Whether the capability in `slot` is on its way to another core that will have it alone.
    pub fn is_moving(&self, slot: Slot) -> bool {
        self.outgoing.values().any(|outgoing| outgoing.slot == slot && outgoing.moved)
    }

    /// Consumes one event. `now_ns` never goes back.
    pub fn step(&mut self, event: Event, now_ns: u64) -> Vec<Effect> {
        self.now_ns = now_ns;
        match event {
            Event::Call(request, call) => self.call(request, call),
            Event::Message(from, envelope) => {
                if P::takes(Step::HoldBack) && envelope.view > self.view {
                    self.held_back.push((from, envelope));
                } else {
                    self.receive(from, envelope.message);
                }
            }
            Event::Up(view, node) => self.up(view, node),
            Event::Down(view, node) => self.down(view, node),
            Event::Timer => self.timer(),
        }
        core::mem::take(&mut self.effects)
    }

    /// When it wants an [`Event::Timer`].
    pub fn wake_at_ns(&self) -> Option<u64> {
        let retries = self.orphans.values().filter_map(|orphan| orphan.retry_at_ns);
        let operations = self.operations.values().filter(|o| o.is_remote()).map(|o| o.since_ns);
        let invalidations = self.invalidations.values().map(|invalidation| invalidation.since_ns);
        let outgoing = self.outgoing.values().map(|outgoing| outgoing.since_ns);
        let waits = operations.chain(invalidations).chain(outgoing).map(|since| since.saturating_add(SUSPECT_NS));
        retries.chain(waits).min()
    }

    fn timer(&mut self) {
        let now = self.now_ns;
        let mut suspects = BTreeSet::new();
        let late = |since: &mut u64| {
            let late = now >= since.saturating_add(SUSPECT_NS);
            *since = if late { now } else { *since };
            late
        };
        for operation in self.operations.values_mut().filter(|operation| operation.is_remote()) {
            if late(&mut operation.since_ns) {
                suspects.extend(&operation.waiting);
            }
        }
        for invalidation in self.invalidations.values_mut() {
            if late(&mut invalidation.since_ns) {
                suspects.extend(&invalidation.waiting);
            }
        }
        for outgoing in self.outgoing.values_mut() {
            if late(&mut outgoing.since_ns) {
                suspects.insert(outgoing.to);
            }
        }
        suspects.into_iter().for_each(|suspect| self.effects.push(Effect::Suspect(suspect)));
        self.retry_orphans();
    }

    fn receive(&mut self, from: NodeId, message: Message) {
        if !self.live.contains(&from) {
            return;
        }
        match message {
            Message::Prepare { operation, stamp, settled, extent, claim } => {
                self.clock = self.clock.max(stamp.clock);
                self.committed.retain(|done| done.coordinator != from || done.number >= settled);
                self.prepare(operation, stamp, extent, claim);
            }
            Message::Vote(operation, verdict) => self.vote_arrived(operation, from, verdict),
            Message::Decide(operation, commit) => self.decided(operation, commit),
            Message::Done(operation) => self.done_arrived(operation, from),
            Message::Transfer { number, capability } => self.arrive(from, number, capability),
            Message::Transferred(number, answer) => self.transferred(from, number, answer),
            Message::Dropped(object, last) => self.dropped(object, last),
            Message::Invalidate(number, object, keep) => {
                self.downgrade(object, keep);
                self.send(from, Message::Invalidated(number));
            }
            Message::Invalidated(number) => self.invalidated(number, from),
            Message::Flush { view, unresolved, committed } => self.flushed(from, view, unresolved, committed),
            Message::Resolve { view, dead, committed } => self.resolve(view, &dead, &committed),
        }
    }

    /// Looks at the messages that waited for a change of who lives.
    pub(crate) fn look_at_held_back(&mut self) {
        let (ready, later) = core::mem::take(&mut self.held_back).into_iter().partition(|(_, e)| e.view <= self.view);
        self.held_back = later;
        let ready: Vec<(NodeId, Envelope)> = ready;
        ready.into_iter().for_each(|(from, envelope)| self.receive(from, envelope.message));
    }

    /// A number never given before in this life.
    pub(crate) fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The number of its oldest operation that is not finished everywhere.
    pub(crate) fn settled(&self) -> u64 {
        self.operations.keys().next().copied().unwrap_or(self.number + 1)
    }

    /// To another node, or at once to itself.
    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        if to == self.me {
            self.receive(to, message);
        } else {
            self.effects.push(Effect::Send(to, Envelope { view: self.view, message }));
        }
    }

    /// All living nodes but itself.
    pub(crate) fn others(&self) -> BTreeSet<NodeId> {
        self.live.iter().filter(|node| **node != self.me).copied().collect()
    }

    pub(crate) fn reply(&mut self, request: RequestId, answer: Result<Answer, Refusal>) {
        self.effects.push(Effect::Reply(request, answer));
    }

    /// Has translations of a segment taken off this core, down to what is left of them.
    pub(crate) fn queue_invalidation(&mut self, object: ObjectId) {
        let left = self.table.translated(object);
        self.effects.push(Effect::Invalidate(object, left));
    }

    pub(crate) fn downgrade(&mut self, object: ObjectId, keep: Rights) {
        if self.table.downgrade(object, keep) {
            self.queue_invalidation(object);
        }
    }

    /// Whether the capability in `slot` is on its way to another node.
    pub(crate) fn is_outgoing(&self, slot: Slot) -> bool {
        self.outgoing.values().any(|outgoing| outgoing.slot == slot)
    }
}
