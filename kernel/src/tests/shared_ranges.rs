//! Ranges that several kernels map: one fault serves all, nobody sees what was taken away, and no
//! frame is used again before.

use super::Random;
use super::shared::{ALL, Block, CONTIGUOUS, Core, LIMIT, NONE, PCORE, RAM, READ_WRITE, in_share, pair};
use crate::arch::paging::{Flags, Pte, view};
use crate::hardware::{Flush, set_alone, set_last_look, take_flushes, take_shootdowns};
use crate::memory::phys_to_virt;
use crate::objects::fault::Access;
use abi::layout::{domain, lock, protection, range_stat};
use abi::{Call, Error, Handle, RangeEntry, Rights};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(super) const PAGE: u64 = 4096;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const SPACE: u64 = Handle::SELF_RANGE.0;
pub(super) const READ: u64 = protection::READ;

fn stat(core: &mut Core, range: u64, what: u64) -> [u64; 3] {
    core.run(Call::RangeStat, &[range, what]).unwrap()
}

/// A range of the share, with the core's own name of it.
pub(super) fn range_in(core: &mut Core, share: u64, pages: u64, kind: u64) -> (u64, u64) {
    let [handle, id, _] = core.run(Call::ShareRange, &[share, pages, kind, 1, 2, 0]).unwrap();
    assert_eq!(handle, in_share(share, id));
    (core.make(Call::ShareAdd, &[NONE, handle, ALL]), id)
}

/// A range of the share of 512 pages that maps a segment at its beginning: the range, by the
/// core's own name, and its id; the segment, by its handle in the share, and its id.
pub(super) fn mapped_range(core: &mut Core, share: u64, pages: u64, flags: u64) -> [[u64; 2]; 2] {
    let (range, id) = range_in(core, share, 512, lock::SPIN);
    let [segment, segment_id, _] = core.run(Call::ShareSegment, &[share, pages, 0, 0, flags]).unwrap();
    core.make(Call::RangeMap, &[range, 0, segment, 0, pages, READ_WRITE]);
    [[range, id], [segment, segment_id]]
}

/// Another core's names of a pool's first share, and of the range of that id.
pub(super) fn import(core: &mut Core, pool: u64, id: u64) -> [u64; 2] {
    let share = core.make(Call::ShareImport, &[PCORE, RAM, pool]);
    [share, core.make(Call::ShareAdd, &[NONE, in_share(share, id), ALL])]
}

/// Takes all that a pool has left: segments of a page.
pub(super) fn exhaust(core: &mut Core, share: u64) -> Vec<u64> {
    let take = || core.run(Call::ShareSegment, &[share, 1, 0, 0]).ok().map(|[_, id, _]| id);
    std::iter::from_fn(take).collect()
}

/// This core runs its one space.
pub(super) fn load(core: &mut Core) {
    core.world.kernel.loaded = Some(core.actor.domain.range());
}

pub(super) fn touch(core: &mut Core, address: u64, access: Access) -> Option<*mut u8> {
    let range = core.actor.domain.range();
    range.resolve(&mut core.world.kernel, address, access).ok().map(phys_to_virt)
}

pub(super) fn is_mapped(core: &Core, address: u64) -> bool {
    view(core.actor.domain.range().root(), address).is_some()
}

