//! Share: objects named through shares of a pool, from one core. What several cores see of each
//! other is shown by `apps/bench` (scenarios `shares/*`).

use abi::layout::lock;
use abi::layout::segment::CONTIGUOUS;
use abi::{Error, Handle, Rights};

use crate::{Fixture, Outcome, refused, require, suite};

suite!("share"; alone: reached_through_the_share_that_names_it, a_change_takes_the_lock_once_and_a_lookup_never,
    what_the_last_name_held_is_back, ids_rise, private_objects_stay_private);

/// Of a pool: enough for what a test makes.
const PAGES: u64 = 32;
const KINDS: [u64; 4] = [lock::SPIN, lock::READ_WRITE, lock::MCS, lock::SCALABLE_READ_WRITE];
const ALL: Rights = Rights::ALL;

fn pool(fixture: &Fixture) -> Result<Handle, Error> {
    sys::share_pool_alloc(fixture.ram(), PAGES, lock::SPIN, [1, 2]).map(|(share, _)| share)
}

/// A share inside another, named in the root share too: its handle there, and its id.
fn inner(share: Handle, kind: u64) -> Result<(Handle, u64), Error> {
    let (handle, id) = sys::share_alloc(share, kind, [0; 2])?;
    Ok((sys::share_add(Handle::NONE, handle, ALL)?, id))
}

fn reached_through_the_share_that_names_it(fixture: &Fixture) -> Outcome {
    let share = pool(fixture)?;
    let (other, _) = inner(share, lock::SPIN)?;
    let (segment, id) = sys::share_segment(share, 2, [3, 4], 0)?;
    let address = fixture.map(0, segment, 2)?;
    fixture.store(address, 77);
    require!(sys::object_name(segment)?.0 == [3, 4], "its name is {:?}", sys::object_name(segment)?.0);
    require!(sys::object_name(share)?.0 == [1, 2], "the share's name is {:?}", sys::object_name(share)?.0);
    let elsewhere = Handle::in_share(other, id).ok_or(Error::NotFound)?;
    refused(sys::segment_stat(elsewhere), Error::BadHandle)?;
    sys::share_add(other, segment, Rights::READ)?;
    require!(sys::segment_stat(elsewhere)?.0 == 2, "{} pages", sys::segment_stat(elsewhere)?.0);
    sys::cap_drop(share)?;
    refused(sys::segment_stat(segment), Error::BadHandle)?;
    require!(sys::segment_stat(elsewhere)?.0 == 2, "the other share lost it");
    require!(fixture.load(address) == 77, "the mapping lost it");
    fixture.unmap(0, 2)?;
    sys::cap_drop(other)?;
    Ok(())
}

fn a_change_takes_the_lock_once_and_a_lookup_never(fixture: &Fixture) -> Outcome {
    let share = pool(fixture)?;
    let (segment, id) = sys::share_segment(share, 1, [0; 2], 0)?;
    for kind in KINDS {
        let (inner, inner_id) = inner(share, kind)?;
        sys::share_add(inner, segment, ALL)?;
        refused(sys::share_add(inner, segment, ALL), Error::Busy)?;
        let named = Handle::in_share(inner, id).ok_or(Error::NotFound)?;
        for _ in 0..10 {
            sys::segment_stat(named)?;
        }
        require!(sys::share_stat(inner)? == [1, 2, 0], "{:?} after two changes", sys::share_stat(inner)?);
        sys::share_remove(inner, id)?;
        refused(sys::share_remove(inner, id), Error::NotFound)?;
        require!(sys::share_stat(inner)? == [0, 4, 0], "{:?} after four changes", sys::share_stat(inner)?);
        sys::share_remove(share, inner_id)?;
        sys::cap_drop(inner)?;
    }
    sys::cap_drop(share)?;
    Ok(())
}

fn what_the_last_name_held_is_back(fixture: &Fixture) -> Outcome {
    let used = || sys::ram_stat(fixture.ram()).map(|(_, used, _)| used);
    let before = used()?;
    let share = pool(fixture)?;
    require!(used()? >= before + PAGES, "a pool costs {} pages", used()? - before);
    let (deep, _) = inner(share, lock::MCS)?;
    // They hold each other.
    sys::share_add(deep, share, ALL)?;
    let (segment, id) = sys::share_segment(deep, 20, [0; 2], CONTIGUOUS)?;
    refused(sys::share_segment(share, 20, [0; 2], CONTIGUOUS), Error::NoMemory)?;
    sys::share_add(share, segment, ALL)?;
    sys::share_remove(deep, id)?;
    refused(sys::share_segment(share, 20, [0; 2], CONTIGUOUS), Error::NoMemory)?;
    sys::share_remove(share, id)?;
    sys::share_segment(share, 20, [0; 2], CONTIGUOUS)?;
    sys::cap_drop(deep)?;
    sys::cap_drop(share)?;
    require!(used()? <= before + 1, "{} pages are missing", used()? - before);
    Ok(())
}

fn ids_rise(fixture: &Fixture) -> Outcome {
    let share = pool(fixture)?;
    let mut last = 0;
    for _ in 0..500 {
        let (_, id) = sys::share_segment(share, 1, [0; 2], 0)?;
        require!(id > last, "id {id:#x} after {last:#x}");
        sys::share_remove(share, id)?;
        last = id;
    }
    sys::cap_drop(share)?;
    Ok(())
}

fn private_objects_stay_private(fixture: &Fixture) -> Outcome {
    let share = pool(fixture)?;
    let (private, _) = sys::segment_alloc(fixture.ram(), 1, 0)?;
    refused(sys::share_add(share, private, ALL), Error::WrongType)?;
    refused(sys::share_add(share, Handle::SELF_DOMAIN, ALL), Error::WrongType)?;
    refused(sys::object_name(private), Error::WrongType)?;
    refused(sys::share_pool_alloc(fixture.ram(), 7, lock::SPIN, [0; 2]), Error::BadArgument)?;
    refused(sys::share_pool_alloc(fixture.ram(), PAGES, 4, [0; 2]), Error::BadArgument)?;
    sys::cap_drop(private)?;
    sys::cap_drop(share)?;
    Ok(())
}
