//! The operations of a range, of both kinds: those of a core in its own memory (`range`), and those
//! of a pool for several cores (`shared`).
//!
//! The truth is a tree of mappings; the hardware tables are a cache of it, which may lose any entry
//! at any time. Invariants: an entry never allows more than its mapping and its page do; when one
//! is downgraded or removed, the implementation of [`Space`] is told, and invalidates the
//! translations of processors before anything that was mapped may be used otherwise. This file
//! knows no address but the window's.

use super::mapping::{MapTarget, Mapping, PAGE, PageRun, Tree};
use super::{Made, Ptr, fault};
use crate::arch::paging::{self, Leaves, Pte, Table};
use crate::hardware;
use crate::memory::PhysAddr;
use crate::steps::{Budget, MAPPING_UNITS, TABLE_UNITS};
use abi::Error;
use abi::layout::protection;
use paging::Flags;

/// Most mappings of one range (Linux's default limit is about the same).
pub const MAPPINGS_MAX: u64 = 65_536;
/// Bytes that one table of leaves covers, and a large page.
pub(super) const LEAVES_BYTES: u64 = Table::bytes(0);
/// Entries of such a table.
const ENTRIES: u32 = (LEAVES_BYTES / PAGE) as u32;
/// From this many pages on, all translations are invalidated instead of page by page.
const FLUSH_ALL_PAGES: u64 = 32;

/// Where processors may have translations of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlbScope {
    /// Nowhere.
    Nowhere,
    /// On this core, at the range's own addresses.
    Here,
    /// At addresses, or on cores, that are not known one by one.
    Anywhere,
}

/// A range of a core or of a pool.
pub trait Space {
    /// What its mappings keep of their targets.
    type MapTarget: MapTarget;

    /// Its uppermost table.
    fn top(&self) -> Table;
    /// Whether code that is mapped may be writable.
    fn may_write_execute(&self) -> bool;
    /// Its mappings.
    fn mappings(&self) -> &Tree<Self::MapTarget>;
    /// Makes a mapping that is in no tree yet; it holds a reference of its target.
    fn make(&mut self, at: PageRun, what: What<Self>, first: u64, rights: [u8; 2]) -> Made<Mapping<Self::MapTarget>>;
    /// Destroys a mapping that was taken out of the tree, and drops its reference.
    fn end(&mut self, mapping: Ptr<Mapping<Self::MapTarget>>);
    /// Allocates a page for a table.
    fn allocate_table(&mut self) -> Option<PhysAddr>;
    /// Frees a table that no table leads to any more and no processor has translations of.
    fn free_table(&mut self, frame: PhysAddr);
    /// Where processors may have translations of it.
    fn tlb_scope(&self) -> TlbScope;
    /// Invalidates the translation at this address, if the scope is [`TlbScope::Here`].
    fn flush_page(&mut self, address: u64);
    /// Invalidates all translations.
    fn flush_all_translations(&mut self);
    /// The entry for a page of a mapping, if the page is present.
    fn fault_around(&mut self, mapping: Ptr<Mapping<Self::MapTarget>>, page: u64) -> Option<Pte>;

    /// Maps `what` at `place`. Protection and rights have been checked; `Busy` if something
    /// is there.
    fn map(&mut self, place: PageRun, what: What<Self>, first: u64, rights: [u64; 2]) -> Result<(), Error> {
        if self.mappings().within(place).next().is_some() {
            return Err(Error::Busy);
        }
        self.add(place, what, first, rights.map(|bits| bits as u8))
    }

    /// As `map`, where nothing is.
    fn add(&mut self, place: PageRun, what: What<Self>, first: u64, rights: [u8; 2]) -> Result<(), Error> {
        if self.mappings().count() >= MAPPINGS_MAX {
            return Err(Error::NoMemory);
        }
        let made = self.make(place, what, first, rights)?;
        self.mappings().insert(made);
        Ok(())
    }

    /// Removes a mapping whose entries are gone.
    fn delete(&mut self, mapping: Ptr<Mapping<Self::MapTarget>>) {
        self.mappings().remove(mapping);
        self.end(mapping);
    }

    /// Whether a border of `place` lies inside a nested range.
    fn check_borders(&self, place: PageRun) -> Result<(), Error> {
        let cuts = |border: u64| {
            let mapping = self.mappings().at(border);
            mapping.is_some_and(|mapping| mapping.start() < border && mapping.target().table().is_some())
        };
        if cuts(place.start) || cuts(place.end()) { Err(Error::BadArgument) } else { Ok(()) }
    }

