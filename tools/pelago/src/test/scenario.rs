//! What a boot scenario is, and what it is given.
//!
//! A scenario is a name, a tier and a function; matrices over machines and cores are unrolled into
//! one scenario each, so that a name given on the command line repeats exactly one failure.

use crate::host::late::Late;
use crate::machine::emulator::{Accelerator, Machine, MachineType};
use crate::machine::guest::Guest;
use crate::test::notes::Notes;
use crate::test::record::Record;
use crate::{
    host::place, image::archive::Archive, image::build, image::container, image::description, image::rootfs,
    machine::accelerator, run::program,
};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use system::{Run, System};

/// Of each frame of a scenario's machines so many bytes are recorded: all headers.
const FRAME_BYTES: u32 = 128;

/// What a scenario does; an error is its failure, or a [`Skip`], or [`Late`] where nothing but a
/// limit in time was not kept.
pub type Body = Box<dyn Fn(&Bench) -> Result<()> + Send + Sync>;

/// One scenario.
pub struct Scenario {
    /// Unique, for instance `boot/q35/4`.
    pub name: String,
    pub tier: u8,
    /// May run beside others: it measures no time.
    pub shares: bool,
    /// Takes more than 20 s, and nothing beside it says why it is worth that in every run; or a
    /// shorter one shows the same, if less of it. Runs only by `--nightly` or by its whole name.
    pub nightly: bool,
    /// Names of those whose figures it judges, which run before it.
    pub judges: Vec<String>,
    pub body: Body,
}

impl Scenario {
    /// One that has the machine for itself.
    pub fn alone(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { name, tier, shares: false, nightly: false, judges: Vec::new(), body: Box::new(body) }
    }

    /// One that has the machine for itself, for minutes.
    pub fn nightly(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { nightly: true, ..Scenario::alone(tier, name, body) }
    }

    /// One that may run beside others.
    pub fn shared(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { shares: true, ..Scenario::alone(tier, name, body) }
    }

    /// Runs only by `--nightly` or by its whole name, if so.
    pub fn by_night(self, nightly: bool) -> Scenario {
        Scenario { nightly, ..self }
    }

    /// Judges the figures of the scenarios of these names.
    pub fn judging(self, names: impl IntoIterator<Item = String>) -> Scenario {
        Scenario { judges: names.into_iter().collect(), ..self }
    }
}

/// The error of a scenario that did not run for what the machine lacks.
#[derive(Debug)]
pub enum Skip {
    /// The machine cannot have it. Neither passed nor failed.
    Cannot(String),
    /// A Debian package would bring it: a failure where this process may install one.
    Package { program: &'static str, package: &'static str },
    /// The set-up did not make this root of Debian's packages: a failure where it can.
    Root(&'static str),
    /// The set-up did not fetch this source: a failure where it can.
    Source(&'static str),
}

impl Skip {
    /// Nothing stands in the way but that nobody has installed the package.
    pub fn could_have_run(&self) -> bool {
        let has = |program: &str| rootfs::in_path(program).is_some();
        match self {
            Skip::Cannot(_) => false,
            Skip::Package { .. } => nix::unistd::geteuid().is_root() && has("apt-get"),
            Skip::Root(_) | Skip::Source(_) => has("apt-get") && has("dpkg-deb"),
        }
    }
}

impl std::fmt::Display for Skip {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Skip::Cannot(why) => formatter.write_str(why),
            Skip::Package { program, package } => {
                write!(formatter, "there is no {program}; run: apt-get install {package}")
            }
            Skip::Root(name) => write!(formatter, "there is no root of {name}, which ./pelago test makes where it can"),
            Skip::Source(name) => {
                write!(formatter, "there is no source of {name}, which ./pelago test fetches where it can")
            }
        }
    }
}

impl std::error::Error for Skip {}

/// What every scenario is given: the built system, ways to boot it, and figures that other
/// scenarios wrote down.
#[derive(Clone)]
pub struct Bench {
    images: Vec<PathBuf>,
    system: System,
    accelerator: Accelerator,
    folder: Arc<tempfile::TempDir>,
    /// Its programs are in this root file system, not this machine's.
    root: Option<PathBuf>,
    notes: Notes,
    /// Whose this is, and whom it judges.
    scenario: String,
    judges: Vec<String>,
    /// What it leaves to look at.
    record: Option<Arc<Record>>,
}

