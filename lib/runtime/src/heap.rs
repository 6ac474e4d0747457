//! The heap: one segment that grows, at a fixed address, managed by talc,
//! with lists of small blocks in front.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr::NonNull;

use crate::classes::Classes;
use abi::layout::{HEAP, protection};
use abi::{Handle, PAGE_BYTES};
use talc::TalcCell;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

/// Smallest and largest step by which the heap grows.
const STEP_BYTES_MIN: u64 = 64 << 10;
const STEP_BYTES_MAX: u64 = 1 << 20;

/// Memory from the component's own Ram.
#[derive(Debug)]
struct Grower {
    bytes: u64,
    end: Option<NonNull<u8>>,
}

impl Grower {
    /// Adds at least `needed` bytes; gives the new end.
    fn grow(&mut self, needed: u64) -> Option<u64> {
        let step = (self.bytes / 4).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX).max(needed).next_multiple_of(PAGE_BYTES);
        let (old_pages, step_pages) = (self.bytes / PAGE_BYTES, step / PAGE_BYTES);
        let segment = match HEAP_SEGMENT.0.get() {
            None => sys::segment_alloc(Handle::SELF_RAM, step_pages, 0).ok()?.0,
            Some(segment) => {
                // SAFETY: it grows; no page goes away.
                unsafe { sys::segment_set_pages(segment, old_pages + step_pages) }.ok()?;
                segment
            }
        };
        HEAP_SEGMENT.0.set(Some(segment));
        sys::range_map(
            Handle::SELF_RANGE,
            HEAP + self.bytes,
            segment,
            old_pages,
            step_pages,
            protection::READ | protection::WRITE,
        )
        .ok()?;
        self.bytes += step;
        Some(HEAP + self.bytes)
    }
}

// SAFETY: `acquire` uses kernel calls and `talc` itself only, never the global allocator.
unsafe impl Source for Grower {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        // Room for the block, its alignment and the allocator's own marks.
        let needed = (layout.size() as u64).saturating_add(layout.align() as u64).saturating_add(PAGE_BYTES);
        let new_end = talc.source.grow(needed).ok_or(())? as *mut u8;
        let end = match talc.source.end {
            // SAFETY: HEAP..new_end was just mapped, zeroed and used by nobody.
            None => unsafe { talc.claim(HEAP as *mut u8, new_end as usize - HEAP as usize) }.ok_or(())?,
            // SAFETY: the memory from the old end to the new one was just mapped.
            Some(end) => unsafe { talc.extend(end, new_end) },
        };
        talc.source.end = Some(end);
        Ok(())
    }
}

struct Heap(Classes<TalcCell<Grower>>);

// SAFETY: a component runs Rust code in one execution context only; no second thread reaches the
// static.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP_OF_COMPONENT: Heap = Heap(Classes::new(TalcCell::new(Grower { bytes: 0, end: None })));

// SAFETY: passes everything on to what keeps the promises of `GlobalAlloc`.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.0.alloc(layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { self.0.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.0.realloc(pointer, layout, new_size) }
    }
}

/// The heap's segment, once something was allocated: a proxy has it inherited by forked children.
pub fn heap_segment() -> Option<Handle> {
    HEAP_SEGMENT.0.get()
}

struct SegmentCell(Cell<Option<Handle>>);

// SAFETY: as for `Heap`.
unsafe impl Sync for SegmentCell {}

static HEAP_SEGMENT: SegmentCell = SegmentCell(Cell::new(None));
