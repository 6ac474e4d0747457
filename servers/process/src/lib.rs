//! What the process server knows, as pure state: the process table and pipes.
//!
//! Invariants: no clock, no channel, no kernel call here. `serve.rs` and `pipes.rs` beside the
//! binary wire it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod pipe;
pub mod table;
