//! The calls of segments as a program makes them: the modes of a copy, sizes, and contiguous ones
//! mapped in large pages.

use super::World;
use super::revoke::Actor;
use crate::arch::paging::{Flags, Leaves, leaves, view};
use crate::memory::{PhysAddr, phys_to_virt};
use crate::objects::fault::Access;
use crate::objects::mapping::{Mapped, PageRun};
use crate::objects::segment::Kind;
use crate::objects::{Ptr, Segment};
use crate::steps::Budget;
use abi::layout::{HEAP, copy, protection, segment as kinds};
use abi::{Call, Error, Handle};

const RAM: u64 = Handle::ROOT_RAM.0;
const SPACE: u64 = Handle::SELF_RANGE.0;
const OPEN: u64 = protection::READ | protection::WRITE;
const PAGE: u64 = 4096;
const LARGE: u64 = 512 * PAGE;

fn touch(world: &mut World, actor: Actor, address: u64, access: Access) -> Option<PhysAddr> {
    actor.domain.range().resolve(&mut world.kernel, address, access).ok()
}

pub(super) fn read(frame: PhysAddr) -> u8 {
    // SAFETY: a page of the fake RAM.
    unsafe { phys_to_virt(frame).read() }
}

pub(super) fn write(frame: PhysAddr, value: u8) {
    // SAFETY: as in `read`.
    unsafe { phys_to_virt(frame).write(value) }
}

fn segment_at(actor: Actor, address: u64) -> Ptr<Segment> {
    match actor.domain.range().at(address).unwrap().mapped() {
        Mapped::Segment(segment) => segment,
        Mapped::Range(_) => panic!("a range is mapped there"),
    }
}

