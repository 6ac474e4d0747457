//! Tier 2: a program of several cores (`apps/crew`) is made whole or not at all, shares memory at
//! one address, is listed with its dispatchers, and ends and comes again as one.

use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, anyhow, ensure};
use std::time::{Duration, Instant};
use system::Placement;

const SYSTEM: &str = "programs.toml";
const PROGRAM: &str = "crew";
const BALLAST: &str = "ballast";
/// Word for `crew` (`apps/crew/src/lib.rs`).
const LEAVE: &str = "crew.leave";
const KILL_BOTH: &str = "crew.kill-both";
/// How a line ends that counts others.
const MORE: &str = " more in this second)";
const LIMIT: Duration = Duration::from_secs(60);
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
const SHARING_CPUS_MAX: u32 = 2;
const LARGE_CPUS: u32 = 72;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in [1, 2, 4] {
            let name = format!("multicore-program/{}/{cpus}", machine.name());
            let scenario = Scenario::shared(2, name, move |bench| restarted(bench, machine, cpus));
            all.push(scenario.sharing(cpus <= SHARING_CPUS_MAX));
        }
    }
    for (machine, cpus) in [(MachineType::Q35, 2), (MachineType::Microvm, 4)] {
        let name = format!("multicore-program/no-memory/{}/{cpus}", machine.name());
        let scenario = Scenario::shared(2, name, move |bench| no_memory(bench, machine, cpus));
        all.push(scenario.sharing(cpus <= SHARING_CPUS_MAX));
    }
    for (machine, cpus) in [(MachineType::Q35, 1), (MachineType::Microvm, 2), (MachineType::Q35, 4)] {
        let name = format!("multicore-program/names/{}/{cpus}", machine.name());
        let scenario = Scenario::shared(2, name, move |bench| names(bench, machine, cpus));
        all.push(scenario.sharing(cpus <= SHARING_CPUS_MAX));
    }
    all.push(Scenario::shared(2, "multicore-program/unheard/q35/2".into(), unheard));
    all.push(Scenario::alone(2, format!("multicore-program/large/microvm/{LARGE_CPUS}"), large));
    all.push(Scenario::shared(2, "multicore-program/exit/q35/2".into(), leaves));
    all.push(Scenario::shared(2, "multicore-program/some/q35/4".into(), on_some));
    all
}

/// Boots the program on these cores (none: on every one), with ballast before it or without.
fn boot(
    bench: &Bench,
    machine: MachineType,
    cpus: u32,
    cores: &[u32],
    ballast: bool,
    change: impl FnOnce(&mut Machine),
) -> Result<Guest> {
    let mut system = description::load(&place::root().join("system").join(SYSTEM))?;
    // In the order of boot: the ballast is there before, or not at all.
    let place =
        system.components.iter().position(|component| component.name == BALLAST).context("no such component")?;
    let first = system.components.remove(place);
    let place =
        system.components.iter().position(|component| component.name == PROGRAM).context("no such component")?;
    if ballast {
        system.components.insert(place, first);
    }
    let program = system.components.iter_mut().find(|component| component.name == PROGRAM);
    if !cores.is_empty() {
        program.context("no such component")?.core = Placement::Each(cores.iter().copied().collect());
    }
    bench.boot_system(&system, machine, cpus, &[], |_, machine| {
        change(machine);
        Ok(())
    })
}

/// Of a dispatcher: name, core, state, KiB and microseconds.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    name: String,
    core: u32,
    state: String,
    kibibytes: u64,
    used_us: u64,
}

/// `crew-1 core 1 serving 1234 KiB 12 us`.
fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, "core", core, state, kibibytes, "KiB", used_us, "us"] = words[..] else { return None };
    let (kibibytes, used_us) = (kibibytes.parse().ok()?, used_us.parse().ok()?);
    Some(Line { name: name.into(), core: core.parse().ok()?, state: state.into(), kibibytes, used_us })
}

