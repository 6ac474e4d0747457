//! What other cores do while one waits for them, each at its place in one thread: readers, pools
//! that end, and shootdowns.

use super::shared::{ALL, Block, CONTIGUOUS, Core, NONE, PCORE, RAM, READ_WRITE, in_share, pair};
use super::shared_ranges::{GIB, PAGE, READ, SPACE, exhaust, import, is_mapped, load, mapped_range, range_in, touch};
use super::shared_segments::free;
use super::steps::one_step;
use crate::arch::paging::{Flags, translate, view};
use crate::hardware::{
    Flush, posted, send_tlb_shootdown, set_alone, set_last_look, set_meanwhile, take_flushes, take_shootdowns,
};
use crate::memory::PhysAddr;
use crate::objects::fault::Access;
use crate::objects::remote::SHARED_SLOT;
use crate::objects::{Ptr, Ram};
use crate::shared::PoolOwner;
use crate::shared::registry::reader;
use crate::steps::Budget;
use abi::layout::{domain, lock, protection, range_stat};
use abi::{Call, Error, Handle, RangeEntry};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Pages of a large one.
const LARGE: u64 = 512;

/// Counts looks; at the third the other core leaves its section.
fn leave_at_the_third_look<S: 'static>(section: S, check: impl Fn() + 'static) -> Rc<Cell<u32>> {
    let (mut section, looks) = (Some(section), Rc::new(Cell::new(0)));
    let counted = looks.clone();
    set_meanwhile(Some(Box::new(move || {
        check();
        counted.set(counted.get() + 1);
        drop(section.take_if(|_| counted.get() == 3));
    })));
    looks
}

#[test]
fn a_core_that_removes_a_name_waits_for_readers() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 32, lock::SPIN);
    block.be(0);
    let [_, id, _] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    block.be(1);
    let section = reader().enter();
    block.be(0);
    let (named, held) = (home.named(share), free(&home, share));
    let looks = leave_at_the_third_look(section, move || {
        let (names, _, free) = named.stat().unwrap();
        assert_eq!((names, free), (0, held), "nobody finds it, and what was found stays");
    });
    home.make(Call::ShareRemove, &[share, id]);
    set_meanwhile(None);
    assert_eq!(looks.get(), 3, "until the reader has ended");
    assert!(free(&home, share) > held);
    block.be(1);
    other.drop(imported);
    other.close();
    block.be(0);
    home.drop(share);
    home.close();
}

#[test]
fn a_pool_goes_when_no_core_can_be_looking_for_it() {
    let block = Block::new(2);
    let other = block.core(1);
    let section = reader().enter();
    let mut home = block.core(0);
    let share = home.pool(32, lock::SPIN);
    let looks = leave_at_the_third_look(section, || ());
    home.drop(share);
    set_meanwhile(None);
    assert_eq!(looks.get(), 3, "one that never had a name of it may read its address");
    home.close();
    block.be(1);
    other.close();
}

/// The first pool that an account pays for.
fn pool_of(home: &Core, account: u64) -> Ptr<PoolOwner> {
    let ram: Ptr<Ram> = home.actor.domain.share().get(Handle(account)).unwrap().object.cast().unwrap();
    let mut next = ram.objects.first();
    while let Some(object) = next {
        if let Ok(pool) = object.cast() {
            return pool;
        }
        next = crate::objects::Linked::<0>::link(&*object).next();
    }
    panic!("no pool");
}