#[test]
fn one_fault_serves_all_cores_and_its_tables_are_there_once() {
    let block = Block::new(2);
    for kind in [lock::SPIN, lock::READ_WRITE, lock::MCS, lock::SCALABLE_READ_WRITE] {
        let (mut home, mut other, [share, imported]) = pair(&block, 200, kind);
        block.be(0);
        let (range, id) = range_in(&mut home, share, 513, kind);
        let [segment, ..] = home.run(Call::ShareSegment, &[share, 64, 0, 0, CONTIGUOUS]).unwrap();
        home.make(Call::RangeMap, &[range, 512 * PAGE, segment, 0, 64, READ_WRITE]);
        home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
        block.be(1);
        // Nested by the name in the share, without one of its own.
        other.make(Call::RangeNest, &[SPACE, 3 * GIB, in_share(imported, id), READ]);
        let (used, at) = (other.world.used(), 3 * GIB + 512 * PAGE);
        block.be(0);
        load(&mut home);
        let before = stat(&mut home, range, range_stat::FAULTS);
        assert_eq!(before, [0, 0, 2]);
        for page in 0..64 {
            let address = GIB + (512 + page) * PAGE;
            if !is_mapped(&home, address) {
                touch(&mut home, address, Access::Write).unwrap();
            }
        }
        assert_eq!(stat(&mut home, range, range_stat::FAULTS), [4, 1, 2], "16 pages a fault, one table");
        block.be(1);
        assert!((0..64).all(|page| is_mapped(&other, at + page * PAGE)), "no fault here");
        let root = other.actor.domain.range().root();
        assert!(
            !view(root, at).unwrap().flags().contains(Flags::WRITE),
            "as much as the other core's own entry allows"
        );
        assert_eq!(touch(&mut other, at, Access::Write), None);
        assert_eq!(other.world.used(), used, "and no page");
        block.be(0);
        let [acquires, waits, _] = stat(&mut home, range, range_stat::LOCK);
        assert_eq!([acquires, waits], [acquires.max(4), 0]);
        assert_eq!(home.make(Call::RangeUnmap, &[SPACE, GIB, 1 << 18]), 1 << 18);
        assert_eq!(stat(&mut home, range, range_stat::FAULTS), [4, 1, 1]);
        block.be(1);
        assert_eq!(other.make(Call::RangeUnmap, &[SPACE, 3 * GIB, 1 << 18]), 1 << 18);
        assert!(!is_mapped(&other, at));
        other.drop(imported);
        other.close();
        block.be(0);
        assert_eq!(stat(&mut home, range, range_stat::FAULTS), [4, 1, 0]);
        home.drop(range);
        home.drop(share);
        home.close();
    }
}

#[test]
fn frames_are_free_when_the_last_core_has_forgotten_and_not_before() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 64, lock::SPIN);
    block.be(0);
    let [[range, id], [_, segment_id]] = mapped_range(&mut home, share, 16, CONTIGUOUS);
    home.make(Call::ShareRemove, &[share, segment_id]);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    block.be(1);
    other.make(Call::RangeNest, &[SPACE, GIB, in_share(imported, id), READ_WRITE]);
    touch(&mut other, GIB, Access::Write).unwrap();
    block.be(0);
    let named = home.named(share);
    let free = move || named.stat().unwrap().2;
    let (before, looks) = (free(), Rc::new(Cell::new(0)));
    let counted = looks.clone();
    set_last_look(Some(Box::new(move || {
        assert_eq!(free(), before, "a page is free while another core may write to it");
        counted.set(counted.get() + 1);
    })));
    // A part: the segment stays. Less rights: it stays. The rest: it goes, with its own page and
    // that of the lines.
    home.make(Call::RangeUnmap, &[range, 0, 4]);
    home.make(Call::RangeProtect, &[range, 4 * PAGE, 12, READ]);
    home.make(Call::RangeUnmap, &[range, 0, 512]);
    set_last_look(None);
    assert_eq!((looks.get(), take_shootdowns()), (3, vec![1, 1, 1]));
    assert!(free() >= before + 17);
    assert_eq!(stat(&mut home, range, range_stat::LOCK)[2], 3);
    assert_eq!(home.world.kernel.counters.shootdowns_sent.0, 3);
    home.end();
    block.be(1);
    other.end();
}

#[test]
fn cores_in_different_ranges_do_not_meet() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 200, lock::SPIN);
    block.be(0);
    let mut names = Vec::new();
    for _ in 0..2 {
        let [[range, id], _] = mapped_range(&mut home, share, 8, 0);
        names.push((range, id));
    }
    block.be(1);
    let second = other.make(Call::ShareAdd, &[NONE, in_share(imported, names[1].1), ALL]);
    let locks = |core: &mut Core, range: u64| stat(core, range, range_stat::LOCK)[0];
    let before = locks(&mut other, second);
    block.be(0);
    home.make(Call::RangeNest, &[SPACE, GIB, names[0].0, READ_WRITE]);
    (0..8).for_each(|_| {
        touch(&mut home, GIB, Access::Write).unwrap();
        home.make(Call::RangeProtect, &[names[0].0, 0, 8, READ_WRITE]);
    });
    assert!(locks(&mut home, names[0].0) >= 16);
    block.be(1);
    assert_eq!(locks(&mut other, second), before + 1, "that look only");
    // A range that this core alone maps is downgraded without a word to the other.
    assert_eq!(take_shootdowns(), []);
    other.drop(second);
    other.drop(imported);
    other.close();
    block.be(0);
    home.end();
}

