//! What Linux looks like from a program, as pure data and rules: call numbers, errno, structure
//! layouts, memory map, descriptors, executable files, signal frames. The binary beside it wires
//! these to channels and kernel calls.
//!
//! Invariants: no kernel call, no channel and no raw pointer here, so all of it is tested on the
//! host. Linux numbers and layouts (errno, flags, structures) exist in this crate and nowhere else
//! in the tree.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod backings;
pub mod block_cache;
pub mod calls;
pub mod descriptors;
pub mod epoll;
pub mod errno;
pub mod fast_path;
#[cfg(test)]
mod flag_table;
pub mod flags;
pub mod futex;
pub mod identity;
pub mod image;
pub mod layouts;
pub mod limits;
pub mod mapping;
pub mod memory;
pub mod path;
pub mod pieces;
pub mod read_ahead;
pub mod refusals;
pub mod signal_frame;
pub mod signals;
pub mod sleepers;
pub mod stack;
pub mod stack_changes;
pub mod state;
pub mod system_v;
pub mod table;
pub mod waiting;

pub use errno::Errno;
