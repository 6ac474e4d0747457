//! All scenarios, one file per tier.

mod boot;
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
    [boot::scenarios(), programs::scenarios(), web::scenarios(), recovery::scenarios()].into_iter().flatten().collect()
}

/// Boots a web server with a page of 4 KiB; returns the guest and the page's address.
pub fn serve_page(bench: &Bench, machine: MachineType, cpus: u32) -> Result<(Guest, String)> {
    web::serve(bench, machine, cpus, vec![b'x'; 4096])
}
