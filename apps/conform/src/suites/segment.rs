//! Segment: pages that appear when touched, copies, sizes.

use abi::layout::{SEGMENT_PAGES_MAX, copy, segment};
use abi::{Error, PAGE_BYTES, Rights};

use crate::{Fixture, Outcome, refused, require, suite};

suite!("segment"; alone: zeroed_and_lazy, eager_is_there, contiguous_tells_its_place_to_who_may_know, plain_copy,
    copy_on_write_parts_both_ways, grows_and_shrinks, sizes_and_flags_are_decoded, imports_are_the_monitors);

const PAGES: u64 = 6;

fn zeroed_and_lazy(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    require!(sys::segment_stat(memory)?.1 == 0, "pages are there before they are touched");
    let address = fixture.map(0, memory, PAGES)?;
    for page in 0..PAGES {
        let word = fixture.load(address + page * PAGE_BYTES + 8 * (page + 1));
        require!(word == 0, "page {page} holds {word:#x}");
        fixture.store(address + page * PAGE_BYTES, page + 1);
    }
    require!(
        sys::segment_stat(memory)? == (PAGES, PAGES, 0),
        "{:?} after all were touched",
        sys::segment_stat(memory)?
    );
    fixture.unmap(0, PAGES)?;
    // What was written is still there.
    let address = fixture.map(1, memory, PAGES)?;
    let read = fixture.load(address + 2 * PAGE_BYTES);
    require!(read == 3, "page 2 holds {read}, not 3");
    fixture.unmap(1, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn eager_is_there(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, segment::EAGER)?;
    let (pages, present, _) = sys::segment_stat(memory)?;
    require!((pages, present) == (PAGES, PAGES), "{present} of {pages} pages are there");
    sys::cap_drop(memory)?;
    Ok(())
}

fn contiguous_tells_its_place_to_who_may_know(fixture: &Fixture) -> Outcome {
    let (memory, physical) = sys::segment_alloc(fixture.ram(), PAGES, segment::CONTIGUOUS)?;
    require!(physical != 0 && physical % PAGE_BYTES == 0, "it lies at {physical:#x}");
    // The host's scenario knows which memory is whose.
    let (_, node, _) = sys::pcore_stat(fixture.core())?;
    runtime::log!("memory of node {node} at {physical:#x}");
    require!(sys::segment_stat(memory)?.2 == physical, "its place changed");
    let weak = sys::cap_copy(memory, Rights::READ.union(Rights::WRITE))?;
    require!(sys::segment_stat(weak)?.2 == 0, "its place is told to who may not know it");
    // SAFETY: it is refused.
    refused(unsafe { sys::segment_set_pages(memory, 1) }, Error::BadArgument)?;
    sys::cap_drop(weak)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn plain_copy(fixture: &Fixture) -> Outcome {
    copied(fixture, copy::PLAIN)
}

fn copy_on_write_parts_both_ways(fixture: &Fixture) -> Outcome {
    copied(fixture, copy::ON_WRITE)
}

/// Original and copy are alike at first and then apart, whichever is written.
fn copied(fixture: &Fixture, mode: u64) -> Outcome {
    let (original, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let here = fixture.map(0, original, PAGES)?;
    (0..PAGES - 1).for_each(|page| fixture.store(here + page * PAGE_BYTES, 100 + page));
    let copy = sys::segment_copy(fixture.ram(), original, mode)?;
    let there = fixture.map(1, copy, PAGES)?;
    let at = |base: u64, page: u64| fixture.load(base + page * PAGE_BYTES);
    for page in 0..PAGES {
        require!(at(there, page) == at(here, page), "page {page} of the copy holds {}", at(there, page));
    }
    fixture.store(here, 1);
    fixture.store(there + PAGE_BYTES, 2);
    // The last page was nowhere when the copy was made.
    fixture.store(here + (PAGES - 1) * PAGE_BYTES, 3);
    require!((at(here, 0), at(there, 0)) == (1, 100), "a write to the original shows in the copy");
    require!((at(here, 1), at(there, 1)) == (101, 2), "a write to the copy shows in the original");
    require!(at(there, PAGES - 1) == 0, "a write to an absent page of the original shows in the copy");
    // The copy of a copy, with both before it gone.
    let again = sys::segment_copy(fixture.ram(), copy, mode)?;
    fixture.unmap(0, PAGES)?;
    fixture.unmap(1, PAGES)?;
    sys::cap_drop(original)?;
    sys::cap_drop(copy)?;
    let last = fixture.map(2, again, PAGES)?;
    require!((at(last, 0), at(last, 1), at(last, 2)) == (100, 2, 102), "the copy of a copy lost its contents");
    fixture.unmap(2, PAGES)?;
    sys::cap_drop(again)?;
    Ok(())
}

fn grows_and_shrinks(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, segment::EAGER)?;
    let address = fixture.map(0, memory, PAGES)?;
    fixture.store(address + 5 * PAGE_BYTES, 7);
    let used = |ram| sys::ram_stat(ram).map(|(_, used, _)| used);
    let before = used(fixture.ram())?;
    // SAFETY: the pages are reached through `fixture` only.
    unsafe { sys::segment_set_pages(memory, 2) }?;
    require!(used(fixture.ram())? == before - 4, "shrinking by 4 pages freed {}", before - used(fixture.ram())?);
    // SAFETY: nothing goes away.
    unsafe { sys::segment_set_pages(memory, PAGES) }?;
    require!(sys::segment_stat(memory)? == (PAGES, 2, 0), "{:?} after growing again", sys::segment_stat(memory)?);
    fixture.unmap(0, PAGES)?;
    let address = fixture.map(1, memory, PAGES)?;
    let read = fixture.load(address + 5 * PAGE_BYTES);
    require!(read == 0, "a page that went and came again holds {read}");
    (0..PAGES).for_each(|page| fixture.store(address + page * PAGE_BYTES, 30 + page));
    // SAFETY: as before.
    unsafe { sys::segment_discard(memory, 1, 3) }?;
    require!(sys::segment_stat(memory)? == (PAGES, 3, 0), "{:?} after discarding 3", sys::segment_stat(memory)?);
    for page in 0..PAGES {
        let read = fixture.load(address + page * PAGE_BYTES);
        let kept = if (1..4).contains(&page) { 0 } else { 30 + page };
        require!(read == kept, "page {page} holds {read}, not {kept}, after 1 to 3 were discarded");
    }
    fixture.unmap(1, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn sizes_and_flags_are_decoded(fixture: &Fixture) -> Outcome {
    for pages in [0, SEGMENT_PAGES_MAX + 1, u64::MAX, u64::MAX / PAGE_BYTES] {
        refused(sys::segment_alloc(fixture.ram(), pages, 0), Error::BadArgument)?;
    }
    refused(sys::segment_alloc(fixture.ram(), 1, 1 << 40), Error::BadArgument)?;
    refused(sys::segment_alloc(abi::Handle::SELF_CONTEXT, 1, 0), Error::WrongType)?;
    let (memory, _) = sys::segment_alloc(fixture.ram(), SEGMENT_PAGES_MAX, 0)?;
    refused(sys::segment_copy(fixture.ram(), memory, 77), Error::BadArgument)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn imports_are_the_monitors(fixture: &Fixture) -> Outcome {
    for handle in [abi::Handle::PCORE, abi::Handle::SELF_DOMAIN, fixture.ram()] {
        require!(sys::segment_import(handle, fixture.ram(), 0, 1, 0).is_err(), "memory was imported by a component");
    }
    Ok(())
}
