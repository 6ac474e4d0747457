//! Paging of files (decision 98): large mappings that the program cannot write are read from their
//! files as they are touched, and let go of where memory is short.
//!
//! A fault of the program pages in what is about its address. A call that would read such memory
//! finds EFAULT, as for any that is not there; it is noted what was missed, which is paged in, and
//! the program makes its call again.
//!
//! Invariants: what is paged in is what the file has, or had when it was read. The program sees
//! pages only when they are filled: it runs on no other core, and filling waits for nothing.

use abi::Handle;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::pin::pin;

use contracts::descriptions::DescriptionId;
use contracts::files::open as how;
use personality::Errno;
use personality::backings::{Backing, is_resident, to_page_out};
use personality::descriptors::server;
use personality::memory::{Area, PAGE, mark, protection};
use personality::signals::number::SIGBUS;
use personality::signals::{Cause, code};
use personality::state::ProcessState;

use super::errors::{Failure, Outcome};
use super::fd::close_id;
use super::global::Global;
use super::input_output::read_at;
use super::mapping;
use super::proxy::proxy;
use super::threads;
use super::user::{self, Target, with_both, with_signals, with_state, with_thread};

/// What is paged in at once lies within so many bytes of the file.
const WINDOW_BYTES: u64 = 64 << 10;
/// Less is read when it is mapped: to read all of it costs less than to page in half.
const BACKED_BYTES_MIN: u64 = 2 << 20;
/// So much stays paged in, however short memory is: what one instruction touches is less.
const RESIDENT_BYTES_MIN: u64 = 4 << 20;
/// The least that is paged out at a time.
const OUT_BYTES_MIN: u64 = 1 << 20;

/// By what a file is read that backs memory.
pub struct File {
    description: DescriptionId,
    source: DescriptionId,
    /// The last backing that reads by it closes it.
    is_backing: Cell<bool>,
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_backing.get() {
            close_id(server::of_file(self.description), self.description);
        }
    }
}

/// The file that backs so many bytes of memory, mapped or run by that description; `None` if they
/// are to be read when they are mapped. It must be mapped before anything is awaited.
pub async fn file(source: DescriptionId, bytes: u64, access: u32) -> Option<File> {
    let parts = bytes.div_ceil(abi::layout::SEGMENT_PAGES_MAX * PAGE) as usize;
    let is_small = bytes < BACKED_BYTES_MIN || access & protection::WRITE != 0;
    if is_small || with_state(|state| state.backings.room(parts)).is_err() {
        return None;
    }
    if let Some(description) = with_state(|state| state.backings.description_of(source)) {
        return Some(File { description, source, is_backing: Cell::new(true) });
    }
    let opened = proxy().files_of(source).ok()?.reopen(source, how::READ | how::MAPPING).await.ok()?;
    let file = File { description: opened.id, source, is_backing: Cell::new(false) };
    with_state(|state| state.backings.room(parts)).ok().map(|()| file)
}

impl File {
    /// Maps bytes of it from `offset` on, paged out, where nothing is.
    pub fn map(&self, start: u64, end: u64, access: u32, offset: u64) -> Result<(), Errno> {
        let mapped = self.map_parts(start, end, access, offset);
        if mapped.is_err() {
            let _ = mapping::unmap(start, end);
        }
        mapped
    }

    fn map_parts(&self, start: u64, end: u64, access: u32, offset: u64) -> Result<(), Errno> {
        let mut at = start;
        while at < end {
            let pages = ((end - at) / PAGE).min(abi::layout::SEGMENT_PAGES_MAX);
            let segment = mapping::segment(pages)?;
            let &File { description, source, .. } = self;
            let backing = Backing { segment: segment.0, description, source, offset: offset + (at - start), number: 0 };
            let marks = mark::BACKED;
            let area = Area {
                start: at,
                end: at + pages * PAGE,
                segment: segment.0,
                protection: access,
                marks,
                ..Area::default()
            };
            let added = with_state(|state| state.backings.add(backing));
            added.inspect_err(|_| _ = sys::cap_drop(segment))?;
            self.is_backing.set(true);
            mapping::map_segment(area.out()).inspect_err(|_| {
                drop_backing(segment.0);
                let _ = sys::cap_drop(segment);
            })?;
            at = area.end;
        }
        Ok(())
    }
}

/// A segment is named by no area any more.
pub fn drop_backing(segment: u64) {
    let closed = with_state(|state| if state.backings.is_empty() { None } else { state.backings.take(segment) });
    if let Some(description) = closed {
        close_id(server::of_file(description), description);
    }
}

/// Is memory paged out that the program may use?
pub fn is_out(address: u64) -> bool {
    with_state(|state| state.memory.find(address).is_some_and(|area| area.is_out() && area.access() != 0))
}

/// Notes that a call would have used memory that is not there, if that is paged out.
#[cold]
pub fn note(address: u64, bytes: u64, needs: u32) {
    with_both(|state, thread| {
        let out = if state.backings.is_empty() { None } else { state.memory.first_out(address, bytes, needs) };
        thread.missed = out.map_or([0; 2], |out| [out.start, address + bytes]);
    });
}

/// `EFAULT` if memory is paged out that the program may use, which is noted.
pub fn need(start: u64, end: u64) -> Result<(), Errno> {
    note(start, end - start, 0);
    with_thread(|thread| if thread.missed[0] < thread.missed[1] { Err(Errno::EFAULT) } else { Ok(()) })
}

