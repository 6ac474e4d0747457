//! Demand-zero segments of a pool: the first touch on any core makes a page, once for all cores and
//! never in part.

use super::shared::{ALL, Block, CONTIGUOUS, Core, NONE, RAM, READ_WRITE, in_share, pair};
use super::shared_ranges::{GIB, PAGE, SPACE, is_mapped, load, mapped_range, range_in, touch};
use super::steps::one_step;
use crate::objects::fault::{Access, Refused};
use abi::layout::lock;
use abi::{Call, Error};

fn present(core: &mut Core, segment: u64) -> u64 {
    core.run(Call::SegmentStat, &[segment]).unwrap()[1]
}

/// Free pages of the pool.
pub(super) fn free(core: &Core, share: u64) -> u64 {
    core.named(share).stat().unwrap().2
}

/// Makes and ends a segment whose pages are written to, so that free pages of the pool are not
/// empty.
fn soil(core: &mut Core, share: u64, pages: u64) {
    let [segment, id, _] = core.run(Call::ShareSegment, &[share, pages, 0, 0]).unwrap();
    core.make(Call::RangeMap, &[SPACE, 5 * GIB, segment, 0, pages, READ_WRITE]);
    for page in 0..pages {
        let place = touch(core, 5 * GIB + page * PAGE, Access::Write).unwrap();
        // SAFETY: a page of the pool.
        unsafe { place.cast::<u64>().write(u64::MAX) };
    }
    core.make(Call::RangeUnmap, &[SPACE, 5 * GIB, pages]);
    core.make(Call::ShareRemove, &[share, id]);
}

fn is_empty(place: *mut u8) -> bool {
    // SAFETY: a page of the pool.
    unsafe { std::slice::from_raw_parts(place.cast::<u64>(), 512) }.iter().all(|word| *word == 0)
}

#[test]
fn a_page_is_made_once_for_all_cores_by_any_touch() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 120, lock::SPIN);
    block.be(0);
    soil(&mut home, share, 40);
    let (range, id) = range_in(&mut home, share, 512, lock::SPIN);
    let [segment, segment_id, _] = home.run(Call::ShareSegment, &[share, 600, 0, 0]).unwrap();
    assert_eq!(home.run(Call::SegmentStat, &[segment]).unwrap(), [600, 0, 0], "larger than its pool, and empty");
    home.make(Call::RangeMap, &[range, 0, segment, 40, 512, READ_WRITE]);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    load(&mut home);
    let before = free(&home, share);
    let first = touch(&mut home, GIB + 3 * PAGE, Access::Read).unwrap();
    assert!(is_empty(first));
    assert_eq!((present(&mut home, segment), before - free(&home, share)), (1, 1), "its range is the leaves' table");
    assert!(is_mapped(&home, GIB + 3 * PAGE) && !is_mapped(&home, GIB + 4 * PAGE), "absent neighbours stay absent");
    block.be(1);
    load(&mut other);
    other.make(Call::RangeNest, &[SPACE, 2 * GIB, in_share(imported, id), READ_WRITE]);
    // The same segment in a range of this core's own.
    let own = 3 * GIB;
    other.make(Call::RangeMap, &[SPACE, own, in_share(imported, segment_id), 0, 600, READ_WRITE]);
    assert!(is_mapped(&other, 2 * GIB + 3 * PAGE), "one fault serves all");
    assert_eq!(touch(&mut other, own + 43 * PAGE, Access::Write), Some(first));
    let second = touch(&mut other, own + 44 * PAGE, Access::Write).unwrap();
    assert!(is_empty(second) && second != first);
    assert_eq!(touch(&mut other, own + 600 * PAGE, Access::Read), None, "past its end");
    block.be(0);
    assert_eq!(touch(&mut home, GIB + 4 * PAGE, Access::Write), Some(second));
    assert_eq!((present(&mut home, segment), before - free(&home, share)), (2, 2));
    // A copy has what is there; the rest stays away.
    let named = home.make(Call::ShareAdd, &[NONE, segment, ALL]);
    let copy = home.make(Call::SegmentCopy, &[RAM, named, abi::layout::copy::PLAIN]);
    home.drop(named);
    assert_eq!(home.run(Call::SegmentStat, &[copy]).unwrap(), [600, 2, 0]);
    home.drop(copy);
    home.make(Call::RangeUnmap, &[SPACE, GIB, 512]);
    home.make(Call::ShareRemove, &[share, segment_id]);
    [range, share].into_iter().for_each(|handle| home.drop(handle));
    block.be(1);
    other.make(Call::RangeUnmap, &[SPACE, 2 * GIB, 512]);
    other.make(Call::RangeUnmap, &[SPACE, own, 600]);
    other.drop(imported);
    other.close();
    block.be(0);
    home.close();
}

