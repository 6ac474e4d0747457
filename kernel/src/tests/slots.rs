//! Slots of a share, what is derived from what they hold, the parts of the log, and segments that
//! are made in steps.

use super::World;
use super::revoke::Actor;
use super::steps::one_step;
use crate::hardware::{self, set_clock};
use crate::memory::PhysAddr;
use crate::objects::fault::Access;
use crate::objects::slot::DEPTH_MAX;
use crate::objects::writer::{LogParts, Name, Writer};
use crate::objects::{Domain, Ptr, Segment};
use abi::layout::{HEAP, SHARE_SLOTS_MAX, copy, protection, segment as kinds};
use abi::{Call, Error, Handle, Rights};

const RAM: u64 = Handle::ROOT_RAM.0;
const SPACE: u64 = Handle::SELF_RANGE.0;
const ALL: u64 = Rights::ALL.0 as u64;
const PAGE: u64 = 4096;

fn fixture(pages: u64) -> (World, Actor) {
    let mut world = World::new(pages);
    let actor = world.outsider();
    (world, actor)
}

fn copy_of(world: &mut World, actor: Actor, of: u64) -> u64 {
    world.make(actor, Call::CapCopy, &[of, ALL])
}

#[test]
fn a_new_capability_has_the_lowest_free_slot() {
    const COPIES: u64 = 300;
    let (mut world, actor) = fixture(600);
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
    for number in 1..=COPIES {
        assert_eq!(copy_of(&mut world, actor, segment), segment + number);
    }
    // In any order, of any part of the share.
    for gone in [[segment + 290, segment + 5], [segment + 70, segment + 200], [segment + 1, segment + 2]] {
        for handle in gone {
            world.make(actor, Call::CapDrop, &[handle]);
        }
        let mut sorted = gone;
        sorted.sort_unstable();
        assert_eq!([(); 2].map(|()| copy_of(&mut world, actor, segment)), sorted);
    }
    assert_eq!(copy_of(&mut world, actor, segment), segment + COPIES + 1);
    let share = actor.domain.share();
    let max = SHARE_SLOTS_MAX as usize;
    let asked = [0, 1, segment as usize, segment as usize + 302, max - 1, max, usize::MAX];
    assert_eq!(asked.map(|index| share.is_free(index)), [false, false, false, true, true, false, false]);
    world.leave_nothing(&[actor]);
}

#[test]
fn who_empties_a_slot_is_told_how_many_were_derived_from_it() {
    let (mut world, actor) = fixture(600);
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 1, 0]);
    let child = copy_of(&mut world, actor, segment);
    copy_of(&mut world, actor, child);
    copy_of(&mut world, actor, segment);
    let other = copy_of(&mut world, actor, child);
    for (handle, derived) in [(child, 2), (other, 0), (segment, 2)] {
        let (slot, _) = actor.domain.share().find_slot(Handle(handle)).unwrap();
        assert_eq!(world.kernel.empty_slot(slot), derived);
    }
    world.leave_nothing(&[actor]);
}

/// A domain's own name of its account is derived from the one it was made with: it goes with that.
#[test]
fn a_domain_loses_its_account_with_the_capability_that_it_was_made_by() {
    let (mut world, actor) = fixture(600);
    let account = world.make(actor, Call::RamSplit, &[RAM, 200]);
    let named = copy_of(&mut world, actor, account);
    let domain = world.make(actor, Call::DomainAlloc, &[named]);
    let domain: Ptr<Domain> = actor.domain.share().find(Handle(domain), Rights(0)).unwrap().0;
    let (slot, _) = domain.share().find_slot(Handle::SELF_RAM).unwrap();
    assert_eq!(slot.depth(), 2, "a copy of a copy");
    assert_eq!(world.make(actor, Call::CapRevoke, &[named]), 0);
    assert!(domain.share().find_slot(Handle::SELF_RAM).is_err());
    assert!(domain.is_alive());
    // So no chain of domains is longer than one of copies.
    let mut from = account;
    for _ in 0..DEPTH_MAX {
        from = copy_of(&mut world, actor, from);
    }
    assert_eq!(world.run(actor, Call::DomainAlloc, &[from]).map(drop), Err(Error::TooDeep));
    world.leave_nothing(&[actor]);
}

/// However much a program said: after a pause it is heard again, with as many lines at once as a
/// call can have.
#[test]
fn a_program_that_was_too_fast_is_heard_after_a_pause() {
    const LINES: &[u8] = b"1\n2\n3\n4\n5\n6\n7\n8\n";
    set_clock(0);
    let mut parts = LogParts::new();
    let writer = Writer::new(Name::new(b"loud").unwrap());
    writer.begin(&mut parts, true);
    let mut said = || {
        hardware::take_lines();
        writer.write(&mut parts, LINES);
        hardware::take_lines().iter().filter(|line| line.starts_with("pelago: loud: ")).count()
    };
    let heard: usize = (0..10).map(|_| said()).sum();
    assert!((8..=16).contains(&heard), "{heard} lines at once");
    set_clock(100_000_000_000);
    assert_eq!(said(), 8);
}

