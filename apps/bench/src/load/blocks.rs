//! The buffer cache library over cores (`lib/buffers`; Corey section 5.3, fos section 3.4): blocks
//! of 4 KiB in memory that all cores have.
//!
//! `read-cached`: each copies blocks of one file of the first core's. `read-locked`: the same under
//! a read-write lock of all, as a control. `read-written`: the first core now and then writes a few
//! versions of one of the file's blocks; each core looks at every word it reads. `write-apart`:
//! each writes versions of blocks of its own; `write-hot`: all write versions of the same blocks;
//! each with frames of its own allocator, and (`-common`) with one allocator for all.
//!
//! Lines of the region `load`: 64 the versions of blocks that were published, 72 the lock, 73 on
//! what all counted.

use core::cell::RefCell;
use core::sync::atomic::Ordering;

use alloc::boxed::Box;
use buffers::{Allocator, FrameId, Local, NoRoom, OfAll, OfEachCore, Shape};
use lock::{Kind, Lock, Relax};
use runtime::{Region, Start};

use super::Room;
use crate::parts::{BLOCK_WORDS, Block, LINE_BYTES, blocks};

/// Name of the region of blocks.
const NAME: &str = "load-blocks";
const PUBLISHED: u64 = 64;
const LOCK: u64 = 72;
const READS: u64 = 73;
const NEWER: u64 = 74;
const WRONG: u64 = 75;
/// Blocks of a file have numbers that follow each other: a leaf of the tree.
const FILE_BLOCKS: u64 = 64;
const KEYS: u64 = 1 << 18;
/// A file that no core writes as its own.
const HOT_FILE: u64 = KEYS / FILE_BLOCKS - 1;
const FRAMES_EACH: usize = 12;
/// The file that is read: so large that its writer has one frame more, which it fills with the next
/// version while others may still read the last but one.
const HOT_BLOCKS: u64 = FRAMES_EACH as u64 - 1;
/// Of these there are new versions.
const VERSIONED: u64 = 4;
/// Reads of the writer's between two times that it writes, and versions that it writes then.
const WRITES_EVERY: u64 = 250;
const VERSIONS: u64 = 8;
/// Blocks of a file that is written; and after so many writes what was taken out is free again.
const WRITTEN_BLOCKS: u64 = 4;
/// Operations of a core in a row, and in that with a writer.
const TURNS: u64 = 200;
const TURNS_WITH_WRITER: u64 = 2 * WRITES_EVERY;
/// Of a core's own before each write, over which the cores are spread.
const WORK: u64 = 400;
/// A core that lacks a frame looks so often for what others give back.
const LOOKS: u64 = 100_000;
/// Of a word in a block: its place, below the version, below the block's number.
const VERSION_SHIFT: u32 = 12;
const KEY_SHIFT: u32 = 40;

#[derive(Default)]
struct Spin;

impl Relax for Spin {
    fn relax(&mut self) {
        core::hint::spin_loop();
    }
}

/// What a core has of the blocks.
#[derive(Default)]
pub(super) struct Blocks(RefCell<Option<State>>);

struct State {
    /// With an allocator for each core, and with one for all.
    own: Local<Block, OfEachCore>,
    common: Local<Block, OfAll>,
    /// What blocks are copied to and from.
    page: Box<Block>,
    turn: u64,
    reads: u64,
    /// Reads that found a newer version than the last one that was published before.
    newer: u64,
    /// What was older, of two versions, not there, or in another core's frame.
    wrong: u64,
}

fn key(file: u64, block: u64) -> u64 {
    file * FILE_BLOCKS + block
}

fn fill(block: &mut Block, key: u64, version: u64) {
    let first = key << KEY_SHIFT | version << VERSION_SHIFT;
    (first..).zip(block).for_each(|(value, word)| *word = value);
}

