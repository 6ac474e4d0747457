//! AddressRange: mapping, protection, lookup, and what happens to who goes beyond.

use abi::layout::{USER_END, USER_START, protection};
use abi::{Call, DeathCause, Error, Handle, PAGE_BYTES, Rights};
use worker::ScriptedDomain;

use crate::fixture::READ_WRITE;
use crate::{Failure, Fixture, Outcome, drop_all, refused, require, suite};

suite!("range"; alone: get_finds_what_is_mapped, taken_places_are_refused, addresses_are_decoded, rights_bound_protection,
    protect_narrows_and_widens, unmap_splits, unmapped_faults, read_only_faults, data_is_not_code, kernel_is_out_of_reach, answers_come_to_shared_memory);

const PAGES: u64 = 8;
const PAGE_FAULT: u64 = 14;
/// In a scripted domain's space, where it has nothing.
const THERE: u64 = 0x5000_0000;

fn get_finds_what_is_mapped(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let address = fixture.place(0) + PAGE_BYTES;
    sys::range_map(Handle::SELF_RANGE, address, memory, 3, 4, protection::READ)?;
    let found = sys::range_get(Handle::SELF_RANGE, fixture.place(0))?;
    let said = (found.start, found.pages, found.first, found.protection, found.is_range);
    require!(said == (address, 4, 3, protection::READ, false), "RangeGet says {found:?}");
    require!(found.object == sys::cap_stat(memory)?.1, "RangeGet names another object: {found:?}");
    // From inside it finds the whole.
    let inside = sys::range_get(Handle::SELF_RANGE, address + 2 * PAGE_BYTES)?;
    require!(
        inside.start + inside.pages * PAGE_BYTES == address + 4 * PAGE_BYTES,
        "RangeGet from inside says {inside:?}"
    );
    // SAFETY: nobody uses it.
    let unmapped = unsafe { sys::range_unmap(Handle::SELF_RANGE, fixture.place(0), PAGES) }?;
    require!(unmapped == 4, "{unmapped} pages were unmapped, not 4");
    sys::cap_drop(memory)?;
    Ok(())
}

