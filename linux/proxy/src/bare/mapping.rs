//! The program's memory: the table and the kernel's mappings changed together.
//!
//! Each area of access is backed by a segment whose capability has INHERIT, so that a fork copies
//! it; the proxy's own memory has not.

use abi::{Handle, Rights};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use personality::Errno;
use personality::backings::is_resident;
use personality::descriptors::Description;
use personality::flags::*;
use personality::mapping::{Advice, check_access, is_shared};
use personality::memory::{Area, PAGE, STACK_TOP, mark, protection, round_up, stack_bytes};
use personality::state::ProcessState;

use super::errors::{Failure, Outcome};
use super::input_output::{REGULAR, opened, read_at, status_of};
use super::paging;
use super::shared_files;
use super::system_v;
use super::user::{self, Target, with_state};

/// From so many bytes on, memory in common is paid once; less is paid by each who has it.
const LENT_BYTES_MIN: u64 = 1 << 20;

/// A zeroed segment that forked children copy.
pub fn segment(pages: u64) -> Result<Handle, Errno> {
    segment_by(pages, 0)
}

fn segment_by(pages: u64, flags: u64) -> Result<Handle, Errno> {
    let (made, _) = sys::segment_alloc(Handle::SELF_RAM, pages, flags).map_err(|_| Errno::ENOMEM)?;
    let heritable = sys::cap_copy(made, Rights::ALL.union(Rights::INHERIT));
    let _ = sys::cap_drop(made);
    heritable.map_err(|_| Errno::ENOMEM)
}

/// Linux's PROT_* as areas have it: what can be written or fetched can be read.
fn normal(requested: u64) -> u32 {
    let access = (requested & (PROT_READ | PROT_WRITE | PROT_EXEC)) as u32;
    if access & (protection::WRITE | protection::EXECUTE) != 0 { access | protection::READ } else { access }
}

/// Drops a segment if no area names it any more; tells whether one does. It was named at `near`.
fn drop_if_unused(segment: u64, near: u64) -> bool {
    let is_used = segment == 0 || with_state(|state| state.memory.uses(segment, near));
    if !is_used {
        with_state(|state| {
            // A heap that went whole grows again in another segment.
            if state.heap_segment == segment {
                state.heap_segment = 0;
            }
        });
        paging::drop_backing(segment);
        let _ = sys::cap_drop(Handle(segment));
    }
    is_used
}

/// Maps zeroed memory where nothing is; large ranges get several segments.
pub fn map_zeroed(start: u64, end: u64, access: u32) -> Result<(), Errno> {
    map_by(start, end, access, 0, 0)
}

/// Maps memory to be filled from a file, with all pages made at once.
pub fn map_filled(start: u64, end: u64, access: u32) -> Result<(), Errno> {
    map_by(start, end, access, abi::layout::segment::EAGER, mark::FILLED)
}

/// Maps zeroed memory that forked children have in common with this process; gives its number, or
/// the first one's where it takes several. All of it is made at once.
pub fn map_common(start: u64, end: u64, access: u32) -> Result<u64, Errno> {
    map_by(start, end, access, abi::layout::segment::EAGER | abi::layout::segment::COMMON, 0)?;
    Ok(with_state(|state| state.memory.in_common(start).map_or(0, |(number, _)| number)))
}

fn map_by(start: u64, end: u64, access: u32, flags: u64, marks: u32) -> Result<(), Errno> {
    let is_common = flags & abi::layout::segment::COMMON != 0;
    let mut at = start;
    while at < end {
        let part_end = end.min(at.saturating_add(abi::layout::SEGMENT_PAGES_MAX * PAGE));
        // Memory without access costs nothing until mprotect opens it, however large the
        // reservation.
        let has_none = access == 0 && !is_common;
        let part_end = if has_none { end } else { part_end };
        let pages = (part_end - at) / PAGE;
        let (segment, first_page) = match has_none {
            true => (0, 0),
            false if flags == 0 && marks == 0 => own_pages(at, pages)?,
            false => (segment_by(pages, flags)?.0, 0),
        };
        let common = if is_common { secret() } else { 0 };
        let area = Area { start: at, end: part_end, segment, first_page, protection: access, marks, common };
        if let Err(errno) = map_segment(area) {
            drop_if_unused(segment, at);
            let _ = unmap(start, at);
            return Err(errno);
        }
        at = part_end;
    }
    Ok(())
}

