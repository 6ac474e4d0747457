//! Memory that another core can see: contiguous pages, reached by words.

use abi::layout::{protection, segment};
use abi::{Error, Handle, PAGE_BYTES};
use alloc::rc::Rc;
use channel::Bulk;
use core::any::Any;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU64};

/// Pages of ours.
pub struct Pages {
    /// The segment.
    pub segment: Handle,
    /// Where they are mapped for us.
    pub address: u64,
    /// Where a device sees them.
    pub physical: u64,
    count: u64,
    _keeper: Rc<dyn Any>,
}

impl Pages {
    /// Zeroed.
    pub fn new(count: u64) -> Result<Pages, Error> {
        let (segment, physical) = sys::segment_alloc(Handle::SELF_RAM, count, segment::CONTIGUOUS)?;
        let (address, _, _keeper) = runtime::map_segment(segment)?;
        Ok(Pages { segment, address, physical, count, _keeper })
    }

    /// A page of code: the bytes from `start` to `end` of our text.
    pub fn of_code(start: &u8, end: &u8) -> Result<Pages, Error> {
        let (start, end) = (core::ptr::from_ref(start), core::ptr::from_ref(end));
        let bytes = end as usize - start as usize;
        assert!(bytes <= PAGE_BYTES as usize);
        let pages = Pages::new(1)?;
        // SAFETY: both symbols bound one piece of our text; the page was just made for this and is
        // nobody else's yet.
        unsafe { core::ptr::copy_nonoverlapping(start, pages.address as *mut u8, bytes) };
        Ok(pages)
    }

    /// The bytes, to be copied in and out.
    pub fn memory(&self) -> Bulk {
        let start = NonNull::new(self.address as *mut u8).expect("nothing is mapped at zero");
        // SAFETY: mapped as long as the keeper lives, and shared memory to all that reach it.
        unsafe { Bulk::at(start, (self.count * PAGE_BYTES) as usize, Some(self._keeper.clone())) }
    }

    /// A word.
    pub fn word(&self, index: u64) -> &AtomicU64 {
        assert!(index < self.count * PAGE_BYTES / 8);
        // SAFETY: mapped while we are, and reached as atomics only.
        unsafe { &*((self.address + 8 * index) as *const AtomicU64) }
    }

    /// A short word.
    pub fn short(&self, index: u64) -> &AtomicU16 {
        assert!(index < self.count * PAGE_BYTES / 2);
        // SAFETY: as for `word`.
        unsafe { &*((self.address + 2 * index) as *const AtomicU16) }
    }

    /// A ring of calls in these pages.
    pub fn ring(&self, doorbell: Handle) -> sys::CallRing {
        // SAFETY: the pages are reached as atomics only, by the ring's header and slots.
        unsafe { sys::CallRing::new(self.address, self.count, doorbell) }
    }
}

/// Protection of data.
pub const DATA: u64 = protection::READ | protection::WRITE;
/// Protection of code.
pub const CODE: u64 = protection::READ | protection::EXECUTE;
