//! Whose turn it is: on a machine of many emulated cores few test at a time, since their host has
//! no more processors to give them; each has its turn.
//!
//! Tests come in phases. In each the cores stand in lanes of neighbours, as many lanes as may test
//! at a time; a lane's first core begins when all cores have finished the phase before, every other
//! when the core before it has finished this one, which then tells it. A lane of tests with a
//! partner has two cores at least, and who has the first core of a lane as its partner waits until
//! that one is done: so nobody's partner has one of its own, and a function on the next core may
//! wait for its test.

use core::sync::atomic::Ordering;

use crate::{Failure, Fixture, Partner};

/// Cores at a time, with their partners.
pub const AT_ONCE: u64 = 8;
/// The word of a core's shared words that says how many phases it has finished.
const FINISHED: u64 = 3;
/// Between two looks at how far others are, for each core of the machine: word of the core before
/// comes at once.
const AGAIN_NS: u64 = 2_000_000;
/// Longer than all others take together, on whatever host; the host's tool has a limit of its own.
const LIMIT_NS: u64 = 3_600_000_000_000;
/// The bit of our own by which a task of this component hears that the core before has finished; no
/// test's (`Fixture::doorbell`).
pub const NEWS: u64 = 1 << (runtime::OWN_BITS.end - 1);

/// On larger machines each test with a partner runs on so many cores and is left to those by the
/// others: an emulator that runs cores in turn goes by all of them at each switch, which two that
/// wait for each other do all the time.
const PAIRS: u64 = 8;

/// Whether a test of a phase, by its number in it, is left to others.
pub fn is_elsewhere(phase: Phase, core: u64, cores: u64, number: u64) -> bool {
    phase == Phase::Paired && !(core + number).is_multiple_of((cores / PAIRS).max(1))
}

/// A step that all cores take before any takes the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// To be here: a machine of many emulated cores has no time to start components while others
    /// test.
    Presence,
    /// Tests of one core.
    Alone,
    /// Tests with the next core.
    Paired,
}

impl Phase {
    /// Cores of a lane.
    fn lane(self, cores: u64) -> u64 {
        match self {
            Phase::Presence => 1,
            Phase::Alone => cores.div_ceil(AT_ONCE),
            Phase::Paired => cores.div_ceil(AT_ONCE / 2).max(2),
        }
    }

    /// Whether a core may begin, by how many phases each core has finished.
    fn is_open(self, core: u64, cores: u64, finished: impl Fn(u64) -> u64) -> bool {
        let (lane, before, next) = (self.lane(cores), self as u64, (core + 1) % cores);
        let is_first = |core: u64| core.is_multiple_of(lane);
        let has_turn = if is_first(core) {
            (0..cores).all(|other| finished(other) >= before)
        } else {
            finished(core - 1) > before
        };
        let is_free = next == core || !is_first(next) || finished(next) > before;
        has_turn && (self != Phase::Paired || is_free)
    }
}

/// Waits for this core's turn.
pub async fn begin(fixture: &Fixture, phase: Phase) -> Result<(), Failure> {
    let end_ns = runtime::now_ns() + LIMIT_NS;
    let finished = |core: u64| fixture.shared(core, FINISHED).load(Ordering::Acquire);
    while !phase.is_open(fixture.core(), fixture.cores(), finished) {
        if runtime::now_ns() > end_ns {
            return Err(Failure::new("the cores before do not come to an end: the last line of each says where"));
        }
        // Either is a reason to look again.
        let _ = runtime::timeout(AGAIN_NS * fixture.cores(), runtime::notified(NEWS)).await;
    }
    Ok(())
}

/// This core has finished the phase.
pub fn finish(fixture: &Fixture, phase: Phase, next: Option<&Partner>) {
    fixture.shared(fixture.core(), FINISHED).store(phase as u64 + 1, Ordering::Release);
    if let Some(next) = next {
        next.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use alloc::vec::Vec;

    const ALL: [Phase; 3] = [Phase::Presence, Phase::Alone, Phase::Paired];

    /// Cores that may begin do, `ends` chooses which of those at it ends next; gives the most that
    /// were at it in each phase.
    fn walk(cores: u64, mut ends: impl FnMut(usize) -> usize) -> [usize; 3] {
        let mut finished = vec![0; cores as usize];
        let mut at_it: BTreeSet<u64> = BTreeSet::new();
        let mut most = [0; 3];
        while finished.iter().any(|phases| *phases < ALL.len() as u64) {
            for core in 0..cores {
                let phase = ALL.get(finished[core as usize] as usize);
                if phase.is_some_and(|phase| phase.is_open(core, cores, |other| finished[other as usize])) {
                    at_it.insert(core);
                }
            }
            let now: Vec<u64> = at_it.iter().copied().collect();
            assert!(!now.is_empty(), "{cores} cores wait for each other: {finished:?}");
            let phase = finished[now[0] as usize] as usize;
            assert!(now.iter().all(|core| finished[*core as usize] as usize == phase), "two phases at a time");
            let pairs = cores > 1 && phase == Phase::Paired as usize;
            assert!(!pairs || now.iter().all(|core| !at_it.contains(&((core + 1) % cores))), "{now:?} of {cores}");
            most[phase] = most[phase].max(now.len());
            let core = now[ends(now.len())];
            at_it.remove(&core);
            finished[core as usize] += 1;
        }
        most
    }

    #[test]
    fn each_core_has_its_turn_and_no_partner_has_one_of_its_own() {
        for cores in (1_u64..=20).chain([64, 255]) {
            let mut chance = cores;
            let random = |count: usize| {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (chance >> 33) as usize % count
            };
            let all = [walk(cores, |_| 0), walk(cores, |count| count - 1), walk(cores, random)];
            assert!(all.iter().all(|[_, alone, paired]| *alone <= 8 && *paired <= 4), "{cores} cores: {all:?}");
        }
    }

    #[test]
    fn large_machines_spread_tests_with_a_partner() {
        let done = |cores: u64, test: u64| {
            (0..cores).filter(|core| !is_elsewhere(Phase::Paired, *core, cores, test)).count() as u64
        };
        assert!((1..16).all(|cores| (0..20).all(|test| done(cores, test) == cores)));
        assert!((16..=255).all(|cores| (0..20).all(|test| (PAIRS..2 * PAIRS).contains(&done(cores, test)))));
        assert!((0..255).all(|core| !is_elsewhere(Phase::Alone, core, 255, 1)));
    }

    #[test]
    fn small_machines_test_on_all_cores_at_once() {
        assert_eq!([1, 2, 4, 8].map(|cores| walk(cores, |_| 0)), [[1, 1, 1], [2, 2, 1], [4, 4, 2], [8, 8, 4]]);
        assert_eq!([64, 255].map(|cores| walk(cores, |_| 0)), [[64, 8, 4], [255, 8, 4]]);
    }
}
