//! The program's memory map: which areas exist, with what protection, backed by which segment.
//!
//! Invariants: areas are page-aligned, sorted by address, never overlap and lie in the program's
//! part of the address space; neighbours that could be one area are one. Of a segment that is the
//! program's own, all areas lie as its pages do: their addresses differ as their pages. Pure
//! bookkeeping: the binary maps and unmaps after the table agreed, and drops a segment when
//! [`Memory::uses`] says nobody names it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Bytes in a page.
pub const PAGE: u64 = abi::PAGE_BYTES;
/// Most areas a program may have, as Linux has it (vm.max_map_count).
pub const AREAS_MAX: usize = 65_530;
/// Lowest address a program may map (as Linux's mmap_min_addr).
pub const LOWEST: u64 = 0x1_0000;
/// Non-PIE images and their heap end below the proxy's own image.
pub const LOW_END: u64 = abi::layout::PROXY_BASE;
/// The proxy's image, bss and stack end below this.
pub const PROXY_END: u64 = abi::layout::PROXY_END;
/// The process-state region, at a fixed address so that a forked child finds it.
pub const STATE_BASE: u64 = 0x0000_7100_0000_0000;
/// From the state region up to here everything is the proxy's: state, start page, channels, heap.
pub const RESERVED_END: u64 = 0x0000_7600_0000_0000;
/// Areas without a hint are placed upwards from here, so that one that is mapped after another
/// continues it: a segment grows at its end only.
pub const PLACE_BASE: u64 = 0x0000_7f80_0000_0000;
/// And end below this. What does not fit is placed from [`RESERVED_END`] on.
pub const PLACE_TOP: u64 = 0x0000_7fff_0000_0000;
/// Areas that are to have low addresses are placed from here to [`LOW_END`], above images that
/// have.
pub const PLACE_LOW: u64 = 0x4000_0000;
/// Where position-independent programs are loaded.
pub const PIE_BASE: u64 = 0x0000_5555_5555_4000;
/// Top of the program's stack.
pub const STACK_TOP: u64 = 0x0000_7fff_ffff_0000;
/// The stack's size limit at first. All of it is mapped; pages appear when touched.
pub const STACK_BYTES: u64 = 8 << 20;
/// The most that it can be raised to.
pub const STACK_BYTES_MAX: u64 = 64 << 20;
/// The least that a program begins with: its arguments must fit, and room is left.
const STACK_BYTES_MIN: u64 = 256 << 10;
const _: () = assert!(STACK_BYTES_MIN >= 2 * crate::stack::ARGUMENTS_BYTES_MAX as u64);
const _: () = assert!(PLACE_TOP <= STACK_TOP - STACK_BYTES_MAX);

/// Bits of [`Area::protection`], as Linux's PROT_*: the same as the kernel's.
pub mod protection {
    /// Loads.
    pub const READ: u32 = 1;
    /// Stores.
    pub const WRITE: u32 = 2;
    /// Fetches.
    pub const EXECUTE: u32 = 4;
}

/// Bits of [`Area::marks`].
pub mod mark {
    /// Of a file that is open for reading only, and shared: nothing may make it writable.
    pub const SEALED: u32 = 1;
    /// Filled from a file: its bytes cannot be had again, so they stay.
    pub const FILLED: u32 = 2;
    /// Forked children do not have it (MADV_DONTFORK).
    pub const NOT_FORKED: u32 = 4;
    /// Forked children have zeroes there (MADV_WIPEONFORK).
    pub const WIPED: u32 = 8;
    /// What says how it is at a fork, and nothing else.
    pub const OF_FORKS: u32 = NOT_FORKED | WIPED;
    /// Of a System V segment: its number and part are in [`Area::common`](super::Area::common).
    pub const SYSTEM_V: u32 = 16;
    /// Of memory in common that has no name: the same.
    pub const LENT: u32 = 32;
}

