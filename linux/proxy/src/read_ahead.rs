//! Bytes of files that the proxy keeps, so that a program which reads a file piece by piece asks
//! its server once for many pieces.
//!
//! Invariants: a program that has read a piece and wants the next one is believed to go on, one
//! that seeks is not; what is asked for doubles as long as it does. Deliberately unknown here:
//! channels, the program's memory, and the server's word that what is kept is still as the file is
//! (`bare/read_ahead.rs`).

use alloc::vec::Vec;
use core::ops::Range;

/// So many stretches are kept at a time.
pub const PLACES: usize = 4;
/// Readers of which it is known how far they are.
const READERS: usize = 8;
/// Who reads larger pieces asks for each: there is little to save.
const PIECE_MAX: usize = 16 << 10;
/// What is asked for at first, in pieces.
const FIRST: usize = 4;

/// A description: its server, and its id there.
pub type Name = (u32, u64);

/// A stretch of a file that is kept.
pub struct Stretch {
    /// Of what.
    pub name: Name,
    /// Where it begins in the file.
    pub from: u64,
    /// What lies there.
    pub bytes: Vec<u8>,
    /// The file ends behind it.
    pub ends_file: bool,
    /// How much of it was read at the description's own offset, if that is moved here.
    pub read: Option<usize>,
}

/// How far somebody has read.
#[derive(Clone, Copy)]
struct Reader {
    name: Name,
    /// Where the next piece begins, of who says so; else at the description's own offset.
    next: Option<u64>,
    /// What was asked for last; 0: what was read.
    asked: usize,
    /// The server gives it nothing to keep.
    is_refused: bool,
}

impl Reader {
    /// Goes it on there, with so many bytes?
    fn wants(&self, name: Name, at: Option<u64>, count: usize) -> bool {
        let is_next = match (self.next, at) {
            (Some(next), Some(at)) => next.checked_sub(at).is_some_and(|left| left < count as u64),
            (None, None) => true,
            _ => false,
        };
        self.name == name && is_next
    }
}

/// See the module's head.
#[derive(Default)]
pub struct ReadAhead {
    stretches: [Option<Stretch>; PLACES],
    readers: [Option<Reader>; READERS],
    /// Bytes of one that was forgotten, for their room.
    spare: Vec<u8>,
    /// Who was forgotten last.
    last_place: usize,
    last_reader: usize,
}

impl ReadAhead {
    /// Where bytes for a read are kept, and which: at a place, or at the description's own offset.
    /// All that is wanted, or up to the end of the file.
    pub fn find(&self, name: Name, at: Option<u64>, count: usize) -> Option<(usize, Range<usize>)> {
        self.stretches.iter().enumerate().find_map(|(place, stretch)| {
            let stretch = stretch.as_ref().filter(|stretch| stretch.name == name)?;
            let start = match at {
                Some(at) => usize::try_from(at.checked_sub(stretch.from)?).ok()?,
                None => stretch.read?,
            };
            let (end, length) = (start.checked_add(count)?, stretch.bytes.len());
            (end <= length || stretch.ends_file).then(|| (place, start.min(length)..end.min(length)))
        })
    }

    /// What lies there.
    pub fn bytes(&self, place: usize, range: Range<usize>) -> &[u8] {
        self.stretches[place].as_ref().and_then(|stretch| stretch.bytes.get(range)).unwrap_or_default()
    }

    /// A program has read up to there. How far its description's own offset is in the stretch now,
    /// if that was read at it.
    pub fn moved(&mut self, place: usize, at: Option<u64>, end: usize) -> Option<u32> {
        let read = self.stretches[place].as_mut()?.read.as_mut().filter(|_| at.is_none())?;
        *read = end;
        u32::try_from(end).ok()
    }

    /// Whether a program that wants bytes which are not kept goes on reading, so that what comes
    /// next is worth asking for ([`plan`](ReadAhead::plan)). Who does not is a new reader.
    pub fn goes_on(&mut self, name: Name, at: Option<u64>, count: usize) -> bool {
        if let Some(index) = self.reader(name, at, count) {
            let reader = self.readers[index].as_mut().filter(|reader| reader.is_refused || count > PIECE_MAX);
            let is_worth_more = reader.is_none();
            reader.into_iter().for_each(|reader| reader.next = at.map(|at| at.saturating_add(count as u64)));
            return is_worth_more && count > 0;
        }
        self.last_reader = (self.last_reader + 1) % READERS;
        let next = at.map(|at| at.saturating_add(count as u64));
        self.readers[self.last_reader] = Some(Reader { name, next, asked: 0, is_refused: false });
        false
    }

