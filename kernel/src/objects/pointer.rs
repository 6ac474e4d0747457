//! Pointers to kernel objects, and lists threaded through them.
//!
//! Invariants: an object lives in a page of this core that the direct map covers and never moves; a
//! stored [`Ptr`] either counts as a reference of the object (`Kernel::retain`, `Kernel::release`)
//! or is unlinked before the object is destroyed. All fields that change are cells, so shared
//! references suffice and no two parts of the kernel can hold conflicting borrows of an object.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;

/// A live object of this core.
pub struct Ptr<T>(NonNull<T>);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> core::fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Ptr<T> {
    /// # Safety
    /// `pointer` is an initialised `T` that stays in place and alive as long as any copy of this
    /// pointer is used.
    pub const unsafe fn new(pointer: NonNull<T>) -> Ptr<T> {
        Ptr(pointer)
    }

    /// Where it is.
    pub const fn address(self) -> NonNull<T> {
        self.0
    }
}

impl<T> Deref for Ptr<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: by the contract of `new`; the kernel is single-threaded and objects change only
        // through cells.
        unsafe { self.0.as_ref() }
    }
}

/// An object's place in one list.
pub struct Link<T> {
    next: Cell<Option<Ptr<T>>>,
    previous: Cell<Option<Ptr<T>>>,
    linked: Cell<bool>,
}

impl<T> Link<T> {
    /// In no list.
    pub const fn new() -> Link<T> {
        Link { next: Cell::new(None), previous: Cell::new(None), linked: Cell::new(false) }
    }

    /// Whether it is in a list.
    pub fn is_linked(&self) -> bool {
        self.linked.get()
    }

    /// What follows in the list.
    pub fn next(&self) -> Option<Ptr<T>> {
        self.next.get()
    }

    /// What stands before it in the list.
    pub fn previous(&self) -> Option<Ptr<T>> {
        self.previous.get()
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Link::new()
    }
}

/// Objects with a link for lists of kind `W` (one object can be in several lists).
pub trait Linked<const W: usize>: Sized {
    /// The link used by lists of this kind.
    fn link(&self) -> &Link<Self>;
}

/// Says which field of a type is its link for lists of a kind.
macro_rules! linked {
    ($type:ty, $kind:literal: $($link:ident).+) => {
        impl $crate::objects::Linked<$kind> for $type {
            fn link(&self) -> &$crate::objects::Link<Self> {
                &self.$($link).+
            }
        }
    };
}
pub(crate) use linked;

/// A doubly linked list; all operations take constant time.
pub struct List<T, const W: usize = 0> {
    first: Cell<Option<Ptr<T>>>,
    last: Cell<Option<Ptr<T>>>,
}

impl<T: Linked<W>, const W: usize> List<T, W> {
    /// An empty list.
    pub const fn new() -> Self {
        List { first: Cell::new(None), last: Cell::new(None) }
    }

    /// The first object.
    pub fn first(&self) -> Option<Ptr<T>> {
        self.first.get()
    }

    /// The last object.
    pub fn last(&self) -> Option<Ptr<T>> {
        self.last.get()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// Puts `item` at the end. It must be in no list of this kind.
    #[inline(always)]
    pub fn push_back(&self, item: Ptr<T>) {
        let last = self.last.replace(Some(item));
        let link = Self::claim(&item);
        link.previous.set(last);
        link.next.set(None);
        match last {
            Some(last) => last.link().next.set(Some(item)),
            None => self.first.set(Some(item)),
        }
    }

    /// Puts `item` at the front. It must be in no list of this kind.
    pub fn push_front(&self, item: Ptr<T>) {
        let link = Self::claim(&item);
        let first = self.first.replace(Some(item));
        link.next.set(first);
        link.previous.set(None);
        match first {
            Some(first) => first.link().previous.set(Some(item)),
            None => self.last.set(Some(item)),
        }
    }

    /// Puts `item` right after `before`, which is in this list. `item` must be in no list of this
    /// kind.
    pub fn insert_after(&self, before: Ptr<T>, item: Ptr<T>) {
        let Some(after) = before.link().next.get() else { return self.push_back(item) };
        let link = Self::claim(&item);
        link.previous.set(Some(before));
        link.next.set(Some(after));
        before.link().next.set(Some(item));
        after.link().previous.set(Some(item));
    }

    fn claim(item: &Ptr<T>) -> &Link<T> {
        let link = item.link();
        assert!(!link.linked.replace(true), "object is in a list of this kind already");
        link
    }

    /// Takes `item` out. It must be in this list.
    #[inline(always)]
    pub fn remove(&self, item: Ptr<T>) {
        let link = item.link();
        let (next, previous) = (link.next.get(), link.previous.get());
        assert!(link.linked.replace(false), "object is in no list of this kind");
        match previous {
            Some(previous) => previous.link().next.set(next),
            None => self.first.set(next),
        }
        match next {
            Some(next) => next.link().previous.set(previous),
            None => self.last.set(previous),
        }
    }

    /// Takes the first object out.
    #[inline(always)]
    pub fn pop_front(&self) -> Option<Ptr<T>> {
        let first = self.first.get()?;
        let link = first.link();
        assert!(link.linked.replace(false), "object is in no list of this kind");
        let next = link.next.get();
        self.first.set(next);
        match next {
            Some(next) => next.link().previous.set(None),
            None => self.last.set(None),
        }
        Some(first)
    }
}

impl<T: Linked<W>, const W: usize> Default for List<T, W> {
    fn default() -> Self {
        List::new()
    }
}