/// Zeroed pages for an area at `start`: those of the segment that lies before it, if it can have
/// them, else of a new one. Gives the segment and the first page.
fn own_pages(start: u64, pages: u64) -> Result<(u64, u64), Errno> {
    // A brk wants the heap's segment to end at the end of the heap.
    let can = |state: &mut ProcessState| {
        let last = state.memory.before(start).filter(|last| last.segment != state.heap_segment)?;
        last.room_behind(pages)
    };
    if let Some(place) = with_state(can)
        && has_pages(place, pages)
    {
        return Ok(place);
    }
    Ok((segment(pages)?.0, 0))
}

/// Makes a segment of the program's as long as is needed for pages that no area names. What they
/// held was given back with the last area that did.
fn has_pages((segment, first_page): (u64, u64), pages: u64) -> bool {
    let wanted = first_page + pages;
    match sys::segment_stat(Handle(segment)) {
        Ok((held, ..)) if held >= wanted => true,
        // SAFETY: it only grows.
        Ok(_) => unsafe { sys::segment_set_pages(Handle(segment), wanted) }.is_ok(),
        Err(_) => false,
    }
}

/// A number that nobody guesses, and no one's else.
fn secret() -> u64 {
    let mut number = [0; 8];
    runtime::fill_random(&mut number);
    u64::from_le_bytes(number) | 1
}

/// Maps a part of a segment as an area, where nothing is.
pub fn map_segment(area: Area) -> Result<(), Errno> {
    with_state(|state| state.memory.check(&area))?;
    if area.segment != 0 && !area.is_out() {
        let (segment, access) = (Handle(area.segment), area.protection.into());
        sys::range_map(Handle::SELF_RANGE, area.start, segment, area.first_page, area.pages(), access)
            .map_err(|_| Errno::ENOMEM)?;
    }
    with_state(|state| state.memory.insert(area))
}

/// Unmaps whatever lies in the range. Pages that are the program's own are free then, and of shared
/// memory segments the process server is told.
pub fn unmap(start: u64, end: u64) -> Result<(), Errno> {
    let pieces = unmap_untold(start, end)?;
    if pieces.iter().any(|piece| piece.marks & personality::system_v::HELD != 0) {
        system_v::taken(&pieces);
    }
    Ok(())
}

/// The same, but the process server is not told; what was there.
pub fn unmap_untold(start: u64, end: u64) -> Result<Vec<Area>, Errno> {
    let mut pieces = Vec::new();
    if start < end {
        with_state(|state| state.memory.remove(start, end, |area| pieces.push(*area)))?;
    }
    pieces.retain(|piece| piece.segment != 0);
    for piece in pieces.iter().filter(|piece| !piece.is_out()) {
        // SAFETY: the table said this is the program's memory; the proxy keeps no slice of it
        // across a change of the map.
        let _ = unsafe { sys::range_unmap(Handle::SELF_RANGE, piece.start, piece.pages()) };
    }
    for piece in &pieces {
        if drop_if_unused(piece.segment, piece.start) && piece.common == 0 {
            // SAFETY: nothing maps these pages.
            let _ = unsafe { sys::segment_discard(Handle(piece.segment), piece.first_page, piece.pages()) };
        }
    }
    Ok(pieces)
}

/// Changes access. Memory that had none and no segment gets pages now.
pub fn protect(start: u64, end: u64, access: u32) -> Result<(), Errno> {
    with_state(|state| {
        let heap = state.heap_segment;
        state.memory.protect(start, end, access, |area, before| {
            if area.segment == 0 {
                return if access == 0 { Ok(()) } else { open(area, before, heap, access) };
            }
            if area.is_out() {
                return Ok(());
            }
            // SAFETY: the program's own memory; the proxy reaches it only as the table allows,
            // which changes along.
            unsafe { sys::range_protect(Handle::SELF_RANGE, area.start, area.pages(), access.into()) }
                .map_err(|_| Errno::ENOMEM)
        })
    })
}

