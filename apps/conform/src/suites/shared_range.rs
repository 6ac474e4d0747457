//! AddressRange in a pool: what several cores map by the same tables.

use alloc::rc::Rc;

use abi::layout::segment::CONTIGUOUS;
use abi::layout::{counter, lock, protection, range_stat};
use abi::{DeathCause, Error, Handle, Rights};
use worker::ScriptedDomain;

use crate::table::{Failure, Words};
use crate::{Fixture, Outcome, Partner, drop_all, refused, require, suite};

suite!("shared_range"; alone: sizes_and_kinds_are_checked, rights_are_those_of_the_names, a_full_pool_is_an_error,
    a_full_pool_ends_who_touches, a_dead_pool_takes_it_away;
    paired: one_fault_serves_all, the_first_who_touches_makes_the_page, a_copy_parts_page_by_page_on_both_cores, an_unmapped_page_is_gone_on_the_next_core_too, who_works_alone_waits_for_nobody,
    a_core_that_shows_it_no_more_is_not_asked, what_two_cores_know_becomes_no_table;
    far: map_common, read, store, fault, unmap_common, retype);

const PAGE: u64 = abi::PAGE_BYTES;
const READ: u64 = protection::READ;
const READ_WRITE: u64 = crate::fixture::READ_WRITE;
const ALL: Rights = Rights::ALL;
/// Pages of the smallest range.
const SMALL: u64 = 512;
/// Pages of a test's own pool.
const POOL: u64 = 64;
/// Pages that are mapped; several faults' worth.
const PAGES: u64 = 32;
/// Of those, pages that a copy has too: the pool is not larger.
const COPIED: u64 = 8;
/// The place where it is mapped, here and on the next core.
const NEAR: u64 = 4;
const FAR: u64 = 5;

fn unmap(range: Handle, address: u64, pages: u64) -> Result<u64, Error> {
    // SAFETY: memory of places is reached by `load` and `store` only.
    unsafe { sys::range_unmap(range, address, pages) }
}

/// A pool for a test of one core.
fn own_pool(fixture: &Fixture) -> Result<Handle, Error> {
    sys::share_pool_alloc(fixture.ram(), POOL, lock::SPIN, [0; 2]).map(|(share, _)| share)
}

/// A scripted domain that shows the range at that place, and a name of its space.
fn scripted_with(
    fixture: &Fixture,
    place: u64,
    range: Handle,
    protection: u64,
) -> Result<(ScriptedDomain, Handle), Error> {
    let scripted = fixture.scripted(0)?;
    let space = scripted.worker.range()?;
    sys::range_nest(space, fixture.place(place), range, protection)?;
    Ok((scripted, space))
}

/// A range in the pool of `share`: a name of our own, and its id.
fn range_in(share: Handle, pages: u64) -> Result<(Handle, u64), Error> {
    let (handle, id, _) = sys::share_range(share, pages, lock::SPIN, [0; 2], 0)?;
    Ok((sys::share_add(Handle::NONE, handle, ALL)?, id))
}

