//! Tier 4: the network card's link goes down and up again, by the emulator's own commands: the system says so, and serves again.

use crate::emulator::MachineType;
use crate::scenario::{Bench, Scenario, with_console};
use crate::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const ROUNDS: usize = 2;

pub fn scenarios() -> Vec<Scenario> {
    let machines = [MachineType::Q35, MachineType::Microvm, MachineType::MicrovmMmio];
    machines
        .map(|machine| Scenario::shared(4, format!("link/{}/1", machine.name()), move |bench| link(bench, machine)))
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
            let got = web::fetch(&format!("{address}/file"), web::READY_LIMIT)?;
            ensure!(got == b"page\n", "the page is {got:?}");
            for (up, says) in [(false, "ip: link down"), (true, "ip: link up")] {
                emulator.command("set_link", json!({ "name": "n0", "up": up }))?;
                guest.expect(says, LIMIT)?;
            }
        }
        let got = web::fetch(&format!("{address}/file"), web::READY_LIMIT)?;
        ensure!(got == b"page\n", "with the link again the page is {got:?}");
        Ok(())
    })
}

/// The emulator's machine protocol (QMP): a line of JSON each way.
struct Emulator {
    input: UnixStream,
    output: BufReader<UnixStream>,
}

impl Emulator {
    fn connect(path: &Path) -> Result<Emulator> {
        let input = UnixStream::connect(path).context("the emulator takes no commands")?;
        input.set_read_timeout(Some(LIMIT))?;
        let output = BufReader::new(input.try_clone()?);
        let mut emulator = Emulator { input, output };
        let greeting = emulator.line()?;
        ensure!(greeting.get("QMP").is_some(), "the emulator says {greeting}");
        emulator.command("qmp_capabilities", json!({}))?;
        Ok(emulator)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("the emulator does not answer")?;
        serde_json::from_str(&line).with_context(|| format!("the emulator says {line:?}"))
    }

    /// Carries a command out; events are passed over.
    fn command(&mut self, name: &str, arguments: Value) -> Result<()> {
        writeln!(self.input, "{}", json!({ "execute": name, "arguments": arguments }))?;
        loop {
            let answer = self.line()?;
            if answer.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = answer.get("error") {
                bail!("{name}: {error}");
            }
        }
    }
}
