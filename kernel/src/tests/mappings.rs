//! Mappings of one range as a program changes them: which of them become one again, what is left of
//! translations, rights to execute, and that long calls are made in few steps and checked before
//! anything is changed.

use super::World;
use super::revoke::Actor;
use super::steps::one_step;
use crate::arch::paging::{Flags, Leaves, leaves, view};
use crate::hardware::{self, Flush, take_flushes};
use crate::objects::fault::Access;
use crate::objects::mapping::VaRange;
use crate::objects::{Ptr, Range};
use abi::layout::{HEAP, USER_END, protection, segment as kinds};
use abi::{Call, Error, Handle, RangeEntry};

const RAM: u64 = Handle::ROOT_RAM.0;
const SPACE: u64 = Handle::SELF_RANGE.0;
const READ: u64 = protection::READ;
const OPEN: u64 = protection::READ | protection::WRITE;
const CODE: u64 = protection::READ | protection::EXECUTE;
const PAGE: u64 = 4096;
const TABLE: u64 = 512 * PAGE;

fn fixture(pages: u64) -> (World, Actor, u64) {
    let mut world = World::new(pages);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 400, 0]);
    (world, actor, segment)
}

fn map(world: &mut World, actor: Actor, page: u64, [segment, first, pages]: [u64; 3]) {
    let words = [SPACE, HEAP + page * PAGE, segment, first, pages, OPEN];
    world.run(actor, Call::RangeMap, &words).unwrap();
}

fn protect(world: &mut World, actor: Actor, page: u64, pages: u64, wanted: u64) -> Result<(), Error> {
    world.run(actor, Call::RangeProtect, &[SPACE, HEAP + page * PAGE, pages, wanted]).map(drop)
}

#[test]
fn a_place_is_whole_pages_inside_its_window() {
    let window = VaRange { start: 3 * PAGE, end: 5 * PAGE };
    assert_eq!(window.pages(), 2);
    for (start, pages) in [(3, 1), (3, 2), (4, 1)] {
        assert!(window.place(start * PAGE, pages).is_ok());
    }
    for (start, pages) in
        [(3 * PAGE, 0), (3 * PAGE, 3), (2 * PAGE, 1), (2 * PAGE, 2), (4 * PAGE, 2), (5 * PAGE, 1), (3 * PAGE + 1, 1)]
    {
        assert_eq!(window.place(start, pages).err(), Some(Error::BadArgument), "{pages} at {start}");
    }
    assert!([u64::MAX, 1 << 52].into_iter().all(|pages| window.place(3 * PAGE, pages).is_err()));
}

/// From [`HEAP`] on: first page, pages and protection of each mapping.
fn mappings(world: &mut World, actor: Actor) -> Vec<[u64; 3]> {
    let mut found = Vec::new();
    let mut next = HEAP;
    while let Ok(words) = world.run(actor, Call::RangeGet, &[SPACE, next]) {
        let entry = RangeEntry::from_words(words);
        next = entry.start + entry.pages * PAGE;
        found.push([(entry.start - HEAP) / PAGE, entry.pages, entry.protection]);
    }
    found
}

/// Protecting back and forth leaves no trace, at either end, and joins nothing that does not go on.
#[test]
fn what_continues_a_mapping_becomes_one_with_it_again_and_nothing_else() {
    let (mut world, actor, segment) = fixture(1000);
    let other = world.make(actor, Call::SegmentAlloc, &[RAM, 400, 0]);
    map(&mut world, actor, 0, [segment, 3, 12]);
    for (page, pages) in [(0, 4), (4, 4), (8, 4), (0, 12), (11, 1)] {
        protect(&mut world, actor, page, pages, READ).unwrap();
        let parts = mappings(&mut world, actor);
        assert!(parts.contains(&[page, pages, READ]), "{parts:?}");
        protect(&mut world, actor, page, pages, OPEN).unwrap();
        assert_eq!(mappings(&mut world, actor), [[0, 12, OPEN]], "{pages} pages from {page} on");
    }
    // Both neighbours are read-only already.
    protect(&mut world, actor, 0, 4, READ).unwrap();
    protect(&mut world, actor, 8, 4, READ).unwrap();
    assert_eq!(mappings(&mut world, actor), [[0, 4, READ], [4, 4, OPEN], [8, 4, READ]]);
    protect(&mut world, actor, 4, 4, READ).unwrap();
    assert_eq!(mappings(&mut world, actor), [[0, 12, READ]]);
    // Another segment whose pages would continue these, and pages of the same that do not.
    map(&mut world, actor, 12, [other, 15, 4]);
    map(&mut world, actor, 16, [other, 20, 4]);
    map(&mut world, actor, 20, [other, 24, 4]);
    protect(&mut world, actor, 0, 24, OPEN).unwrap();
    protect(&mut world, actor, 12, 4, READ).unwrap();
    protect(&mut world, actor, 12, 4, OPEN).unwrap();
    protect(&mut world, actor, 16, 8, READ).unwrap();
    protect(&mut world, actor, 16, 8, OPEN).unwrap();
    assert_eq!(mappings(&mut world, actor), [[0, 12, OPEN], [12, 4, OPEN], [16, 8, OPEN]]);
    // Each shows what it did.
    let range = actor.domain.range();
    for (page, of) in [(12, other), (16, other), (11, segment)] {
        let mapping = range.at(HEAP + page * PAGE).unwrap();
        assert_eq!(mapping.segment(), actor.domain.share().get(Handle(of)).unwrap().object.cast().ok(), "{page}");
    }
    world.leave_nothing(&[actor]);
}

