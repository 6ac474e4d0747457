//! Which bytes of which file a program's shared mappings are (decision 79).
//!
//! A *piece* is whole pages of a file that have memory of their own, which the process server
//! gives. Its areas bear the memory's number with the part's, and its bytes are claimed at the file
//! server by a description that is the process's alone. Forked children have both, and who else
//! opens the file is told the number, so a piece belongs to all who have its memory.
//!
//! Invariants: the pieces of one file do not overlap; each has an area, unless it is just being
//! given back. Plain data: part of the state a forked child inherits.

use alloc::vec::Vec;
use core::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;
use crate::memory::{Area, Memory, PAGE};
use crate::system_v::{first_of, page_of};

/// Most pieces of a process.
pub const PIECES_MAX: usize = 256;

/// One piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Piece {
    /// Number of its memory, as in [`Area::common`] of its first part.
    pub common: u64,
    /// The description that claims its bytes.
    pub description: u64,
    /// The file's number.
    pub inode: u64,
    /// First byte in the file.
    pub from: u64,
    /// First byte after it.
    pub to: u64,
}

/// A part of what is to be mapped: in a piece that there is, or beside all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes of the file.
    pub bytes: Range<u64>,
    /// The piece they lie in.
    pub piece: Option<Piece>,
}

/// Bytes of a piece where they lie in one area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where they are in memory, and how many.
    pub address: u64,
    /// See `address`.
    pub bytes: u64,
    /// Where they are in the file.
    pub offset: u64,
    /// By which they are written and read.
    pub description: u64,
}

/// All pieces of a process.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pieces {
    count: u64,
    pieces: [Piece; PIECES_MAX],
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces { count: 0, pieces: [Piece::default(); PIECES_MAX] }
    }
}

