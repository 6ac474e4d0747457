//! The built system and ways to boot it.

use crate::host::place;
use crate::image::archive::Archive;
use crate::image::description::Part;
use crate::image::machine_type::MachineType;
use crate::image::{build, container, description, environment, rootfs};
use crate::machine::accelerator;
use crate::machine::emulator::{Accelerator, Machine, STREAMS};
use crate::machine::guest::Guest;
use crate::machine::record::Record;
use crate::machine::streams::{PORTS, Streams};
use anyhow::{Context, Result};
use luks::Handover;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use system::{Mount, Run, System};

/// Of each frame of a scenario's machines so many bytes are recorded: all headers.
const FRAME_BYTES: u32 = 128;

/// The built system, and where its programs come from.
#[derive(Clone)]
pub struct Testbed {
    images: Vec<PathBuf>,
    system: System,
    accelerator: Accelerator,
    folder: Arc<tempfile::TempDir>,
    /// Its programs are in this root file system, not this machine's.
    root: Option<PathBuf>,
    /// Where its machines see the volume on their disk.
    mount: Option<Mount>,
    /// What they need of it if it is encrypted.
    key: Option<Arc<Handover>>,
    /// What its machines leave to look at.
    record: Option<Arc<Record>>,
}

impl Testbed {
    /// Builds the guest.
    pub fn new(choice: accelerator::AccelChoice) -> Result<Testbed> {
        let images = build::build_programs()?;
        let (accelerator, reason) = accelerator::choose(choice);
        eprintln!("pelago: guests run by {}: {reason}", accelerator.name());
        Testbed::of(images, accelerator)
    }

    /// One that cannot boot anything.
    #[cfg(test)]
    pub fn empty() -> Result<Testbed> {
        Testbed::of(Vec::new(), Accelerator::Tcg)
    }

    fn of(images: Vec<PathBuf>, accelerator: Accelerator) -> Result<Testbed> {
        let system = description::load(&place::root().join("system/default.toml"))?;
        let folder = Arc::new(tempfile::tempdir().context("cannot make a temporary folder")?);
        Ok(Testbed { images, system, accelerator, folder, root: None, mount: None, key: None, record: None })
    }

    /// The same, and what its machines say and send is recorded.
    pub fn recorded(&self) -> Result<(Testbed, Arc<Record>)> {
        let record = Arc::new(Record::create(self.folder.path())?);
        Ok((Testbed { record: Some(record.clone()), ..self.clone() }, record))
    }

    /// The same whose programs are in a root file system.
    pub fn in_root(&self, root: Option<&Path>) -> Testbed {
        Testbed { root: root.map(Path::to_owned), ..self.clone() }
    }

    /// The same with the system of machines that have a disk, whose volume is seen there.
    pub fn with_volume(&self, mount: Mount) -> Result<Testbed> {
        let system = description::load_with(&place::root().join("system/default.toml"), &[Part::Disk])?;
        Ok(Testbed { system, mount: Some(mount), ..self.clone() })
    }

    /// The same whose disk is encrypted. What its programs write is heard as the console's lines
    /// are; they read what [`Guest::tell`] gives.
    pub fn with_encrypted_volume(&self, mount: Mount, key: Arc<Handover>) -> Result<Testbed> {
        let parts = [Part::Disk, Part::Key];
        let system = description::load_with(&place::root().join("system/default.toml"), &parts)?;
        Ok(Testbed { system, mount: Some(mount), ..self.with_key(key) })
    }

    /// The same whose machines are given a key of their disk, whatever their system.
    pub fn with_key(&self, key: Arc<Handover>) -> Testbed {
        Testbed { key: Some(key), ..self.clone() }
    }

    /// The same with another system, one of `system/`.
    pub fn with_system(choice: accelerator::AccelChoice, name: &str) -> Result<Testbed> {
        let system = description::load(&place::root().join("system").join(name))?;
        Ok(Testbed { system, ..Testbed::new(choice)? })
    }

