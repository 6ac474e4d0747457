//! The shared region: its layout and the words of its header page.

use alloc::rc::Rc;
use core::any::Any;
use core::ptr::NonNull;
use core::slice;

use abi::PAGE_BYTES;
use ring::{AtomicU64, Ordering, Slot, is_ring_size};

/// "CHANNEL" and the layout's version.
const MAGIC: u64 = 0x4348_414e_4e45_4c01;

/// The two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Calls.
    Client = 0,
    /// Answers.
    Server = 1,
}

impl Side {
    /// The other one.
    pub const fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// Sizes of a region's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots of each of the two rings; a power of two, 16 to 65536.
    pub ring_slots: u32,
    /// Bytes of the bulk area, possibly 0.
    pub bulk_bytes: u32,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { ring_slots: 64, bulk_bytes: 0 }
    }
}

impl Layout {
    /// Bytes of the whole region: whole pages.
    pub const fn bytes(self) -> u64 {
        (self.bulk_offset() + self.bulk_bytes as u64).next_multiple_of(PAGE_BYTES)
    }

    const fn ring_offset(self, from: Side) -> u64 {
        PAGE_BYTES + from as u64 * self.ring_bytes()
    }

    const fn ring_bytes(self) -> u64 {
        self.ring_slots as u64 * size_of::<Slot>() as u64
    }

    pub(crate) const fn bulk_offset(self) -> u64 {
        (PAGE_BYTES + 2 * self.ring_bytes()).next_multiple_of(PAGE_BYTES)
    }
}

/// The region cannot be a channel: too small, not aligned, or not formatted as the monitor does.
/// Remedy: check the wiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRegion;

/// A word on a cache line of its own.
#[repr(C, align(64))]
struct Line(AtomicU64);

/// First page of a region.
#[repr(C)]
struct Head {
    magic: Line,
    /// ring_slots << 32 | bulk_bytes.
    sizes: Line,
    generation: Line,
    /// 1: that side sleeps; ring its doorbell.
    asleep: [Line; 2],
    /// How far the *other* side has read what that side sent.
    index: [Line; 2],
    /// 1: that side waits for room in the ring it writes.
    wants_room: [Line; 2],
    /// Generation in which that side left.
    closed: [Line; 2],
    /// That side's contract hash; 0 before it is bound.
    hash: [Line; 2],
    /// 1: no generation follows.
    ended: Line,
}

const _: () = assert!(size_of::<Head>() <= PAGE_BYTES as usize);

/// A region in reach of this program.
pub struct Memory {
    base: NonNull<u8>,
    bytes: u64,
    layout: Layout,
    /// Where each side's ring begins.
    rings: [NonNull<Slot>; 2],
    /// Unmaps or frees the region when dropped, if that is wanted.
    keeper: Option<Rc<dyn Any>>,
}

impl Memory {
    /// A formatted region.
    ///
    /// # Safety
    /// `bytes` at `address` must be readable and writable, used by this program as shared memory
    /// only (no references into it), for as long as `keeper` lives or, without one, for ever.
    pub unsafe fn attach(address: u64, bytes: u64, keeper: Option<Rc<dyn Any>>) -> Result<Memory, BadRegion> {
        // SAFETY: passed on.
        let mut memory = unsafe { Memory::raw(address, bytes, keeper) }?;
        let head = memory.head();
        let sizes = head.sizes.0.load(Ordering::Acquire);
        let layout = Layout { ring_slots: (sizes >> 32) as u32, bulk_bytes: sizes as u32 };
        if head.magic.0.load(Ordering::Relaxed) != MAGIC
            || !is_ring_size(layout.ring_slots as usize)
            || layout.bytes() > bytes
        {
            return Err(BadRegion);
        }
        memory.lay_out(layout);
        Ok(memory)
    }

