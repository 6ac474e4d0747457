//! Machines of our component `load` (apps/bench/src/load.rs), one on each core.

use super::SYSTEM;
use crate::bench::disk;
use crate::host::place;
use crate::image::description::{self, Part};
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Drive, Machine};
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result};
use system::{Mount, System};

/// `load done`, or `load failed` and why.
pub const ENDED: &str = ": load ";
/// Word for it; see there.
const FAMILY: &str = "load.family=";
/// Room for the hot file and a journal.
const DISK_BYTES: u64 = 32 << 20;
const MOUNT: &str = "/volume";

/// One that measures rows of some families.
pub struct LoadMachine {
    pub system: System,
    testbed: Testbed,
    words: Vec<String>,
    /// With an empty volume, and its folder.
    disk: Option<(Drive, tempfile::TempDir)>,
}

impl LoadMachine {
    /// Of a machine without a disk.
    pub fn new<'a>(testbed: &Testbed, families: impl IntoIterator<Item = &'a str>) -> Result<LoadMachine> {
        LoadMachine::with(testbed.clone(), families, &[])
    }

    /// Of one with a volume on its disk, which is made now.
    pub fn on_disk<'a>(testbed: &Testbed, families: impl IntoIterator<Item = &'a str>) -> Result<LoadMachine> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let drive = Drive { file: folder.path().join("disk"), is_read_only: false };
        disk::format(&drive.file, DISK_BYTES, None)?;
        let testbed = testbed.with_volume(Mount { path: MOUNT.into(), is_read_only: false })?;
        Ok(LoadMachine { disk: Some((drive, folder)), ..LoadMachine::with(testbed, families, &[Part::Disk])? })
    }

    fn with<'a>(testbed: Testbed, families: impl IntoIterator<Item = &'a str>, parts: &[Part]) -> Result<LoadMachine> {
        let system = description::load_with(&place::root().join("system").join(SYSTEM), parts)?;
        let words = families.into_iter().map(|family| format!("{FAMILY}{family}")).collect();
        Ok(LoadMachine { system, testbed, words, disk: None })
    }

    /// Boots it, changed by `fit`.
    pub fn boot(&self, cpus: u32, fit: impl FnOnce(&mut Machine)) -> Result<Guest> {
        self.testbed.boot_system(&self.system, MachineType::Q35, cpus, &[], |_, machine| {
            fit(machine);
            machine.command_line.extend(self.words.iter().cloned());
            machine.drive = self.disk.as_ref().map(|(drive, _)| drive.clone());
            Ok(())
        })
    }
}
