//! Soft faults: filling the hardware tables from the mappings.
//!
//! Invariants: an entry is made only for a page that the mapping allows with the access wanted; it
//! is writable only if the frame is the segment's alone. A contiguous segment is mapped in pages of
//! 2 MiB where its place in memory and in the space allow it; a change of part of one takes all of
//! it out of the tables. What cannot be resolved here is the program's own fault and goes to its
//! proxy, or ends it. This file does not know who caused the access.

use super::frames::LARGE_PAGE;
use super::mapping::{Mapping, PAGE, PageRun};
use super::nest::Backing;
use super::segment::Kind;
use super::space::{LEAVES_BYTES, Space, flags_under};
use super::{Ptr, Range, Segment};
use crate::arch::paging::{Flags, Pte};
use crate::hardware;
use crate::memory::{PAGE_BYTES, PhysAddr};
use crate::state::Kernel;
use crate::steps::{PAGE_UNITS, UNITS};
use abi::Error;
use abi::layout::protection;

/// Set in entries whose bytes the kernel must not touch: registers of devices.
pub const NOT_RAM: Flags = Flags::SOFTWARE_0;

/// Fault-around: the pages around a fault that are mapped with it, 16 as on Linux, in one table of
/// leaves.
pub(super) const AROUND_BYTES: u64 = 16 * PAGE_BYTES as u64;

/// Pages of one `RangeFill`: each may have to be cleared.
const FILL_PAGES: u64 = (UNITS / PAGE_UNITS) as u64;

/// The kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

impl Access {
    /// From a page fault's error code (Intel SDM 3A, 4.7).
    pub fn decode(error: u64) -> Access {
        if error & 16 != 0 {
            Access::Execute
        } else if error & 2 != 0 {
            Access::Write
        } else {
            Access::Read
        }
    }

    /// The protection that allows it.
    pub fn needs(self) -> u64 {
        match self {
            Access::Read => protection::READ,
            Access::Write => protection::WRITE,
            Access::Execute => protection::EXECUTE,
        }
    }
}

/// The cause why an access cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Nothing is mapped there, or not with this right.
    NotAllowed,
    /// It would be allowed, but there is no page for it.
    NoMemory,
    /// Another core that holds a lock is stuck: try again later.
    Later,
}

/// The frame that an access gets.
pub type Resolved = Result<PhysAddr, Refused>;

impl Ptr<Range> {
    /// As `try_resolve`, but waits however long it takes.
    pub fn resolve(self, kernel: &mut Kernel, address: u64, access: Access) -> Resolved {
        loop {
            let resolved = self.try_resolve(kernel, address, access);
            if !matches!(resolved, Err(Refused::Later)) {
                return resolved;
            }
        }
    }

    /// Makes the access possible at `address`: gives the frame that the hardware entry now maps.
    pub fn try_resolve(self, kernel: &mut Kernel, address: u64, access: Access) -> Resolved {
        let found = self.find(address).ok_or(Refused::NotAllowed)?;
        if found.allowed & access.needs() == 0 {
            return Err(Refused::NotAllowed);
        }
        let local = found.local;
        let (mapping, segment) = match found.backing {
            Backing::Own(mapping, segment) => (mapping, segment),
            Backing::Shared(range) if range.is_stuck() => return Err(Refused::Later),
            Backing::Shared(range) => return kernel.resolve_shared(range, local, access, address),
        };
        let page = mapping.page_at(local);
        if page >= segment.pages() {
            return Err(Refused::NotAllowed);
        }
        let run = segment.base().map(|base| (base, segment.pages()));
        if let Some(start) = large_place(mapping, mapping.range().level(), run, local) {
            return map_large(kernel, mapping, segment, start, address);
        }
        let (frame, writable) = frame_for(kernel, segment, page, access)?;
        debug_assert!(
            !writable || segment.kind() != Kind::Anonymous || segment.is_writable(kernel, frame),
            "a frame of several may be written"
        );
        let entry = Pte::new(frame, flags_for(mapping, segment, writable));
        let local = local & !(PAGE_BYTES as u64 - 1);
        if mapping.range().own(kernel).map_entry(mapping, local, entry).map_err(|_| Refused::NoMemory)? {
            // The old entry allowed less of the same frame: other processors fault once more.
            hardware::flush_page(address);
        }
        Ok(frame)
    }