/// Its home is not the first core, and those who name it are not all.
#[test]
fn a_pool_that_dies_is_told_to_who_names_it_and_ends_with_the_last() {
    let block = Block::new(3);
    let mut other = block.core(2);
    let mut home = block.core(1);
    let account = home.make(Call::RamSplit, &[RAM, 100]);
    let make = |home: &mut Core| home.make(Call::ShareAlloc, &[NONE, account, 32, lock::SPIN, 0, 0]);
    let end = |home: &mut Core| {
        let owner = pool_of(home, account);
        home.world.kernel.retain(owner);
        let is_done = home.world.kernel.end_pool(owner, &mut Budget::all());
        home.world.kernel.release(owner);
        is_done
    };
    make(&mut home);
    assert!(end(&mut home), "nobody else names it: it ends in one step");
    home.world.kernel.drain_all();
    let share = make(&mut home);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    block.be(2);
    let imported = other.make(Call::ShareImport, &[PCORE, RAM, pool]);
    block.be(1);
    posted();
    assert!(!end(&mut home), "another core names it");
    assert_eq!(posted(), Some((2, SHARED_SLOT)));
    assert!(!end(&mut home));
    assert_eq!(posted(), None, "once");
    block.be(2);
    other.world.kernel.on_shared_doorbell();
    other.world.kernel.drain_all();
    assert_eq!(posted(), Some((1, SHARED_SLOT)), "the last name tells the home");
    assert_eq!(other.run(Call::ShareStat, &[imported]), Err(Error::BadHandle));
    other.close();
    block.be(1);
    home.ring();
    assert_eq!(home.make(Call::RamRevoke, &[account]), 0);
    home.drop(account);
    home.close();
}

#[test]
fn a_dead_pool_leaves_a_core_in_bounded_steps_however_often_it_is_mapped() {
    const MAPPINGS: u64 = 1000;
    let block = Block::new(2);
    let mut other = block.core(1);
    let mut home = block.core(0);
    let account = home.make(Call::RamSplit, &[RAM, 100]);
    let share = home.make(Call::ShareAlloc, &[NONE, account, 32, lock::SPIN, 0, 0]);
    let [_, id, _] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    block.be(1);
    let imported = other.make(Call::ShareImport, &[PCORE, RAM, pool]);
    // By one name of it, which has all of them.
    let segment = other.make(Call::ShareAdd, &[NONE, in_share(imported, id), ALL]);
    for page in (0..MAPPINGS).map(|number| 2 * number) {
        other.make(Call::RangeMap, &[SPACE, GIB + page * PAGE, segment, 0, 1, READ_WRITE]);
    }
    let last = GIB + 2 * (MAPPINGS - 1) * PAGE;
    for address in [GIB, last] {
        touch(&mut other, address, Access::Write).unwrap();
    }
    block.be(0);
    assert_eq!(home.make(Call::RamRevoke, &[account]), 1);
    block.be(1);
    assert!(other.ring() > 2, "more than a step does");
    assert!(!is_mapped(&other, GIB) && !is_mapped(&other, last));
    let next = RangeEntry::from_words(other.run(Call::RangeGet, &[SPACE, GIB]).unwrap());
    assert!(next.start > last, "all of it");
    other.close();
    block.be(0);
    home.ring();
    assert_eq!(home.make(Call::RamRevoke, &[account]), 0);
    home.drop(account);
    home.close();
}

/// Two cores that map a range with large pages of a segment, which begin at 2 MiB of the range;
/// where they are.
struct Large {
    block: Rc<Block>,
    home: Core,
    other: Rc<RefCell<Core>>,
    share: u64,
    imported: u64,
    range: u64,
    theirs: u64,
    segment: u64,
    frame: PhysAddr,
    /// The first page of the segment that is there.
    first: u64,
}

/// Where the large page is in the range, and a page that is mapped alone.
const AT: u64 = LARGE * PAGE;
const ALONE: u64 = 2 * AT;
/// Pages before the large one, each mapped alone: more than a step unmaps.
const BEFORE: u64 = 200;
/// A page of the large one, behind its first 16.
const REST: u64 = AT + 20 * PAGE;

