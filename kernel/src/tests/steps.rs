//! Calls of several steps: each is bounded, and all of them together do what one would.

use super::revoke::{Actor, STEP_WORK_MAX};
use super::segment_calls::{read, write};
use super::{Random, World};
use crate::arch::paging;
use crate::calls;
use crate::hardware;
use crate::memory::PhysRange;
use crate::objects::fault::Access;
use crate::objects::mapping::{PAGE, PageRun};
use crate::objects::share::Capability;
use crate::objects::{Domain, Ptr, Range, Segment, Slot};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::layout::{HEAP, copy, protection, segment as kinds};
use abi::{Call, Error, Handle, Rights};

const RAM: u64 = Handle::ROOT_RAM.0;
const SPACE: u64 = Handle::SELF_RANGE.0;
const OPEN: u64 = protection::READ | protection::WRITE;
/// Of large segments: the fake RAM has room for two.
const PAGES: u64 = 30_000;
/// As many mappings as a range may have, but for the control page and one that a split needs.
const MAPPINGS: u64 = crate::objects::space::MAPPINGS_MAX - 2;

/// Unmaps by steps of few units; gives the pages.
pub(super) fn unmap_in_steps(
    kernel: &mut Kernel,
    range: Ptr<Range>,
    place: PageRun,
    random: &mut Random,
) -> Result<u64, Error> {
    let (mut all, mut start) = (0, place.start);
    loop {
        let rest = PageRun { start, pages: (place.end() - start) / PAGE };
        let (pages, reached) = range.unmap(kernel, rest, &mut Budget::new(1 + random.below(20) as u32))?;
        (all, start) = (all + pages, reached);
        if reached == place.end() {
            return Ok(all);
        }
    }
}

/// Protects by steps of few units, after a look at all of it.
pub(super) fn protect_in_steps(
    kernel: &mut Kernel,
    range: Ptr<Range>,
    place: PageRun,
    wanted: u64,
    random: &mut Random,
) -> Result<(), Error> {
    let mut few = || Budget::new(1 + random.below(20) as u32);
    let mut start = place.start;
    while start < place.end() {
        start = range.check_cover(kernel, place, wanted, start, &mut few())?;
    }
    start = place.start;
    while start < place.end() {
        let rest = PageRun { start, pages: (place.end() - start) / PAGE };
        start = range.protect(kernel, rest, wanted, &mut few())?;
    }
    Ok(())
}

/// Forks by steps of few units.
pub(super) fn fork_in_steps(kernel: &mut Kernel, parent: Ptr<Domain>, child: Ptr<Domain>, random: &mut Random) {
    let (partial, mut done) = (Slot::new(), [0; 2]);
    let mut few = || Budget::new(1 + random.below(20) as u32);
    while !parent.fork_into(kernel, child, &partial, &mut done, &mut few()).unwrap() {}
}

/// `World::run` asserts that no step of any call does more than `STEP_WORK_MAX`.
#[test]
fn segments_are_made_copied_and_dropped_in_bounded_steps() {
    let mut world = World::new(2 * PAGES + 2000);
    let actor = world.outsider();
    let used = world.used();
    for kind in [kinds::EAGER, kinds::CONTIGUOUS] {
        let source = world.make(actor, Call::SegmentAlloc, &[RAM, PAGES, kind]);
        assert_eq!(world.run(actor, Call::SegmentStat, &[source]).unwrap()[1], PAGES, "it has all its pages");
        let copied = world.make(actor, Call::SegmentCopy, &[RAM, source, copy::PLAIN]);
        world.make(actor, Call::RangeMap, &[SPACE, HEAP, source, 0, PAGES, OPEN]);
        let mut filled = 0;
        while filled < PAGES {
            filled += world.make(actor, Call::RangeFill, &[SPACE, HEAP + filled * PAGE, PAGES - filled]);
        }
        for wanted in [protection::READ, OPEN, 0, OPEN] {
            world.make(actor, Call::RangeProtect, &[SPACE, HEAP + PAGE, PAGES - 2, wanted]);
        }
        if kind == kinds::EAGER {
            world.make(actor, Call::SegmentSetPages, &[source, 0, 1, PAGES - 2]);
            assert_eq!(world.run(actor, Call::SegmentStat, &[source]).unwrap()[1], 2, "two were kept");
        }
        assert_eq!(world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, PAGES]), PAGES);
        assert!(paging::view(actor.domain.range().root(), HEAP + (PAGES - 1) * PAGE).is_none());
        for segment in [source, copied] {
            world.run(actor, Call::CapDrop, &[segment]).unwrap();
        }
        assert!(world.used() - used < 70, "only tables are left");
    }
}