/// The version of a block, if it is that of `key` and whole.
fn version(block: &Block, key: u64) -> Option<u64> {
    let first = block[0];
    let whole = first >> KEY_SHIFT == key && (first..).zip(block).all(|(value, word)| *word == value);
    whole.then_some(first >> VERSION_SHIFT & ((1 << (KEY_SHIFT - VERSION_SHIFT)) - 1))
}

/// Writes a block when there is a frame for it, which others may have to bring back.
fn put<A: Allocator>(cache: &mut Local<Block, A>, key: u64, page: &Block, reclaims: bool) -> Result<FrameId, NoRoom> {
    if reclaims {
        cache.reclaim::<Spin>();
    }
    let mut tries = 0..LOOKS;
    loop {
        match cache.insert::<Spin>(key, |block| *block = *page) {
            Err(NoRoom) if tries.next().is_some() => core::hint::spin_loop(),
            outcome => return outcome,
        }
    }
}

impl State {
    fn new(region: &Region, room: &Room) -> Option<State> {
        let shape = Shape { cores: room.cores as usize, keys: KEYS, frames_each: FRAMES_EACH };
        let (own, end) = blocks(region, 0, shape, room.core as usize)?;
        let (common, _) = blocks(region, end, shape, room.core as usize)?;
        Some(State { own, common, page: Box::new([0; BLOCK_WORDS]), turn: 0, reads: 0, newer: 0, wrong: 0 })
    }

    fn next(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Writes the next version of a block of the file, and then publishes its number.
    fn publish(&mut self, room: &Room, block: u64) {
        let key = key(HOT_FILE, block);
        let published = (block < VERSIONED).then(|| room.lines.word(PUBLISHED + block, 0));
        let version = published.map_or(0, |word| word.load(Ordering::Relaxed)) + 1;
        fill(&mut self.page, key, version);
        let written = self.own.insert::<Spin>(key, |block| *block = *self.page);
        self.wrong += u64::from(written.is_err());
        if let Some(word) = published {
            word.store(version, Ordering::Release);
        }
    }

    fn copy(&mut self, block: u64) {
        let section = self.own.read();
        match section.get(key(HOT_FILE, block)) {
            Some((_, block)) => *self.page = *block,
            None => self.wrong += 1,
        }
    }

    fn read_cached(&mut self, _: &Room) {
        let block = self.next() % HOT_BLOCKS;
        self.copy(block);
    }

    fn read_locked(&mut self, room: &Room) {
        let line = room.lines.line(LOCK);
        // Before its word are its counts.
        let lock = Lock::new(Kind::ReadWrite, &line.0[4], core::slice::from_ref(line));
        let _guard = lock.read::<Spin>(room.core as usize);
        self.read_cached(room);
    }

    fn read_written(&mut self, room: &Room) {
        let turn = self.next();
        if room.core == 0 && turn.is_multiple_of(WRITES_EVERY) {
            let block = turn / WRITES_EVERY % VERSIONED;
            (0..VERSIONS).for_each(|_| self.publish(room, block));
        }
        let block = (turn + room.core) % VERSIONED;
        // Acquire: a lookup from now on finds this version, or a newer one.
        let published = room.lines.word(PUBLISHED + block, 0).load(Ordering::Acquire);
        let key = key(HOT_FILE, block);
        let section = self.own.read();
        let found = section.get(key).and_then(|(_, block)| version(block, key));
        self.reads += 1;
        self.newer += u64::from(found > Some(published));
        self.wrong += u64::from(found < Some(published));
    }

    fn write(&mut self, room: &Room, file: u64, is_common: bool) {
        crate::sample::work(WORK);
        let turn = self.next();
        let key = key(file, turn % WRITTEN_BLOCKS);
        let reclaims = turn.is_multiple_of(WRITTEN_BLOCKS);
        let written = match is_common {
            true => put(&mut self.common, key, &self.page, reclaims),
            false => put(&mut self.own, key, &self.page, reclaims),
        };
        let of_this_core = written.is_ok_and(|id| id.index() / FRAMES_EACH == room.core as usize);
        self.wrong += u64::from(written.is_err() || !is_common && !of_this_core);
    }

    /// Takes blocks of a file out.
    fn clear(&mut self, file: u64) {
        for block in 0..FILE_BLOCKS {
            let _ = (self.own.remove(key(file, block)), self.common.remove(key(file, block)));
        }
        self.own.reclaim::<Spin>();
        self.common.reclaim::<Spin>();
    }
}

impl Room {
    /// What this core has.
    fn blocks(&self, act: impl FnOnce(&mut State, &Room)) {
        if let Some(state) = &mut *self.blocks.0.borrow_mut() {
            act(state, self);
        }
    }