    /// Makes `address` a border between mappings, if it lies inside one, of a segment. Changes
    /// nothing a user can see.
    fn split(&mut self, address: u64) -> Result<(), Error> {
        let Some(mapping) = self.mappings().at(address).filter(|mapping| mapping.start() < address) else {
            return Ok(());
        };
        let kept = (address - mapping.start()) / PAGE;
        let all = mapping.pages();
        mapping.set_pages(kept);
        let rest = PageRun { start: address, pages: all - kept };
        let made = self.add(rest, mapping.target().what(), mapping.first() + kept, mapping.rights());
        if made.is_err() {
            mapping.set_pages(all);
        }
        made
    }

    /// Unmaps everything inside `place`, from its start on, as far as the budget allows; gives how
    /// many pages those were, and the address up to which nothing is left. `BadArgument` for a part
    /// of a nested range.
    fn unmap(&mut self, place: PageRun, budget: &mut Budget) -> Result<(u64, u64), Error> {
        self.check_borders(place)?;
        self.split(place.start)?;
        self.split(place.end())?;
        let mut pages = 0;
        while let Some(mapping) = { self.mappings().within(place).next() } {
            let table_end = (mapping.start() / LEAVES_BYTES + 1) * LEAVES_BYTES;
            let piece = PageRun { start: mapping.start(), pages: (table_end - mapping.start()) / PAGE };
            let is_part = mapping.target().table().is_none() && piece.end() < mapping.end();
            let pages_here = piece.pages.min(mapping.pages());
            if !budget.spend(MAPPING_UNITS + TABLE_UNITS * pages_here as u32 / ENTRIES) {
                return Ok((pages, mapping.start()));
            }
            if is_part {
                self.downgrade_entries(piece, 0);
                mapping.advance(piece.pages);
                pages += piece.pages;
            } else {
                pages += mapping.pages();
                self.take_out(mapping);
            }
        }
        Ok((pages, place.end()))
    }

    /// Unmaps one mapping, with its entries.
    fn take_out(&mut self, mapping: Ptr<Mapping<Self::MapTarget>>) {
        match mapping.target().table() {
            None => self.downgrade_entries(mapping.place(), 0),
            Some(table) => self.set_link(mapping.start(), table, Pte::EMPTY),
        }
        self.delete(mapping);
    }

    /// Whether all of `place` is mapped by capabilities that allow `wanted`, nested ranges as a
    /// whole: from an address on, as far as the budget allows; tells up to where that is so.
    fn check_cover(&self, place: PageRun, wanted: u64, from: u64, budget: &mut Budget) -> Result<u64, Error> {
        self.check_borders(place)?;
        let mut next = from;
        while next < place.end() && budget.spend(MAPPING_UNITS) {
            next = self.allows(next, wanted)?.end();
        }
        Ok(next.min(place.end()))
    }

    /// The mapping at `address`, if it may have that protection.
    fn allows(&self, address: u64, wanted: u64) -> Result<Ptr<Mapping<Self::MapTarget>>, Error> {
        let mapping = self.mappings().at(address).ok_or(Error::BadArgument)?;
        if mapping.target().table().is_none() {
            check_protection(wanted, self.may_write_execute())?;
        }
        if mapping.allowed() & wanted == wanted { Ok(mapping) } else { Err(Error::NoRights) }
    }

    /// Makes `address` a border between mappings, unless it lies inside one that has the
    /// protection.
    fn split_unless(&mut self, address: u64, wanted: u64) -> Result<(), Error> {
        let has = { self.mappings().at(address) }.is_some_and(|mapping| mapping.protection() == wanted);
        if has { Ok(()) } else { self.split(address) }
    }