impl Bench {
    /// Builds the guest.
    pub fn new(wish: accelerator::Wish) -> Result<Bench> {
        let images = build::build_programs()?;
        let system = description::load(&place::root().join("system/default.toml"))?;
        let folder = Arc::new(tempfile::tempdir().context("cannot make a temporary folder")?);
        let (accelerator, reason) = accelerator::choose(wish);
        eprintln!("pelago: guests run by {}: {reason}", accelerator.name());
        let (notes, scenario, judges) = (Notes::default(), String::new(), Vec::new());
        Ok(Bench { images, system, accelerator, folder, root: None, notes, scenario, judges, record: None })
    }

    /// One that cannot boot anything.
    #[cfg(test)]
    pub fn empty() -> Result<Bench> {
        let system = description::load(&place::root().join("system/default.toml"))?;
        let folder = Arc::new(tempfile::tempdir()?);
        let (notes, scenario, judges) = (Notes::default(), String::new(), Vec::new());
        let accelerator = Accelerator::Tcg;
        Ok(Bench { images: Vec::new(), system, accelerator, folder, root: None, notes, scenario, judges, record: None })
    }

    /// The same for one scenario. What its machines say and send is recorded.
    pub fn of(&self, scenario: &Scenario) -> Result<(Bench, Arc<Record>)> {
        let record = Arc::new(Record::create(self.folder.path())?);
        let (name, judges) = (scenario.name.clone(), scenario.judges.clone());
        Ok((Bench { scenario: name, judges, record: Some(record.clone()), ..self.clone() }, record))
    }

    /// The same whose programs are in a root file system.
    pub fn in_root(&self, root: Option<&Path>) -> Bench {
        Bench { root: root.map(Path::to_owned), ..self.clone() }
    }

    /// The same with another system, one of `system/`.
    pub fn with_system(wish: accelerator::Wish, name: &str) -> Result<Bench> {
        let system = description::load(&place::root().join("system").join(name))?;
        Ok(Bench { system, ..Bench::new(wish)? })
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
        let mut guest = Guest::start(&machine)?;
        guest.keep(path);
        if let Some(files) = files {
            guest.record(files.console);
        }
        Ok(guest)
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
            environment: program::environment(program::inherited(), &[])?,
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

    /// Writes figures down under a name, for this scenario and those that judge it.
    pub fn note(&self, name: &str, figures: &[f64]) {
        self.notes.add(&self.scenario, name, figures);
    }

    /// Strikes out what this scenario wrote down under a name.
    pub fn forget(&self, name: &str) {
        self.notes.forget(&self.scenario, Some(name));
    }

    /// Strikes out all that a scenario wrote down, before it is run again.
    pub fn forget_all_of(&self, scenario: &Scenario) {
        self.notes.forget(&scenario.name, None);
    }

    /// All figures written down under a name by those whom this scenario judges, and by itself;
    /// sorted.
    pub fn noted(&self, name: &str) -> Vec<f64> {
        self.notes.of(|writer| writer == self.scenario || self.judges.iter().any(|judged| judged == writer), name)
    }
}

/// A TCP port of this machine that nobody has now.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Between a failure and the console's end.
pub const CONSOLE: &str = "; end of the console";

/// Adds the console's end to a failure. Use around everything that talks to a guest.
pub fn with_console(mut guest: Guest, body: impl FnOnce(&mut Guest) -> Result<()>) -> Result<()> {
    body(&mut guest).map_err(|error| {
        if error.is::<Skip>() {
            return error;
        }
        let words = format!("{error:#}{CONSOLE}:\n{}", guest.tail());
        // It may have said meanwhile why, or have ended.
        if error.is::<Late>() { guest.late(words) } else { anyhow::Error::msg(words) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_have_run_is_no_skip() {
        assert!(!Skip::Cannot("no such card".into()).could_have_run());
        let gdb = Skip::Package { program: "gdb", package: "gdb" };
        assert!(gdb.to_string().contains("apt-get install gdb"));
        assert_eq!(gdb.could_have_run(), nix::unistd::geteuid().is_root() && rootfs::in_path("apt-get").is_some());
    }
}
