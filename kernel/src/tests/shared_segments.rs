//! Demand-zero segments of a pool: the first touch on any core makes a page, once for all cores and
//! never in part.

use super::shared::{ALL, Block, Core, NONE, RAM, READ_WRITE, in_share, pair};
use super::shared_ranges::{GIB, PAGE, SPACE, is_mapped, load, mapped_range, range_in, touch};
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