fn taken_places_are_refused(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let address = fixture.map(0, memory, PAGES)?;
    for (page, pages) in [(0, PAGES), (PAGES - 1, 1), (PAGES / 2, 1)] {
        let at = address + page * PAGE_BYTES;
        refused(sys::range_map(Handle::SELF_RANGE, at, memory, 0, pages, READ_WRITE), Error::Busy)?;
    }
    let before = address - PAGE_BYTES;
    refused(sys::range_map(Handle::SELF_RANGE, before, memory, 0, 2, READ_WRITE), Error::Busy)?;
    fixture.unmap(0, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn addresses_are_decoded(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let free = fixture.place(0);
    let cases = [
        // Odd, below, above, at the wrong half, over the end, wrapping round.
        (free + 1, 0, 1),
        (USER_START - PAGE_BYTES, 0, 1),
        (USER_END, 0, 1),
        (0xffff_8000_0000_0000, 0, 1),
        (USER_END - PAGE_BYTES, 0, 2),
        (free, 0, u64::MAX / PAGE_BYTES),
        // Nothing, and past the segment's end.
        (free, 0, 0),
        (free, PAGES, 1),
        (free, 1, PAGES),
        (free, u64::MAX, 2),
    ];
    for (address, first, pages) in cases {
        let result = sys::range_map(Handle::SELF_RANGE, address, memory, first, pages, READ_WRITE);
        require!(
            result == Err(Error::BadArgument),
            "mapping {pages} pages from {first} at {address:#x} gives {result:?}"
        );
    }
    refused(sys::range_map(Handle::SELF_RANGE, free, memory, 0, 1, 8), Error::BadArgument)?;
    let all = READ_WRITE | protection::EXECUTE;
    refused(sys::range_map(Handle::SELF_RANGE, free, memory, 0, 1, all), Error::BadArgument)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn rights_bound_protection(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let weak = sys::cap_copy(memory, Rights::READ)?;
    let address = fixture.place(0);
    refused(sys::range_map(Handle::SELF_RANGE, address, weak, 0, 1, READ_WRITE), Error::NoRights)?;
    sys::range_map(Handle::SELF_RANGE, address, weak, 0, 1, protection::READ)?;
    // SAFETY: it is refused.
    refused(unsafe { sys::range_protect(Handle::SELF_RANGE, address, 1, READ_WRITE) }, Error::NoRights)?;
    let range = sys::cap_copy(Handle::SELF_RANGE, Rights::READ)?;
    refused(sys::range_map(range, fixture.place(1), memory, 0, 1, READ_WRITE), Error::NoRights)?;
    fixture.unmap(0, 1)?;
    drop_all(&[range, weak, memory])
}

fn protect_narrows_and_widens(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let address = fixture.map(0, memory, PAGES)?;
    fixture.store(address + 3 * PAGE_BYTES, 5);
    // SAFETY: the memory is reached through `fixture` only.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address + 2 * PAGE_BYTES, 2, protection::READ) }?;
    let found = sys::range_get(Handle::SELF_RANGE, address + 2 * PAGE_BYTES)?;
    require!((found.pages, found.protection) == (2, protection::READ), "RangeGet says {found:?} of the middle");
    require!(fixture.load(address + 3 * PAGE_BYTES) == 5, "protecting lost what was written");
    // SAFETY: as above.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address, PAGES, READ_WRITE) }?;
    fixture.store(address + 3 * PAGE_BYTES, 6);
    // SAFETY: as above, and it is refused: the last page is not mapped.
    let beyond = unsafe { sys::range_protect(Handle::SELF_RANGE, address, PAGES + 1, protection::READ) };
    refused(beyond, Error::BadArgument)?;
    fixture.store(address, 7);
    fixture.unmap(0, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn unmap_splits(fixture: &Fixture) -> Outcome {
    let (memory, _) = sys::segment_alloc(fixture.ram(), PAGES, 0)?;
    let address = fixture.map(0, memory, PAGES)?;
    (0..PAGES).for_each(|page| fixture.store(address + page * PAGE_BYTES, page));
    // SAFETY: the memory is reached through `fixture` only.
    let count = unsafe { sys::range_unmap(Handle::SELF_RANGE, address + 3 * PAGE_BYTES, 2) }?;
    require!(count == 2, "{count} pages were unmapped, not 2");
    let (before, after) =
        (sys::range_get(Handle::SELF_RANGE, address)?, sys::range_get(Handle::SELF_RANGE, address + 3 * PAGE_BYTES)?);
    require!((before.start, before.pages) == (address, 3), "before the hole is {before:?}");
    require!(
        (after.start, after.pages, after.first) == (address + 5 * PAGE_BYTES, 3, 5),
        "after the hole is {after:?}"
    );
    require!(fixture.load(address + 5 * PAGE_BYTES) == 5, "what is after the hole shows another page");
    fixture.unmap(0, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

/// A scripted domain with a page at `THERE`, of that protection.
fn with_page(fixture: &Fixture, of: u64) -> Result<(ScriptedDomain, Handle), Failure> {
    let scripted = fixture.scripted(0)?;
    let (memory, _) = sys::segment_alloc(fixture.ram(), 1, 0)?;
    let range = sys::domain_range(scripted.worker.domain)?;
    sys::range_map(range, THERE, memory, 0, 1, of)?;
    sys::cap_drop(range)?;
    Ok((scripted, memory))
}

/// It died of a page fault at that address.
fn died_of_fault(scripted: ScriptedDomain, result: Result<(), Error>, address: u64) -> Outcome {
    refused(result, Error::PeerDead)?;
    let state = sys::domain_state(scripted.worker.domain)?;
    require!(DeathCause::decode(state.cause) == Some(DeathCause::Exception), "it ended with cause {}", state.cause);
    let exception = state.exception;
    require!(
        (exception.vector, exception.address) == (PAGE_FAULT, address),
        "it ended by exception {} at {:#x}",
        exception.vector,
        exception.address
    );
    Ok(())
}

fn unmapped_faults(fixture: &Fixture) -> Outcome {
    let (scripted, memory) = with_page(fixture, READ_WRITE)?;
    scripted.store(THERE, 9, fixture.deadline_ns())?;
    require!(scripted.load(THERE, fixture.deadline_ns())? == 9, "a page does not keep what was written");
    let range = sys::domain_range(scripted.worker.domain)?;
    // SAFETY: of another domain.
    unsafe { sys::range_unmap(range, THERE, 1) }?;
    sys::cap_drop(range)?;
    sys::cap_drop(memory)?;
    let result = scripted.load(THERE, fixture.deadline_ns()).map(drop);
    died_of_fault(scripted, result, THERE)
}

fn read_only_faults(fixture: &Fixture) -> Outcome {
    let (scripted, memory) = with_page(fixture, protection::READ)?;
    require!(scripted.load(THERE, fixture.deadline_ns())? == 0, "a fresh page is not zero");
    let result = scripted.store(THERE, 1, fixture.deadline_ns());
    sys::cap_drop(memory)?;
    died_of_fault(scripted, result, THERE)
}

fn data_is_not_code(fixture: &Fixture) -> Outcome {
    let (scripted, memory) = with_page(fixture, READ_WRITE)?;
    let result = scripted.jump(THERE, fixture.deadline_ns());
    sys::cap_drop(memory)?;
    died_of_fault(scripted, result, THERE)
}

fn kernel_is_out_of_reach(fixture: &Fixture) -> Outcome {
    // The kernel's text, its direct map's start.
    for address in [0xffff_ffff_8010_0000, 0xffff_8000_0010_0000] {
        let (reader, writer, jumper) = (fixture.scripted(0)?, fixture.scripted(1)?, fixture.scripted(2)?);
        refused(reader.load(address, fixture.deadline_ns()).map(drop), Error::PeerDead)?;
        refused(writer.store(address, 1, fixture.deadline_ns()), Error::PeerDead)?;
        refused(jumper.jump(address, fixture.deadline_ns()), Error::PeerDead)?;
    }
    Ok(())
}

/// The kernel copies an answer to where a program asks, also if that memory is another core's and
/// shared: the only way by which a kernel writes there, and the one by which the host's audit of
/// writes shows that it sees such a thing.
fn answers_come_to_shared_memory(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    let (shared, place) = fixture.shared_page()?;
    let range = sys::domain_range(scripted.worker.domain)?;
    sys::range_map(range, THERE, shared, place.page, 1, READ_WRITE)?;
    sys::cap_drop(range)?;
    let arguments = [Handle::SELF_DOMAIN.0, THERE + place.offset, 0, 0, 0, 0];
    scripted.call(Call::DomainState.number(), arguments, fixture.deadline_ns())??;
    let (_, id, _) = sys::cap_stat(scripted.worker.domain)?;
    let told = fixture.load(place.address);
    require!(told == id, "the domain {id:#x} is told as {told:#x}");
    Ok(())
}