fn sizes_and_kinds_are_checked(fixture: &Fixture) -> Outcome {
    let share = own_pool(fixture)?;
    let make = |pages: u64, kind: u64, flags: u64| sys::share_range(share, pages, kind, [0; 2], flags);
    for (pages, kind, flags) in [(0, 0, 0), ((1 << 27) + 1, 0, 0), (u64::MAX, 0, 0), (1, 4, 0), (1, 0, 2)] {
        refused(make(pages, kind, flags), Error::BadArgument)?;
    }
    let (handle, id, pages) = sys::share_range(share, SMALL + 1, lock::MCS, [1, 2], 0)?;
    require!(pages == SMALL * SMALL, "{pages} pages");
    require!(sys::object_name(handle)?.0 == [1, 2], "its name is {:?}", sys::object_name(handle)?.0);
    let large = sys::share_add(Handle::NONE, handle, ALL)?;
    let (small, _) = range_in(share, 1)?;
    let (segment, segment_id) = sys::share_segment(share, 4, [0; 2], 0)?;
    let (private, _) = sys::segment_alloc(fixture.ram(), 4, 0)?;
    let (own, _) = sys::range_alloc(fixture.ram(), 1, 0)?;
    let map = |range: Handle, at: u64, segment: Handle, first: u64, pages: u64| {
        sys::range_map(range, at, segment, first, pages, READ)
    };
    refused(map(large, 0, private, 0, 4), Error::WrongType)?;
    refused(map(large, 0, segment, 1, 4), Error::BadArgument)?;
    refused(map(large, pages * PAGE - PAGE, segment, 0, 2), Error::BadArgument)?;
    refused(map(large, 1, segment, 0, 1), Error::BadArgument)?;
    refused(sys::range_nest(large, 0, large, READ), Error::BadArgument)?;
    refused(sys::range_nest(large, 0, small, READ), Error::BadArgument)?;
    refused(sys::range_nest(large, 0, own, READ), Error::BadArgument)?;
    refused(sys::range_nest(Handle::SELF_RANGE, fixture.place(0) + PAGE, small, READ), Error::BadArgument)?;
    refused(sys::share_add(share, own, ALL), Error::WrongType)?;
    refused(sys::range_stat(own, range_stat::LOCK), Error::WrongType)?;
    refused(sys::range_stat(small, 2), Error::BadArgument)?;
    let other = own_pool(fixture)?;
    let (foreign, _) = sys::share_segment(other, 1, [0; 2], 0)?;
    refused(map(large, 0, foreign, 0, 1), Error::BadArgument)?;
    map(large, 0, segment, 0, 4)?;
    refused(map(large, 3 * PAGE, segment, 0, 1), Error::Busy)?;
    let entry = sys::range_get(large, 0)?;
    require!((entry.pages, entry.object) == (4, segment_id), "it tells {entry:?}");
    // Without a name of one's own it can be mapped, and goes when it is mapped no more.
    sys::range_nest(Handle::SELF_RANGE, fixture.place(0), handle, READ)?;
    [large, small].into_iter().try_for_each(sys::cap_drop)?;
    sys::share_remove(share, id)?;
    require!(fixture.load(fixture.place(0)) == 0, "a new segment is not empty");
    unmap(Handle::SELF_RANGE, fixture.place(0), pages)?;
    refused(sys::object_name(handle), Error::BadHandle)?;
    drop_all(&[private, own, other, share])
}

fn rights_are_those_of_the_names(fixture: &Fixture) -> Outcome {
    let share = own_pool(fixture)?;
    let (range, id) = range_in(share, 1)?;
    let (segment, _) = sys::share_segment(share, 2, [0; 2], 0)?;
    let handle = Handle::in_share(share, id).ok_or(Error::NotFound)?;
    let readable = sys::share_add(Handle::NONE, handle, Rights::READ)?;
    let only_read = sys::share_add(Handle::NONE, segment, Rights::READ)?;
    refused(sys::range_map(readable, 0, segment, 0, 1, READ), Error::NoRights)?;
    refused(unmap(readable, 0, 1), Error::NoRights)?;
    refused(sys::range_nest(Handle::SELF_RANGE, fixture.place(0), readable, READ_WRITE), Error::NoRights)?;
    refused(sys::range_map(range, 0, only_read, 0, 1, READ_WRITE), Error::NoRights)?;
    sys::range_map(range, 0, only_read, 0, 1, READ)?;
    sys::range_map(range, PAGE, segment, 1, 1, READ_WRITE)?;
    // SAFETY: memory of places is reached by `load` and `store` only.
    refused(unsafe { sys::range_protect(range, 0, 1, READ_WRITE) }, Error::NoRights)?;
    // Shown to a scripted domain with less than the mapping allows.
    let (scripted, space) = scripted_with(fixture, 0, readable, READ)?;
    require!(scripted.load(fixture.place(0) + PAGE, fixture.deadline_ns())? == 0, "a new segment is not empty");
    refused(scripted.store(fixture.place(0) + PAGE, 1, fixture.deadline_ns()), Error::PeerDead)?;
    drop_all(&[space, readable, only_read, range, share])
}

