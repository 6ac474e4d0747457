//! All scenarios, one file per tier.

mod bad_input;
mod bad_programs;
mod boot;
mod frames;
mod held;
mod keep_alive;
mod peer;
mod programs;
mod recovery;
mod web;

use crate::scenario::Scenario;

/// Every scenario of every tier.
pub fn all() -> Vec<Scenario> {
    let tiers = [
        boot::scenarios(),
        bad_input::scenarios(),
        programs::scenarios(),
        bad_programs::scenarios(),
        web::scenarios(),
        frames::scenarios(),
        recovery::scenarios(),
        keep_alive::scenarios(),
        held::scenarios(),
        peer::scenarios(),
    ];
    tiers.into_iter().flatten().collect()
}