    /// Sets the protection of the pages of `place`, from its start on, as far as the budget allows;
    /// gives the end of what is done. Pages that are not mapped, or do not allow it, are an error
    /// only when they are reached (`check_cover` finds them before).
    fn protect(&mut self, place: PageRun, wanted: u64, budget: &mut Budget) -> Result<u64, Error> {
        self.check_borders(place)?;
        self.split_unless(place.start, wanted)?;
        self.split_unless(place.end(), wanted)?;
        let mut next = place.start;
        while next < place.end() {
            if !budget.spend(MAPPING_UNITS) {
                return Ok(next);
            }
            let mapping = self.allows(next, wanted)?;
            let end = mapping.end().min(place.end());
            let is_new = mapping.protection() != wanted;
            mapping.set_protection(wanted);
            if let Some(table) = mapping.target().table() {
                self.set_link(mapping.start(), table, link(table, wanted));
                next = end;
                continue;
            }
            if is_new {
                self.join_with_previous(mapping);
            }
            // A later step, or a call that is made again, comes back to what is left of the
            // entries.
            while next < end {
                let piece_end = end.min((next / LEAVES_BYTES + 1) * LEAVES_BYTES);
                let pages = (piece_end - next) / PAGE;
                if !budget.spend(TABLE_UNITS.min(pages as u32)) {
                    return Ok(next);
                }
                self.downgrade_entries(PageRun { start: next, pages }, wanted);
                next = piece_end;
            }
        }
        if let Some(after) = { self.mappings().at(place.end()) }.filter(|after| after.start() == place.end()) {
            self.join_with_previous(after);
        }
        Ok(next)
    }

    /// Makes one mapping of two that continue each other, so that protecting back and forth leaves
    /// no trace.
    fn join_with_previous(&mut self, mapping: Ptr<Mapping<Self::MapTarget>>) {
        let before = mapping.start().checked_sub(PAGE);
        let Some(previous) = before.and_then(|before| self.mappings().at(before)) else { return };
        let continues = previous.target().table().is_none()
            && previous.target().what() == mapping.target().what()
            && previous.first() + previous.pages() == mapping.first()
            && previous.rights() == mapping.rights();
        if continues {
            let pages = mapping.pages();
            self.delete(mapping);
            previous.set_pages(previous.pages() + pages);
        }
    }

    /// Reduces the present hardware entries of `place` to what the protection allows, without the
    /// right to read to nothing; invalidates the translations of those that changed.
    fn downgrade_entries(&mut self, place: PageRun, wanted: u64) {
        let tlb_scope = self.tlb_scope();
        let by_page = tlb_scope == TlbScope::Here;
        let mut changed = 0u64;
        let top = self.top();
        let mut replace = |entry: &mut Pte, new: Pte, address: u64| {
            if new != *entry {
                *entry = new;
                changed += 1;
                if by_page && changed <= FLUSH_ALL_PAGES {
                    self.flush_page(address);
                }
            }
        };
        let mut address = place.start;
        while address < place.end() {
            let end = place.end().min((address / LEAVES_BYTES + 1) * LEAVES_BYTES);
            hardware::count_work((end - address) / PAGE / 2 + 2);
            match paging::leaves(top, address, ((end - address) / PAGE) as usize) {
                Leaves::Nothing => (),
                Leaves::Large(entry) => {
                    let is_whole = end - address == LEAVES_BYTES;
                    // The rest of a large page comes back in small ones, by faults.
                    replace(entry, if is_whole { downgrade(*entry, wanted) } else { Pte::EMPTY }, address);
                }
                Leaves::Small(entries) => {
                    for entry in entries {
                        if entry.is_present() {
                            replace(entry, downgrade(*entry, wanted), address);
                        }
                        address += PAGE;
                    }
                }
            }
            address = end;
        }
        if tlb_scope != TlbScope::Nowhere && changed > if by_page { FLUSH_ALL_PAGES } else { 0 } {
            self.flush_all_translations();
        }
    }

    /// Invalidates translations after an entry that led to a table is gone.
    fn flush_tables(&mut self) {
        if self.tlb_scope() != TlbScope::Nowhere {
            self.flush_all_translations();
        }
    }

    /// Makes the table of leaves that holds the entry of `address`.
    #[inline(never)]
    fn make_table(&mut self, address: u64) -> Result<(), Error> {
        let top = self.top();
        if let Leaves::Large(entry) = paging::leaves(top, address, 1) {
            // The mapping that had the large page was cut since.
            *entry = Pte::EMPTY;
            self.flush_tables();
        }
        paging::walk(top, address, &mut || self.allocate_table()).map(|_| ()).ok_or(Error::NoMemory)
    }

