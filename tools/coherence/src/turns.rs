//! Modelled time, and whose turn it is.
//!
//! The emulator runs one core at a time, in rotation, until it is told to stop; left alone it runs
//! each for so long that cores never meet on a line. Here each core has a clock, all active cores
//! run to the end of the same epoch, and then the next epoch begins, one turn later. A core that
//! has reached the end is parked until then, since the emulator comes by whenever another one
//! pauses. So no active core is ever ahead of another by more than a turn and the block that was
//! under way. One that is active alone does not take turns, unless cores have speeds: then it
//! leaves its loop now and then, so that whom it woke begins.
//! Invariants: the end of the epoch only rises; parked cores are active and past the end; if there
//! are active cores, one is not parked.

/// In so many epochs one that is active alone leaves its loop once. After each it would make a boot
/// several times as long.
const EPOCHS_ALONE: u64 = 16;

/// What happens when the block is done that a core is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The core goes on.
    On,
    /// It leaves its loop and does not run until it is released.
    Park,
    /// It leaves its loop, so that the others have the new epoch first; [`Turns::released`] tells
    /// who may run again.
    Epoch,
}

/// The clock rate of a core, as a part of the full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// So many cycles of its own,
    pub own: u64,
    /// in so many modelled ones. Neither is 0.
    pub of: u64,
}

impl Speed {
    /// Of a core that is not throttled.
    pub const FULL: Speed = Speed { own: 1, of: 1 };
}

/// See the module's head. Time is in modelled cycles, which are those of a core that is not
/// throttled.
#[derive(Debug)]
pub struct Turns {
    turn: u64,
    end: u64,
    clocks: Vec<u64>,
    /// What passed on a core's clock while it was active.
    awake: Vec<u64>,
    speeds: Vec<Speed>,
    /// One that is active alone leaves its loop.
    leaves_alone: bool,
    /// Epochs that began while one was.
    alone: u64,
    /// Parts of a cycle that are not on the core's clock yet: below its speed's `own`.
    rests: Vec<u64>,
    active: Vec<bool>,
    parked: Vec<bool>,
}

impl Turns {
    /// Cores that have not run yet, and turns of that many cycles.
    pub fn new(cores: usize, turn: u64) -> Turns {
        let (no, zero) = (vec![false; cores], vec![0; cores]);
        Turns {
            turn: turn.max(1),
            end: turn.max(1),
            clocks: zero.clone(),
            awake: zero.clone(),
            speeds: vec![Speed::FULL; cores],
            leaves_alone: false,
            alone: 0,
            rests: zero,
            active: no.clone(),
            parked: no,
        }
    }

    /// Gives a core a speed: all that it does takes longer if it is throttled, accesses to memory
    /// as well. From now on one that is active alone leaves its loop.
    pub fn set_speed(&mut self, core: usize, speed: Speed) {
        self.leaves_alone = true;
        (self.speeds[core], self.rests[core]) = (speed, 0);
    }

    /// How long each core was active so far.
    pub fn awake(&self) -> &[u64] {
        &self.awake
    }

    /// What a core's clock shows.
    pub fn clock(&self, core: usize) -> u64 {
        self.clocks[core]
    }

    /// Changes the length of turns from the next epoch on.
    pub fn set_turn(&mut self, turn: u64) {
        self.turn = turn.max(1);
    }

    /// Lets a core's time pass: so many cycles of its own.
    #[inline]
    pub fn advance(&mut self, core: usize, own: u64) {
        let speed = self.speeds[core];
        let cycles = if speed == Speed::FULL { own } else { self.stretch(core, own) };
        self.clocks[core] += cycles;
        self.awake[core] += cycles;
    }

    /// Modelled cycles that so many of a throttled core take.
    fn stretch(&mut self, core: usize, own: u64) -> u64 {
        let Speed { own: slow, of } = self.speeds[core];
        let parts = own * of + self.rests[core];
        self.rests[core] = parts % slow;
        parts / slow
    }

