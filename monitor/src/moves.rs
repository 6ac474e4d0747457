//! Pages on their way from one core's account to another's.
//!
//! Invariants: pages that have left one account are here until another is known to have them, so
//! that none is lost; they are offered to one core at a time, and to no other before that one has
//! said no, so that none has two owners. A core that was lost before it answered is asked again
//! when it runs: its kernel, which lives on, refuses what it has already.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// What a core made of pages that were offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// They are its own now.
    Added,
    /// It has no room for them.
    Full,
    /// It has them already, or they are none.
    Known,
    /// The core was lost before it answered.
    Unknown,
}

struct Moving {
    pages: u64,
    /// To be offered to these in turn.
    offers: VecDeque<u32>,
    /// The first of them may have them.
    is_unknown: bool,
}

/// All pages on their way, by physical address.
#[derive(Default)]
pub struct Moves {
    moving: BTreeMap<u64, Moving>,
}

impl Moves {
    /// Pages have left the account of `from`.
    pub fn carved(&mut self, physical: u64, pages: u64, from: u32, to: u32) {
        let moving = Moving { pages, offers: VecDeque::from([to, from]), is_unknown: false };
        self.moving.insert(physical, moving);
    }

    /// The core to be offered them, and how many they are; `None` if there is none to ask now.
    pub fn next(&self, physical: u64) -> Option<(u32, u64)> {
        let moving = self.moving.get(&physical).filter(|moving| !moving.is_unknown)?;
        moving.offers.front().map(|core| (*core, moving.pages))
    }

    /// The core that was offered them, `core`, answered; gives whether it has them.
    pub fn answered(&mut self, physical: u64, core: u32, answer: Answer) -> bool {
        let Some(moving) = self.moving.get_mut(&physical) else { return false };
        let was_lost = core::mem::take(&mut moving.is_unknown);
        match answer {
            Answer::Added => {}
            Answer::Known if was_lost => {}
            Answer::Unknown => {
                moving.is_unknown = true;
                return false;
            }
            Answer::Full | Answer::Known => {
                // The other has room, since it had them, unless it took others meanwhile.
                moving.offers.retain(|other| *other != core);
                moving.offers.push_back(core);
                return false;
            }
        }
        self.moving.remove(&physical);
        true
    }

    /// A core runs again: what is to be offered to it again, and how many pages each.
    pub fn is_back(&self, core: u32) -> Vec<(u64, u64)> {
        let is_its = |moving: &Moving| moving.is_unknown && moving.offers.front() == Some(&core);
        let all = self.moving.iter().filter(|(_, moving)| is_its(moving));
        all.map(|(physical, moving)| (*physical, moving.pages)).collect()
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.moving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const RUN: u64 = 0x40_0000;

    /// A core's kernel: what it owns, whether it has room, and when its monitor dies.
    #[derive(Clone, Default)]
    struct Core {
        owned: BTreeSet<u64>,
        is_full: bool,
        /// It dies at so many calls from now: before it acts (even) or after (odd).
        dies: Option<u32>,
    }

    impl Core {
        fn add(&mut self, run: u64) -> Answer {
            let (dies, after) = match self.dies {
                Some(at) if at < 2 => (true, at == 1),
                _ => (false, false),
            };
            self.dies = if dies { None } else { self.dies.map(|at| at - 2) };
            if dies && !after {
                return Answer::Unknown;
            }
            let answer = match () {
                () if self.owned.contains(&run) => Answer::Known,
                () if self.is_full => Answer::Full,
                () => {
                    self.owned.insert(run);
                    Answer::Added
                }
            };
            if dies { Answer::Unknown } else { answer }
        }
    }

    /// As the monitor does it; `steps` bounds what a defect would make endless.
    fn offer(moves: &mut Moves, cores: &mut [Core; 2]) {
        for _ in 0..4 {
            let Some((core, _)) = moves.next(RUN) else { return };
            let answer = cores[core as usize].add(RUN);
            assert!(cores.iter().filter(|core| core.owned.contains(&RUN)).count() <= 1);
            if moves.answered(RUN, core, answer) {
                return;
            }
        }
    }

    /// Every core may die at each call, before or after it acted, or have no room; the lost ones
    /// come back.
    #[test]
    fn pages_have_one_owner_and_are_never_lost_at_any_death() {
        let deaths = || (0..6).map(Some).chain([None]);
        for (full, giver, taker) in deaths()
            .flat_map(|giver| deaths().flat_map(move |taker| [false, true].map(move |full| (full, giver, taker))))
        {
            let mut cores =
                [Core { dies: giver, ..Core::default() }, Core { is_full: full, dies: taker, ..Core::default() }];
            let mut moves = Moves::default();
            moves.carved(RUN, 1024, 0, 1);
            offer(&mut moves, &mut cores);
            for _ in 0..4 {
                for core in 0..2 {
                    for (run, pages) in moves.is_back(core) {
                        assert_eq!((run, pages), (RUN, 1024));
                        let answer = cores[core as usize].add(RUN);
                        if !moves.answered(run, core, answer) {
                            offer(&mut moves, &mut cores);
                        }
                    }
                }
            }
            let owners = cores.iter().filter(|core| core.owned.contains(&RUN)).count();
            assert!(owners == 1 && moves.is_empty(), "{full} {giver:?} {taker:?}: {owners} owners");
        }
    }

    /// It had them before, of somebody else: these are not its own by that.
    #[test]
    fn a_core_that_knows_the_pages_though_it_was_not_lost_does_not_have_them() {
        let mut moves = Moves::default();
        moves.carved(RUN, 1024, 0, 1);
        assert!(!moves.answered(RUN, 1, Answer::Known));
        assert_eq!(moves.next(RUN), Some((0, 1024)));
        assert!(!moves.answered(RUN, 0, Answer::Unknown));
        assert_eq!((moves.next(RUN), moves.is_back(1), moves.is_back(0)), (None, Vec::new(), Vec::from([(RUN, 1024)])));
        assert!(moves.answered(RUN, 0, Answer::Known) && moves.is_empty());
    }

    #[test]
    fn what_nobody_takes_stays_known() {
        let mut moves = Moves::default();
        moves.carved(RUN, 1024, 0, 1);
        assert_eq!(moves.next(RUN), Some((1, 1024)));
        assert!(!moves.answered(RUN, 1, Answer::Full) && !moves.is_empty());
        assert_eq!(moves.next(RUN), Some((0, 1024)));
        assert!(!moves.answered(RUN, 0, Answer::Full));
        assert_eq!(moves.next(RUN), Some((1, 1024)));
        assert!(moves.answered(RUN, 1, Answer::Added) && moves.is_empty() && moves.next(RUN).is_none());
    }
}
