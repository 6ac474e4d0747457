//! Mapping what was handed over at run time.

use alloc::rc::Rc;
use core::any::Any;
use core::cell::Cell;

use abi::layout::{REGIONS, protection};
use abi::{Error, Handle, PAGE_BYTES};

/// The loader maps from `REGIONS` on, the running component from here on.
const FROM: u64 = REGIONS + (64 << 30);
/// Where the loader's next area begins.
const TO: u64 = abi::layout::HEAP;

struct Next(Cell<u64>);

// SAFETY: on Pelago a component runs Rust code in one context only. On a host nothing is ever
// mapped (every call is refused), so that the worst of a race is a wrong number.
unsafe impl Sync for Next {}

/// Addresses are not used again: there are enough for 2^32 pages.
static NEXT: Next = Next(Cell::new(FROM));

/// A mapping that ends, with its capability, when dropped.
struct Mapping {
    address: u64,
    pages: u64,
    segment: Handle,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: whoever uses the memory holds this as its keeper.
        let _ = unsafe { sys::range_unmap(Handle::SELF_RANGE, self.address, self.pages) };
        let _ = sys::cap_drop(self.segment);
    }
}

/// Addresses for `pages` pages, with an empty one behind, so that running over an end is noticed.
pub(crate) fn reserve(pages: u64) -> Result<u64, Error> {
    let address = NEXT.0.get();
    let bytes = pages.checked_add(1).and_then(|pages| pages.checked_mul(PAGE_BYTES)).ok_or(Error::BadArgument)?;
    NEXT.0.set(address.checked_add(bytes).filter(|next| *next <= TO).ok_or(Error::NoMemory)?);
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
