//! Copies of a pool's segments that share pages until either side writes: as they were at one
//! moment, and no core sees an old page in a new one's place.

use super::shared::{ALL, Block, CONTIGUOUS, Core, NONE, RAM, READ_WRITE, in_share, pair};
use super::shared_ranges::{GIB, PAGE, READ, SPACE, exhaust, load, mapped_range, range_in, touch};
use super::shared_segments::free;
use super::steps::one_step;
use crate::hardware::{set_alone, set_last_look, take_shootdowns};
use crate::objects::fault::Access;
use abi::layout::{lock, protection};
use abi::{Call, Error, Rights};
use std::cell::Cell;
use std::rc::Rc;

/// Where the copy is mapped, in the range.
const COPY: u64 = 64 * PAGE;
const PAGES: u64 = 8;

fn word(core: &mut Core, address: u64, access: Access) -> *mut u64 {
    touch(core, address, access).unwrap().cast()
}

fn write(core: &mut Core, address: u64, value: u64) {
    // SAFETY: a page of the pool, for this test alone.
    unsafe { word(core, address, Access::Write).write(value) }
}

fn read(core: &mut Core, address: u64) -> u64 {
    // SAFETY: as above.
    unsafe { word(core, address, Access::Read).read() }
}

/// Two cores that map a range with a segment of [`PAGES`], whose last page is absent.
struct Pair {
    block: Block,
    home: Core,
    other: Core,
    /// The pool, as each names it.
    share: u64,
    imported: u64,
    range: u64,
    range_id: u64,
    source: u64,
    source_id: u64,
    /// What the other core's processor remembers of the first page.
    stale: *mut u64,
    /// Free pages of the pool before.
    untouched: u64,
}

fn two_cores() -> Pair {
    set_alone(true);
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 100, lock::SPIN);
    block.be(0);
    let untouched = free(&home, share);
    let [[range, range_id], [source, source_id]] = mapped_range(&mut home, share, PAGES, 0);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    load(&mut home);
    (0..PAGES - 1).for_each(|page| write(&mut home, GIB + page * PAGE, 100 + page));
    block.be(1);
    load(&mut other);
    other.make(Call::RangeNest, &[SPACE, 2 * GIB, in_share(imported, range_id), READ_WRITE]);
    let stale = word(&mut other, 2 * GIB, Access::Write);
    take_shootdowns();
    block.be(0);
    Pair { block, home, other, share, imported, range, range_id, source, source_id, stale, untouched }
}

impl Pair {
    /// Copies while the other core writes, and maps the copy. What the other core writes until it
    /// has served the shootdown is in both; nothing that it writes is in one only.
    fn copy(&mut self) -> [u64; 2] {
        let (home, stale) = (&mut self.home, self.stale);
        set_last_look(Some(Box::new(move || {
            // SAFETY: as in `write`.
            unsafe { stale.write(stale.read() + 1) }
        })));
        let [copy, copy_id, _] = home.run(Call::ShareCopy, &[self.share, self.source, 7, 8]).unwrap();
        set_last_look(None);
        assert_eq!(take_shootdowns(), [1], "who may have written is waited for");
        assert_eq!(home.run(Call::ObjectName, &[copy]).unwrap()[..2], [7, 8]);
        assert_eq!(home.run(Call::SegmentStat, &[copy]).unwrap(), [PAGES, PAGES - 1, 0]);
        home.make(Call::RangeMap, &[self.range, COPY, copy, 0, PAGES, READ_WRITE]);
        [copy, copy_id]
    }

    /// Writes page 1 of the source. The other core remembers it for reading; its translation is
    /// invalidated before, and the old page is kept until then.
    fn write_source(&mut self) {
        self.block.be(1);
        assert_eq!(read(&mut self.other, 2 * GIB + PAGE), 101);
        self.block.be(0);
        let (home, stale) = (&mut self.home, self.stale);
        let kept = free(home, self.share) - 1;
        let (looks, pool) = (Rc::new(Cell::new(0)), home.named(self.share));
        let counted = looks.clone();
        set_last_look(Some(Box::new(move || {
            assert_eq!(pool.stat().unwrap().2, kept, "one page more, and none back");
            // SAFETY: as in `write`.
            assert_eq!(unsafe { stale.add(512).read() } >> 32, 0);
            counted.set(counted.get() + 1);
        })));
        write(home, GIB + PAGE, 5);
        set_last_look(None);
        assert_eq!((looks.get(), take_shootdowns()), (1, vec![1]));
        assert_eq!((read(home, GIB + PAGE), read(home, GIB + COPY + PAGE)), (5, 101));
    }