    fn reader(&self, name: Name, at: Option<u64>, count: usize) -> Option<usize> {
        self.readers.iter().position(|one| one.is_some_and(|one| one.wants(name, at, count)))
    }

    /// Where what is asked for instead is to be kept, and how much that is, of `most` bytes;
    /// `None`: what the program wants.
    pub fn plan(&mut self, name: Name, at: Option<u64>, count: usize, most: usize) -> Option<(usize, usize)> {
        let reader = self.reader(name, at, count).and_then(|index| self.readers[index].as_mut())?;
        let wanted = if reader.asked == 0 { FIRST * count } else { 2 * reader.asked }.min(most);
        if wanted <= count {
            return None;
        }
        reader.asked = wanted;
        reader.next = at.map(|at| at.saturating_add(wanted as u64));
        let is_its_own = |stretch: &Option<Stretch>| {
            stretch.as_ref().is_some_and(|stretch| stretch.name == name && stretch.read.is_none() == at.is_some())
        };
        let free = || self.stretches.iter().position(Option::is_none);
        let place = self.stretches.iter().position(is_its_own).or_else(free).unwrap_or_else(|| {
            self.last_place = (self.last_place + 1) % PLACES;
            self.last_place
        });
        if let Some(gone) = self.stretches[place].take() {
            self.spare = gone.bytes;
        }
        Some((place, wanted))
    }

