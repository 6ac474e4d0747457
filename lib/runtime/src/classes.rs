//! Blocks of a few sizes that were freed and are allocated again: most of what a component
//! allocates lives as long as a request, and an allocator for all sizes takes ten times as long.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr::{self, NonNull};

/// Sizes are multiples of that, up to the largest.
const STEP_BYTES: usize = 32;
const LARGEST_BYTES: usize = 1024;
const CLASSES: usize = LARGEST_BYTES / STEP_BYTES;
/// Blocks of larger alignment are not kept.
const ALIGNMENT: usize = 16;
/// Bytes of a class that are kept; what is freed beyond goes on to the allocator below.
const KEPT_BYTES: usize = 4096;

/// A block that is kept: it holds the next one.
struct Free {
    next: Option<NonNull<Free>>,
}

/// The blocks of one size.
struct Class {
    first: Cell<Option<NonNull<Free>>>,
    bytes: Cell<usize>,
}

/// In front of an allocator. Not for several threads at once, whatever the allocator below.
pub struct Classes<A> {
    below: A,
    classes: [Class; CLASSES],
}

impl<A> Classes<A> {
    pub const fn new(below: A) -> Classes<A> {
        Classes { below, classes: [const { Class { first: Cell::new(None), bytes: Cell::new(0) } }; CLASSES] }
    }
}

/// The class of such a block, and what is asked for below; `None` if it is not kept.
#[inline]
fn class_of(layout: Layout) -> Option<(usize, Layout)> {
    if layout.size() > LARGEST_BYTES || layout.align() > ALIGNMENT || layout.size() == 0 {
        return None;
    }
    let class = (layout.size() - 1) / STEP_BYTES;
    // SAFETY: a power of two, and a size far below the largest.
    Some((class, unsafe { Layout::from_size_align_unchecked((class + 1) * STEP_BYTES, ALIGNMENT) }))
}

