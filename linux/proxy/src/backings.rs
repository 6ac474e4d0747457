//! Which bytes of which file back a program's memory (decision 98).
//!
//! A *backing* says that the pages of a segment are those of a file, from some byte on. Areas of it
//! bear [`mark::BACKED`](crate::memory::mark::BACKED): they are paged in from there as they are
//! touched, and can be paged out at any time, since the program cannot write them.
//!
//! Invariant: each backing's segment is named by an area, unless it is just being given back. Plain
//! data: part of the state a forked child inherits.

use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;
use crate::memory::{Area, Memory, PAGE, mark};

/// Most of a process; what is more is read when it is mapped.
pub const BACKINGS_MAX: usize = 1024;

/// One backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Backing {
    /// Handle of the segment.
    pub segment: u64,
    /// By which the file is read. Several may have one.
    pub description: u64,
    /// The description that the program mapped, or ran.
    pub source: u64,
    /// Byte of the file at the segment's first page.
    pub offset: u64,
    /// No other has this number, or had it before.
    pub number: u64,
}

impl Backing {
    /// The byte of the file at an address in one of its areas.
    pub fn offset_at(&self, area: &Area, address: u64) -> u64 {
        self.offset + area.first_page * PAGE + (address - area.start)
    }
}

/// All of a process.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Backings {
    count: u64,
    last_number: u64,
    all: [Backing; BACKINGS_MAX],
}

