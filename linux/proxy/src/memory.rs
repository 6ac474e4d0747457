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
    /// Of a file, and never written: [`crate::backings`] knows what can be read from there again.
    pub const BACKED: u32 = 64;
    /// Of that, paged out: no access is possible, and what will be is in the bits from
    /// [`ACCESS_SHIFT`] on.
    pub const OUT: u32 = 128;
    /// See [`OUT`].
    pub const ACCESS_SHIFT: u32 = 8;
    /// What stays when it is paged in or out.
    pub const KEPT: u32 = OUT - 1;
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

    /// Is it paged out?
    pub fn is_out(&self) -> bool {
        self.marks & mark::OUT != 0
    }

    /// What the program may do there: where it is paged out, as soon as it is not.
    pub fn access(&self) -> u32 {
        if self.is_out() { self.marks >> mark::ACCESS_SHIFT } else { self.protection }
    }

    /// Lets the program do so much there. What can be written is of a file no more.
    fn set_access(&mut self, access: u32) {
        if self.is_out() {
            self.marks = self.marks & mark::KEPT | mark::OUT | access << mark::ACCESS_SHIFT;
            return;
        }
        self.protection = access;
        if self.marks & mark::BACKED != 0 && self.is_writable() {
            self.marks = self.marks & !mark::BACKED | mark::FILLED;
        }
    }

    /// The same, paged out.
    pub fn out(&self) -> Area {
        let access = self.access() << mark::ACCESS_SHIFT;
        Area { protection: 0, marks: self.marks & mark::KEPT | mark::OUT | access, ..*self }
    }

    /// The same, paged in.
    fn paged_in(&self) -> Area {
        Area { protection: self.access(), marks: self.marks & mark::KEPT, ..*self }
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

    /// The same for what has all of the marks that are taken.
    pub fn mark_if(&mut self, start: u64, end: u64, [taken, given]: [u32; 2]) -> Result<(), Errno> {
        let range = self.inside(start, end)?;
        let marked = self.areas[range.clone()].iter_mut().filter(|area| area.marks & taken == taken);
        marked.for_each(|area| area.marks = area.marks & !taken | given);
        self.merge(range);
        Ok(())
    }

    /// The areas that a range touches, cut to it, in ascending order.
    pub fn parts(&self, start: u64, end: u64) -> impl Iterator<Item = Area> {
        let first = self.areas().partition_point(|area| area.end <= start);
        let touched = self.areas()[first..].iter().take_while(move |area| area.start < end);
        touched.map(move |area| Area { end: area.end.min(end), ..area.tail(area.start.max(start)) })
    }

    /// The first bytes of a range that are paged out, if it is mapped with `needs` up to there, and
    /// there.
    pub fn first_out(&self, address: u64, bytes: u64, needs: u32) -> Option<core::ops::Range<u64>> {
        let end = address.checked_add(bytes)?;
        let mut at = address;
        for area in self.parts(address, end) {
            if area.start != at || area.access() & needs != needs {
                return None;
            }
            if area.is_out() {
                return Some(area.start..area.end);
            }
            at = area.end;
        }
        None
    }

    /// What lies in a range is paged in now, or out. As for [`Memory::mark`].
    pub fn set_out(&mut self, start: u64, end: u64, is_out: bool) -> Result<(), Errno> {
        let range = self.inside(start, end)?;
        let backed = self.areas[range.clone()].iter_mut().filter(|area| area.marks & mark::BACKED != 0);
        backed.for_each(|area| *area = if is_out { area.out() } else { area.paged_in() });
        self.merge(range);
        Ok(())
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
            from[0].set_access(protection);
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
mod tests;
