//! The journal: a ring of blocks in which changes of metadata stand before they go to their places.
//!
//! So far it is read: [`Recovery`] finds what has to go where, and checks all of it, before anybody
//! writes.

mod format;
mod recovery;

pub use recovery::{Recovery, Step, Write};