/// One area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Area {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Handle of the segment, 0 for an area without access that has none yet.
    pub segment: u64,
    /// Page of the segment at `start`.
    pub first_page: u64,
    /// `protection::*`.
    pub protection: u32,
    /// `mark::*`.
    pub marks: u32,
    /// Number of the segment's memory if forked children have it in common, else 0. A secret of
    /// theirs.
    pub common: u64,
}

impl Area {
    fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }

    /// May the program store there?
    pub fn is_writable(&self) -> bool {
        self.protection & protection::WRITE != 0
    }

    /// Is it the program's own to write, besides its stack (RLIMIT_DATA)?
    pub fn is_data(&self) -> bool {
        self.is_writable() && self.common == 0 && self.start < STACK_TOP - STACK_BYTES_MAX
    }

    /// Is it the program's own, and without a byte of a file? Then it may be made zeroes again.
    pub fn is_anonymous(&self) -> bool {
        self.common == 0 && self.marks & !mark::OF_FORKS == 0
    }

    /// Segment and page of what lies behind it, if it is the program's own and can have `pages`
    /// more.
    pub fn room_behind(&self, pages: u64) -> Option<(u64, u64)> {
        let next = self.first_page + self.pages();
        let fits = next.checked_add(pages).is_some_and(|end| end <= abi::layout::SEGMENT_PAGES_MAX);
        (self.is_anonymous() && self.segment != 0 && fits).then_some((self.segment, next))
    }

    /// Could this, which begins where the other ends, be one area with it?
    fn continues(&self, last: &Area) -> bool {
        last.end == self.start
            && last.protection == self.protection
            && last.marks == self.marks
            && last.segment == self.segment
            && (self.segment == 0 || last.first_page + last.pages() == self.first_page)
    }

    fn tail(mut self, at: u64) -> Area {
        if self.segment != 0 {
            self.first_page += (at - self.start) / PAGE;
        }
        self.start = at;
        self
    }
}

/// The table. Plain data that begins as zeroes: it is part of the state a forked child inherits,
/// whose pages are there as far as they were used.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Memory {
    count: u64,
    /// No gap is between [`PLACE_BASE`] and this.
    packed: u64,
    /// Indices of areas that were found lately, by some bits of the address. Hints: they may name
    /// any other by now, or none.
    seen: [u16; SEEN],
    areas: [Area; AREAS_MAX],
}

/// Areas that are remembered.
const SEEN: usize = 16;
const _: () = assert!(SEEN.is_power_of_two() && AREAS_MAX <= u16::MAX as usize);

/// Where the area of an address is remembered: of several stacks, each elsewhere.
fn seen_at(address: u64) -> usize {
    ((address >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SEEN.trailing_zeros())) as usize
}

/// How much stack a program begins with under a soft limit.
pub fn stack_bytes(limit: u64) -> u64 {
    limit.clamp(STACK_BYTES_MIN, STACK_BYTES_MAX) & !(PAGE - 1)
}

/// Rounds up to whole pages; `None` on overflow.
pub fn round_up(bytes: u64) -> Option<u64> {
    Some(bytes.checked_add(PAGE - 1)? & !(PAGE - 1))
}

/// May a program map this range at all?
pub fn permitted(start: u64, end: u64) -> bool {
    let outside = |from: u64, to: u64| end <= from || start >= to;
    start >= LOWEST
        && start < end
        && end <= abi::layout::USER_END
        && start.is_multiple_of(PAGE)
        && end.is_multiple_of(PAGE)
        && outside(LOW_END, PROXY_END)
        && outside(STATE_BASE, RESERVED_END)
}

impl Memory {
    /// All areas in ascending order.
    pub fn areas(&self) -> &[Area] {
        &self.areas[..(self.count as usize).min(AREAS_MAX)]
    }

    /// The area an address lies in.
    pub fn find(&self, address: u64) -> Option<&Area> {
        let areas = self.areas();
        areas.get(areas.partition_point(|area| area.end <= address)).filter(|area| area.holds(address))
    }