fn dispatchers(guest: &mut Guest) -> Result<Vec<Line>> {
    let lines = guest.control_lines("components -d", CONTROL_LIMIT)?;
    lines.iter().map(|line| parse(line).with_context(|| format!("no dispatcher's line: {line}"))).collect()
}

/// The program's dispatchers are on these cores, in that state; those that run have memory and had
/// time.
fn listed(guest: &mut Guest, cores: &[u32], state: &str) -> Result<()> {
    let all = dispatchers(guest)?;
    let own: Vec<&Line> = all.iter().filter(|line| line.name.starts_with(PROGRAM)).collect();
    let expected: Vec<(String, u32)> = cores.iter().map(|core| (format!("{PROGRAM}-{core}"), *core)).collect();
    let found: Vec<(String, u32)> = own.iter().map(|line| (line.name.clone(), line.core)).collect();
    ensure!(found == expected, "listed are {found:?}, not {expected:?}");
    for line in own {
        ensure!(line.state == state, "{line:?} is not {state}");
        let runs = state != "ended";
        ensure!(
            (line.kibibytes > 0) == runs && (line.used_us > 0) == runs,
            "{line:?}: memory and time of one that is {state}"
        );
    }
    Ok(())
}

/// Its one line in the list of components.
fn component(guest: &mut Guest) -> Result<String> {
    let lines = guest.control_lines("components", CONTROL_LIMIT)?;
    let own: Vec<&String> = lines.iter().filter(|line| line.starts_with(PROGRAM)).collect();
    ensure!(own.len() == 1, "{} lines of one program: {lines:?}", own.len());
    Ok(own[0].split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Each core's kernel has the domains that are listed, and its monitor's: nothing is left of those
/// that ended.
fn nothing_is_left(guest: &mut Guest, cpus: u32) -> Result<()> {
    let living = dispatchers(guest)?;
    let lines = guest.control_lines("cores", CONTROL_LIMIT)?;
    ensure!(lines.len() == cpus as usize, "{lines:?}");
    for (core, line) in (0..cpus).zip(&lines) {
        let listed = living.iter().filter(|one| one.core == core && one.state != "ended").count();
        for object in ["domain", "context"] {
            let counted = number(line, object).with_context(|| format!("no {object} in {line}"))?;
            ensure!(counted == listed + 1, "core {core} has {counted} times {object}, and {listed} are listed: {line}");
        }
    }
    Ok(())
}

/// What follows a word in a list of counts: `..., domain 3, ...`.
fn number(line: &str, word: &str) -> Option<usize> {
    line.split([',', ';']).find_map(|part| part.trim().strip_prefix(word)?.trim().parse().ok())
}

fn times(guest: &Guest, words: &str) -> usize {
    guest.transcript.iter().filter(|line| line.contains(words)).count()
}

/// All met, in that generation.
fn met(guest: &mut Guest, cores: &[u32], generation: u64) -> Result<()> {
    let said = format!(
        "crew-{}: generation {generation}: {} dispatchers met at one address, {cores:?}; memory of {generation} generations",
        cores[0],
        cores.len()
    );
    guest.expect(&said, LIMIT).map(drop)
}

/// Who serves a contract by the name cache of the console's core, and what that did: hits, misses,
/// dropped.
fn looked_up(guest: &mut Guest, contract: &str) -> Result<(Vec<String>, [u64; 3])> {
    let lines = guest.control_lines(&format!("names {contract}"), CONTROL_LIMIT)?;
    let last = guest.control(&format!("names {contract}"), CONTROL_LIMIT)?;
    let counts = last.split_once(": ").map_or("", |(_, counts)| counts).split(", ");
    let counts: Vec<u64> = counts.filter_map(|count| count.split(' ').next()?.parse().ok()).collect();
    let counts = counts.try_into().map_err(|_| anyhow!("no counts: {last}"))?;
    Ok((lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect(), counts))
}

/// Each core's monitor keeps who serves what: asked for once, answered from there on; right again
/// after the program comes again, and known while the name server is away.
fn names(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let cores: Vec<u32> = (0..cpus).collect();
    let of = |generation: u64| -> Vec<String> {
        cores.iter().map(|core| format!("{PROGRAM}-{core} core {core} generation {generation}")).collect()
    };
    with_console(boot(bench, machine, cpus, &[], false, |_| ())?, |guest| {
        // Each dispatcher looked up twice in its own core's cache.
        met(guest, &cores, 1)?;
        guest.expect("pelago: ready", LIMIT)?;
        said(guest, "crew-0: follows the name server", 1)?;
        // Nearest first, and the end of the list is an answer too.
        let (all, [_, misses, _]) = looked_up(guest, PROGRAM)?;
        ensure!(all == of(1), "{all:?}");
        let (all, [hits, same, dropped]) = looked_up(guest, PROGRAM)?;
        ensure!(all == of(1) && same == misses, "{all:?}: {same} misses, {misses} before");
        let (_, [more, ..]) = looked_up(guest, PROGRAM)?;
        ensure!(more == hits + 2 * (u64::from(cpus) + 1), "{more} hits after {hits} and two lists more");
        let reply = guest.control(&format!("chaos kill {PROGRAM}-{}", cpus - 1), CONTROL_LIMIT)?;
        ensure!(reply.starts_with("ok "), "{reply}");
        met_before(guest, &cores, 2)?;
        let (all, [_, misses, now]) = looked_up(guest, PROGRAM)?;
        ensure!(all == of(2) && misses > same && now > dropped, "{all:?}, {misses} misses, {now} dropped");
        let (all, _) = looked_up(guest, "nobody")?;
        ensure!(all.is_empty(), "{all:?} serve what nobody serves");
        // In each generation crew-0 has itself connected to the name server; what it asked for
        // outlives that server, too.
        said(guest, "crew-0: follows the name server", 2)?;
        let reply = guest.control("chaos kill names", CONTROL_LIMIT)?;
        ensure!(reply.starts_with("ok "), "{reply}");
        said(guest, "crew-0: reaches the name server again", 1)?;
        // It starts empty and is told again; what was known meanwhile may be nothing, and is
        // corrected.
        let deadline = Instant::now() + LIMIT;
        while looked_up(guest, PROGRAM)?.0 != of(2) {
            if Instant::now() >= deadline {
                return Err(guest.late("the restarted name server is not told who there is".into()));
            }
        }
        Ok(())
    })
}

/// One of it is killed, faults or hangs, now on one core, now on another; and it comes again as a
/// whole, also after those did whom it was made by and speaks with.
fn restarted(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let cores: Vec<u32> = (0..cpus).collect();
    let last = cpus - 1;
    with_console(boot(bench, machine, cpus, &[], false, |_| ())?, |guest| {
        met(guest, &cores, 1)?;
        guest.expect("pelago: ready", LIMIT)?;
        listed(guest, &cores, "serving")?;
        let line = component(guest)?;
        ensure!(line.starts_with(&format!("crew cores: {cpus} generation 1 running ")), "{line}");
        let mut generation = 1;
        for (what, name, cause) in [
            ("kill", format!("crew-{last}"), "killed"),
            ("fault", "crew".into(), "exception 14"),
            ("hang", format!("crew-{last}"), "stalled"),
            ("kill", "supervisor".into(), ""),
            ("kill", "names".into(), ""),
            ("fault", format!("crew-{last}"), "exception 14"),
        ] {
            let reply = guest.control(&format!("chaos {what} {name}"), CONTROL_LIMIT)?;
            ensure!(reply.starts_with("ok "), "chaos {what} {name}: {reply}");
            if name.starts_with(PROGRAM) {
                generation += 1;
                ensure!(reply.contains(&format!("{name}; generation {generation} serves")), "{reply}");
                met_before(guest, &cores, generation)?;
                let told = format!("supervisor: crew restarted, generation {generation}, {cause}");
                // Within a second of the last such line; the next failure waits for it, or that
                // would be told instead.
                guest.heard(&told, LIMIT)?;
                ensure!(times(guest, &told) == 1, "`{told}` was said {} times", times(guest, &told));
            }
            listed(guest, &cores, "serving")?;
            let line = component(guest)?;
            ensure!(line.starts_with(&format!("crew cores: {cpus} generation {generation} running ")), "{line}");
            nothing_is_left(guest, cpus)?;
        }
        for (request, says) in [
            ("components -x", "takes -d"),
            ("chaos kill crew-99", "no component crew-99"),
            ("chaos kill crew-", "no component crew-"),
        ] {
            let reply = guest.control(request, CONTROL_LIMIT)?;
            ensure!(reply.starts_with("error ") && reply.contains(says), "{request}: {reply}");
        }
        Ok(())
    })
}

/// The same of what may have been said before the answer to a request.
fn met_before(guest: &mut Guest, cores: &[u32], generation: u64) -> Result<()> {
    let is_there =
        |guest: &Guest| times(guest, &format!("generation {generation}: {} dispatchers met", cores.len())) > 0;
    if is_there(guest) {
        return Ok(());
    }
    met(guest, cores, generation)
}

/// It is said so many times, some perhaps before now.
fn said(guest: &mut Guest, words: &str, count: usize) -> Result<()> {
    while times(guest, words) < count {
        guest.expect(words, LIMIT)?;
    }
    Ok(())
}

/// Spawn says each refusal, and the supervisor in a line a second, with a count of the others.
fn all_told(guest: &mut Guest, refused: &str) -> Result<()> {
    const TOLD: &str = "supervisor: crew does not start: Server(NoMemory)";
    let counts = |line: &String| line.contains(TOLD) && line.ends_with(MORE);
    while !guest.transcript.iter().any(counts) {
        guest.expect(TOLD, LIMIT)?;
    }
    let last = guest.transcript.iter().position(counts).context("no line that counts others")?;
    let lines = &guest.transcript[..=last];
    let said = lines.iter().filter(|line| line.contains(refused)).count();
    let more = lines[last].strip_suffix(MORE).and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    let told = lines.iter().filter(|line| line.contains(TOLD)).count() + more.context("no count")?;
    // The supervisor may not have heard of the last.
    ensure!(said == told || said == told + 1, "{said} refusals were said and {told} told");
    Ok(())
}

/// A core that has no memory for its dispatcher refuses all of them, and nothing of the others is
/// left.
fn no_memory(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let cores: Vec<u32> = (0..cpus).collect();
    with_console(boot(bench, machine, cpus, &[], true, |_| ())?, |guest| {
        guest.expect("pelago: ready", LIMIT)?;
        let refused = format!(
            "spawn: crew: core {} refuses (NoMemory), so it does not start; {} domains were ended",
            cpus - 1,
            cpus - 1
        );
        let missing = times(guest, "supervisor: not serving: crew");
        ensure!(missing == 1, "that it does not serve was said {missing} times");
        all_told(guest, &refused)?;
        ensure!(times(guest, "crew-") == times(guest, "no room for crew-"), "a dispatcher ran");
        listed(guest, &cores, "ended")?;
        let line = component(guest)?;
        // A shortage may pass: it is tried again, ever more seldom (decision 76), and so it is not
        // said to have stopped.
        ensure!(line.starts_with(&format!("crew cores: {cpus} generation 0 running 0 KiB 0 ms ")), "{line}");
        nothing_is_left(guest, cpus)
    })
}

/// One that ends by itself is the program's end: it is done.
fn leaves(bench: &Bench) -> Result<()> {
    let change = |machine: &mut Machine| machine.command_line.push(LEAVE.into());
    with_console(boot(bench, MachineType::Q35, 2, &[], false, change)?, |guest| {
        guest.expect("crew-1: leaves", LIMIT)?;
        guest.expect("supervisor: crew is done", LIMIT)?;
        guest.expect("pelago: ready", LIMIT)?;
        listed(guest, &[0, 1], "ended")?;
        let line = component(guest)?;
        ensure!(line.starts_with("crew cores: 2 generation 1 stopped 0 KiB"), "{line}");
        nothing_is_left(guest, 2)
    })
}

/// What dies while the supervisor is away is noticed by the next one, and comes in its next
/// generation: in its first it would take up rings that are under way.
fn unheard(bench: &Bench) -> Result<()> {
    let change = |machine: &mut Machine| machine.command_line.push(KILL_BOTH.into());
    with_console(boot(bench, MachineType::Q35, 2, &[], false, change)?, |guest| {
        met(guest, &[0, 1], 1)?;
        guest.expect("supervisor: names restarted, generation 2, killed", LIMIT)?;
        let lines = guest.control_lines("components", CONTROL_LIMIT)?;
        for (name, generation) in [("names", 2), ("supervisor", 2), ("crew", 1)] {
            let line = lines.iter().find(|line| line.starts_with(name)).context("a component is not listed")?;
            ensure!(line.contains(&format!("generation {generation} ")) && line.contains(" running "), "{line}");
        }
        let deadline = Instant::now() + LIMIT;
        while looked_up(guest, PROGRAM)?.0.len() != 2 {
            if Instant::now() >= deadline {
                return Err(guest.late("the restarted name server is not told who there is".into()));
            }
        }
        listed(guest, &[0, 1], "serving")
    })
}

/// With more dispatchers than channels of a contract wait to be taken, or calls at once.
fn large(bench: &Bench) -> Result<()> {
    let cores: Vec<u32> = (0..LARGE_CPUS).collect();
    with_console(boot(bench, MachineType::Microvm, LARGE_CPUS, &[], false, |_| ())?, |guest| {
        met(guest, &cores, 1)?;
        guest.expect("pelago: ready", LIMIT)?;
        listed(guest, &cores, "serving")?;
        let (all, _) = looked_up(guest, PROGRAM)?;
        ensure!(all.len() == cores.len() && all[0].starts_with("crew-0 "), "{all:?}");
        let refused = times(guest, "was not told of");
        ensure!(refused == 0, "{refused} channels were not taken");
        // So many cores in turn may take longer than an answer is waited for.
        guest.control(&format!("chaos kill {PROGRAM}-{}", LARGE_CPUS - 1), CONTROL_LIMIT)?;
        met_before(guest, &cores, 2)
    })
}

/// On some cores; those that the machine has not are left out.
fn on_some(bench: &Bench) -> Result<()> {
    with_console(boot(bench, MachineType::Q35, 4, &[1, 3, 9], false, |_| ())?, |guest| {
        met(guest, &[1, 3], 1)?;
        guest.expect("pelago: ready", LIMIT)?;
        listed(guest, &[1, 3], "serving")?;
        let reply = guest.control("chaos kill crew-3", CONTROL_LIMIT)?;
        ensure!(reply.contains("crew-3; generation 2 serves"), "{reply}");
        listed(guest, &[1, 3], "serving")?;
        nothing_is_left(guest, 4)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = Line { name: "crew-1".into(), core: 1, state: "serving".into(), kibibytes: 92, used_us: 1234 };
        assert_eq!(parse("crew-1           core 1   serving        92 KiB       1234 us"), Some(line));
        assert_eq!(parse("crew             cores: 2   generation 1   running       92 KiB"), None);
        let counts = "core 1   monitor  claimed by monitor 5 KiB used; ram 1, domain 12, context 4";
        assert_eq!(
            (number(counts, "domain"), number(counts, "context"), number(counts, "x")),
            (Some(12), Some(4), None)
        );
    }
}
