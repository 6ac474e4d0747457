//! Blocks in memory that cores share, found without a lock: the buffer cache of Corey's section
//! 5.3.
//!
//! - *Lookup* goes through a tree of atomic words ([`Section::get`]): it waits for nobody, and
//!   writes nothing but a word of its own core.
//! - *Writing* takes a frame of the core that writes, fills it while nobody sees it, and puts it in
//!   the place of the one that was there ([`Local::insert`], [`Local::change`]). Nothing that
//!   others see is written. A frame goes back to the core whose it is.
//! - *No reuse under a reader*: what was taken out is used again when every read section that was
//!   open then has ended (`lock::Reader`).
//!
//! Each core has a [`Local`]: threads of one domain by [`locals`], cores with a domain each by
//! [`local_in`], in memory that all of them have. A component of one core has one, may let it grow
//! and shrink, and never waits. Invariants: a frame is in the tree, in one core's hands, or on its
//! way home, never two of these; a tree's word names a frame that was filled, or a node all of
//! whose words are as they were when nobody saw it, or newer. Deliberately unknown here: where
//! blocks come from, which are to go.
#![no_std]

extern crate alloc;

mod local;
mod places;
mod tree;

#[cfg(not(loom))]
pub use local::local_in;
pub use local::{Allocator, FrameId, Local, NoMemory, NoRoom, OfAll, OfEachCore, Section, Shape, locals};
