//! Capabilities that go to another core.
//!
//! A capability is at its sender until the receiver says that it has it: so it is nowhere in
//! between where nobody could be asked about it. A receiver whose memory of that object is locked
//! refuses. If the receiver stops first, a copy was simply not made; a moved one goes down with the
//! receiver, because it may have given it on before it stopped and must not exist twice.

use crate::ids::{CapabilityId, Extent, NodeId, RequestId, Slot};
use crate::message::{Answer, Message, Refusal};
use crate::node::Node;
use crate::protocol::{Protocol, Step};
use crate::table::Capability;
use abi::Rights;
use alloc::vec::Vec;

/// A capability on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outgoing {
    pub slot: Slot,
    pub to: NodeId,
    pub moved: bool,
    pub extent: Extent,
    pub since_ns: u64,
    request: RequestId,
}

impl<P: Protocol> Node<P> {
    pub(crate) fn transfer(
        &mut self,
        request: RequestId,
        slot: Slot,
        to: u16,
        rights: Rights,
        moved: bool,
    ) -> Result<(), Refusal> {
        let held = self.find_unlocked(slot)?;
        if !held.rights.contains(rights.union(Rights::GRANT)) {
            return Err(Refusal::NoRights);
        }
        if to == self.me.core || (moved && held.lineage.is_empty()) {
            return Err(Refusal::BadArgument);
        }
        let to = self.live.iter().find(|node| node.core == to).copied().ok_or(Refusal::Stopped)?;
        let lineage = if moved { held.lineage.clone() } else { held.child_lineage().ok_or(Refusal::TooDeep)? };
        let mut sent = Capability { rights, lineage, ..held.clone() };
        let (extent, depth, id) = (sent.extent, sent.depth, sent.id);
        let number = self.next();
        if moved {
            // Its new holder may think itself alone from the moment it has it.
            if let Some(translation) = self.table.drop_translation(id) {
                self.queue_invalidation(translation.object);
            }
        } else {
            sent.id = CapabilityId { node: self.me, number };
        }
        sent.remote |= !moved || self.table.relates_besides(slot);
        if P::takes(Step::Flag) {
            self.table.set_remote(extent, depth, sent.remote);
        } else {
            sent.remote = false;
        }
        self.outgoing.insert(number, Outgoing { slot, to, moved, extent, since_ns: self.now_ns, request });
        self.send(to, Message::Transfer { number, capability: sent });
        Ok(())
    }

    /// One comes in.
    pub(crate) fn arrive(&mut self, from: NodeId, number: u64, capability: Capability) {
        let answer = if !self.live.contains(&capability.object.home) {
            Err(Refusal::Gone)
        } else if P::takes(Step::RefuseArrivals) && self.locks.covers(capability.extent) {
            Err(Refusal::Busy)
        } else if !self.table.reserve(1) {
            Err(Refusal::NoSlot)
        } else {
            self.table.insert(capability);
            Ok(())
        };
        self.send(from, Message::Transferred(number, answer));
    }

    /// One that was sent has been taken or refused.
    pub(crate) fn transferred(&mut self, from: NodeId, number: u64, answer: Result<(), Refusal>) {
        if self.outgoing.get(&number).is_none_or(|outgoing| outgoing.to != from) {
            return;
        }
        let Some(Outgoing { slot, moved, request, .. }) = self.outgoing.remove(&number) else { return };
        if moved && answer.is_ok() {
            // It is the receiver's now, and the receiver will tell its home when it drops it.
            self.table.remove(slot);
        }
        self.reply(request, answer.map(|()| Answer::Done));
        self.advance();
    }

    /// A node stopped, and the capabilities of its objects are gone.
    pub(crate) fn outgoing_without(&mut self, node: NodeId) {
        let numbers: Vec<u64> = self.outgoing.keys().copied().collect();
        for number in numbers {
            let Some(Outgoing { slot, to, moved, request, .. }) = self.outgoing.get(&number).cloned() else { continue };
            let gone = self.table.get(slot).is_none();
            if to != node && !gone {
                continue;
            }
            self.outgoing.remove(&number);
            if to == node && moved && !gone && P::takes(Step::EndMoved) {
                self.empty(slot, true);
            }
            self.reply(request, Err(if gone { Refusal::Gone } else { Refusal::Stopped }));
        }
    }
}