fn a_full_pool_is_an_error(fixture: &Fixture) -> Outcome {
    let share = own_pool(fixture)?;
    let (range, _) = range_in(share, SMALL * SMALL)?;
    let (segment, _) = sys::share_segment(share, 1, [0; 2], CONTIGUOUS)?;
    sys::range_map(range, 0, segment, 0, 1, READ_WRITE)?;
    let mut last = 0;
    while let Ok((_, id)) = sys::share_segment(share, 1, [0; 2], CONTIGUOUS) {
        last = id;
    }
    // One page may be left: it is the first table's.
    let full = sys::range_map(range, SMALL * PAGE, segment, 0, 1, READ_WRITE)
        .and_then(|()| sys::range_fill(range, SMALL * PAGE, 1))
        .and_then(|_| sys::range_fill(range, 0, 1));
    refused(full, Error::NoMemory)?;
    refused(sys::share_range(share, 1, lock::SPIN, [0; 2], 0).map(drop), Error::NoMemory)?;
    sys::share_remove(share, last)?;
    sys::range_nest(Handle::SELF_RANGE, fixture.place(0), range, READ_WRITE)?;
    fixture.store(fixture.place(0), 5);
    require!(fixture.load(fixture.place(0)) == 5, "a page is lost");
    unmap(Handle::SELF_RANGE, fixture.place(0), SMALL * SMALL)?;
    drop_all(&[range, share])
}

/// More pages than there are can be promised; who is the one too many ends, and only he.
fn a_full_pool_ends_who_touches(fixture: &Fixture) -> Outcome {
    let share = own_pool(fixture)?;
    let (range, id) = range_in(share, 1)?;
    refused(sys::share_segment(share, 1, [0; 2], CONTIGUOUS << 1), Error::BadArgument)?;
    refused(sys::share_segment(share, abi::layout::SEGMENT_PAGES_MAX, [0; 2], 0), Error::NoMemory)?;
    let (segment, segment_id) = sys::share_segment(share, 2 * POOL, [0; 2], 0)?;
    sys::range_map(range, 0, segment, 0, 2 * POOL, READ_WRITE)?;
    sys::range_nest(Handle::SELF_RANGE, fixture.place(0), range, READ_WRITE)?;
    require!(sys::segment_stat(segment)?.1 == 0, "{} pages before the first touch", sys::segment_stat(segment)?.1);
    let mut mapped = 0;
    while sys::range_fill(range, mapped * PAGE, 1).is_ok() {
        fixture.store(fixture.place(0) + mapped * PAGE, mapped);
        mapped += 1;
        require!(mapped < POOL, "more pages than the pool has");
    }
    refused(sys::range_fill(range, mapped * PAGE, 1).map(drop), Error::NoMemory)?;
    require!(sys::segment_stat(segment)?.1 == mapped, "{:?} after {mapped} touches", sys::segment_stat(segment)?);
    let (scripted, space) = scripted_with(fixture, 0, range, READ_WRITE)?;
    require!(
        scripted.load(fixture.place(0) + PAGE, fixture.deadline_ns())? == 1,
        "another program sees something else"
    );
    refused(scripted.store(fixture.place(0) + mapped * PAGE, 1, fixture.deadline_ns()), Error::PeerDead)?;
    let cause = DeathCause::decode(sys::domain_state(scripted.worker.domain)?.cause);
    require!(cause == Some(DeathCause::NoMemory), "it ended of {cause:?}");
    require!((0..mapped).all(|page| fixture.load(fixture.place(0) + page * PAGE) == page), "what was written is lost");
    unmap(Handle::SELF_RANGE, fixture.place(0), SMALL)?;
    [space, range].into_iter().try_for_each(sys::cap_drop)?;
    [id, segment_id].into_iter().try_for_each(|id| sys::share_remove(share, id))?;
    // All of it is back, and comes without what was in it.
    let (whole, _) = sys::share_segment(share, mapped, [0; 2], CONTIGUOUS)?;
    let address = fixture.map(0, whole, mapped)?;
    require!((0..mapped).all(|page| fixture.load(address + page * PAGE) == 0), "a new segment is not empty");
    fixture.unmap(0, mapped)?;
    drop_all(&[share])
}