    /// The core waits for an interrupt, and is not waited for. It may be the last that others
    /// waited for, or have been parked at the beginning of the block that ends so: ask
    /// [`Turns::released`].
    pub fn halt(&mut self, core: usize) {
        self.active[core] = false;
        self.all_reached();
    }

    /// The core is about to run a block.
    #[inline]
    pub fn next(&mut self, core: usize) -> Next {
        if !self.active[core] {
            self.active[core] = true;
            // While it slept time passed.
            self.clocks[core] = self.clocks[core].max(self.end.saturating_sub(self.turn));
        }
        if self.clocks[core] < self.end { Next::On } else { self.reached(core) }
    }

    fn reached(&mut self, core: usize) -> Next {
        let all = self.all_reached();
        self.parked[core] = self.clocks[core] >= self.end;
        match all {
            false => Next::Park,
            true if self.active.iter().filter(|active| **active).count() > 1 => Next::Epoch,
            // Whom it wakes begins when it leaves its loop, sleeps, or is paused by the emulator.
            true => {
                self.alone += 1;
                let leaves = self.leaves_alone && self.alone.is_multiple_of(EPOCHS_ALONE);
                if leaves { Next::Epoch } else { Next::On }
            }
        }
    }

    /// Begins the next epoch if no active core is before the end of this one.
    fn all_reached(&mut self) -> bool {
        let active = self.clocks.iter().zip(&self.active).filter(|(_, active)| **active);
        let slowest = active.map(|(clock, _)| *clock).min().filter(|slowest| *slowest >= self.end);
        self.end = slowest.map_or(self.end, |slowest| slowest + self.turn);
        slowest.is_some()
    }

    /// A parked core that may run: the new epoch lets it, or it halts and has to hear its
    /// interrupt. Ask until there is none.
    pub fn released(&mut self) -> Option<usize> {
        let may_run = |core: &usize| !self.active[*core] || self.clocks[*core] < self.end;
        let core = (0..self.parked.len()).find(|core| self.parked[*core] && may_run(core))?;
        self.parked[core] = false;
        Some(core)
    }

