//! Read sections: how a core looks at what others may take apart, without a lock (the RCU-like
//! tricks of Corey section 10).
//!
//! Each core has a [`Reader`] that it alone writes: a count, odd while the core is in a section.
//! Who takes something apart unlinks it first, then waits until every core was seen outside, or in
//! another section than at the first look; then nobody can still hold what he found through the
//! link.
//!
//! ```text
//!   reader                         who takes apart
//!   count = odd                    unlink (under the lock of the table)
//!   fence ------------------------ fence
//!   follow the link                look at every count; wait while it is the same odd one
//!   count = even (release) ------> acquire
//!                                  use the memory again
//! ```
//! If the reader's fence comes first, its odd count is seen and waited for; if the other's does,
//! the reader finds the link gone. The reader of a section never waits for anything, so nobody
//! waits for him longer than a few loads.

use crate::{AtomicU64, Ordering, Relax, fence};

/// A core's count.
#[repr(C, align(64))]
pub struct Reader(AtomicU64);

/// A read section; ends when dropped.
#[must_use]
pub struct Section<'a>(&'a Reader);

impl Reader {
    /// Outside.
    #[cfg(not(loom))]
    pub const fn new() -> Reader {
        Reader(AtomicU64::new(0))
    }

    /// Outside.
    #[cfg(loom)]
    pub fn new() -> Reader {
        Reader(AtomicU64::new(0))
    }

    /// Begins a section. Only its own core does that, and not within another.
    pub fn enter(&self) -> Section<'_> {
        let count = self.0.load(Ordering::Relaxed);
        assert!(count & 1 == 0, "a read section inside another");
        self.0.store(count + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Section(self)
    }

    /// Returns when every section that was open at the call has ended. Called outside of sections.
    pub fn wait_for_all<'a, R: Relax>(readers: impl Iterator<Item = &'a Reader>) {
        fence(Ordering::SeqCst);
        readers.for_each(|reader| {
            let first = reader.0.load(Ordering::Acquire);
            if first & 1 != 0 {
                let mut relax = R::default();
                while reader.0.load(Ordering::Acquire) == first {
                    relax.relax();
                }
            }
        });
    }
}

impl Default for Reader {
    fn default() -> Self {
        Reader::new()
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let count = &self.0.0;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}
