//! What nobody refers to any more in a pool: however large, it goes in bounded steps, and all of
//! it. `World::run` and `Core::ring` measure each.

use super::shared::{ALL, Block, NONE, READ_WRITE};
use super::shared_ranges::{GIB, PAGE, SPACE, load, range_in, touch};
use super::shared_segments::free;
use crate::objects::fault::Access;
use abi::Call;
use abi::layout::lock;

#[test]
fn a_share_of_thousands_of_names_ends_in_bounded_steps() {
    const NAMES: u64 = 2500;
    let block = Block::of(1, NAMES + 300);
    let mut home = block.core(0);
    let share = home.pool(NAMES + 200, lock::SPIN);
    let untouched = free(&home, share);
    let [inner, id, _] = home.run(Call::ShareAlloc, &[share, 0, 0, lock::SPIN, 0, 0]).unwrap();
    let inner = home.make(Call::ShareAdd, &[NONE, inner, ALL]);
    (0..NAMES).for_each(|_| _ = home.make(Call::ShareSegment, &[inner, 1, 0, 0]));
    home.make(Call::ShareRemove, &[share, id]);
    home.drop(inner);
    assert!(free(&home, share) < untouched - NAMES, "most is left to later steps");
    assert!(home.ring() > 50);
    assert_eq!(free(&home, share), untouched, "pages of the pool are missing");
    home.drop(share);
    home.close();
}

#[test]
fn a_range_of_thousands_of_mappings_and_tables_ends_in_bounded_steps() {
    const TABLES: u64 = 500;
    const OF_EACH: u64 = 3;
    const RANGE: u64 = 1 << 18;
    let block = Block::of(1, TABLES + 300);
    let mut home = block.core(0);
    let share = home.pool(TABLES + 200, lock::SPIN);
    let untouched = free(&home, share);
    let (range, id) = range_in(&mut home, share, RANGE, lock::SPIN);
    let [segment, segment_id, _] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    load(&mut home);
    for page in (0..TABLES).flat_map(|table| (0..OF_EACH).map(move |page| table * 512 + 2 * page)) {
        home.make(Call::RangeMap, &[range, page * PAGE, segment, 0, 1, READ_WRITE]);
        touch(&mut home, GIB + page * PAGE, Access::Write).unwrap();
    }
    home.make(Call::ShareRemove, &[share, segment_id]);
    home.make(Call::RangeUnmap, &[SPACE, GIB, RANGE]);
    home.make(Call::ShareRemove, &[share, id]);
    home.drop(range);
    assert!(free(&home, share) < untouched - TABLES, "most is left to later steps");
    // More than its mappings need.
    assert!(home.ring() > 20);
    assert_eq!(free(&home, share), untouched, "pages of the pool are missing");
    home.drop(share);
    home.close();
}
