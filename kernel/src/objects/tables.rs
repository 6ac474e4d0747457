//! The hardware tables of a range: a cache of its mappings, which may lose any entry at any time.
//!
//! Invariants: an entry never allows more than its mapping and its page do; when one is narrowed or taken away, no translation that this core holds allows
//! more either when the call ends. A core holds translations of the space that is loaded only (loading another drops them all), so a root forgets
//! its own pages one by one, and a nested range, which the loaded space may show anywhere and more than once, has all forgotten.

use super::mapping::{PAGE, Place};
use super::{Ptr, Range};
use crate::arch::paging::{self, Leaves, Pte, Table};
use crate::hardware;
use crate::state::Kernel;
use abi::Error;
use abi::layout::protection;
use paging::Flags;

/// Bytes that one table of leaves covers, and a large page.
pub(super) const LEAVES_BYTES: u64 = Table::bytes(0);
/// From this many pages on, everything is flushed instead of page by page.
const FLUSH_ALL_PAGES: u64 = 32;

impl Ptr<Range> {
    /// Whether the loaded space may show it.
    pub(super) fn is_shown(self, kernel: &Kernel) -> bool {
        match kernel.loaded {
            Some(root) if self.is_root() => root == self.root(),
            Some(_) => !self.parents.is_empty(),
            None => false,
        }
    }

    /// Changes the present hardware entries of `place` and flushes what changed.
    pub(super) fn change_entries(self, kernel: &mut Kernel, place: Place, change: impl Fn(Pte) -> Pte) {
        let is_shown = self.is_shown(kernel);
        let by_page = is_shown && self.is_root();
        let mut changed = 0u64;
        let mut replace = |entry: &mut Pte, new: Pte, address: u64| {
            if new != *entry {
                *entry = new;
                changed += 1;
                if by_page && changed <= FLUSH_ALL_PAGES {
                    hardware::flush_page(address);
                }
            }
        };
        let mut address = place.start;
        while address < place.end() {
            let end = place.end().min((address / LEAVES_BYTES + 1) * LEAVES_BYTES);
            match paging::leaves(self.top(), address, ((end - address) / PAGE) as usize) {
                Leaves::Nothing => (),
                Leaves::Large(entry) => {
                    let is_whole = end - address == LEAVES_BYTES;
                    // What stays of a part comes back in small pages.
                    replace(entry, if is_whole { change(*entry) } else { Pte::EMPTY }, address);
                }
                Leaves::Small(entries) => {
                    for entry in entries {
                        if entry.is_present() {
                            replace(entry, change(*entry), address);
                        }
                        address += PAGE;
                    }
                }
            }
            address = end;
        }
        if is_shown && changed > if by_page { FLUSH_ALL_PAGES } else { 0 } {
            hardware::flush_all();
        }
    }

    /// The table of leaves that holds the entry of `address` is there afterwards.
    #[inline(never)]
    pub(super) fn make_table(self, kernel: &mut Kernel, address: u64) -> Result<(), Error> {
        let ram = self.ram();
        if let Leaves::Large(entry) = paging::leaves(self.top(), address, 1) {
            // Of a mapping that was cut since.
            *entry = Pte::EMPTY;
            if self.is_shown(kernel) {
                hardware::flush_all();
            }
        }
        let made = paging::walk(self.top(), address, &mut || kernel.allocate_page(ram).ok());
        made.map(|_| ()).ok_or(Error::NoMemory)
    }

    /// Puts the entry of a large page into the hardware tables, in place of a table; tells whether there was one.
    pub(super) fn set_large_entry(self, kernel: &mut Kernel, start: u64, new: Pte) -> Result<bool, Error> {
        let ram = self.ram();
        let entry = paging::walk_to(self.top(), start, 1, &mut || kernel.allocate_page(ram).ok());
        let entry = entry.ok_or(Error::NoMemory)?;
        let old = *entry;
        if old.is_present() && !old.is_large() {
            paging::drop_table(entry, 1, &mut |frame| kernel.free_page(ram, frame));
            if self.is_shown(kernel) {
                hardware::flush_all();
            }
        }
        *entry = new;
        Ok(old.is_present())
    }

    /// The hardware entries from `start` on, as far as one table holds them and it exists. New ones need no flush.
    #[inline]
    pub(super) fn entries(self, start: u64, pages: u64) -> &'static mut [Pte] {
        match paging::leaves(self.top(), start, pages as usize) {
            Leaves::Small(entries) => entries,
            _ => &mut [],
        }
    }

    /// Makes the entry that leads to a nested range, in place of what is left there of tables without entries.
    pub(super) fn open_link(self, kernel: &mut Kernel, start: u64, level: u32) -> Result<&'static mut Pte, Error> {
        let ram = self.ram();
        let entry = paging::walk_to(self.top(), start, level + 1, &mut || kernel.allocate_page(ram).ok());
        let entry = entry.ok_or(Error::NoMemory)?;
        if entry.is_present() {
            paging::drop_table(entry, level + 1, &mut |frame| kernel.free_page(ram, frame));
            if self.is_shown(kernel) {
                hardware::flush_all();
            }
        }
        Ok(entry)
    }

    /// Changes the entry that leads to a nested range, which `open_link` made.
    pub(super) fn set_link(self, kernel: &mut Kernel, start: u64, level: u32, new: Pte) {
        let entry = paging::walk_to(self.top(), start, level + 1, &mut || None).expect("made when it was nested");
        let old = core::mem::replace(entry, new);
        if old.is_present() && old != new && self.is_shown(kernel) {
            hardware::flush_all();
        }
    }
}

/// What stays of an entry under a protection; more rights come by faults.
pub(super) fn narrow(entry: Pte, wanted: u64) -> Pte {
    if wanted & protection::READ == 0 {
        return Pte::EMPTY;
    }
    let flags = if wanted & protection::WRITE == 0 { entry.flags().without(Flags::WRITE) } else { entry.flags() };
    Pte::new(entry.address(), flags | execution(wanted))
}

/// The flag that follows from the right to execute.
pub(super) fn execution(wanted: u64) -> Flags {
    if wanted & protection::EXECUTE == 0 { Flags::NO_EXECUTE } else { Flags::NONE }
}
