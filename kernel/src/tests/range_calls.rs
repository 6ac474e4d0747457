//! The calls of ranges as a program makes them: an identical range from what `RangeGet` tells,
//! rights, and revocation under a parent.

use super::World;
use super::revoke::Actor;
use crate::arch::paging::{Flags, view};
use crate::hardware::{Flush, take_flushes};
use crate::objects::domain::Death;
use crate::objects::fault::Access;
use crate::objects::share::Capability;
use crate::objects::{Pcore, Ptr, Range};
use abi::layout::{HEAP, copy, protection, segment};
use abi::{Call, DeathCause, Error, Handle, RangeEntry, Rights};

const READ: u64 = protection::READ;
const OPEN: u64 = protection::READ | protection::WRITE;
const PAGE: u64 = 4096;

fn entries(world: &mut World, actor: Actor, range: u64) -> Vec<RangeEntry> {
    let mut found = Vec::new();
    let mut next = 0;
    loop {
        match world.run(actor, Call::RangeGet, &[range, next]) {
            Ok(words) => found.push(RangeEntry::from_words(words)),
            Err(error) => {
                assert_eq!(error, Error::NotFound);
                return found;
            }
        }
        next = found.last().map_or(0, |entry| entry.start + entry.pages * PAGE);
    }
}

fn range_of(actor: Actor, handle: u64) -> Ptr<Range> {
    actor.domain.share().get(Handle(handle)).unwrap().object.cast().unwrap()
}

