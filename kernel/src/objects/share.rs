//! Share: a domain's table of capabilities.
//!
//! Invariants: slot 0 is never used; a bit of `taken` is set exactly if the slot holds a capability; each capability counts as a reference of its object.
//! Slot pages are made on demand, paid by the domain's Ram, and stay until the share is emptied for good. A share is part of its domain's object. Which
//! capability was derived from which is not recorded yet: revocation from above comes with nested shares.

use super::{AnyObject, Domain, Object, Ptr, Ram};
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::state::Kernel;
use abi::layout::SHARE_SLOTS_MAX;
use abi::{Error, Handle, Rights};
use core::cell::Cell;

/// What a slot holds.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub struct Capability {
    /// The object.
    pub object: AnyObject,
    /// Bits that a notification through it sets.
    pub badge: u64,
    /// What its holder may do.
    pub rights: Rights,
}

type Slot = Option<Capability>;
const SLOTS_PER_PAGE: usize = PAGE_BYTES / size_of::<Slot>();
const PAGES: usize = (SHARE_SLOTS_MAX as usize).div_ceil(SLOTS_PER_PAGE);
const WORDS: usize = SHARE_SLOTS_MAX as usize / 64;
const _: () = assert!(size_of::<Slot>() == 32);
/// Slots with a meaning of their own, which are filled on purpose only.
const FIXED: u64 = (1 << Handle::FIRST_FREE.0) - 1;

/// The table.
pub struct Share {
    taken: [Cell<u64>; WORDS],
    /// 0: not made.
    pages: [Cell<u64>; PAGES],
    /// No word before this one has a free slot.
    first_free: Cell<usize>,
}

impl Share {
    /// An empty table.
    pub const fn new() -> Share {
        let mut taken = [const { Cell::new(0) }; WORDS];
        taken[0] = Cell::new(1);
        Share { taken, pages: [const { Cell::new(0) }; PAGES], first_free: Cell::new(0) }
    }

    /// The slot's cell, if its page exists.
    fn slot(&self, index: usize) -> Option<&Cell<Slot>> {
        let frame = self.pages.get(index / SLOTS_PER_PAGE)?.get();
        if frame == 0 {
            return None;
        }
        let slots = phys_to_virt(PhysAddr(frame)).cast::<Cell<Slot>>();
        // SAFETY: the page holds SLOTS_PER_PAGE initialised slots (`ensure_page`) and lives as long as the entry in `pages`.
        Some(unsafe { &*slots.add(index % SLOTS_PER_PAGE) })
    }

    /// What `handle` names.
    #[inline]
    pub fn get(&self, handle: Handle) -> Result<Capability, Error> {
        let index = usize::try_from(handle.0).map_err(|_| Error::BadHandle)?;
        self.slot(index).and_then(Cell::get).ok_or(Error::BadHandle)
    }

    /// The object `handle` names, if it is a `T` and the capability has all `rights`.
    #[inline]
    pub fn find<T: Object>(&self, handle: Handle, rights: Rights) -> Result<(Ptr<T>, Capability), Error> {
        let capability = self.get(handle)?;
        let object = capability.object.cast::<T>()?;
        if !capability.rights.contains(rights) {
            return Err(Error::NoRights);
        }
        Ok((object, capability))
    }

    /// Whether nothing is in the slot, and it may be used.
    pub fn is_free(&self, index: usize) -> bool {
        index != 0 && index < SHARE_SLOTS_MAX as usize && self.taken[index / 64].get() >> (index % 64) & 1 == 0
    }

    /// Makes sure that the slot's page exists.
    pub fn ensure_page(&self, kernel: &mut Kernel, ram: Ptr<Ram>, index: usize) -> Result<(), Error> {
        let page = self.pages.get(index / SLOTS_PER_PAGE).ok_or(Error::BadHandle)?;
        if page.get() == 0 {
            let frame = kernel.allocate_page(ram)?;
            let slots = phys_to_virt(frame).cast::<Slot>();
            // SAFETY: a fresh page with room for that many slots.
            (0..SLOTS_PER_PAGE).for_each(|slot| unsafe { slots.add(slot).write(None) });
            page.set(frame.0);
        }
        Ok(())
    }

    /// The lowest free slot, its page made; nothing is put there yet.
    pub fn reserve(&self, kernel: &mut Kernel, ram: Ptr<Ram>) -> Result<usize, Error> {
        let first = self.first_free.get();
        let unusable = |word: usize| self.taken[word].get() | if word == 0 { FIXED } else { 0 };
        let word = (first..WORDS).find(|&word| unusable(word) != u64::MAX).ok_or(Error::NoSlot)?;
        self.first_free.set(word);
        let index = word * 64 + unusable(word).trailing_ones() as usize;
        self.ensure_page(kernel, ram, index)?;
        Ok(index)
    }

    /// Fills a free slot whose page exists. The capability's reference must have been counted; see [`Domain::insert`].
    fn set(&self, index: usize, capability: Capability) {
        let slot = self.slot(index).expect("slot page was made");
        assert!(slot.get().is_none() && index != 0, "slot is taken");
        slot.set(Some(capability));
        let word = &self.taken[index / 64];
        word.set(word.get() | 1 << (index % 64));
    }

    fn clear(&self, index: usize) -> Option<Capability> {
        let old = self.slot(index)?.take()?;
        let word = &self.taken[index / 64];
        word.set(word.get() & !(1 << (index % 64)));
        self.first_free.set(self.first_free.get().min(index / 64));
        Some(old)
    }

    /// The next taken slot at or after `from`.
    pub fn next_taken(&self, from: usize) -> Option<usize> {
        let mut index = from.max(1);
        while index < SHARE_SLOTS_MAX as usize {
            let rest = self.taken[index / 64].get() >> (index % 64);
            if rest != 0 {
                return Some(index + rest.trailing_zeros() as usize);
            }
            index = (index / 64 + 1) * 64;
        }
        None
    }
}

impl Ptr<Domain> {
    /// Puts a capability into a slot that `reserve` or `ensure_page` prepared, taking over one reference of the object from the caller.
    pub fn insert(self, index: usize, capability: Capability) -> Handle {
        self.share.set(index, capability);
        if let Ok(named) = capability.object.cast::<Domain>() {
            named.add_name(self);
        }
        Handle(index as u64)
    }

    /// Empties a slot.
    pub fn remove(self, kernel: &mut Kernel, handle: Handle) -> Result<(), Error> {
        let index = usize::try_from(handle.0).map_err(|_| Error::BadHandle)?;
        let old = self.share.clear(index).ok_or(Error::BadHandle)?;
        if let Ok(named) = old.object.cast::<Domain>() {
            named.drop_name(kernel, self);
        }
        kernel.release_any(old.object);
        Ok(())
    }

    /// Empties all slots and gives their pages back.
    pub(super) fn empty_share(self, kernel: &mut Kernel) {
        let mut next = 1;
        while let Some(index) = self.share.next_taken(next) {
            self.remove(kernel, Handle(index as u64)).expect("slot is taken");
            next = index + 1;
        }
        for page in &self.share.pages {
            let frame = page.take();
            if frame != 0 {
                kernel.free_page(self.ram(), PhysAddr(frame));
            }
        }
    }
}

impl Default for Share {
    fn default() -> Self {
        Share::new()
    }
}
