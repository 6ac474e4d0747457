//! What keeps data beyond the machine's end: it is asked to put that away before the machine ends.

use contract::contract;
use serde::{Deserialize, Serialize};

/// Whoever ends the machine waits for so long, nanoseconds.
pub const CLOSE_LIMIT_NS: u64 = 5_000_000_000;

/// Why not all is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageError {
    /// The device failed: what was written since the last successful sync may be lost. Remedy: look
    /// at the host's disk, and check the volume (`e2fsck`).
    Io,
}

/// Asked by who ends the machine. Order: as sent. Limits: none. Rights: the console.
#[contract(name = "storage", version = 2)]
pub trait Storage {
    /// The machine is about to end. Answered when all that was written before it was asked survives
    /// the loss of power, and is left as after an orderly end. What is written afterwards may be
    /// refused, or lost. A server's successor is not asked again by itself: it has what was synced
    /// and cannot know what else was lost with the one before. `Io`.
    #[op]
    async fn close(&self) -> Result<(), StorageError>;
}
