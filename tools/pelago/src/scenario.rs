//! `./pelago test`: boot scenarios in tiers, and the unit tests of every crate that runs on the
//! host.
//!
//! A scenario is a name, a tier and a function; matrices over machines and cores are unrolled into
//! one scenario each, so that a name given on the command line repeats exactly one failure. A
//! higher tier stands on the lower ones: after a failed tier the rest is not run, and counts as
//! failed.

use crate::emulator::{Accelerator, Machine, MachineType};
use crate::guest::Guest;
use crate::progress::{self, Progress};
use crate::{accelerator, archive::Archive, description, image, leftovers, place, rootfs, run, scenarios};
use anyhow::{Context, Result, bail};
use cargo_metadata::Package;
use clap::Args;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use system::{Run, System};

/// Scenarios that measure nothing run this many at a time, on machines that have the cores.
const AT_ONCE: usize = 2;

/// Options of `test`.
#[derive(Args)]
pub struct Options {
    /// Only scenarios of one of these names; a word that is no whole name stands for all that
    /// contain it
    name: Vec<String>,
    /// Only this tier: 0 boot, 1 kernel, 2 components, 3 Linux programs, 4 network and recovery, 5
    /// applications
    #[arg(long)]
    tier: Option<u8>,
    /// Those that take minutes, too; without this they run by their whole name only
    #[arg(long)]
    nightly: bool,
    /// Print the names instead of running
    #[arg(long)]
    list: bool,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    accel: accelerator::Wish,
}

/// What a scenario does; an error is its failure, or a [`Skip`].
pub type Body = Box<dyn Fn(&Bench) -> Result<()> + Send + Sync>;

/// One scenario.
pub struct Scenario {
    /// Unique, for instance `boot/q35/4`.
    pub name: String,
    pub tier: u8,
    /// May run beside others: it measures no time.
    pub shares: bool,
    /// Takes minutes: runs only by `--nightly` or by its whole name.
    pub nightly: bool,
    pub body: Body,
}

impl Scenario {
    /// One that has the machine for itself.
    pub fn alone(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { name, tier, shares: false, nightly: false, body: Box::new(body) }
    }

    /// One that has the machine for itself, for minutes.
    pub fn nightly(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { nightly: true, ..Scenario::alone(tier, name, body) }
    }