#[test]
fn mappings_are_protected_and_taken_out_in_bounded_steps() {
    let mut world = World::new(8000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, kinds::EAGER]);
    for page in 0..MAPPINGS {
        world.run(actor, Call::RangeMap, &[SPACE, HEAP + page * PAGE, segment, 0, 1, OPEN]).unwrap();
    }
    let all = [SPACE, HEAP, MAPPINGS, protection::READ];
    world.run(actor, Call::RangeProtect, &all).unwrap();
    // Refused for its last page: nothing of it has changed, in however many steps that was found.
    let one_more = [SPACE, HEAP, MAPPINGS + 1, OPEN];
    assert_eq!(world.run(actor, Call::RangeProtect, &one_more), Err(Error::BadArgument));
    let range = actor.domain.range();
    assert!((0..MAPPINGS).all(|page| range.at(HEAP + page * PAGE).unwrap().protection() == protection::READ));
    assert_eq!(world.make(actor, Call::RangeUnmap, &all[..3]), MAPPINGS);
    assert_eq!(range.count(), 1, "the control page is left");
}

/// Runs of pages leave and come back by words of their map. Memory of a test is no core's, so what
/// `RamAdd` does stands for the call.
#[test]
fn memory_moves_between_cores_in_bounded_steps() {
    let mut world = World::new(PAGES + 2000);
    let actor = world.outsider();
    let free = world.kernel.frames.free();
    let base = world.make(actor, Call::RamCarve, &[RAM, PAGES]);
    assert_eq!(world.kernel.frames.free(), free - PAGES);
    let mut add = |first: u64, pages: u64| {
        hardware::take_work();
        let is_there = world.kernel.frames.add(PhysRange::new(base + first * PAGE, pages * PAGE)).is_ok();
        assert!(hardware::take_work() <= STEP_WORK_MAX);
        is_there
    };
    assert!(!add(0, PAGES + 1));
    for (first, pages) in [(3, PAGES - 5), (0, 3), (PAGES - 2, 2)] {
        assert!(add(first, pages) && !add(first, pages));
    }
    assert_eq!(world.kernel.frames.free(), free);
}

#[test]
fn a_pool_is_cleared_in_bounded_steps() {
    let mut world = World::new(PAGES + 2000);
    let actor = world.outsider();
    let used = world.used();
    let share = world.make(actor, Call::ShareAlloc, &[0, RAM, PAGES, 0, 0, 0]);
    assert!(world.used() - used >= PAGES);
    assert_eq!(world.run(actor, Call::ShareAlloc, &[0, RAM, PAGES, 0, 0, 0]), Err(Error::NoMemory));
    world.run(actor, Call::ShareStat, &[share]).unwrap();
}

/// One step of a call, as it is left when its maker goes on with something else.
pub(super) fn one_step(world: &mut World, actor: Actor, call: Call, words: [u64; 6]) -> bool {
    actor.context.with_registers(|r| {
        r.rip = 0x1002;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
    });
    calls::enter(&mut world.kernel, actor.context, call);
    actor.context.with_registers(|r| r.rip == 0x1000)
}

