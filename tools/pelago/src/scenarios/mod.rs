//! All scenarios, one file per tier.

mod bad_input;
mod bad_programs;
mod boot;
mod frames;
mod held;
mod peer;
mod programs;
mod recovery;
mod web;

pub use web::fetch;

use crate::emulator::MachineType;
use crate::guest::Guest;
use crate::scenario::{Bench, Scenario};
use anyhow::Result;

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
        held::scenarios(),
        peer::scenarios(),
    ];
    tiers.into_iter().flatten().collect()
}

/// Boots a web server with a page of 4 KiB; returns the guest and the page's address.
pub fn serve_page(bench: &Bench, machine: MachineType, cpus: u32) -> Result<(Guest, String)> {
    let (guest, address) = web::serve(bench, machine, cpus, vec![b'x'; 4096])?;
    Ok((guest, address + "/file"))
}