impl Pieces {
    fn all(&self) -> &[Piece] {
        &self.pieces[..(self.count as usize).min(PIECES_MAX)]
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Is there one of this file?
    pub fn has(&self, inode: u64) -> bool {
        self.all().iter().any(|piece| piece.inode == inode)
    }

    /// The piece with that memory.
    pub fn of(&self, common: u64) -> Option<&Piece> {
        let common = first_of(common);
        self.all().iter().find(|piece| piece.common == common)
    }

    /// Is there room for `count` more? `ENOMEM`.
    pub fn room(&self, count: usize) -> Result<(), Errno> {
        if self.all().len() + count <= PIECES_MAX { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Adds one. `ENOMEM`.
    pub fn add(&mut self, piece: Piece) -> Result<(), Errno> {
        self.room(1)?;
        self.pieces[self.all().len()] = piece;
        self.count += 1;
        Ok(())
    }

    /// Takes out any piece.
    pub fn pop(&mut self) -> Option<Piece> {
        let last = self.all().last().copied()?;
        self.count = self.all().len() as u64 - 1;
        Some(last)
    }

    /// Takes out a piece that no area names any more.
    pub fn take_unused(&mut self, memory: &Memory) -> Option<Piece> {
        let is_used = |piece: &Piece| memory.areas().iter().any(|area| first_of(area.common) == piece.common);
        let index = self.all().iter().position(|piece| !is_used(piece))?;
        let taken = self.pieces[index];
        self.pieces[index] = self.pieces[self.all().len() - 1];
        self.count -= 1;
        Some(taken)
    }

    /// Bytes of a file by the pieces that they lie in; between these, at most `longest` at a time.
    pub fn runs(&self, inode: u64, bytes: Range<u64>, longest: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let ahead = |piece: &&Piece| piece.inode == inode && piece.to > at && piece.from < bytes.end;
            let next = self.all().iter().filter(ahead).min_by_key(|piece| piece.from);
            let (end, piece) = match next {
                Some(piece) if piece.from <= at => (piece.to.min(bytes.end), Some(*piece)),
                next => (next.map_or(bytes.end, |piece| piece.from).min(at.saturating_add(longest)), None),
            };
            runs.push(Run { bytes: at..end, piece });
            at = end;
        }
        runs
    }

    /// Areas of pieces, with the byte of the file at their start.
    fn areas<'a>(&'a self, memory: &'a Memory) -> impl Iterator<Item = (&'a Area, &'a Piece, u64)> {
        memory.areas().iter().filter(|area| area.common != 0).filter_map(|area| {
            let piece = self.of(area.common)?;
            Some((area, piece, piece.from + page_of(area) * PAGE))
        })
    }

    /// What lies in a range of memory, in areas that are wanted.
    pub fn at(&self, memory: &Memory, range: Range<u64>, is_wanted: impl Fn(&Area) -> bool) -> Vec<Stretch> {
        if self.is_empty() {
            return Vec::new();
        }
        let wanted = self.areas(memory).filter(|(area, ..)| is_wanted(area));
        let stretch = |(area, piece, first): (&Area, &Piece, u64)| {
            let (start, end) = (range.start.max(area.start), range.end.min(area.end));
            let description = piece.description;
            let offset = first + start.saturating_sub(area.start);
            (start < end).then(|| Stretch { address: start, bytes: end - start, offset, description })
        };
        wanted.filter_map(stretch).collect()
    }

    /// Where bytes of a file lie in memory, in areas that are wanted.
    pub fn in_file(
        &self,
        memory: &Memory,
        inode: u64,
        bytes: Range<u64>,
        is_wanted: impl Fn(&Area) -> bool,
    ) -> Vec<Stretch> {
        let wanted = self.areas(memory).filter(|(area, piece, _)| piece.inode == inode && is_wanted(area));
        let stretch = |(area, piece, first): (&Area, &Piece, u64)| {
            let (from, to) = (bytes.start.max(first), bytes.end.min(first + (area.end - area.start)));
            let description = piece.description;
            let address = area.start + from.saturating_sub(first);
            (from < to).then(|| Stretch { address, bytes: to - from, offset: from, description })
        };
        wanted.filter_map(stretch).collect()
    }
}

/// The next bytes from `at` on, in steps of a page, in which memory differs from what its file has.
/// What memory has past the file's end does not count.
pub fn next_difference(file: &[u8], memory: &[u8], at: usize) -> Option<Range<usize>> {
    let page = PAGE as usize;
    let end = file.len().min(memory.len());
    let differs = |start: usize| {
        let part = start..end.min(start + page);
        file[part.clone()] != memory[part]
    };
    let start = (at..end).step_by(page).find(|start| differs(*start))?;
    let after = (start..end).step_by(page).find(|start| !differs(*start));
    Some(start..after.unwrap_or(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::protection;
    use contracts::shared_memory::{PART_PAGES, PARTS_MAX};
    use zerocopy::FromZeros;

    const FILE: u64 = 9;

    /// Numbers of memory are multiples of this: below are those of its parts.
    const NUMBER: u64 = PARTS_MAX;

    fn piece(number: u64, from: u64, to: u64) -> Piece {
        let common = number * NUMBER;
        Piece { common, description: number + 100, inode: FILE, from: from * PAGE, to: to * PAGE }
    }

    fn area(start: u64, pages: u64, common: u64, first_page: u64) -> Area {
        let protection = protection::READ | protection::WRITE;
        Area {
            start,
            end: start + pages * PAGE,
            segment: common,
            first_page,
            protection,
            common: common * NUMBER,
            ..Area::default()
        }
    }

    #[test]
    fn runs_cover_what_is_asked_for_page_by_page() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        for _ in 0..300 {
            let mut pieces = Pieces::default();
            pieces.add(Piece { inode: FILE + 1, ..piece(77, 0, 40) }).unwrap();
            // Whose each page of the file is.
            let mut owners = [0u64; 40];
            for common in 1..12 {
                let from = random(30);
                let to = from + 1 + random(9);
                for run in pieces.runs(FILE, from * PAGE..to * PAGE, 4 * PAGE) {
                    let pages = run.bytes.start / PAGE..run.bytes.end / PAGE;
                    assert!(pages.start < pages.end);
                    for page in pages.clone() {
                        assert_eq!(owners[page as usize], run.piece.map_or(0, |piece| piece.common / NUMBER));
                    }
                    if let Some(piece) = run.piece {
                        assert!(piece.from <= run.bytes.start && run.bytes.end <= piece.to);
                        continue;
                    }
                    assert!(pages.end - pages.start <= 4);
                    let number = common * 100 + pages.start;
                    pieces.add(piece(number, pages.start, pages.end)).unwrap();
                    pages.for_each(|page| owners[page as usize] = number);
                }
                assert!((from..to).all(|page| owners[page as usize] != 0));
            }
        }
        assert!(Pieces::default().runs(FILE, PAGE..PAGE, PAGE).is_empty());
    }

    #[test]
    fn stretches_lead_from_memory_to_the_file_and_back() {
        let (mut pieces, mut memory) = (Pieces::default(), Memory::new_box_zeroed().unwrap());
        assert!(pieces.is_empty() && pieces.at(&memory, 0..u64::MAX, |_| true).is_empty());
        pieces.add(piece(1, 4, 8)).unwrap();
        pieces.add(piece(2, 8, 10)).unwrap();
        // The first piece twice, the second time without its first page; and memory of no file.
        memory.insert(area(0x10_0000, 4, 1, 0)).unwrap();
        memory.insert(area(0x20_0000, 2, 1, 1)).unwrap();
        memory.insert(Area { protection: protection::READ, ..area(0x30_0000, 2, 2, 0) }).unwrap();
        memory.insert(area(0x40_0000, 2, 3, 0)).unwrap();
        memory.insert(area(0x50_0000, 2, 0, 0)).unwrap();
        let stretch = |address, pages: u64, page: u64, description| Stretch {
            address,
            bytes: pages * PAGE,
            offset: page * PAGE,
            description,
        };
        let all = pieces.at(&memory, 0..u64::MAX, |_| true);
        assert_eq!(all, [stretch(0x10_0000, 4, 4, 101), stretch(0x20_0000, 2, 5, 101), stretch(0x30_0000, 2, 8, 102)]);
        assert_eq!(pieces.at(&memory, 0..u64::MAX, Area::is_writable), all[..2]);
        assert_eq!(pieces.at(&memory, 0x10_2000..0x10_3000, |_| true), [stretch(0x10_2000, 1, 6, 101)]);
        assert!(pieces.at(&memory, 0x40_0000..0x60_0000, |_| true).is_empty());
        assert!(pieces.at(&memory, 0x10_4000..0x20_0000, |_| true).is_empty(), "between two");
        assert_eq!(pieces.in_file(&memory, FILE, 7 * PAGE..8 * PAGE, |_| true).len(), 1, "the others touch it");
        let found = pieces.in_file(&memory, FILE, 6 * PAGE + 5..6 * PAGE + 9, |_| true);
        let part = |address| Stretch { address, bytes: 4, offset: 6 * PAGE + 5, description: 101 };
        assert_eq!(found, [part(0x10_2005), part(0x20_1005)]);
        assert_eq!(pieces.in_file(&memory, FILE, 0..u64::MAX, |_| true), all);
        assert!(pieces.in_file(&memory, FILE + 1, 0..u64::MAX, |_| true).is_empty());
        assert!(pieces.has(FILE) && !pieces.has(FILE + 1));
    }

    #[test]
    fn parts_of_a_piece_lie_one_behind_the_other_in_the_file() {
        let (mut pieces, mut memory) = (Pieces::default(), Memory::new_box_zeroed().unwrap());
        let from = 3;
        pieces.add(piece(1, from, from + 2 * PART_PAGES)).unwrap();
        let second = Area { common: NUMBER + 1, ..area(0x20_0000, 2, 1, 5) };
        memory.insert(second).unwrap();
        let found = pieces.at(&memory, 0..u64::MAX, |_| true);
        assert_eq!(found[0].offset, (from + PART_PAGES + 5) * PAGE);
        assert_eq!(pieces.take_unused(&memory), None);
        let page = found[0].offset + PAGE;
        assert_eq!(pieces.in_file(&memory, FILE, page..page + 1, |_| true)[0].address, 0x20_1000);
    }

    #[test]
    fn a_piece_goes_with_its_last_area() {
        let (mut pieces, mut memory) = (Pieces::default(), Memory::new_box_zeroed().unwrap());
        pieces.add(piece(1, 0, 2)).unwrap();
        pieces.add(piece(2, 2, 4)).unwrap();
        memory.insert(area(0x10_0000, 2, 1, 0)).unwrap();
        memory.insert(area(0x20_0000, 2, 2, 0)).unwrap();
        memory.remove(0x10_0000, 0x10_1000, |_| ()).unwrap();
        assert_eq!(pieces.take_unused(&memory), None);
        memory.remove(0x10_1000, 0x10_2000, |_| ()).unwrap();
        assert_eq!((pieces.take_unused(&memory), pieces.take_unused(&memory)), (Some(piece(1, 0, 2)), None));
        assert_eq!((pieces.of(NUMBER), pieces.of(2 * NUMBER + 7)), (None, Some(&piece(2, 2, 4))));
        // A cut keeps both sides in their places.
        memory.remove(0x20_0000, 0x20_1000, |_| ()).unwrap();
        assert_eq!(pieces.at(&memory, 0..u64::MAX, |_| true)[0].offset, 3 * PAGE);
        memory.remove(0x20_0000, 0x30_0000, |_| ()).unwrap();
        assert_eq!((pieces.take_unused(&memory), pieces.is_empty()), (Some(piece(2, 2, 4)), true));
        assert_eq!((pieces.add(piece(5, 0, 1)), pieces.pop(), pieces.pop()), (Ok(()), Some(piece(5, 0, 1)), None));
        (0..PIECES_MAX as u64).for_each(|at| pieces.add(piece(at + 1, at, at + 1)).unwrap());
        assert_eq!((pieces.room(1), pieces.add(piece(999, 999, 1000))), (Err(Errno::ENOMEM), Err(Errno::ENOMEM)));
    }

    #[test]
    fn only_pages_that_differ_are_found() {
        let page = PAGE as usize;
        let file = vec![1u8; 5 * page + 10];
        let mut memory = vec![1u8; 7 * page];
        assert_eq!(next_difference(&file, &memory, 0), None);
        for at in [page, 2 * page - 1, 2 * page, 4 * page + 7, 5 * page + 9] {
            memory[at] = 2;
        }
        assert_eq!(next_difference(&file, &memory, 0), Some(page..3 * page));
        assert_eq!(next_difference(&file, &memory, 3 * page), Some(4 * page..5 * page + 10));
        assert_eq!(next_difference(&file, &memory, 5 * page + 10), None);
        // The file ends before: nothing makes it longer.
        memory[5 * page + 9] = 1;
        memory[5 * page + 10] = 2;
        assert_eq!(next_difference(&file, &memory, 5 * page), None);
        assert_eq!(next_difference(&[], &memory, 0), None);
    }
}