#[test]
fn a_call_given_up_leaves_nothing_that_stays() {
    let mut world = World::new(6000);
    let actor = world.outsider();
    let used = world.used();
    for kind in [kinds::EAGER, kinds::CONTIGUOUS] {
        assert!(one_step(&mut world, actor, Call::SegmentAlloc, [RAM, 3000, kind, 0, 0, 0]));
        // Another of any kind begins by giving back what was left; and has nothing of it.
        let made = world.make(actor, Call::SegmentAlloc, &[RAM, 4000, kind]);
        world.run(actor, Call::CapDrop, &[made]).unwrap();
        // Stages that nobody came to are refused.
        for stage in [1, 3, u64::MAX >> 32] {
            assert_eq!(world.run(actor, Call::SegmentAlloc, &[RAM, 8, kind, stage << 32]), Err(Error::BadArgument));
        }
        // There is no memory for it: what was made goes back before that is said.
        assert_eq!(world.run(actor, Call::SegmentAlloc, &[RAM, 7000, kind]), Err(Error::NoMemory));
        assert_eq!(world.used(), used);
    }
    let source = world.make(actor, Call::SegmentAlloc, &[RAM, 2000, kinds::EAGER]);
    assert!(one_step(&mut world, actor, Call::SegmentCopy, [RAM, source, copy::PLAIN, 0, 0, 0]));
    // A copy cannot become an eager segment, of whatever size, nor one of a run, and not the copy
    // of something else: of pages that its source lacks it would have none.
    for (pages, kind) in [(8, kinds::EAGER), (2000, kinds::CONTIGUOUS), (2000, kinds::EAGER | kinds::COMMON)] {
        let words = [RAM, pages, kind, 1 << 32];
        assert_eq!(world.run(actor, Call::SegmentAlloc, &words), Err(Error::BadArgument));
    }
    let other = world.make(actor, Call::SegmentAlloc, &[RAM, 2000, 0]);
    let words = [RAM, other, copy::PLAIN, 1 << 32];
    assert_eq!(world.run(actor, Call::SegmentCopy, &words), Err(Error::BadArgument));
    world.run(actor, Call::CapDrop, &[other]).unwrap();
    // Its maker's end takes it along.
    world.run(actor, Call::CapDrop, &[source]).unwrap();
    world.kernel.end_context(actor.context);
    world.kernel.drain_all();
    assert!(world.used() <= used);
}

#[test]
fn a_segment_becomes_shorter_in_bounded_steps() {
    let mut world = World::new(PAGES + 2000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, PAGES, kinds::EAGER]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, PAGES, OPEN]);
    let mut filled = 0;
    while filled < PAGES {
        filled += world.make(actor, Call::RangeFill, &[SPACE, HEAP + filled * PAGE, PAGES - filled]);
    }
    assert!(one_step(&mut world, actor, Call::SegmentSetPages, [segment, 5, 0, 0, 0, 0]));
    let [pages, present, _] = world.run(actor, Call::SegmentStat, &[segment]).unwrap();
    assert!(5 < pages && pages < PAGES && present == pages, "a part of its end is gone");
    let root = actor.domain.range().root();
    let is_seen = |page: u64| paging::view(root, HEAP + page * PAGE).is_some();
    assert!(is_seen(pages - 1) && !is_seen(pages));
    world.run(actor, Call::SegmentSetPages, &[segment, 5]).unwrap();
    assert_eq!(world.run(actor, Call::SegmentStat, &[segment]).unwrap()[..2], [5, 5]);
    assert!(is_seen(4) && (5..PAGES).all(|page| !is_seen(page)));
    // What has no pages is as short at once as it is to be.
    world.run(actor, Call::SegmentSetPages, &[segment, 0, 0, 5]).unwrap();
    world.run(actor, Call::SegmentSetPages, &[segment, 200_000]).unwrap();
    assert!(!one_step(&mut world, actor, Call::SegmentSetPages, [segment, 1, 0, 0, 0, 0]));
    assert_eq!(world.run(actor, Call::SegmentStat, &[segment]).unwrap()[..2], [1, 0]);
}

