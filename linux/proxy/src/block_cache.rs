//! Blocks of files that a program reads again and again, here and there, kept by its proxy.
//!
//! A block has one place where it can lie, which its number gives, so a look is short. It is kept
//! when it is read for the second time within a while, as by 2Q (Johnson and Shasha, VLDB 1994):
//! who passes through a large file keeps nothing. A file whose blocks are seldom read again before
//! they change is let alone for a while.
//!
//! Invariant: what is found was read of that description since its file was last
//! [discarded](BlockCache::discard). Deliberately unknown here: channels, the program's memory, and
//! the server's word that what is kept is still as the file is (`bare/read_ahead.rs`).

use alloc::vec::Vec;

use crate::read_ahead::Name;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Files of which some are kept at a time.
pub const FILES: usize = 8;
/// Blocks that are kept at a time: 1 MiB of a process.
const BLOCKS: usize = 256;
/// Who reads larger pieces asks for each: there is little to save.
const PIECE_MAX: usize = 16 << 10;
/// Reads that were not answered here, of which it is known what they were.
const MISSES: usize = 512;
/// What a file has to its credit at first: so many pieces are kept of which none is read again.
const CREDIT: i32 = BLOCKS as i32;
const CREDIT_MAX: i32 = 2 * CREDIT;
/// A piece that is read again is worth so many that are not.
const HIT: i32 = 4;
/// One without credit is tried again after so many reads.
const LET_ALONE: u32 = 1024;

/// A file of which blocks are kept.
#[derive(Clone, Copy)]
struct File {
    name: Name,
    /// Blocks of others are of what it was before.
    edition: u32,
    credit: i32,
    /// Reads since it has had none.
    let_alone: u32,
    /// A block of this edition is kept.
    has_blocks: bool,
    /// The server is asked for more: whether what is kept is good is told by its answer.
    is_asked: bool,
}

/// A block, shorter where its file ends in it.
struct Kept {
    file: usize,
    edition: u32,
    number: u64,
    bytes: Vec<u8>,
}

/// What is to be asked for instead of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whose blocks they are. While the server is asked, another file may take its place.
    name: Name,
    /// The file's place among those that have some kept.
    pub file: usize,
    /// Whole blocks, from there.
    pub from: u64,
    /// So many bytes.
    pub length: usize,
}

/// See the module's head.
#[derive(Default)]
pub struct BlockCache {
    files: [Option<File>; FILES],
    /// None, until one is kept.
    blocks: Vec<Option<Kept>>,
    misses: Vec<u32>,
    last_file: usize,
    last_edition: u32,
}

fn place(name: Name, number: u64, places: usize) -> usize {
    // Neighbours do not displace each other, and files do not begin at the same place.
    let begin = name.1.wrapping_mul(37).wrapping_add(u64::from(name.0) * 101);
    (number.wrapping_add(begin) % places as u64) as usize
}

/// The numbers of the blocks that a piece is of.
fn numbers(at: u64, count: usize) -> Option<core::ops::RangeInclusive<u64>> {
    let last = at.checked_add(count.checked_sub(1)? as u64)?;
    Some(at / BLOCK as u64..=last / BLOCK as u64)
}

impl BlockCache {
    /// Where a file is among those that have some kept.
    pub fn file(&self, name: Name) -> Option<usize> {
        self.files.iter().position(|file| file.is_some_and(|file| file.name == name))
    }

    fn kept(&self, file: usize, number: u64) -> Option<&Kept> {
        let File { name, edition, .. } = self.files[file]?;
        let kept = self.blocks.get(place(name, number, BLOCKS))?.as_ref()?;
        (kept.file == file && kept.edition == edition && kept.number == number).then_some(kept)
    }

    /// How many bytes of a piece there are, if all are kept: fewer than `count` where the file
    /// ends.
    pub fn find(&self, file: usize, at: u64, count: usize) -> Option<usize> {
        self.files[file].filter(|file| !file.is_asked)?;
        let mut end = 0;
        for number in numbers(at, count)? {
            let kept = self.kept(file, number)?;
            end = number * BLOCK as u64 + kept.bytes.len() as u64;
            if kept.bytes.len() < BLOCK {
                break;
            }
        }
        Some(usize::try_from(end.saturating_sub(at)).map_or(count, |there| there.min(count)))
    }

