//! What a server of files keeps of open descriptions, whatever they are of: who holds them, where
//! their offsets are, advisory locks and who waits for one, tickets of what is in flight; and which
//! clients keep bytes of files.
//!
//! Invariants: a description lives while a client or a message holds it; a client has locks of its
//! own only on files of which it holds a description. Deliberately unknown here: what a file is but
//! for its number; clocks, kernel calls.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod copies;
mod descriptions;
pub mod locks;
mod server;
mod table;

pub use descriptions::Descriptions;
pub use server::{Server, serve, settle_in_flight};
pub use table::{Open, Released, Table, Target};

/// Names a file at its server; never used again while anything is known of the file.
pub type FileId = u64;