fn large() -> Large {
    set_alone(true);
    let block = Rc::new(Block::of(2, 2200));
    let (mut home, mut other, [share, imported]) = pair(&block, 1700, lock::SPIN);
    block.be(0);
    let (range, id) = range_in(&mut home, share, 1 << 18, lock::SPIN);
    let [segment, segment_id, _] = home.run(Call::ShareSegment, &[share, 1100, 0, 0, CONTIGUOUS]).unwrap();
    let found = home.named(share).find(segment_id).unwrap();
    let base = found.object.base().unwrap();
    found.end(&home.world.kernel);
    let first = (LARGE - base.0 / PAGE % LARGE) % LARGE;
    let frame = base + first * PAGE;
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    load(&mut home);
    block.be(1);
    let theirs = other.make(Call::ShareAdd, &[NONE, in_share(imported, id), ALL]);
    other.make(Call::RangeNest, &[SPACE, 2 * GIB, theirs, READ_WRITE]);
    load(&mut other);
    block.be(0);
    let other = Rc::new(RefCell::new(other));
    Large { block, home, other, share, imported, range, theirs, segment, frame, first }
}

impl Large {
    fn map(&mut self, place: u64, pages: u64) {
        self.home.make(Call::RangeMap, &[self.range, place, self.segment, self.first, pages, READ_WRITE]);
    }

    /// Where this core sees a page of the range.
    fn seen(&self, place: u64) -> Option<PhysAddr> {
        translate(self.home.actor.domain.range().root(), GIB + place, Flags::NONE)
    }

    fn end(self) {
        let Large { block, mut home, other, share, imported, range, theirs, .. } = self;
        block.be(1);
        let mut other = Rc::into_inner(other).unwrap().into_inner();
        [theirs, imported].into_iter().for_each(|handle| other.drop(handle));
        other.make(Call::RangeUnmap, &[SPACE, 2 * GIB, 1 << 18]);
        other.close();
        block.be(0);
        home.make(Call::RangeUnmap, &[SPACE, GIB, 1 << 18]);
        [range, share].into_iter().for_each(|handle| home.drop(handle));
        home.close();
    }

    /// Another core does this while the first waits for it.
    fn meanwhile(&self, act: impl Fn(&mut Core) + 'static) {
        let (block, other, is_done) = (self.block.clone(), self.other.clone(), Cell::new(false));
        set_last_look(Some(Box::new(move || {
            if !is_done.replace(true) {
                block.be(1);
                act(&mut other.borrow_mut());
                block.be(0);
            }
        })));
    }

    /// Maps a large page, and cuts it by a call that is given up after a step: to unmap many
    /// pages before it, and its first 16.
    fn cut(&mut self) {
        self.map(AT, LARGE);
        touch(&mut self.home, GIB + AT, Access::Write).unwrap();
        assert!(self.seen(AT + (LARGE - 1) * PAGE).is_some());
        (1..=BEFORE).for_each(|page| self.map(AT - page * PAGE, 1));
        let unmap = [self.range, AT - BEFORE * PAGE, BEFORE + 16, 0, 0, 0];
        assert!(one_step(&mut self.home.world, self.home.actor, Call::RangeUnmap, unmap), "it takes more steps");
        let cut = RangeEntry::from_words(self.home.run(Call::RangeGet, &[self.range, AT]).unwrap());
        assert_eq!((cut.start, cut.pages), (AT, 16));
        take_shootdowns();
    }

    /// An access behind the cut takes the large page apart, and waits for the other core, which saw
    /// it as one.
    fn take_apart(&mut self) -> bool {
        let place = touch(&mut self.home, GIB + REST, Access::Write);
        set_last_look(None);
        assert!(take_shootdowns().contains(&1));
        place.is_some()
    }
}