    /// Boots with a program of this machine (none: the system alone), adding files to the root
    /// directory by `fill`.
    pub fn boot(
        &self,
        machine: MachineType,
        cpus: u32,
        program: &[&str],
        fill: impl FnOnce(&mut Archive, &mut Machine) -> Result<()>,
    ) -> Result<Guest> {
        self.boot_system(&self.system, machine, cpus, program, fill)
    }

    /// The images that were built.
    pub fn images(&self) -> &[PathBuf] {
        &self.images
    }

    /// The description that is booted.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Boots another description.
    pub fn boot_system(
        &self,
        system: &System,
        machine: MachineType,
        cpus: u32,
        program: &[&str],
        fill: impl FnOnce(&mut Archive, &mut Machine) -> Result<()>,
    ) -> Result<Guest> {
        let mut machine = Machine::new(machine, cpus, self.accelerator);
        machine.memory_bytes += u64::from(cpus) * (4 << 20);
        let placed = description::placed(system.clone(), machine.machine);
        let archive = self.archive(&placed, program, |root| fill(root, &mut machine))?;
        let path = tempfile::NamedTempFile::new_in(self.folder.path())
            .context("cannot make a file for the boot archive")?
            .into_temp_path();
        archive.write(&path)?;
        machine.archive = Some(path.to_path_buf());
        let files = self.record.as_ref().map(|record| record.machine());
        // Nothing beside the card of a machine whose every instruction counts.
        if let Some(files) = &files
            && machine.has_card
            && !machine.is_instrumented()
        {
            machine.pcap = Some(files.frames.clone());
            machine.pcap_frame_bytes = Some(FRAME_BYTES);
        }
        // To look at a failure with: the frames of the last machine that was booted.
        if let Some(path) = std::env::var_os("PELAGO_PCAP") {
            machine.pcap = Some(path.into());
            machine.pcap_frame_bytes = None;
        }
        machine.check()?;
        let mut guest = self.start(machine)?;
        guest.keep(path);
        if let Some(files) = files {
            guest.record(files.console);
        }
        Ok(guest)
    }

    fn start(&self, mut machine: Machine) -> Result<Guest> {
        let Some(key) = &self.key else { return Guest::start(&machine) };
        machine.streams = (STREAMS..).take(PORTS).collect();
        let mut streams = Streams::open()?;
        streams.tell_key(&key.encode()[..])?;
        Guest::start_unattended(&machine, streams.unattended())
    }

    /// The boot archive of a description with a program of this machine (none: the system alone).
    pub fn archive(
        &self,
        system: &System,
        program: &[&str],
        fill: impl FnOnce(&mut Archive) -> Result<()>,
    ) -> Result<Archive> {
        let mut root = Archive::default();
        match &self.root {
            None => rootfs::add_base(&mut root),
            Some(folder) => container::add(&mut root, folder)?,
        }
        let mut run = Run {
            working_directory: "/".into(),
            environment: environment::of(environment::inherited(), &[])?,
            mount: self.mount.clone(),
            ..Run::default()
        };
        if let (Some(name), None) = (program.first(), &self.root) {
            run.arguments.push(rootfs::add_program(&mut root, name, rootfs::PATH)?);
        }
        fill(&mut root)?;
        // In a root it may be one of the files that were just added.
        if let (Some(name), Some(_)) = (program.first(), &self.root) {
            run.arguments.push(container::find_program(&root, name, rootfs::PATH, "/")?);
        }
        run.arguments.extend(program.iter().skip(1).map(|&word| word.to_owned()));
        let mut archive = build::archive(&self.images, system, &run)?;
        archive.merge(root);
        Ok(archive)
    }

    /// Boots the system alone.
    pub fn boot_bare(&self, machine: MachineType, cpus: u32) -> Result<Guest> {
        self.boot(machine, cpus, &[], |_, _| Ok(()))
    }

    /// Boots another system, one of `system/`, alone, on a machine changed by `change`.
    pub fn boot_other(
        &self,
        name: &str,
        machine: MachineType,
        cpus: u32,
        change: impl FnOnce(&mut Machine),
    ) -> Result<Guest> {
        let system = description::load(&place::root().join("system").join(name))?;
        self.boot_system(&system, machine, cpus, &[], |_, machine| {
            change(machine);
            Ok(())
        })
    }

    /// How the guests of this run are run.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }
}
