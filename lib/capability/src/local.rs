//! Calls, and what they do on this core alone.
//!
//! Decode checks everything and changes nothing; what is not refused then either is done at once or
//! becomes an operation over several cores.

use crate::commit::Work;
use crate::ids::{CapabilityId, ObjectId, RequestId, Slot};
use crate::message::{Answer, Call, Claim, Refusal};
use crate::node::Node;
use crate::protocol::Protocol;
use crate::table::{Capability, Record};
use abi::{ObjectType, Rights};
use alloc::vec::Vec;

/// A retype that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub kind: ObjectType,
    pub pages: u64,
    pub count: u32,
}

/// Cores, devices and aliases are not made out of Ram.
const fn is_made_of_ram(kind: ObjectType) -> bool {
    !matches!(kind, ObjectType::Pcore | ObjectType::Device | ObjectType::RemoteContext)
}

impl<P: Protocol> Node<P> {
    pub(crate) fn call(&mut self, request: RequestId, call: Call) {
        let done = match call {
            Call::Copy { slot, rights } => self.copy(slot, rights).map(Some),
            Call::Retype { slot, kind, pages, count } => self.retype(request, slot, Plan { kind, pages, count }),
            Call::Delete { slot } => self.delete(slot).map(Some),
            Call::Revoke { slot } => self.revoke(request, slot),
            Call::Transfer { slot, to, rights, moved } => {
                self.transfer(request, slot, to, rights, moved).map(|()| None)
            }
            Call::Touch { slot, rights } => self.touch(slot, rights).map(Some),
            Call::Invalidate { slot, keep } => self.invalidate(request, slot, keep),
        };
        match done {
            Ok(Some(answer)) => self.reply(request, Ok(answer)),
            Ok(None) => (),
            Err(refusal) => self.reply(request, Err(refusal)),
        }
    }

    /// What is in `slot`, if it is there and not on its way elsewhere.
    pub(crate) fn find(&self, slot: Slot) -> Result<&Capability, Refusal> {
        let held = self.table.get(slot).ok_or(Refusal::BadSlot)?;
        if self.is_outgoing(slot) { Err(Refusal::Busy) } else { Ok(held) }
    }

    /// As `find`, if nothing is being decided about it.
    pub(crate) fn find_unlocked(&self, slot: Slot) -> Result<&Capability, Refusal> {
        let held = self.find(slot)?;
        if self.locks.covers(held.extent) { Err(Refusal::Busy) } else { Ok(held) }
    }

    fn copy(&mut self, slot: Slot, rights: Rights) -> Result<Answer, Refusal> {
        let source = self.find_unlocked(slot)?;
        if !source.rights.contains(rights) {
            return Err(Refusal::NoRights);
        }
        let lineage = source.child_lineage().ok_or(Refusal::TooDeep)?;
        let copy = Capability { rights, lineage, ..source.clone() };
        if !self.table.reserve(1) {
            return Err(Refusal::NoSlot);
        }
        let id = CapabilityId { node: self.me, number: self.next() };
        Ok(Answer::Slots([self.table.insert(Capability { id, ..copy })].into()))
    }

    fn retype(&mut self, request: RequestId, slot: Slot, plan: Plan) -> Result<Option<Answer>, Refusal> {
        let ram = self.find(slot)?;
        if ram.kind != ObjectType::Ram {
            return Err(Refusal::WrongType);
        }
        if !ram.rights.contains(Rights::WRITE) {
            return Err(Refusal::NoRights);
        }
        let fits = plan.pages.checked_mul(u64::from(plan.count)).is_some_and(|pages| pages <= ram.extent.pages);
        if !is_made_of_ram(plan.kind) || plan.pages == 0 || plan.count == 0 || !fits {
            return Err(Refusal::BadArgument);
        }
        ram.child_lineage().ok_or(Refusal::TooDeep)?;
        if self.locks.touches(ram.extent) {
            return Err(Refusal::Busy);
        }
        let (id, extent, depth, remote) = (ram.id, ram.extent, ram.depth, ram.remote);
        if self.table.has_descendants(extent, depth) {
            return Err(Refusal::HasDescendants);
        }
        if !self.table.reserve(plan.count as usize) {
            return Err(Refusal::NoSlot);
        }
        if !remote {
            return Ok(Some(self.apply_retype(slot, plan)));
        }
        self.begin(Work::Retype(slot, plan), extent, Claim::Retype { depth, capability: id }, Some(request));
        Ok(None)
    }

    /// Makes the objects; their slots are reserved.
    pub(crate) fn apply_retype(&mut self, slot: Slot, plan: Plan) -> Answer {
        let ram = self.table.get(slot).expect("the Ram is locked, or was looked up in this step").clone();
        let lineage = ram.child_lineage().expect("checked before");
        let depth = ram.depth + 1;
        let make = |index: u32| {
            let id = CapabilityId { node: self.me, number: self.next() };
            let object = ObjectId { home: self.me, number: id.number };
            let extent = ram.extent.piece(u64::from(index), plan.pages);
            self.table.add_record(object, Record { kind: plan.kind, extent, depth, origin: lineage.clone() });
            let (rights, lineage) = (ram.rights, lineage.clone());
            self.table.insert(Capability { id, object, kind: plan.kind, extent, depth, rights, lineage, remote: false })
        };
        Answer::Slots((0..plan.count).map(make).collect::<Vec<Slot>>())
    }

    fn delete(&mut self, slot: Slot) -> Result<Answer, Refusal> {
        let held = self.find_unlocked(slot)?;
        if held.lineage.is_empty() {
            return Err(Refusal::BadArgument);
        }
        self.empty(slot, false);
        Ok(Answer::Done)
    }

    fn revoke(&mut self, request: RequestId, slot: Slot) -> Result<Option<Answer>, Refusal> {
        let held = self.find(slot)?;
        if self.locks.touches(held.extent) {
            return Err(Refusal::Busy);
        }
        if held.remote {
            let claim = Claim::Revoke { depth: held.depth, capability: held.id };
            self.begin(Work::Revoke(slot), held.extent, claim, Some(request));
            return Ok(None);
        }
        self.delete_derived(held.id);
        Ok(Some(Answer::Done))
    }

    /// Deletes what is derived from a capability on this core.
    pub(crate) fn delete_derived(&mut self, ancestor: CapabilityId) {
        let hidden = self.table.delete_derived(ancestor);
        hidden.into_iter().for_each(|object| self.queue_invalidation(object));
    }

    fn touch(&mut self, slot: Slot, rights: Rights) -> Result<Answer, Refusal> {
        let held = self.find(slot)?;
        if held.kind != ObjectType::Segment {
            return Err(Refusal::WrongType);
        }
        if rights != Rights::READ && rights != Rights::READ.union(Rights::WRITE) {
            return Err(Refusal::BadArgument);
        }
        if !held.rights.contains(rights) {
            return Err(Refusal::NoRights);
        }
        self.table.translate(slot, rights);
        Ok(Answer::Done)
    }
}