    /// Maps pages before they are touched, at most [`FILL_PAGES`]; gives how many: 0 if another
    /// core is stuck with a lock that this needs.
    pub fn fill(self, kernel: &mut Kernel, place: PageRun) -> Result<u64, Error> {
        let mut done = 0;
        while done < place.pages.min(FILL_PAGES) {
            match self.try_resolve(kernel, place.start + done * PAGE, Access::Read) {
                Ok(_) => done += 1,
                Err(Refused::Later) => break,
                Err(_) if done > 0 => break,
                Err(Refused::NotAllowed) => return Err(Error::BadArgument),
                Err(Refused::NoMemory) => return Err(Error::NoMemory),
            }
        }
        Ok(done)
    }
}

/// The entry for a page that is present, in a core's own range.
#[inline(always)]
pub(super) fn fault_around(kernel: &mut Kernel, mapping: Ptr<Mapping>, page: u64) -> Option<Pte> {
    let segment = mapping.segment()?;
    let frame = segment.frame(page)?;
    let writable = segment.kind() != Kind::Anonymous || segment.is_writable(kernel, frame);
    let is_mapped = writable || !segment.copies_by_reference();
    is_mapped.then(|| Pte::new(frame, flags_for(mapping, segment, writable)))
}

/// The start of the large page that can map `address`, if its place in the mapping, in memory and
/// in the tables is aligned for one. `run`: base and number of the segment's pages, if they are
/// contiguous.
pub fn large_place<S>(mapping: Ptr<Mapping<S>>, level: u32, run: Option<(PhysAddr, u64)>, address: u64) -> Option<u64> {
    let (base, pages) = run?;
    let start = address & !(LEAVES_BYTES - 1);
    let covered = level > 0 && start >= mapping.start() && start + LEAVES_BYTES <= mapping.end();
    let page = covered.then(|| mapping.page_at(start))?;
    let fits = page + LARGE_PAGE <= pages && (base.0 + page * PAGE).is_multiple_of(LEAVES_BYTES);
    fits.then_some(start)
}

/// Maps 2 MiB at once; gives the frame at `address`, as the space that faulted calls it.
fn map_large(kernel: &mut Kernel, mapping: Ptr<Mapping>, segment: Ptr<Segment>, start: u64, address: u64) -> Resolved {
    let page = mapping.page_at(start);
    let first = segment.frame(page).ok_or(Refused::NotAllowed)?;
    debug_assert!(first.0.is_multiple_of(LEAVES_BYTES) && segment.base().is_some(), "no run of a large page");
    let entry = Pte::new(first, flags_for(mapping, segment, true) | Flags::LARGE);
    if mapping.range().own(kernel).map_large(start, entry).map_err(|_| Refused::NoMemory)? {
        hardware::flush_page(address);
    }
    Ok(first + (address & (LEAVES_BYTES - 1) & !(PAGE - 1)))
}

/// The frame to map, and whether it may be mapped writable.
fn frame_for(
    kernel: &mut Kernel,
    segment: Ptr<Segment>,
    page: u64,
    access: Access,
) -> Result<(PhysAddr, bool), Refused> {
    if let Some(base) = segment.base() {
        return Ok((base + page * PAGE_BYTES as u64, true));
    }
    if let Some(alias) = segment.alias() {
        if alias.object().is_stuck() {
            return Err(Refused::Later);
        }
        let frame = alias.object().touch(kernel.core(), page).map_err(|_| Refused::NoMemory)?;
        return Ok((frame, true));
    }
    if access == Access::Write || segment.copies_by_reference() {
        let (frame, copied) = segment.touch_to_write(kernel, page).map_err(|_| Refused::NoMemory)?;
        kernel.counters.copy_faults += u64::from(copied);
        return Ok((frame, true));
    }
    let frame = segment.touch(kernel, page).map_err(|_| Refused::NoMemory)?;
    Ok((frame, segment.is_writable(kernel, frame)))
}

fn flags_for(mapping: Ptr<Mapping>, segment: Ptr<Segment>, writable: bool) -> Flags {
    let mut flags = flags_under(mapping.protection(), writable);
    if let Kind::Imported { uncached, is_ram, .. } = segment.kind() {
        if uncached {
            flags = flags | Flags::UNCACHED;
        }
        if !is_ram {
            flags = flags | NOT_RAM;
        }
    }
    flags
}
