//! The headers: what they say, the key slots, and what opens them.

mod derive;
mod error;
mod format;
mod hash;
mod header;
mod metadata;
mod slot;
mod splitter;
mod text;

pub use derive::{Budget, Derivation};
pub use error::{Error, Refusal};
pub use format::{DATA_OFFSET, DEVICE_BYTES_MIN, Format, Formatted, Strength, format};
pub use hash::Hash;
pub use header::{CopyState, HEAD_BYTES, Header, Write};
pub use slot::{AREA_BYTES, Slot};
