//! Words that a neighbour keeps and that nobody else may ever see.
//!
//! They begin with 24 bits that follow from the seed. Who looks for them holds these bits inverted
//! only, so that what is found is the neighbour's.

use abi::PAGE_BYTES;

/// Words of a page.
pub const WORDS: u64 = PAGE_BYTES / 8;
const LOW: u64 = (1 << 40) - 1;

/// What a neighbour writes.
#[derive(Clone, Copy)]
pub struct Secret(u64);

/// What finds it.
#[derive(Clone, Copy)]
pub struct Finder(u64);

fn start_of(seed: u64) -> u64 {
    // Neither text nor a small number, an address or all ones.
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ec2_e700_0000_0000) & !LOW | 1 << 62
}

impl Secret {
    /// Of this seed.
    pub const fn of(start: u64) -> Secret {
        Secret(start)
    }

    /// From a run's seed.
    pub fn from_seed(seed: u64) -> Secret {
        Secret::of(start_of(seed))
    }

    /// The word of that number.
    pub fn word(self, number: u64) -> u64 {
        self.0 | number & LOW
    }
}

impl Finder {
    /// From a run's seed.
    pub fn from_seed(seed: u64) -> Finder {
        Finder(!start_of(seed) | LOW)
    }

    /// For [`worker::ScriptedDomain::scan`].
    pub fn inverted(self) -> u64 {
        self.0
    }

    /// Whether a word is the neighbour's.
    pub fn knows(self, word: u64) -> bool {
        !(word ^ self.0) >> 40 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_and_what_finds_it_is_not() {
        for seed in 0..1000 {
            let (secret, finder) = (Secret::from_seed(seed), Finder::from_seed(seed));
            assert!(finder.knows(secret.word(seed * 77)));
            for other in [0, 1, u64::MAX, 1 << 63, finder.inverted(), abi::layout::HEAP, abi::layout::USER_END] {
                assert!(!finder.knows(other), "{other:#x} with seed {seed}");
            }
        }
    }
}
