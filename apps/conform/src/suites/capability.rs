//! Capabilities: copies, rights, badges, depth, taking back, and other domains.

use abi::{Call, Error, Handle, ObjectType, Rights};

use crate::{Fixture, Outcome, refused, require, suite};

suite!("capability"; alone: stat_tells_what_it_is, copies_have_no_more_rights, drop_empties, bad_handles_are_refused, wrong_types_are_refused,
    mint_badges, chains_end, revoke_takes_copies, grants_reach_another_domain, grants_need_the_right);

/// Copies in a row that there may be (docs/limits.md).
const DEPTH: usize = 16;

fn stat_tells_what_it_is(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 0)?;
    let (kind, id, rights) = sys::cap_stat(semaphore)?;
    require!(kind == ObjectType::Semaphore as u64, "a semaphore is of type {kind}");
    require!(id >> 48 == fixture.core(), "an object of core {} has id {id:#x}", fixture.core());
    require!(rights.contains(Rights::READ.union(Rights::WRITE)), "its maker has rights {rights:?}");
    let (_, other, _) = sys::cap_stat(fixture.ram())?;
    require!(id != other, "two objects have id {id:#x}");
    sys::cap_drop(semaphore)?;
    // A number is never used again.
    let semaphore = sys::semaphore_alloc(fixture.ram(), 0)?;
    let (_, again, _) = sys::cap_stat(semaphore)?;
    require!(again > id, "the id {again:#x} came after {id:#x}");
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn copies_have_no_more_rights(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 1)?;
    let weak = sys::cap_copy(semaphore, Rights::READ)?;
    require!(sys::cap_stat(weak)?.2 == Rights::READ, "a copy for reading has rights {:?}", sys::cap_stat(weak)?.2);
    refused(sys::semaphore_up(weak, 1), Error::NoRights)?;
    sys::semaphore_down(weak, 0)?;
    match sys::cap_copy(weak, Rights::ALL) {
        Ok(copy) => {
            let rights = sys::cap_stat(copy)?.2;
            require!(Rights::READ.contains(rights), "a copy of a weak capability has rights {rights:?}");
            sys::cap_drop(copy)?;
        }
        Err(error) => require!(error == Error::NoRights, "refused with {}", error.name()),
    }
    sys::cap_drop(weak)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn drop_empties(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 1)?;
    let copy = sys::cap_copy(semaphore, Rights::ALL)?;
    sys::cap_drop(semaphore)?;
    refused(sys::cap_drop(semaphore), Error::BadHandle)?;
    sys::semaphore_up(copy, 1)?;
    sys::cap_drop(copy)?;
    require!(sys::ram_stat(fixture.ram())?.1 == 0, "the object stays after its last name went");
    Ok(())
}

fn bad_handles_are_refused(fixture: &Fixture) -> Outcome {
    for number in [0, 5000, 16_384, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        refused(sys::cap_stat(Handle(number)), Error::BadHandle)?;
        refused(sys::cap_drop(Handle(number)), Error::BadHandle)?;
        refused(sys::semaphore_up(Handle(number), 1), Error::BadHandle)?;
        refused(sys::ram_split(Handle(number), 1, Handle::NONE), Error::BadHandle)?;
    }
    refused(sys::portal_alloc(fixture.ram(), Handle(9999), 0, 0), Error::BadHandle)
}

fn wrong_types_are_refused(fixture: &Fixture) -> Outcome {
    refused(sys::semaphore_up(fixture.ram(), 1), Error::WrongType)?;
    refused(sys::ram_stat(Handle::SELF_CONTEXT), Error::WrongType)?;
    refused(sys::segment_stat(Handle::SELF_RANGE), Error::WrongType)?;
    refused(sys::domain_range(fixture.ram()), Error::WrongType)?;
    refused(sys::notify(fixture.ram()), Error::WrongType)?;
    refused(sys::portal_call(fixture.ram(), [0; 4], fixture.deadline_ns()), Error::WrongType)
}

fn mint_badges(fixture: &Fixture) -> Outcome {
    let (first, one) = fixture.doorbell(0)?;
    let (second, two) = fixture.doorbell(1)?;
    sys::notify(first)?;
    sys::notify(second)?;
    let bits = fixture.wait_for(one | two, fixture.deadline_ns())?;
    require!(bits == one | two, "two badges came as {bits:#x}");
    refused(sys::cap_mint(fixture.ram(), Rights::ALL, 1), Error::WrongType)?;
    sys::cap_drop(first)?;
    sys::cap_drop(second)?;
    Ok(())
}

fn chains_end(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 1)?;
    let mut handles = alloc::vec![semaphore];
    let end = loop {
        require!(handles.len() <= DEPTH + 1, "a chain of copies is longer than {DEPTH}");
        match sys::cap_copy(handles[handles.len() - 1], Rights::ALL) {
            Ok(copy) => handles.push(copy),
            Err(error) => break error,
        }
    };
    require!(end == Error::TooDeep && handles.len() == DEPTH + 1, "{} copies, then {}", handles.len() - 1, end.name());
    handles.into_iter().try_for_each(sys::cap_drop)?;
    Ok(())
}

fn revoke_takes_copies(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 1)?;
    let copy = sys::cap_copy(semaphore, Rights::ALL)?;
    let copy_of_copy = sys::cap_copy(copy, Rights::READ)?;
    let scripted = fixture.scripted(0)?;
    let there = sys::domain_grant(scripted.worker.domain, copy, Rights::ALL)?;
    while !sys::cap_revoke(semaphore)? {}
    refused(sys::cap_stat(copy), Error::BadHandle)?;
    refused(sys::cap_stat(copy_of_copy), Error::BadHandle)?;
    let gone = scripted.call(Call::CapStat.number(), [there.0, 0, 0, 0, 0, 0], fixture.deadline_ns())?;
    refused(gone, Error::BadHandle)?;
    sys::semaphore_up(semaphore, 1)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn grants_reach_another_domain(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 0)?;
    let scripted = fixture.scripted(0)?;
    let there = sys::domain_grant(scripted.worker.domain, semaphore, Rights::WRITE)?;
    let deadline_ns = fixture.deadline_ns();
    scripted.call(Call::SemaphoreUp.number(), [there.0, 1, 0, 0, 0, 0], deadline_ns)??;
    sys::semaphore_down(semaphore, deadline_ns)?;
    let down = scripted.call(Call::SemaphoreDown.number(), [there.0, 0, 0, 0, 0, 0], deadline_ns)?;
    refused(down, Error::NoRights)?;
    // Our handle is no handle there.
    let ours = scripted.call(Call::CapStat.number(), [fixture.ram().0, 0, 0, 0, 0, 0], deadline_ns)?;
    require!(ours.is_err() || fixture.ram().0 <= there.0, "a domain has a capability that nobody gave it");
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn grants_need_the_right(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 0)?;
    let kept = sys::cap_copy(semaphore, Rights::READ.union(Rights::WRITE))?;
    let scripted = fixture.scripted(0)?;
    refused(sys::domain_grant(scripted.worker.domain, kept, Rights::READ), Error::NoRights)?;
    sys::cap_drop(kept)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}
