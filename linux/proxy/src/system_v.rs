//! System V shared memory in a program's memory map (shmat(2)), and memory in common without a
//! name.
//!
//! Each area of it has the mark [`mark::SYSTEM_V`] or [`mark::LENT`], and in [`Area::common`] the
//! number of a part of the segment: the segment's, and which part in the lowest bits. So an area
//! tells at which address its segment was attached, and nothing else is kept of that.

use alloc::vec::Vec;
use core::ops::Range;

use contracts::shared_memory::{PART_PAGES, PARTS_MAX};

use crate::errno::Errno;
use crate::flags::{MAP_FIXED, MAP_FIXED_NOREPLACE};
use crate::memory::{Area, Memory, PAGE, mark, protection};

/// shmat: to be read only.
pub const SHM_RDONLY: u64 = 0o10000;
/// Takes the page's start for an address within it.
pub const SHM_RND: u64 = 0o20000;
/// Replaces what is mapped there.
pub const SHM_REMAP: u64 = 0o40000;
/// To be run, too.
pub const SHM_EXEC: u64 = 0o100000;

/// Marks of what is held at the process server.
pub const HELD: u32 = mark::SYSTEM_V | mark::LENT;

/// Which part an area is of.
const PART: u64 = PARTS_MAX - 1;

/// What shmat asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Where; 0: anywhere.
    pub wish: u64,
    /// As mmap has it.
    pub map_flags: u64,
    /// `protection::*`.
    pub access: u32,
}

impl AttachOptions {
    /// `EINVAL` for a place within a page, or none to replace.
    pub fn new(at: u64, flags: u64) -> Result<AttachOptions, Errno> {
        let wish = if flags & SHM_RND != 0 { at & !(PAGE - 1) } else { at };
        if !wish.is_multiple_of(PAGE) || wish == 0 && flags & SHM_REMAP != 0 {
            return Err(Errno::EINVAL);
        }
        let map_flags = match flags & SHM_REMAP {
            _ if wish == 0 => 0,
            0 => MAP_FIXED_NOREPLACE,
            _ => MAP_FIXED,
        };
        let writes = if flags & SHM_RDONLY == 0 { protection::WRITE } else { 0 };
        let runs = if flags & SHM_EXEC != 0 { protection::EXECUTE } else { 0 };
        Ok(AttachOptions { wish, map_flags, access: protection::READ | writes | runs })
    }

    /// Marks of the areas: what is to be read only stays so.
    pub fn marks(&self) -> u32 {
        mark::SYSTEM_V | if self.access & protection::WRITE == 0 { mark::SEALED } else { 0 }
    }
}

/// The number of the segment to which a part's belongs.
pub fn first_of(common: u64) -> u64 {
    common & !PART
}

/// The page of the segment at which an area begins.
pub fn page_of(area: &Area) -> u64 {
    (area.common & PART) * PART_PAGES + area.first_page
}

/// The segment's number and where it was attached, if the area is of one.
pub fn attached(area: &Area) -> Option<(u64, u64)> {
    let before = page_of(area);
    let is_one = area.marks & HELD != 0;
    is_one.then(|| (first_of(area.common), area.start.wrapping_sub(before * PAGE)))
}

/// What is mapped of the segment that was attached at an address. `EINVAL` if none was.
pub fn at(memory: &Memory, address: u64) -> Result<Vec<Range<u64>>, Errno> {
    let is_there =
        |area: &&Area| area.marks & mark::SYSTEM_V != 0 && attached(area).is_some_and(|(_, start)| start == address);
    let first = memory.areas().iter().find(is_there).and_then(attached).ok_or(Errno::EINVAL)?;
    let areas = memory.areas().iter().filter(|area| attached(area) == Some(first));
    Ok(areas.map(|area| area.start..area.end).collect())
}