/// Gives pages to an area that had none: of the segment that lies before it, if that can have them.
fn open(area: &mut Area, before: Option<&Area>, heap: u64, access: u32) -> Result<(), Errno> {
    let pages = area.pages();
    if pages > abi::layout::SEGMENT_PAGES_MAX {
        return Err(Errno::ENOMEM);
    }
    let place = before.filter(|before| before.end == area.start && before.segment != heap);
    let place = place.and_then(|before| before.room_behind(pages)).filter(|place| has_pages(*place, pages));
    let (held, first_page) = match place {
        Some(place) => place,
        None => (segment(pages)?.0, 0),
    };
    sys::range_map(Handle::SELF_RANGE, area.start, Handle(held), first_page, pages, access.into()).map_err(|_| {
        if place.is_none() {
            let _ = sys::cap_drop(Handle(held));
        }
        Errno::ENOMEM
    })?;
    (area.segment, area.first_page) = (held, first_page);
    Ok(())
}

fn range(start: u64, bytes: u64) -> Result<(u64, u64), Errno> {
    let end = round_up(bytes).and_then(|bytes| start.checked_add(bytes)).ok_or(Errno::EINVAL)?;
    if start.is_multiple_of(PAGE) && end <= abi::layout::USER_END { Ok((start, end)) } else { Err(Errno::EINVAL) }
}

/// Where a mapping is to go.
#[derive(Clone, Copy)]
pub struct Place {
    wish: u64,
    /// Whole pages.
    pub bytes: u64,
    flags: u64,
}

impl Place {
    /// `EINVAL`, `ENOMEM` for a fixed place that no program may have.
    pub fn new(wish: u64, bytes: u64, flags: u64) -> Result<Place, Errno> {
        let place = Place { wish, bytes, flags };
        if place.is_fixed() {
            let (start, end) = range(wish, bytes)?;
            if !personality::memory::permitted(start, end) {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(place)
    }

    fn is_fixed(&self) -> bool {
        self.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0
    }

    /// What goes for the mapping.
    pub fn replaced(&self) -> Range<u64> {
        let replaces = self.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED;
        if replaces { self.wish..self.wish + self.bytes } else { 0..0 }
    }

    /// The address. What is to be replaced goes. `EEXIST`, `ENOMEM`.
    pub fn take(&self) -> Result<u64, Errno> {
        let (start, end) = match self.is_fixed() {
            false if self.flags & MAP_32BIT != 0 => return with_state(|state| state.memory.place_low(self.bytes)),
            false => return with_state(|state| state.memory.place(self.wish, self.bytes)),
            true => (self.wish, self.wish + self.bytes),
        };
        if self.flags & MAP_FIXED_NOREPLACE != 0 && !with_state(|state| state.memory.is_free(start, end)) {
            return Err(Errno::EEXIST);
        }
        unmap(start, end)?;
        Ok(start)
    }
}

/// The file that a descriptor allows to map. `EBADF`, `EACCES`, `ENODEV`.
fn mappable(descriptor: u64, is_shared: bool, access: u32) -> Result<Description, Errno> {
    let found = opened(descriptor)?;
    check_access(found.flags & O_ACCMODE, is_shared, access)?;
    if found.kind == REGULAR { Ok(found) } else { Err(Errno::ENODEV) }
}

/// mmap.
pub async fn mmap([wish, bytes, access, flags, descriptor, offset]: [u64; 6]) -> Outcome {
    let access = normal(access);
    let bytes = round_up(bytes).filter(|bytes| *bytes > 0).ok_or(Errno::EINVAL)?;
    let is_shared = is_shared(flags)?;
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL.into());
    }
    let place = Place::new(wish, bytes, flags)?;
    if flags & MAP_ANONYMOUS != 0 && is_shared && bytes >= LENT_BYTES_MIN {
        return Box::pin(system_v::map_lent(place, access)).await;
    }
    let file = if flags & MAP_ANONYMOUS == 0 { Some(mappable(descriptor, is_shared, access)?) } else { None };
    let replaced = place.replaced();
    let is_data = !is_shared && access & protection::WRITE != 0;
    with_state(|state| state.may_map(bytes, replaced.clone(), is_data))?;
    if let Some(found) = file.filter(|_| is_shared) {
        return Box::pin(shared_files::map(&found, place, access, offset)).await;
    }
    // The proxy writes what comes from the file: memory that it cannot have must be missed before.
    let covered = match &file {
        Some(found) => round_up(status_of(found.id).await?.size.saturating_sub(offset)).unwrap_or(bytes).min(bytes),
        None => 0,
    };
    if shared_files::lies_in(replaced.start, bytes) && !replaced.is_empty() {
        let take = || unmap(replaced.start, replaced.end).map(|()| 0).map_err(Failure::from);
        Box::pin(shared_files::change(replaced.start, bytes, take)).await?;
    }
    let backing = match &file {
        Some(found) => paging::file(found.id, covered, access).await,
        None => None,
    };
    let start = place.take()?;
    let end = start + bytes;
    if let Some(backing) = backing {
        backing.map(start, start + covered, access, offset)?;
        if let Err(errno) = map_zeroed(start + covered, end, access) {
            unmap(start, start + covered)?;
            return Err(errno.into());
        }
        return Ok(start);
    }
    let Some(found) = file else {
        if is_shared {
            map_common(start, end, access)?;
        } else {
            map_zeroed(start, end, access)?;
        }
        return Ok(start);
    };
    let first = protection::READ | protection::WRITE;
    map_filled(start, start + covered, first)?;
    if let Err(errno) = map_zeroed(start + covered, end, first) {
        unmap(start, start + covered)?;
        return Err(errno.into());
    }
    if let Err(error) = read_at(found.id, Target::program(start, bytes)?, offset).await {
        unmap(start, end)?;
        return Err(error);
    }
    if access != first {
        protect(start, end, access)?;
    }
    Ok(start)
}