/// Corey section 3.1: a range is the unit of its lock. Who changes one alone waits for nobody; two
/// cores that change the same one do, and both cases are counted.
#[test]
fn cores_that_change_the_same_range_wait_for_each_other_and_one_alone_does_not() {
    let change = |core: &mut Core, range: u64| _ = core.make(Call::RangeProtect, &[range, 0, 8, READ_WRITE]);
    let block = Block::new(2);
    let mut home = block.core(0);
    let share = home.pool(200, lock::SPIN);
    let [[range, id], _] = mapped_range(&mut home, share, 8, 0);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    (0..1000).for_each(|_| change(&mut home, range));
    let [acquires, waits, _] = stat(&mut home, range, range_stat::LOCK);
    assert!(acquires >= 1000 && waits == 0, "{waits} waits of {acquires}");
    let (done, since) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = block.core(1);
            let [imported, same] = import(&mut other, pool, id);
            while !done.load(Ordering::Relaxed) && since.elapsed() < LIMIT {
                change(&mut other, same);
            }
            other.drop(same);
            other.drop(imported);
            other.close();
        });
        while stat(&mut home, range, range_stat::LOCK)[1] == 0 && since.elapsed() < LIMIT {
            change(&mut home, range);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(stat(&mut home, range, range_stat::LOCK)[1] > 0, "two cores never met");
    home.drop(range);
    home.drop(share);
    home.close();
}