#[test]
fn one_fault_maps_a_large_page_unless_a_table_is_there() {
    let mut large = large();
    large.map(AT, LARGE);
    let at = AT + 5 * PAGE;
    let resolve = |large: &mut Large, place: u64| {
        let range = large.home.actor.domain.range();
        range.resolve(&mut large.home.world.kernel, GIB + place, Access::Write)
    };
    assert_eq!(resolve(&mut large, at + 0x123), Ok(large.frame + 5 * PAGE));
    for page in [0, 1, 5, LARGE - 1] {
        assert_eq!(large.seen(AT + page * PAGE), Some(large.frame + page * PAGE), "page {page}");
    }
    large.map(ALONE, 1);
    resolve(&mut large, ALONE).unwrap();
    large.home.make(Call::RangeUnmap, &[large.range, ALONE, 1]);
    large.map(ALONE, LARGE);
    assert_eq!(resolve(&mut large, ALONE + 3 * PAGE + 0x123), Ok(large.frame + 3 * PAGE));
    for page in 0..16 {
        assert_eq!(large.seen(ALONE + page * PAGE), Some(large.frame + page * PAGE), "page {page}");
    }
    assert_eq!(large.seen(ALONE + 16 * PAGE), None, "a table that other processors walk stays");
    large.end();
}

#[test]
fn what_another_core_unmapped_while_an_access_waited_is_not_there() {
    let mut large = large();
    large.cut();
    assert!(large.take_apart(), "nothing came between");
    assert_eq!(large.seen(REST), Some(large.frame + (REST - AT)));
    large.end();

    let mut large = self::large();
    large.cut();
    let theirs = large.theirs;
    large.meanwhile(move |other| _ = other.make(Call::RangeUnmap, &[theirs, AT, LARGE]));
    assert!(!large.take_apart(), "it was unmapped meanwhile");
    large.end();
}

#[test]
fn a_page_that_another_core_gave_back_while_an_access_waited_serves_it() {
    let mut large = large();
    large.cut();
    let taken = exhaust(&mut large.home, large.share);
    let (imported, id) = (large.imported, taken[0]);
    large.meanwhile(move |other| _ = other.make(Call::ShareRemove, &[imported, id]));
    assert!(large.take_apart(), "there is a page for a table now");
    large.end();
}

/// A page's protection is reduced, and a core that may still write to it has not flushed it yet:
/// who copies the page then waits for that core, too.
#[test]
fn a_copy_waits_for_what_another_core_took_away_just_now() {
    set_alone(true);
    let block = Rc::new(Block::new(3));
    let mut third = block.core(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 100, lock::SPIN);
    block.be(0);
    let [[range, id], [_, source]] = mapped_range(&mut home, share, 4, 0);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    block.be(1);
    other.make(Call::RangeNest, &[SPACE, GIB, in_share(imported, id), READ_WRITE]);
    touch(&mut other, GIB, Access::Write).unwrap();
    block.be(2);
    let [theirs, _] = import(&mut third, pool, id);
    take_shootdowns();
    block.be(0);
    let copies = Rc::new(RefCell::new(Vec::new()));
    let third = Rc::new(RefCell::new(third));
    let (noted, copier, machine) = (copies.clone(), third.clone(), block.clone());
    set_last_look(Some(Box::new(move || {
        machine.be(2);
        let words = [theirs, in_share(theirs, source), 0, 0];
        copier.borrow_mut().run(Call::ShareCopy, &words).unwrap();
        noted.borrow_mut().push(take_shootdowns());
        machine.be(0);
    })));
    home.make(Call::RangeProtect, &[range, 0, 4, READ]);
    set_last_look(None);
    assert_eq!(copies.borrow()[0], [0, 1], "it is shot down on each that maps the range");
    take_shootdowns();
    block.be(2);
    let third = &mut third.borrow_mut();
    third.run(Call::ShareCopy, &[theirs, in_share(theirs, source), 0, 0]).unwrap();
    assert_eq!(take_shootdowns(), [], "nobody can write any more, so nobody is told");
    assert_eq!(third.world.kernel.counters.shootdowns_sent.0, 2);
}

