//! AddressRange: mapping, protection, lookup, and what happens to who goes beyond.

use abi::layout::{USER_END, USER_START, protection};
use abi::{Call, DeathCause, Error, Handle, PAGE_BYTES, Rights};
use worker::Servant;

use crate::scene::READ_WRITE;
use crate::{Failure, Outcome, Scene, drop_all, refused, require, suite};

suite!("range"; alone: get_finds_what_is_mapped, taken_places_are_refused, addresses_are_decoded, rights_bound_protection,
    protect_narrows_and_widens, unmap_splits, unmapped_faults, read_only_faults, data_is_not_code, kernel_is_out_of_reach, answers_come_to_shared_memory);

const PAGES: u64 = 8;
const PAGE_FAULT: u64 = 14;
/// In a servant's space, where it has nothing.
const THERE: u64 = 0x5000_0000;

fn get_finds_what_is_mapped(scene: &Scene) -> Outcome {
    let (memory, _) = sys::segment_alloc(scene.ram(), PAGES, 0)?;
    let address = scene.place(0) + PAGE_BYTES;
    sys::range_map(Handle::SELF_RANGE, address, memory, 3, 4, protection::READ)?;
    let found = sys::range_get(Handle::SELF_RANGE, scene.place(0))?;
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
    let unmapped = unsafe { sys::range_unmap(Handle::SELF_RANGE, scene.place(0), PAGES) }?;
    require!(unmapped == 4, "{unmapped} pages were unmapped, not 4");
    sys::cap_drop(memory)?;
    Ok(())
}

