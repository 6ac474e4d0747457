//! Nested ranges: one fault for all that map a page, rights of the way in, and spaces that their
//! owner builds; copies by reference and large pages.

use alloc::vec::Vec;

use abi::layout::{copy, counter, protection, segment};
use abi::{Error, Handle, PAGE_BYTES, RangeEntry, Rights};

use crate::fixture::READ_WRITE;
use crate::{Failure, Fixture, Outcome, drop_all, refused, require, suite};

suite!("nest"; alone: one_fault_serves_both_domains, what_is_shown_read_only_cannot_be_written, what_is_unmapped_is_gone_for_all,
    an_identical_range_is_made_from_what_is_told, a_larger_range_goes_into_no_smaller_one, a_revoked_range_is_gone_for_all,
    a_space_is_built_by_its_owner, a_reference_copies, large_pages_take_one_fault);

const PAGES: u64 = 32;
/// In a scripted domain's space, where it has nothing: a multiple of the two sizes used here.
const THERE: u64 = 1 << 33;
const SLOT_PAGES: u64 = 512;
/// Pages that one fault maps if they are present (fault-around).
const AROUND_PAGES: u64 = 16;
/// Of other programs that run on this core meanwhile.
const OTHERS_FAULTS: u64 = 4;
const SLOT_BYTES: u64 = SLOT_PAGES * PAGE_BYTES;
const MIDDLE_PAGES: u64 = SLOT_PAGES * 512;

fn faults() -> Result<u64, Error> {
    sys::counter_read(counter::SOFT_FAULTS)
}

/// A nested range that shows a segment at its start.
fn mapped(fixture: &Fixture) -> Result<(Handle, Handle), Error> {
    let (range, _) = sys::range_alloc(fixture.ram(), PAGES, 0)?;
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    sys::range_map(range, 0, memory, 0, PAGES, READ_WRITE)?;
    Ok((range, memory))
}

/// Takes a nested range out of our own.
fn unnest(fixture: &Fixture, place: u64) -> Result<u64, Error> {
    fixture.unmap(place, SLOT_PAGES)
}

fn one_fault_serves_both_domains(fixture: &Fixture) -> Outcome {
    let (range, _) = sys::range_alloc(fixture.ram(), SLOT_PAGES, 0)?;
    let (memory, _) = sys::segment_alloc(fixture.ram(), SLOT_PAGES, 0)?;
    sys::range_map(range, 0, memory, 0, SLOT_PAGES, READ_WRITE)?;
    let scripted = fixture.scripted(0)?;
    let space = scripted.worker.range()?;
    sys::range_nest(Handle::SELF_RANGE, fixture.place(0), range, READ_WRITE)?;
    sys::range_nest(space, THERE, range, READ_WRITE)?;
    // So far apart that no fault shows the next one too.
    let at = |page: u64| page * AROUND_PAGES * PAGE_BYTES;
    let before = faults()?;
    (0..PAGES).for_each(|page| fixture.store(fixture.place(0) + at(page), 100 + page));
    let ours = faults()? - before;
    require!(ours >= PAGES, "{ours} faults for {PAGES} fresh pages");
    // What the scripted domain itself needs, and the code that asks it, is there afterwards.
    scripted.load(THERE, fixture.deadline_ns())?;
    scripted.store(THERE, 100, fixture.deadline_ns())?;
    let before = faults()?;
    for page in 0..PAGES {
        let word = scripted.load(THERE + at(page), fixture.deadline_ns())?;
        require!(word == 100 + page, "page {page} holds {word} there");
        scripted.store(THERE + at(page), page, fixture.deadline_ns())?;
    }
    let theirs = faults()? - before;
    require!(theirs <= OTHERS_FAULTS, "{theirs} faults were left for the other domain, for {PAGES} pages");
    let word = fixture.load(fixture.place(0) + at(9));
    require!(word == 9, "page 9 holds {word} here");
    unnest(fixture, 0)?;
    drop_all(&[space, range, memory])
}

fn what_is_shown_read_only_cannot_be_written(fixture: &Fixture) -> Outcome {
    let (range, memory) = mapped(fixture)?;
    let readable = sys::cap_copy(range, Rights::READ)?;
    let scripted = fixture.scripted(0)?;
    let space = scripted.worker.range()?;
    refused(sys::range_nest(space, THERE, readable, READ_WRITE), Error::NoRights)?;
    sys::range_nest(space, THERE, readable, protection::READ)?;
    sys::range_nest(Handle::SELF_RANGE, fixture.place(0), range, READ_WRITE)?;
    fixture.store(fixture.place(0), 7);
    require!(scripted.load(THERE, fixture.deadline_ns())? == 7, "the page is not the same there");
    let result = scripted.store(THERE, 8, fixture.deadline_ns());
    refused(result, Error::PeerDead)?;
    require!(fixture.load(fixture.place(0)) == 7, "it was written all the same");
    unnest(fixture, 0)?;
    drop_all(&[space, readable, range, memory])
}

