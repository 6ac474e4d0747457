//! Share: a domain's table of capabilities.
//!
//! Invariants: slot 0 is never used; a bit of `taken` is set exactly if the slot holds a
//! capability; `slot` has the derivation of capabilities. Slot pages are made on demand, charged to
//! the domain's Ram, and stay until the share is emptied for good. A share is part of its domain's
//! object.

use super::{Domain, Object, Ptr, Slot};
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::layout::SHARE_SLOTS_MAX;
use abi::{Error, Handle, Rights};
use core::cell::Cell;
use core::ptr::NonNull;

pub use super::slot::Capability;

const SLOTS_PER_PAGE: usize = PAGE_BYTES / size_of::<Slot>();
const PAGES: usize = (SHARE_SLOTS_MAX as usize).div_ceil(SLOTS_PER_PAGE);
const WORDS: usize = SHARE_SLOTS_MAX as usize / 64;
const _: () = assert!(SHARE_SLOTS_MAX <= 1 << 16);
/// Slots with a fixed meaning, which are filled by their number only.
const FIXED: u64 = (1 << Handle::FIRST_FREE.0) - 1;

/// The table.
pub struct Share {
    taken: [Cell<u64>; WORDS],
    /// Numbers of their frames; 0: not made.
    pages: [Cell<u32>; PAGES],
    /// No word before this one has a free slot.
    first_free: Cell<usize>,
}

impl Share {
    /// An empty table.
    pub(crate) const fn new() -> Share {
        let mut taken = [const { Cell::new(0) }; WORDS];
        taken[0] = Cell::new(1);
        Share { taken, pages: [const { Cell::new(0) }; PAGES], first_free: Cell::new(0) }
    }

    /// The slot's place, if its page exists.
    #[inline(always)]
    fn slot(&self, index: usize) -> Option<Ptr<Slot>> {
        let number = self.pages.get(index / SLOTS_PER_PAGE)?.get();
        if number == 0 {
            return None;
        }
        let slots = phys_to_virt(frame(number)).cast::<Slot>();
        // SAFETY: the page holds SLOTS_PER_PAGE initialised slots (`ensure_page`) and lives as long
        // as the entry in `pages`.
        Some(unsafe { Ptr::new(NonNull::new_unchecked(slots.add(index % SLOTS_PER_PAGE))) })
    }

    /// The slot that `handle` names, and what it holds.
    #[inline(always)]
    pub fn find_slot(&self, handle: Handle) -> Result<(Ptr<Slot>, Capability), Error> {
        let index = usize::try_from(handle.0).map_err(|_| Error::BadHandle)?;
        let slot = self.slot(index).ok_or(Error::BadHandle)?;
        Ok((slot, slot.get().ok_or(Error::BadHandle)?))
    }

    /// What `handle` names.
    #[inline(always)]
    pub fn get(&self, handle: Handle) -> Result<Capability, Error> {
        self.find_slot(handle).map(|(_, capability)| capability)
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

    /// The lowest free slot that is not fixed.
    fn first_free(&self) -> Result<usize, Error> {
        let first = self.first_free.get();
        let unusable = |word: usize| self.taken[word].get() | if word == 0 { FIXED } else { 0 };
        let word = (first..WORDS).find(|&word| unusable(word) != u64::MAX).ok_or(Error::NoSlot)?;
        self.first_free.set(word);
        Ok(word * 64 + unusable(word).trailing_ones() as usize)
    }

    fn note_taken(&self, index: usize) {
        assert!(self.is_free(index), "the bit of a slot that was free is set");
        let word = &self.taken[index / 64];
        word.set(word.get() | 1 << (index % 64));
    }

    /// Marks a slot free that was emptied.
    pub(super) fn note_free(&self, index: usize) {
        assert!(index != 0 && !self.is_free(index), "the bit of a slot that was taken is not set");
        let word = &self.taken[index / 64];
        word.set(word.get() & !(1 << (index % 64)));
        self.first_free.set(self.first_free.get().min(index / 64));
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

fn frame(number: u32) -> PhysAddr {
    PhysAddr(u64::from(number) * PAGE_BYTES as u64)
}

impl Ptr<Domain> {
    /// Makes the slot's page, if it does not exist.
    pub fn ensure_slot(self, kernel: &mut Kernel, index: usize) -> Result<(), Error> {
        let page = self.share.pages.get(index / SLOTS_PER_PAGE).ok_or(Error::BadHandle)?;
        if page.get() == 0 {
            let frame = kernel.allocate_page(self.ram())?;
            let first = index - index % SLOTS_PER_PAGE;
            let slots = phys_to_virt(frame).cast::<Slot>();
            // SAFETY: a fresh page with room for that many slots.
            (0..SLOTS_PER_PAGE).for_each(|slot| unsafe { slots.add(slot).write(Slot::of_share(self, first + slot)) });
            page.set(u32::try_from(frame.0 / PAGE_BYTES as u64).expect("a core's memory ends below 16 TiB"));
        }
        Ok(())
    }

    /// Reserves the lowest free slot and makes its page; nothing is put there yet.
    #[inline(never)]
    pub fn reserve(self, kernel: &mut Kernel) -> Result<usize, Error> {
        let index = self.share.first_free()?;
        self.ensure_slot(kernel, index)?;
        Ok(index)
    }

    /// Puts the first capability of an object, or one that was derived from none, into a slot that
    /// `reserve` or `ensure_slot` prepared, taking over one reference of the object from the
    /// caller.
    pub fn insert(self, index: usize, capability: Capability) -> Handle {
        self.put(index, capability, None)
    }

    /// As `insert`, for a capability derived from the one in `parent`, which passed `check_parent`.
    pub fn insert_derived(self, index: usize, capability: Capability, parent: Ptr<Slot>) -> Handle {
        self.put(index, capability, Some(parent))
    }

    #[inline(never)]
    fn put(self, index: usize, capability: Capability, parent: Option<Ptr<Slot>>) -> Handle {
        let slot = self.share.slot(index).filter(|_| index != 0).expect("slot page was made");
        slot.fill(capability, parent);
        self.share.note_taken(index);
        if let Ok(named) = capability.object.cast::<Domain>() {
            named.add_name(self);
        }
        Handle(index as u64)
    }

    /// Empties a slot.
    pub fn remove(self, kernel: &mut Kernel, handle: Handle) -> Result<(), Error> {
        let (slot, _) = self.share.find_slot(handle)?;
        kernel.empty_slot(slot);
        Ok(())
    }

    /// Empties all slots and frees their pages; tells whether the budget sufficed.
    pub(super) fn empty_share(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        // The page of the domain's own names is freed last.
        if self.share.pages[0].get() == 0 {
            return true;
        }
        let mut next = 1;
        while let Some(index) = self.share.next_taken(next) {
            if !budget.spend(1) {
                return false;
            }
            let slot = self.share.slot(index).expect("slot is taken");
            budget.spend(kernel.empty_slot(slot));
            next = index;
        }
        for page in self.share.pages.iter().rev().filter(|page| page.get() != 0) {
            if !budget.spend(1) {
                return false;
            }
            kernel.free_page(self.ram(), frame(page.take()));
        }
        debug_assert!(self.share.next_taken(0).is_none(), "a slot is taken in a share without pages");
        true
    }
}