fn a_dead_pool_takes_it_away(fixture: &Fixture) -> Outcome {
    let account = sys::ram_split(fixture.ram(), 2 * POOL, Handle::NONE)?;
    let (share, _) = sys::share_pool_alloc(account, POOL, lock::SPIN, [0; 2])?;
    let (range, _) = range_in(share, 1)?;
    let (segment, _) = sys::share_segment(share, 2, [0; 2], 0)?;
    sys::range_map(range, 0, segment, 0, 2, READ_WRITE)?;
    let (scripted, space) = scripted_with(fixture, 0, range, READ_WRITE)?;
    scripted.store(fixture.place(0), 3, fixture.deadline_ns())?;
    // SAFETY: the account pays for nothing that we have mapped.
    while !unsafe { sys::ram_revoke(account) }? {}
    refused(sys::range_stat(range, range_stat::LOCK), Error::BadHandle)?;
    refused(scripted.load(fixture.place(0), fixture.deadline_ns()), Error::PeerDead)?;
    let state = sys::domain_state(scripted.worker.domain)?;
    require!(state.exception.address == fixture.place(0), "the fault is told at {:#x}", state.exception.address);
    drop_all(&[space, account])
}

/// A range that we and the next core map, and what is mapped at its beginning.
struct Common {
    pool: Handle,
    range: Handle,
    id: u64,
    /// The next core's name of it.
    far: u64,
    segment: Handle,
    segment_id: u64,
}

impl Common {
    async fn new(fixture: &Fixture, partner: &Partner) -> Result<Common, Failure> {
        let pool = fixture.pool()?;
        let (range, id) = range_in(pool, 1)?;
        let (segment, segment_id) = sys::share_segment(pool, PAGES, [0; 2], 0)?;
        sys::range_map(range, 0, segment, 0, PAGES, READ_WRITE)?;
        sys::range_nest(Handle::SELF_RANGE, fixture.place(NEAR), range, READ_WRITE)?;
        let [far, ..] = partner.act("shared_range/map_common", [id, 0, 0, 0]).await?;
        Ok(Common { pool, range, id, far, segment, segment_id })
    }

    /// Faults served, table pages, cores that show it.
    fn faults(&self) -> Result<[u64; 3], Error> {
        sys::range_stat(self.range, range_stat::FAULTS)
    }

    async fn unmap(&self, partner: &Partner) -> Result<(), Failure> {
        partner.act("shared_range/unmap_common", [self.far, 0, 0, 0]).await.map(drop)
    }

    fn end(self, fixture: &Fixture) -> Outcome {
        unmap(Handle::SELF_RANGE, fixture.place(NEAR), SMALL)?;
        sys::share_remove(self.pool, self.id)?;
        sys::share_remove(self.pool, self.segment_id)?;
        sys::cap_drop(self.range)?;
        Ok(())
    }
}

/// Shows the range of that id; gives the name made for it.
fn map_common(fixture: &Fixture, [id, ..]: Words) -> Result<Words, Failure> {
    let handle = Handle::in_share(fixture.pool()?, id).ok_or(Error::NotFound)?;
    let name = sys::share_add(Handle::NONE, handle, ALL)?;
    sys::range_nest(Handle::SELF_RANGE, fixture.place(FAR), name, READ_WRITE)?;
    Ok([name.0, 0, 0, 0])
}

/// The sum of the first words of the pages.
fn read(fixture: &Fixture, [first, pages, ..]: Words) -> Result<Words, Failure> {
    let sum = (first..first + pages).map(|page| fixture.load(fixture.place(FAR) + page * PAGE)).sum();
    Ok([sum, 0, 0, 0])
}

/// Writes the first word of a page.
fn store(fixture: &Fixture, [page, value, ..]: Words) -> Result<Words, Failure> {
    fixture.store(fixture.place(FAR) + page * PAGE, value);
    Ok([0; 4])
}