/// munmap.
pub fn munmap(start: u64, bytes: u64) -> Outcome {
    let (start, end) = range(start, bytes)?;
    if start == end {
        return Err(Errno::EINVAL.into());
    }
    unmap(start, end)?;
    Ok(0)
}

/// mprotect.
pub fn mprotect(start: u64, bytes: u64, access: u64) -> Outcome {
    only(access, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM | PROT_GROWSDOWN)?;
    let (named, end) = range(start, bytes)?;
    let start = if access & PROT_GROWSDOWN != 0 { growing_from(named)? } else { named };
    let access = normal(access);
    if access & protection::WRITE != 0 && with_state(|state| state.memory.is_sealed(start, end)) {
        return Err(Errno::EACCES.into());
    }
    if access & protection::WRITE != 0 {
        with_state(|state| state.may_open(start..end))?;
        paging::need(start, end)?;
    }
    if start < end {
        protect(start, end, access)?;
    }
    Ok(0)
}

/// Where the memory begins that grows down and has this address: only the stack does. `EINVAL`.
fn growing_from(address: u64) -> Result<u64, Errno> {
    let start = with_state(|state| state.memory.stack_start());
    if (start..STACK_TOP).contains(&address) { Ok(start) } else { Err(Errno::EINVAL) }
}

/// mlock2: what the program can write is never paged out.
pub fn lock(flags: u64) -> Outcome {
    const ON_FAULT: u64 = 1;
    only(flags, ON_FAULT)?;
    Ok(0)
}

