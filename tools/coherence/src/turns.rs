//! Modelled time, and whose turn it is.
//!
//! The emulator runs one core at a time, in rotation, until it is told to stop; left alone it runs each for so long that cores never meet
//! on a line. Here each core has a clock, all active cores run to the end of the same epoch, and then the next epoch begins, one turn
//! later. So no active core is ever ahead of another by more than a turn and the block that was under way.
//! Invariant: the end of the epoch only rises.

/// How often cores that have reached the end are asked again while another has not: then that one is stopped in a way unknown to us (not
/// by a halt), and is not waited for.
const REVISITS_MAX: u32 = 1000;

/// See the module's head. Time is in modelled cycles.
#[derive(Debug)]
pub struct Turns {
    turn: u64,
    end: u64,
    clocks: Vec<u64>,
    active: Vec<bool>,
    revisits: u32,
}

impl Turns {
    /// Cores that have not run yet, and turns of that many cycles.
    pub fn new(cores: usize, turn: u64) -> Turns {
        Turns { turn: turn.max(1), end: turn.max(1), clocks: vec![0; cores], active: vec![false; cores], revisits: 0 }
    }

    /// Changes the length of turns from the next epoch on.
    pub fn set_turn(&mut self, turn: u64) {
        self.turn = turn.max(1);
    }

    /// Lets a core's time pass.
    #[inline]
    pub fn advance(&mut self, core: usize, cycles: u64) {
        self.clocks[core] += cycles;
    }

    /// The core waits for an interrupt, and is not waited for.
    pub fn halt(&mut self, core: usize) {
        self.active[core] = false;
    }

    /// The core is about to run a block. True if it has to let others run after it.
    #[inline]
    pub fn must_yield(&mut self, core: usize) -> bool {
        if !self.active[core] {
            self.active[core] = true;
            // While it slept time passed.
            self.clocks[core] = self.clocks[core].max(self.end.saturating_sub(self.turn));
        }
        self.clocks[core] >= self.end && self.reached(core)
    }

    fn reached(&mut self, core: usize) -> bool {
        self.revisits += 1;
        if self.revisits > REVISITS_MAX {
            for other in (0..self.clocks.len()).filter(|other| *other != core) {
                self.active[other] &= self.clocks[other] >= self.end;
            }
        }
        let slowest =
            self.clocks.iter().zip(&self.active).filter(|(_, active)| **active).map(|(clock, _)| *clock).min();
        if slowest.is_some_and(|slowest| slowest >= self.end) {
            self.revisits = 0;
            self.end = slowest.unwrap_or(self.end) + self.turn;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the emulator does it: each core in rotation until it must yield; its last block still runs.
    fn rotate(turns: &mut Turns, blocks: &[u64], rounds: usize) -> Vec<u64> {
        let mut spread = 0;
        for _ in 0..rounds {
            for (core, cycles) in blocks.iter().enumerate() {
                loop {
                    let stop = turns.must_yield(core);
                    turns.advance(core, *cycles);
                    if stop {
                        break;
                    }
                }
                let (low, high) = (turns.clocks.iter().min().unwrap(), turns.clocks.iter().max().unwrap());
                spread = spread.max(high - low);
            }
        }
        let mut all = turns.clocks.clone();
        all.push(spread);
        all
    }

    proptest! {
        #[test]
        fn no_core_runs_away(blocks in prop::collection::vec(1u64..50, 1..9), turn in 50u64..400) {
            let mut turns = Turns::new(blocks.len(), turn);
            let result = rotate(&mut turns, &blocks, 200);
            prop_assert!(result[..blocks.len()].iter().all(|clock| *clock > 50 * turn));
            // A turn, and the blocks that ran after the end was reached.
            prop_assert!(*result.last().unwrap() <= 2 * turn + 200, "{result:?}");
        }
    }

    #[test]
    fn a_halted_core_is_not_waited_for_and_returns_in_the_present() {
        let mut turns = Turns::new(2, 100);
        assert!(!turns.must_yield(0) && !turns.must_yield(1));
        turns.halt(1);
        for _ in 0..100 {
            turns.must_yield(0);
            turns.advance(0, 50);
        }
        assert_eq!(turns.clocks, [5000, 0]);
        turns.must_yield(1);
        assert!(turns.clocks[1] >= 4900, "{turns:?}");
    }

    #[test]
    fn a_core_that_is_gone_without_a_word_stops_nobody_for_ever() {
        let mut turns = Turns::new(2, 100);
        turns.must_yield(1);
        for _ in 0..2 * REVISITS_MAX {
            turns.must_yield(0);
            turns.advance(0, 100);
        }
        assert!(!turns.active[1]);
    }
}