/// No page is shared that can still be written, after any step; and all are, as they were, at the
/// end.
#[test]
fn pages_are_shared_until_written_in_bounded_steps() {
    for mode in [copy::ON_WRITE, copy::ON_REFERENCE] {
        let mut world = World::new(PAGES + 2000);
        let actor = world.outsider();
        let source = world.make(actor, Call::SegmentAlloc, &[RAM, PAGES, kinds::EAGER]);
        world.make(actor, Call::RangeMap, &[SPACE, HEAP, source, 0, PAGES, OPEN]);
        let mut filled = 0;
        while filled < PAGES {
            filled += world.make(actor, Call::RangeFill, &[SPACE, HEAP + filled * PAGE, PAGES - filled]);
        }
        let range = actor.domain.range();
        let shared = |world: &mut World, page: u64| {
            let entry = paging::view(range.root(), HEAP + page * PAGE).unwrap();
            let is_shared = world.kernel.frames.count(entry.address()) > 1;
            assert!(!is_shared || !entry.flags().contains(paging::Flags::WRITE), "page {page} can be written");
            is_shared
        };
        let (mut words, mut steps) = ([RAM, source, mode, 0, 0, 0], 1);
        while one_step(&mut world, actor, Call::SegmentCopy, words) {
            words = actor.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
            assert!(shared(&mut world, 0) && !shared(&mut world, PAGES - 1), "a beginning is");
            steps += 1;
        }
        assert!(steps > 20, "{steps} steps");
        assert!((0..PAGES).all(|page| shared(&mut world, page)));
        let made = actor.context.with_registers(|r| r.rdi);
        assert_eq!(world.run(actor, Call::SegmentStat, &[made]).unwrap()[1], PAGES);
        // The same by whole calls, each step of which is measured; and one without memory.
        let again = world.make(actor, Call::SegmentCopy, &[RAM, source, mode]);
        let few = world.make(actor, Call::RamSplit, &[RAM, 1000, 0]);
        let used = world.ram.used();
        assert_eq!(world.run(actor, Call::SegmentCopy, &[few, source, mode]), Err(Error::NoMemory));
        assert_eq!(world.ram.used(), used);
        for segment in [again, made] {
            world.run(actor, Call::CapDrop, &[segment]).unwrap();
        }
        assert!((0..PAGES).all(|page| !shared(&mut world, page)));
    }
}

/// What `DomainFork` says of a refusal: the child keeps what it got until then, the parent has all
/// it had, and nothing is lost when the child ends.
#[test]
fn a_refused_fork_leaves_the_parent_whole_and_the_child_to_be_killed() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let mut inherited = [0; 2];
    for (number, handle) in (0..).zip(&mut inherited) {
        let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 8, kinds::EAGER]);
        let rights = Rights::ALL.union(Rights::INHERIT);
        *handle = world.make(actor, Call::CapCopy, &[segment, u64::from(rights.0)]);
        world.make(actor, Call::RangeMap, &[SPACE, HEAP + number * 8 * PAGE, *handle, 0, 8, OPEN]);
    }
    let range = actor.domain.range();
    let frames = |world: &mut World| {
        (0..16).map(|page| range.resolve(&mut world.kernel, HEAP + page * PAGE, Access::Write).ok()).collect::<Vec<_>>()
    };
    let before = frames(&mut world);
    for busy in [true, false] {
        let used = world.used();
        let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
        let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
        if busy {
            child.ensure_slot(&mut world.kernel, inherited[1] as usize).unwrap();
            let ram = world.ram;
            world.kernel.retain(ram);
            child.insert(inherited[1] as usize, Capability { object: ram.any(), badge: 0, rights: Rights(0) });
        }
        let forked = world.run(actor, Call::DomainFork, &[handle]);
        assert_eq!(forked.err(), busy.then_some(Error::Busy));
        let got = inherited.map(|slot| child.share().find::<Segment>(Handle(slot), Rights::READ).is_ok());
        assert_eq!(got, [true, !busy], "slots in order");
        assert_eq!(child.range().at(HEAP).is_some(), !busy, "mappings come after all slots");
        assert_eq!(range.at(HEAP).unwrap().pages(), 8);
        world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
        world.run(actor, Call::CapDrop, &[handle]).unwrap();
        assert_eq!(world.used(), used);
        assert_eq!(frames(&mut world), before, "its pages are its own again");
    }
    world.leave_nothing(&[actor]);
}