/// mlockall.
pub fn lock_all(flags: u64) -> Outcome {
    const KNOWN: u64 = 7;
    const ON_FAULT: u64 = 4;
    only(flags, KNOWN)?;
    if matches!(flags, 0 | ON_FAULT) { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// mprotect, but for what takes the right to write from bytes of files: what was stored there is
/// to be brought to them first.
pub fn try_mprotect(start: u64, bytes: u64, access: u64) -> Option<Outcome> {
    let changes_alone = access & PROT_WRITE != 0 || !shared_files::lies_in(start, bytes);
    changes_alone.then(|| mprotect(start, bytes, access))
}

/// madvise. What it makes zeroes gives its pages back. Holes are an error, and no reason to leave
/// out the rest.
pub fn madvise(start: u64, bytes: u64, advice: u64) -> Outcome {
    let (start, end) = range(start, bytes)?;
    let advice = Advice::of(advice)?;
    if advice != Advice::Hint {
        let parts: Vec<Area> = with_state(|state| state.memory.parts(start, end).collect());
        for part in parts {
            if advice.wants_own() && !part.is_anonymous() {
                return Err(Errno::EINVAL.into());
            }
            match advice {
                Advice::Fork(marks) | Advice::ForkOwn(marks) => {
                    with_state(|state| state.memory.mark(part.start, part.end, marks))?;
                }
                _ => discard(&part)?,
            }
        }
    }
    let is_there = with_state(|state| state.memory.allows(start, end - start, 0));
    if is_there { Ok(0) } else { Err(Errno::ENOMEM.into()) }
}

/// Makes an area zeroes, if it is the program's own and of no file, or lets go of what the file
/// still has.
fn discard(area: &Area) -> Result<(), Errno> {
    if is_resident(area) {
        paging::page_out_part(area);
    }
    if !area.is_anonymous() || area.segment == 0 {
        return Ok(());
    }
    // SAFETY: the program's own memory, of which the proxy keeps no slice; it asked for zeroes.
    unsafe { sys::segment_discard(Handle(area.segment), area.first_page, area.pages()) }.map_err(|_| Errno::EINVAL)
}

/// A forked child begins: it has not what its parent said it is not to have (MADV_DONTFORK), and
/// zeroes where that said so (MADV_WIPEONFORK). Gives whether anything went.
pub fn begin_child() -> bool {
    let of_forks = |area: &&Area| area.marks & mark::OF_FORKS != 0;
    let marked: Vec<Area> = with_state(|state| state.memory.areas().iter().filter(of_forks).copied().collect());
    for area in &marked {
        // Whole areas go, so nothing has to be cut; and what is there can be discarded.
        let _ = if area.marks & mark::NOT_FORKED != 0 { unmap(area.start, area.end) } else { discard(area) };
    }
    !marked.is_empty()
}

/// msync, when what was stored has been brought to the file: is all of it mapped?
pub fn msync(start: u64, bytes: u64, flags: u64) -> Outcome {
    const ASYNCHRONOUS: u64 = 1;
    const SYNCHRONOUS: u64 = 4;
    const KNOWN: u64 = 7;
    let has_both = flags & ASYNCHRONOUS != 0 && flags & SYNCHRONOUS != 0;
    if flags & !KNOWN != 0 || has_both || !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL.into());
    }
    let end = start.checked_add(bytes).and_then(round_up).ok_or(Errno::ENOMEM)?;
    let is_there = start == end || with_state(|state| state.memory.allows(start, end - start, 0));
    if is_there { Ok(0) } else { Err(Errno::ENOMEM.into()) }
}

/// mincore: only what is of a file may be paged out; all else is there when it is touched.
pub fn mincore(start: u64, bytes: u64, at: u64) -> Outcome {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL.into());
    }
    let end = start.checked_add(bytes).and_then(round_up).ok_or(Errno::ENOMEM)?;
    if start == end {
        return Ok(0);
    }
    if !with_state(|state| state.memory.allows(start, end - start, 0)) {
        return Err(Errno::ENOMEM.into());
    }
    let out: Vec<Area> = with_state(|state| state.memory.parts(start, end).filter(Area::is_out).collect());
    user::with_bytes_mut(at, (end - start) / PAGE, |places| {
        places.fill(1);
        for part in &out {
            places[((part.start - start) / PAGE) as usize..((part.end - start) / PAGE) as usize].fill(0);
        }
    })?;
    Ok(0)
}

/// mremap: shrinks and grows in place where it can, else moves by copying.
pub fn mremap(old: u64, old_bytes: u64, new_bytes: u64, flags: u64) -> Outcome {
    let (old, old_end) = range(old, old_bytes)?;
    let (_, new_end) = range(old, new_bytes)?;
    if flags & !MREMAP_MAYMOVE != 0 || new_end == old || old == old_end {
        return Err(Errno::EINVAL.into());
    }
    let area = with_state(|state| state.memory.find(old).copied()).ok_or(Errno::EFAULT)?;
    if !with_state(|state| state.memory.allows(old, old_end - old, 0)) {
        return Err(Errno::EFAULT.into());
    }
    if new_end <= old_end {
        unmap(new_end, old_end)?;
        return Ok(old);
    }
    with_state(|state| state.may_map(new_end - old_end, 0..0, area.is_data()))?;
    // What grows or moves is the program's own from then on.
    paging::keep(old, old_end)?;
    let area = with_state(|state| state.memory.find(old).copied()).ok_or(Errno::EFAULT)?;
    if area.common != 0 {
        // There is no more of it, here or elsewhere.
        return Err(Errno::ENOMEM.into());
    }
    let keep_marks = |start, end| match area.marks {
        0 => Ok(()),
        marks => with_state(|state| state.memory.mark(start, end, [0, marks])),
    };
    if with_state(|state| state.memory.is_free(old_end, new_end)) {
        map_zeroed(old_end, new_end, area.protection)?;
        keep_marks(old_end, new_end)?;
        return Ok(old);
    }
    if flags & MREMAP_MAYMOVE == 0 {
        return Err(Errno::ENOMEM.into());
    }
    let new = with_state(|state| state.memory.place(0, new_end - old))?;
    let copies = protection::READ | protection::WRITE;
    map_zeroed(new, new + (new_end - old), copies)?;
    if let Err(errno) = copy_pages(&area, old, old_end, new) {
        unmap(new, new + (new_end - old))?;
        return Err(errno.into());
    }
    if area.protection != copies {
        protect(new, new + (new_end - old), area.protection)?;
    }
    keep_marks(new, new + (new_end - old))?;
    unmap(old, old_end)?;
    Ok(new)
}

