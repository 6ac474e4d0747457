//! Drivers that die after any single store, and their successors after any of theirs: what was
//! confirmed is there, what was flushed is durable, nothing is done for the dead after somebody
//! else has the place, and the device is not reset for it.
//!
//! The device completes out of order, and what it has of a dead driver is done when it likes. The
//! clients are as a server's are: they ask again with the same number if they hear nothing.

use crate::common::random;
use crate::common::world::World;

/// What became of a life's work.
struct Outcome {
    deaths: usize,
    takeovers: usize,
    joined: u64,
    restarts: u64,
}

/// A machine whose drivers die after so many stores, one after the other; the last one lives. So
/// many times the device says what cannot be. All that happens comes from `seed`.
fn live(lives: &[u64], lies: u32, seed: u64) -> Outcome {
    let mut world = World::new(lives);
    world.lies = lies;
    let mut driver = world.begin();
    let mut chance = seed;
    (0..200).for_each(|_| world.step(&mut driver, &mut chance));
    world.end(&mut driver);
    let (joined, restarts) = (driver.counters().joined, driver.counters().restarts);
    assert!(restarts == 0 || lies > 0);
    Outcome {
        deaths: world.begun - 1,
        takeovers: world.takeovers,
        joined: world.joined + joined,
        restarts: world.restarts + restarts,
    }
}

#[test]
fn a_driver_may_die_after_any_store() {
    for seed in [0x5eed_0000_0000_0001, 0x5eed_0000_0000_0102] {
        let (mut works, mut joined) = (false, 0);
        for stores in 1.. {
            let outcome = live(&[stores], 0, seed);
            joined += outcome.joined;
            if outcome.deaths == 0 {
                assert!(works && stores > 700 && joined > 1_000, "{stores} stores in all, {joined} asked twice");
                break;
            }
            // Once the device works, it is never reset again.
            works |= outcome.takeovers > 0;
            assert!(!works || outcome.takeovers == 1, "reset after a death behind {stores} stores");
        }
    }
}

#[test]
fn a_successor_may_die_after_any_store_of_its_own() {
    let mut seed = 0x5eed_0000_0000_0003;
    let (mut takeovers, mut joined) = (0, 0);
    for round in 0..2_000 {
        let first = 300 + random(&mut seed) % 1_500;
        let second = 1 + round % 100;
        let third = 1 + random(&mut seed) % 400;
        let outcome = live(&[first, second, third], 0, random(&mut seed));
        takeovers += outcome.takeovers;
        joined += outcome.joined;
    }
    assert!(takeovers > 1_600 && joined > 2_000, "{takeovers} takeovers, {joined} asked twice");
}

#[test]
fn a_driver_may_die_while_it_resets_a_device_that_lies() {
    let (mut restarts, mut deaths) = (0, 0);
    for stores in 1.. {
        let outcome = live(&[stores, 1 + stores % 40], 3, 0x5eed_0000_0000_0204);
        restarts += outcome.restarts;
        deaths += outcome.deaths;
        if outcome.deaths == 0 {
            break;
        }
    }
    assert!(restarts > 1_000 && deaths > 1_500, "{restarts} resets, {deaths} deaths");
}
