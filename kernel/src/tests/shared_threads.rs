//! Cores that are threads, each with a space that shows the same range: no frame is used again while one of them may write to it, and all go on.

use super::Random;
use super::shared::{ALL, Block, Core, NONE, PCORE, RAM, READ_WRITE, in_share};
use super::shared_ranges::{GIB, PAGE, SPACE, load, range_in, touch};
use crate::hardware::{Flush, set_alone, take_flushes};
use crate::objects::fault::Access;
use abi::{Call, Handle};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A core that is a thread: its space shows the shared range at [`GIB`]; what its processor remembers, by page.
struct Processor {
    core: Core,
    buffer: BTreeMap<u64, *mut u8>,
}

const CORES: usize = 3;
/// Places in the range, each for a segment of [`SLOT_PAGES`]; a core fills and empties its own and writes to all.
const SLOTS: u64 = 9;
const SLOT_PAGES: u64 = 4;

impl Processor {
    /// An interrupt: what others ask.
    fn serve(&mut self) {
        self.core.world.kernel.forget_for_others();
        self.forget();
    }

    fn forget(&mut self) {
        for flush in take_flushes() {
            match flush {
                Flush::All => self.buffer.clear(),
                Flush::Page(address) => drop(self.buffer.remove(&(address / PAGE))),
            }
        }
    }

    /// Writes to a page of the range as a program would, if something is there.
    fn write(&mut self, page: u64) -> bool {
        let at = GIB / PAGE + page;
        if !self.buffer.contains_key(&at) {
            let made = touch(&mut self.core, at * PAGE, Access::Write);
            self.forget();
            let Some(place) = made else { return false };
            self.buffer.insert(at, place);
        }
        // SAFETY: memory of the test; all threads use it by atomic bytes.
        unsafe { AtomicU8::from_ptr(self.buffer[&at]) }.store(1, Ordering::Relaxed);
        true
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
        self.forget();
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
            self.forget();
        }
        for (slot, id) in filled {
            self.core.make(Call::ShareRemove, &[share, id]);
            self.core.make(Call::RangeUnmap, &[range, slot * 8 * PAGE, SLOT_PAGES]);
        }
        written
    }
}

#[test]
fn no_frame_is_used_again_while_a_core_may_write_to_it() {
    for seed in 1..=2 {
        let block = Block::new(CORES as u64);
        let mut home = block.core(0);
        let share = home.pool(120, seed % 4);
        let (range, id) = range_in(&mut home, share, 513, seed % 4);
        let pool = home.make(Call::SharePool, &[PCORE, share]);
        let done = AtomicUsize::new(0);
        let be = |core: usize, mut own: Core, [share, range]: [u64; 2]| {
            set_alone(false);
            take_flushes();
            load(&mut own);
            own.make(Call::RangeNest, &[SPACE, GIB, range, READ_WRITE]);
            let mut processor = Processor { core: own, buffer: BTreeMap::new() };
            let mut random = Random::new(seed * 1000 + core as u64);
            let written = processor.run([share, range], &mut random, core as u64);
            assert!(written > 30, "{written} writes");
            done.fetch_add(1, Ordering::Release);
            while done.load(Ordering::Acquire) < CORES {
                processor.serve();
                std::thread::yield_now();
            }
            let mut own = processor.core;
            own.make(Call::RangeUnmap, &[SPACE, GIB, 1 << 18]);
            [range, share].into_iter().for_each(|handle| own.drop(handle));
            own
        };
        let mut home = std::thread::scope(|scope| {
            for other in 1..CORES {
                let (block, be) = (&block, &be);
                scope.spawn(move || {
                    let mut core = block.core(other);
                    let share = core.make(Call::ShareImport, &[PCORE, RAM, pool]);
                    let range = core.make(Call::ShareAdd, &[NONE, in_share(share, id), ALL]);
                    let mut core = be(other, core, [share, range]);
                    core.assert_back();
                    core.end();
                });
            }
            be(0, home, [share, range])
        });
        home.assert_back();
        home.end();
        set_alone(true);
    }
}

/// Pages that all touch at once.
const TOUCHED: u64 = 60;

#[test]
fn cores_that_touch_a_page_at_once_get_the_same_frame() {
    let block = Block::new(CORES as u64);
    let mut home = block.core(0);
    let share = home.pool(120, 0);
    let (range, id) = range_in(&mut home, share, 512, 0);
    let [_, segment, _] = home.run(Call::ShareSegment, &[share, TOUCHED, 0, 0]).unwrap();
    home.make(Call::RangeMap, &[range, 0, in_share(share, segment), 0, TOUCHED, READ_WRITE]);
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
                    core.assert_back();
                    core.end();
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
    home.assert_back();
    home.end();
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