/// A program of many pages and mappings; what is written between two steps is the writer's own if
/// its page was shared already, and both have it else.
#[test]
fn a_large_fork_is_made_in_bounded_steps() {
    const SMALL: u64 = 300;
    let mut world = World::new(PAGES + 4000);
    let actor = world.outsider();
    let inherit = u64::from(Rights::ALL.union(Rights::INHERIT).0);
    let inherited = |world: &mut World, pages, kind| {
        let segment = world.make(actor, Call::SegmentAlloc, &[RAM, pages, kind]);
        let handle = world.make(actor, Call::CapCopy, &[segment, inherit]);
        world.run(actor, Call::CapDrop, &[segment]).unwrap();
        handle
    };
    let large = inherited(&mut world, PAGES, kinds::EAGER);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, large, 0, PAGES, OPEN]);
    let small = inherited(&mut world, SMALL, kinds::CONTIGUOUS);
    let common = inherited(&mut world, SMALL, kinds::EAGER | kinds::COMMON);
    for page in 0..SMALL {
        let at = HEAP + (PAGES + 2 * page) * PAGE;
        world.make(actor, Call::RangeMap, &[SPACE, at, small, page, 1, OPEN]);
        world.make(actor, Call::RangeMap, &[SPACE, at + PAGE, common, page, 1, OPEN]);
    }
    let seen = [0, PAGES - 1, PAGES, PAGES + 1];
    for page in seen {
        let frame = actor.domain.range().resolve(&mut world.kernel, HEAP + page * PAGE, Access::Write).unwrap();
        write(frame, page as u8 + 1);
    }
    let used = world.used();
    let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
    let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
    let (mut words, mut steps) = ([handle, 0, 0, 0, 0, 0], 1);
    while one_step(&mut world, actor, Call::DomainFork, words) {
        words = actor.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
        let held = |slot: u64| child.share().find::<Segment>(Handle(slot), Rights(0)).is_ok();
        assert!(!held(common) || held(small) && held(large), "slots in order");
        assert!(child.range().at(HEAP).is_none() || held(common), "mappings after all slots");
        steps += 1;
    }
    assert!(steps > 30, "{steps} steps");
    let (own, its) = (actor.domain.range(), child.range());
    let frame = |world: &mut World, range: Ptr<Range>, page: u64, access| {
        range.resolve(&mut world.kernel, HEAP + page * PAGE, access).unwrap()
    };
    for (page, is_same) in seen.into_iter().zip([true, true, false, true]) {
        let [parents, childs] = [own, its].map(|range| frame(&mut world, range, page, Access::Read));
        assert_eq!(parents == childs, is_same, "page {page}");
        assert_eq!(read(childs), page as u8 + 1, "page {page}");
        let [parents, childs] = [own, its].map(|range| frame(&mut world, range, page, Access::Write));
        assert_eq!(parents == childs, page > PAGES, "page {page}");
    }
    assert_eq!(its.count(), 1 + 2 * SMALL);
    world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
    world.run(actor, Call::CapDrop, &[handle]).unwrap();
    assert_eq!(world.used(), used);
    world.leave_nothing(&[actor]);
}

/// The copy that a fork is at is no other call's to go on with: its pages may be those of others,
/// and a copy's maker may write them.
#[test]
fn no_other_call_goes_on_with_the_copy_of_a_fork() {
    let mut world = World::new(20_000);
    let actor = world.outsider();
    let common = world.make(actor, Call::SegmentAlloc, &[RAM, 8000, kinds::EAGER | kinds::COMMON]);
    world.make(actor, Call::CapCopy, &[common, u64::from(Rights::READ.union(Rights::INHERIT).0)]);
    let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
    assert!(one_step(&mut world, actor, Call::DomainFork, [handle, 0, 0, 0, 0, 0]));
    let forged = [RAM, common, copy::PLAIN, 1 << 32];
    assert_eq!(world.run(actor, Call::SegmentCopy, &forged), Err(Error::BadArgument));
    // One that begins takes its place, and the fork begins its copy again.
    let words = actor.context.with_registers(|r| [r.rsi, r.rdx]);
    world.make(actor, Call::SegmentCopy, &[RAM, common, copy::PLAIN]);
    world.run(actor, Call::DomainFork, &[handle, words[0], words[1]]).unwrap();
    world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
    world.leave_nothing(&[actor]);
}