/// Memory that is paged in is not paged out any more. As for [`need`].
pub fn keep(start: u64, end: u64) -> Result<(), Errno> {
    need(start, end)?;
    with_state(|state| {
        if state.backings.is_empty() { Ok(()) } else { state.memory.mark_if(start, end, [mark::BACKED, mark::FILLED]) }
    })
}

/// Would a call that failed so have used memory that is paged out?
#[inline]
pub fn has_missed(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Failure::Errno(Errno::EFAULT))) && with_thread(|thread| thread.missed[0] < thread.missed[1])
}

/// Pages in what a call would have used, which is made again then. `ENOMEM` if it is more than can
/// be there at once.
pub async fn page_in_missed() -> Outcome {
    let [start, end] = with_thread(|thread| core::mem::take(&mut thread.missed));
    let mut at = start;
    while let Some(out) = next_out(at, end) {
        page_in(out).await?;
        at = out + 1;
    }
    match next_out(start, end) {
        None => Err(Failure::Again),
        Some(_) => Err(Errno::ENOMEM.into()),
    }
}

fn next_out(start: u64, end: u64) -> Option<u64> {
    with_state(|state| state.memory.parts(start, end).find(Area::is_out).map(|area| area.start))
}

/// A fault of the program at memory that is paged out. Goes on, if need be with another thread:
/// tells whether with the one that faulted.
pub fn fault(address: u64) -> bool {
    let work = async move {
        if page_in(address).await.is_err() {
            let cause = Cause::fault(code::BUS_ADRERR, address);
            with_signals(|signals, thread| signals.force(thread, SIGBUS, cause));
        }
    };
    if threads::is_alone() {
        runtime::block_on(threads::alone(pin!(work)));
        return true;
    }
    threads::wait_exactly(Box::pin(work))
}

/// Bytes of memory and of a file that are paged in at once: about an address that is out.
fn window(state: &ProcessState, address: u64) -> Option<(Backing, Area)> {
    let area = state.memory.find(address).filter(|area| area.is_out())?;
    let backing = *state.backings.of(area.segment)?;
    let offset = backing.offset_at(area, address);
    let before = (offset % WINDOW_BYTES).min(address - area.start);
    let start = (address - before) & !(PAGE - 1);
    let end = area.end.min(address + (WINDOW_BYTES - offset % WINDOW_BYTES));
    state.memory.parts(start, end).next().map(|part| (backing, part))
}

/// Pages in what is about an address. What is there by now stays as it is.
async fn page_in(address: u64) -> Result<(), Failure> {
    let Some((backing, area)) = with_state(|state| window(state, address)) else { return Ok(()) };
    let mut bytes = vec![0; (area.end - area.start) as usize];
    let offset = backing.offset_at(&area, area.start);
    let count = read_at(backing.description, Target::Own(&mut bytes), offset).await? as u64;
    if count.next_multiple_of(PAGE) <= address - area.start {
        // The file was cut.
        return Err(Errno::EFAULT.into());
    }
    make_room(area.end - area.start);
    Ok(fill(&backing, &area, &bytes)?)
}

/// Fills pages that are still out and still that file's, and lets the program have them.
fn fill(backing: &Backing, area: &Area, bytes: &[u8]) -> Result<(), Errno> {
    let parts: Vec<Area> = with_state(|state| {
        let is_same = state.backings.of(backing.segment).is_some_and(|now| now.number == backing.number);
        let is_wanted = |part: &Area| is_same && part.is_out() && part.segment == backing.segment;
        state.memory.parts(area.start, area.end).filter(is_wanted).collect()
    });
    for part in parts {
        // Its place in the file is what it was: areas do not move.
        let bytes = &bytes[(part.start - area.start) as usize..(part.end - area.start) as usize];
        with_state(|state| state.memory.set_out(part.start, part.end, false))?;
        if let Err(errno) = user::put_pages(&part, bytes) {
            page_out_part(&part);
            return Err(errno);
        }
    }
    Ok(())
}

/// Pages out, before so much is paged in, where more is there than is left to others.
fn make_room(bytes: u64) {
    let Ok((limit, used, free)) = sys::ram_stat(Handle::SELF_RAM) else { return };
    let (used, free) = (used * PAGE, limit.saturating_sub(used).min(free) * PAGE);
    // What is paged in is some of what is used.
    if used + bytes <= free {
        return;
    }
    let resident = resident_bytes();
    let most = free.max(RESIDENT_BYTES_MIN);
    if resident + bytes > most {
        page_out((resident + bytes - most).max(resident / 16).max(OUT_BYTES_MIN));
    }
}

fn resident_bytes() -> u64 {
    with_state(|state| state.memory.bytes(0..u64::MAX, is_resident))
}

/// Memory is short: pages out half of what is paged in. Tells whether that is something.
pub fn relieve() -> bool {
    let resident = resident_bytes();
    page_out((resident / 2).max(OUT_BYTES_MIN));
    resident > 0
}

/// Where to go on paging out.
static HAND: Global<Cell<u64>> = Global(Cell::new(0));

fn page_out(bytes: u64) {
    let parts = with_state(|state| to_page_out(&state.memory, HAND.0.get(), bytes));
    if let Some(last) = parts.last() {
        HAND.0.set(last.end);
    }
    parts.iter().for_each(page_out_part);
}

/// Pages out a part of an area that is paged in.
pub fn page_out_part(part: &Area) {
    // Where the table has no room for two halves, it stays.
    if with_state(|state| state.memory.set_out(part.start, part.end, true)).is_err() {
        return;
    }
    user::take_pages(part);
}
