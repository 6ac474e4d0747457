//! A contract with every kind of operation, for tests.
#![allow(missing_docs, dead_code)]

use channel::BulkSpan;
use contract::contract;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    Empty,
    OutOfBounds,
}

/// Says things back.
#[contract(name = "echo", version = 1)]
pub trait Echo {
    /// The text again. `Empty`.
    #[op]
    async fn say(&self, text: String) -> Result<String, Refusal>;
    /// Answers later.
    #[op]
    async fn wait(&self, duration_ns: u64) -> Result<u64, Refusal>;
    /// The text again, as often as need be.
    #[op(repeatable)]
    async fn look(&self, text: String) -> Result<String, Refusal>;
    /// So many bytes.
    #[op]
    async fn long(&self, bytes: u32) -> Result<Vec<u8>, Refusal>;
    /// Fills bulk. `OutOfBounds`.
    #[op(repeatable)]
    async fn fill(&self, span: BulkSpan, value: u8) -> Result<(), Refusal>;
    /// Nobody can.
    #[op]
    async fn sing(&self, text: String) -> Result<String, Refusal> {
        Err(Refusal::Empty)
    }
    /// No answer.
    #[op(oneway)]
    fn discard(&self, id: u64);
    /// It was discarded.
    #[event]
    fn discarded(&self, id: u64, text: String);
}