    /// True if the core is parked.
    pub fn is_parked(&self, core: usize) -> bool {
        self.parked[core]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn release(turns: &mut Turns) -> usize {
        std::iter::from_fn(|| turns.released()).count()
    }

    /// As the emulator does it: each core in rotation until it leaves its loop, its last block
    /// included; `pauses` leaves it anyway after so many blocks, as PAUSE does. Returns the widest
    /// spread of clocks seen between cores.
    fn rotate(turns: &mut Turns, blocks: &[u64], pauses: usize, rounds: usize) -> u64 {
        let mut spread = 0;
        (0..blocks.len()).for_each(|core| assert_eq!(turns.next(core), Next::On));
        for _ in 0..rounds {
            for (core, cycles) in blocks.iter().enumerate() {
                for _ in 0..pauses {
                    if turns.is_parked(core) {
                        break;
                    }
                    let next = turns.next(core);
                    turns.advance(core, *cycles);
                    if next == Next::Epoch {
                        release(turns);
                        break;
                    }
                }
                let (low, high) = (turns.clocks.iter().min().unwrap(), turns.clocks.iter().max().unwrap());
                spread = spread.max(high - low);
            }
        }
        spread
    }

    proptest! {
        #[test]
        fn no_core_runs_away(blocks in prop::collection::vec(1u64..50, 1..9), turn in 50u64..400, pauses in 1usize..100) {
            let mut turns = Turns::new(blocks.len(), turn);
            let spread = rotate(&mut turns, &blocks, pauses, 20_000 / pauses);
            prop_assert!(turns.clocks.iter().all(|clock| *clock > 10 * turn), "{turns:?}");
            // A turn, and the blocks at its beginning and its end that were under way.
            prop_assert!(spread <= turn + 2 * 50, "{spread} {turns:?}");
        }
    }

    #[test]
    fn a_halted_core_is_not_waited_for_and_returns_in_the_present() {
        let mut turns = Turns::new(2, 100);
        assert_eq!((turns.next(0), turns.next(1)), (Next::On, Next::On));
        turns.halt(1);
        for _ in 0..100 {
            turns.next(0);
            release(&mut turns);
            turns.advance(0, 50);
        }
        assert_eq!(turns.clocks, [5000, 0]);
        turns.next(1);
        assert!(turns.clocks[1] >= 4900, "{turns:?}");
    }

    #[test]
    fn who_halts_last_lets_the_others_go() {
        let mut turns = Turns::new(3, 100);
        (0..3).for_each(|core| assert_eq!(turns.next(core), Next::On));
        for core in [0, 1] {
            turns.advance(core, 150);
            assert_eq!(turns.next(core), Next::Park);
        }
        turns.halt(2);
        assert_eq!((release(&mut turns), turns.is_parked(0), turns.is_parked(1)), (2, false, false));
    }

    /// The block that it was parked at is run to its end, and its end may be a HLT. Parked and
    /// halted it would hear no interrupt, and if the others sleep until it wakes them, all stand
    /// still.
    #[test]
    fn who_halts_in_the_block_it_is_parked_at_is_released() {
        let mut turns = Turns::new(2, 100);
        assert_eq!((turns.next(0), turns.next(1)), (Next::On, Next::On));
        turns.advance(0, 1000);
        assert_eq!(turns.next(0), Next::Park);
        turns.halt(0);
        assert_eq!((release(&mut turns), turns.is_parked(0)), (1, false));
        turns.halt(1);
        assert_eq!(turns.next(0), Next::On);
    }

    #[test]
    fn who_is_past_the_next_end_too_stays_parked() {
        let mut turns = Turns::new(2, 100);
        assert_eq!((turns.next(0), turns.next(1)), (Next::On, Next::On));
        turns.advance(0, 1000);
        assert_eq!(turns.next(0), Next::Park);
        turns.advance(1, 100);
        assert_eq!(turns.next(1), Next::Epoch);
        assert_eq!((turns.released(), turns.is_parked(0), turns.is_parked(1)), (None, true, false));
    }

    /// The emulator does not leave the loop of who wakes another.
    #[test]
    fn who_is_alone_lets_whom_it_woke_begin_soon_where_cores_have_speeds() {
        for (has_speeds, expected) in [(false, 0), (true, 4)] {
            let mut turns = Turns::new(2, 100);
            if has_speeds {
                turns.set_speed(1, Speed::FULL);
            }
            let nexts: Vec<_> = (0..4 * EPOCHS_ALONE + 1)
                .map(|_| {
                    let next = turns.next(0);
                    turns.advance(0, 100);
                    assert_eq!(turns.released(), None);
                    next
                })
                .collect();
            let epochs = nexts.iter().filter(|next| **next == Next::Epoch).count();
            assert!(epochs == expected && !nexts.contains(&Next::Park), "{nexts:?}");
        }
    }

    #[test]
    fn a_throttled_core_is_slower_by_just_that_and_others_are_not() {
        for (own, of) in [(1, 1), (3, 4), (1, 2), (1, 4)] {
            let mut turns = Turns::new(2, 200);
            turns.set_speed(1, Speed { own, of });
            (0..2).for_each(|core| (0..999).for_each(|_| turns.advance(core, 7)));
            let expected = [6993, 6993 * of / own];
            assert_eq!((turns.awake(), [turns.clock(0), turns.clock(1)]), (&expected[..], expected));
        }
    }

    #[test]
    fn what_a_core_slept_it_was_not_awake() {
        let mut turns = Turns::new(2, 100);
        (0..2).for_each(|core| assert_eq!(turns.next(core), Next::On));
        turns.halt(1);
        for _ in 0..10 {
            turns.advance(0, 100);
            turns.next(0);
        }
        turns.next(1);
        turns.advance(1, 30);
        assert!(turns.awake() == [1000, 30] && turns.clock(1) > 900, "{turns:?}");
    }
}
