//! Every conversation of the system, one file each: what it is for, its order, limits, rights and
//! errors.
//!
//! `#[contract]` makes client, server and wire types of each trait (see `lib/contract`). Nothing
//! here implements a service, and no type here is private state of one.
#![no_std]
#![forbid(unsafe_code)]
// A field of a wire type is described by its type's doc line.
#![allow(missing_docs)]

extern crate alloc;

pub use channel::BulkSpan;

pub mod blocks;
pub mod descriptions;
pub mod endpoint;
pub mod files;
pub mod in_flight;
pub mod keys;
pub mod lookup;
pub mod memory;
pub mod monitor;
pub mod names;
pub mod network;
pub mod packets;
pub mod process;
pub mod shared_memory;
pub mod sockets;
pub mod spawn;
pub mod storage;
pub mod supervisor;
#[cfg(not(target_os = "none"))]
pub mod testing;