/// A scripted domain that shows the range reads a page: whether it died of a page fault there.
fn fault(fixture: &Fixture, [name, page, ..]: Words) -> Result<Words, Failure> {
    let (scripted, space) = scripted_with(fixture, FAR, Handle(name), READ)?;
    let address = fixture.place(FAR) + page * PAGE;
    let read = scripted.load(address, fixture.deadline_ns());
    let state = sys::domain_state(scripted.worker.domain)?;
    let is_fault = DeathCause::decode(state.cause) == Some(DeathCause::Exception) && state.exception.address == address;
    sys::cap_drop(space)?;
    Ok([u64::from(read == Err(Error::PeerDead) && is_fault), 0, 0, 0])
}

/// Shows it no more.
fn unmap_common(fixture: &Fixture, [name, ..]: Words) -> Result<Words, Failure> {
    unmap(Handle::SELF_RANGE, fixture.place(FAR), SMALL)?;
    sys::cap_drop(Handle(name))?;
    Ok([0; 4])
}

/// Wants the segment of that id for a hardware table; tells that it was refused, and is one yet.
fn retype(fixture: &Fixture, [id, ..]: Words) -> Result<Words, Failure> {
    let handle = Handle::in_share(fixture.pool()?, id).ok_or(Error::NotFound)?;
    let name = sys::share_add(Handle::NONE, handle, ALL)?;
    refused(sys::range_retype(name, SMALL, 0), Error::BadArgument)?;
    // Only what the caller itself holds can be given up.
    refused(sys::range_retype(handle, SMALL, 0), Error::BadHandle)?;
    require!(sys::segment_stat(handle)?.0 == 1, "it is a segment of one page no more");
    drop_all(&[name])?;
    Ok([1, 0, 0, 0])
}

/// A program that could write a page that is a table could write translations (Barrelfish 4.7),
/// also from a core that the table is not on.
async fn what_two_cores_know_becomes_no_table(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let common = Common::new(&fixture, &partner).await?;
    let (page, id) = sys::share_segment(common.pool, 1, [0; 2], CONTIGUOUS)?;
    let try_both = async || {
        retype(&fixture, [id, 0, 0, 0])?;
        let [refused, ..] = partner.act("shared_range/retype", [id, 0, 0, 0]).await?;
        require!(refused == 1, "the next core made a table of it");
        Ok(())
    };
    try_both().await?;
    sys::range_map(common.range, PAGES * PAGE, page, 0, 1, READ_WRITE)?;
    partner.act("shared_range/store", [PAGES, 7, 0, 0]).await?;
    try_both().await?;
    require!(fixture.load(fixture.place(NEAR) + PAGES * PAGE) == 7, "the page is not what it was");
    unmap(common.range, PAGES * PAGE, 1)?;
    sys::share_remove(common.pool, id)?;
    // A page of a region of all cores, on its own core and on others: those who share it are not
    // given the right to make it something else.
    refused(sys::range_retype(fixture.region_page()?, SMALL, 0), Error::NoRights)?;
    common.unmap(&partner).await?;
    common.end(&fixture)
}

async fn one_fault_serves_all(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let common = Common::new(&fixture, &partner).await?;
    require!(common.faults()? == [0, 0, 2], "before the first touch: {:?}", common.faults()?);
    (0..PAGES).for_each(|page| fixture.store(fixture.place(NEAR) + page * PAGE, 1 + page));
    let faults = common.faults()?;
    require!((1..=PAGES).contains(&faults[0]) && faults[1] == 0, "after touching: {faults:?}");
    let [sum, ..] = partner.act("shared_range/read", [0, PAGES, 0, 0]).await?;
    require!(sum == (1..=PAGES).sum(), "the next core reads {sum}");
    require!(common.faults()? == faults, "the next core faulted: {:?} after {faults:?}", common.faults()?);
    // And the other way round.
    sys::range_map(common.range, PAGES * PAGE, common.segment, 0, PAGES, READ_WRITE)?;
    partner.act("shared_range/store", [PAGES, 99, 0, 0]).await?;
    let faults = common.faults()?;
    require!(fixture.load(fixture.place(NEAR)) == 99, "the next core's write is not seen");
    require!(fixture.load(fixture.place(NEAR) + PAGES * PAGE) == 99, "nor where it was written");
    require!(common.faults()? == faults, "its fault did not serve us");
    common.unmap(&partner).await?;
    require!(common.faults()?[2] == 1, "{} cores map it", common.faults()?[2]);
    common.end(&fixture)
}

