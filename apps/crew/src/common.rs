//! The memory that all dispatchers map at one address: a counter, the head of a list, and a node
//! of each.

use abi::layout::{lock, protection};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::Start;

/// Where all map it: in the room of regions, past what the monitor maps there.
const PLACE: u64 = abi::layout::REGIONS + (3 << 38);
const RANGE_PAGES: u64 = 512;
/// A page for the words, and a line for each of 256 dispatchers.
const PAGES: u64 = 1 + 256 * LINE_BYTES / PAGE_BYTES;
const LINE_BYTES: u64 = 64;
const USES: u64 = PLACE;
const HEAD: u64 = PLACE + LINE_BYTES;
const NODES: u64 = PLACE + PAGE_BYTES;
const READ_WRITE: u64 = protection::READ | protection::WRITE;
/// Of the region in which the first dispatcher keeps the range's id for its successors.
const STATE: &str = "crew-state";

/// The memory, mapped.
pub(crate) struct Common {
    /// The range's id in the pool.
    pub(crate) id: u64,
}

/// A word of the memory.
fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: callers pass addresses in the range at `PLACE`, which is there as long as this
    // program, once there is a `Common`; it holds words that all use as atomics only.
    unsafe { &*(address as *const AtomicU64) }
}

/// Shows a range of the pool at the place; gives our own name for it.
fn nest(range: Handle) -> Result<Handle, Error> {
    let own = sys::share_add(Handle::NONE, range, Rights::ALL)?;
    sys::range_nest(Handle::SELF_RANGE, PLACE, own, READ_WRITE)?;
    Ok(own)
}

impl Common {
    /// For the first dispatcher: makes the range, or finds the one that its predecessor made.
    pub(crate) fn first(start: &Start, pool: Handle) -> Result<Common, Error> {
        let state = start.region(STATE).ok_or(Error::NotFound)?.memory();
        let mut id = [0; 8];
        state.read(0, &mut id).map_err(|_| Error::BadArgument)?;
        let id = u64::from_le_bytes(id);
        let common = if id == 0 { Common::make(pool)? } else { Common::mapped(pool, id)? };
        state.write(0, &common.id.to_le_bytes()).map_err(|_| Error::BadArgument)?;
        word(USES).fetch_add(1, Ordering::AcqRel);
        word(HEAD).store(0, Ordering::Release);
        Ok(common)
    }

    fn make(pool: Handle) -> Result<Common, Error> {
        let (range, id, _) = sys::share_range(pool, RANGE_PAGES, lock::SPIN, [0; 2], 0)?;
        let range = nest(range)?;
        let (segment, _) = sys::share_segment(pool, PAGES, [0; 2], 0)?;
        sys::range_map(range, 0, segment, 0, PAGES, READ_WRITE)?;
        Ok(Common { id })
    }

    /// Shows the range of that id.
    pub(crate) fn mapped(pool: Handle, id: u64) -> Result<Common, Error> {
        nest(Handle::in_share(pool, id).ok_or(Error::NotFound)?)?;
        Ok(Common { id })
    }

    /// Puts a dispatcher into the list: the head leads to its node, and that to the one before.
    pub(crate) fn join(&self, number: usize, core: u32, generation: u64) {
        let node = NODES + number as u64 * LINE_BYTES;
        word(node + 8).store(generation << 32 | u64::from(core), Ordering::Release);
        let before = word(HEAD).swap(node, Ordering::AcqRel);
        word(node).store(before, Ordering::Release);
    }

    /// The cores in the list of that generation, ascending.
    pub(crate) fn walk(&self, generation: u64) -> Vec<u32> {
        let mut met = Vec::new();
        let mut node = word(HEAD).load(Ordering::Acquire);
        while (NODES..PLACE + PAGES * PAGE_BYTES).contains(&node) && met.len() < 256 {
            let who = word(node + 8).load(Ordering::Acquire);
            met.extend((who >> 32 == generation).then_some(who as u32));
            node = word(node).load(Ordering::Acquire);
        }
        met.sort_unstable();
        met
    }

    /// Generations that have used it.
    pub(crate) fn uses(&self) -> u64 {
        word(USES).load(Ordering::Acquire)
    }
}
