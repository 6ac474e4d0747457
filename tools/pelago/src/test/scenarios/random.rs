//! Choices that a seed repeats.

use anyhow::{Context, Result};
use std::time::{SystemTime, UNIX_EPOCH};

/// A seed to repeat a failure of a Linux program with.
const VARIABLE: &str = "PELAGO_SEED";

/// The seed of the environment, or else this one.
pub fn seed_wished(default: u64) -> Result<u64> {
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE} is a number, not `{text}`")),
        Err(_) => Ok(default),
    }
}

/// Another one each night.
pub fn seed_of_the_night() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// xorshift64; the seed must not be 0.
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }
}