/// A copy that was begun before is of what was there then: a fork does not go on with it.
#[test]
fn a_fork_goes_on_with_the_copy_of_no_other_call() {
    let mut world = World::new(6000);
    let actor = world.outsider();
    let source = world.make(actor, Call::SegmentAlloc, &[RAM, 1000, kinds::EAGER]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, source, 0, 1, OPEN]);
    world.make(actor, Call::CapCopy, &[source, u64::from(Rights::ALL.union(Rights::INHERIT).0)]);
    assert!(one_step(&mut world, actor, Call::SegmentCopy, [RAM, source, copy::PLAIN, 0, 0, 0]));
    let frame = actor.domain.range().resolve(&mut world.kernel, HEAP, Access::Write).unwrap();
    write(frame, 7);
    let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
    world.run(actor, Call::DomainFork, &[handle]).unwrap();
    let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
    let frame = child.range().resolve(&mut world.kernel, HEAP, Access::Read).unwrap();
    assert_eq!(read(frame), 7);
    world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
    world.leave_nothing(&[actor]);
}

/// A fork that is told to go on with another slot, or whose segment grew meanwhile, begins that
/// copy anew: the one it was at is of something else.
#[test]
fn a_fork_goes_on_with_the_copy_of_no_other_segment() {
    const PAGES_EACH: u64 = 3000;
    let inherit = u64::from(Rights::ALL.union(Rights::INHERIT).0);
    for grows in [true, false] {
        let mut world = World::new(20_000);
        let actor = world.outsider();
        let slots = [1, 2].map(|value| {
            let segment = world.make(actor, Call::SegmentAlloc, &[RAM, PAGES_EACH, kinds::EAGER]);
            world.make(actor, Call::RangeMap, &[SPACE, HEAP + value * PAGES_EACH * PAGE, segment, 0, PAGES_EACH, OPEN]);
            let address = HEAP + value * PAGES_EACH * PAGE;
            write(actor.domain.range().resolve(&mut world.kernel, address, Access::Write).unwrap(), value as u8);
            world.make(actor, Call::CapCopy, &[segment, inherit])
        });
        let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
        assert!(one_step(&mut world, actor, Call::DomainFork, [handle, 0, 0, 0, 0, 0]));
        let at = actor.context.with_registers(|r| r.rsi);
        assert_eq!(at, slots[0], "it is at the first");
        let goes_on = if grows { slots[0] } else { slots[1] };
        if grows {
            world.run(actor, Call::SegmentSetPages, &[slots[0], PAGES_EACH + 200]).unwrap();
        }
        world.run(actor, Call::DomainFork, &[handle, goes_on, 0]).unwrap();
        let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
        let held = slots.map(|slot| child.share().find::<Segment>(Handle(slot), Rights::READ).ok());
        assert_eq!(
            held.map(|found| found.map(|(copy, _)| copy.pages())),
            [grows.then_some(PAGES_EACH + 200), Some(PAGES_EACH)]
        );
        let frame = child.range().resolve(&mut world.kernel, HEAP + 2 * PAGES_EACH * PAGE, Access::Read).unwrap();
        assert_eq!(read(frame), 2, "each has the bytes of its own");
        world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
        world.leave_nothing(&[actor]);
    }
}

