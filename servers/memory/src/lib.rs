//! Which core gives pages to one that runs low. Pure: figures in, a decision out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use contracts::monitor::CoreMemory;

/// Pages that stay free on a core for its kernel and monitor: 1 MiB.
pub const RESERVE_PAGES: u64 = 256;
/// Pages moved at a time, contiguous: 4 MiB. Less often and larger would fail on fragmented cores.
pub const STEP_PAGES: u64 = 1024;

/// What to do for a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has enough.
    Enough,
    /// Take that many pages from that core.
    Take {
        /// Core.
        from: u32,
        /// How many.
        pages: u64,
    },
    /// Nobody can give.
    Nobody,
}

/// The next step so that `core` has `wanted_pages` free beside the reserve. `cores` are those that
/// run, with their figures.
pub fn step(core: u32, wanted_pages: u64, cores: &[(u32, CoreMemory)]) -> Step {
    let spare = |memory: &CoreMemory| memory.free_pages.saturating_sub(RESERVE_PAGES);
    let own = cores.iter().find(|(number, _)| *number == core).map_or(0, |(_, memory)| spare(memory));
    if own >= wanted_pages {
        return Step::Enough;
    }
    let others = cores.iter().filter(|(number, _)| *number != core);
    match others.map(|(number, memory)| (spare(memory), *number)).max() {
        // A core never gives more than half of what it can spare, so that two cores do not pass
        // pages to and fro.
        Some((spare, from)) if spare / 2 >= STEP_PAGES => Step::Take { from, pages: STEP_PAGES },
        _ => Step::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(free_pages: u64) -> CoreMemory {
        CoreMemory { used_pages: 0, free_pages }
    }

    #[test]
    fn the_richest_gives_until_it_is_enough() {
        let cores = [(0, free(300)), (1, free(5000)), (2, free(9000))];
        assert_eq!(step(0, 40, &cores), Step::Enough);
        assert_eq!(step(0, 1000, &cores), Step::Take { from: 2, pages: STEP_PAGES });
        assert_eq!(step(0, 1000, &cores[..1]), Step::Nobody);
        assert_eq!(step(0, 1000, &[(0, free(0)), (1, free(2 * STEP_PAGES))]), Step::Nobody);
    }
}