fn what_is_unmapped_is_gone_for_all(fixture: &Fixture) -> Outcome {
    let (range, memory) = mapped(fixture)?;
    let scripted = fixture.scripted(0)?;
    let space = scripted.worker.range()?;
    sys::range_nest(space, THERE, range, READ_WRITE)?;
    // Twice in our own space.
    for place in [0, 1] {
        sys::range_nest(Handle::SELF_RANGE, fixture.place(place), range, READ_WRITE)?;
        fixture.store(fixture.place(place), place);
    }
    require!(scripted.load(THERE, fixture.deadline_ns())? == 1, "the page is not the same there");
    let (other, _) = sys::segment_alloc(fixture.ram(), 1, 0)?;
    // SAFETY: only the fixture uses it.
    unsafe { sys::range_unmap(range, 0, 1) }?;
    sys::range_map(range, 0, other, 0, 1, READ_WRITE)?;
    let words =
        [fixture.load(fixture.place(0)), fixture.load(fixture.place(1)), scripted.load(THERE, fixture.deadline_ns())?];
    require!(words == [0; 3], "the old page is still seen: {words:?}");
    // SAFETY: as above.
    unsafe { sys::range_unmap(range, 0, SLOT_PAGES) }?;
    refused(scripted.load(THERE, fixture.deadline_ns()), Error::PeerDead)?;
    [0, 1].into_iter().try_for_each(|place| unnest(fixture, place).map(drop))?;
    drop_all(&[space, range, memory, other])
}

fn entries(range: Handle) -> Result<Vec<RangeEntry>, Error> {
    let mut found = Vec::new();
    let mut next = 0;
    loop {
        match sys::range_get(range, next) {
            Ok(entry) => {
                next = entry.start + entry.pages * PAGE_BYTES;
                found.push(entry);
            }
            Err(Error::NotFound) => return Ok(found),
            Err(error) => return Err(error),
        }
    }
}

fn an_identical_range_is_made_from_what_is_told(fixture: &Fixture) -> Outcome {
    let (inner, memory) = mapped(fixture)?;
    let (range, pages) = sys::range_alloc(fixture.ram(), MIDDLE_PAGES, 0)?;
    require!(pages == MIDDLE_PAGES, "{pages} pages");
    sys::range_map(range, PAGE_BYTES, memory, 3, 5, protection::READ)?;
    sys::range_nest(range, 2 * SLOT_BYTES, inner, READ_WRITE)?;
    let told = entries(range)?;
    let (copy, _) = sys::range_alloc(fixture.ram(), pages, 0)?;
    for entry in &told {
        let id = |handle| sys::cap_stat(handle).map(|(_, id, _)| id);
        match entry.is_range {
            true if id(inner)? == entry.object => sys::range_nest(copy, entry.start, inner, entry.protection)?,
            false if id(memory)? == entry.object => {
                sys::range_map(copy, entry.start, memory, entry.first, entry.pages, entry.protection)?;
            }
            _ => return Err(Failure::new("an object that nobody mapped")),
        }
    }
    let again = entries(copy)?;
    require!(told.len() == 2 && again == told, "{told:?} became {again:?}");
    drop_all(&[copy, range, inner, memory])
}

fn a_larger_range_goes_into_no_smaller_one(fixture: &Fixture) -> Outcome {
    let (small, _) = sys::range_alloc(fixture.ram(), 1, 0)?;
    let (large, _) = sys::range_alloc(fixture.ram(), MIDDLE_PAGES, 0)?;
    for (parent, child) in [(small, small), (small, large), (large, large), (small, Handle::SELF_RANGE)] {
        refused(sys::range_nest(parent, 0, child, protection::READ), Error::BadArgument)?;
    }
    refused(sys::range_nest(Handle::SELF_RANGE, fixture.place(0) + PAGE_BYTES, small, READ_WRITE), Error::BadArgument)?;
    sys::range_nest(large, 0, small, READ_WRITE)?;
    refused(sys::range_nest(large, 0, small, READ_WRITE), Error::Busy)?;
    // SAFETY: nobody sees it.
    refused(unsafe { sys::range_unmap(large, 0, 1) }, Error::BadArgument)?;
    drop_all(&[small, large])
}

