//! Mapping what was handed over at run time.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};

use abi::layout::{REGIONS, protection};
use abi::{Error, Handle, PAGE_BYTES};

/// The loader maps from `REGIONS` on, the running component from here on.
const FROM: u64 = REGIONS + (64 << 30);
/// Where the loader's next area begins.
const TO: u64 = abi::layout::HEAP;

/// Addresses that were never used, and those that are free again, by pages.
struct Addresses {
    next: Cell<u64>,
    free: RefCell<BTreeMap<u64, Vec<u64>>>,
}

// SAFETY: on Pelago a component runs Rust code in one context only. On a host nothing is ever
// mapped (every call is refused), so that the worst of a race is a wrong number.
unsafe impl Sync for Addresses {}

/// What was unmapped is used again for as many pages: fresh addresses would need fresh page tables.
static ADDRESSES: Addresses = Addresses { next: Cell::new(FROM), free: RefCell::new(BTreeMap::new()) };

/// A mapping that ends, with its capability, when dropped.
struct Mapping {
    address: u64,
    pages: u64,
    segment: Handle,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: each user of the memory holds this as its keeper.
        let unmapped = unsafe { sys::range_unmap(Handle::SELF_RANGE, self.address, self.pages) };
        if unmapped.is_ok() {
            ADDRESSES.free.borrow_mut().entry(self.pages).or_default().push(self.address);
        }
        let _ = sys::cap_drop(self.segment);
    }
}

/// Addresses for `pages` pages, with an empty one behind, so that running over an end is noticed.
pub(crate) fn reserve(pages: u64) -> Result<u64, Error> {
    if let Some(address) = ADDRESSES.free.borrow_mut().get_mut(&pages).and_then(Vec::pop) {
        return Ok(address);
    }
    let address = ADDRESSES.next.get();
    let bytes = pages.checked_add(1).and_then(|pages| pages.checked_mul(PAGE_BYTES)).ok_or(Error::BadArgument)?;
    ADDRESSES.next.set(address.checked_add(bytes).filter(|next| *next <= TO).ok_or(Error::NoMemory)?);
    Ok(address)
}

/// Maps a whole segment, readable and writable: its address, its bytes, and what keeps it mapped.
/// The segment's capability goes with it.
pub fn map_segment(segment: Handle) -> Result<(u64, u64, Rc<dyn Any>), Error> {
    let (pages, _, _) = sys::segment_stat(segment)?;
    let address = reserve(pages)?;
    sys::range_map(Handle::SELF_RANGE, address, segment, 0, pages, protection::READ | protection::WRITE)?;
    Ok((address, pages * PAGE_BYTES, Rc::new(Mapping { address, pages, segment })))
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_an_empty_page_behind_them_and_end_before_the_heap() {
        let [first, second, third] = [3, 1, 1].map(|pages| reserve(pages).unwrap());
        assert_eq!((first, second, third), (FROM, FROM + 4 * PAGE_BYTES, FROM + 6 * PAGE_BYTES));
        assert_eq!(reserve((TO - third) / PAGE_BYTES - 2), Err(Error::NoMemory));
        assert_eq!(
            (reserve(u64::MAX), reserve(u64::MAX / PAGE_BYTES)),
            (Err(Error::BadArgument), Err(Error::BadArgument))
        );
        assert_eq!(reserve((TO - third) / PAGE_BYTES - 3), Ok(third + 2 * PAGE_BYTES));
        assert_eq!(reserve(0), Err(Error::NoMemory));
    }
}