    fn blocks_row(&mut self, name: &str, turns: u64, operation: fn(&Room)) {
        self.blocks(|state, _| state.turn = 0);
        self.row(name, turns, WORK, operation);
    }

    fn read_rows(&mut self) {
        if self.core == 0 {
            self.blocks(|state, room| (0..HOT_BLOCKS).for_each(|block| state.publish(room, block)));
        }
        self.blocks_row("buffers/read-cached", TURNS, |room| room.blocks(State::read_cached));
        self.blocks_row("buffers/read-locked", TURNS, |room| room.blocks(State::read_locked));
        self.blocks_row("buffers/read-written", TURNS_WITH_WRITER, |room| room.blocks(State::read_written));
        self.meet();
        if self.core == 0 {
            self.blocks(|state, _| state.clear(HOT_FILE));
        }
    }

    fn write_rows(&mut self) {
        let apart: [(_, fn(&Room)); 2] = [
            ("buffers/write-apart", |room| room.blocks(|state, room| state.write(room, room.core, false))),
            ("buffers/write-apart-common", |room| room.blocks(|state, room| state.write(room, room.core, true))),
        ];
        apart.into_iter().for_each(|(name, operation)| self.blocks_row(name, TURNS, operation));
        self.blocks(|state, room| state.clear(room.core));
        let hot: [(_, fn(&Room)); 2] = [
            ("buffers/write-hot", |room| room.blocks(|state, room| state.write(room, HOT_FILE, false))),
            ("buffers/write-hot-common", |room| room.blocks(|state, room| state.write(room, HOT_FILE, true))),
        ];
        hot.into_iter().for_each(|(name, operation)| self.blocks_row(name, TURNS, operation));
    }

    /// What all counted.
    fn tell_blocks(&mut self) {
        self.blocks(|state, room| {
            for (line, count) in [(READS, state.reads), (NEWER, state.newer), (WRONG, state.wrong)] {
                room.line(line).fetch_add(count, Ordering::AcqRel);
            }
        });
        self.meet();
        if self.core > 0 {
            return;
        }
        let [reads, newer, wrong] = [READS, NEWER, WRONG].map(|line| self.line(line).load(Ordering::Acquire));
        let versions: u64 = (0..VERSIONED).map(|block| self.line(PUBLISHED + block).load(Ordering::Acquire)).sum();
        if wrong > 0 {
            return runtime::log!(
                "load failed: {wrong} operations on blocks found one older than published, torn, missing, \
                 or in another's frame"
            );
        }
        runtime::log!(
            "buffers/read-written: {reads} reads of {} cores, {versions} versions: all whole, none older than the one \
             published before the look, {newer} newer",
            self.cores
        );
    }
}

/// All rows. A core without memory for them says so and stays away, so that the others' wait is
/// noticed.
pub(super) fn rows(room: &mut Room, start: &Start) {
    const { assert!((size_of::<Block>() as u64).is_multiple_of(LINE_BYTES)) };
    let Some(state) = start.region(NAME).and_then(|region| State::new(&region, room)) else {
        return runtime::log!("load failed: the region {NAME} is missing or too small for {} cores", room.cores);
    };
    room.blocks = Blocks(RefCell::new(Some(state)));
    room.meet();
    room.read_rows();
    room.write_rows();
    room.tell_blocks();
}
