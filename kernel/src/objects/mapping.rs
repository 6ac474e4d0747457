//! Mapping: part of a segment, or a whole range, at an address of a range.
//!
//! Invariants: a mapping holds a reference of what it shows and is on that object's list, so that whatever narrows the object can narrow the hardware
//! tables; its place lies inside its range's window; it is linked into one range's tree from `Range::add` to `Range::delete`.

use super::{Link, Linked, Ptr, Range, Segment};
use crate::arch::paging::{Flags, Pte};
use crate::memory::PAGE_BYTES;
use crate::state::Kernel;
use abi::Error;
use abi::layout::protection;
use core::cell::Cell;
use intrusive_collections::{KeyAdapter, RBTreeLink, UnsafeRef, intrusive_adapter};

/// Bytes of a page.
pub const PAGE: u64 = PAGE_BYTES as u64;

/// What a mapping shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Pages of a segment.
    Segment(Ptr<Segment>),
    /// A nested range, all of it.
    Range(Ptr<Range>),
}

/// What is shown at an address.
pub struct Mapping {
    tree: RBTreeLink,
    of_shown: Link<Mapping>,
    pub(super) start: Cell<u64>,
    pub(super) pages: Cell<u64>,
    first: u64,
    shown: Shown,
    range: Ptr<Range>,
    pub(super) protection: Cell<u8>,
    /// What the capability allowed when it was mapped.
    allowed: u8,
}
const _: () = assert!(size_of::<Mapping>() <= 128);

impl Linked<1> for Mapping {
    fn link(&self) -> &Link<Self> {
        &self.of_shown
    }
}

intrusive_adapter!(pub(super) ByAddress = UnsafeRef<Mapping>: Mapping { tree => RBTreeLink });
impl<'a> KeyAdapter<'a> for ByAddress {
    type Key = u64;
    fn get_key(&self, mapping: &'a Mapping) -> u64 {
        mapping.start.get()
    }
}

/// Pages of a range's window; checked by [`Window::place`].
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First address.
    pub start: u64,
    /// Length in pages.
    pub pages: u64,
}

impl Place {
    /// First address after it.
    pub fn end(self) -> u64 {
        self.start + self.pages * PAGE
    }
}

/// The addresses a range may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First address.
    pub start: u64,
    /// First address past it.
    pub end: u64,
}

impl Window {
    /// Page aligned, not empty, inside.
    pub fn place(&self, start: u64, pages: u64) -> Result<Place, Error> {
        let end = pages.checked_mul(PAGE).and_then(|bytes| start.checked_add(bytes)).ok_or(Error::BadArgument)?;
        let fits = start.is_multiple_of(PAGE) && pages > 0 && start >= self.start && end <= self.end;
        fits.then_some(Place { start, pages }).ok_or(Error::BadArgument)
    }
}

impl Mapping {
    /// In no tree and no list yet.
    pub(super) fn new(range: Ptr<Range>, place: Place, shown: Shown, first: u64, rights: [u8; 2]) -> Mapping {
        let [protection, allowed] = rights;
        Mapping {
            tree: RBTreeLink::new(),
            of_shown: Link::new(),
            start: Cell::new(place.start),
            pages: Cell::new(place.pages),
            first,
            shown,
            range,
            protection: Cell::new(protection),
            allowed,
        }
    }

    /// First address.
    pub fn start(&self) -> u64 {
        self.start.get()
    }
    /// First address after it.
    pub fn end(&self) -> u64 {
        self.start.get() + self.pages.get() * PAGE
    }
    /// Length in pages.
    pub fn pages(&self) -> u64 {
        self.pages.get()
    }
    /// Its first page's number in the segment; 0 for a range.
    pub fn first(&self) -> u64 {
        self.first
    }
    /// What it shows.
    pub fn shown(&self) -> Shown {
        self.shown
    }
    /// The segment it shows, if it shows one.
    pub fn segment(&self) -> Option<Ptr<Segment>> {
        match self.shown {
            Shown::Segment(segment) => Some(segment),
            Shown::Range(_) => None,
        }
    }
    /// The range it shows, if it shows one.
    pub fn nested(&self) -> Option<Ptr<Range>> {
        match self.shown {
            Shown::Range(range) => Some(range),
            Shown::Segment(_) => None,
        }
    }
    /// Where it is.
    pub fn range(&self) -> Ptr<Range> {
        self.range
    }
    /// Where in that.
    pub fn place(&self) -> Place {
        Place { start: self.start(), pages: self.pages() }
    }
    /// `layout::protection` bits.
    pub fn protection(&self) -> u64 {
        u64::from(self.protection.get())
    }
    /// The widest protection `RangeProtect` may set.
    pub fn allowed(&self) -> u64 {
        u64::from(self.allowed)
    }
    /// The segment's page at `address`.
    pub fn page_at(&self, address: u64) -> u64 {
        self.first + (address - self.start.get()) / PAGE
    }
}

impl Ptr<Mapping> {
    pub(super) fn next_of_shown(self) -> Option<Ptr<Mapping>> {
        self.of_shown.next()
    }

    /// Takes the hardware entries of some of the segment's pages away.
    pub(super) fn hide(self, kernel: &mut Kernel, first: u64, pages: u64) {
        let from = first.max(self.first);
        let to = (first + pages).min(self.first + self.pages());
        if from < to {
            let place = Place { start: self.start() + (from - self.first) * PAGE, pages: to - from };
            self.range.change_entries(kernel, place, |_| Pte::EMPTY);
        }
    }

    /// Takes up to so many pages off the end of a segment's mapping, the last ones with the mapping itself.
    pub(super) fn trim(self, kernel: &mut Kernel, pages: u64) {
        let kept = self.pages().saturating_sub(pages);
        let tail = Place { start: self.start() + kept * PAGE, pages: self.pages() - kept };
        self.range.change_entries(kernel, tail, |_| Pte::EMPTY);
        if kept == 0 {
            self.range.delete(kernel, self);
        } else {
            self.pages.set(kept);
        }
    }

    /// Makes its hardware entries read-only.
    pub(super) fn deny_writes(self, kernel: &mut Kernel) {
        if self.protection() & protection::WRITE != 0 {
            let read_only = |entry: Pte| Pte::new(entry.address(), entry.flags().without(Flags::WRITE));
            self.range.change_entries(kernel, self.place(), read_only);
        }
    }
}
