//! Capabilities: copies, rights, badges, depth, taking back, and other domains.

use abi::{Call, Error, Handle, ObjectType, Rights};

use crate::{Outcome, Scene, refused, require, suite};

suite!("capability"; alone: stat_tells_what_it_is, copies_have_no_more_rights, drop_empties, bad_handles_are_refused, wrong_types_are_refused,
    mint_badges, chains_end, revoke_takes_copies, grants_reach_another_domain, grants_need_the_right);

/// Copies in a row that there may be (SPEC.md, limits).
const DEPTH: usize = 16;

fn stat_tells_what_it_is(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 0)?;
    let (kind, id, rights) = sys::cap_stat(semaphore)?;
    require!(kind == ObjectType::Semaphore as u64, "a semaphore is of type {kind}");
    require!(id >> 48 == scene.core(), "an object of core {} has id {id:#x}", scene.core());
    require!(rights.contains(Rights::READ.union(Rights::WRITE)), "its maker has rights {rights:?}");
    let (_, other, _) = sys::cap_stat(scene.ram())?;
    require!(id != other, "two objects have id {id:#x}");
    sys::cap_drop(semaphore)?;
    // A number is never used again.
    let semaphore = sys::semaphore_alloc(scene.ram(), 0)?;
    let (_, again, _) = sys::cap_stat(semaphore)?;
    require!(again > id, "the id {again:#x} came after {id:#x}");
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn copies_have_no_more_rights(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 1)?;
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

fn drop_empties(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 1)?;
    let copy = sys::cap_copy(semaphore, Rights::ALL)?;
    sys::cap_drop(semaphore)?;
    refused(sys::cap_drop(semaphore), Error::BadHandle)?;
    sys::semaphore_up(copy, 1)?;
    sys::cap_drop(copy)?;
    require!(sys::ram_stat(scene.ram())?.1 == 0, "the object stays after its last name went");
    Ok(())
}

fn bad_handles_are_refused(scene: &Scene) -> Outcome {
    for number in [0, 5000, 16_384, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        refused(sys::cap_stat(Handle(number)), Error::BadHandle)?;
        refused(sys::cap_drop(Handle(number)), Error::BadHandle)?;
        refused(sys::semaphore_up(Handle(number), 1), Error::BadHandle)?;
        refused(sys::ram_split(Handle(number), 1, Handle::NONE), Error::BadHandle)?;
    }
    refused(sys::portal_alloc(scene.ram(), Handle(9999), 0, 0), Error::BadHandle)
}

fn wrong_types_are_refused(scene: &Scene) -> Outcome {
    refused(sys::semaphore_up(scene.ram(), 1), Error::WrongType)?;
    refused(sys::ram_stat(Handle::SELF_CONTEXT), Error::WrongType)?;
    refused(sys::segment_stat(Handle::SELF_RANGE), Error::WrongType)?;
    refused(sys::domain_range(scene.ram()), Error::WrongType)?;
    refused(sys::notify(scene.ram()), Error::WrongType)?;
    refused(sys::portal_call(scene.ram(), [0; 4], scene.deadline_ns()), Error::WrongType)
}

fn mint_badges(scene: &Scene) -> Outcome {
    let (first, one) = scene.doorbell(0)?;
    let (second, two) = scene.doorbell(1)?;
    sys::notify(first)?;
    sys::notify(second)?;
    let bits = scene.wait_for(one | two, scene.deadline_ns())?;
    require!(bits == one | two, "two badges came as {bits:#x}");
    refused(sys::cap_mint(scene.ram(), Rights::ALL, 1), Error::WrongType)?;
    sys::cap_drop(first)?;
    sys::cap_drop(second)?;
    Ok(())
}

fn chains_end(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 1)?;
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

fn revoke_takes_copies(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 1)?;
    let copy = sys::cap_copy(semaphore, Rights::ALL)?;
    let copy_of_copy = sys::cap_copy(copy, Rights::READ)?;
    let servant = scene.servant(0)?;
    let there = sys::domain_grant(servant.worker.domain, copy, Rights::ALL)?;
    while !sys::cap_revoke(semaphore)? {}
    refused(sys::cap_stat(copy), Error::BadHandle)?;
    refused(sys::cap_stat(copy_of_copy), Error::BadHandle)?;
    let gone = servant.call(Call::CapStat.number(), [there.0, 0, 0, 0, 0, 0], scene.deadline_ns())?;
    refused(gone, Error::BadHandle)?;
    sys::semaphore_up(semaphore, 1)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn grants_reach_another_domain(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 0)?;
    let servant = scene.servant(0)?;
    let there = sys::domain_grant(servant.worker.domain, semaphore, Rights::WRITE)?;
    let deadline_ns = scene.deadline_ns();
    servant.call(Call::SemaphoreUp.number(), [there.0, 1, 0, 0, 0, 0], deadline_ns)??;
    sys::semaphore_down(semaphore, deadline_ns)?;
    let down = servant.call(Call::SemaphoreDown.number(), [there.0, 0, 0, 0, 0, 0], deadline_ns)?;
    refused(down, Error::NoRights)?;
    // Our handle is no handle there.
    let ours = servant.call(Call::CapStat.number(), [scene.ram().0, 0, 0, 0, 0, 0], deadline_ns)?;
    require!(ours.is_err() || scene.ram().0 <= there.0, "a domain has a capability that nobody gave it");
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn grants_need_the_right(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 0)?;
    let kept = sys::cap_copy(semaphore, Rights::READ.union(Rights::WRITE))?;
    let servant = scene.servant(0)?;
    refused(sys::domain_grant(servant.worker.domain, kept, Rights::READ), Error::NoRights)?;
    sys::cap_drop(kept)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}