    /// The hardware entries from `start` on, as far as one table holds them and it exists. New ones
    /// need no flush.
    #[inline]
    fn entries(&self, start: u64, pages: u64) -> &'static mut [Pte] {
        match paging::leaves(self.top(), start, pages as usize) {
            Leaves::Small(entries) => entries,
            _ => &mut [],
        }
    }

    /// Puts one entry into the hardware tables and tells whether there was one. Fault-around: maps
    /// the neighbouring pages that are present, too, so that a program's text and a child's memory
    /// cost one fault for many pages.
    fn map_entry(&mut self, mapping: Ptr<Mapping<Self::MapTarget>>, address: u64, new: Pte) -> Result<bool, Error> {
        let start = mapping.start().max(address / fault::AROUND_BYTES * fault::AROUND_BYTES);
        let end = mapping.end().min((address / fault::AROUND_BYTES + 1) * fault::AROUND_BYTES);
        let around = (end - start) / PAGE;
        let mut entries = self.entries(start, around);
        if entries.is_empty() {
            self.make_table(address)?;
            entries = self.entries(start, around);
        }
        let own = core::mem::replace(&mut entries[((address - start) / PAGE) as usize], new);
        for (page, entry) in (mapping.page_at(start)..).zip(entries) {
            if !entry.is_present()
                && let Some(new) = self.fault_around(mapping, page)
            {
                *entry = new;
            }
        }
        Ok(own.is_present())
    }

    /// Puts the entry of a large page into the hardware tables, in place of a table; tells whether
    /// there was one.
    fn map_large(&mut self, start: u64, new: Pte) -> Result<bool, Error> {
        let top = self.top();
        let entry = paging::walk_to(top, start, 1, &mut || self.allocate_table()).ok_or(Error::NoMemory)?;
        let old = *entry;
        if old.is_present() && !old.is_large() {
            paging::drop_table(entry, 1, &mut |frame| self.free_table(frame));
            self.flush_tables();
        }
        *entry = new;
        Ok(old.is_present())
    }

    /// Makes the entry that leads to a nested range, in place of what is left there of tables
    /// without entries.
    fn open_link(&mut self, start: u64, level: u32) -> Result<&'static mut Pte, Error> {
        let top = self.top();
        let entry = paging::walk_to(top, start, level + 1, &mut || self.allocate_table()).ok_or(Error::NoMemory)?;
        if entry.is_present() {
            paging::drop_table(entry, level + 1, &mut |frame| self.free_table(frame));
            self.flush_tables();
        }
        Ok(entry)
    }

    /// Changes the entry that leads to a nested range, which `open_link` made.
    fn set_link(&mut self, start: u64, table: Table, new: Pte) {
        let entry = paging::walk_to(self.top(), start, table.level + 1, &mut || None);
        let old = core::mem::replace(entry.expect("made when it was nested"), new);
        if old.is_present() && old != new {
            self.flush_tables();
        }
    }
}

/// The target of a mapping of such a range.
pub type What<S> = <<S as Space>::MapTarget as MapTarget>::What;

/// Whether the protection is one that pages may have.
pub(super) fn check_protection(wanted: u64, may_write_execute: bool) -> Result<(), Error> {
    let both = protection::WRITE | protection::EXECUTE;
    if wanted & both != both || may_write_execute { Ok(()) } else { Err(Error::BadArgument) }
}

/// What stays of an entry under a protection; more rights come by faults.
fn downgrade(entry: Pte, wanted: u64) -> Pte {
    if wanted & protection::READ == 0 {
        return Pte::EMPTY;
    }
    let flags = if wanted & protection::WRITE == 0 { entry.flags().without(Flags::WRITE) } else { entry.flags() };
    Pte::new(entry.address(), flags | execution(wanted))
}

/// The flag that follows from the right to execute.
fn execution(wanted: u64) -> Flags {
    if wanted & protection::EXECUTE == 0 { Flags::NO_EXECUTE } else { Flags::NONE }
}

/// The flags of an entry for a page under a protection.
pub fn flags_under(wanted: u64, writable: bool) -> Flags {
    let write = if writable && wanted & protection::WRITE != 0 { Flags::WRITE } else { Flags::NONE };
    Flags::PRESENT | Flags::USER | write | execution(wanted)
}

/// The entry that leads to a nested range.
pub(super) fn link(table: Table, wanted: u64) -> Pte {
    if wanted & protection::READ == 0 {
        return Pte::EMPTY;
    }
    paging::link(table, flags_under(wanted, true))
}