#[test]
fn a_copy_takes_its_own_frame_now_or_at_the_first_write_or_at_the_first_access() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let source = world.make(actor, Call::SegmentAlloc, &[RAM, 40, kinds::EAGER]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, source, 0, 40, OPEN]);
    for page in 0..40 {
        write(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap(), page as u8 + 1);
    }
    let used = world.used();
    let at = [copy::PLAIN, copy::ON_WRITE, copy::ON_REFERENCE].map(|mode| {
        let made = world.make(actor, Call::SegmentCopy, &[RAM, source, mode]);
        let address = HEAP + (mode + 1) * 64 * PAGE;
        world.make(actor, Call::RangeMap, &[SPACE, address, made, 0, 40, OPEN]);
        address
    });
    assert_eq!(world.used() - used, 40 + 3, "pages of the plain copy, and a table of entries each");
    assert_eq!(world.run(actor, Call::SegmentCopy, &[RAM, source, 3]), Err(Error::BadArgument));
    for page in 0..20 {
        let offset = page * PAGE;
        let original = touch(&mut world, actor, HEAP + offset, Access::Read).unwrap();
        let used = world.used();
        let [plain, on_write, on_reference] =
            at.map(|address| touch(&mut world, actor, address + offset, Access::Read).unwrap());
        assert!(plain != original && on_write == original && on_reference != original);
        assert_eq!(world.used() - used, 1, "a frame for the reference, none for the read of the shared one");
        assert!([plain, on_write, on_reference].iter().all(|frame| read(*frame) == page as u8 + 1));
        // A neighbour that is mapped along is no reference.
        let next = view(actor.domain.range().root(), at[2] + offset + PAGE);
        assert!(next.is_none(), "copied at the first reference, not before");
        assert!(!view(actor.domain.range().root(), HEAP + offset).unwrap().flags().contains(Flags::WRITE));
        // Each side writes for itself.
        for (value, address) in (100..).zip([HEAP, at[0], at[1], at[2]]) {
            write(touch(&mut world, actor, address + offset, Access::Write).unwrap(), value);
        }
        for (value, address) in (100..).zip([HEAP, at[0], at[1], at[2]]) {
            assert_eq!(read(touch(&mut world, actor, address + offset, Access::Read).unwrap()), value);
        }
    }
    // What the source writes first is not in the copies.
    for page in 20..40 {
        write(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap(), 0);
        for address in at {
            assert_eq!(read(touch(&mut world, actor, address + page * PAGE, Access::Read).unwrap()), page as u8 + 1);
        }
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn a_segment_that_grows_keeps_its_bytes_and_one_that_shrinks_drops_pages() {
    let mut world = World::new(3000);
    let actor = world.outsider();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 8, 0]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, 8, OPEN]);
    for page in 0..8 {
        write(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap(), page as u8 + 1);
    }
    // Through each form of its table: in the object, one page, two levels.
    for pages in [8, 17, 600, 1200] {
        world.make(actor, Call::SegmentSetPages, &[segment, pages]);
        assert_eq!(world.run(actor, Call::SegmentStat, &[segment]).unwrap(), [pages, 8, 0]);
        for page in 0..8 {
            let frame = touch(&mut world, actor, HEAP + page * PAGE, Access::Read).unwrap();
            assert_eq!(read(frame), page as u8 + 1);
        }
    }
    let used = world.used();
    world.make(actor, Call::SegmentSetPages, &[segment, 3]);
    assert_eq!(used - world.used(), 5);
    assert_eq!(world.run(actor, Call::SegmentStat, &[segment]).unwrap(), [3, 3, 0]);
    for page in 0..8 {
        let seen = view(actor.domain.range().root(), HEAP + page * PAGE).is_some();
        let touched = touch(&mut world, actor, HEAP + page * PAGE, Access::Read).is_some();
        assert_eq!((seen, touched), (page < 3, page < 3));
    }
    // What comes back is empty.
    world.make(actor, Call::SegmentSetPages, &[segment, 8]);
    assert_eq!(read(touch(&mut world, actor, HEAP + 4 * PAGE, Access::Read).unwrap()), 0);
    for pages in [0, abi::layout::SEGMENT_PAGES_MAX + 1] {
        assert_eq!(world.run(actor, Call::SegmentSetPages, &[segment, pages]), Err(Error::BadArgument));
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn pages_that_are_discarded_are_free_and_come_back_empty() {
    let mut world = World::new(3000);
    let actor = world.outsider();
    // In the object, one page of entries, two levels.
    for pages in [16, 40, 1300] {
        let segment = world.make(actor, Call::SegmentAlloc, &[RAM, pages, kinds::EAGER]);
        world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, pages, OPEN]);
        for page in 0..pages {
            write(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap(), page as u8 | 1);
        }
        let used = world.used();
        let (first, count) = (pages / 4, pages / 2);
        for _ in 0..2 {
            world.make(actor, Call::SegmentSetPages, &[segment, 0, first, count]);
            assert_eq!(used - world.used(), count);
            assert_eq!(world.run(actor, Call::SegmentStat, &[segment]).unwrap(), [pages, pages - count, 0]);
        }
        let root = actor.domain.range().root();
        assert!(
            (0..pages)
                .all(|page| { view(root, HEAP + page * PAGE).is_some() != (first..first + count).contains(&page) })
        );
        for page in 0..pages {
            let found = read(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap());
            assert_eq!(found, if (first..first + count).contains(&page) { 0 } else { page as u8 | 1 });
        }
        assert_eq!(world.used(), used);
        for words in [[pages, 1], [0, pages + 1], [u64::MAX, 2], [1, u64::MAX]] {
            let refused = world.run(actor, Call::SegmentSetPages, &[segment, 0, words[0], words[1]]);
            assert_eq!(refused, Err(Error::BadArgument));
        }
        world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, pages]);
        world.run(actor, Call::CapDrop, &[segment]).unwrap();
    }
    // What others have in common, or what is one run, is not given back by pages.
    for kind in [kinds::EAGER | kinds::COMMON, kinds::CONTIGUOUS] {
        let segment = world.make(actor, Call::SegmentAlloc, &[RAM, 4, kind]);
        assert_eq!(world.run(actor, Call::SegmentSetPages, &[segment, 0, 0, 1]), Err(Error::BadArgument));
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn a_copy_keeps_what_its_source_discards() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let source = world.make(actor, Call::SegmentAlloc, &[RAM, 8, kinds::EAGER]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, source, 0, 8, OPEN]);
    for page in 0..8 {
        write(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap(), 7);
    }
    let copied = world.make(actor, Call::SegmentCopy, &[RAM, source, copy::ON_WRITE]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP + 8 * PAGE, copied, 0, 8, OPEN]);
    world.make(actor, Call::SegmentSetPages, &[source, 0, 2, 3]);
    for page in 0..8 {
        let found = read(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap());
        assert_eq!(found, if (2..5).contains(&page) { 0 } else { 7 });
        assert_eq!(read(touch(&mut world, actor, HEAP + (8 + page) * PAGE, Access::Write).unwrap()), 7);
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn a_contiguous_segment_is_shown_in_large_pages_until_a_part_is_changed() {
    let mut world = World::new(4000);
    let actor = world.outsider();
    let range = actor.domain.range();
    let [segment, base, _] = world.run(actor, Call::SegmentAlloc, &[RAM, 1024, kinds::CONTIGUOUS]).unwrap();
    assert!(base.is_multiple_of(LARGE));
    let is_large = |address: u64| matches!(leaves(range.top(), address, 1), Leaves::Large(_));
    let small = world.make(actor, Call::SegmentAlloc, &[RAM, 4, 0]);
    // A table is left where a large page comes to be, and given back then.
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, small, 0, 4, OPEN]);
    touch(&mut world, actor, HEAP, Access::Write).unwrap();
    world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, 4]);
    let used = world.used();
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 0, 1024, OPEN]);
    for (faults, page) in [1u64, 600].into_iter().enumerate() {
        let frame = touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap();
        assert_eq!(frame.0, base + page * PAGE);
        let seen = (0..1024).filter(|page| view(range.root(), HEAP + page * PAGE).is_some()).count();
        assert_eq!(seen, (faults + 1) * 512, "a fault for 512 pages");
    }
    assert_eq!(used - world.used(), 1);
    assert!(is_large(HEAP) && is_large(HEAP + LARGE));
    // As a whole it stays large.
    world.make(actor, Call::RangeProtect, &[SPACE, HEAP, 512, protection::READ]);
    assert!(is_large(HEAP) && !view(range.root(), HEAP).unwrap().flags().contains(Flags::WRITE));
    assert!(touch(&mut world, actor, HEAP + PAGE, Access::Write).is_none());
    // A part of it does not.
    world.make(actor, Call::RangeProtect, &[SPACE, HEAP + LARGE, 1, protection::READ]);
    for page in 512..1024 {
        let written = touch(&mut world, actor, HEAP + page * PAGE, Access::Write);
        assert_eq!(written.map(|frame| frame.0), (page > 512).then_some(base + page * PAGE));
        let frame = touch(&mut world, actor, HEAP + page * PAGE, Access::Read).unwrap();
        assert_eq!(frame.0, base + page * PAGE);
    }
    assert!(!is_large(HEAP + LARGE));
    // One page off: memory and space do not fit.
    world.make(actor, Call::RangeMap, &[SPACE, HEAP + 8 * LARGE, segment, 1, 1000, OPEN]);
    touch(&mut world, actor, HEAP + 8 * LARGE, Access::Write).unwrap();
    assert!(!is_large(HEAP + 8 * LARGE));
    world.leave_nothing(&[actor]);
}