async fn the_first_who_touches_makes_the_page(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let common = Common::new(&fixture, &partner).await?;
    let present = || sys::segment_stat(common.segment).map(|(_, present, _)| present);
    require!(present()? == 0, "{} pages before the first touch", present()?);
    for page in 0..PAGES {
        let before = common.faults()?;
        if page % 2 == 0 {
            fixture.store(fixture.place(NEAR) + page * PAGE, 1 + page);
        } else {
            partner.act("shared_range/store", [page, 1 + page, 0, 0]).await?;
        }
        require!(present()? == 1 + page, "{} pages after {}", present()?, 1 + page);
        let [sum, ..] = partner.act("shared_range/read", [page, 1, 0, 0]).await?;
        require!(sum == 1 + page, "the next core reads {sum} in page {page}");
        require!(fixture.load(fixture.place(NEAR) + page * PAGE) == 1 + page, "another frame than the next core's");
        let faults = common.faults()?[0] - before[0];
        require!(faults == 1, "{faults} faults at page {page}");
    }
    common.unmap(&partner).await?;
    common.end(&fixture)
}

/// Each page of a copy and its source, written by this core or the next one.
async fn a_copy_parts_page_by_page_on_both_cores(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let common = Common::new(&fixture, &partner).await?;
    let source = fixture.place(NEAR);
    for round in 1..4 {
        (0..COPIED).for_each(|page| fixture.store(source + page * PAGE, round * 1000 + page));
        // The next core remembers all of it, for writing too.
        for page in 0..COPIED {
            partner.act("shared_range/store", [page, round * 1000 + page + 500, 0, 0]).await?;
        }
        let (copied, id) = sys::share_copy(common.pool, common.segment, [0; 2])?;
        refused(sys::range_map(Handle::SELF_RANGE, fixture.place(6), copied, 0, 1, READ), Error::Busy)?;
        sys::range_map(common.range, PAGES * PAGE, copied, 0, COPIED, READ_WRITE)?;
        for page in 0..COPIED {
            let (old, new) = (round * 1000 + page + 500, page + 1);
            let both = [page, PAGES + page];
            for place in both {
                let [seen, ..] = partner.act("shared_range/read", [place, 1, 0, 0]).await?;
                require!(seen == old, "the next core reads {seen} in page {place}, not {old}");
            }
            // Four ways: which side, by which core.
            let written = both[(page & 1) as usize];
            if page & 2 == 0 {
                fixture.store(source + written * PAGE, new);
            } else {
                partner.act("shared_range/store", [written, new, 0, 0]).await?;
            }
            for place in both {
                let right = if place == written { new } else { old };
                let [seen, ..] = partner.act("shared_range/read", [place, 1, 0, 0]).await?;
                let own = fixture.load(source + place * PAGE);
                require!([seen, own] == [right; 2], "the cores see {seen} and {own} in page {place}, not {right}");
            }
        }
        let asked = sys::range_stat(common.range, range_stat::LOCK)?[2];
        require!(asked >= round * (COPIED + 1), "the next core was asked {asked} times in {round} rounds");
        unmap(common.range, PAGES * PAGE, COPIED)?;
        require!(fixture.load(source) != 0, "the source went with its copy");
        sys::share_remove(common.pool, id)?;
    }
    common.unmap(&partner).await?;
    common.end(&fixture)
}