#[test]
fn what_does_not_belong_there_is_refused() {
    let block = Block::new(2);
    let (mut home, mut other, [share, imported]) = pair(&block, 64, lock::SPIN);
    block.be(0);
    let make = |core: &mut Core, words: &[u64]| core.run(Call::ShareRange, words);
    assert_eq!(make(&mut home, &[share, 0, 0, 0, 0, 0]), Err(Error::BadArgument), "no pages");
    assert_eq!(make(&mut home, &[share, (1 << 27) + 1, 0, 0, 0, 0]), Err(Error::BadArgument), "too many");
    assert_eq!(make(&mut home, &[share, 1, 4, 0, 0, 0]), Err(Error::BadArgument), "no such lock");
    assert_eq!(make(&mut home, &[share, 1, 0, 0, 0, 2]), Err(Error::BadArgument), "no such flag");
    let (range, id) = range_in(&mut home, share, 1 << 18, lock::SPIN);
    let (small, small_id) = range_in(&mut home, share, 1, lock::SPIN);
    let [segment, segment_id, _] = home.run(Call::ShareSegment, &[share, 4, 0, 0]).unwrap();
    let private = home.make(Call::SegmentAlloc, &[RAM, 4, 0]);
    let map = |core: &mut Core, words: &[u64]| core.run(Call::RangeMap, words);
    assert_eq!(map(&mut home, &[range, 0, private, 0, 4, READ]), Err(Error::WrongType));
    assert_eq!(map(&mut home, &[range, 0, segment, 1, 4, READ]), Err(Error::BadArgument), "past the segment");
    assert_eq!(map(&mut home, &[range, GIB - PAGE, segment, 0, 2, READ]), Err(Error::BadArgument), "past the range");
    let open = READ_WRITE | protection::EXECUTE;
    assert_eq!(map(&mut home, &[range, 0, segment, 0, 4, open]), Err(Error::BadArgument), "code stays read-only");
    assert_eq!(
        map(&mut home, &[in_share(share, id), 0, segment, 0, 4, READ]),
        Err(Error::BadHandle),
        "no name of its own"
    );
    let second = home.pool(16, lock::SPIN);
    let [foreign, ..] = home.run(Call::ShareSegment, &[second, 1, 0, 0]).unwrap();
    assert_eq!(map(&mut home, &[range, 0, foreign, 0, 1, READ]), Err(Error::BadArgument), "of another pool");
    let nest = |core: &mut Core, words: &[u64]| core.run(Call::RangeNest, words);
    assert_eq!(nest(&mut home, &[range, 0, range, READ]), Err(Error::BadArgument), "into itself");
    assert_eq!(nest(&mut home, &[range, 0, small, READ]), Err(Error::BadArgument), "segments only");
    assert_eq!(nest(&mut home, &[range, 0, in_share(share, small_id), READ]), Err(Error::BadArgument));
    assert_eq!(nest(&mut home, &[SPACE, GIB, in_share(share, segment_id), READ]), Err(Error::WrongType));
    assert_eq!(nest(&mut home, &[SPACE, GIB + PAGE, range, READ]), Err(Error::BadArgument), "not at its size");
    let own = home.make(Call::RangeAlloc, &[RAM, 1, 0]);
    assert_eq!(nest(&mut home, &[range, 0, own, READ]), Err(Error::BadArgument), "private into shared");
    assert_eq!(home.run(Call::ShareAdd, &[share, own, ALL]), Err(Error::WrongType));
    assert_eq!(home.run(Call::RangeStat, &[own, 0]), Err(Error::WrongType));
    assert_eq!(home.run(Call::RangeStat, &[range, 2]), Err(Error::BadArgument));
    // Rights: of the name, and of the segment when it was mapped.
    let readable = home.make(Call::ShareAdd, &[NONE, in_share(share, id), READ]);
    assert_eq!(map(&mut home, &[readable, 0, segment, 0, 4, READ]), Err(Error::NoRights));
    assert_eq!(nest(&mut home, &[SPACE, GIB, readable, READ_WRITE]), Err(Error::NoRights));
    let only_read = home.make(Call::ShareAdd, &[NONE, segment, u64::from(Rights::READ.0)]);
    map(&mut home, &[range, 0, only_read, 0, 4, READ]).unwrap();
    assert_eq!(home.run(Call::RangeProtect, &[range, 0, 4, READ_WRITE]), Err(Error::NoRights));
    assert_eq!(home.run(Call::RangeProtect, &[range, 0, 5, READ]), Err(Error::BadArgument), "a hole");
    assert_eq!(map(&mut home, &[range, PAGE, segment, 0, 1, READ]), Err(Error::Busy));
    let entry = RangeEntry::from_words(home.run(Call::RangeGet, &[readable, 0]).unwrap());
    assert_eq!((entry.pages, entry.object, entry.is_range), (4, segment_id, false));
    assert_eq!(home.run(Call::RangeGet, &[range, 4 * PAGE]), Err(Error::NotFound));
    block.be(1);
    let [code, code_id, _] = other.run(Call::ShareRange, &[imported, 1, 0, 0, 0, domain::WRITE_EXECUTE]).unwrap();
    assert_eq!(nest(&mut other, &[SPACE, GIB, code, READ]), Err(Error::BadArgument), "the space has no such code");
    other.make(Call::ShareRemove, &[imported, code_id]);
    other.drop(imported);
    other.close();
    block.be(0);
    for handle in [range, small, own, private, readable, only_read, share, second] {
        home.drop(handle);
    }
    home.close();
}

#[test]
fn a_full_pool_leaves_ranges_whole() {
    let block = Block::new(1);
    let (mut home, at) = (block.core(0), 1 << 39);
    let share = home.pool(24, lock::SPIN);
    let [segment, ..] = home.run(Call::ShareSegment, &[share, 1, 0, 0, CONTIGUOUS]).unwrap();
    let (range, _) = range_in(&mut home, share, 1 << 27, lock::SPIN);
    home.make(Call::RangeNest, &[SPACE, at, range, READ_WRITE]);
    home.make(Call::RangeMap, &[range, 0, segment, 0, 1, READ_WRITE]);
    let mut taken = exhaust(&mut home, share);
    assert_eq!(home.run(Call::ShareRange, &[share, 1, 0, 0, 0, 0]), Err(Error::NoMemory));
    assert_eq!(touch(&mut home, at, Access::Read), None, "no pages for two tables");
    // Two pages and lines of bookkeeping suffice.
    for id in taken.drain(..2) {
        home.make(Call::ShareRemove, &[share, id]);
    }
    assert!(touch(&mut home, at, Access::Read).is_some());
    let mut mapped = 1;
    while home.run(Call::RangeMap, &[range, mapped * PAGE, segment, 0, 1, READ_WRITE]).is_ok() {
        mapped += 1;
    }
    assert!(mapped > 30, "{mapped}");
    assert_eq!(home.make(Call::RangeUnmap, &[range, 0, mapped]), mapped);
    for id in taken {
        home.make(Call::ShareRemove, &[share, id]);
    }
    home.make(Call::RangeUnmap, &[SPACE, at, 1 << 27]);
    home.drop(range);
    home.drop(share);
    home.close();
}