/// Loads the space, so that the processor may have translations of it.
fn load(world: &mut World, range: Ptr<Range>) {
    hardware::load_root(range.root());
    world.kernel.loaded = Some(range);
    take_flushes();
}

/// Translations of few pages go one by one, of many all at once, and of a space that is not loaded
/// none.
#[test]
fn translations_go_with_the_right_and_no_others_do() {
    let (mut world, actor, segment) = fixture(2000);
    map(&mut world, actor, 0, [segment, 0, 100]);
    let fill = |world: &mut World| {
        for page in 0..100 {
            actor.domain.range().resolve(&mut world.kernel, HEAP + page * PAGE, Access::Write).unwrap();
        }
        take_flushes();
    };
    fill(&mut world);
    protect(&mut world, actor, 0, 100, READ).unwrap();
    assert_eq!(take_flushes(), [], "no processor has any");
    protect(&mut world, actor, 0, 100, OPEN).unwrap();
    load(&mut world, actor.domain.range());
    let pages = |first: u64, count: u64| -> Vec<Flush> {
        (first..first + count).map(|page| Flush::Page(HEAP + page * PAGE)).collect()
    };
    for (first, count) in [(0, 1), (5, 31), (40, 32)] {
        fill(&mut world);
        protect(&mut world, actor, first, count, READ).unwrap();
        assert_eq!(take_flushes(), pages(first, count));
        protect(&mut world, actor, first, count, READ).unwrap();
        protect(&mut world, actor, first, count, OPEN).unwrap();
        assert_eq!(take_flushes(), [], "more rights come by faults");
    }
    fill(&mut world);
    protect(&mut world, actor, 0, 33, READ).unwrap();
    assert_eq!(take_flushes(), [Flush::All]);
    protect(&mut world, actor, 0, 33, OPEN).unwrap();
    fill(&mut world);
    assert_eq!(world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 2]), 2);
    assert_eq!(take_flushes(), pages(0, 2));
}

#[test]
fn translations_of_a_nested_range_go_with_the_link_to_it() {
    let (mut world, actor, segment) = fixture(2000);
    let nested = world.make(actor, Call::RangeAlloc, &[RAM, 512]);
    world.run(actor, Call::RangeMap, &[nested, 0, segment, 0, 10, OPEN]).unwrap();
    let link = |world: &mut World| world.run(actor, Call::RangeNest, &[SPACE, HEAP, nested, OPEN]).map(drop);
    link(&mut world).unwrap();
    let touch = |world: &mut World| {
        actor.domain.range().resolve(&mut world.kernel, HEAP, Access::Write).unwrap();
        take_flushes();
    };
    touch(&mut world);
    protect(&mut world, actor, 0, 512, READ).unwrap();
    assert_eq!(take_flushes(), [], "no processor has any");
    protect(&mut world, actor, 0, 512, OPEN).unwrap();
    load(&mut world, actor.domain.range());
    touch(&mut world);
    // As it was, less, nothing, and from nothing to something.
    for (wanted, expected) in
        [(OPEN, vec![]), (READ, vec![Flush::All]), (READ, vec![]), (protection::NONE, vec![Flush::All]), (OPEN, vec![])]
    {
        protect(&mut world, actor, 0, 512, wanted).unwrap();
        assert_eq!(take_flushes(), expected, "{wanted}");
    }
    touch(&mut world);
    // What changes in the range may be known at any address.
    let words = [nested, 0, 1, READ];
    world.run(actor, Call::RangeProtect, &words).unwrap();
    assert_eq!(take_flushes(), [Flush::All]);
    world.run(actor, Call::RangeProtect, &words).unwrap();
    assert_eq!(take_flushes(), [], "nothing changed");
    assert_eq!(world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 512]), 512);
    assert_eq!(take_flushes(), [Flush::All]);
}