/// Numbers of segments of which nothing is mapped any more where they were attached, now that these
/// areas were taken out.
pub fn gone(memory: &Memory, taken: &[Area]) -> Vec<u64> {
    let mut gone: Vec<_> = taken.iter().filter_map(attached).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    gone.sort_unstable();
    gone.dedup();
    gone.retain(|one| !memory.areas().iter().any(|area| attached(area) == Some(*one)));
    gone.into_iter().map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    const PART_BYTES: u64 = PART_PAGES * PAGE;
    const ONE: u64 = 0x5555_0000;
    const OTHER: u64 = 0x6666_0000;

    /// The whole of a segment of two parts.
    fn attach(memory: &mut Memory, start: u64, number: u64) {
        for (part, pages) in [(0, PART_PAGES), (1, 3)] {
            let start = start + part * PART_BYTES;
            let (segment, common, marks) = (number + part, number + part, mark::SYSTEM_V);
            memory
                .insert(Area { start, end: start + pages * PAGE, segment, common, marks, ..Area::default() })
                .unwrap();
        }
    }

    fn take(memory: &mut Memory, range: Range<u64>) -> Vec<u64> {
        let mut taken = Vec::new();
        memory.remove(range.start, range.end, |area| taken.push(*area)).unwrap();
        gone(memory, &taken)
    }

    #[test]
    fn a_segment_is_found_by_where_it_was_attached_and_goes_with_its_last_page() {
        let mut memory = Memory::new_box_zeroed().unwrap();
        let [a, b, c] = [0x1000_0000, 0x2000_0000, 0x3000_0000];
        attach(&mut memory, a, ONE);
        attach(&mut memory, b, ONE);
        attach(&mut memory, c, OTHER);
        let common = Area { start: 0x4000_0000, end: 0x4000_1000, segment: 9, common: ONE, ..Area::default() };
        memory.insert(common).unwrap();
        assert_eq!(at(&memory, common.start), Err(Errno::EINVAL), "memory in common of another kind");
        assert_eq!(at(&memory, a + PAGE), Err(Errno::EINVAL));
        let end = PART_BYTES + 3 * PAGE;
        assert_eq!(at(&memory, a), Ok(vec![a..a + PART_BYTES, a + PART_BYTES..a + end]));
        // A hole, and the start gone: it is still where it was.
        assert!(take(&mut memory, a..a + PAGE).is_empty());
        assert!(take(&mut memory, a + 2 * PAGE..a + PART_BYTES + PAGE).is_empty());
        let left = vec![a + PAGE..a + 2 * PAGE, a + PART_BYTES + PAGE..a + end];
        assert_eq!(at(&memory, a), Ok(left));
        // Another is attached in the hole that ends before: each is found by itself.
        assert!(take(&mut memory, a + PAGE..a + 2 * PAGE).is_empty());
        assert_eq!(take(&mut memory, a + PART_BYTES + PAGE..a + end), [ONE]);
        assert_eq!(at(&memory, a), Err(Errno::EINVAL));
        assert_eq!(take(&mut memory, 0x1000_0000..0x4000_0000), [ONE, OTHER]);
        assert!(take(&mut memory, common.start..common.end).is_empty());
        // What has no name is nothing to shmdt.
        let lent = Area { common: OTHER + 1, marks: mark::LENT, ..common };
        memory.insert(lent).unwrap();
        assert_eq!(at(&memory, lent.start - PART_BYTES), Err(Errno::EINVAL));
        assert_eq!(take(&mut memory, lent.start..lent.end), [OTHER]);
    }

    #[test]
    fn a_place_is_a_page_s_and_names_what_it_replaces() {
        let read = protection::READ;
        let options = |at, flags| AttachOptions::new(at, flags).map(|all| (all.wish, all.map_flags, all.access));
        assert_eq!(options(0, 0), Ok((0, 0, read | protection::WRITE)));
        assert_eq!(options(0x5000, SHM_RDONLY), Ok((0x5000, MAP_FIXED_NOREPLACE, read)));
        assert_eq!(options(0x5123, 0), Err(Errno::EINVAL));
        assert_eq!(options(0x5123, SHM_RND | SHM_RDONLY | SHM_EXEC), Ok((0x5000, MAP_FIXED_NOREPLACE, 5)));
        assert_eq!(options(0x5000, SHM_REMAP | SHM_RDONLY), Ok((0x5000, MAP_FIXED, read)));
        assert_eq!(
            (options(0, SHM_REMAP), options(0xfff, SHM_REMAP | SHM_RND)),
            (Err(Errno::EINVAL), Err(Errno::EINVAL))
        );
        assert_eq!(options(0xfff, SHM_RND | SHM_RDONLY), Ok((0, 0, read)), "anywhere");
        let marks = |flags| AttachOptions::new(0, flags).map(|all| all.marks());
        assert_eq!((marks(0), marks(SHM_RDONLY)), (Ok(mark::SYSTEM_V), Ok(mark::SYSTEM_V | mark::SEALED)));
    }
}