/// A segment whose slot another one took since the last fork is no child's any more, and neither
/// are its mappings.
#[test]
fn a_mapping_is_copied_of_what_is_inherited_only() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let inherit = u64::from(Rights::ALL.union(Rights::INHERIT).0);
    let mut slots = Vec::new();
    for is_copied in [true, false] {
        let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
        if is_copied {
            world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, 1, OPEN]);
        }
        slots.push(world.make(actor, Call::CapCopy, &[segment, inherit]));
        world.run(actor, Call::CapDrop, &[segment]).unwrap();
        let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
        world.run(actor, Call::DomainFork, &[handle]).unwrap();
        let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
        assert_eq!(child.range().at(HEAP).is_some(), is_copied);
        world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
        world.run(actor, Call::CapDrop, &[handle]).unwrap();
        world.run(actor, Call::CapDrop, &[slots[slots.len() - 1]]).unwrap();
    }
    assert_eq!(slots[0], slots[1], "the second took the slot of the first");
    world.leave_nothing(&[actor]);
}

/// A segment in two slots is one in the child's too; the second allows no more than the first.
#[test]
fn a_segment_in_two_slots_is_copied_once() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
    let rights = [Rights::READ.union(Rights::INHERIT), Rights::ALL.union(Rights::INHERIT)];
    let slots = rights.map(|rights| world.make(actor, Call::CapCopy, &[segment, u64::from(rights.0)]));
    for _ in 0..2 {
        let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
        world.run(actor, Call::DomainFork, &[handle]).unwrap();
        let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
        let [first, second] = slots.map(|slot| child.share().get(Handle(slot)).unwrap());
        let parents = actor.domain.share().get(Handle(segment)).unwrap();
        assert!(first.object == second.object && first.object != parents.object);
        assert_eq!([first.rights, second.rights], [rights[0]; 2]);
        world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
    }
    world.leave_nothing(&[actor]);
}

/// What the child puts into a slot while it becomes a copy is not mapped by its mappings.
#[test]
fn a_mapping_of_a_child_shows_what_the_fork_made() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, 1, OPEN]);
    let slot = world.make(actor, Call::CapCopy, &[segment, u64::from(Rights::ALL.union(Rights::INHERIT).0)]);
    let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
    let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
    let (partial, mut done) = (Slot::new(), [0; 2]);
    let mut step = |world: &mut World| {
        actor.domain.fork_into(&mut world.kernel, child, &partial, &mut done, &mut Budget::new(2)).unwrap()
    };
    while child.share().get(Handle(slot)).is_err() {
        assert!(!step(&mut world));
    }
    let run = Ptr::<Segment>::new_contiguous(&mut world.kernel, world.ram, 1).unwrap();
    child.remove(&mut world.kernel, Handle(slot)).unwrap();
    child.insert(slot as usize, Capability { object: run.any(), badge: 0, rights: Rights::ALL });
    while !step(&mut world) {}
    assert!(child.range().at(HEAP).is_none());
    world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
    world.leave_nothing(&[actor]);
}

/// The child gets a mapping with no more than its capability allows, whatever it did meanwhile.
#[test]
fn a_mapping_of_a_child_allows_what_its_capability_does() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, 1, OPEN]);
    world.make(actor, Call::CapCopy, &[segment, u64::from(Rights::READ.union(Rights::INHERIT).0)]);
    let handle = world.make(actor, Call::DomainAlloc, &[RAM, 0]);
    world.run(actor, Call::DomainFork, &[handle]).unwrap();
    let child = actor.domain.share().get(Handle(handle)).unwrap().object.cast::<Domain>().unwrap();
    let mapping = child.range().at(HEAP).unwrap();
    assert_eq!((mapping.protection(), mapping.allowed()), (protection::READ, protection::READ));
    world.run(actor, Call::DomainKill, &[handle, 0]).unwrap();
    world.leave_nothing(&[actor]);
}

#[test]
fn mappings_of_a_whole_table_are_changed_in_bounded_steps() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 513, kinds::EAGER]);
    for number in 0..200 {
        let at = HEAP + number * 512 * PAGE;
        world.run(actor, Call::RangeMap, &[SPACE, at, segment, number % 2, 512, OPEN]).unwrap();
        world.make(actor, Call::RangeFill, &[SPACE, at, 1]);
    }
    let all = [SPACE, HEAP, 200 * 512, protection::READ];
    world.run(actor, Call::RangeProtect, &all).unwrap();
    assert_eq!(world.make(actor, Call::RangeUnmap, &all[..3]), 200 * 512);
}
