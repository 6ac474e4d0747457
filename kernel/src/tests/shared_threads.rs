//! Cores that are threads, each with a space that maps the same range: no frame is used again
//! while one of them may write to it, and all go on.

use super::Random;
use super::shared::{Block, Core, PCORE, RAM, READ_WRITE, in_share};
use super::shared_ranges::{GIB, PAGE, SPACE, import, load, mapped_range, range_in, touch};
use crate::hardware::{Flush, set_alone, take_flushes};
use crate::objects::fault::Access;
use abi::{Call, Handle};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A core that is a thread: its space maps the shared range at [`GIB`]; what its processor
/// remembers, by page, and whether for writing.
struct Processor {
    core: Core,
    buffer: BTreeMap<u64, (*mut u8, bool)>,
}

const CORES: usize = 3;
/// Longer than any test here, on a host that is busy besides.
const LIMIT: Duration = Duration::from_secs(100);
/// Places in the range, each for a segment of [`SLOT_PAGES`]; a core fills and empties its own and
/// writes to all.
const SLOTS: u64 = 9;
const SLOT_PAGES: u64 = 4;

impl Processor {
    /// An interrupt: what others ask.
    fn serve(&mut self) {
        self.core.world.kernel.service_tlb_shootdowns();
        self.flush();
    }

    fn flush(&mut self) {
        for flush in take_flushes() {
            match flush {
                Flush::All => self.buffer.clear(),
                Flush::Page(address) => drop(self.buffer.remove(&(address / PAGE))),
            }
        }
    }

    /// Until all cores are done; one that failed never is.
    fn serve_until_all(&mut self, done: &AtomicUsize) {
        let since = Instant::now();
        while done.load(Ordering::Acquire) < CORES {
            assert!(since.elapsed() < LIMIT, "another core failed");
            self.serve();
            std::thread::yield_now();
        }
    }

    /// Writes to a page of the range as a program would, if something is there.
    fn write(&mut self, page: u64) -> bool {
        let Some(place) = self.place(page, Access::Write) else { return false };
        // SAFETY: memory of the test; all threads use it by atomic bytes.
        unsafe { AtomicU8::from_ptr(place) }.store(1, Ordering::Relaxed);
        true
    }

    /// Where a program sees a page of the range.
    fn place(&mut self, page: u64, access: Access) -> Option<*mut u8> {
        let (at, writes) = (GIB / PAGE + page, access == Access::Write);
        if let Some((place, _)) = self.buffer.get(&at).filter(|(_, writable)| *writable || !writes) {
            return Some(*place);
        }
        let made = touch(&mut self.core, at * PAGE, access);
        self.flush();
        self.buffer.insert(at, (made?, writes));
        made
    }

    /// The first word of a page that is there.
    fn word(&mut self, page: u64, access: Access) -> &'static AtomicU64 {
        let place = self.place(page, access).expect("it is mapped").cast();
        // SAFETY: memory of the test, which outlives its threads; all use it by atomic words.
        unsafe { AtomicU64::from_ptr(place) }
    }

    fn get(&mut self, page: u64) -> u64 {
        self.word(page, Access::Read).load(Ordering::SeqCst)
    }

    fn set(&mut self, page: u64, value: u64) {
        self.word(page, Access::Write).store(value, Ordering::SeqCst);
    }

    /// Whether nobody writes to the pages of a new segment, which is mapped nowhere.
    fn is_quiet(&mut self, segment: u64) -> bool {
        let own = Handle::SELF_RANGE.0;
        self.core.make(Call::RangeMap, &[own, 1 << 40, segment, 0, SLOT_PAGES, READ_WRITE]);
        let places = [0, 1, 2, 3].map(|page| self.core.byte((1 << 40) + page * PAGE).unwrap());
        let quiet = (0..10).all(|_| {
            self.serve();
            std::thread::yield_now();
            // SAFETY: as in `write`.
            places.iter().all(|place| unsafe { AtomicU8::from_ptr(*place) }.load(Ordering::Relaxed) == 0)
        });
        self.core.make(Call::RangeUnmap, &[own, 1 << 40, SLOT_PAGES]);
        self.flush();
        quiet
    }

    fn run(&mut self, [share, range]: [u64; 2], random: &mut Random, own: u64) -> u64 {
        let mut filled = BTreeMap::new();
        let mut written = 0;
        for turn in 0..500 {
            self.serve();
            let slot = random.below(SLOTS / CORES as u64) * CORES as u64 + own;
            let place = slot * 8 * PAGE;
            match (random.below(8), filled.remove(&slot)) {
                (0, None) if turn < 460 => {
                    let [segment, id, _] =
                        self.core.run(Call::ShareSegment, &[share, SLOT_PAGES, 0, 0, random.below(2)]).unwrap();
                    assert!(self.is_quiet(segment), "somebody writes where nothing of his is any more");
                    self.core.make(Call::RangeMap, &[range, place, segment, 0, SLOT_PAGES, READ_WRITE]);
                    filled.insert(slot, id);
                }
                (choice, Some(id)) if choice == 0 || turn >= 460 => {
                    self.core.make(Call::ShareRemove, &[share, id]);
                    assert_eq!(self.core.make(Call::RangeUnmap, &[range, place, SLOT_PAGES]), SLOT_PAGES);
                }
                (_, id) => {
                    id.map(|id| filled.insert(slot, id));
                    let page = random.below(SLOTS) * 8 + random.below(SLOT_PAGES);
                    written += u64::from(self.write(page));
                }
            }
            self.flush();
        }
        for (slot, id) in filled {
            self.core.make(Call::ShareRemove, &[share, id]);
            self.core.make(Call::RangeUnmap, &[range, slot * 8 * PAGE, SLOT_PAGES]);
        }
        written
    }
}