    /// A zeroed region that becomes a channel of generation 1.
    ///
    /// # Safety
    /// As [`Memory::attach`].
    pub unsafe fn format(
        address: u64,
        bytes: u64,
        layout: Layout,
        keeper: Option<Rc<dyn Any>>,
    ) -> Result<Memory, BadRegion> {
        if !is_ring_size(layout.ring_slots as usize) || layout.bytes() > bytes {
            return Err(BadRegion);
        }
        // SAFETY: passed on.
        let mut memory = unsafe { Memory::raw(address, bytes, keeper) }?;
        memory.lay_out(layout);
        let head = memory.head();
        head.sizes.0.store((layout.ring_slots as u64) << 32 | layout.bulk_bytes as u64, Ordering::Relaxed);
        head.generation.0.store(1, Ordering::Relaxed);
        head.magic.0.store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// # Safety
    /// As [`Memory::attach`].
    unsafe fn raw(address: u64, bytes: u64, keeper: Option<Rc<dyn Any>>) -> Result<Memory, BadRegion> {
        let base = NonNull::new(address as *mut u8).ok_or(BadRegion)?;
        if !address.is_multiple_of(64) || bytes < PAGE_BYTES || address.checked_add(bytes).is_none() {
            return Err(BadRegion);
        }
        let rings = [NonNull::dangling(); 2];
        Ok(Memory { base, bytes, layout: Layout { ring_slots: 0, bulk_bytes: 0 }, rings, keeper })
    }

    /// Takes over a layout, which was checked to lie within the region.
    fn lay_out(&mut self, layout: Layout) {
        self.layout = layout;
        self.rings = [Side::Client, Side::Server].map(|from| {
            // SAFETY: a ring lies within the region.
            unsafe { self.base.add(layout.ring_offset(from) as usize) }.cast()
        });
    }

    fn head(&self) -> &Head {
        // SAFETY: the region has at least a page, aligned to 64, alive as long as `self` (promised
        // to `attach`); a Head is atomics only, for which any bytes are valid and which the other
        // side may change at any time.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    /// The ring that `from` writes.
    #[inline]
    pub(crate) fn ring(&self, from: Side) -> &[Slot] {
        // SAFETY: `layout.bytes()` was checked to lie within the region, a ring begins at a
        // multiple of 64, and slots are atomics only.
        unsafe { slice::from_raw_parts(self.rings[from as usize].as_ptr(), self.layout.ring_slots as usize) }
    }

    /// The reader's index word of that ring.
    pub(crate) fn index(&self, from: Side) -> &AtomicU64 {
        &self.head().index[from as usize].0
    }

    pub(crate) fn asleep(&self, side: Side) -> &AtomicU64 {
        &self.head().asleep[side as usize].0
    }

    pub(crate) fn wants_room(&self, side: Side) -> &AtomicU64 {
        &self.head().wants_room[side as usize].0
    }

    pub(crate) fn hash(&self, side: Side) -> &AtomicU64 {
        &self.head().hash[side as usize].0
    }

    /// The current generation.
    pub fn generation(&self) -> u32 {
        self.head().generation.0.load(Ordering::Acquire) as u32
    }

    /// For the monitor, between the end of a side and the start of its successor. Notify the
    /// survivor afterwards.
    pub fn raise_generation(&self) -> u32 {
        let generation = self.generation().wrapping_add(1).max(1);
        self.head().generation.0.store(generation.into(), Ordering::Release);
        generation
    }

    /// For the monitor, when the channel goes to another client: a generation that the one before
    /// could not foretell, as it might have announced it itself. Notify the server afterwards.
    pub fn begin_generation(&self, generation: u32) {
        self.head().generation.0.store(generation.into(), Ordering::Release);
    }

    /// A side has left, in this generation. Notify the other afterwards.
    pub fn close(&self, side: Side) {
        self.head().closed[side as usize].0.store(self.generation().into(), Ordering::Release);
    }

    /// For the monitor, when it takes the channel apart: no generation follows. Notify both sides
    /// afterwards.
    pub fn end(&self) {
        self.head().ended.0.store(1, Ordering::Release);
        [Side::Client, Side::Server].into_iter().for_each(|side| self.close(side));
    }

    /// Was it taken apart?
    pub fn is_ended(&self) -> bool {
        self.head().ended.0.load(Ordering::Acquire) != 0
    }

    /// Has that side left in this generation?
    pub fn is_closed(&self, side: Side) -> bool {
        self.is_closed_in(side, self.generation())
    }

    /// Has that side left in that generation?
    pub(crate) fn is_closed_in(&self, side: Side, generation: u32) -> bool {
        self.head().closed[side as usize].0.load(Ordering::Acquire) as u32 == generation
    }

    /// Sizes as checked when the region was attached.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Address of the region.
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Bytes of the region.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn bulk_start(&self) -> NonNull<u8> {
        // SAFETY: within the region, see `ring`.
        unsafe { self.base.add(self.layout.bulk_offset() as usize) }
    }

    pub(crate) fn keeper(&self) -> Option<Rc<dyn Any>> {
        self.keeper.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerChannel, loopback_memory, loopback_wiring};

    #[test]
    fn rings_and_bulk_follow_the_header_in_whole_pages() {
        let layout = Layout { ring_slots: 32, bulk_bytes: 5000 };
        let rings = [Side::Client, Side::Server].map(|from| layout.ring_offset(from));
        assert_eq!((rings, layout.bulk_offset(), layout.bytes()), ([4096, 6144], 8192, 16384));
        let uneven = Layout { ring_slots: 16, bulk_bytes: 4096 };
        assert_eq!((uneven.bulk_offset(), uneven.bytes()), (8192, 12288), "rings end within a page");
        assert_eq!(Layout { ring_slots: 128, bulk_bytes: 0 }.bulk_offset(), 20480);
        let [memory] = loopback_memory(layout);
        let bulk = memory.bulk_start().as_ptr() as u64;
        assert_eq!((bulk - memory.address(), memory.bytes()), (8192, 16384));
    }

    #[test]
    fn a_side_has_left_in_the_generation_in_which_it_did() {
        let [memory] = loopback_memory(Layout::default());
        memory.close(Side::Server);
        assert!(memory.is_closed(Side::Server) && !memory.is_closed(Side::Client));
        memory.raise_generation();
        assert!(!memory.is_closed(Side::Server));
    }

    #[test]
    fn a_region_is_there_as_long_as_somebody_has_its_bulk_area() {
        let keeper: Rc<dyn Any> = Rc::new(());
        let [lent] = loopback_memory(Layout { ring_slots: 16, bulk_bytes: 64 });
        // SAFETY: `lent` is kept, and is not used.
        let own = unsafe { Memory::attach(lent.address(), lent.bytes(), Some(keeper.clone())) }.unwrap();
        let channel = ServerChannel::new(loopback_wiring(own, false));
        let bulk = channel.peer().bulk();
        drop(channel);
        assert_eq!((Rc::strong_count(&keeper), bulk.len()), (2, 64));
        drop(bulk);
        assert_eq!(Rc::strong_count(&keeper), 1);
    }
}