#[test]
fn a_dead_pool_takes_its_ranges_out_of_every_space() {
    let block = Block::new(2);
    let mut other = block.core(1);
    let mut home = block.core(0);
    let account = home.make(Call::RamSplit, &[RAM, 100]);
    let share = home.make(Call::ShareAlloc, &[NONE, account, 64, lock::SPIN, 0, 0]);
    let [[range, id], _] = mapped_range(&mut home, share, 16, CONTIGUOUS);
    home.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    block.be(1);
    let [_, theirs] = import(&mut other, pool, id);
    other.make(Call::RangeNest, &[SPACE, GIB, theirs, READ_WRITE]);
    other.make(Call::RangeNest, &[SPACE, 2 * GIB, theirs, READ_WRITE]);
    assert!(touch(&mut other, GIB, Access::Write).is_some() && is_mapped(&other, 2 * GIB));
    block.be(0);
    assert!((0..10).all(|_| home.make(Call::RamRevoke, &[account]) == 1), "another core maps its pages");
    assert!(!is_mapped(&home, GIB));
    block.be(1);
    for call in [Call::RangeUnmap, Call::RangeFill] {
        assert_eq!(other.run(call, &[theirs, 0, 1]), Err(Error::PeerDead));
    }
    assert_eq!(other.run(Call::RangeNest, &[SPACE, 3 * GIB, theirs, READ]), Err(Error::PeerDead));
    (0..4).for_each(|_| _ = other.ring());
    assert!(!is_mapped(&other, GIB) && !is_mapped(&other, 2 * GIB));
    assert_eq!(touch(&mut other, GIB, Access::Read), None);
    assert_eq!(other.run(Call::RangeGet, &[theirs, 0]), Err(Error::BadHandle));
    other.close();
    block.be(0);
    home.ring();
    assert_eq!(home.make(Call::RamRevoke, &[account]), 0);
    assert_eq!(home.run(Call::RamStat, &[account]).unwrap()[1], 0);
    home.drop(account);
    home.close();
}

/// A segment of the model, and what was written to it.
struct Memory {
    id: u64,
    /// Its pages come by themselves, so it can be copied.
    is_lazy: bool,
    bytes: BTreeMap<u64, u8>,
}

/// Cores in one thread, each with a space, a place in it for the one shared range, and what its
/// processor remembers.
struct Simulation {
    block: Block,
    cores: Vec<(Core, BTreeMap<u64, Pte>)>,
    /// Handles of each core: share, range.
    names: Vec<[u64; 2]>,
    /// Whether it maps the range now.
    maps: Vec<bool>,
    memories: BTreeMap<usize, Memory>,
    /// By page of the range: memory, page of it, protection.
    mapped: BTreeMap<u64, (usize, u64, u64)>,
    next: usize,
    hits: u64,
    copies: u64,
}

const SEGMENT_PAGES: u64 = 6;
const RANGE_PAGES: u64 = 40;