#[test]
fn an_identical_range_is_made_from_what_is_told() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let ram = Handle::ROOT_RAM.0;
    let segment = world.make(actor, Call::SegmentAlloc, &[ram, 20, 0]);
    let readable = world.make(actor, Call::CapCopy, &[segment, u64::from(Rights::READ.0)]);
    let [outer, outer_pages, _] = world.run(actor, Call::RangeAlloc, &[ram, 2000, 0]).unwrap();
    let [inner, inner_pages, _] = world.run(actor, Call::RangeAlloc, &[ram, 1, 0]).unwrap();
    assert_eq!([outer_pages, inner_pages], [1 << 18, 512]);
    world.make(actor, Call::RangeMap, &[outer, PAGE, segment, 3, 5, OPEN]);
    world.make(actor, Call::RangeMap, &[outer, 9 * PAGE, readable, 0, 20, READ]);
    world.make(actor, Call::RangeNest, &[outer, 512 * PAGE, inner, OPEN]);
    world.make(actor, Call::RangeNest, &[outer, 4 * 512 * PAGE, inner, READ]);
    world.make(actor, Call::RangeMap, &[inner, 0, segment, 0, 1, OPEN]);
    world.make(actor, Call::RangeProtect, &[outer, 2 * PAGE, 2, READ]);
    let told = entries(&mut world, actor, outer);
    assert_eq!(told.len(), 6, "{told:?}");

    let copy = world.make(actor, Call::RangeAlloc, &[ram, outer_pages, 0]);
    for entry in &told {
        let mine = [segment, readable, inner].into_iter().find(|handle| {
            let [_, id, rights] = world.run(actor, Call::CapStat, &[*handle]).unwrap();
            id == entry.object && rights & 7 == entry.allowed
        });
        let mine = mine.expect("the object is one of ours");
        match entry.is_range {
            true => world.make(actor, Call::RangeNest, &[copy, entry.start, mine, entry.protection]),
            false => world.make(
                actor,
                Call::RangeMap,
                &[copy, entry.start, mine, entry.first, entry.pages, entry.protection],
            ),
        };
    }
    assert_eq!(entries(&mut world, actor, copy), told);
    // And every page of it is the same to a program.
    let space = actor.domain.range();
    world.make(actor, Call::RangeNest, &[Handle::SELF_RANGE.0, 1 << 30, outer, OPEN]);
    world.make(actor, Call::RangeNest, &[Handle::SELF_RANGE.0, 2 << 30, copy, OPEN]);
    for page in (0..40).chain(510..515).chain(2046..2052) {
        for access in [Access::Read, Access::Write] {
            let [here, there] =
                [1u64 << 30, 2 << 30].map(|base| space.resolve(&mut world.kernel, base + page * PAGE, access));
            assert_eq!(here, there, "page {page}");
        }
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn a_nested_range_is_shown_with_no_more_than_its_capability_allows() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let ram = Handle::ROOT_RAM.0;
    let space = Handle::SELF_RANGE.0;
    let range = world.make(actor, Call::RangeAlloc, &[ram, 512, 0]);
    let readable = world.make(actor, Call::CapCopy, &[range, u64::from(Rights::READ.0)]);
    let segment = world.make(actor, Call::SegmentAlloc, &[ram, 4, 0]);
    world.make(actor, Call::RangeMap, &[range, 0, segment, 0, 4, OPEN]);
    assert_eq!(world.run(actor, Call::RangeMap, &[readable, PAGE << 4, segment, 0, 4, READ]), Err(Error::NoRights));
    assert_eq!(world.run(actor, Call::RangeNest, &[space, HEAP, readable, OPEN]), Err(Error::NoRights));
    world.make(actor, Call::RangeNest, &[space, HEAP, readable, READ]);
    assert_eq!(world.run(actor, Call::RangeNest, &[space, HEAP, range, READ]), Err(Error::Busy));
    assert_eq!(world.run(actor, Call::RangeProtect, &[space, HEAP, 512, OPEN]), Err(Error::NoRights));
    assert_eq!(world.run(actor, Call::RangeProtect, &[space, HEAP, 511, 0]), Err(Error::BadArgument));
    assert_eq!(world.run(actor, Call::RangeUnmap, &[space, HEAP + PAGE, 511]), Err(Error::BadArgument));
    let own = actor.domain.range();
    assert!(own.resolve(&mut world.kernel, HEAP, Access::Read).is_ok());
    assert!(own.resolve(&mut world.kernel, HEAP, Access::Write).is_err());
    // The kernel itself writes there no more than the program could.
    assert_eq!(world.run(actor, Call::DomainState, &[Handle::SELF_DOMAIN.0, HEAP]), Err(Error::BadPointer));
    world.make(actor, Call::RangeProtect, &[space, HEAP, 512, 0]);
    assert!(view(own.root(), HEAP).is_none());
    assert_eq!(world.make(actor, Call::RangeUnmap, &[space, HEAP, 512]), 512);
    world.leave_nothing(&[actor]);
}

#[test]
fn a_range_that_is_revoked_leaves_its_parents_whole() {
    let mut world = World::new(3000);
    let actor = world.outsider();
    let other = world.actor(world.ram);
    let ram = world.make(actor, Call::RamSplit, &[Handle::ROOT_RAM.0, 1000]);
    let kept = world.make(actor, Call::RangeAlloc, &[Handle::ROOT_RAM.0, 1 << 18, 0]);
    let gone = world.make(actor, Call::RangeAlloc, &[ram, 512, 0]);
    let segment = world.make(actor, Call::SegmentAlloc, &[Handle::ROOT_RAM.0, 8, 0]);
    // Parents in two spaces, one of them by way of a range that stays; what is under it is paid
    // elsewhere.
    world.make(actor, Call::RangeMap, &[gone, 0, segment, 0, 8, OPEN]);
    world.make(actor, Call::RangeMap, &[kept, PAGE, segment, 0, 8, OPEN]);
    world.make(actor, Call::RangeNest, &[kept, 512 * PAGE, gone, OPEN]);
    world.make(actor, Call::RangeNest, &[Handle::SELF_RANGE.0, HEAP, gone, OPEN]);
    let both = range_of(actor, kept);
    for (space, at) in [(actor.domain.range(), 1u64 << 30), (other.domain.range(), 3 << 30)] {
        space.nest(&mut world.kernel, at, both, [OPEN; 2]).unwrap();
        for page in [1, 512] {
            assert!(space.resolve(&mut world.kernel, at + page * PAGE, Access::Write).is_ok());
        }
    }
    let parts = world.revoke(actor, ram, |_| ());
    assert!(parts < 5, "{parts} parts");
    assert_eq!(world.run(actor, Call::CapStat, &[gone]), Err(Error::BadHandle));
    assert_eq!(world.run(actor, Call::RamStat, &[ram]).unwrap()[1], 0);
    for (space, at) in [(actor.domain.range(), 1u64 << 30), (other.domain.range(), 3 << 30)] {
        assert!(view(space.root(), at + 512 * PAGE).is_none());
        assert!(space.resolve(&mut world.kernel, at + 512 * PAGE, Access::Read).is_err());
        assert!(view(space.root(), at + PAGE).is_some(), "what was paid elsewhere stays");
    }
    // The place is free again.
    world.make(actor, Call::RangeMap, &[kept, 512 * PAGE, segment, 0, 8, OPEN]);
    world.make(actor, Call::RangeMap, &[Handle::SELF_RANGE.0, HEAP, segment, 0, 8, OPEN]);
    world.leave_nothing(&[actor, other]);
}

