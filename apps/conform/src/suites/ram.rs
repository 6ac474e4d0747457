//! Ram: accounts, limits, what the monitor alone may do, and taking everything back.

use abi::layout::{copy, portal, segment};
use abi::{Call, Error, Handle, Rights};

use crate::{Fixture, Outcome, refused, require, suite};

suite!("ram"; alone: a_child_counts_in_its_parent, a_limit_is_kept, needs_write_to_split, turns_are_given_by_the_core,
    carving_is_the_monitors,
    revoke_takes_everything, own_account_is_not_revoked);

fn used(ram: Handle) -> Result<u64, Error> {
    sys::ram_stat(ram).map(|(_, used, _)| used)
}

fn a_child_counts_in_its_parent(fixture: &Fixture) -> Outcome {
    let child = sys::ram_split(fixture.ram(), 64, Handle::NONE)?;
    let grandchild = sys::ram_split(child, 64, Handle::NONE)?;
    let before = used(fixture.ram())?;
    let (memory, _) = sys::segment_alloc(grandchild, 8, segment::EAGER)?;
    let (of_grandchild, of_child, of_parent) = (used(grandchild)?, used(child)?, used(fixture.ram())?);
    require!(of_grandchild >= 8, "8 pages count as {of_grandchild}");
    require!(of_child >= of_grandchild, "{of_grandchild} pages of a child count as {of_child}");
    require!(of_parent >= before + 8, "8 pages of a grandchild count as {}", of_parent - before);
    sys::cap_drop(memory)?;
    require!(used(grandchild)? == 0, "{} pages are left", used(grandchild)?);
    sys::cap_drop(grandchild)?;
    sys::cap_drop(child)?;
    Ok(())
}

fn a_limit_is_kept(fixture: &Fixture) -> Outcome {
    let child = sys::ram_split(fixture.ram(), 4, Handle::NONE)?;
    let (limit, before, _) = sys::ram_stat(child)?;
    require!(limit == 4, "the limit is {limit}");
    refused(sys::segment_alloc(child, 64, segment::EAGER), Error::NoMemory)?;
    require!(used(child)? == before, "a refused call keeps {} pages", used(child)? - before);
    // A child's limit may be wider than its parent's; it does not help it.
    let wide = sys::ram_split(child, 1000, Handle::NONE)?;
    refused(sys::segment_alloc(wide, 64, segment::EAGER), Error::NoMemory)?;
    sys::cap_drop(wide)?;
    sys::cap_drop(child)?;
    Ok(())
}

fn needs_write_to_split(fixture: &Fixture) -> Outcome {
    let weak = sys::cap_copy(fixture.ram(), Rights::READ)?;
    refused(sys::ram_split(weak, 4, Handle::NONE), Error::NoRights)?;
    refused(sys::segment_alloc(weak, 1, 0), Error::NoRights)?;
    refused(sys::semaphore_alloc(weak, 1), Error::NoRights)?;
    sys::ram_stat(weak)?;
    sys::cap_drop(weak)?;
    refused(sys::ram_stat(weak), Error::BadHandle)
}

/// A program that has an account, and of the core no right to change it, cannot begin turns.
fn turns_are_given_by_the_core(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    let pcore = sys::domain_grant(scripted.worker.domain, fixture.pcore()?, Rights::READ)?;
    let call = |call: Call, words| scripted.call(call.number(), words, fixture.deadline_ns());
    let split = |turns: Handle| call(Call::RamSplit, [Handle::SELF_RAM.0, 4, turns.0, 0, 0, 0]);
    refused(split(pcore)?, Error::NoRights)?;
    let [account, ..] = split(Handle::NONE)??;
    refused(call(Call::RamTurns, [account, pcore.0, 0, 0, 0, 0])?, Error::NoRights)?;
    call(Call::CapDrop, [account, 0, 0, 0, 0, 0])??;
    Ok(())
}

fn carving_is_the_monitors(fixture: &Fixture) -> Outcome {
    // Even with all rights to an account: it is not the root.
    require!(sys::ram_carve(fixture.ram(), 1).is_err(), "pages were carved from an account");
    require!(sys::ram_add(fixture.ram(), 0, 1).is_err(), "pages were added to an account");
    require!(sys::ram_carve(Handle::ROOT_RAM, 1).is_err(), "pages were carved from what a component has in slot 6");
    Ok(())
}

fn revoke_takes_everything(fixture: &Fixture) -> Outcome {
    const PAGES: u64 = 300;
    let ram = sys::ram_split(fixture.ram(), 1000, Handle::NONE)?;
    let (memory, _) = sys::segment_alloc(ram, PAGES, 0)?;
    let address = fixture.map(0, memory, PAGES)?;
    (0..PAGES).for_each(|page| fixture.store(address + page * abi::PAGE_BYTES, page));
    let copy = sys::segment_copy(ram, memory, copy::ON_WRITE)?;
    let semaphore = sys::semaphore_alloc(ram, 1)?;
    let entrance = sys::portal_alloc(ram, Handle::SELF_CONTEXT, 1, portal::MAILBOX)?;
    let below = sys::ram_split(ram, 10, Handle::NONE)?;
    let mut parts = 0;
    // SAFETY: the memory is reached through `fixture` only, and that is done.
    while !unsafe { sys::ram_revoke(ram) }? {
        parts += 1;
        require!(parts < 64, "a revocation does not end");
    }
    require!(parts > 0, "{PAGES} pages went in one part; it is to be bounded");
    for handle in [memory, copy, semaphore, entrance, below] {
        refused(sys::cap_stat(handle), Error::BadHandle)?;
    }
    let start = sys::range_get(Handle::SELF_RANGE, address)?.start;
    require!(start >= address + PAGES * abi::PAGE_BYTES, "memory is still mapped at {start:#x}");
    require!(used(ram)? == 0, "{} pages are left", used(ram)?);
    // What is left is an account as before.
    let (memory, _) = sys::segment_alloc(ram, 1, segment::EAGER)?;
    sys::cap_drop(memory)?;
    sys::cap_drop(ram)?;
    Ok(())
}

fn own_account_is_not_revoked(_: &Fixture) -> Outcome {
    // SAFETY: it is refused.
    refused(unsafe { sys::ram_revoke(Handle::SELF_RAM) }, Error::NoRights)
}