/// Copies memory that begins with `area`; what the program may not read moves too.
fn copy_pages(area: &Area, start: u64, end: u64, to: u64) -> Result<(), Errno> {
    if area.segment == 0 {
        return Ok(());
    }
    if area.protection & protection::READ == 0 {
        protect(start, end, protection::READ)?;
    }
    user::with_bytes(start, end - start, |bytes| user::copy_out(to, bytes))?
}

/// Maps as much stack as its limit allows, where there is less.
pub fn grow_stack(limit: u64) -> Result<(), Errno> {
    let start = with_state(|state| state.memory.stack_start());
    let wanted = STACK_TOP - stack_bytes(limit);
    if wanted >= start {
        return Ok(());
    }
    if !with_state(|state| state.memory.is_free(wanted, start)) {
        return Err(Errno::ENOMEM);
    }
    map_zeroed(wanted, start, protection::READ | protection::WRITE)
}

/// brk: gives the end that holds now, whether or not it was moved.
pub fn brk(wish: u64) -> Outcome {
    let (start, end, segment) = with_state(|state| (state.heap_start, state.heap_end, state.heap_segment));
    let (Some(old_end), Some(new_end)) = (round_up(end), round_up(wish)) else { return Ok(end) };
    if wish < start || new_end - start > abi::layout::SEGMENT_PAGES_MAX * PAGE {
        return Ok(end);
    }
    let moved = match new_end.cmp(&old_end) {
        core::cmp::Ordering::Equal => true,
        core::cmp::Ordering::Less => shrink_heap(start, new_end, old_end),
        core::cmp::Ordering::Greater => grow_heap(segment, start, old_end, new_end),
    };
    if moved {
        with_state(|state| state.heap_end = wish);
    }
    Ok(if moved { wish } else { end })
}

fn shrink_heap(start: u64, new_end: u64, old_end: u64) -> bool {
    if unmap(new_end, old_end).is_err() {
        return false;
    }
    // With the last piece the segment went.
    let segment = with_state(|state| state.heap_segment);
    if segment != 0 {
        // SAFETY: what goes away was unmapped just now.
        let _ = unsafe { sys::segment_set_pages(Handle(segment), (new_end - start) / PAGE) };
    }
    true
}

fn grow_heap(held: u64, start: u64, old_end: u64, new_end: u64) -> bool {
    let pages = (new_end - start) / PAGE;
    let access = protection::READ | protection::WRITE;
    let may = |state: &mut ProcessState| {
        state.memory.is_free(old_end, new_end) && state.may_map(new_end - old_end, 0..0, true).is_ok()
    };
    if !with_state(may) {
        return false;
    }
    let first_page = (old_end - start) / PAGE;
    let area =
        |segment| Area { start: old_end, end: new_end, segment, first_page, protection: access, ..Area::default() };
    if held == 0 {
        let Ok(made) = segment(pages) else { return false };
        if map_segment(area(made.0)).is_err() {
            let _ = sys::cap_drop(made);
            return false;
        }
        with_state(|state| state.heap_segment = made.0);
        return true;
    }
    // SAFETY: it only grows.
    unsafe { sys::segment_set_pages(Handle(held), pages) }.is_ok() && map_segment(area(held)).is_ok()
}