/// Each core is a thread, maps the range of that id and does `work` with its own names of the
/// share and the range; then nothing is left on any.
fn on_every_core(
    block: &Block,
    mut home: Core,
    [share, range, id]: [u64; 3],
    work: impl Fn(usize, &mut Processor, [u64; 2]) + Sync,
) {
    let ended = AtomicUsize::new(0);
    let be = |number: usize, mut core: Core, names: [u64; 2]| {
        set_alone(false);
        take_flushes();
        load(&mut core);
        core.make(Call::RangeNest, &[SPACE, GIB, names[1], READ_WRITE]);
        let mut processor = Processor { core, buffer: BTreeMap::new() };
        work(number, &mut processor, names);
        ended.fetch_add(1, Ordering::Release);
        processor.serve_until_all(&ended);
        let mut core = processor.core;
        core.make(Call::RangeUnmap, &[SPACE, GIB, 1 << 18]);
        names.into_iter().rev().for_each(|handle| core.drop(handle));
        set_alone(true);
        core
    };
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    let home = std::thread::scope(|scope| {
        for number in 1..CORES {
            let be = &be;
            scope.spawn(move || {
                let mut core = block.core(number);
                let names = import(&mut core, pool, id);
                be(number, core, names).close();
            });
        }
        be(0, home, [share, range])
    });
    home.close();
}

#[test]
fn no_frame_is_used_again_while_a_core_may_write_to_it() {
    for seed in 1..=2 {
        let block = Block::new(CORES as u64);
        let mut home = block.core(0);
        let share = home.pool(120, seed % 4);
        let (range, id) = range_in(&mut home, share, 513, seed % 4);
        on_every_core(&block, home, [share, range, id], |core, processor, names| {
            let mut random = Random::new(seed * 1000 + core as u64);
            let written = processor.run(names, &mut random, core as u64);
            assert!(written > 30, "{written} writes");
        });
    }
}

/// Pages that all touch at once.
const TOUCHED: u64 = 60;

#[test]
fn cores_that_touch_a_page_at_once_get_the_same_frame() {
    let block = Block::new(CORES as u64);
    let mut home = block.core(0);
    let share = home.pool(120, 0);
    let [[range, id], [_, segment]] = mapped_range(&mut home, share, TOUCHED, 0);
    let pool = home.make(Call::SharePool, &[PCORE, share]);
    let meet = Barrier::new(CORES);
    let frames = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..CORES)
            .map(|number| {
                let (block, meet) = (&block, &meet);
                scope.spawn(move || {
                    let mut core = block.core(number);
                    let share = core.make(Call::ShareImport, &[PCORE, RAM, pool]);
                    let frames = touch_all(&mut core, share, id, (number == 2).then_some(segment), meet);
                    core.drop(share);
                    core.close();
                    frames
                })
            })
            .collect();
        let own = touch_all(&mut home, share, id, None, &meet);
        let others = threads.into_iter().map(|thread| thread.join().unwrap());
        std::iter::once(own).chain(others).collect::<Vec<_>>()
    });
    assert!(frames.iter().all(|seen| *seen == frames[0]), "a page of two frames");
    let made = home.run(Call::SegmentStat, &[in_share(share, segment)]).unwrap();
    assert_eq!(made[1], TOUCHED);
    [range, share].into_iter().for_each(|handle| home.drop(handle));
    home.close();
}

