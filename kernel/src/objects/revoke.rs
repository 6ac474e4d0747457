//! Revocation: destroying all objects that an account pays for, a bounded part at a time.
//!
//! An account lists its objects and an object its capabilities, so nothing is searched. The order
//! is: capabilities for the account; objects that act (`Ram::actors`), so that nothing runs on what
//! is destroyed; the accounts below, in the same way; then memory and the rest. Invariants: between
//! two parts every object is valid and there is no state but what the caller's context holds
//! (`Context::revoked`), so a revocation that is given up, or two of the same account, do no harm;
//! no frame is free before its translations are invalidated; an object is destroyed when it is
//! empty, so that its end takes bounded time. This file does not know how the memory came to be
//! shared with other cores.

use super::context::State;
use super::domain::Death;
use super::shared_objects::PoolOwner;
use super::slot::Capability;
use super::{
    AnyObject, Context, Device, Domain, Linked, Pcore, Portal, Ptr, Ram, Range, Schedule, Segment, Semaphore, Slot,
    typed,
};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::{DeathCause, ObjectType, Rights};

/// Whether `ram` pays for `caller`, its domain or its time.
pub fn stands_on(caller: Ptr<Context>, ram: Ptr<Ram>) -> bool {
    let time = caller.schedule.get().map(|schedule| schedule.ram());
    [Some(caller.domain().ram()), Some(caller.ram()), time].into_iter().flatten().any(|payer| ram.covers(payer))
}

impl Kernel {
    /// Revokes all capabilities that were derived from one; tells whether the budget sufficed.
    pub fn revoke_derived(&mut self, slot: Ptr<Slot>, budget: &mut Budget) -> bool {
        while let Some(derived) = slot.first_derived() {
            if !budget.spend(1) {
                return false;
            }
            budget.spend(self.empty_slot(derived));
        }
        true
    }

    /// Destroys what `ram`, named by `slot`, pays for; tells whether the budget sufficed. `ram`
    /// does not pay for the caller, but the caller may end by this: then it did not suffice.
    pub fn revoke_ram(&mut self, caller: Ptr<Context>, slot: Ptr<Slot>, ram: Ptr<Ram>, budget: &mut Budget) -> bool {
        self.retain(caller);
        self.retain(ram);
        let is_done = self.take_others(slot, ram, budget) && self.empty_account(caller, ram, budget);
        self.release(ram);
        self.release(caller);
        is_done
    }

    fn empty_account(&mut self, caller: Ptr<Context>, ram: Ptr<Ram>, budget: &mut Budget) -> bool {
        while let Some(object) = self.next_to_destroy(ram, budget) {
            let is_done =
                budget.spend(1) && self.drain_object(caller, ram, object, budget) && self.drain_ending(budget);
            if !is_done || caller.state() == State::Dead {
                return false;
            }
        }
        ram.actors.is_empty() && ram.objects.is_empty() && self.drain_ending(budget)
    }

    /// The object to destroy next: those that act, from the top down; then the rest, from the
    /// bottom up. The accounts on the way lose their names, so that nobody makes anything more from
    /// them. `None`: nothing is left, or the budget did not suffice.
    fn next_to_destroy(&mut self, ram: Ptr<Ram>, budget: &mut Budget) -> Option<AnyObject> {
        let mut at = ram;
        loop {
            if let Some(actor) = at.actors.first() {
                return Some(actor);
            }
            let first = at.objects.first()?;
            let Ok(below) = first.cast::<Ram>() else { return Some(first) };
            if !self.take_capabilities(first, None, budget) {
                return None;
            }
            // Without objects of its own it was destroyed with its name, unless others share its
            // turns: they lie below the same account, and are destroyed first.
            let is_left = first.references() > 0;
            if is_left && (!below.actors.is_empty() || !below.objects.is_empty()) {
                at = below;
            } else if is_left {
                if !budget.spend(1) {
                    return None;
                }
                at.put_last(first);
            }
        }
    }

    /// Drains one object as far as the budget allows; tells whether that was all.
    fn drain_object(&mut self, caller: Ptr<Context>, ram: Ptr<Ram>, object: AnyObject, budget: &mut Budget) -> bool {
        self.retain_any(object);
        let is_done = self.empty_object(&caller.revoked, ram, object, budget);
        if is_done {
            self.keep(&caller.revoked, None, None);
        }
        self.release_any(object);
        // A domain that ended is drained later, a range with its domain.
        if is_done && object.references() > 0 {
            object.payer().inspect(|payer| payer.put_last(object));
        }
        is_done
    }

