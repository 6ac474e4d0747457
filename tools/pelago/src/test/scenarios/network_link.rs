//! Tier 4: the network card's link goes down and up again, by the emulator's own commands: the
//! system says so, and serves again.

use crate::image::machine_type::MachineType;
use crate::run::commands::Emulator;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::web;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const ROUNDS: usize = 2;

pub fn scenarios() -> Vec<Scenario> {
    let machines = [MachineType::Q35, MachineType::Microvm, MachineType::MicrovmMmio];
    machines
        .map(|machine| {
            Scenario::shared(4, format!("network-link/{}/1", machine.name()), move |bench| link(bench, machine))
        })
        .into()
}

fn link(bench: &Bench, machine: MachineType) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let socket = folder.path().join("commands");
    let (guest, address) = web::serve_on(bench, machine, 1, b"page\n".to_vec(), |machine| {
        machine.commands = Some(socket.clone());
    })?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        guest.heard("ip: a card for 256 frames in and 256 out, packets of 1500 bytes", LIMIT)?;
        guest.heard("ip: link up", LIMIT)?;
        let mut emulator = Emulator::connect(&socket)?;
        for _ in 0..ROUNDS {
            let got = web::fetch(&guest.liveness(), &format!("{address}/file"), web::READY_LIMIT)?;
            ensure!(got == b"page\n", "the page is {got:?}");
            for (up, says) in [(false, "ip: link down"), (true, "ip: link up")] {
                emulator.command("set_link", json!({ "name": "n0", "up": up }))?;
                guest.expect(says, LIMIT)?;
            }
        }
        let got = web::fetch(&guest.liveness(), &format!("{address}/file"), web::READY_LIMIT)?;
        ensure!(got == b"page\n", "with the link again the page is {got:?}");
        Ok(())
    })
}