    /// Writes pages 1 and 2 of the copy, and the absent one of the source, on the other core.
    fn write_copy(&mut self) {
        self.block.be(1);
        let other = &mut self.other;
        assert_eq!((read(other, 2 * GIB + PAGE), read(other, 2 * GIB + COPY + PAGE)), (5, 101));
        // The copy is the last that has the old page, so it keeps it.
        let flushed = take_shootdowns();
        write(other, 2 * GIB + COPY + PAGE, 6);
        assert_eq!((flushed.len(), take_shootdowns()), (0, vec![]), "nobody has to flush for that");
        write(other, 2 * GIB + COPY + 2 * PAGE, 9);
        // A page that was absent is each one's own.
        write(other, 2 * GIB + (PAGES - 1) * PAGE, 11);
        self.block.be(0);
        let home = &mut self.home;
        assert_eq!((read(home, GIB + 2 * PAGE), read(home, GIB + COPY + 2 * PAGE)), (102, 9));
        assert_eq!((read(home, GIB + PAGE), read(home, GIB + COPY + PAGE)), (5, 6));
        assert_eq!(read(home, GIB + COPY + (PAGES - 1) * PAGE), 0);
    }

    /// A copy in the kernel's own way, of a core's own, has what the copy has.
    fn copy_for_this_core(&mut self, copy: u64) {
        let home = &mut self.home;
        let named = home.make(Call::ShareAdd, &[NONE, copy, ALL]);
        let private = home.make(Call::SegmentCopy, &[RAM, named, abi::layout::copy::PLAIN]);
        home.make(Call::RangeMap, &[SPACE, 5 * GIB, private, 0, PAGES, READ_WRITE]);
        assert_eq!((read(home, 5 * GIB), read(home, 5 * GIB + 2 * PAGE)), (101, 9));
        home.make(Call::RangeUnmap, &[SPACE, 5 * GIB, PAGES]);
        [named, private].into_iter().for_each(|handle| home.drop(handle));
    }

    /// The source goes first, and what the copy has stays; then all goes, and no page is missing.
    fn end(self, copy_id: u64) {
        let Pair { block, mut home, mut other, share, imported, range, range_id, source_id, untouched, .. } = self;
        home.make(Call::RangeUnmap, &[range, 0, PAGES]);
        home.make(Call::ShareRemove, &[share, source_id]);
        assert_eq!(read(&mut home, GIB + COPY), 101);
        home.make(Call::RangeUnmap, &[SPACE, GIB, 512]);
        block.be(1);
        write(&mut other, 2 * GIB + COPY, 12);
        other.make(Call::RangeUnmap, &[SPACE, 2 * GIB, 512]);
        block.be(0);
        for id in [copy_id, range_id] {
            home.make(Call::ShareRemove, &[share, id]);
        }
        home.drop(range);
        home.ring();
        assert_eq!(free(&home, share), untouched, "pages of the pool are missing");
        block.be(1);
        other.drop(imported);
        other.close();
        block.be(0);
        home.drop(share);
        home.close();
    }
}

#[test]
fn both_sides_have_what_was_there_and_part_page_by_page() {
    let mut pair = two_cores();
    let [copy, copy_id] = pair.copy();
    let before = free(&pair.home, pair.share);
    let home = &mut pair.home;
    assert_eq!((read(home, GIB), read(home, GIB + COPY)), (101, 101));
    assert_eq!(word(home, GIB, Access::Read), word(home, GIB + COPY, Access::Read), "one frame");
    pair.write_source();
    pair.write_copy();
    assert_eq!(before - free(&pair.home, pair.share), 4);
    assert_eq!(pair.home.world.kernel.counters.copy_faults.0, 1);
    pair.copy_for_this_core(copy);
    pair.end(copy_id);
}