#[test]
fn a_full_pool_stops_who_touches_and_loses_nothing() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 24, lock::SPIN);
    block.be(0);
    let untouched = free(&home, share);
    let [[range, id], [segment, segment_id]] = mapped_range(&mut home, share, 100, 0);
    let refused = home.run(Call::ShareSegment, &[share, 253_952, 0, 0]);
    assert_eq!(refused, Err(Error::NoMemory), "no room for a word per page");
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    block.be(1);
    other.make(Call::RangeNest, &[SPACE, GIB, in_share(imported, id), READ_WRITE]);
    block.be(0);
    let pages = (0..100).take_while(|page| touch(&mut home, GIB + page * PAGE, Access::Write).is_some()).count() as u64;
    assert_eq!((present(&mut home, segment), free(&home, share)), (pages, 0));
    for (number, core) in [&mut home, &mut other].into_iter().enumerate() {
        block.be(number);
        let root = core.actor.domain.range();
        let refused = root.resolve(&mut core.world.kernel, GIB + pages * PAGE, Access::Read);
        assert_eq!(refused, Err(Refused::NoMemory), "who touches is told");
        assert!(touch(core, GIB, Access::Write).is_some_and(is_empty), "what is there stays");
    }
    block.be(0);
    let entry = home.run(Call::RangeUnmap, &[range, 0, 1]);
    assert_eq!(entry.unwrap()[0], 1);
    assert_eq!(present(&mut home, segment), pages, "unmapped is not gone");
    home.make(Call::RangeUnmap, &[range, 0, 100]);
    home.make(Call::ShareRemove, &[share, segment_id]);
    home.make(Call::RangeUnmap, &[SPACE, GIB, 512]);
    home.make(Call::ShareRemove, &[share, id]);
    home.drop(range);
    block.be(1);
    other.make(Call::RangeUnmap, &[SPACE, GIB, 512]);
    block.be(0);
    home.ring();
    block.be(1);
    assert_eq!(free(&other, imported), untouched, "pages of the pool are missing");
    soil(&mut other, imported, 8);
    other.drop(imported);
    other.close();
    block.be(0);
    home.drop(share);
    home.close();
}

/// Looks at pages of a segment, one after the other at the same place.
fn look(core: &mut Core, segment: u64, pages: impl Iterator<Item = u64>, mut f: impl FnMut(*mut u8)) {
    for page in pages {
        core.make(Call::RangeMap, &[SPACE, GIB, segment, page, 1, READ_WRITE]);
        f(touch(core, GIB, Access::Write).unwrap());
        core.make(Call::RangeUnmap, &[SPACE, GIB, 1]);
    }
}