/// A call goes on with what it began itself only.
#[test]
fn a_segment_is_gone_on_with_for_the_same_account_and_size_only() {
    const GO_ON: u64 = 1 << 32;
    let (mut world, actor) = fixture(3000);
    let account = world.make(actor, Call::RamSplit, &[RAM, 2000]);
    let used = world.used();
    assert!(one_step(&mut world, actor, Call::SegmentAlloc, [RAM, 800, kinds::EAGER, 0, 0, 0]));
    for [ram, pages] in [[account, 800], [RAM, 801], [account, 801]] {
        let words = [ram, pages, kinds::EAGER, GO_ON];
        assert_eq!(world.run(actor, Call::SegmentAlloc, &words), Err(Error::BadArgument), "{words:?}");
    }
    let made = world.make(actor, Call::SegmentAlloc, &[RAM, 800, kinds::EAGER, GO_ON]);
    assert_eq!(world.run(actor, Call::SegmentStat, &[made]).unwrap()[..2], [800, 800]);
    world.run(actor, Call::CapDrop, &[made]).unwrap();
    assert_eq!(world.used(), used);
    for wrong in [4, 16, kinds::COMMON, kinds::COMMON | kinds::CONTIGUOUS, kinds::COMMON | 3, 1 << 40, 6] {
        let refused = world.run(actor, Call::SegmentAlloc, &[RAM, 1, wrong]);
        assert_eq!(refused.map(drop), Err(Error::BadArgument), "flags {wrong:#x}");
    }
    for right in [0, kinds::EAGER, kinds::CONTIGUOUS, 3, kinds::COMMON | kinds::EAGER] {
        let [made, base, _] = world.run(actor, Call::SegmentAlloc, &[RAM, 1, right]).unwrap();
        let segment: Ptr<Segment> = actor.domain.share().find(Handle(made), Rights(0)).unwrap().0;
        assert_eq!(segment.is_common(), right & kinds::COMMON != 0);
        assert_eq!((base != 0, segment.present()), (right & kinds::CONTIGUOUS != 0, u64::from(right != 0)));
    }
    world.leave_nothing(&[actor]);
}

/// Devices may write to it meanwhile: so no copy shares its frames, whatever is asked for.
#[test]
fn a_copy_of_contiguous_memory_has_frames_of_its_own() {
    let (mut world, actor) = fixture(600);
    let open = protection::READ | protection::WRITE;
    let [source, base, _] = world.run(actor, Call::SegmentAlloc, &[RAM, 3, kinds::CONTIGUOUS]).unwrap();
    super::segment_calls::write(PhysAddr(base + PAGE), 7);
    for (number, mode) in [copy::PLAIN, copy::ON_WRITE, copy::ON_REFERENCE].into_iter().enumerate() {
        let made = world.make(actor, Call::SegmentCopy, &[RAM, source, mode]);
        assert_eq!(world.run(actor, Call::SegmentStat, &[made]).unwrap(), [3, 3, 0]);
        let at = HEAP + 16 * PAGE * number as u64;
        world.run(actor, Call::RangeMap, &[SPACE, at, made, 0, 3, open]).unwrap();
        let frame = actor.domain.range().resolve(&mut world.kernel, at + PAGE, Access::Read).unwrap();
        assert!(!(base..base + 3 * PAGE).contains(&frame.0));
        assert_eq!(super::segment_calls::read(frame), 7);
    }
    assert_eq!(world.run(actor, Call::SegmentCopy, &[RAM, source, 3]).map(drop), Err(Error::BadArgument));
    world.leave_nothing(&[actor]);
}

/// In a pool, too.
#[test]
fn a_shared_segment_is_gone_on_with_for_the_same_kind_and_size_only() {
    const PAGES: u64 = 600;
    let (mut world, actor) = fixture(4000);
    let share = world.make(actor, Call::ShareAlloc, &[0, RAM, 3000, 0]);
    let begun = [share, PAGES, 0, 0, kinds::CONTIGUOUS, 0];
    for (pages, kind) in [(PAGES, 0), (PAGES - 1, kinds::CONTIGUOUS), (PAGES, kinds::CONTIGUOUS)] {
        assert!(one_step(&mut world, actor, Call::ShareSegment, begun));
        let [made, id, _] = world.run(actor, Call::ShareSegment, &[share, pages, 0, 0, kind, 1]).unwrap();
        let [found, present, base] = world.run(actor, Call::SegmentStat, &[made]).unwrap();
        let is_run = kind == kinds::CONTIGUOUS;
        assert_eq!((found, present, base != 0), (pages, if is_run { pages } else { 0 }, is_run));
        world.run(actor, Call::ShareRemove, &[share, id]).unwrap();
    }
    world.run(actor, Call::CapDrop, &[share]).unwrap();
    world.leave_nothing(&[actor]);
}