/// The frames that a core finds: in the shared range, or in its own space.
fn touch_all(core: &mut Core, share: u64, range: u64, alone: Option<u64>, meet: &Barrier) -> Vec<usize> {
    match alone {
        None => core.make(Call::RangeNest, &[SPACE, GIB, in_share(share, range), READ_WRITE]),
        Some(segment) => core.make(Call::RangeMap, &[SPACE, GIB, in_share(share, segment), 0, TOUCHED, READ_WRITE]),
    };
    let find = |page: u64| {
        meet.wait();
        touch(core, GIB + page * PAGE, Access::Write).unwrap().addr()
    };
    let frames = (0..TOUCHED).map(find).collect();
    core.make(Call::RangeUnmap, &[SPACE, GIB, 512]);
    frames
}

/// Where the range maps a copy.
const COPY: u64 = 100;
const COPIES: u64 = 20;

/// Counts in two pages, one after the other, and looks at the two of the other writer: nothing that
/// it wrote is lost, and nobody sees the second before the first.
fn count_in_two_pages(processor: &mut Processor, own: u64, done: &AtomicUsize) -> u64 {
    let (first, other, mut count) = (2 * own, 2 * (1 - own), 0);
    let since = Instant::now();
    while done.load(Ordering::Acquire) == 0 {
        assert!(since.elapsed() < LIMIT, "the core that copies failed");
        processor.serve();
        assert_eq!([processor.get(first), processor.get(first + 1)], [count; 2], "a write is lost");
        count += 1;
        processor.set(first, count);
        processor.serve();
        processor.set(first + 1, count);
        let second = processor.get(other + 1);
        assert!(processor.get(other) >= second, "an old page in a new one's place");
    }
    count
}

/// Copies what the others write to, again and again, until they have written more often than that:
/// each copy is of one moment, and stays as it is.
fn copy_while_others_write(processor: &mut Processor, [share, range]: [u64; 2], source: u64) {
    let (mut copies, mut last, since) = (0, 0, Instant::now());
    while copies < COPIES || last <= COPIES {
        assert!(since.elapsed() < LIMIT, "the others wrote {last} times only");
        let [copy, id, _] = processor.core.run(Call::ShareCopy, &[share, source, 0, 0]).unwrap();
        processor.flush();
        processor.core.make(Call::RangeMap, &[range, COPY * PAGE, copy, 0, 4, READ_WRITE]);
        let seen = [0, 1, 2, 3].map(|page| processor.get(COPY + page));
        for pair in seen.chunks(2) {
            assert!(pair[0] == pair[1] || pair[0] == pair[1] + 1, "not of one moment: {seen:?}");
        }
        for turn in 0..4 {
            processor.serve();
            std::thread::yield_now();
            assert_eq!([0, 1, 2, 3].map(|page| processor.get(COPY + page)), seen, "a copy changed, look {turn}");
        }
        assert!(seen[0] + seen[2] >= last, "{seen:?} after {last}");
        last = seen[0] + seen[2];
        processor.core.make(Call::RangeUnmap, &[range, COPY * PAGE, 4]);
        processor.flush();
        processor.core.make(Call::ShareRemove, &[share, id]);
        copies += 1;
    }
}

#[test]
fn copies_are_of_one_moment_while_other_cores_write() {
    let block = Block::new(CORES as u64);
    let mut home = block.core(0);
    let share = home.pool(120, 0);
    let [[range, id], [source, _]] = mapped_range(&mut home, share, 4, 0);
    let done = AtomicUsize::new(0);
    on_every_core(&block, home, [share, range, id], |core, processor, names| {
        if core == 0 {
            copy_while_others_write(processor, names, source);
            done.store(1, Ordering::Release);
        } else {
            count_in_two_pages(processor, core as u64 - 1, &done);
        }
    });
}