#[test]
fn a_copy_is_refused_where_not_all_who_show_it_are_known() {
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(64, lock::SPIN);
    let untouched = free(&home, share);
    let copy = |core: &mut Core, segment: u64| core.run(Call::ShareCopy, &[share, segment, 0, 0]);
    let make = |core: &mut Core, flags: u64| core.run(Call::ShareSegment, &[share, 4, 0, 0, flags]).unwrap();
    let map = |core: &mut Core, range: u64, segment: u64| core.run(Call::RangeMap, &[range, GIB, segment, 0, 4, READ]);
    let [segment, id, _] = make(&mut home, 0);
    let [whole, whole_id, _] = make(&mut home, CONTIGUOUS);
    let private = home.make(Call::SegmentAlloc, &[RAM, 4, 0]);
    assert_eq!(copy(&mut home, whole), Err(Error::BadArgument));
    assert_eq!(copy(&mut home, private), Err(Error::WrongType));
    assert_eq!(copy(&mut home, share), Err(Error::WrongType));
    let second = home.pool(16, lock::SPIN);
    let [foreign, ..] = home.run(Call::ShareSegment, &[second, 1, 0, 0]).unwrap();
    assert_eq!(copy(&mut home, foreign), Err(Error::BadArgument));
    let blind = home.make(Call::ShareAdd, &[NONE, segment, Rights::WRITE.0.into()]);
    assert_eq!(copy(&mut home, blind), Err(Error::NoRights));
    // A core's own range maps it.
    map(&mut home, SPACE, segment).unwrap();
    assert_eq!(copy(&mut home, segment), Err(Error::Busy));
    home.make(Call::RangeUnmap, &[SPACE, GIB, 4]);
    // Two ranges do.
    let ranges = [0, 1].map(|_| range_in(&mut home, share, 1 << 27, lock::SPIN));
    for (range, _) in ranges {
        map(&mut home, range, segment).unwrap();
    }
    assert_eq!(copy(&mut home, segment), Err(Error::Busy));
    home.make(Call::RangeUnmap, &[ranges[0].0, GIB, 4]);
    home.make(Call::RangeUnmap, &[ranges[1].0, GIB, 4]);
    // One does, or none.
    map(&mut home, ranges[0].0, segment).unwrap();
    let copies = [0, 1].map(|_| copy(&mut home, segment).unwrap());
    assert_eq!(map(&mut home, ranges[1].0, segment), Err(Error::Busy));
    assert_eq!(map(&mut home, SPACE, segment), Err(Error::Busy));
    assert_eq!(map(&mut home, SPACE, copies[0][0]), Err(Error::Busy));
    map(&mut home, ranges[1].0, copies[0][0]).unwrap();
    home.make(Call::RangeUnmap, &[ranges[0].0, GIB, 4]);
    home.make(Call::RangeMap, &[ranges[1].0, 2 * GIB, segment, 0, 4, READ]);
    home.make(Call::RangeProtect, &[ranges[1].0, 2 * GIB, 2, protection::READ]);
    home.make(Call::RangeUnmap, &[ranges[1].0, 2 * GIB + PAGE, 1]);
    assert_eq!(map(&mut home, ranges[0].0, segment), Err(Error::Busy), "parts of it are left");
    home.make(Call::RangeUnmap, &[ranges[1].0, 0, 1 << 27]);
    map(&mut home, ranges[0].0, segment).unwrap();
    home.make(Call::RangeUnmap, &[ranges[0].0, 0, 1 << 27]);
    let ids = [id, whole_id, copies[0][1], copies[1][1], ranges[0].1, ranges[1].1];
    [private, second, blind, ranges[0].0, ranges[1].0].into_iter().for_each(|handle| home.drop(handle));
    for id in ids {
        home.make(Call::ShareRemove, &[share, id]);
    }
    assert_eq!(free(&home, share), untouched, "pages of the pool are missing");
    home.drop(share);
    home.close();
}

#[test]
fn a_full_pool_refuses_a_page_of_ones_own_and_keeps_the_common_one() {
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(24, lock::SPIN);
    let [[range, _], [source, _]] = mapped_range(&mut home, share, 2, 0);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    write(&mut home, GIB, 1);
    let [copy, ..] = home.run(Call::ShareCopy, &[share, source, 0, 0]).unwrap();
    home.make(Call::RangeMap, &[range, COPY, copy, 0, 2, READ_WRITE]);
    let taken = exhaust(&mut home, share);
    assert_eq!(touch(&mut home, GIB, Access::Write), None);
    assert_eq!((read(&mut home, GIB), read(&mut home, GIB + COPY)), (1, 1));
    assert_eq!(home.run(Call::ShareCopy, &[share, source, 0, 0]), Err(Error::NoMemory));
    home.make(Call::ShareRemove, &[share, taken[0]]);
    write(&mut home, GIB, 2);
    assert_eq!((read(&mut home, GIB), read(&mut home, GIB + COPY)), (2, 1));
    home.make(Call::RangeUnmap, &[SPACE, GIB, 512]);
    [range, share].into_iter().for_each(|handle| home.drop(handle));
    home.close();
}