#[test]
fn only_what_was_made_to_be_executed_is() {
    let (mut world, actor, segment) = fixture(1000);
    map(&mut world, actor, 0, [segment, 0, 4]);
    let root = actor.domain.range().root();
    let is_code = |world: &mut World, page: u64| {
        let address = HEAP + page * PAGE;
        actor.domain.range().resolve(&mut world.kernel, address, Access::Read).unwrap();
        !view(root, address).unwrap().flags().contains(Flags::NO_EXECUTE)
    };
    assert!(!is_code(&mut world, 0) && !is_code(&mut world, 1));
    protect(&mut world, actor, 0, 2, CODE).unwrap();
    assert!(is_code(&mut world, 0) && !is_code(&mut world, 2));
    // What was executed before the right went is not any more.
    protect(&mut world, actor, 0, 1, READ).unwrap();
    assert!(view(root, HEAP).unwrap().flags().contains(Flags::NO_EXECUTE));
    assert!(!is_code(&mut world, 0) && is_code(&mut world, 1));
    for wrong in [protection::WRITE, protection::EXECUTE, OPEN | CODE, 8, READ | 8, READ | 1 << 63] {
        assert_eq!(protect(&mut world, actor, 0, 4, wrong), Err(Error::BadArgument), "{wrong:#x}");
        let words = [SPACE, HEAP + 100 * PAGE, segment, 0, 1, wrong];
        assert_eq!(world.run(actor, Call::RangeMap, &words), Err(Error::BadArgument), "{wrong:#x}");
    }
    protect(&mut world, actor, 0, 4, protection::NONE).unwrap();
    assert!(view(root, HEAP).is_none());
    assert!(actor.domain.range().resolve(&mut world.kernel, HEAP, Access::Read).is_err());
    world.leave_nothing(&[actor]);
}

/// Makes a call to its end; gives its steps and first result.
fn in_steps(world: &mut World, actor: Actor, call: Call, words: [u64; 6]) -> (usize, u64) {
    let mut words = words;
    for step in 1..2000 {
        hardware::take_work();
        let goes_on = one_step(world, actor, call, words);
        assert!(hardware::take_work() <= super::revoke::STEP_WORK_MAX);
        words = actor.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
        if !goes_on {
            assert_eq!(actor.context.with_registers(|r| r.rax), 0);
            return (step, words[0]);
        }
    }
    panic!("no end of it");
}

#[test]
fn many_mappings_and_long_ones_are_taken_out_in_few_bounded_steps() {
    let (mut world, actor, segment) = fixture(3000);
    // Two pages each, so that no two are one.
    for number in 0..500 {
        map(&mut world, actor, 2 * number, [segment, number % 7 * 3, 1]);
    }
    let (steps, pages) = in_steps(&mut world, actor, Call::RangeUnmap, [SPACE, HEAP, 1000, 0, 0, 0]);
    assert_eq!(pages, 500);
    assert!((4..=5).contains(&steps), "{steps} steps of 128 mappings each");
    // One mapping of a hundred tables.
    let long = world.make(actor, Call::SegmentAlloc, &[RAM, 100 * 512, 0]);
    map(&mut world, actor, 0, [long, 0, 100 * 512]);
    for table in 0..100 {
        world.make(actor, Call::RangeFill, &[SPACE, HEAP + table * TABLE, 1]);
    }
    let (steps, pages) = in_steps(&mut world, actor, Call::RangeUnmap, [SPACE, HEAP, 100 * 512, 0, 0, 0]);
    assert_eq!(pages, 100 * 512);
    assert!((4..=5).contains(&steps), "{steps} steps of 26 tables each");
    assert!(mappings(&mut world, actor).is_empty());
    world.leave_nothing(&[actor]);
}

/// However many steps the check of all pages takes.
#[test]
fn a_page_that_may_not_be_protected_so_is_found_before_any_is_changed() {
    const MAPPINGS: u64 = 400;
    let (mut world, actor, segment) = fixture(2000);
    for number in 0..MAPPINGS {
        map(&mut world, actor, number, [segment, number % 7 * 3, 1]);
    }
    let before = mappings(&mut world, actor);
    assert_eq!(before.len() as u64, MAPPINGS);
    // The page after the last is not mapped; or is by a capability that allows less.
    assert_eq!(protect(&mut world, actor, 0, MAPPINGS + 1, READ), Err(Error::BadArgument));
    let readable = world.make(actor, Call::CapCopy, &[segment, u64::from(abi::Rights::READ.0)]);
    let words = [SPACE, HEAP + MAPPINGS * PAGE, readable, 0, 1, READ];
    world.run(actor, Call::RangeMap, &words).unwrap();
    assert_eq!(protect(&mut world, actor, 0, MAPPINGS + 1, OPEN), Err(Error::NoRights));
    assert_eq!(mappings(&mut world, actor)[..MAPPINGS as usize], before);
    let (steps, _) = in_steps(&mut world, actor, Call::RangeProtect, [SPACE, HEAP, MAPPINGS + 1, READ, 0, 0]);
    assert!(mappings(&mut world, actor).iter().all(|[.., protection]| *protection == READ));
    assert!((8..=20).contains(&steps), "{steps} steps");
    world.leave_nothing(&[actor]);
}

