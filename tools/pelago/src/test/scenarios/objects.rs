//! Tier 1: the kernel's objects and calls, tested from user mode on every core at once
//! (apps/conform).

use super::web;
use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Accelerator, Machine};
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const SYSTEM: &str = "conform.toml";
const COMPONENT: &str = "conform";
const CPUS: [u32; 6] = [1, 2, 4, 8, 64, 255];
/// With more they take minutes, or both cores of the host for a dozen seconds.
const CPUS_ALWAYS_MAX: u32 = 4;
/// On machines with more, one thread of the host runs all cores in turn.
const OWN_THREADS_MAX: u32 = 8;
/// Nanoseconds of an instruction on these: about what a core has that shares the
/// host's processors, and what waits for the clock waits for few instructions.
const IN_TURN_NS: u32 = 8;
/// With more, two machines at once would starve each other of the host's cores.
const SHARING_CPUS_MAX: u32 = 4;
const NODES: u32 = 4;
/// One model of each vendor, by its name in QEMU; the emulator says of each what it cannot do, on
/// its standard error.
const PROCESSORS: [&str; 2] = ["EPYC", "Skylake-Server"];
const PROCESSOR_CPUS: u32 = 2;
/// Word for `conform` that time is exact (`apps/conform/src/scene.rs`).
const EXACT: &str = "conform.exact-time";
/// Word for `conform` that names the one test that is to run (`apps/conform/src/runner.rs`).
const ONLY: &str = "conform.only=";
/// A gang with a member on each core, and the start of the line that tells how far apart they began
/// to run.
const GANG: &str = "gang/members_of_all_cores_start_together";
const GANG_CPUS: u32 = 4;
const GANG_TOLD: &str = "gang of 4: ";
/// On machines with twice as many cores or more, a test may be left to so many, instead of all
/// (`apps/conform/src/turns.rs`).
const LEAST: u32 = 8;
/// All cores together: some test at a time (`apps/conform/src/turns.rs`), so that each adds its
/// own.
const BASE: Duration = Duration::from_secs(60);
const PER_CORE: Duration = Duration::from_secs(10);
/// Without a word from any core: for a start, and for each core, past which an emulator of one
/// thread comes before the next word.
const SILENCE: Duration = Duration::from_secs(120);
const SILENCE_PER_CORE: Duration = Duration::from_secs(2);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(30);
/// What a test may hold at a time, beside what every core has.
const MIB_PER_CORE: u64 = 4;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let name = format!("objects/{}/{cpus}", machine.name());
            let change = if cpus > OWN_THREADS_MAX { in_turn } else { |_: &mut Machine| () };
            let scenario = Scenario::shared(1, name, move |bench| objects(bench, machine, cpus, change));
            all.push(scenario.sharing(cpus <= SHARING_CPUS_MAX).by_night(cpus > CPUS_ALWAYS_MAX));
        }
    }
    all.push(Scenario::shared(1, format!("objects/numa{NODES}/q35/{NODES}"), nodes).by_night(true));
    // Of one core: cores that take turns on one thread stand still meanwhile, too.
    all.push(Scenario::shared(1, "objects/exact/q35/1".into(), |bench| objects(bench, MachineType::Q35, 1, exact)));
    all.push(Scenario::shared(1, format!("objects/gang/q35/{GANG_CPUS}"), gang));
    for processor in PROCESSORS {
        let name = format!("objects/cpu/{processor}/{PROCESSOR_CPUS}");
        let objects = move |bench: &Bench| {
            objects(bench, MachineType::Q35, PROCESSOR_CPUS, |machine| of_processor(machine, processor))
        };
        all.push(Scenario::shared(1, name, objects).by_night(true));
        let name = format!("web/cpu/{processor}/{PROCESSOR_CPUS}");
        all.push(Scenario::shared(4, name, move |bench| {
            web::page_on(bench, MachineType::Q35, PROCESSOR_CPUS, |machine| of_processor(machine, processor))
        }));
    }
    all
}

/// A processor of that model has what the model has, so it is emulated.
fn of_processor(machine: &mut Machine, processor: &'static str) {
    machine.processor = processor;
    machine.accelerator = Accelerator::Tcg;
}

/// One thread of the host runs all cores in turn, by a clock of instructions: however busy the host
/// is, no limit of time is met by it, and a failure comes again. Threads, more than the host has
/// processors, would stand in each other's way: the emulator reads its clock under a lock on which
/// they spin.
fn in_turn(machine: &mut Machine) {
    machine.instruction_ns = Some(IN_TURN_NS);
    machine.accelerator = Accelerator::Tcg;
}

/// On a host that has other things to do, lengths of time are judged where time is instructions,
/// and nowhere else.
fn exact(machine: &mut Machine) {
    machine.instruction_ns = Some(1);
    machine.accelerator = Accelerator::Tcg;
    machine.command_line.push(EXACT.to_owned());
}