#[test]
fn a_space_is_built_step_by_step_and_a_page_in_use_becomes_no_table() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let ram = world.make(actor, Call::RamSplit, &[Handle::ROOT_RAM.0, 100]);
    let space = Handle::SELF_RANGE.0;
    let page = |world: &mut World| world.run(actor, Call::SegmentAlloc, &[ram, 1, segment::CONTIGUOUS]).unwrap();
    // Ram to pages, pages to tables, tables into tables, a page into the last: each step is the
    // owner's.
    let tables = [1 << 27, 1 << 18, 512].map(|pages| {
        let [handle, frame, _] = page(&mut world);
        let used = world.run(actor, Call::RamStat, &[ram]).unwrap()[1];
        let [range, made, _] = world.run(actor, Call::RangeRetype, &[handle, pages, 0]).unwrap();
        assert_eq!(made, pages);
        assert_eq!(world.run(actor, Call::CapStat, &[handle]), Err(Error::BadHandle), "it is a page no more");
        assert_eq!(range_of(actor, range).top().frame.0, frame);
        let object = world.run(actor, Call::RamStat, &[ram]).unwrap()[1] - used;
        assert!(object <= 1, "the page is charged already");
        range
    });
    let [handle, frame, _] = page(&mut world);
    let [large, middle, small] = tables;
    world.make(actor, Call::RangeMap, &[small, 7 * PAGE, handle, 0, 1, OPEN]);
    world.make(actor, Call::RangeNest, &[middle, 5 << 21, small, OPEN]);
    world.make(actor, Call::RangeNest, &[large, 3 << 30, middle, OPEN]);
    let used = world.used();
    world.make(actor, Call::RangeNest, &[space, 2 << 39, large, OPEN]);
    let at = (2 << 39) + (3 << 30) + (5 << 21) + 7 * PAGE;
    let root = actor.domain.range().root();
    assert!(view(root, at).is_none(), "nothing is mapped before it is asked for");
    assert_eq!(world.make(actor, Call::RangeFill, &[small, 7 * PAGE, 1]), 1);
    assert_eq!(view(root, at).unwrap().address().0, frame);
    assert_eq!(world.used() - used, 0, "the kernel adds no table");
    assert_eq!(world.kernel.counters.soft_faults.0, 0);

    let retype = |world: &mut World, handle: u64| world.run(actor, Call::RangeRetype, &[handle, 512, 0]);
    assert_eq!(retype(&mut world, handle), Err(Error::Busy), "it is mapped");
    let [named, ..] = page(&mut world);
    let copy = world.make(actor, Call::CapCopy, &[named, u64::from(Rights::READ.0)]);
    assert_eq!(retype(&mut world, named), Err(Error::Busy), "it could be mapped by another name");
    assert_eq!(retype(&mut world, copy), Err(Error::NoRights));
    world.make(actor, Call::CapDrop, &[copy]);
    assert_eq!(world.run(actor, Call::RangeRetype, &[named, 0, 0]), Err(Error::BadArgument));
    assert_eq!(world.run(actor, Call::RangeRetype, &[named, 512, 2]), Err(Error::BadArgument));
    assert!(retype(&mut world, named).is_ok());
    let anonymous = world.make(actor, Call::SegmentAlloc, &[ram, 1, segment::EAGER]);
    let [pair, ..] = world.run(actor, Call::SegmentAlloc, &[ram, 2, segment::CONTIGUOUS]).unwrap();
    // Memory of another core's, which its kernel knows too.
    let (core, account) = (world.kernel.core(), world.ram);
    let pcore = world.kernel.create(account, |header| Pcore::own(header, core)).unwrap();
    let right = Capability { object: pcore.any(), badge: 0, rights: Rights::ALL };
    actor.domain.insert(Handle::PCORE.0 as usize, right);
    let foreign = world.make(actor, Call::SegmentImport, &[Handle::PCORE.0, ram, 0x10_0000, 1, 0]);
    for other in [anonymous, pair, foreign] {
        assert_eq!(retype(&mut world, other), Err(Error::BadArgument));
    }
    // All of it is the account's.
    world.revoke(actor, ram, |_| ());
    assert_eq!(world.run(actor, Call::RamStat, &[ram]).unwrap()[1], 0);
    assert!(view(root, at).is_none());
    world.leave_nothing(&[actor]);
}

