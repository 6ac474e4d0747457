//! The journal: a ring of blocks in which changes of metadata stand before they go to their places.
//!
//! [`Recovery`] finds what has to go where, and checks all of it, before anybody writes.
//! [`Writer`] says what has to be written, and when, so that a cut leaves all of a transaction or
//! nothing.

mod format;
mod recovery;
mod writer;

pub(crate) use format::new_super_block;
pub use recovery::{Recovered, Recovery, Step, Write};
pub use writer::{Batch, Flush, Put};
pub(crate) use writer::{End, Writer, is_newer};