// SAFETY: a block goes to one owner at a time: from the allocator below or from the list of its
// class, on which it is put only when its owner has given it back. All blocks of a class were asked
// for with the same layout, and only with that are they given back below.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Classes<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((class, whole)) = class_of(layout) else {
            // SAFETY: passed on.
            return unsafe { self.below.alloc(layout) };
        };
        let class = &self.classes[class];
        let Some(block) = class.first.get() else {
            // SAFETY: the size is not 0.
            return unsafe { self.below.alloc(whole) };
        };
        // SAFETY: on the list are blocks that nobody owns, each with a `Free` at its start.
        class.first.set(unsafe { block.read() }.next);
        class.bytes.set(class.bytes.get() - whole.size());
        block.as_ptr().cast()
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let Some((class, whole)) = class_of(layout) else {
            // SAFETY: passed on.
            return unsafe { self.below.dealloc(pointer, layout) };
        };
        let class = &self.classes[class];
        let block = match NonNull::new(pointer.cast::<Free>()) {
            Some(block) if class.bytes.get() < KEPT_BYTES => block,
            // SAFETY: it was allocated with this layout.
            _ => return unsafe { self.below.dealloc(pointer, whole) },
        };
        // SAFETY: the block is the caller's to give, as large and as aligned as a `Free`.
        unsafe { block.write(Free { next: class.first.get() }) };
        class.first.set(Some(block));
        class.bytes.set(class.bytes.get() + whole.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is one, with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (class_of(layout), class_of(new)) {
            // SAFETY: passed on.
            (None, None) => unsafe { self.below.realloc(pointer, layout, new_size) },
            (Some((before, _)), Some((after, _))) if before == after => pointer,
            _ => {
                // SAFETY: the size is not 0: a caller's promise.
                let moved = unsafe { self.alloc(new) };
                if !moved.is_null() {
                    // SAFETY: both blocks have so many bytes, and the new one is nobody else's.
                    unsafe { ptr::copy_nonoverlapping(pointer, moved, layout.size().min(new_size)) };
                    // SAFETY: the caller gives it up.
                    unsafe { self.dealloc(pointer, layout) };
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;
    use std::vec::Vec;

    /// Counts what is out.
    struct Counted(Cell<isize>);

    // SAFETY: passes everything on.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.0.set(self.0.get() + layout.size() as isize);
            // SAFETY: passed on.
            unsafe { System.alloc(layout) }
        }
        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            self.0.set(self.0.get() - layout.size() as isize);
            // SAFETY: passed on.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    /// A block that is out: where, how it was asked for, and the byte that fills it.
    type Out = (*mut u8, Layout, u8);

    fn check(&(pointer, layout, byte): &Out) {
        // SAFETY: the test owns the block.
        let bytes = unsafe { core::slice::from_raw_parts(pointer, layout.size()) };
        assert!(bytes.iter().all(|found| *found == byte));
        assert!(pointer.addr().is_multiple_of(layout.align()));
    }

    fn fill((pointer, layout, byte): Out) -> Out {
        // SAFETY: the test owns the block.
        unsafe { pointer.write_bytes(byte, layout.size()) };
        (pointer, layout, byte)
    }

    #[test]
    fn blocks_are_their_owners_alone_and_all_come_back() {
        let (heap, mut out, mut state) = (Classes::new(Counted(Cell::new(0))), Vec::<Out>::new(), 1u64);
        let mut random = |limit: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % limit
        };
        for step in 0..20_000 {
            let layout = Layout::from_size_align(1 + random(1500), 1 << random(6)).unwrap();
            match random(3) {
                // SAFETY: sizes are above 0, and what is given back was given out so.
                0 => out.push(fill((unsafe { heap.alloc(layout) }, layout, step as u8))),
                1 if !out.is_empty() => {
                    let block = out.swap_remove(random(out.len()));
                    check(&block);
                    // SAFETY: as above.
                    unsafe { heap.dealloc(block.0, block.1) };
                }
                _ if !out.is_empty() => {
                    let block = out.swap_remove(random(out.len()));
                    check(&block);
                    // SAFETY: as above.
                    let moved = unsafe { heap.realloc(block.0, block.1, layout.size()) };
                    let kept = Layout::from_size_align(block.1.size().min(layout.size()), block.1.align()).unwrap();
                    check(&(moved, kept, block.2));
                    let layout = Layout::from_size_align(layout.size(), block.1.align()).unwrap();
                    out.push(fill((moved, layout, step as u8)));
                }
                _ => {}
            }
        }
        for block in out {
            check(&block);
            // SAFETY: as above.
            unsafe { heap.dealloc(block.0, block.1) };
        }
        let kept: usize = heap.classes.iter().map(|class| class.bytes.get()).sum();
        assert_eq!(heap.below.0.get(), kept as isize);
        assert!(heap.classes.iter().all(|class| class.bytes.get() < KEPT_BYTES + LARGEST_BYTES));
    }

    #[test]
    fn a_block_that_was_freed_is_given_again_unless_it_is_large_or_of_large_alignment() {
        let again = |bytes: usize, alignment: usize| {
            let (heap, layout) =
                (Classes::new(Counted(Cell::new(0))), Layout::from_size_align(bytes, alignment).unwrap());
            // SAFETY: the size is above 0, and what is given back was given out so.
            unsafe {
                let first = heap.alloc(layout);
                heap.dealloc(first, layout);
                let is_kept = heap.below.0.get() > 0;
                let second = heap.alloc(layout);
                heap.dealloc(second, layout);
                assert!(!is_kept || first == second);
                is_kept
            }
        };
        assert_eq!([again(1, 1), again(LARGEST_BYTES, ALIGNMENT), again(33, 8)], [true; 3]);
        assert_eq!([again(LARGEST_BYTES + 1, 1), again(8, 2 * ALIGNMENT)], [false; 2]);
    }
}