    /// One that may run beside others.
    pub fn shared(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { name, tier, shares: true, nightly: false, body: Box::new(body) }
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
}

impl Skip {
    /// Nothing stands in the way but that nobody has installed the package.
    fn could_have_run(&self) -> bool {
        let has = |program: &str| rootfs::in_path(program).is_some();
        match self {
            Skip::Cannot(_) => false,
            Skip::Package { .. } => nix::unistd::geteuid().is_root() && has("apt-get"),
            Skip::Root(_) => has("apt-get") && has("dpkg-deb"),
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
        }
    }
}

impl std::error::Error for Skip {}

/// What every scenario is given: the built system, ways to boot it, and a book of figures that
/// later scenarios judge.
pub struct Bench {
    images: Vec<PathBuf>,
    system: System,
    accelerator: Accelerator,
    folder: tempfile::TempDir,
    book: Mutex<HashMap<String, Vec<f64>>>,
}

impl Bench {
    /// Builds the guest.
    pub fn new(wish: accelerator::Wish) -> Result<Bench> {
        let images = image::build_programs()?;
        let system = description::load(&place::root().join("system/default.toml"))?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (accelerator, reason) = accelerator::choose(wish);
        eprintln!("pelago: guests run by {}: {reason}", accelerator.name());
        Ok(Bench { images, system, accelerator, folder, book: Mutex::default() })
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
        // To look at a failure with: the frames of the last machine that was booted.
        machine.pcap = std::env::var_os("PELAGO_PCAP").map(PathBuf::from);
        machine.check()?;
        let mut guest = Guest::start(&machine)?;
        guest.keep(path);
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
        rootfs::add_base(&mut root);
        let mut run = Run {
            working_directory: "/".into(),
            environment: run::environment(run::inherited(), &[])?,
            ..Run::default()
        };
        if let Some((name, arguments)) = program.split_first() {
            run.arguments.push(rootfs::add_program(&mut root, name, rootfs::PATH)?);
            run.arguments.extend(arguments.iter().map(|&word| word.to_owned()));
        }
        fill(&mut root)?;
        let mut archive = image::archive(&self.images, system, &run)?;
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

    /// Writes figures down under a name.
    pub fn note(&self, name: &str, figures: &[f64]) {
        if let Ok(mut book) = self.book.lock() {
            book.entry(name.to_owned()).or_default().extend(figures);
        }
    }

    /// Strikes out what was written down under a name.
    pub fn forget(&self, name: &str) {
        if let Ok(mut book) = self.book.lock() {
            book.remove(name);
        }
    }

    /// All figures written down under names that start so, sorted.
    pub fn noted(&self, start: &str) -> Vec<f64> {
        let Ok(book) = self.book.lock() else { return Vec::new() };
        let mut all: Vec<f64> =
            book.iter().filter(|(name, _)| name.starts_with(start)).flat_map(|(_, figures)| figures.clone()).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}

/// A TCP port of this machine that nobody has now.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Runs what was chosen.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut chosen = scenarios::all();
    chosen.sort_by_key(|scenario| scenario.tier);
    let wishes = Wishes::new(&options.name, &chosen);
    chosen.retain(|scenario| {
        let wanted = !scenario.nightly || options.nightly || options.name.contains(&scenario.name);
        wanted && options.tier.is_none_or(|tier| tier == scenario.tier) && wishes.have(&scenario.name)
    });
    let unit = options.tier.is_none() && wishes.have("unit");
    if options.list {
        if unit {
            println!("- unit");
        }
        chosen.iter().for_each(|scenario| println!("{} {}", scenario.tier, scenario.name));
        return Ok(ExitCode::SUCCESS);
    }
    if chosen.is_empty() && !unit {
        bail!("no scenario has such a name; `./pelago test --list` prints them");
    }
    let mut count = Count::default();
    leftovers::adopt();
    let progress = Progress::start();
    if unit {
        let _running = progress.begin("unit tests", progress::LIMIT);
        unit_tests(&mut count)?;
    }
    if !chosen.is_empty() {
        let building = progress.begin("the guest's build", progress::LIMIT);
        let bench = Bench::new(options.accel);
        drop(building);
        match bench {
            Ok(bench) => run_scenarios(&chosen, &bench, &progress, &mut count),
            Err(error) => {
                println!("FAIL build: {error:#}");
                count.failed += chosen.len();
            }
        }
    }
    drop(progress);
    for name in leftovers::end() {
        println!("     ended {name}, which a scenario had left running");
    }
    count.skips.iter().for_each(|skip| println!("skipped: {skip}"));
    println!("{}", count.summary());
    Ok(if count.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command line's names.
struct Wishes<'o> {
    /// Of one scenario each.
    whole: Vec<&'o str>,
    /// Of all that contain it.
    parts: Vec<&'o str>,
}

impl<'o> Wishes<'o> {
    fn new(names: &'o [String], scenarios: &[Scenario]) -> Wishes<'o> {
        let is_whole = |name: &&str| scenarios.iter().any(|scenario| scenario.name == *name);
        let (whole, parts) = names.iter().map(String::as_str).partition(is_whole);
        Wishes { whole, parts }
    }

    fn have(&self, name: &str) -> bool {
        let is_all = self.whole.is_empty() && self.parts.is_empty();
        is_all || self.whole.contains(&name) || self.parts.iter().any(|part| name.contains(part))
    }
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    /// What did not run, and why.
    skips: Vec<String>,
}

impl Count {
    fn summary(&self) -> String {
        let skipped = if self.skips.is_empty() { String::new() } else { format!(", {} skipped", self.skips.len()) };
        format!("{} passed, {} failed{skipped}", self.passed, self.failed)
    }

    /// Something passed and nothing failed.
    fn is_success(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    fn add(&mut self, end: End) {
        match end {
            End::Passed => self.passed += 1,
            End::Failed => self.failed += 1,
            End::Skipped(what) => self.skips.push(what),
        }
    }
}

/// How a scenario ended.
#[derive(PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// Name and reason.
    Skipped(String),
}

fn run_scenarios(chosen: &[Scenario], bench: &Bench, progress: &Progress, count: &mut Count) {
    let mut broken: Option<u8> = None;
    for tier in chosen.chunk_by(|one, next| one.tier == next.tier) {
        if let Some(below) = broken {
            tier.iter().for_each(|scenario| println!("FAIL {} not run, since tier {below} failed", scenario.name));
            count.failed += tier.len();
            continue;
        }
        let (sharing, alone): (Vec<_>, Vec<_>) = tier.iter().partition(|scenario| scenario.shares);
        let mut ends = run_together(&sharing, bench, progress);
        ends.extend(alone.into_iter().map(|scenario| run_one(scenario, bench, progress)));
        if ends.contains(&End::Failed) {
            broken = Some(tier[0].tier);
        }
        ends.into_iter().for_each(|end| count.add(end));
    }
}

fn run_together(scenarios: &[&Scenario], bench: &Bench, progress: &Progress) -> Vec<End> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut ends = Vec::new();
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            ends.push(run_one(scenario, bench, progress));
        }
        ends
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|_| vec![End::Failed])).collect()
    })
}