fn taken_places_are_refused(scene: &Scene) -> Outcome {
    let (memory, _) = sys::segment_alloc(scene.ram(), PAGES, 0)?;
    let address = scene.map(0, memory, PAGES)?;
    for (page, pages) in [(0, PAGES), (PAGES - 1, 1), (PAGES / 2, 1)] {
        let at = address + page * PAGE_BYTES;
        refused(sys::range_map(Handle::SELF_RANGE, at, memory, 0, pages, READ_WRITE), Error::Busy)?;
    }
    let before = address - PAGE_BYTES;
    refused(sys::range_map(Handle::SELF_RANGE, before, memory, 0, 2, READ_WRITE), Error::Busy)?;
    scene.unmap(0, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn addresses_are_decoded(scene: &Scene) -> Outcome {
    let (memory, _) = sys::segment_alloc(scene.ram(), PAGES, 0)?;
    let free = scene.place(0);
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

fn rights_bound_protection(scene: &Scene) -> Outcome {
    let (memory, _) = sys::segment_alloc(scene.ram(), PAGES, 0)?;
    let weak = sys::cap_copy(memory, Rights::READ)?;
    let address = scene.place(0);
    refused(sys::range_map(Handle::SELF_RANGE, address, weak, 0, 1, READ_WRITE), Error::NoRights)?;
    sys::range_map(Handle::SELF_RANGE, address, weak, 0, 1, protection::READ)?;
    // SAFETY: it is refused.
    refused(unsafe { sys::range_protect(Handle::SELF_RANGE, address, 1, READ_WRITE) }, Error::NoRights)?;
    let range = sys::cap_copy(Handle::SELF_RANGE, Rights::READ)?;
    refused(sys::range_map(range, scene.place(1), memory, 0, 1, READ_WRITE), Error::NoRights)?;
    scene.unmap(0, 1)?;
    drop_all(&[range, weak, memory])
}

fn protect_narrows_and_widens(scene: &Scene) -> Outcome {
    let (memory, _) = sys::segment_alloc(scene.ram(), PAGES, 0)?;
    let address = scene.map(0, memory, PAGES)?;
    scene.store(address + 3 * PAGE_BYTES, 5);
    // SAFETY: the memory is reached through `scene` only.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address + 2 * PAGE_BYTES, 2, protection::READ) }?;
    let found = sys::range_get(Handle::SELF_RANGE, address + 2 * PAGE_BYTES)?;
    require!((found.pages, found.protection) == (2, protection::READ), "RangeGet says {found:?} of the middle");
    require!(scene.load(address + 3 * PAGE_BYTES) == 5, "protecting lost what was written");
    // SAFETY: as above.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address, PAGES, READ_WRITE) }?;
    scene.store(address + 3 * PAGE_BYTES, 6);
    // SAFETY: as above, and it is refused: the last page is not mapped.
    let beyond = unsafe { sys::range_protect(Handle::SELF_RANGE, address, PAGES + 1, protection::READ) };
    refused(beyond, Error::BadArgument)?;
    scene.store(address, 7);
    scene.unmap(0, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

fn unmap_splits(scene: &Scene) -> Outcome {
    let (memory, _) = sys::segment_alloc(scene.ram(), PAGES, 0)?;
    let address = scene.map(0, memory, PAGES)?;
    (0..PAGES).for_each(|page| scene.store(address + page * PAGE_BYTES, page));
    // SAFETY: the memory is reached through `scene` only.
    let count = unsafe { sys::range_unmap(Handle::SELF_RANGE, address + 3 * PAGE_BYTES, 2) }?;
    require!(count == 2, "{count} pages were unmapped, not 2");
    let (before, after) =
        (sys::range_get(Handle::SELF_RANGE, address)?, sys::range_get(Handle::SELF_RANGE, address + 3 * PAGE_BYTES)?);
    require!((before.start, before.pages) == (address, 3), "before the hole is {before:?}");
    require!(
        (after.start, after.pages, after.first) == (address + 5 * PAGE_BYTES, 3, 5),
        "after the hole is {after:?}"
    );
    require!(scene.load(address + 5 * PAGE_BYTES) == 5, "what is after the hole shows another page");
    scene.unmap(0, PAGES)?;
    sys::cap_drop(memory)?;
    Ok(())
}

/// A servant with a page at `THERE`, of that protection.
fn with_page(scene: &Scene, of: u64) -> Result<(Servant, Handle), Failure> {
    let servant = scene.servant(0)?;
    let (memory, _) = sys::segment_alloc(scene.ram(), 1, 0)?;
    let range = sys::domain_range(servant.worker.domain)?;
    sys::range_map(range, THERE, memory, 0, 1, of)?;
    sys::cap_drop(range)?;
    Ok((servant, memory))
}

/// It died of a page fault at that address.
fn died_of_fault(servant: Servant, result: Result<(), Error>, address: u64) -> Outcome {
    refused(result, Error::PeerDead)?;
    let state = sys::domain_state(servant.worker.domain)?;
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

fn unmapped_faults(scene: &Scene) -> Outcome {
    let (servant, memory) = with_page(scene, READ_WRITE)?;
    servant.store(THERE, 9, scene.deadline_ns())?;
    require!(servant.load(THERE, scene.deadline_ns())? == 9, "a page does not keep what was written");
    let range = sys::domain_range(servant.worker.domain)?;
    // SAFETY: of another domain.
    unsafe { sys::range_unmap(range, THERE, 1) }?;
    sys::cap_drop(range)?;
    sys::cap_drop(memory)?;
    let result = servant.load(THERE, scene.deadline_ns()).map(drop);
    died_of_fault(servant, result, THERE)
}

fn read_only_faults(scene: &Scene) -> Outcome {
    let (servant, memory) = with_page(scene, protection::READ)?;
    require!(servant.load(THERE, scene.deadline_ns())? == 0, "a fresh page is not zero");
    let result = servant.store(THERE, 1, scene.deadline_ns());
    sys::cap_drop(memory)?;
    died_of_fault(servant, result, THERE)
}

fn data_is_not_code(scene: &Scene) -> Outcome {
    let (servant, memory) = with_page(scene, READ_WRITE)?;
    let result = servant.jump(THERE, scene.deadline_ns());
    sys::cap_drop(memory)?;
    died_of_fault(servant, result, THERE)
}

fn kernel_is_out_of_reach(scene: &Scene) -> Outcome {
    // The kernel's text, its direct map's start.
    for address in [0xffff_ffff_8010_0000, 0xffff_8000_0010_0000] {
        let (reader, writer, jumper) = (scene.servant(0)?, scene.servant(1)?, scene.servant(2)?);
        refused(reader.load(address, scene.deadline_ns()).map(drop), Error::PeerDead)?;
        refused(writer.store(address, 1, scene.deadline_ns()), Error::PeerDead)?;
        refused(jumper.jump(address, scene.deadline_ns()), Error::PeerDead)?;
    }
    Ok(())
}

/// The kernel copies an answer to where a program asks, also if that memory is another core's and
/// shared: the only way by which a kernel writes there, and the one by which the host's audit of
/// writes shows that it sees such a thing.
fn answers_come_to_shared_memory(scene: &Scene) -> Outcome {
    let servant = scene.servant(0)?;
    let (shared, place) = scene.shared_page()?;
    let range = sys::domain_range(servant.worker.domain)?;
    sys::range_map(range, THERE, shared, place.page, 1, READ_WRITE)?;
    sys::cap_drop(range)?;
    let arguments = [Handle::SELF_DOMAIN.0, THERE + place.offset, 0, 0, 0, 0];
    servant.call(Call::DomainState.number(), arguments, scene.deadline_ns())??;
    let (_, id, _) = sys::cap_stat(servant.worker.domain)?;
    let told = scene.load(place.address);
    require!(told == id, "the domain {id:#x} is told as {told:#x}");
    Ok(())
}