impl Backings {
    fn all(&self) -> &[Backing] {
        &self.all[..(self.count as usize).min(BACKINGS_MAX)]
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Is there room for so many more? `ENOMEM`.
    pub fn room(&self, count: usize) -> Result<(), Errno> {
        if count <= BACKINGS_MAX - self.all().len() { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// That of a segment.
    pub fn of(&self, segment: u64) -> Option<&Backing> {
        self.all().iter().find(|backing| backing.segment == segment)
    }

    /// By which a file is read that was mapped, or run, by that description.
    pub fn description_of(&self, source: u64) -> Option<u64> {
        self.all().iter().find(|backing| backing.source == source).map(|backing| backing.description)
    }

    /// Is a file read by that?
    pub fn reads_by(&self, description: u64) -> bool {
        self.all().iter().any(|backing| backing.description == description)
    }

    /// Adds one, whose number it gives. `ENOMEM`.
    pub fn add(&mut self, backing: Backing) -> Result<(), Errno> {
        self.room(1)?;
        self.last_number += 1;
        self.all[self.all().len()] = Backing { number: self.last_number, ..backing };
        self.count += 1;
        Ok(())
    }

    /// Takes out that of a segment, which no area names any more. Gives what is to be closed, if no
    /// other reads by it.
    pub fn take(&mut self, segment: u64) -> Option<u64> {
        let index = self.all().iter().position(|backing| backing.segment == segment)?;
        let description = self.all[index].description;
        self.all[index] = self.all[self.all().len() - 1];
        self.count -= 1;
        (!self.reads_by(description)).then_some(description)
    }
}

/// Is it of a file, and paged in?
pub fn is_resident(area: &Area) -> bool {
    area.marks & mark::BACKED != 0 && !area.is_out()
}

/// What to page out next, from an address on and around, if so many bytes are to go.
pub fn to_page_out(memory: &Memory, hand: u64, bytes: u64) -> Vec<Area> {
    let mut left = bytes.next_multiple_of(PAGE);
    let resident = memory.parts(hand, u64::MAX).chain(memory.parts(0, hand)).filter(is_resident);
    let cut = |area: Area| {
        let end = area.end.min(area.start + left);
        left -= end - area.start;
        (area.start < end).then_some(Area { end, ..area })
    };
    resident.map_while(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::protection;
    use zerocopy::FromZeros;

    const AT: u64 = 0x10_0000;

    fn backing(segment: u64, description: u64) -> Backing {
        Backing { segment, description, source: description + 100, offset: 3 * PAGE, number: 0 }
    }

    #[test]
    fn a_description_is_closed_with_the_last_backing_that_reads_by_it() {
        let mut all = Backings::new_box_zeroed().unwrap();
        assert!(all.is_empty());
        for (segment, description) in [(1, 7), (2, 7), (3, 8)] {
            all.add(backing(segment, description)).unwrap();
        }
        assert!(!all.is_empty());
        assert_eq!([1, 2, 3].map(|segment| all.of(segment).unwrap().number), [1, 2, 3]);
        assert_eq!((all.description_of(107), all.description_of(7)), (Some(7), None));
        assert_eq!((all.take(1), all.take(1), all.take(3), all.take(2)), (None, None, Some(8), Some(7)));
        assert!(all.is_empty() && all.of(2).is_none());
        all.add(backing(1, 7)).unwrap();
        assert_eq!(all.of(1).unwrap().number, 4, "no number comes again");
        (1..BACKINGS_MAX as u64).for_each(|at| all.add(backing(at + 1, 7)).unwrap());
        assert_eq!((all.room(0), all.add(backing(5000, 7))), (Ok(()), Err(Errno::ENOMEM)));
    }

    #[test]
    fn memory_is_paged_in_and_out_and_keeps_its_access() {
        let mut memory = Memory::new_box_zeroed().unwrap();
        let read = protection::READ;
        let area = Area {
            start: AT,
            end: AT + 8 * PAGE,
            segment: 5,
            protection: read,
            marks: mark::BACKED | mark::SEALED,
            ..Area::default()
        };
        memory.insert(area.out()).unwrap();
        assert!(!memory.allows(AT, PAGE, read) && memory.allows(AT, 8 * PAGE, 0));
        assert_eq!(memory.first_out(AT + 5, 2 * PAGE, read), Some(AT + 5..AT + 5 + 2 * PAGE));
        assert_eq!(memory.first_out(AT, PAGE, protection::WRITE), None);
        memory.set_out(AT + 2 * PAGE, AT + 4 * PAGE, false).unwrap();
        assert!(memory.allows(AT + 2 * PAGE, 2 * PAGE, read));
        assert_eq!(memory.areas().len(), 3);
        assert_eq!(memory.first_out(AT + 2 * PAGE, 3 * PAGE, read), Some(AT + 4 * PAGE..AT + 5 * PAGE));
        assert_eq!(memory.first_out(AT + 2 * PAGE, 2 * PAGE, read), None);
        // Past its end nothing is mapped, in or out.
        assert_eq!(memory.first_out(AT + 3 * PAGE, 9 * PAGE, read), Some(AT + 4 * PAGE..AT + 8 * PAGE));
        assert_eq!(memory.first_out(AT - PAGE, 2 * PAGE, read), None);
        // Access changes while it is out.
        let both = read | protection::EXECUTE;
        memory.protect(AT, AT + 8 * PAGE, both, |_, _| Ok(())).unwrap();
        assert!(memory.areas().iter().all(|area| area.access() == both && area.marks & mark::SEALED != 0));
        assert!(!memory.allows(AT, PAGE, both) && memory.allows(AT + 2 * PAGE, 2 * PAGE, both));
        memory.set_out(AT, AT + 8 * PAGE, true).unwrap();
        assert_eq!(memory.areas(), [Area { protection: both, ..area }.out()]);
        memory.set_out(AT, AT + 8 * PAGE, false).unwrap();
        assert_eq!(memory.areas(), [Area { protection: both, ..area }]);
        // What was written is the program's own, whatever it may do then.
        memory.protect(AT, AT + PAGE, read | protection::WRITE, |_, _| Ok(())).unwrap();
        memory.protect(AT, AT + PAGE, read, |_, _| Ok(())).unwrap();
        memory.set_out(AT, AT + 8 * PAGE, true).unwrap();
        assert!(memory.allows(AT, PAGE, read) && !memory.allows(AT + PAGE, PAGE, read));
        assert_eq!(memory.areas()[0].marks, mark::FILLED | mark::SEALED);
    }

    #[test]
    fn all_that_is_in_goes_out_in_turn() {
        let mut memory = Memory::new_box_zeroed().unwrap();
        let area = |at: u64, pages: u64, marks| Area {
            start: AT + at * PAGE,
            end: AT + (at + pages) * PAGE,
            segment: 5,
            first_page: at,
            protection: protection::READ,
            marks,
            ..Area::default()
        };
        memory.insert(area(0, 4, mark::BACKED)).unwrap();
        memory.insert(area(4, 2, mark::FILLED)).unwrap();
        memory.insert(area(6, 2, mark::BACKED).out()).unwrap();
        memory.insert(area(8, 4, mark::BACKED)).unwrap();
        let pages = |hand: u64, bytes| -> Vec<u64> {
            let parts = to_page_out(&memory, AT + hand * PAGE, bytes);
            parts.iter().flat_map(|part| (part.start - AT) / PAGE..(part.end - AT) / PAGE).collect()
        };
        assert_eq!((pages(0, 1), pages(0, 5 * PAGE)), (vec![0], vec![0, 1, 2, 3, 8]));
        assert_eq!(pages(2, 100 * PAGE), [2, 3, 8, 9, 10, 11, 0, 1]);
        assert_eq!((pages(10, 3 * PAGE), pages(100, PAGE), pages(0, 0)), (vec![10, 11, 0], vec![0], vec![]));
        let bounds: Vec<_> = to_page_out(&memory, AT, 4 * PAGE).iter().map(|part| (part.start, part.end)).collect();
        assert_eq!(bounds, [(AT, AT + 4 * PAGE)], "no part of nothing");
        assert_eq!(memory.bytes(0..u64::MAX, is_resident), 8 * PAGE);
    }

    #[test]
    fn an_address_leads_to_the_file() {
        let area = Area { start: AT, end: AT + 8 * PAGE, segment: 5, first_page: 4, ..Area::default() };
        assert_eq!(backing(5, 7).offset_at(&area, AT + PAGE + 9), 8 * PAGE + 9);
    }
}