async fn an_unmapped_page_is_gone_on_the_next_core_too(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let common = Common::new(&fixture, &partner).await?;
    for round in 1..20 {
        // The next core has read it, so its processor remembers it.
        fixture.store(fixture.place(NEAR), round);
        let [seen, ..] = partner.act("shared_range/read", [0, 1, 0, 0]).await?;
        require!(seen == round, "{seen} in round {round}");
        let (other, other_id) = sys::share_segment(common.pool, 1, [0; 2], 0)?;
        unmap(common.range, 0, 1)?;
        sys::range_map(common.range, 0, other, 0, 1, READ_WRITE)?;
        let [seen, ..] = partner.act("shared_range/read", [0, 1, 0, 0]).await?;
        require!(seen == 0, "the next core sees {seen} where something else is mapped now");
        unmap(common.range, 0, 1)?;
        sys::share_remove(common.pool, other_id)?;
        sys::range_map(common.range, 0, common.segment, 0, 1, READ_WRITE)?;
    }
    partner.act("shared_range/read", [1, 2, 0, 0]).await?;
    unmap(common.range, PAGE, 1)?;
    let [faults, ..] = partner.act("shared_range/fault", [common.far, 1, 0, 0]).await?;
    require!(faults == 1, "a program of the next core still reads it");
    let [faults, ..] = partner.act("shared_range/fault", [common.far, 2, 0, 0]).await?;
    require!(faults == 0, "its neighbour is gone too");
    let [_, _, invalidations] = sys::range_stat(common.range, range_stat::LOCK)?;
    require!(invalidations >= 39, "the next core was asked {invalidations} times");
    common.unmap(&partner).await?;
    common.end(&fixture)
}

/// Narrows and opens the range again and again.
fn churn(fixture: &Fixture, common: &Common, rounds: u64) -> Outcome {
    for round in 0..rounds {
        fixture.store(fixture.place(NEAR), round);
        unmap(common.range, 0, PAGES)?;
        sys::range_map(common.range, 0, common.segment, 0, PAGES, READ_WRITE)?;
        // Each round waits for another core, which a busy host may hold up.
        fixture.look()?;
    }
    Ok(())
}

async fn who_works_alone_waits_for_nobody(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    const ROUNDS: u64 = 100;
    let common = Common::new(&fixture, &partner).await?;
    let asked = sys::counter_read(counter::SHOOTDOWNS_SENT)?;
    // All cores at once, each in a range that the next one shows: so each waits for the next, in a
    // circle.
    churn(&fixture, &common, ROUNDS)?;
    let asked = sys::counter_read(counter::SHOOTDOWNS_SENT)? - asked;
    require!(asked == ROUNDS, "the next core was asked {asked} times in {ROUNDS} rounds");
    let [acquires, waits, _] = sys::range_stat(common.range, range_stat::LOCK)?;
    require!(acquires >= 2 * ROUNDS, "its lock was taken {acquires} times");
    require!(waits == 0, "one core waited {waits} times for a lock that it alone takes");
    common.unmap(&partner).await?;
    common.end(&fixture)
}

async fn a_core_that_shows_it_no_more_is_not_asked(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let common = Common::new(&fixture, &partner).await?;
    common.unmap(&partner).await?;
    let asked = sys::counter_read(counter::SHOOTDOWNS_SENT)?;
    churn(&fixture, &common, 10)?;
    // Nor is anybody for a range of our own.
    let (own, pages) = sys::range_alloc(fixture.ram(), 1, 0)?;
    let (memory, _) = sys::segment_alloc(fixture.ram(), 1, 0)?;
    sys::range_nest(Handle::SELF_RANGE, fixture.place(6), own, READ_WRITE)?;
    for _ in 0..10 {
        sys::range_map(own, 0, memory, 0, 1, READ_WRITE)?;
        fixture.store(fixture.place(6), 1);
        unmap(own, 0, 1)?;
    }
    unmap(Handle::SELF_RANGE, fixture.place(6), pages)?;
    [own, memory].into_iter().try_for_each(sys::cap_drop)?;
    let asked = sys::counter_read(counter::SHOOTDOWNS_SENT)? - asked;
    require!(asked == 0, "others were asked {asked} times");
    common.end(&fixture)
}