/// The entries of a segment are cleared in steps, and a run is made page by page, past pages that
/// are used; what was given up goes with its maker's next call. `World::run` measures each step.
#[test]
fn a_large_segment_is_made_in_bounded_steps() {
    const PAGES: u64 = 3000;
    let block = Block::of(1, PAGES + 300);
    let mut home = block.core(0);
    let share = home.pool(PAGES, lock::SPIN);
    let untouched = free(&home, share);
    // All are written to: what is not cleared later shows.
    let [soiled, id, _] = home.run(Call::ShareSegment, &[share, untouched - 2, 0, 0, CONTIGUOUS]).unwrap();
    assert!(free(&home, share) <= 1);
    // SAFETY: a page of the pool.
    let soil = |place: *mut u8| unsafe { place.cast::<[u64; 512]>().write([u64::MAX; 512]) };
    look(&mut home, soiled, 0..untouched - 2, soil);
    home.make(Call::ShareRemove, &[share, id]);
    home.ring();
    assert_eq!(free(&home, share), untouched);

    // 300 pages of entries, more than a step clears.
    let wide = [share, 150_000, 0, 0, 0, 0];
    assert!(one_step(&mut home.world, home.actor, Call::ShareSegment, wide));
    assert_eq!(home.run(Call::ShareStat, &[share]).unwrap()[0], 0, "nobody knows it yet");
    let [segment, id, _] = home.run(Call::ShareSegment, &wide).unwrap();
    home.ring();
    assert_eq!(free(&home, share), untouched - 150_024 / 512 - 1, "what was given up has gone");
    look(&mut home, segment, [0, 40_000, 80_000, 120_000, 149_999].into_iter(), |place| assert!(is_empty(place)));
    home.make(Call::ShareRemove, &[share, id]);
    home.ring();
    assert_eq!(free(&home, share), untouched);

    // Free pages in runs of 199 and of 9, and at the end one that is long enough.
    let ids = (0..12).map(|number| {
        let gap = home.run(Call::ShareSegment, &[share, [199, 9][number % 2] - 1, 0, 0, CONTIGUOUS]).unwrap()[1];
        (gap, home.run(Call::ShareSegment, &[share, 1, 0, 0, 0]).unwrap()[1])
    });
    let (gaps, walls): (Vec<_>, Vec<_>) = ids.collect();
    gaps.into_iter().for_each(|id| _ = home.make(Call::ShareRemove, &[share, id]));
    home.ring();
    let before = free(&home, share);
    let run = [share, 1000, 0, 0, CONTIGUOUS, 0];
    assert!(one_step(&mut home.world, home.actor, Call::ShareSegment, run));
    // One that goes on with another size, or flag, begins anew.
    for forged in [[share, 5, 0, 0, CONTIGUOUS, 1], [share, 1000, 0, 0, 0, 1]] {
        let [made, id, _] = home.run(Call::ShareSegment, &forged).unwrap();
        assert_eq!(home.run(Call::SegmentStat, &[made]).unwrap()[0], forged[1]);
        home.make(Call::ShareRemove, &[share, id]);
    }
    home.ring();
    assert_eq!(free(&home, share), before);
    let [segment, id, _] = home.run(Call::ShareSegment, &run).unwrap();
    assert_eq!(free(&home, share), before - 1001);
    let mut places = Vec::new();
    look(&mut home, segment, 0..1000, |place| {
        assert!(is_empty(place));
        places.push(place.addr());
    });
    assert!(places.windows(2).all(|two| two[1] == two[0] + PAGE as usize), "it is one run");
    // So many are free, and not in one run.
    let refused = home.run(Call::ShareSegment, &[share, before - 1002, 0, 0, CONTIGUOUS]);
    assert_eq!(refused, Err(Error::NoMemory));
    home.ring();
    assert_eq!(free(&home, share), before - 1001, "a refusal leaves nothing");
    // Nor does one that is given up: it goes with what is made next.
    assert!(one_step(&mut home.world, home.actor, Call::ShareSegment, [share, 900, 0, 0, CONTIGUOUS, 0]));
    assert!(free(&home, share) < before - 1001);
    let next = home.make(Call::SegmentAlloc, &[RAM, 1, abi::layout::segment::EAGER]);
    home.drop(next);
    home.ring();
    assert_eq!(free(&home, share), before - 1001);
    walls.into_iter().chain([id]).for_each(|id| _ = home.make(Call::ShareRemove, &[share, id]));
    home.ring();
    assert_eq!(free(&home, share), untouched, "pages of the pool are missing");
    home.drop(share);
    home.close();
}

/// A pool that is full up to its end, after what was free at its beginning was taken: a search for
/// a page reads a word for each group of pages. `World::run` asserts the bound of each step.
#[test]
fn a_search_for_a_page_skips_what_is_full() {
    const POOL: u64 = 16 * 1024;
    const LEFT: u64 = 8;
    let block = Block::of(1, POOL + 400);
    let mut home = block.core(0);
    let share = home.pool(POOL, lock::SPIN);
    let before = free(&home, share);
    let [_, first, _] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    let [_, many, _] = home.run(Call::ShareSegment, &[share, before - LEFT, 0, 0, CONTIGUOUS]).unwrap();
    home.make(Call::ShareRemove, &[share, first]);
    let mut left = Vec::new();
    while let Ok([_, id, _]) = home.run(Call::ShareSegment, &[share, 1, 0, 0, CONTIGUOUS]) {
        left.push(id);
    }
    assert!(!left.is_empty() && free(&home, share) <= 1, "{} of the last pages were not found", free(&home, share));
    for id in left.into_iter().chain([many]) {
        home.make(Call::ShareRemove, &[share, id]);
        home.ring();
    }
    assert_eq!(free(&home, share), before, "each group has its pages back");
    home.drop(share);
    home.close();
}