#[test]
fn pages_are_shown_ahead_of_their_first_touch() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[Handle::ROOT_RAM.0, 300, 0]);
    let space = Handle::SELF_RANGE.0;
    world.make(actor, Call::RangeMap, &[space, HEAP, segment, 0, 300, OPEN]);
    assert_eq!(world.make(actor, Call::RangeFill, &[space, HEAP, 400]), 85, "a bounded part");
    for done in [85, 170] {
        assert_eq!(world.make(actor, Call::RangeFill, &[space, HEAP + done * PAGE, 400 - done]), 85);
    }
    assert_eq!(
        world.make(actor, Call::RangeFill, &[space, HEAP + 255 * PAGE, 145]),
        45,
        "as far as something is mapped"
    );
    assert_eq!(world.run(actor, Call::RangeFill, &[space, HEAP + 300 * PAGE, 1]), Err(Error::BadArgument));
    let root = actor.domain.range().root();
    let mapped = |page: u64| view(root, HEAP + page * PAGE).is_some_and(|entry| entry.flags().contains(Flags::WRITE));
    assert!((0..300).all(mapped));
    // A shared page is mapped, not copied.
    let copy = world.make(actor, Call::SegmentCopy, &[Handle::ROOT_RAM.0, segment, copy::ON_WRITE]);
    world.make(actor, Call::RangeMap, &[space, HEAP - (1 << 39), copy, 0, 300, OPEN]);
    let free = world.kernel.frames.free();
    world.make(actor, Call::RangeFill, &[space, HEAP - (1 << 39), 100]);
    assert!(free - world.kernel.frames.free() <= 3, "tables only");
    world.leave_nothing(&[actor]);
}

/// One fault shows all pages around that are there, and makes none.
#[test]
fn neighbours_that_are_there_are_shown_with_the_page_that_was_touched() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let (space, range) = (Handle::SELF_RANGE.0, actor.domain.range());
    let whole = world.make(actor, Call::SegmentAlloc, &[Handle::ROOT_RAM.0, 40, segment::EAGER]);
    let empty = world.make(actor, Call::SegmentAlloc, &[Handle::ROOT_RAM.0, 40, 0]);
    for (handle, at, around) in [(whole, HEAP, 16..32), (empty, HEAP + 64 * PAGE, 19..20)] {
        world.make(actor, Call::RangeMap, &[space, at, handle, 0, 40, OPEN]);
        range.resolve(&mut world.kernel, at + 19 * PAGE, Access::Read).unwrap();
        assert!((0..40).all(|page| view(range.root(), at + page * PAGE).is_some() == around.contains(&page)));
    }
    world.leave_nothing(&[actor]);
}