/// One fault shows what is there around it, as it may be used without another: pages shared until
/// they are written only to be read, and none of those whose first reference copies them.
#[test]
fn a_fault_shows_the_pages_around_it_that_are_there() {
    let mut world = World::new(2000);
    let actor = world.outsider();
    let root = actor.domain.range().root();
    let seen = |address: u64| {
        let found = (0..40).map(|page| view(root, address + page * PAGE));
        found.map(|entry| entry.map(|entry| entry.flags().contains(Flags::WRITE))).collect::<Vec<_>>()
    };
    let around = |writable: bool| (0..40).map(|page| (16..32).contains(&page).then_some(writable)).collect::<Vec<_>>();
    let show = |world: &mut World, segment: u64, number: u64| {
        let address = HEAP + number * 64 * PAGE;
        world.make(actor, Call::RangeMap, &[SPACE, address, segment, 0, 40, OPEN]);
        address
    };
    let source = world.make(actor, Call::SegmentAlloc, &[RAM, 40, kinds::EAGER]);
    let at = show(&mut world, source, 0);
    for page in [20, 31] {
        touch(&mut world, actor, at + page * PAGE, Access::Read).unwrap();
        assert_eq!(seen(at), around(true));
    }
    for page in 0..40 {
        let frame = view(root, at + page * PAGE).map(|entry| entry.address());
        let touched = touch(&mut world, actor, at + page * PAGE, Access::Read);
        assert!(frame.is_none_or(|frame| touched == Some(frame)), "page {page} is shown as it is");
    }
    // What is not there yet is not made.
    let empty = world.make(actor, Call::SegmentAlloc, &[RAM, 40, 0]);
    let at = show(&mut world, empty, 1);
    touch(&mut world, actor, at + 20 * PAGE, Access::Write).unwrap();
    assert_eq!(seen(at).iter().flatten().count(), 1);
    let shared = world.make(actor, Call::SegmentCopy, &[RAM, source, copy::ON_WRITE]);
    let at = show(&mut world, shared, 2);
    touch(&mut world, actor, at + 20 * PAGE, Access::Read).unwrap();
    assert_eq!(seen(at), around(false));
    let own = world.make(actor, Call::SegmentCopy, &[RAM, source, copy::ON_REFERENCE]);
    let at = show(&mut world, own, 3);
    for page in [20, 21, 25] {
        touch(&mut world, actor, at + page * PAGE, Access::Read).unwrap();
    }
    // Those that it has copied are its own, and are shown by whatever fault comes next.
    let entries = [20, 21, 25].map(|page| at + page * PAGE);
    world.make(actor, Call::RangeUnmap, &[SPACE, at, 40]);
    world.make(actor, Call::RangeMap, &[SPACE, at, own, 0, 40, OPEN]);
    touch(&mut world, actor, entries[0], Access::Read).unwrap();
    assert_eq!(
        entries.map(|entry| view(root, entry).map(|entry| entry.flags().contains(Flags::WRITE))),
        [Some(true); 3]
    );
    assert_eq!(seen(at).iter().flatten().count(), 3);
    world.leave_nothing(&[actor]);
}