/// All cores pass the same tests.
fn objects(bench: &Bench, machine: MachineType, cpus: u32, change: impl FnOnce(&mut Machine)) -> Result<()> {
    with_console(boot(bench, machine, cpus, change)?, |guest| judge(guest, cpus).map(drop))
}

/// Where time is instructions, members of four kernels begin to run in each window within a bound,
/// which the test has.
fn gang(bench: &Bench) -> Result<()> {
    let guest = boot(bench, MachineType::Q35, GANG_CPUS, |machine| {
        exact(machine);
        machine.command_line.push(format!("{ONLY}{GANG}"));
    })?;
    with_console(guest, |guest| {
        let all = read(guest, GANG_CPUS, &COMMON)?;
        ensure!(all.iter().eq([GANG]), "not that one test ran, but {all:?}");
        let told = guest.transcript.iter().filter_map(|line| line.split_once(GANG_TOLD)).next();
        println!("     {GANG_TOLD}{}", told.context("the gang's skew was not told")?.1);
        Ok(())
    })
}

/// On a machine of several nodes a segment lies in the node of its core.
fn nodes(bench: &Bench) -> Result<()> {
    let mut node_bytes = 0;
    let guest = boot(bench, MachineType::Q35, NODES, |machine| {
        machine.nodes = NODES;
        node_bytes = machine.memory_bytes / u64::from(NODES);
    })?;
    with_console(guest, |guest| {
        judge(guest, NODES)?;
        let found: Vec<_> = guest.transcript.iter().filter_map(|line| segment(line)).collect();
        let of_nodes: BTreeSet<u64> = found.iter().map(|(node, _)| *node).collect();
        ensure!(of_nodes.len() == NODES as usize, "not each node's core said where a segment lies: {found:x?}");
        let strange = found.iter().find(|(node, address)| address / node_bytes != *node);
        ensure!(strange.is_none(), "a segment lies in another node's memory: {strange:x?}");
        Ok(())
    })
}

/// `... memory of node 2 at 0x1234000`.
fn segment(line: &str) -> Option<(u64, u64)> {
    let (node, address) = line.split_once("memory of node ")?.1.split_once(" at 0x")?;
    Some((node.parse().ok()?, u64::from_str_radix(address.trim(), 16).ok()?))
}

/// Boots `conform` on each core.
pub fn boot(bench: &Bench, machine: MachineType, cpus: u32, change: impl FnOnce(&mut Machine)) -> Result<Guest> {
    let system = description::load(&place::root().join("system").join(SYSTEM))?;
    bench.boot_system(&system, machine, cpus, &[], |_, machine| {
        machine.memory_bytes += u64::from(cpus) * (MIB_PER_CORE << 20);
        change(machine);
        Ok(())
    })
}

/// What a core said.
#[derive(Default)]
struct Core {
    passed: BTreeSet<String>,
    /// Left to other cores.
    elsewhere: BTreeSet<String>,
    /// With nothing to do on this core, or this machine.
    absent: BTreeSet<String>,
    done: bool,
}

/// Reads until all cores are done with all suites of the checkout. Gives how many tests that are.
pub fn judge(guest: &mut Guest, cpus: u32) -> Result<usize> {
    judge_on(guest, cpus, &COMMON)
}

/// The same on a machine of another kind.
pub fn judge_on(guest: &mut Guest, cpus: u32, kind: &Kind) -> Result<usize> {
    let all = read(guest, cpus, kind)?;
    for suite in suites()? {
        let is_of_suite = |name: &String| name.split('/').next() == Some(&suite);
        ensure!(all.iter().any(is_of_suite), "no test of {suite} ran");
    }
    Ok(all.len())
}

/// What is other on a kind of machine.
pub struct Kind {
    /// How many times as long all takes.
    pub slower: u32,
    /// The end of the line of a test that needs a device of which the machine has none.
    pub lacking: Option<&'static str>,
}

const COMMON: Kind = Kind { slower: 1, lacking: None };