/// The core that changes a range is not the first.
#[test]
fn a_core_flushes_what_it_maps_itself_and_shoots_down_the_others() {
    set_alone(true);
    let block = Block::new(3);
    let mut third = block.core(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 100, lock::SPIN);
    block.be(0);
    let [[range, id], _] = mapped_range(&mut home, share, 4, 0);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    block.be(1);
    let theirs = other.make(Call::ShareAdd, &[NONE, in_share(imported, id), ALL]);
    other.make(Call::RangeNest, &[SPACE, GIB, theirs, READ_WRITE]);
    load(&mut other);
    block.be(2);
    let [_, of_third] = import(&mut third, pool, id);
    let changes = [(1, theirs, vec![0], vec![Flush::All]), (2, of_third, vec![0, 1], vec![])];
    for (number, range, told, flushed) in changes {
        block.be(1);
        touch(&mut other, GIB, Access::Write).unwrap();
        take_shootdowns();
        take_flushes();
        block.be(number);
        let core = if number == 1 { &mut other } else { &mut third };
        core.make(Call::RangeProtect, &[range, 0, 4, READ]);
        assert_eq!((take_shootdowns(), take_flushes()), (told, flushed), "core {number}");
        core.make(Call::RangeProtect, &[range, 0, 4, READ_WRITE]);
    }
    assert_eq!(third.run(Call::RangeStat, &[of_third, range_stat::LOCK]).unwrap()[2], 2, "both told others");
    // What others ask is counted where it is served.
    block.be(0);
    send_tlb_shootdown(1);
    block.be(1);
    (0..2).for_each(|_| other.world.kernel.service_tlb_shootdowns());
    assert_eq!((take_flushes(), other.world.kernel.counters.shootdowns_serviced.0), (vec![Flush::All], 1));
}

#[test]
fn cores_that_map_a_range_are_counted_whatever_lies_beside() {
    const MAPPINGS: u64 = 100;
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 100, lock::SPIN);
    block.be(0);
    let (range, id) = range_in(&mut home, share, 1 << 18, lock::MCS);
    let counts = |core: &mut Core, what: u64| core.run(Call::RangeStat, &[range, what]).unwrap();
    assert_eq!(counts(&mut home, range_stat::LOCK), [0, 0, 0], "a look does not count itself");
    assert_eq!(counts(&mut home, range_stat::LOCK), [1, 0, 0], "but those before");
    let [segment, ..] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    block.be(1);
    other.make(Call::RangeNest, &[SPACE, GIB, in_share(imported, id), READ_WRITE]);
    block.be(0);
    for page in 0..MAPPINGS {
        home.make(Call::RangeMap, &[range, page * PAGE, segment, 0, 1, READ_WRITE]);
    }
    assert_eq!(counts(&mut home, range_stat::FAULTS)[2], 1);
    assert_eq!(counts(&mut home, range_stat::LOCK)[0], 3 + MAPPINGS);
    block.be(1);
    other.make(Call::RangeUnmap, &[SPACE, GIB, 1 << 18]);
    other.drop(imported);
    other.close();
    block.be(0);
    assert_eq!(counts(&mut home, range_stat::FAULTS)[2], 0);
    [range, share].into_iter().for_each(|handle| home.drop(handle));
    home.close();
}

#[test]
fn code_is_writable_only_in_a_range_that_was_made_for_it() {
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(64, lock::SPIN);
    let [segment, ..] = home.run(Call::ShareSegment, &[share, 1, 0, 0]).unwrap();
    let open = READ_WRITE | protection::EXECUTE;
    for (flags, expected) in [(0, Err(Error::BadArgument)), (domain::WRITE_EXECUTE, Ok([0; 3]))] {
        let [handle, ..] = home.run(Call::ShareRange, &[share, 1, lock::SPIN, 0, 0, flags]).unwrap();
        let range = home.make(Call::ShareAdd, &[NONE, handle, ALL]);
        assert_eq!(home.run(Call::RangeMap, &[range, 0, segment, 0, 1, open]), expected);
        if expected.is_err() {
            home.make(Call::RangeMap, &[range, 0, segment, 0, 1, READ]);
        }
        assert_eq!(home.run(Call::RangeProtect, &[range, 0, 1, open]), expected);
        home.drop(range);
    }
    home.drop(share);
    home.close();
}