    fn empty_object(&mut self, anchor: &Slot, ram: Ptr<Ram>, object: AnyObject, budget: &mut Budget) -> bool {
        match object.object_type() {
            ObjectType::Domain => {
                let domain = typed::<Domain>(object);
                if object.is_actor.get() {
                    self.kill_revoked(domain);
                    return true;
                }
                self.hold(anchor, object);
                if !self.empty_domain(domain, budget) {
                    return false;
                }
                self.tell_of_death(domain);
            }
            ObjectType::ExecutionContext => self.end_domain_of(typed(object), ram),
            ObjectType::SchedulingContext => {
                if let Some(context) = typed::<Schedule>(object).context.get() {
                    self.end_domain_of(context, ram);
                }
            }
            ObjectType::Device => {
                // Refused for a device that cannot reach memory.
                let _ = typed::<Device>(object).set_master(false);
            }
            ObjectType::Segment => {
                let segment = typed::<Segment>(object);
                self.hold(anchor, object);
                // Capabilities first: then nobody maps it anew.
                return self.take_capabilities(object, Some(anchor), budget)
                    && segment.unmap_everywhere(self, budget)
                    && segment.free_pages(self, budget);
            }
            ObjectType::Portal => typed::<Portal>(object).set_callee(None),
            ObjectType::Semaphore => {
                // Capabilities first: then nobody waits anew.
                return self.take_capabilities(object, Some(anchor), budget)
                    && typed::<Semaphore>(object).fail_waiting(self, budget);
            }
            ObjectType::AddressRange => {
                let range = typed::<Range>(object);
                self.hold(anchor, object);
                // A space is closed since its domain ended.
                range.close();
                return self.take_capabilities(object, Some(anchor), budget)
                    && range.leave_parents(self, budget)
                    && range.clear(self, budget);
            }
            ObjectType::Pcore => {
                // Dropping its last name halts its core; it stays valid until that has halted.
                return self.take_capabilities(object, None, budget) && typed::<Pcore>(object).is_frozen();
            }
            ObjectType::RemoteContext => (),
            ObjectType::Pool => return self.end_pool(typed::<PoolOwner>(object), budget),
            ObjectType::Share => (),
            ObjectType::Ram => unreachable!("accounts are walked"),
        }
        self.take_capabilities(object, Some(anchor), budget)
    }

    /// Ends the domain of a context whose object or time is destroyed.
    fn end_domain_of(&mut self, context: Ptr<Context>, ram: Ptr<Ram>) {
        if context.state() == State::Dead {
            return;
        }
        let domain = context.domain();
        if ram.covers(domain.ram()) {
            self.kill_revoked(domain);
        } else {
            self.kill(domain, Death::by_call(DeathCause::Revoked, 0));
        }
    }

    /// Holds an object that is being drained. Another revocation that drains it drops this
    /// reference, too.
    fn hold(&mut self, anchor: &Slot, object: AnyObject) {
        if anchor.get().is_none_or(|held| held.object != object) {
            self.keep(anchor, Some(Capability { object, badge: 0, rights: Rights(0) }), None);
        }
    }

    /// Empties all slots that name an object, but for one; the last first, from which nothing is
    /// derived. Tells whether the budget sufficed.
    fn take_capabilities(&mut self, object: AnyObject, except: Option<&Slot>, budget: &mut Budget) -> bool {
        let except = except.map(Slot::place);
        let mut next = object.capabilities.last();
        while let Some(slot) = next {
            next = slot.link().previous();
            if Some(slot) != except {
                if !budget.spend(1) {
                    return false;
                }
                self.empty_slot(slot);
            }
        }
        true
    }

    /// Empties all slots that name an object; tells whether the budget sufficed.
    pub(crate) fn take_names(&mut self, object: AnyObject, budget: &mut Budget) -> bool {
        self.take_capabilities(object, None, budget)
    }

    /// Empties all slots that name an account but `slot` and those it was derived from.
    fn take_others(&mut self, slot: Ptr<Slot>, ram: Ptr<Ram>, budget: &mut Budget) -> bool {
        // Ancestors stand before what was derived from them, each of less depth than the last one
        // met.
        let mut ancestors_above = None;
        let mut next = ram.header().capabilities.last();
        while let Some(other) = next {
            next = other.link().previous();
            if other == slot || ancestors_above.is_some_and(|depth| other.depth() < depth) {
                ancestors_above = Some(other.depth());
            } else if budget.spend(1) {
                self.empty_slot(other);
            } else {
                return false;
            }
        }
        true
    }
}
