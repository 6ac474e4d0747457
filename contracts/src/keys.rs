//! Telling who encrypts a disk that the key has come. The key is in no message: it lies in the
//! region [`REGION`], which the one that brings it writes and the one that uses it reads.

use contract::contract;
use serde::{Deserialize, Serialize};

/// Name of the region. It begins with what `luks::Handover` encodes.
pub const REGION: &str = "volume-key";

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyError {
    /// What lies in the region is no key. Remedy: write it again, whole, and tell again.
    Damaged,
}

/// Told by who brings the key. Order: as sent. Limits: none. Rights: the console.
#[contract(name = "keys", version = 1)]
pub trait Keys {
    /// The key lies in the region. Answered when it was taken, now or before. A server that is
    /// started again looks there by itself. `Damaged`.
    #[op(repeatable)]
    async fn arrived(&self) -> Result<(), KeyError>;
}