/// Registers of a device lie anywhere: whether a large page fits is a matter of where both are.
#[test]
fn registers_are_shown_in_a_large_page_where_memory_and_space_are_aligned_alike() {
    for (before, first, fits) in [(1, 1, true), (511, 1, false), (511, 511, true), (1, 511, false), (0, 0, true)] {
        let mut world = World::new(2000);
        let actor = world.outsider();
        let range = actor.domain.range();
        // So many pages before the start of a large one.
        let kind = Kind::Imported { base: PhysAddr(8 * LARGE - before * PAGE), uncached: true, is_ram: false };
        let ram = world.ram;
        let segment = Ptr::<Segment>::new_imported(&mut world.kernel, ram, 1100, kind).unwrap();
        range.map(&mut world.kernel, PageRun { start: HEAP, pages: 512 }, segment, first, [OPEN; 2]).unwrap();
        let frame = touch(&mut world, actor, HEAP + 5 * PAGE, Access::Read).unwrap();
        assert_eq!(frame.0, 8 * LARGE + (first + 5) * PAGE - before * PAGE);
        assert_eq!(matches!(leaves(range.top(), HEAP, 1), Leaves::Large(_)), fits, "{before} {first}");
        world.kernel.release(segment);
        world.leave_nothing(&[actor]);
    }
}

#[test]
fn a_range_of_one_table_shows_its_pages_one_by_one() {
    let mut world = World::new(3000);
    let actor = world.outsider();
    let [segment, base, _] = world.run(actor, Call::SegmentAlloc, &[RAM, 512, kinds::CONTIGUOUS]).unwrap();
    assert!(base.is_multiple_of(LARGE));
    let small = world.make(actor, Call::RangeAlloc, &[RAM, 512, 0]);
    world.make(actor, Call::RangeMap, &[small, 0, segment, 0, 512, OPEN]);
    world.make(actor, Call::RangeNest, &[SPACE, HEAP, small, OPEN]);
    for page in [3, 500] {
        let frame = touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap();
        assert_eq!(frame.0, base + page * PAGE);
        assert_eq!(view(actor.domain.range().root(), HEAP + page * PAGE).unwrap().address(), frame);
    }
    assert!(matches!(leaves(actor.domain.range().top(), HEAP, 1), Leaves::Small(_)));
    world.leave_nothing(&[actor]);
}

/// As processors tell it: present 1, write 2, user 4, fetch 16.
#[test]
fn the_kind_of_an_access_is_told_by_the_error_of_its_fault() {
    for (error, access) in [
        (4, Access::Read),
        (5, Access::Read),
        (6, Access::Write),
        (7, Access::Write),
        (20, Access::Execute),
        (21, Access::Execute),
    ] {
        assert_eq!(Access::decode(error), access, "{error}");
    }
}

#[test]
fn a_copy_of_a_large_segment_with_holes_has_all_its_pages() {
    const PAGES: u64 = 4 * 512 + 100;
    let mut world = World::new(2000);
    let actor = world.outsider();
    let source = world.make(actor, Call::SegmentAlloc, &[RAM, PAGES, 0]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, source, 0, PAGES, OPEN]);
    // Tables of entries are there for every second part of it.
    let present = [512, 513, 600, 1023, 3 * 512, 3 * 512 + 400];
    for page in present {
        write(touch(&mut world, actor, HEAP + page * PAGE, Access::Write).unwrap(), page as u8 | 1);
    }
    for mode in [copy::PLAIN, copy::ON_WRITE, copy::ON_REFERENCE] {
        let made = world.make(actor, Call::SegmentCopy, &[RAM, source, mode]);
        assert_eq!(world.run(actor, Call::SegmentStat, &[made]).unwrap()[..2], [PAGES, present.len() as u64]);
        let at = HEAP + (mode + 1) * 8 * LARGE;
        world.make(actor, Call::RangeMap, &[SPACE, at, made, 0, PAGES, OPEN]);
        for page in present {
            assert_eq!(read(touch(&mut world, actor, at + page * PAGE, Access::Read).unwrap()), page as u8 | 1);
        }
    }
    world.leave_nothing(&[actor]);
}