fn run_one(scenario: &Scenario, bench: &Bench, progress: &Progress) -> End {
    let start = Instant::now();
    let limit = if scenario.nightly { progress::NIGHTLY_LIMIT } else { progress::LIMIT };
    let running = progress.begin(&scenario.name, limit);
    let result = (scenario.body)(bench);
    drop(running);
    let (name, seconds) = (&scenario.name, start.elapsed().as_secs_f64());
    let Err(error) = result else {
        println!("ok   {name} ({seconds:.1} s)");
        return End::Passed;
    };
    match error.downcast_ref::<Skip>() {
        Some(skip) if !skip.could_have_run() => {
            println!("skip {name}: {skip}");
            End::Skipped(format!("{name}: {skip}"))
        }
        Some(skip) => {
            println!("FAIL {name} did not run, though this machine can: {skip}");
            End::Failed
        }
        None => {
            println!("FAIL {name} ({seconds:.1} s): {error:#}");
            End::Failed
        }
    }
}

/// Adds the console's end to a failure. Use around everything that talks to a guest.
pub fn with_console(mut guest: Guest, body: impl FnOnce(&mut Guest) -> Result<()>) -> Result<()> {
    body(&mut guest).map_err(|error| {
        if error.is::<Skip>() {
            return error;
        }
        anyhow::anyhow!("{error:#}; end of the console:\n{}", guest.tail())
    })
}

fn unit_tests(count: &mut Count) -> Result<()> {
    let metadata = image::workspace()?;
    let has_library =
        |package: &&Package| package.targets.iter().any(|target| target.is_lib() || target.is_proc_macro());
    let packages = metadata.workspace_packages();
    let tested = |package: &&Package| has_library(package) || image::is_host_only(&metadata, package);
    // The guest's binaries cannot be linked for the host, so they are left out.
    let names = |is_it: &dyn Fn(&&Package) -> bool| -> Vec<&str> {
        packages.iter().copied().filter(is_it).flat_map(|package| ["-p", package.name.as_str()]).collect()
    };
    cargo_test(count, "unit tests", &names(&tested), &["--lib", "--bin", "pelago-tool", "--tests"])?;
    cargo_test(count, "examples", &names(&has_library), &["--doc"])
}

fn cargo_test(count: &mut Count, what: &str, packages: &[&str], kinds: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    // With debug assertions.
    command.current_dir(place::root()).args(["test", "--no-fail-fast", "--color=never", "--target-dir", "target/host"]);
    let output = command.args(packages).args(kinds).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (passed, failed) = count_results(&text);
    count.passed += passed;
    count.failed += failed;
    if output.status.success() && passed > 0 {
        println!("ok   {passed} {what}");
        return Ok(());
    }
    count.failed += usize::from(failed == 0);
    if passed == 0 {
        println!("FAIL not one of the {what} ran");
    }
    let failures = text
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("FAILED") || line.contains("panicked at"));
    failures.for_each(|line| println!("FAIL {line}"));
    print!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Sums cargo's lines `test result: ok. 5 passed; 0 failed; ...`.
pub fn count_results(text: &str) -> (usize, usize) {
    let number = |line: &str, word: &str| -> usize {
        line.split([';', '.']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok()).unwrap_or(0)
    };
    let results = text.lines().filter(|line| line.starts_with("test result:"));
    results.fold((0, 0), |(passed, failed), line| (passed + number(line, "passed"), failed + number(line, "failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_is_one_scenario() {
        let scenarios = ["boot/q35/2", "boot/q35/255"].map(|name| Scenario::alone(0, name.into(), |_| Ok(())));
        let have = |wish: &str, name: &str| Wishes::new(&[wish.to_owned()], &scenarios).have(name);
        assert!(have("boot/q35/2", "boot/q35/2") && !have("boot/q35/2", "boot/q35/255"));
        assert!(have("q35", "boot/q35/2") && have("q35", "boot/q35/255") && !have("microvm", "boot/q35/2"));
        assert!(Wishes::new(&[], &scenarios).have("unit"));
    }

    #[test]
    fn results_are_summed() {
        let text = "running\ntest result: ok. 5 passed; 0 failed; 0 ignored\nx\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(count_results(text), (7, 1));
    }

    #[test]
    fn a_run_that_ran_nothing_is_no_success() {
        let mut count = Count::default();
        assert!(!count.is_success());
        count.add(End::Skipped("a: no such card".into()));
        assert!(!count.is_success());
        count.add(End::Passed);
        assert_eq!((count.is_success(), count.summary()), (true, "1 passed, 0 failed, 1 skipped".into()));
        count.add(End::Failed);
        assert!(!count.is_success());
    }

    #[test]
    fn what_could_have_run_is_no_skip() {
        assert!(!Skip::Cannot("no such card".into()).could_have_run());
        let gdb = Skip::Package { program: "gdb", package: "gdb" };
        assert!(gdb.to_string().contains("apt-get install gdb"));
        assert_eq!(gdb.could_have_run(), nix::unistd::geteuid().is_root() && rootfs::in_path("apt-get").is_some());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = scenarios::all().into_iter().map(|scenario| scenario.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
