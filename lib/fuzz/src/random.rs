//! Random numbers that are the same from the same seed.

/// Xorshift.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From any seed; neighbouring seeds give unlike numbers.
    pub const fn new(seed: u64) -> Random {
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random(if mixed == 0 { 1 } else { mixed })
    }

    /// Any number but 0.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0 to before `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
