//! All scenarios, one file per tier.

mod audit;
mod bad_executables;
mod bad_input;
mod bad_programs;
mod bench;
mod bochs;
mod boot;
mod cores;
mod door;
mod files;
mod frames;
mod fuzz;
mod groups;
mod held;
mod host_files;
mod keep_alive;
mod layouts;
mod link;
mod many;
mod memory;
mod model;
mod objects;
mod programs;
mod recovery;
mod recovery_other;
mod rest;
mod shares;
mod shell;
mod streams;
mod stress;
mod web;

use crate::scenario::Scenario;

/// Every scenario of every tier.
pub fn all() -> Vec<Scenario> {
    let tiers = [
        boot::scenarios(),
        bochs::scenarios(),
        cores::scenarios(),
        shares::scenarios(),
        layouts::scenarios(),
        stress::scenarios(),
        bad_input::scenarios(),
        objects::scenarios(),
        fuzz::scenarios(),
        model::scenarios(),
        many::scenarios(),
        programs::scenarios(),
        files::scenarios(),
        shell::scenarios(),
        door::scenarios(),
        host_files::scenarios(),
        memory::scenarios(),
        streams::scenarios(),
        bad_executables::scenarios(),
        bad_programs::scenarios(),
        groups::scenarios(),
        web::scenarios(),
        link::scenarios(),
        rest::scenarios(),
        audit::scenarios(),
        frames::scenarios(),
        recovery::scenarios(),
        keep_alive::scenarios(),
        recovery_other::scenarios(),
        held::scenarios(),
        bench::scenarios(),
    ];
    tiers.into_iter().flatten().collect()
}
