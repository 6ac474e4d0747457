//! Choices that a seed repeats.

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