    /// Copies bytes of a piece that was [found](BlockCache::find).
    pub fn copy(&mut self, file: usize, at: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let Some(kept) = self.kept(file, from / BLOCK as u64) else { break };
            let bytes = kept.bytes.get((from % BLOCK as u64) as usize..).unwrap_or_default();
            let length = bytes.len().min(into.len() - done);
            if length == 0 {
                break;
            }
            into[done..done + length].copy_from_slice(&bytes[..length]);
            done += length;
        }
        if let Some(file) = &mut self.files[file] {
            file.credit = (file.credit + HIT).min(CREDIT_MAX);
        }
    }

    /// A piece is read that is not kept. Whether it is worth [planning](BlockCache::plan): it was
    /// read before, not long ago.
    pub fn reads_again(&mut self, name: Name, at: u64, count: usize) -> bool {
        let Some(numbers) = numbers(at, count).filter(|_| count <= PIECE_MAX) else { return false };
        if self.misses.is_empty() {
            if self.misses.try_reserve_exact(MISSES).is_err() {
                return false;
            }
            self.misses.resize(MISSES, 0);
        }
        let first = *numbers.start();
        // None is 0.
        let tag = (first.wrapping_mul(0x9e37_79b9) ^ name.1 ^ u64::from(name.0) << 8) as u32 | 1;
        core::mem::replace(&mut self.misses[place(name, first, MISSES)], tag) == tag
    }

    /// What to ask for instead of a piece, `most` bytes at most, if its blocks are to be kept.
    /// Until [`answered`](BlockCache::answered) nothing is found of the file.
    pub fn plan(&mut self, name: Name, at: u64, count: usize, most: usize) -> Option<Plan> {
        let numbers = numbers(at, count)?;
        let blocks = (numbers.end() - numbers.start() + 1) as usize;
        if blocks * BLOCK > most {
            return None;
        }
        let file = self.file(name).unwrap_or_else(|| self.begin(name));
        if self.files[file].is_some_and(|known| known.is_asked) {
            // That one's answer was never heard.
            self.discard(file);
        }
        let known = self.files[file].as_mut()?;
        if known.credit <= 0 {
            known.let_alone += 1;
            if known.let_alone < LET_ALONE {
                return None;
            }
            (known.credit, known.let_alone) = (CREDIT, 0);
        }
        known.is_asked = true;
        Some(Plan { name, file, from: numbers.start() * BLOCK as u64, length: blocks * BLOCK })
    }

    /// A place for a file: that of another, perhaps.
    fn begin(&mut self, name: Name) -> usize {
        let free = self.files.iter().position(Option::is_none);
        let file = free.unwrap_or_else(|| {
            self.last_file = (self.last_file + 1) % FILES;
            self.last_file
        });
        let edition = self.next_edition();
        self.files[file] =
            Some(File { name, edition, credit: CREDIT, let_alone: 0, has_blocks: false, is_asked: false });
        file
    }

    fn next_edition(&mut self) -> u32 {
        self.last_edition = self.last_edition.wrapping_add(1);
        if self.last_edition == 0 {
            // None is kept of editions that begin again.
            self.blocks.iter_mut().for_each(|kept| *kept = None);
        }
        self.last_edition
    }

    /// The file of a plan, if it has its place yet.
    fn planned(&mut self, plan: Plan) -> Option<&mut File> {
        self.files[plan.file].as_mut().filter(|known| known.name == plan.name)
    }

    /// The server has answered for a plan: whether what was kept before it is as the file is.
    pub fn answered(&mut self, plan: Plan, is_good: bool) {
        if let Some(known) = self.planned(plan) {
            known.is_asked = false;
            if !is_good {
                self.discard(plan.file);
            }
        }
    }

    /// Whether any block of a file is kept.
    pub fn has_blocks(&self, file: usize) -> bool {
        self.files[file].is_some_and(|file| file.has_blocks)
    }

    /// What the server gave for a plan is kept: `got` bytes, fewer than were asked for if the file
    /// ends. `read` copies those from a place on, and says whether it could.
    pub fn keep(&mut self, plan: Plan, got: usize, read: impl Fn(usize, &mut [u8]) -> bool) {
        let Some(&mut File { name, edition, .. }) = self.planned(plan) else { return };
        if self.blocks.is_empty() {
            if self.blocks.try_reserve_exact(BLOCKS).is_err() {
                return;
            }
            self.blocks.resize_with(BLOCKS, || None);
        }
        // A file that ends where a block begins ends in that one.
        let count = if got < plan.length { got / BLOCK + 1 } else { plan.length / BLOCK };
        for index in 0..count {
            let number = plan.from / BLOCK as u64 + index as u64;
            let length = (got - index * BLOCK).min(BLOCK);
            let slot = &mut self.blocks[place(name, number, BLOCKS)];
            let mut bytes = slot.take().map(|kept| kept.bytes).unwrap_or_default();
            bytes.clear();
            if bytes.try_reserve_exact(length).is_err() {
                return;
            }
            bytes.resize(length, 0);
            if !read(index * BLOCK, &mut bytes) {
                return;
            }
            *slot = Some(Kept { file: plan.file, edition, number, bytes });
        }
        if let Some(known) = &mut self.files[plan.file] {
            known.credit -= 1;
            known.has_blocks = true;
        }
    }

    /// A file has changed: nothing is kept of it.
    pub fn discard(&mut self, file: usize) {
        let edition = self.next_edition();
        if let Some(known) = &mut self.files[file] {
            (known.edition, known.has_blocks) = (edition, false);
        }
    }

    /// The server gives nothing to keep for a plan: its file is let alone for a while.
    pub fn refused(&mut self, plan: Plan) {
        self.answered(plan, false);
        if let Some(known) = self.planned(plan) {
            (known.credit, known.let_alone) = (0, 0);
        }
    }

    /// A description is closed.
    pub fn close(&mut self, name: Name) {
        self.drop_all(|other| other == name);
    }

    /// A server knows of nothing that was open before.
    pub fn restarted(&mut self, server: u32) {
        self.drop_all(|(other, _)| other == server);
    }

    fn drop_all(&mut self, is_gone: impl Fn(Name) -> bool) {
        for file in 0..FILES {
            if self.files[file].take_if(|known| is_gone(known.name)).is_some() {
                let is_its_own = |kept: &mut Kept| kept.file == file;
                self.blocks.iter_mut().for_each(|kept| _ = kept.take_if(is_its_own));
            }
        }
    }
}

#[cfg(test)]
mod tests;
