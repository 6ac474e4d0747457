//! First touch of a fresh page, of a page that another mapping showed already, and of a page shared
//! until written.

use abi::layout::{copy, protection};
use abi::{Error, Handle};

use crate::sample::{SAMPLES, Stopwatch, Stretch, look, row};

/// Pages in a sample; few tables to fill beside them.
const PAGES: u64 = 64;
const FRESH: &str = "demand-zero-page";
const SHARED: &str = "shared-page";
const COPIED: &str = "copy-on-write-page";
const PAGE_BYTES: u64 = abi::PAGE_BYTES;
/// In the room of regions, past what the loader and the runtime map there.
const ORIGINAL: u64 = abi::layout::REGIONS + (1 << 38);
const COPY: u64 = ORIGINAL + (1 << 30);
const AGAIN: u64 = COPY + (1 << 30);
const READ_WRITE: u64 = protection::READ | protection::WRITE;

/// All rows.
pub async fn all() -> Result<(), Error> {
    let mut fresh = [Stretch::default(); SAMPLES];
    let mut shared = [Stretch::default(); SAMPLES];
    let mut copied = [Stretch::default(); SAMPLES];
    for ((fresh, shared), copied) in fresh.iter_mut().zip(&mut shared).zip(&mut copied) {
        let (original, _) = sys::segment_alloc(Handle::SELF_RAM, PAGES, 0)?;
        sys::range_map(Handle::SELF_RANGE, ORIGINAL, original, 0, PAGES, READ_WRITE)?;
        *fresh = touch(FRESH, ORIGINAL);
        sys::range_map(Handle::SELF_RANGE, AGAIN, original, 0, PAGES, READ_WRITE)?;
        *shared = touch(SHARED, AGAIN);
        // SAFETY: only `touch` used these pages, and it is done.
        unsafe { sys::range_unmap(Handle::SELF_RANGE, AGAIN, PAGES) }?;
        let copy = sys::segment_copy(Handle::SELF_RAM, original, copy::ON_WRITE)?;
        sys::range_map(Handle::SELF_RANGE, COPY, copy, 0, PAGES, READ_WRITE)?;
        *copied = touch(COPIED, COPY);
        for (address, segment) in [(COPY, copy), (ORIGINAL, original)] {
            // SAFETY: only `touch` used these pages, and it is done.
            unsafe { sys::range_unmap(Handle::SELF_RANGE, address, PAGES) }?;
            sys::cap_drop(segment)?;
        }
        look().await;
    }
    row(FRESH, PAGES, &mut fresh);
    row(SHARED, PAGES, &mut shared);
    row(COPIED, PAGES, &mut copied);
    Ok(())
}

/// Writes a word into each page.
fn touch(name: &str, address: u64) -> Stretch {
    let watch = Stopwatch::start(name, PAGES);
    for page in 0..PAGES {
        // SAFETY: mapped read-write by the caller, known to nobody else.
        unsafe { ((address + page * PAGE_BYTES) as *mut u64).write_volatile(page) };
    }
    watch.stop()
}