    /// Room for bytes that are to be kept: that of others, perhaps, with what they were.
    pub fn room(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.spare)
    }

    /// What a server gave is kept.
    pub fn keep(&mut self, place: usize, stretch: Stretch) {
        self.stretches[place] = Some(stretch);
    }

    /// Drops a stretch: the file has changed there.
    pub fn discard(&mut self, place: usize) {
        self.stretches[place] = None;
    }

    /// A server gives a description nothing to keep: it is not asked for that again.
    pub fn refused(&mut self, name: Name) {
        for reader in self.readers.iter_mut().flatten().filter(|reader| reader.name == name) {
            reader.is_refused = true;
        }
    }

    /// A description's own offset is moved elsewhere: who reads there does not go on.
    pub fn seeks(&mut self, name: Name) {
        let is_it = |reader: &mut Reader| reader.name == name && reader.next.is_none();
        self.readers.iter_mut().for_each(|one| _ = one.take_if(is_it));
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
        self.stretches.iter_mut().for_each(|one| _ = one.take_if(|stretch| is_gone(stretch.name)));
        self.readers.iter_mut().for_each(|one| _ = one.take_if(|reader| is_gone(reader.name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Name = (1, 7);
    const MOST: usize = 60 << 10;
    const PIECE: usize = 4096;

    fn stretch(from: u64, length: usize, read: Option<usize>) -> Stretch {
        let bytes = (0..length).map(|at| (from as usize + at) as u8).collect();
        Stretch { name: ONE, from, bytes, ends_file: length < MOST, read }
    }

    /// What is asked for where a piece is wanted that is not kept.
    fn plan(ahead: &mut ReadAhead, name: Name, at: Option<u64>, count: usize) -> Option<(usize, usize)> {
        ahead.goes_on(name, at, count).then(|| ahead.plan(name, at, count, MOST)).flatten()
    }

    /// A file of so many bytes is read in such pieces, at its description's offset or at places.
    /// Gives what was read, and how often the server was asked.
    fn read(ahead: &mut ReadAhead, size: usize, piece: usize, is_own: bool) -> (Vec<u8>, usize) {
        let (mut all, mut asked) = (Vec::new(), 0);
        loop {
            let at = (!is_own).then_some(all.len() as u64);
            let bytes = if let Some((place, range)) = ahead.find(ONE, at, piece) {
                let end = range.end;
                let bytes = ahead.bytes(place, range).to_vec();
                assert_eq!(ahead.moved(place, at, end).is_some(), is_own);
                bytes
            } else {
                asked += 1;
                let from = all.len();
                let plan = plan(ahead, ONE, at, piece);
                let length = plan.map_or(piece, |(_, length)| length);
                let bytes: Vec<u8> = (from..size.min(from + length)).map(|at| at as u8).collect();
                let own = bytes.len().min(piece);
                if let Some((place, length)) = plan {
                    let read = is_own.then_some(own);
                    let ends_file = bytes.len() < length;
                    ahead.keep(place, Stretch { name: ONE, from: from as u64, bytes: bytes.clone(), ends_file, read });
                }
                bytes[..own].to_vec()
            };
            if bytes.is_empty() {
                return (all, asked);
            }
            all.extend(bytes);
        }
    }

    #[test]
    fn a_file_that_is_read_in_pieces_is_read_right_and_asked_for_seldom() {
        for is_own in [true, false] {
            for (size, piece) in [(1 << 20, PIECE), (1 << 20, 1000), (300_001, 777), (5000, 100), (10, 3), (0, 5)] {
                let (bytes, asked) = read(&mut ReadAhead::default(), size, piece, is_own);
                assert!(bytes.len() == size && bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
                // Two before it doubles up to the most, which then has all but a piece.
                let (steps, each) = (2 + (MOST / (FIRST * piece)).max(1).ilog2() as usize + 1, MOST - piece);
                assert!(asked <= steps + size.div_ceil(each) + 1, "{size} by {piece}: {asked}");
            }
        }
    }

    #[test]
    fn who_reads_large_pieces_or_jumps_gets_what_it_asks_for() {
        let mut ahead = ReadAhead::default();
        assert!((0..9).all(|_| plan(&mut ahead, ONE, None, PIECE_MAX + 1).is_none()));
        let mut ahead = ReadAhead::default();
        for at in [0, 100_000, 30_000, 50_000, 4 << 30, u64::MAX] {
            assert_eq!(plan(&mut ahead, ONE, Some(at), PIECE), None, "{at}");
        }
        for _ in 0..9 {
            assert_eq!(plan(&mut ahead, ONE, None, PIECE), None);
            ahead.seeks(ONE);
        }
        assert_eq!(plan(&mut ahead, ONE, None, 0), None);
        assert_eq!(plan(&mut ahead, ONE, None, PIECE), Some((0, FIRST * PIECE)));
        assert_eq!(plan(&mut ahead, ONE, None, PIECE), Some((0, 2 * FIRST * PIECE)));
        assert_eq!(plan(&mut ahead, ONE, None, PIECE), Some((0, MOST)));
    }

    #[test]
    fn one_that_the_server_refuses_is_not_asked_for_again_until_it_is_another() {
        let mut ahead = ReadAhead::default();
        plan(&mut ahead, ONE, None, PIECE);
        assert!(plan(&mut ahead, ONE, None, PIECE).is_some());
        ahead.refused(ONE);
        assert!((0..9).all(|_| plan(&mut ahead, ONE, None, PIECE).is_none()));
        ahead.close(ONE);
        plan(&mut ahead, ONE, None, PIECE);
        assert!(plan(&mut ahead, ONE, None, PIECE).is_some());
    }

    #[test]
    fn a_part_is_found_where_it_is_and_all_of_it() {
        let mut ahead = ReadAhead::default();
        ahead.keep(0, Stretch { ends_file: false, ..stretch(1000, 100, Some(10)) });
        assert_eq!(ahead.find(ONE, None, 90), Some((0, 10..100)));
        assert_eq!(ahead.find(ONE, None, 91), None);
        assert_eq!(ahead.find(ONE, Some(1099), 1), Some((0, 99..100)));
        assert_eq!(ahead.bytes(0, 99..100), [1099_u32 as u8]);
        for (at, count) in [(1099, 2), (1100, 1), (999, 1), (0, 1), (u64::MAX, usize::MAX)] {
            assert_eq!(ahead.find(ONE, Some(at), count), None, "{at}");
        }
        assert_eq!(ahead.find((1, 8), None, 1), None);
        assert_eq!((ahead.moved(0, Some(1000), 50), ahead.moved(0, None, 50)), (None, Some(50)));
        assert_eq!(ahead.find(ONE, None, 1), Some((0, 50..51)));
        // One that is not read at the offset has nothing for who does.
        ahead.keep(0, stretch(1000, 100, None));
        assert_eq!((ahead.find(ONE, None, 1), ahead.moved(0, None, 3)), (None, None));
        // Behind the end of a file lies nothing.
        assert_eq!(ahead.find(ONE, Some(1090), 20), Some((0, 90..100)));
        assert_eq!(ahead.find(ONE, Some(5000), 20), Some((0, 100..100)));
        ahead.discard(0);
        assert_eq!(ahead.find(ONE, Some(1000), 1), None);
    }

    #[test]
    fn nothing_is_kept_of_what_is_closed_or_of_an_earlier_life() {
        let kept_of = |end: &dyn Fn(&mut ReadAhead)| {
            let mut ahead = ReadAhead::default();
            for (place, name) in [ONE, (1, 8), (2, 7)].into_iter().enumerate() {
                ahead.keep(place, Stretch { name, ..stretch(0, 10, Some(0)) });
            }
            end(&mut ahead);
            [ONE, (1, 8), (2, 7)].map(|name| ahead.find(name, None, 5).is_some())
        };
        assert_eq!(kept_of(&|ahead| ahead.close(ONE)), [false, true, true]);
        assert_eq!(kept_of(&|ahead| ahead.restarted(1)), [false, false, true]);
    }

    #[test]
    fn many_files_have_places_in_turn() {
        let mut ahead = ReadAhead::default();
        let mut place_of = |id: u64| {
            plan(&mut ahead, (1, id), None, PIECE);
            plan(&mut ahead, (1, id), None, PIECE).map(|(place, length)| {
                ahead.keep(place, Stretch { name: (1, id), ..stretch(0, length, Some(0)) });
                place
            })
        };
        let places: Vec<_> = (0..2 * PLACES as u64).filter_map(&mut place_of).collect();
        assert_eq!(places.len(), 2 * PLACES);
        assert!((0..PLACES).all(|place| places.iter().filter(|one| **one == place).count() == 2), "{places:?}");
    }

    #[test]
    fn who_reads_the_same_again_or_nothing_does_not_go_on() {
        let mut ahead = ReadAhead::default();
        assert!(!ahead.goes_on(ONE, Some(0), 100) && !ahead.goes_on(ONE, Some(0), 100));
        assert!(ahead.goes_on(ONE, Some(1), 100), "a byte of it is new");
        let mut ahead = ReadAhead::default();
        assert!(!ahead.goes_on(ONE, None, 100) && !ahead.goes_on(ONE, None, 0) && ahead.goes_on(ONE, None, 100));
        let mut ahead = ReadAhead::default();
        assert!(!ahead.goes_on(ONE, None, PIECE_MAX) && ahead.goes_on(ONE, None, PIECE_MAX));
    }

    #[test]
    fn several_read_side_by_side_and_keep_a_stretch_each() {
        let mut ahead = ReadAhead::default();
        let names: Vec<Name> = (0..READERS as u64).map(|id| (1, id)).collect();
        for name in &names {
            assert!(!ahead.goes_on(*name, None, PIECE) && !ahead.goes_on(*name, Some(0), PIECE));
        }
        let goes_on = |ahead: &mut ReadAhead, name: &Name| ahead.goes_on(*name, None, PIECE);
        let last = &names[READERS / 2..];
        assert!(last.iter().all(|name| goes_on(&mut ahead, name)), "there is room for them");
        // Who seeks begins anew, and nobody else does.
        ahead.seeks(last[0]);
        assert!(last[1..].iter().all(|name| goes_on(&mut ahead, name)) && !goes_on(&mut ahead, &last[0]));
        let reads_on = |name: &Name| ahead.reader(*name, Some(PIECE as u64), PIECE).is_some();
        assert!(last[1..].iter().all(reads_on));
    }

    #[test]
    fn one_reader_has_one_stretch() {
        for is_own in [true, false] {
            let mut ahead = ReadAhead::default();
            let mut at = 0;
            for round in 0..3 {
                let place = (!is_own).then_some(at);
                let Some((place, length)) = plan(&mut ahead, ONE, place, PIECE) else {
                    assert_eq!(round, 0);
                    at += PIECE as u64;
                    continue;
                };
                assert_eq!(place, 0, "what it had before gives way");
                ahead.keep(place, stretch(at, length, is_own.then_some(PIECE)));
                at += length as u64;
            }
        }
    }
}