/// Reads until all cores are done: no test failed, and all cores passed those that apply to them.
/// Gives the names of all that ran.
fn read(guest: &mut Guest, cpus: u32, kind: &Kind) -> Result<BTreeSet<String>> {
    let end = Instant::now() + (BASE + PER_CORE * cpus) * kind.slower;
    let mut cores: BTreeMap<u32, Core> = BTreeMap::new();
    let mut failed = Vec::new();
    let mut told = Instant::now();
    while cores.values().filter(|core| core.done).count() < cpus as usize {
        let left = end.saturating_duration_since(Instant::now());
        let line = guest
            .expect(": core ", left.min((SILENCE + SILENCE_PER_CORE * cpus) * kind.slower))
            .with_context(|| missing(&cores, cpus))?;
        let Some((core, what)) = parse(&line) else { continue };
        let core = cores.entry(core).or_default();
        match what {
            What::Passed(name) => ensure!(core.passed.insert(name.to_owned()), "a test is there twice: {line}"),
            What::Elsewhere(name) => drop(core.elsewhere.insert(name.to_owned())),
            What::Absent(name) => drop(core.absent.insert(name.to_owned())),
            What::Failed if kind.lacking.is_some_and(|words| line.contains(words)) => {}
            What::Failed => failed.push(line),
            What::Done => core.done = true,
        }
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            println!("     {}", missing(&cores, cpus));
        }
    }
    if !failed.is_empty() {
        bail!("{} failed:\n    {}", failed.len(), failed.join("\n    "));
    }
    let known = |core: &Core| [&core.passed, &core.elsewhere, &core.absent].into_iter().flatten().cloned().collect();
    let all: BTreeSet<String> = known(cores.get(&0).context("core 0 said nothing")?);
    for (number, core) in &cores {
        if let Some(name) = all.symmetric_difference(&known(core)).next() {
            bail!("core {number} and core 0 do not know the same tests: {name}");
        }
    }
    let least = if cpus < 2 * LEAST { cpus } else { LEAST } as usize;
    let mut ran = BTreeSet::new();
    for name in all {
        let on = cores.values().filter(|core| core.passed.contains(&name)).count();
        let absent = cores.values().filter(|core| core.absent.contains(&name)).count();
        ensure!(on >= least.saturating_sub(absent), "{name} ran on {on} of {cpus} cores");
        // One core has no partner, and on many not all test at a time; else each test runs.
        ensure!(on > 0 || cpus == 1 || cpus > LEAST, "{name} ran on no core");
        if on > 0 {
            ran.insert(name);
        }
    }
    Ok(ran)
}

/// Suites of this checkout, by their files (`suite!("NAME"; ...`): a file that nobody runs is
/// found.
fn suites() -> Result<BTreeSet<String>> {
    let folder = place::root().join("apps/conform/src/suites");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name == "mod.rs") {
            continue;
        }
        let text = String::from_utf8(crate::host::files::read(&path)?)?;
        let name = suite(&text).with_context(|| format!("{} declares no suite", path.display()))?;
        ensure!(names.insert(name.to_owned()), "two suites are called {name}");
    }
    Ok(names)
}

fn suite(text: &str) -> Option<&str> {
    text.split_once("\nsuite!(\"")?.1.split('"').next()
}

enum What<'l> {
    Passed(&'l str),
    Elsewhere(&'l str),
    Absent(&'l str),
    Failed,
    Done,
}

/// `pelago: conform-3: core 3 SUITE/NAME ok`, `... elsewhere`, `... absent: why`,
/// `... FAILED: why`, `... done: ...`.
fn parse(line: &str) -> Option<(u32, What<'_>)> {
    let (name, rest) = line.strip_prefix("pelago: ")?.split_once(": core ")?;
    let (core, rest) = rest.split_once(' ')?;
    name.strip_prefix(COMPONENT)?;
    let (test, end) = rest.split_once(' ')?;
    let what = match end {
        _ if test == "done:" => What::Done,
        "ok" => What::Passed(test),
        "elsewhere" => What::Elsewhere(test),
        _ if end.starts_with("absent: ") => What::Absent(test),
        _ => What::Failed,
    };
    Some((core.parse().ok()?, what))
}

fn missing(cores: &BTreeMap<u32, Core>, cpus: u32) -> String {
    let wanted = (0..cpus).filter(|core| !cores.get(core).is_some_and(|core| core.done));
    let said = |core: u32| cores.get(&core).map_or(0, |core| core.passed.len());
    let list: Vec<_> = wanted.take(8).map(|core| format!("{core} ({} tests so far)", said(core))).collect();
    format!("not done are the tests of core {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let is = |line: &str| {
            parse(line)
                .map(|(core, what)| (core, matches!(what, What::Passed("ram/split")), matches!(what, What::Failed)))
        };
        assert_eq!(is("pelago: conform-3: core 3 ram/split ok"), Some((3, true, false)));
        assert_eq!(is("pelago: conform-3: core 3 ram/split FAILED: leaves 3 pages (line 4)"), Some((3, false, true)));
        assert!(matches!(parse("pelago: conform-0: core 0 done: 3 ok, 0 failed"), Some((0, What::Done))));
        assert!(matches!(
            parse("pelago: conform-1: core 1 gang/x absent: no such core"),
            Some((1, What::Absent("gang/x")))
        ));
        assert_eq!(is("pelago: core 3 is up"), None);
    }

    #[test]
    fn suites_are_those_of_the_files() {
        let all = suites().unwrap();
        assert!(all.contains("capability") && all.contains("user_semaphore") && all.len() >= 19, "{all:?}");
        assert_eq!(suite("use a;\nsuite!(\"b\"; alone: c);\n"), Some("b"));
        assert_eq!(suite("//! suite!(\"b\")"), None);
    }

    #[test]
    fn places_are_read() {
        assert_eq!(segment("pelago: conform-2: memory of node 2 at 0x1234000"), Some((2, 0x123_4000)));
        assert_eq!(segment("pelago: conform-2: core 2 segment/plain_copy ok"), None);
    }
}
