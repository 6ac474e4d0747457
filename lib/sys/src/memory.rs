//! Ram, segments, address ranges.

use abi::{Call, Handle, RangeEntry};

use crate::{Outcome, call};

/// `RamSplit`: a child account with its own limit. `turns`: none to share the parent's turns of the
/// core, another account to share its, this core's pcore for turns of its own.
pub fn ram_split(ram: Handle, limit_pages: u64, turns: Handle) -> Outcome<Handle> {
    // SAFETY: makes an object; takes nothing from us.
    let results = unsafe { call(Call::RamSplit, [ram.0, limit_pages, turns.0, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `RamTurns`: the account has turns of the core of its own from now on.
pub fn ram_turns(ram: Handle) -> Outcome<()> {
    // SAFETY: changes when contexts run, not what they do.
    unsafe { call(Call::RamTurns, [ram.0, Handle::PCORE.0, 0, 0, 0, 0]) }?;
    Ok(())
}

/// `RamStat`: limit, used, and free pages of the root account.
pub fn ram_stat(ram: Handle) -> Outcome<(u64, u64, u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::RamStat, [ram.0, 0, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], results.words[2]))
}

/// `RamCarve`: physical address of contiguous pages that leave this core.
pub fn ram_carve(root_ram: Handle, pages: u64) -> Outcome<u64> {
    // SAFETY: the kernel gives free pages only.
    let results = unsafe { call(Call::RamCarve, [root_ram.0, pages, 0, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `RamAdd`: pages carved elsewhere become this core's.
pub fn ram_add(root_ram: Handle, physical: u64, pages: u64) -> Outcome<()> {
    // SAFETY: that the pages are nobody else's is between monitors (capability with CONTROL); none
    // of them is mapped here.
    unsafe { call(Call::RamAdd, [root_ram.0, physical, pages, 0, 0, 0]) }.map(drop)
}

/// `RamRevoke`: takes back what the account pays for; tells whether that was all. If not, call
/// again.
///
/// # Safety
/// Nothing in this program may use memory that the account pays for.
pub unsafe fn ram_revoke(ram: Handle) -> Outcome<bool> {
    // SAFETY: passed on.
    let results = unsafe { call(Call::RamRevoke, [ram.0, 0, 0, 0, 0, 0]) }?;
    Ok(results.words[0] == 0)
}

/// `SegmentAlloc`: the segment, and its physical address if contiguous.
pub fn segment_alloc(ram: Handle, pages: u64, flags: u64) -> Outcome<(Handle, u64)> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::SegmentAlloc, [ram.0, pages, flags, 0, 0, 0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `SegmentCopy`: `mode` is one of `abi::layout::copy`.
pub fn segment_copy(ram: Handle, segment: Handle, mode: u64) -> Outcome<Handle> {
    // SAFETY: the source keeps its contents.
    let results = unsafe { call(Call::SegmentCopy, [ram.0, segment.0, mode, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `SegmentStat`: pages, pages present, physical address or 0.
pub fn segment_stat(segment: Handle) -> Outcome<(u64, u64, u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::SegmentStat, [segment.0, 0, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], results.words[2]))
}

/// `SegmentSetPages`.
///
/// # Safety
/// Nothing in this program may use pages that go away.
pub unsafe fn segment_set_pages(segment: Handle, pages: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::SegmentSetPages, [segment.0, pages, 0, 0, 0, 0]) }.map(drop)
}

/// `SegmentSetPages` of no length: frees pages inside, which stay mapped and are zeroes when they
/// are touched next.
///
/// # Safety
/// Nothing in this program may rely on what these pages hold.
pub unsafe fn segment_discard(segment: Handle, first_page: u64, pages: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::SegmentSetPages, [segment.0, 0, first_page, pages, 0, 0]) }.map(drop)
}

/// `SegmentImport`: memory of another core or device.
pub fn segment_import(pcore: Handle, ram: Handle, physical: u64, pages: u64, flags: u64) -> Outcome<Handle> {
    // SAFETY: makes an object; to be seen it must be mapped and then reached through a pointer,
    // which is unsafe by itself.
    let results = unsafe { call(Call::SegmentImport, [pcore.0, ram.0, physical, pages, flags, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `RangeMap`: safe because the kernel refuses (`Busy`) to cover what is mapped.
pub fn range_map(
    range: Handle,
    address: u64,
    segment: Handle,
    first_page: u64,
    pages: u64,
    protection: u64,
) -> Outcome<()> {
    // SAFETY: only adds memory where there was none.
    unsafe { call(Call::RangeMap, [range.0, address, segment.0, first_page, pages, protection]) }.map(drop)
}

/// `RangeUnmap`: how many pages were unmapped.
///
/// # Safety
/// If `range` is the caller's own, nothing may use that memory any more.
pub unsafe fn range_unmap(range: Handle, address: u64, pages: u64) -> Outcome<u64> {
    // SAFETY: passed on.
    let results = unsafe { call(Call::RangeUnmap, [range.0, address, pages, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `RangeProtect`.
///
/// # Safety
/// If `range` is the caller's own, nothing may use that memory beyond the new protection.
pub unsafe fn range_protect(range: Handle, address: u64, pages: u64, protection: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::RangeProtect, [range.0, address, pages, protection, 0, 0]) }.map(drop)
}

/// `RangeGet`: the mapping at or after `address`.
pub fn range_get(range: Handle, address: u64) -> Outcome<RangeEntry> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::RangeGet, [range.0, address, 0, 0, 0, 0]) }?;
    Ok(RangeEntry::from_words([results.words[0], results.words[1], results.words[2]]))
}

/// `RangeAlloc`: the range, and its pages.
pub fn range_alloc(ram: Handle, pages: u64, flags: u64) -> Outcome<(Handle, u64)> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::RangeAlloc, [ram.0, pages, flags, 0, 0, 0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `RangeNest`: safe because the kernel refuses (`Busy`) to cover what is mapped.
pub fn range_nest(range: Handle, address: u64, nested: Handle, protection: u64) -> Outcome<()> {
    // SAFETY: only adds memory where there was none.
    unsafe { call(Call::RangeNest, [range.0, address, nested.0, protection, 0, 0]) }.map(drop)
}

/// `RangeFill`: how many pages from `address` on can be touched without a fault now.
pub fn range_fill(range: Handle, address: u64, pages: u64) -> Outcome<u64> {
    // SAFETY: what is mapped is as it was.
    let results = unsafe { call(Call::RangeFill, [range.0, address, pages, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `RangeRetype`: a range whose table is the page of `segment`, which goes; and its pages. Safe
/// because the kernel refuses (`Busy`) a page that is mapped.
pub fn range_retype(segment: Handle, pages: u64, flags: u64) -> Outcome<(Handle, u64)> {
    // SAFETY: takes a page that nobody sees.
    let results = unsafe { call(Call::RangeRetype, [segment.0, pages, flags, 0, 0, 0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}