impl Simulation {
    fn new(cores: usize, kind: u64) -> Simulation {
        set_alone(true);
        let block = Block::new(cores as u64);
        let mut home = block.core(0);
        let share = home.pool(120, kind);
        let (range, id) = range_in(&mut home, share, 513, kind);
        let pool = home.make(Call::SharePool, &[PCORE, share]);
        let (mut all, mut names) = (vec![(home, BTreeMap::new())], vec![[share, range]]);
        for core in 1..cores {
            let mut other = block.core(core);
            names.push(import(&mut other, pool, id));
            all.push((other, BTreeMap::new()));
        }
        all.iter_mut().for_each(|(core, _)| load(core));
        take_flushes();
        take_shootdowns();
        let (memories, mapped) = (BTreeMap::new(), BTreeMap::new());
        Simulation { block, maps: vec![false; cores], cores: all, names, memories, mapped, next: 0, hits: 0, copies: 0 }
    }

    /// Where a core maps the range.
    fn base(core: usize) -> u64 {
        (1 + core as u64) * GIB
    }

    /// The processors do what they were told.
    fn flush(&mut self, own: usize) {
        for flush in take_flushes() {
            match flush {
                Flush::All => self.cores[own].1.clear(),
                Flush::Page(address) => drop(self.cores[own].1.remove(&(address / PAGE))),
            }
        }
        for core in take_shootdowns() {
            self.cores[core].1.clear();
        }
    }

    fn access(&mut self, core: usize, page: u64, access: Access, value: u8) {
        let at = Simulation::base(core) / PAGE + page;
        let needs = if access == Access::Write { Flags::WRITE } else { Flags::NONE };
        let seen = self.mapped.get(&page).copied().filter(|_| self.maps[core]);
        let allowed = seen.is_some_and(|(_, _, rights)| rights & access.needs() != 0);
        let (own, buffer) = &mut self.cores[core];
        let range = own.actor.domain.range();
        if !buffer.contains_key(&at)
            && let Some(entry) = view(range.root(), at * PAGE)
        {
            buffer.insert(at, entry);
        }
        let remembered = buffer.get(&at).copied().filter(|entry| entry.flags().contains(needs));
        assert!(remembered.is_none() || allowed, "core {core} remembers what it may not see");
        let frame = match remembered {
            Some(entry) => {
                self.hits += 1;
                Some(entry.address())
            }
            None => {
                let made = range.resolve(&mut own.world.kernel, at * PAGE, access).ok();
                buffer.remove(&at);
                made
            }
        };
        self.flush(core);
        assert_eq!(frame.is_some(), allowed, "core {core}, page {page}, {access:?}");
        let (Some(frame), Some((number, page, _))) = (frame, seen) else { return };
        let bytes = &mut self.memories.get_mut(&number).unwrap().bytes;
        // SAFETY: a page of the pool.
        unsafe {
            assert_eq!(phys_to_virt(frame).read(), bytes.get(&page).copied().unwrap_or(0));
            if access == Access::Write {
                phys_to_virt(frame).write(value);
                bytes.insert(page, value);
            }
        }
    }

