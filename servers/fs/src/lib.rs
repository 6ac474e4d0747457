//! The file store as pure state: a tree of inodes, file data by pages, the boot archive, and the
//! texts of /proc.
//!
//! Invariants: no clock, no channel, no kernel call here; times come as arguments. What clients say
//! is decoded into inodes or errors.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
pub mod data;
pub mod proc_text;
pub mod store;
pub mod walk;
