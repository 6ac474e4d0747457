//! The kernel's binary interface: call numbers, handles, rights, errors and the layouts both sides
//! read.
//!
//! Invariants: everything here is plain data; nothing here runs a call (see `lib/sys`) or knows a
//! contract (see `contracts`). A number once used for a call, an error or a right is never given
//! another meaning.
#![no_std]
#![forbid(unsafe_code)]

pub mod call;
pub mod clock;
pub mod control;
pub mod error;
pub mod handle;
pub mod layout;
pub mod pcore;
pub mod range;
pub mod start;
pub mod status;

pub use call::Call;
pub use clock::ClockPage;
pub use control::{ControlPage, ProgramRegisters};
pub use error::Error;
pub use handle::{Handle, ObjectType, Rights};
pub use range::RangeEntry;
pub use status::{DeathCause, DomainState, ExceptionInfo};

/// Bytes in a page; all memory is counted in these.
pub const PAGE_BYTES: u64 = 4096;
