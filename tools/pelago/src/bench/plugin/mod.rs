//! The emulator's plugin (tools/plugin) as the host tool uses it: build it, see that this emulator
//! can carry it, run a guest with it, read what it wrote.
//!
//! A guest under the plugin runs such that its figures repeat exactly: one thread runs all cores,
//! time is instructions, the clock begins at a fixed date, random numbers have a seed, and there is
//! no network card, since the host's network has a time of its own.

mod names;

pub use names::of as names;

use crate::host::{cargo, files};
use crate::machine::emulator::{Machine, PROGRAM};
use crate::machine::guest::Guest;
use anyhow::{Context, Result, bail, ensure};
pub use coherence::Mode;
use coherence::{Report, Speed, StepRow};
use object::{Object, ObjectSymbol};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the emulator must have to be measured at all, and what the way of taking turns needs beside
/// it: functions that are no part of the plugin interface.
pub const INTERFACE: &str = "qemu_plugin_register_vcpu_mem_cb";
const INTERNALS: [&str; 7] = [
    "cpu_exit",
    "cpu_stop_current",
    "cpu_resume",
    "qemu_get_cpu",
    "tb_flush",
    "cpu_memory_rw_debug",
    "qemu_ram_addr_from_host",
];
const REMEDY: &str = "use an emulator of version 7.2 to 8 as Debian builds it: apt-get install qemu-system-x86";

/// A plugin and its arguments, for [`Machine::plugins`].
#[derive(Clone, Debug)]
pub struct Instruments {
    library: PathBuf,
    mode: Mode,
    /// Cycles that a core runs before the next has its turn.
    turn: u64,
    out: PathBuf,
    names: PathBuf,
    /// Of cores that have one.
    speeds: Vec<(u32, Speed)>,
}

impl Instruments {
    /// The emulator's argument.
    pub fn argument(&self) -> String {
        let (library, out, names) = (self.library.display(), self.out.display(), self.names.display());
        let speeds: String =
            self.speeds.iter().map(|(core, Speed { own, of })| format!(",speed={core}/{own}/{of}")).collect();
        format!("{library},mode={},turn={},out={out},names={names}{speeds}", self.mode.name(), self.turn)
    }

    /// The same with a core of that speed.
    pub fn throttle(mut self, core: u32, speed: Speed) -> Instruments {
        self.speeds.push((core, speed));
        self
    }
}

/// The plugin, ready to be loaded into any number of guests.
pub struct Plugin {
    library: PathBuf,
    folder: tempfile::TempDir,
    steps: RefCell<Vec<StepRow>>,
}

impl Plugin {
    /// Checks the emulator and builds the plugin.
    pub fn prepare() -> Result<Plugin> {
        check_emulator()?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        ensure!(
            !folder.path().to_string_lossy().contains(','),
            "the temporary folder {} has a comma in its name, which the emulator cannot take; set TMPDIR to another",
            folder.path().display()
        );
        Ok(Plugin { library: build("pelago-plugin")?, folder, steps: RefCell::default() })
    }

    /// Boots by `start`, which is given the machine's plugin; waits for the line `done`; returns
    /// what the plugin wrote.
    pub fn run(
        &self,
        mode: Mode,
        turn: u64,
        names: &str,
        start: impl FnOnce(Instruments) -> Result<Guest>,
        done: &str,
        limit: Duration,
    ) -> Result<Report> {
        let mut guest = start(self.instruments(mode, turn, names)?)?;
        match guest.expect(done, limit) {
            Ok(line) => ensure!(!line.contains("failed"), "the guest says: {line}"),
            Err(error) => {
                eprint!("{}", guest.tail());
                bail!("{error:#}; the end of the console is above");
            }
        }
        self.report()
    }

    /// For one guest; what an earlier one reported is gone.
    pub fn instruments(&self, mode: Mode, turn: u64, names: &str) -> Result<Instruments> {
        let (out, list) = (self.out(), self.folder.path().join("names"));
        files::write(&list, names.as_bytes())?;
        // What an earlier guest wrote must not pass for this one's.
        let _ = std::fs::remove_file(&out);
        Ok(Instruments { library: self.library.clone(), mode, turn, out, names: list, speeds: Vec::new() })
    }

    /// What the plugin wrote when the guest last said that it had measured something.
    pub fn report(&self) -> Result<Report> {
        let text = std::fs::read(self.out()).context("the plugin wrote no figures; its complaint is above")?;
        let report: Report = serde_json::from_slice(&text).context("tool and plugin are of different builds")?;
        ensure!(!report.rows.is_empty(), "the guest made no marks, so nothing was measured");
        coherence::merge(&mut self.steps.borrow_mut(), &report.steps);
        Ok(report)
    }

    /// The longest steps of the kernel in all guests whose reports were read since this was asked
    /// last.
    pub fn take_steps(&self) -> Vec<StepRow> {
        self.steps.take()
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("report")
    }
}

/// Puts the plugin into a machine and everything out that would make two runs differ.
pub fn fit(machine: &mut Machine, instruments: Instruments) {
    machine.plugins.push(instruments.argument());
    machine.is_repeatable = true;
    machine.instruction_ns = Some(1);
    machine.has_card = false;
    machine.accelerator = crate::machine::emulator::Accelerator::Tcg;
}

/// Fails with one line if this machine's emulator cannot carry the plugin.
pub fn check_emulator() -> Result<()> {
    check(&crate::host::path::find(PROGRAM).with_context(|| format!("{PROGRAM} is missing; {REMEDY}"))?)
}

fn check(emulator: &Path) -> Result<()> {
    let data = files::read(emulator)?;
    // A script around the emulator, as `./pelago` makes it where it may not install one: the
    // emulator itself complains then.
    if data.starts_with(b"#!") {
        return Ok(());
    }
    let file = object::File::parse(&*data).with_context(|| format!("{} is no program", emulator.display()))?;
    let exported: HashSet<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    ensure!(
        exported.contains(INTERFACE),
        "{} was built without support of plugins, so nothing can be counted or modelled; {REMEDY}",
        emulator.display()
    );
    let lacking: Vec<_> = INTERNALS.into_iter().filter(|name| !exported.contains(name)).collect();
    ensure!(
        lacking.is_empty(),
        "{} does not export {}, which the plugin needs to let cores take turns and to read marks; {REMEDY}",
        emulator.display(),
        lacking.join(", ")
    );
    Ok(())
}

/// Builds a plugin of the workspace; its library.
pub fn build(package: &str) -> Result<PathBuf> {
    let command = cargo::command(&["build", "--quiet", "-p", package, "--target-dir", "target/host"]);
    let Some(artifacts) = cargo::build(command)? else {
        bail!("the emulator's plugin did not build; the compiler's messages are above");
    };
    let is_library = |path: &&cargo_metadata::camino::Utf8PathBuf| path.extension() == Some("so");
    let library = artifacts.iter().filter_map(|artifact| artifact.filenames.iter().find(is_library)).next_back();
    library.map(PathBuf::from).context("cargo built no plugin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_plugins_is_refused() {
        let own = std::env::current_exe().unwrap();
        let message = check(&own).unwrap_err().to_string();
        assert!(message.contains("without support of plugins") && message.contains("apt-get install"), "{message}");
    }
}
