//! A disk that the tool itself serves to the emulator, over its NBD client and a local socket: what
//! a power cut leaves of it can be looked at afterwards, for any moment of the run.
//!
//! The disk has a volatile write cache: a write is durable only once a flush that came after its
//! completion has been answered, or if it was written through (FUA). [`log`] keeps what the guest
//! asked for, and marks of what it said it had kept; [`cut`] makes from a log the disk as it is
//! after the power went at a given entry; [`wire`] is the protocol, and [`server`] serves.
//!
//! None of it knows what is on the disk, or which guest writes it.

pub mod cut;
pub mod encrypted;
pub mod image;
pub mod log;
pub mod server;
mod wire;

/// What a disk writes whole or not at all, in bytes.
pub const SECTOR_BYTES: u64 = 512;