    fn step(&mut self, random: &mut Random) {
        let core = random.below(self.cores.len() as u64) as usize;
        self.block.be(core);
        let [share, range] = self.names[core];
        let numbers: Vec<usize> = self.memories.keys().copied().collect();
        let (page, pages) = (random.below(RANGE_PAGES), 1 + random.below(5));
        let (start, end) = (page * PAGE, page + pages);
        let wanted = random.one(&[READ, READ_WRITE, READ_WRITE]);
        let own = &mut self.cores[core].0;
        match random.below(20) {
            0 if numbers.len() < 6 => {
                let flags = random.below(2) & random.below(2);
                let [_, id, _] = own.run(Call::ShareSegment, &[share, SEGMENT_PAGES, 0, 0, flags]).unwrap();
                self.memories.insert(self.next, Memory { id, is_lazy: flags == 0, bytes: BTreeMap::new() });
                self.next += 1;
            }
            1 if !numbers.is_empty() => self.remove_segment(core, random.one(&numbers)),
            2..=4 if !numbers.is_empty() => {
                let number = random.one(&numbers);
                let pages = pages.min(SEGMENT_PAGES);
                let first = random.below(SEGMENT_PAGES - pages + 1);
                let segment = in_share(share, self.memories[&number].id);
                let mapped = own.run(Call::RangeMap, &[range, start, segment, first, pages, wanted]);
                let is_free = self.mapped.range(page..page + pages).next().is_none();
                assert_eq!(mapped, if is_free { Ok([0; 3]) } else { Err(Error::Busy) });
                if is_free {
                    self.mapped.extend((0..pages).map(|n| (page + n, (number, first + n, wanted))));
                }
            }
            5 => {
                let unmapped = own.make(Call::RangeUnmap, &[range, start, pages]);
                let known = (page..end).filter(|page| self.mapped.remove(page).is_some()).count();
                assert_eq!(unmapped, known as u64);
            }
            6 => {
                let covered = (page..end).all(|page| self.mapped.contains_key(&page));
                let protected = own.run(Call::RangeProtect, &[range, start, pages, wanted]);
                assert_eq!(protected, if covered { Ok([0; 3]) } else { Err(Error::BadArgument) });
                if covered {
                    self.mapped.range_mut(page..end).for_each(|(_, (.., rights))| *rights = wanted);
                }
            }
            8 if !numbers.is_empty() && numbers.len() < 6 => self.copy_segment(core, random.one(&numbers)),
            7 if random.below(3) == 0 => {
                let base = Simulation::base(core);
                match self.maps[core] {
                    true => drop(own.make(Call::RangeUnmap, &[SPACE, base, 1 << 18])),
                    false => drop(own.make(Call::RangeNest, &[SPACE, base, range, READ_WRITE])),
                }
                self.maps[core] = !self.maps[core];
            }
            _ => {
                for _ in 0..4 {
                    let core = random.below(self.cores.len() as u64) as usize;
                    self.block.be(core);
                    let (page, access) = (random.below(RANGE_PAGES), random.one(&[Access::Read, Access::Write]));
                    self.access(core, page, access, random.any() as u8);
                }
                return;
            }
        }
        self.flush(core);
    }

    /// Takes a segment out of the pool. Its frames are free when no core maps it any more: then the
    /// next segment has them.
    fn remove_segment(&mut self, core: usize, number: usize) {
        let ([share, range], own) = (self.names[core], &mut self.cores[core].0);
        own.make(Call::ShareRemove, &[share, self.memories[&number].id]);
        self.memories.remove(&number);
        let mapped = self.mapped.iter().filter(|(_, (mapped, ..))| *mapped == number);
        for page in mapped.map(|(page, _)| *page).collect::<Vec<_>>() {
            own.make(Call::RangeUnmap, &[range, page * PAGE, 1]);
            self.mapped.remove(&page);
        }
    }

    /// Copies a segment, which may be done to those with demand-zero pages.
    fn copy_segment(&mut self, core: usize, number: usize) {
        let (share, own) = (self.names[core][0], &mut self.cores[core].0);
        let source = &self.memories[&number];
        let copied = own.run(Call::ShareCopy, &[share, in_share(share, source.id), 0, 0]);
        assert_eq!(copied.is_ok(), source.is_lazy, "{copied:?}");
        if let Ok([_, id, _]) = copied {
            let copy = Memory { id, is_lazy: true, bytes: source.bytes.clone() };
            self.memories.insert(self.next, copy);
            self.next += 1;
            self.copies += 1;
        }
    }

    fn end(self) {
        for (number, (mut core, _)) in self.cores.into_iter().enumerate().rev() {
            self.block.be(number);
            if self.maps[number] {
                core.make(Call::RangeUnmap, &[SPACE, Simulation::base(number), 1 << 18]);
            }
            self.names[number].iter().for_each(|handle| core.drop(*handle));
            core.close();
        }
    }
}

#[test]
fn no_core_sees_what_another_took_away() {
    let (mut hits, mut copies, mut parted) = (0, 0, 0);
    for seed in 1..=40 {
        let mut simulation = Simulation::new(2 + seed as usize % 3, seed % 4);
        let mut random = Random::new(seed * 0x9e37_79b9);
        (0..2500).for_each(|_| simulation.step(&mut random));
        hits += simulation.hits;
        copies += simulation.copies;
        parted += simulation.cores.iter().map(|(core, _)| core.world.kernel.counters.copy_faults.0).sum::<u64>();
        simulation.end();
    }
    assert!(hits > 10_000, "translations were hardly used: {hits}");
    assert!(copies > 1000 && parted > 1000, "{copies} copies, {parted} pages parted");
}