fn a_revoked_range_is_gone_for_all(fixture: &Fixture) -> Outcome {
    let ram = sys::ram_split(fixture.ram(), 64, Handle::NONE)?;
    let (range, _) = sys::range_alloc(ram, 1, 0)?;
    let (memory, _) = sys::segment_alloc(fixture.ram(), 1, 0)?;
    sys::range_map(range, 0, memory, 0, 1, READ_WRITE)?;
    let scripted = fixture.scripted(0)?;
    let space = scripted.worker.range()?;
    sys::range_nest(space, THERE, range, READ_WRITE)?;
    scripted.store(THERE, 5, fixture.deadline_ns())?;
    // SAFETY: nothing of ours is there.
    while !unsafe { sys::ram_revoke(ram) }? {}
    refused(sys::cap_drop(range), Error::BadHandle)?;
    let (_, used, _) = sys::ram_stat(ram)?;
    require!(used == 0, "{used} pages are still charged");
    // The place is free, and the segment whole.
    sys::range_map(space, THERE, memory, 0, 1, READ_WRITE)?;
    require!(scripted.load(THERE, fixture.deadline_ns())? == 5, "what was paid elsewhere went too");
    drop_all(&[space, memory, ram])
}

fn a_space_is_built_by_its_owner(fixture: &Fixture) -> Outcome {
    let page = || sys::segment_alloc(fixture.ram(), 1, segment::CONTIGUOUS).map(|(handle, _)| handle);
    let (small, _) = sys::range_retype(page()?, SLOT_PAGES, 0)?;
    let (middle, _) = sys::range_retype(page()?, MIDDLE_PAGES, 0)?;
    let memory = page()?;
    sys::range_map(small, 7 * PAGE_BYTES, memory, 0, 1, READ_WRITE)?;
    sys::range_nest(middle, 5 * SLOT_BYTES, small, READ_WRITE)?;
    let place = fixture.place(0);
    sys::range_nest(Handle::SELF_RANGE, place, middle, READ_WRITE)?;
    require!(sys::range_fill(small, 7 * PAGE_BYTES, 1)? == 1, "not one page was mapped");
    let before = faults()?;
    fixture.store(place + 5 * SLOT_BYTES + 7 * PAGE_BYTES, 1);
    let taken = faults()? - before;
    require!(taken == 0, "{taken} faults for a page that was mapped");
    // A page that is seen, or has two names, becomes no table.
    refused(sys::range_retype(memory, SLOT_PAGES, 0), Error::Busy)?;
    fixture.unmap(0, MIDDLE_PAGES)?;
    drop_all(&[small, middle])?;
    let copy = sys::cap_copy(memory, Rights::READ)?;
    refused(sys::range_retype(memory, SLOT_PAGES, 0), Error::Busy)?;
    refused(sys::range_retype(copy, SLOT_PAGES, 0), Error::NoRights)?;
    sys::cap_drop(copy)?;
    let (table, _) = sys::range_retype(memory, SLOT_PAGES, 0)?;
    refused(sys::segment_stat(memory), Error::BadHandle)?;
    drop_all(&[table])
}

fn a_reference_copies(fixture: &Fixture) -> Outcome {
    let (original, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let here = fixture.map(0, original, PAGES)?;
    (0..PAGES).for_each(|page| fixture.store(here + page * PAGE_BYTES, 100 + page));
    let by = [(1, copy::ON_WRITE, 0), (2, copy::ON_REFERENCE, PAGES)];
    for (place, mode, expected) in by {
        let copied = sys::segment_copy(fixture.ram(), original, mode)?;
        let there = fixture.map(place, copied, PAGES)?;
        let before = sys::counter_read(counter::COPY_FAULTS)?;
        for page in 0..PAGES {
            let word = fixture.load(there + page * PAGE_BYTES);
            require!(word == 100 + page, "page {page} of the copy holds {word}");
        }
        let copies = sys::counter_read(counter::COPY_FAULTS)? - before;
        require!(copies == expected, "mode {mode}: reading {PAGES} pages copied {copies}, not {expected}");
        fixture.store(there, 1);
        require!(fixture.load(here) == 100, "a write to the copy shows in the original");
        fixture.unmap(place, PAGES)?;
        sys::cap_drop(copied)?;
    }
    fixture.unmap(0, PAGES)?;
    drop_all(&[original])
}

fn large_pages_take_one_fault(fixture: &Fixture) -> Outcome {
    let (memory, physical) = sys::segment_alloc(fixture.ram(), SLOT_PAGES, segment::CONTIGUOUS)?;
    let address = fixture.map(0, memory, SLOT_PAGES)?;
    let before = faults()?;
    (0..SLOT_PAGES).for_each(|page| fixture.store(address + page * PAGE_BYTES, page + 1));
    let taken = faults()? - before;
    // Memory that is in pieces gives no such run.
    let expected = if physical % SLOT_BYTES == 0 { 1 } else { SLOT_PAGES / AROUND_PAGES };
    require!(taken == expected, "{taken} faults for a run at {physical:#x}");
    // A part of it changes, the rest is as it was.
    // SAFETY: only the fixture uses it.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address, 3, protection::READ) }?;
    for page in 0..SLOT_PAGES {
        let word = fixture.load(address + page * PAGE_BYTES);
        require!(word == page + 1, "page {page} holds {word}");
    }
    fixture.store(address + 3 * PAGE_BYTES, 0);
    fixture.unmap(0, SLOT_PAGES)?;
    drop_all(&[memory])
}