#[test]
fn a_segment_pays_for_no_more_tables_than_its_size_needs() {
    let mut world = World::new(200);
    let ram = world.ram;
    for (pages, tables) in [(1, 0), (16, 0), (17, 1), (512, 1), (513, 2)] {
        let segment = Ptr::<Segment>::new_anonymous(&mut world.kernel, ram, pages).unwrap();
        let used = world.used();
        segment.touch(&mut world.kernel, pages - 1).unwrap();
        assert_eq!(world.used() - used, 1 + tables, "{pages} pages");
        world.kernel.release(segment);
        world.kernel.drain_all();
    }
    world.leave_nothing(&[]);
}

/// However few units a step has left, what it frees beyond them is bounded; also of a segment whose
/// last table is full and those before it are not there.
#[test]
fn pages_of_a_segment_that_goes_are_freed_a_piece_at_a_time() {
    const FIRST: u64 = 40 * 512;
    const PRESENT: u64 = 36;
    const PIECE: u64 = 16;
    let mut world = World::new(200);
    let ram = world.ram;
    let segment = Ptr::<Segment>::new_anonymous(&mut world.kernel, ram, FIRST + PRESENT).unwrap();
    for page in FIRST..FIRST + PRESENT {
        segment.touch(&mut world.kernel, page).unwrap();
    }
    loop {
        let before = segment.present();
        let is_done = segment.free_pages(&mut world.kernel, &mut Budget::new(1));
        assert!(before - segment.present() <= PIECE, "a step freed {}", before - segment.present());
        if is_done {
            break;
        }
    }
    assert_eq!(segment.present(), 0);
    world.kernel.release(segment);
    world.leave_nothing(&[]);
}

#[test]
fn what_is_unmapped_in_parts_leaves_the_rest_and_its_neighbours_as_they_were() {
    const PAGES: u64 = 600;
    let mut world = World::new(3000);
    let actor = world.outsider();
    let range = actor.domain.range();
    let segment = world.make(actor, Call::SegmentAlloc, &[RAM, PAGES + 2, kinds::EAGER]);
    let beside = world.make(actor, Call::SegmentAlloc, &[RAM, 40, kinds::EAGER]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 2, PAGES, OPEN]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP + PAGES * PAGE, beside, 0, 40, OPEN]);
    let mapped = segment_at(actor, HEAP);
    let fill = |world: &mut World| {
        for page in 0..PAGES + 40 {
            touch(world, actor, HEAP + page * PAGE, Access::Write).unwrap();
        }
    };
    let seen = |page: u64| view(range.root(), HEAP + page * PAGE).map(|entry| entry.address());
    let shown = |first: u64, end: u64| (first..end).all(|page| seen(page) == mapped.frame(page + 2));
    // From its end, as a revocation does.
    fill(&mut world);
    assert!(!mapped.unmap_everywhere(&mut world.kernel, &mut Budget::new(1)));
    assert!(shown(0, PAGES - 512) && (PAGES - 512..PAGES).all(|page| seen(page).is_none()));
    assert!((PAGES..PAGES + 40).all(|page| seen(page).is_some()), "the neighbour is as it was");
    // From its start, as a program does.
    world.make(actor, Call::RangeUnmap, &[SPACE, HEAP, PAGES]);
    world.make(actor, Call::RangeMap, &[SPACE, HEAP, segment, 2, PAGES, OPEN]);
    fill(&mut world);
    let place = range.place(HEAP, PAGES).unwrap();
    assert_eq!(range.unmap(&mut world.kernel, place, &mut Budget::new(1)), Ok((512, HEAP + LARGE)));
    assert!((0..512).all(|page| seen(page).is_none()) && shown(512, PAGES));
    let rest = abi::RangeEntry::from_words(world.run(actor, Call::RangeGet, &[SPACE, HEAP]).unwrap());
    assert_eq!((rest.start, rest.pages, rest.first), (HEAP + LARGE, PAGES - 512, 2 + 512));
    world.run(actor, Call::RangeUnmap, &[SPACE, HEAP + 512 * PAGE, PAGES - 512]).unwrap();
    world.leave_nothing(&[actor]);
}