    /// Is every byte of the range mapped with `needs`? An empty range always is. Asked of each
    /// pointer of the program, so most of what is asked for lies in an area that was found lately.
    pub fn allows(&mut self, address: u64, bytes: u64, needs: u32) -> bool {
        let index = usize::from(self.seen[seen_at(address)]);
        match self.areas().get(index) {
            Some(area) if area.holds(address) && bytes <= area.end - address => {
                area.protection & needs == needs || bytes == 0
            }
            _ => self.search(address, bytes, needs),
        }
    }

    /// The same; remembers where the first area was found.
    #[inline(never)]
    fn search(&mut self, address: u64, bytes: u64, needs: u32) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let first = self.areas().partition_point(|area| area.end <= address);
        let mut at = address;
        for area in &self.areas()[first..] {
            if at >= end || !area.holds(at) || area.protection & needs != needs {
                break;
            }
            at = area.end;
        }
        if at > address {
            self.seen[seen_at(address)] = first as u16;
        }
        at >= end
    }

    /// How many bytes from `address` on are mapped with `needs`, at most `limit`.
    pub fn extent(&self, address: u64, limit: u64, needs: u32) -> u64 {
        let mut at = address;
        let end = address.saturating_add(limit);
        while at < end {
            match self.find(at) {
                Some(area) if area.protection & needs == needs => at = area.end,
                _ => break,
            }
        }
        at.min(end) - address
    }

    /// The word at an address as all know it who have its memory in common: the memory's number,
    /// and where in it. `None` if it is the program's own.
    pub fn in_common(&self, address: u64) -> Option<(u64, u64)> {
        let area = self.find(address).filter(|area| area.common != 0)?;
        Some((area.common, area.first_page * PAGE + (address - area.start)))
    }

    /// Bytes of a range in areas that count.
    pub fn bytes(&self, range: core::ops::Range<u64>, counts: impl Fn(&Area) -> bool) -> u64 {
        let inside = |area: &Area| area.end.min(range.end).saturating_sub(area.start.max(range.start));
        self.areas().iter().filter(|area| counts(area)).map(inside).sum()
    }

    /// Lowest address of the stack, as far as it is mapped without a gap.
    pub fn stack_start(&self) -> u64 {
        let mut start = STACK_TOP;
        while let Some(area) = self.find(start - 1) {
            start = area.start;
        }
        start
    }

    /// The segment of a memory in common.
    pub fn segment_of(&self, common: u64) -> Option<u64> {
        self.areas().iter().find(|area| area.common == common).map(|area| area.segment)
    }

    /// Takes marks from what lies in a range, then gives it others. `ENOMEM` when a cut needs an
    /// entry more than there is.
    pub fn mark(&mut self, start: u64, end: u64, [taken, given]: [u32; 2]) -> Result<(), Errno> {
        let range = self.inside(start, end)?;
        self.areas[range.clone()].iter_mut().for_each(|area| area.marks = area.marks & !taken | given);
        self.merge(range);
        Ok(())
    }

    /// The areas that a range touches, cut to it, in ascending order.
    pub fn parts(&self, start: u64, end: u64) -> impl Iterator<Item = Area> {
        let first = self.areas().partition_point(|area| area.end <= start);
        let touched = self.areas()[first..].iter().take_while(move |area| area.start < end);
        touched.map(move |area| Area { end: area.end.min(end), ..area.tail(area.start.max(start)) })
    }

    /// Does a range have sealed memory?
    pub fn is_sealed(&self, start: u64, end: u64) -> bool {
        self.parts(start, end).any(|area| area.marks & mark::SEALED != 0)
    }

    /// Does any area still name the segment? Looks first where it named it before, at `near`.
    pub fn uses(&self, segment: u64, near: u64) -> bool {
        let areas = self.areas();
        let index = areas.partition_point(|area| area.end <= near);
        let names = |area: &Area| area.segment == segment;
        areas[index.saturating_sub(1)..].iter().take(3).any(names) || areas.iter().any(names)
    }

    /// The area that ends at `start`.
    pub fn before(&self, start: u64) -> Option<&Area> {
        self.find(start.checked_sub(1)?).filter(|area| area.end == start)
    }

    /// Is the range free and permitted?
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        let areas = self.areas();
        let next = areas.partition_point(|area| area.end <= start);
        permitted(start, end) && areas.get(next).is_none_or(|area| area.start >= end)
    }

    /// A free place for `bytes` (whole pages): at `wish` if that is free, else the lowest gap from
    /// [`PLACE_BASE`] on. `ENOMEM`.
    pub fn place(&self, wish: u64, bytes: u64) -> Result<u64, Errno> {
        let wish = wish & !(PAGE - 1);
        if wish != 0 && wish.checked_add(bytes).is_some_and(|end| self.is_free(wish, end)) {
            return Ok(wish);
        }
        let lowest = self.gap(self.packed.max(PLACE_BASE), PLACE_TOP, bytes);
        lowest.or_else(|| self.gap(RESERVED_END, PLACE_BASE, bytes)).ok_or(Errno::ENOMEM)
    }

    /// A free place for `bytes` (whole pages) whose addresses have 31 bits. `ENOMEM`.
    pub fn place_low(&self, bytes: u64) -> Result<u64, Errno> {
        self.gap(PLACE_LOW, LOW_END, bytes).ok_or(Errno::ENOMEM)
    }

    /// The lowest gap of `bytes` within a range.
    fn gap(&self, from: u64, to: u64, bytes: u64) -> Option<u64> {
        let areas = self.areas();
        let mut at = from;
        for area in &areas[areas.partition_point(|area| area.end <= from)..] {
            if area.start >= to || area.start.saturating_sub(at) >= bytes {
                break;
            }
            at = area.end;
        }
        at.checked_add(bytes).is_some_and(|end| end <= to).then_some(at)
    }

    /// Is there room for this area? `ENOMEM` when the table is full, `EEXIST` if something is there
    /// or the place is not permitted.
    pub fn check(&self, area: &Area) -> Result<(), Errno> {
        match self.is_free(area.start, area.end) {
            false => Err(Errno::EEXIST),
            true if self.areas().len() == AREAS_MAX => Err(Errno::ENOMEM),
            true => Ok(()),
        }
    }

    /// Adds an area where nothing is; it becomes one with neighbours that it continues. As for
    /// [`Memory::check`].
    pub fn insert(&mut self, area: Area) -> Result<(), Errno> {
        self.check(&area)?;
        let count = self.areas().len();
        let at = self.areas().partition_point(|other| other.end <= area.start);
        if at > 0 && area.continues(&self.areas[at - 1]) {
            self.areas[at - 1].end = area.end;
            self.merge(at - 1..at);
        } else {
            self.areas.copy_within(at..count, at + 1);
            self.areas[at] = area;
            self.count = count as u64 + 1;
            self.merge(at..at + 1);
        }
        if self.packed.max(PLACE_BASE) == area.start {
            self.packed = area.end;
        }
        Ok(())
    }

    /// Cuts areas so that none crosses `start` or `end`. `ENOMEM` when the table is full.
    fn split_at(&mut self, at: u64) -> Result<(), Errno> {
        let index = self.areas().partition_point(|area| area.end <= at);
        let count = self.areas().len();
        if index == count || self.areas[index].start >= at {
            return Ok(());
        }
        if count == AREAS_MAX {
            return Err(Errno::ENOMEM);
        }
        self.areas.copy_within(index..count, index + 1);
        self.areas[index].end = at;
        self.areas[index + 1] = self.areas[index + 1].tail(at);
        self.count = count as u64 + 1;
        Ok(())
    }

    fn inside(&mut self, start: u64, end: u64) -> Result<core::ops::Range<usize>, Errno> {
        // Check room for both cuts first, so that a refusal changes nothing.
        if self.areas().len() + 2 > AREAS_MAX {
            let crosses = |at| self.find(at).is_some_and(|area| area.start < at);
            if self.areas().len() + usize::from(crosses(start)) + usize::from(crosses(end)) > AREAS_MAX {
                return Err(Errno::ENOMEM);
            }
        }
        self.split_at(start)?;
        self.split_at(end)?;
        let areas = self.areas();
        Ok(areas.partition_point(|area| area.end <= start)..areas.partition_point(|area| area.start < end))
    }

    /// Removes what lies in the range and tells each piece. `ENOMEM` when a cut needs an entry
    /// more than there is.
    pub fn remove(&mut self, start: u64, end: u64, mut each: impl FnMut(&Area)) -> Result<(), Errno> {
        let range = self.inside(start, end)?;
        let count = self.areas().len();
        self.areas[range.clone()].iter().for_each(&mut each);
        self.areas.copy_within(range.end..count, range.start);
        self.count = (count - range.len()) as u64;
        if start < self.packed {
            self.packed = start;
        }
        Ok(())
    }

    /// Changes the protection of a range that must be mapped without holes (`ENOMEM`), telling each
    /// piece and what is before it. `each` may set the segment of a piece that had none.
    pub fn protect(
        &mut self,
        start: u64,
        end: u64,
        protection: u32,
        mut each: impl FnMut(&mut Area, Option<&Area>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !self.allows(start, end - start, 0) {
            return Err(Errno::ENOMEM);
        }
        let range = self.inside(start, end)?;
        let mut done = Ok(());
        for index in range.clone() {
            let (before, from) = self.areas.split_at_mut(index);
            done = each(&mut from[0], before.last());
            if done.is_err() {
                break;
            }
            from[0].protection = protection;
        }
        self.merge(range);
        done
    }

    /// Makes one area of neighbours that could be one, where one of them has an index in the range.
    fn merge(&mut self, range: core::ops::Range<usize>) {
        let count = self.areas().len();
        let (first, end) = (range.start.saturating_sub(1), (range.end + 1).min(count));
        if first + 1 >= end {
            return;
        }
        let mut kept = first;
        for index in first + 1..end {
            let next = self.areas[index];
            if next.continues(&self.areas[kept]) {
                self.areas[kept].end = next.end;
            } else {
                kept += 1;
                self.areas[kept] = next;
            }
        }
        if kept + 1 < end {
            self.areas.copy_within(end..count, kept + 1);
            self.count = (count - (end - kept - 1)) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn none() -> Box<Memory> {
        Memory::new_box_zeroed().unwrap()
    }

    /// The naive model: one entry per page.
    #[derive(Default)]
    struct Model(std::collections::BTreeMap<u64, (u64, u64, u32)>);

    fn pages(memory: &Memory) -> std::collections::BTreeMap<u64, (u64, u64, u32)> {
        let mut all = std::collections::BTreeMap::new();
        for area in memory.areas() {
            for page in 0..area.pages() {
                let number = if area.segment == 0 { 0 } else { area.first_page + page };
                assert!(all.insert(area.start + page * PAGE, (area.segment, number, area.protection)).is_none());
            }
        }
        all
    }

    #[test]
    fn follows_a_page_by_page_model() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut random = |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        let mut memory = none();
        let mut model = Model::default();
        for step in 1..20_000u64 {
            let start = PLACE_BASE + random(64) * PAGE;
            let end = start + (1 + random(8)) * PAGE;
            match random(3) {
                0 => {
                    // Of its own, or of one that others are of, lying as its pages do; or of none.
                    let (segment, first_page) = match random(3) {
                        0 => (step, 0),
                        1 => (100_000 + random(3), (start - PLACE_BASE) / PAGE),
                        _ => (0, 0),
                    };
                    let protection = random(4) as u32;
                    let area = Area { start, end, segment, first_page, protection, ..Area::default() };
                    let free = !(start..end).step_by(PAGE as usize).any(|page| model.0.contains_key(&page));
                    assert_eq!(memory.insert(area).is_ok(), free);
                    if free {
                        model.0.extend((0..area.pages()).map(|page| {
                            let number = if segment == 0 { 0 } else { first_page + page };
                            (start + page * PAGE, (segment, number, area.protection))
                        }));
                    }
                }
                1 => {
                    let mut removed = 0;
                    memory.remove(start, end, |area| removed += area.pages()).unwrap();
                    let before = model.0.len();
                    model.0.retain(|page, _| *page < start || *page >= end);
                    assert_eq!(removed, (before - model.0.len()) as u64);
                }
                _ => {
                    let full = (start..end).step_by(PAGE as usize).all(|page| model.0.contains_key(&page));
                    let protection = random(4) as u32;
                    assert_eq!(memory.protect(start, end, protection, |_, _| Ok(())).is_ok(), full);
                    if full {
                        model.0.range_mut(start..end).for_each(|(_, page)| page.2 = protection);
                    }
                }
            }
            assert_eq!(pages(&memory), model.0);
            assert!(memory.areas().windows(2).all(|two| !two[1].continues(&two[0])), "all that can be one are one");
            let taken = memory.packed.max(PLACE_BASE);
            assert!((PLACE_BASE..taken).step_by(PAGE as usize).all(|page| model.0.contains_key(&page)));
            let place = memory.place(0, PAGE).unwrap();
            assert_eq!(place, (PLACE_BASE..).step_by(PAGE as usize).find(|page| !model.0.contains_key(page)).unwrap());
            let segment = 1 + random(step);
            assert_eq!(memory.uses(segment, start), model.0.values().any(|(of, ..)| *of == segment));
            let needs = random(4) as u32;
            let allowed = (start..end)
                .step_by(PAGE as usize)
                .all(|page| model.0.get(&page).is_some_and(|entry| entry.2 & needs == needs));
            assert_eq!(memory.allows(start, end - start, needs), allowed);
            let mut parts = model.0.range(start..end);
            for part in memory.parts(start, end) {
                assert!(start <= part.start && part.end <= end && part.start < part.end);
                for page in 0..part.pages() {
                    let number = if part.segment == 0 { 0 } else { part.first_page + page };
                    let found = (&(part.start + page * PAGE), &(part.segment, number, part.protection));
                    assert_eq!(parts.next(), Some(found));
                }
            }
            assert_eq!(parts.next(), None);
        }
    }

    #[test]
    fn places_areas_in_free_permitted_gaps() {
        let mut memory = none();
        let mut at = PLACE_BASE;
        for size in [1u64, 5, 300, 2] {
            let start = memory.place(0, size * PAGE).unwrap();
            assert_eq!(start, at, "each continues the one before");
            at += size * PAGE;
            memory.insert(Area { start, end: at, segment: size, ..Area::default() }).unwrap();
        }
        memory.remove(PLACE_BASE + 2 * PAGE, PLACE_BASE + 5 * PAGE, |_| ()).unwrap();
        assert_eq!((memory.place(0, 3 * PAGE), memory.place(0, 4 * PAGE)), (Ok(PLACE_BASE + 2 * PAGE), Ok(at)));
        assert_eq!(memory.place(0x40_0000, PAGE), Ok(0x40_0000));
        assert!(memory.place(LOW_END, PAGE).unwrap() > RESERVED_END);
        // What is too large for the first part goes below it, and what is for both, nowhere.
        assert_eq!(memory.place(0, PLACE_TOP - PLACE_BASE), Ok(RESERVED_END));
        assert_eq!(memory.place_low(LOW_END - PLACE_LOW), Ok(PLACE_LOW));
        assert_eq!(memory.place_low(LOW_END - PLACE_LOW + PAGE), Err(Errno::ENOMEM));
        assert_eq!(memory.place(0, 1 << 47), Err(Errno::ENOMEM));
        assert_eq!(memory.place(0, !(PAGE - 1)), Err(Errno::ENOMEM));
        assert!(
            !permitted(LOW_END - PAGE, LOW_END + PAGE)
                && !permitted(STATE_BASE, STATE_BASE + PAGE)
                && !permitted(0, PAGE)
        );
    }

    #[test]
    fn what_may_be_continued_is_known() {
        let mut memory = none();
        let area = |start, end, segment| Area { start, end, segment, first_page: 3, ..Area::default() };
        memory.insert(area(0x10_0000, 0x10_4000, 5)).unwrap();
        let most = abi::layout::SEGMENT_PAGES_MAX - 7;
        let last = *memory.before(0x10_4000).unwrap();
        assert_eq!([most, most + 1, u64::MAX].map(|pages| last.room_behind(pages)), [Some((5, 7)), None, None]);
        assert_eq!([0x10_3000, 0x10_5000, 0].map(|start| memory.before(start)), [None; 3]);
        memory.mark(0x10_3000, 0x10_4000, [0, mark::FILLED]).unwrap();
        assert_eq!(memory.before(0x10_4000).unwrap().room_behind(1), None);
        assert!(memory.find(0x10_0000).is_some_and(|area| area.is_anonymous() && area.end == 0x10_3000));
        assert_eq!(area(0x20_0000, 0x20_4000, 0).room_behind(1), None, "it has no segment");
    }

    #[test]
    fn bytes_and_the_stack_are_measured() {
        let mut memory = none();
        let mut add = |start: u64, end: u64, protection: u32, common: u64| {
            memory.insert(Area { start, end, segment: 1, protection, common, ..Area::default() }).unwrap();
        };
        let (read, write) = (protection::READ, protection::READ | protection::WRITE);
        add(0x10_0000, 0x10_4000, read, 0);
        add(0x20_0000, 0x20_2000, write, 0);
        add(0x30_0000, 0x30_1000, write, 7);
        add(STACK_TOP - 0x8000, STACK_TOP, write, 0);
        add(STACK_TOP - 0xa000, STACK_TOP - 0x8000, write, 0);
        add(STACK_TOP - 0xc000, STACK_TOP - 0xb000, write, 0);
        assert_eq!(memory.bytes(0..u64::MAX, |_| true), 0x4000 + 0x2000 + 0x1000 + 0xa000 + 0x1000);
        assert_eq!(memory.bytes(0..u64::MAX, Area::is_data), 0x2000);
        assert_eq!(memory.bytes(0x10_3000..0x20_1000, |_| true), 0x2000);
        assert_eq!(memory.bytes(0x40_0000..0x50_0000, |_| true), 0);
        assert_eq!(memory.stack_start(), STACK_TOP - 0xa000);
        assert_eq!(none().stack_start(), STACK_TOP);
        assert_eq!([0, 1 << 20, 8 << 20, u64::MAX].map(stack_bytes), [256 << 10, 1 << 20, 8 << 20, 64 << 20]);
        assert_eq!(stack_bytes((1 << 20) + 1), 1 << 20);
    }

    #[test]
    fn seals_stay_where_they_are() {
        let mut memory = none();
        let area = |start, common| Area { start, end: start + 4 * PAGE, segment: 5, common, ..Area::default() };
        memory.insert(area(0x10_0000, 3)).unwrap();
        memory.insert(Area { first_page: 4, ..area(0x10_4000, 3) }).unwrap();
        memory.mark(0x10_4000, 0x10_8000, [0, mark::SEALED]).unwrap();
        assert!(!memory.is_sealed(0, 0x10_4000) && memory.is_sealed(0x10_0000, 0x10_4001));
        // Neighbours of one segment are not joined over it, and its parts keep it.
        memory.protect(0x10_0000, 0x10_8000, protection::READ, |_, _| Ok(())).unwrap();
        assert_eq!(memory.areas().len(), 2);
        memory.remove(0x10_5000, 0x10_6000, |_| ()).unwrap();
        assert!(memory.is_sealed(0x10_4000, 0x10_5000) && memory.is_sealed(0x10_6000, 0x10_7000));
        assert!(!memory.is_sealed(0x10_5000, 0x10_6000));
        assert_eq!((memory.segment_of(3), memory.segment_of(4)), (Some(5), None));
    }

    #[test]
    fn what_may_be_made_zeroes_again_is_known() {
        let mut memory = none();
        let area =
            |start, marks, common| Area { start, end: start + 4 * PAGE, marks, common, segment: 1, ..Area::default() };
        memory.insert(area(0x10_0000, 0, 0)).unwrap();
        memory.insert(area(0x10_4000, mark::FILLED, 0)).unwrap();
        memory.insert(area(0x10_8000, 0, 9)).unwrap();
        memory.insert(area(0x10_c000, 0, 0)).unwrap();
        memory.mark(0x10_c000, 0x11_0000, [0, mark::SEALED]).unwrap();
        let found: Vec<_> = memory.parts(0x10_1000, 0x20_0000).map(|part| (part.start, part.is_anonymous())).collect();
        assert_eq!(found, [(0x10_1000, true), (0x10_4000, false), (0x10_8000, false), (0x10_c000, false)]);
        // Parts keep what is known of the whole.
        memory.protect(0x10_5000, 0x10_6000, protection::READ, |_, _| Ok(())).unwrap();
        assert!(memory.parts(0x10_4000, 0x10_8000).all(|part| !part.is_anonymous()));
        assert!(!memory.is_sealed(0, 0x10_c000) && memory.is_sealed(0, 0x10_c001));
    }

    #[test]
    fn what_is_said_of_forks_can_be_taken_back() {
        let mut memory = none();
        memory.insert(Area { start: 0x10_0000, end: 0x11_0000, segment: 1, ..Area::default() }).unwrap();
        memory.mark(0x10_4000, 0x10_8000, [0, mark::NOT_FORKED]).unwrap();
        memory.mark(0x10_4000, 0x10_c000, [0, mark::WIPED]).unwrap();
        let marks = |memory: &Memory| memory.areas().iter().map(|area| area.marks).collect::<Vec<_>>();
        assert_eq!(marks(&memory), [0, mark::OF_FORKS, mark::WIPED, 0]);
        assert!(memory.areas().iter().all(Area::is_anonymous));
        memory.mark(0x10_0000, 0x11_0000, [mark::WIPED, 0]).unwrap();
        assert_eq!(marks(&memory), [0, mark::NOT_FORKED, 0]);
        memory.mark(0x10_6000, 0x10_7000, [mark::NOT_FORKED, 0]).unwrap();
        assert_eq!(memory.areas().len(), 5);
        memory.mark(0, 0x20_0000, [mark::NOT_FORKED, 0]).unwrap();
        assert_eq!(marks(&memory), [0]);
    }

    #[test]
    fn a_full_table_refuses_and_stays_whole() {
        let mut memory = none();
        for index in 0..AREAS_MAX as u64 {
            let start = RESERVED_END + index * 8 * PAGE;
            memory.insert(Area { start, end: start + 3 * PAGE, segment: index + 1, ..Area::default() }).unwrap();
        }
        let before = pages(&memory);
        assert_eq!(memory.remove(RESERVED_END + PAGE, RESERVED_END + 2 * PAGE, |_| ()), Err(Errno::ENOMEM));
        assert_eq!(pages(&memory), before);
        memory.remove(RESERVED_END, RESERVED_END + 3 * PAGE, |_| ()).unwrap();
        assert_eq!(memory.areas().len(), AREAS_MAX - 1);
    }
}
