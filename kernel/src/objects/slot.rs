//! Slot: a place for a capability, and the tree of derivations.
//!
//! Invariants: a slot that is taken is on its object's list, counts as a reference of the object,
//! and does not move. The list is a preorder walk of the derivation trees: capabilities derived
//! from one follow it without a gap and have a greater depth. When one in the middle is removed,
//! those derived from it are derived from its parent. Depths end at [`DEPTH_MAX`], so a capability
//! is moved up so often at most, and emptying any number of slots takes time in proportion to their
//! number. Most slots are those of shares; the kernel's own references (the targets of
//! notifications of a death, a stall, an interrupt) are in slots, too, so that a revocation finds
//! all of them.

use super::{AnyObject, Domain, Link, Pcore, Ptr, linked, typed};
use crate::state::Kernel;
use abi::{Error, ObjectType, Rights};
use core::cell::Cell;
use core::ptr::NonNull;

/// Longest chain of derivations; the same as in the model (`lib/capability`).
pub const DEPTH_MAX: u8 = 16;

/// The capability in a slot. In this order of fields an error takes the place of the rights, so
/// that a result with one does not split the badge.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Capability {
    /// The object.
    pub object: AnyObject,
    /// The rights of its holder.
    pub rights: Rights,
    /// Bits that a notification through it sets.
    pub badge: u64,
}

/// A place for a capability: one cache line of a share page.
pub struct Slot {
    held: Cell<Option<Capability>>,
    of_object: Link<Slot>,
    /// The domain whose share it is in; `None` for the kernel's own.
    pub(crate) holder: Option<Ptr<Domain>>,
    pub(crate) index: u16,
    depth: Cell<u8>,
}
const _: () = assert!(size_of::<Slot>() == 64);

/// A slot and its capability, from which another is derived.
pub type Source = (Ptr<Slot>, Capability);

linked!(Slot, 0: of_object);

impl Slot {
    /// A free slot of the kernel's own.
    pub(crate) const fn new() -> Slot {
        Slot { held: Cell::new(None), of_object: Link::new(), holder: None, index: 0, depth: Cell::new(0) }
    }

    /// A free slot of a share.
    pub(super) const fn of_share(holder: Ptr<Domain>, index: usize) -> Slot {
        Slot { holder: Some(holder), index: index as u16, ..Slot::new() }
    }

    /// Its capability.
    #[inline(always)]
    pub fn get(&self) -> Option<Capability> {
        self.held.get()
    }

    /// A pointer to it, to name it as a parent.
    pub fn place(&self) -> Ptr<Slot> {
        // SAFETY: slots lie in pages of shares, in objects and in the kernel's state; none of these
        // moves or goes while a slot in it is taken.
        unsafe { Ptr::new(NonNull::from(self)) }
    }

    /// The depth of its capability in the derivation tree.
    pub fn depth(&self) -> u8 {
        self.depth.get()
    }
}

impl Ptr<Slot> {
    /// Checks that a capability may be derived from its own.
    pub fn check_parent(self) -> Result<(), Error> {
        if self.depth.get() < DEPTH_MAX { Ok(()) } else { Err(Error::TooDeep) }
    }

    /// Fills a free slot; the reference of the object has been counted. A `parent` names the same
    /// object and passed `check_parent`.
    pub(super) fn fill(self, capability: Capability, parent: Option<Ptr<Slot>>) {
        let object = capability.object;
        assert!(self.held.replace(Some(capability)).is_none(), "slot is taken");
        match parent {
            Some(parent) => {
                assert!(
                    parent.get().is_some_and(|of| of.object == object) && parent.depth.get() < DEPTH_MAX,
                    "no parent"
                );
                self.depth.set(parent.depth.get() + 1);
                object.capabilities.insert_after(parent, self);
            }
            None => {
                self.depth.set(0);
                object.capabilities.push_front(self);
            }
        }
    }

    /// The capabilities that were derived from it, directly or not.
    pub(super) fn first_derived(self) -> Option<Ptr<Slot>> {
        self.of_object.next().filter(|next| next.depth.get() > self.depth.get())
    }

    /// Takes its capability out; the caller gets the reference. Gives how many capabilities were
    /// derived from it.
    fn take(self) -> Option<(Capability, u32)> {
        let capability = self.held.take()?;
        let mut derived = 0;
        let mut next = self.first_derived();
        while let Some(slot) = next {
            slot.depth.set(slot.depth.get() - 1);
            derived += 1;
            next = slot.of_object.next().filter(|next| next.depth.get() > self.depth.get());
        }
        capability.object.capabilities.remove(self);
        Some((capability, derived))
    }

    /// Makes its capability a derivative of `parent`, which has none yet.
    pub fn derive_from(self, parent: Ptr<Slot>) {
        assert!(self.first_derived().is_none() && self != parent, "what is derived from it would follow another");
        if let Some((capability, _)) = self.take() {
            self.fill(capability, Some(parent));
        }
    }
}

impl Kernel {
    /// Empties a slot, wherever it is; tells how many capabilities had been derived from it.
    /// Nothing if it is free.
    pub fn empty_slot(&mut self, slot: Ptr<Slot>) -> u32 {
        let Some((capability, derived)) = slot.take() else { return 0 };
        if let Some(holder) = slot.holder {
            holder.share().note_free(usize::from(slot.index));
            match capability.object.object_type() {
                ObjectType::Domain => typed::<Domain>(capability.object).drop_name(self, holder),
                ObjectType::Pcore => typed::<Pcore>(capability.object).lost_name(),
                _ => (),
            }
        }
        self.release_any(capability.object);
        derived
    }

    /// Replaces the capability in a slot of the kernel's own; derives the new one from `parent` if
    /// there is one.
    pub fn keep(&mut self, slot: &Slot, new: Option<Capability>, parent: Option<Ptr<Slot>>) {
        if let Some(new) = new {
            self.retain_any(new.object);
        }
        self.empty_slot(slot.place());
        if let Some(new) = new {
            slot.place().fill(new, parent);
        }
    }
}
