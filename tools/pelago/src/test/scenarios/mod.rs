//! All scenarios, one file per tier.

mod areas;
mod audit;
mod bad_executables;
mod bad_input;
mod bad_neighbours;
mod bad_programs;
mod bad_threads;
mod bench;
mod bochs;
mod bombs;
mod boot;
mod breadth;
mod broken;
mod busy_host;
mod checks;
mod cli;
mod clock;
mod common_memory;
mod cores;
mod coverage;
mod datagrams;
mod files;
mod frames;
mod fuzz;
mod groups;
mod host_files;
mod idle;
mod keep_alive;
mod kinds;
mod layouts;
mod link;
mod linux_fuzz;
mod local_sockets;
mod memory;
mod mixed;
mod model;
mod multicore_program;
mod newcomer;
mod objects;
mod open_connections;
mod pairs;
mod processes;
mod programs;
mod random;
mod readiness;
mod recovery;
mod recovery_other;
mod redis_suite;
mod servers;
mod shared_files;
mod shares;
mod shell;
mod streams;
mod stress;
mod suite;
mod threads;
mod tools;
mod web;

use crate::test::scenario::Scenario;

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
        multicore_program::scenarios(),
        programs::scenarios(),
        files::scenarios(),
        clock::scenarios(),
        threads::scenarios(),
        servers::scenarios(),
        redis_suite::scenarios(),
        tools::scenarios(),
        readiness::scenarios(),
        kinds::scenarios(),
        breadth::scenarios(),
        coverage::scenarios(),
        areas::scenarios(),
        common_memory::scenarios(),
        shared_files::scenarios(),
        datagrams::scenarios(),
        local_sockets::scenarios(),
        shell::scenarios(),
        cli::scenarios(),
        host_files::scenarios(),
        newcomer::scenarios(),
        memory::scenarios(),
        streams::scenarios(),
        bad_executables::scenarios(),
        bad_neighbours::scenarios(),
        bad_programs::scenarios(),
        bombs::scenarios(),
        bad_threads::scenarios(),
        groups::scenarios(),
        linux_fuzz::scenarios(),
        suite::scenarios(),
        web::scenarios(),
        link::scenarios(),
        idle::scenarios(),
        audit::scenarios(),
        frames::scenarios(),
        recovery::scenarios(),
        keep_alive::scenarios(),
        recovery_other::scenarios(),
        pairs::scenarios(),
        processes::scenarios(),
        mixed::scenarios(),
        broken::scenarios(),
        busy_host::scenarios(),
        open_connections::scenarios(),
        bench::scenarios(),
    ];
    tiers.into_iter().flatten().collect()
}