/// The words that say how far a call is are its caller's.
#[test]
fn a_count_of_pages_that_were_unmapped_before_is_believed_as_far_as_there_are_pages() {
    const ALL: u64 = USER_END / PAGE;
    let (mut world, actor, segment) = fixture(1000);
    for (before, expected) in [(0, Ok(1)), (7, Ok(8)), (ALL, Ok(ALL + 1)), (ALL + 1, Err(Error::BadArgument))] {
        map(&mut world, actor, 0, [segment, 0, 1]);
        let unmapped = world.run(actor, Call::RangeUnmap, &[SPACE, HEAP, 1, before]).map(|[pages, ..]| pages);
        assert_eq!(unmapped, expected);
        assert_eq!(mappings(&mut world, actor).len(), usize::from(expected.is_err()), "what is refused does nothing");
    }
}

/// A large page is given up for small ones, and for a nested range; tables that were in its place
/// go back.
#[test]
fn a_table_gives_way_to_a_large_page_and_to_a_nested_range() {
    let (mut world, actor, segment) = fixture(3000);
    let small = world.make(actor, Call::SegmentAlloc, &[RAM, 4, kinds::EAGER]);
    let nested = world.make(actor, Call::RangeAlloc, &[RAM, 512]);
    world.run(actor, Call::RangeMap, &[nested, 0, small, 0, 4, OPEN]).unwrap();
    let [large, base, _] = world.run(actor, Call::SegmentAlloc, &[RAM, 512, kinds::CONTIGUOUS]).unwrap();
    let range = actor.domain.range();
    let root = range.root();
    let mut used = None;
    for round in 0..3 {
        // Small pages, of which a table stays.
        map(&mut world, actor, 0, [segment, 0, 8]);
        range.resolve(&mut world.kernel, HEAP, Access::Write).unwrap();
        world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 8]);
        // A large one, if its run happens to lie so.
        map(&mut world, actor, 0, [large, 0, 512]);
        let frame = range.resolve(&mut world.kernel, HEAP + 5 * PAGE, Access::Write).unwrap();
        assert_eq!(frame.0, base + 5 * PAGE);
        world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 512]);
        assert!(view(root, HEAP).is_none());
        world.run(actor, Call::RangeNest, &[SPACE, HEAP, nested, OPEN]).unwrap();
        range.resolve(&mut world.kernel, HEAP + PAGE, Access::Write).unwrap();
        assert!(view(root, HEAP + PAGE).is_some());
        world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 512]);
        assert!(view(root, HEAP + PAGE).is_none());
        let now = world.used();
        assert_eq!(*used.get_or_insert(now), now, "round {round}");
    }
    world.leave_nothing(&[actor]);
}

/// Processors keep no translations of what was not there.
#[test]
fn a_large_page_that_appears_is_no_reason_to_flush() {
    let (mut world, actor, _) = fixture(2000);
    let range = actor.domain.range();
    let [large, base, _] = world.run(actor, Call::SegmentAlloc, &[RAM, 512, kinds::CONTIGUOUS]).unwrap();
    assert!(base.is_multiple_of(TABLE));
    load(&mut world, range);
    map(&mut world, actor, 0, [large, 0, 512]);
    range.resolve(&mut world.kernel, HEAP + 5 * PAGE, Access::Write).unwrap();
    assert!(matches!(leaves(range.top(), HEAP, 1), Leaves::Large(_)));
    assert_eq!(take_flushes(), []);
    // A table that was there goes, and what it was known by.
    world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 512]);
    let small = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
    map(&mut world, actor, 0, [small, 0, 1]);
    range.resolve(&mut world.kernel, HEAP, Access::Write).unwrap();
    world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 1]);
    map(&mut world, actor, 0, [large, 0, 512]);
    take_flushes();
    range.resolve(&mut world.kernel, HEAP, Access::Write).unwrap();
    assert!(take_flushes().contains(&Flush::All));
}