#[test]
fn a_run_is_made_of_the_last_free_page_and_of_none_behind_it() {
    // Its last counts are in a line that is not full.
    const POOL: u64 = 61;
    let block = Block::new(1);
    let mut home = block.core(0);
    let share = home.pool(POOL, lock::SPIN);
    let run = |home: &mut Core, pages: u64| home.run(Call::ShareSegment, &[share, pages, 0, 0, CONTIGUOUS]);
    let all = free(&home, share);
    let [_, id, _] = run(&mut home, all - 1).unwrap();
    assert_eq!(free(&home, share), 0, "itself and its run");
    home.make(Call::ShareRemove, &[share, id]);
    home.ring();
    let [_, gap, _] = run(&mut home, 10).unwrap();
    let wall = run(&mut home, 1).unwrap()[1];
    home.make(Call::ShareRemove, &[share, gap]);
    home.ring();
    let rest = all - 11 - 2;
    assert_eq!(free(&home, share), 11 + rest);
    assert_eq!(run(&mut home, rest + 1), Err(Error::NoMemory), "its end would lie behind the pool");
    home.ring();
    assert_eq!(free(&home, share), 11 + rest);
    let [_, id, _] = run(&mut home, rest).unwrap();
    [id, wall].into_iter().for_each(|id| _ = home.make(Call::ShareRemove, &[share, id]));
    home.ring();
    assert_eq!(free(&home, share), all);
    home.drop(share);
    home.close();
}

#[test]
fn a_thousand_pages_are_freed_in_one_step_of_the_home() {
    let block = Block::of(1, 1500);
    let mut home = block.core(0);
    let share = home.pool(1200, lock::SPIN);
    let before = free(&home, share);
    let [_, id, _] = home.run(Call::ShareSegment, &[share, 1000, 0, 0, CONTIGUOUS]).unwrap();
    home.make(Call::ShareRemove, &[share, id]);
    assert!(free(&home, share) < before);
    assert_eq!((home.ring(), free(&home, share)), (1, before));
    home.drop(share);
    home.close();
}

/// The other pages stay as writable as they are until their turn comes.
#[test]
fn a_copy_takes_rights_from_the_pages_of_its_step_only() {
    const PAGES: u64 = 2000;
    // A page of the second step, and one that comes later.
    const SECOND: u64 = 600;
    const LATER: u64 = 1900;
    let block = Block::of(1, 400);
    let mut home = block.core(0);
    let share = home.pool(200, lock::SPIN);
    let (range, _) = range_in(&mut home, share, 1 << 18, lock::SPIN);
    let [source, ..] = home.run(Call::ShareSegment, &[share, PAGES, 0, 0]).unwrap();
    home.make(Call::RangeMap, &[range, 0, source, 0, PAGES, READ_WRITE]);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    load(&mut home);
    let is_writable = |home: &Core, page: u64| {
        let entry = view(home.actor.domain.range().root(), GIB + page * PAGE).unwrap();
        entry.flags().contains(Flags::WRITE)
    };
    for page in [SECOND, LATER] {
        touch(&mut home, GIB + page * PAGE, Access::Write).unwrap();
    }
    let mut words = [share, source, 0, 0, 0, 0];
    let mut seen = Vec::new();
    while one_step(&mut home.world, home.actor, Call::ShareCopy, words) {
        words = home.actor.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
        seen.push([SECOND, LATER].map(|page| is_writable(&home, page)));
    }
    seen.dedup();
    assert_eq!(seen, [[true, true], [false, true]]);
    assert!(!is_writable(&home, LATER), "the last step took the rest");
    home.make(Call::RangeUnmap, &[SPACE, GIB, 1 << 18]);
    [range, share].into_iter().for_each(|handle| home.drop(handle));
    home.close();
}