/// The processor remembers the loaded space only: that by page, and what may be anywhere in it as a
/// whole.
#[test]
fn translations_are_invalidated_where_there_may_be_some_and_nowhere_else() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let ram = Handle::ROOT_RAM.0;
    let space = Handle::SELF_RANGE.0;
    let segment = world.make(actor, Call::SegmentAlloc, &[ram, 4, segment::EAGER]);
    let [lone, nested] = [(); 2].map(|()| world.make(actor, Call::RangeAlloc, &[ram, 512, 0]));
    world.make(actor, Call::RangeNest, &[space, HEAP, nested, OPEN]);
    let other = world.actor(world.ram);
    let own = HEAP + (1 << 30);
    for (loaded, range, at, flushed) in [
        (other.domain.range(), space, own, vec![]),
        (other.domain.range(), lone, 0, vec![]),
        (other.domain.range(), nested, 0, vec![Flush::All]),
        (actor.domain.range(), space, own, vec![Flush::Page(own), Flush::Page(own + PAGE)]),
        (actor.domain.range(), lone, 0, vec![]),
        (actor.domain.range(), nested, 0, vec![Flush::All]),
    ] {
        world.kernel.loaded = Some(loaded);
        world.make(actor, Call::RangeMap, &[range, at, segment, 0, 2, OPEN]);
        world.make(actor, Call::RangeFill, &[range, at, 2]);
        take_flushes();
        world.make(actor, Call::RangeUnmap, &[range, at, 2]);
        assert_eq!(take_flushes(), flushed);
    }
    world.kernel.loaded = None;
    world.leave_nothing(&[actor, other]);
}

#[test]
fn code_becomes_writable_only_in_a_range_that_is_made_for_it() {
    const ALL: u64 = OPEN | protection::EXECUTE;
    let mut world = World::new(2000);
    let actor = world.outsider();
    let ram = Handle::ROOT_RAM.0;
    let segment = world.make(actor, Call::SegmentAlloc, &[ram, 4, 0]);
    for (flags, allowed) in [(0, Err(Error::BadArgument)), (1, Ok([0; 3]))] {
        let range = world.make(actor, Call::RangeAlloc, &[ram, 512, flags]);
        world.make(actor, Call::RangeMap, &[range, 0, segment, 0, 4, OPEN]);
        let protected = world.run(actor, Call::RangeProtect, &[range, 0, 4, ALL]);
        assert_eq!(protected.map(drop), allowed.map(drop));
        assert_eq!(entries(&mut world, actor, range)[0].protection, if allowed.is_ok() { ALL } else { OPEN });
    }
    world.leave_nothing(&[actor]);
}

/// Its mappings and tables go in later steps.
#[test]
fn nothing_is_mapped_in_the_space_of_one_who_has_just_died() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let ram = Handle::ROOT_RAM.0;
    let segment = world.make(actor, Call::SegmentAlloc, &[ram, 4, 0]);
    let [domain, ..] = world.run(actor, Call::DomainAlloc, &[ram, 0]).unwrap();
    let range = world.make(actor, Call::DomainRange, &[domain]);
    world.make(actor, Call::RangeMap, &[range, HEAP, segment, 0, 1, OPEN]);
    let dies = actor.domain.share().get(Handle(domain)).unwrap().object.cast().unwrap();
    world.kernel.kill(dies, Death::by_call(DeathCause::Killed, 0));
    let mapped = world.run(actor, Call::RangeMap, &[range, HEAP + PAGE, segment, 1, 1, OPEN]);
    assert_eq!(mapped, Err(Error::PeerDead));
    world.leave_nothing(&[actor]);
}