/// A copy of thousands of pages goes on with what it was begun of, and is what each page was when
/// its turn came; one that is given up, or refused, leaves nothing.
#[test]
fn a_large_copy_is_made_in_bounded_steps_and_ends_in_them() {
    const PAGES: u64 = 3000;
    const RANGE: u64 = 1 << 18;
    const COPY: u64 = GIB + 4096 * PAGE;
    let block = Block::of(1, 3 * PAGES);
    let mut home = block.core(0);
    let share = home.pool(2 * PAGES, lock::SPIN);
    let untouched = free(&home, share);
    let (range, id) = range_in(&mut home, share, RANGE, lock::SPIN);
    let [source, source_id, _] = home.run(Call::ShareSegment, &[share, PAGES, 0, 0]).unwrap();
    home.make(Call::RangeMap, &[range, 0, source, 0, PAGES, READ_WRITE]);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    load(&mut home);
    (0..PAGES).filter(|page| page % 3 != 1).for_each(|page| write(&mut home, GIB + page * PAGE, page + 1));
    let whole = free(&home, share);
    let words = [share, source, 7, 8];
    // Given up, and another one after it: nothing is left of the first.
    let mut begun = [0; 6];
    begun[..4].copy_from_slice(&words);
    assert!(one_step(&mut home.world, home.actor, Call::ShareCopy, begun));
    write(&mut home, GIB, 77);
    assert!(one_step(&mut home.world, home.actor, Call::ShareCopy, begun));
    home.ring();
    let others = home.run(Call::ShareSegment, &[share, PAGES, 0, 0]).unwrap();
    // A copy of another segment is not gone on with as one of this.
    let forged = [share, others[0], 0, 0, 1];
    let [other, other_id, _] = home.run(Call::ShareCopy, &forged).unwrap();
    assert_eq!(home.run(Call::SegmentStat, &[other]).unwrap(), [PAGES, 0, 0]);
    home.make(Call::ShareRemove, &[share, other_id]);
    home.make(Call::ShareRemove, &[share, others[1]]);
    home.ring();
    assert_eq!(free(&home, share), whole, "what was given up has gone");
    // Given up, and begun anew: it has nothing of what the first had of the same source.
    assert!(one_step(&mut home.world, home.actor, Call::ShareCopy, begun));
    write(&mut home, GIB, 78);
    // What is written between two steps is in the copy if its page's turn comes later.
    let mut steps = 1;
    while one_step(&mut home.world, home.actor, Call::ShareCopy, begun) {
        begun = home.actor.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
        assert_eq!(home.run(Call::ShareStat, &[share]).unwrap()[0], 2, "nobody knows it yet");
        write(&mut home, GIB + (PAGES - 1) * PAGE, 100 + steps);
        steps += 1;
    }
    assert!(steps > 4, "{steps} steps");
    let [copy, copy_id] = home.actor.context.with_registers(|r| [r.rdi, r.rsi]);
    assert_eq!(home.run(Call::SegmentStat, &[copy]).unwrap(), [PAGES, PAGES - PAGES / 3, 0]);
    home.make(Call::RangeMap, &[range, COPY - GIB, copy, 0, PAGES, READ_WRITE]);
    assert_eq!((read(&mut home, COPY), read(&mut home, COPY + (PAGES - 1) * PAGE)), (78, 99 + steps));
    write(&mut home, GIB + 3 * PAGE, 5);
    assert_eq!(read(&mut home, COPY + 3 * PAGE), 4);
    // The same in whole calls, each step of which is measured.
    let [_, again, _] = home.run(Call::ShareCopy, &words).unwrap();
    // Both end in bounded steps: at once is what a release does, the rest when the home is told.
    home.make(Call::RangeUnmap, &[range, 0, RANGE]);
    let before = free(&home, share);
    for id in [again, copy_id, source_id] {
        home.make(Call::ShareRemove, &[share, id]);
    }
    assert!(free(&home, share) < before + 200, "most is left to later steps");
    assert!(home.ring() > 3);
    home.make(Call::RangeUnmap, &[SPACE, GIB, RANGE]);
    home.make(Call::ShareRemove, &[share, id]);
    home.drop(range);
    home.ring();
    assert_eq!(free(&home, share), untouched, "pages of the pool are missing");
    home.drop(share);
    home.close();
}
