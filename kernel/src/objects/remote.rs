//! Names for contexts of other cores, and the wake slots by which other cores name ours.
//!
//! A core may set wake bits of another core and add to their counts, and nothing else. A bit is a
//! wake slot: a number that the target core's monitor gave to one of its own contexts and badges,
//! or to a semaphore. A stale or wrong number is at worst a spurious wake-up of a context of that
//! core, or a spurious up.

use super::{AnyObject, Context, Header, Object, Portal, Semaphore};
use crate::hardware;
use crate::memory::{PhysAddr, phys_to_virt};
use crate::state::Kernel;
use abi::{Error, ObjectType};

/// Slots of a core; slot 0 is the log's, the last two the kernel's own.
const SLOTS: usize = abi::layout::WAKE_SLOTS as usize;
const _: () = assert!(SLOTS <= u16::MAX as usize, "an object counts its slots in 16 bits");
/// The doorbell by which a core has another check the pools that they share.
pub const SHARED_SLOT: usize = SLOTS - 2;
/// Pages the table takes.
pub const WAKE_TABLE_PAGES: u64 = (SLOTS * size_of::<WakeSlot>()).div_ceil(crate::memory::PAGE_BYTES) as u64;

/// A context of another core.
#[repr(C)]
pub struct Remote {
    header: Header,
    /// Its core and wake slot there.
    pub core: usize,
    /// Its wake slot there.
    pub slot: usize,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Remote {
    const TYPE: ObjectType = ObjectType::RemoteContext;
}

impl Remote {
    /// An alias; the header comes from `Kernel::create`.
    pub fn new(header: Header, core: usize, slot: usize) -> Remote {
        Remote { header, core, slot }
    }
}

type WakeSlot = Option<(AnyObject, u64)>;

/// Maps each wake bit of this core to its context, mailbox portal or semaphore. Slots do not count
/// as references: contexts that end, and portals and semaphores that are destroyed, free their own.
pub struct WakeSlots {
    table: Option<PhysAddr>,
    hint: usize,
}

impl WakeSlots {
    /// Without memory: no slots.
    pub(crate) const fn new() -> WakeSlots {
        WakeSlots { table: None, hint: 1 }
    }

    /// Gives it its memory: [`WAKE_TABLE_PAGES`] contiguous pages.
    pub fn set_table(&mut self, table: PhysAddr) {
        self.table = Some(table);
        let first = phys_to_virt(table).cast::<WakeSlot>();
        // SAFETY: the pages hold that many slots and are nobody else's.
        (0..SLOTS).for_each(|slot| unsafe { first.add(slot).write(None) });
    }

    fn slots(&mut self) -> &mut [WakeSlot] {
        match self.table {
            // SAFETY: initialised in `set_table`; borrowed with `self`.
            Some(table) => unsafe { core::slice::from_raw_parts_mut(phys_to_virt(table).cast(), SLOTS) },
            None => &mut [],
        }
    }

    /// Gives a free slot to a context, portal or semaphore.
    pub fn allocate(&mut self, target: AnyObject, badge: u64) -> Result<usize, Error> {
        let hint = self.hint;
        let slots = self.slots();
        let end = slots.len().min(SHARED_SLOT);
        let free = (hint..end).chain(1..hint.min(end)).find(|&slot| slots[slot].is_none());
        let slot = free.ok_or(Error::Busy)?;
        slots[slot] = Some((target, badge));
        // Drops the count of ups for the target that had it before.
        hardware::take_count(slot);
        self.hint = slot + 1;
        target.wake_slots.set(target.wake_slots.get() + 1);
        Ok(slot)
    }

    /// Takes a slot back.
    pub fn free(&mut self, slot: usize) -> Result<(), Error> {
        let (target, _) = self.slots().get_mut(slot).ok_or(Error::BadArgument)?.take().ok_or(Error::NotFound)?;
        assert!(target.wake_slots.get() > 0, "more wake slots go than came");
        target.wake_slots.set(target.wake_slots.get() - 1);
        Ok(())
    }

    /// Takes all slots of a context, portal or semaphore back.
    pub fn free_all(&mut self, target: AnyObject) {
        let mut left = target.wake_slots.replace(0);
        for slot in self.slots() {
            if left == 0 {
                break;
            }
            if slot.is_some_and(|(holder, _)| holder == target) {
                *slot = None;
                left -= 1;
            }
        }
        assert!(left == 0, "a wake slot was counted that nobody has");
    }

    /// The target of a wake bit.
    pub fn get(&mut self, slot: usize) -> WakeSlot {
        self.slots().get(slot).copied().flatten()
    }
}

/// Signals the target of a wake bit that another core has set.
pub fn on_wake_slot(kernel: &mut Kernel, slot: usize) {
    let Some((target, badge)) = kernel.wake_slots.get(slot) else { return };
    if let Ok(semaphore) = target.cast::<Semaphore>() {
        return semaphore.up_from_elsewhere(kernel, hardware::take_count(slot));
    }
    let context = target.cast::<Context>().ok().or_else(|| target.cast::<Portal>().ok()?.callee());
    if let Some(context) = context {
        kernel.signal(context, badge);
    }
}
