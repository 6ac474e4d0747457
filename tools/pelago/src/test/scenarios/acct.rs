//! Tier 2: `acct` (NOVA, section 2). All time of a core is in its books: domains that are there,
//! those that have ended, the kernel and idling are the clock, within 1 %. A client pays for what
//! servers do in its calls: `acct/calls/*`; each of two as much as a trace of its calls takes:
//! `acct/traced/*`. What a server does for clients that come by channels is
//! told by client: `acct/clients/*`. What comes from the network unasked is on the bill of the
//! card's driver and of IP, and of nobody else: `acct/flood/*`.

use super::crypto_calls;
use super::damaged_frames::{self, Wire};
use super::disk_calls::{self, FOREVER};
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Accelerator;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::time::Duration;
use system::{Budget, Placement, System};

const LIMIT: Duration = Duration::from_secs(60);
/// A shell that computes, starts programs, waits, and stays.
const SCRIPT: &str = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); seq 1000 | tail -n 1; done; sleep 1; echo worked; cat";
/// A core's time may differ from what its books say by one part in so many.
const PART: u64 = 100;
/// Microseconds by which sums of rounded numbers may differ.
const ROUNDED: u64 = 40;
/// Of a core's parts.
const ENDED: usize = 1;
const IDLE: usize = 3;
/// So often the books are asked for until no domain ended meanwhile.
const ASKED_MAX: usize = 10;
/// So many times what a server that is asked by calls alone pays for itself its client pays at
/// least: its own is to pass on that requests have ended.
const CLIENTS_MIN: u64 = 8;

/// Reads of 128 KiB whose calls each of two clients traces.
const READERS: [(&str, u64); 2] = [("disk-calls", 120), ("sleeper", 40)];
/// Hundredths of what a client traced that servers ran on its time: the rest is its own, before the
/// kernel enters the server and after it came back, and the disk's handler's, which interrupts.
const TRACED: std::ops::RangeInclusive<u64> = 95..=100;
/// What the disk ran for the first client, in hundredths of what it ran for the second, which reads
/// a third of it.
const OF_DISK: std::ops::RangeInclusive<u64> = 250..=330;

/// Files that one program asks for, and another a quarter of it: then they stay.
const ASKED: u64 = 2000;
const TIMES: u64 = 4;
/// How much more was done for the first, in hundredths.
const RATIO: std::ops::RangeInclusive<u64> = 350..=450;
/// Of a server's time hundredths that are done for the two.
const FOR_BOTH_MIN: u64 = 40;

/// A program that computes for ever.
const COMPUTES: &str = "echo begins; while :; do :; done";
/// Frames that nobody asked for.
const FLOOD: usize = 8000;
/// Who has the card.
const DRIVER: &str = "virtio-net";
/// Of a core without the network's components, so many hundredths are the program's.
const OFFLOADED_MIN: u64 = 90;
/// Microseconds that the driver takes for one, at least.
const FRAME_US: u64 = 1;
/// Of the driver, where it has one: less than it takes for the flood.
const BUDGET: Budget = Budget { slice_us: 100, period_us: 20_000 };
/// Budgets that it may have had beyond those of the periods between two questions: of the two that
/// they lie in.
const BUDGETS_MORE: u64 = 2;
/// Microseconds by which it may have overrun the last one: they are missing in those that follow.
const OVERRUN_US: u64 = 100;

pub fn scenarios() -> Vec<Scenario> {
    let all = [(MachineType::Q35, 1), (MachineType::Q35, 4), (MachineType::MicrovmMmio, 2)];
    let whole = all.map(|(machine, cpus)| {
        Scenario::shared(2, format!("acct/{}/{cpus}", machine.name()), move |bench| whole(bench, machine, cpus))
    });
    let clients =
        [1, 2].map(|cpus| Scenario::shared(2, format!("acct/clients/q35/{cpus}"), move |bench| clients(bench, cpus)));
    whole
        .into_iter()
        .chain([Scenario::shared(2, "acct/calls/q35/1".into(), calls)])
        .chain([Scenario::shared(2, "acct/traced/q35/1".into(), traced)])
        .chain(clients)
        .chain([
            Scenario::shared(2, "acct/flood/q35/1".into(), flood),
            Scenario::shared(2, "acct/flood/budget/q35/1".into(), flood_within_budget),
            Scenario::shared(2, "acct/flood/offload/q35/2".into(), flood_on_another_core),
        ])
        .collect()
}

/// A core's books.
pub struct Core {
    number: u32,
    /// Microseconds.
    clock: u64,
    /// Those of domains, of ended ones ([`ENDED`]), of the kernel, and idle ones ([`IDLE`]).
    parts: [u64; 4],
    pub domains: BTreeMap<String, Domain>,
}

/// How long a domain ran, in microseconds, and by whom and for whom how much.
pub struct Domain {
    pub ran: u64,
    paid: BTreeMap<String, u64>,
    /// How long it had run when it was asked for whom, and the answer; none: for nobody.
    done: Option<(u64, BTreeMap<String, u64>)>,
}

impl Domain {
    fn paid_by(&self, name: &str) -> u64 {
        self.paid.get(name).copied().unwrap_or(0)
    }
}

fn ask(guest: &mut Guest) -> Result<Vec<Core>> {
    read(&guest.control_lines("acct", LIMIT)?)
}

/// The books, while no domain ends: one that ends between a core's line and its own is in neither.
fn ask_while_none_ends(guest: &mut Guest) -> Result<Vec<Core>> {
    let ended = |cores: &[Core]| cores.iter().map(|core| core.parts[ENDED]).collect::<Vec<_>>();
    let mut before = ask(guest)?;
    for _ in 0..ASKED_MAX {
        let after = ask(guest)?;
        if ended(&before) == ended(&after) {
            return Ok(before);
        }
        before = after;
    }
    bail!("domains end all the time, though nothing starts any")
}

/// What `acct` says.
pub fn read(lines: &[String]) -> Result<Vec<Core>> {
    let (mut cores, mut last) = (Vec::<Core>::new(), String::new());
    for line in lines {
        let read = if let Some(rest) = line.strip_prefix("core ") {
            core(rest).map(|core| cores.push(core))
        } else if let Some(done) = done(line) {
            let domain = cores.last_mut().and_then(|core| core.domains.get_mut(&last));
            domain.map(|domain| domain.done = Some(done))
        } else {
            let read = domain(line).zip(cores.last_mut());
            read.map(|((name, domain), core)| {
                last.clone_from(&name);
                core.domains.insert(name, domain);
            })
        };
        read.with_context(|| format!("acct says `{line}`"))?;
    }
    Ok(cores)
}

/// From `N CLOCK us: domains A us, ended B us, kernel C us, idle D us, nobody E us`.
fn core(rest: &str) -> Option<Core> {
    let (head, parts) = rest.split_once(" us: ")?;
    let (number, clock) = head.trim().split_once(' ')?;
    let mut parts = parts.split(", ");
    let mut part = |name: &str| parts.next()?.strip_prefix(name)?.trim().strip_suffix(" us")?.parse().ok();
    let parts = [part("domains")?, part("ended")?, part("kernel")?, part("idle")?];
    Some(Core { number: number.parse().ok()?, clock: clock.trim().parse().ok()?, parts, domains: BTreeMap::new() })
}

/// From `NAME RAN us, paid by NAME N us, ...`.
fn domain(line: &str) -> Option<(String, Domain)> {
    let (head, paid) = line.split_once(" us, paid by")?;
    let (name, ran) = head.trim().split_once(' ')?;
    Some((name.to_owned(), Domain { ran: ran.trim().parse().ok()?, paid: parts(paid)?, done: None }))
}

/// From `RAN us, done for NAME N us, ...`.
fn done(line: &str) -> Option<(u64, BTreeMap<String, u64>)> {
    let (ran, done) = line.split_once(" us, done for")?;
    Some((ran.trim().parse().ok()?, parts(done)?))
}

/// From `NAME N us, ...`.
fn parts(text: &str) -> Option<BTreeMap<String, u64>> {
    let one = |part: &str| {
        let (name, us) = part.trim().strip_suffix(" us")?.rsplit_once(' ')?;
        Some((name.to_owned(), us.parse().ok()?))
    };
    text.split(", ").filter(|part| !part.trim().is_empty()).map(one).collect()
}

/// What the books say of each core is all of its time, and what they say of each domain is all that
/// it ran.
fn check(cores: &[Core]) -> Result<()> {
    for Core { number, clock, parts, domains } in cores {
        let (sum, allowed) = (parts.iter().sum::<u64>(), clock / PART);
        println!("     core {number}: {sum} us of {clock} us are in its books");
        ensure!(sum.abs_diff(*clock) <= allowed, "core {number}: {parts:?} us are {sum} of {clock} us");
        ensure!(domains.contains_key(&format!("monitor-{number}")), "core {number} has no monitor");
        // They were asked after the core was, one after another, and ran meanwhile.
        let ran: u64 = domains.values().map(|domain| domain.ran).sum();
        ensure!(ran + ROUNDED >= parts[0], "core {number}: its domains' {ran} us are less than {} us", parts[0]);
        for (name, Domain { ran, paid, done }) in domains {
            let sum = paid.values().sum::<u64>();
            ensure!(sum <= *ran && sum + ROUNDED >= *ran, "{name} ran {ran} us, of which {sum} us were paid");
            let Some((ran, done)) = done else { continue };
            let sum = done.values().sum::<u64>();
            ensure!(sum <= ran + ran / PART && sum + ROUNDED >= *ran, "{name}: {sum} us were done in {ran} us");
        }
    }
    Ok(())
}

fn whole(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    with_console(bench.boot(machine, cpus, &["busybox", "sh", "-c", SCRIPT], |_, _| Ok(()))?, |guest| {
        guest.expect("worked", LIMIT)?;
        let cores = ask_while_none_ends(guest)?;
        ensure!(cores.len() == cpus as usize, "acct tells of {} cores", cores.len());
        check(&cores)?;
        let [ended, idle] = [ENDED, IDLE].map(|part| cores.iter().map(|core| core.parts[part]).sum::<u64>());
        ensure!(ended > 0, "40 programs ended, and took no time");
        ensure!(idle > 0, "the shell slept, and no core idled");
        Ok(())
    })
}

/// Who calls pays for all that is done for it in its calls, by each server on the way. By a clock
/// of instructions: a host that stops a server as it runs for itself would seem its work. Both
/// clients have attached before the first look at the books: at an attach `crypto` has what an
/// earlier life of the client left under way carried to its end, on its own time, and may pay for
/// the disk then.
fn calls(bench: &Bench) -> Result<()> {
    let image = disk_calls::image()?;
    let (system, words) = (crypto_calls::description()?, [FOREVER]);
    with_console(crypto_calls::boot_by(bench, &system, image.path(), &words, Some(1))?, |guest| {
        guest.heard("disk-calls: round 1 is there", LIMIT)?;
        guest.heard("sleeper: asked for ", LIMIT)?;
        let before = ask(guest)?;
        guest.catch_up();
        // The first of them may have been there before.
        for _ in 0..3 {
            guest.expect("disk-calls: round ", LIMIT)?;
        }
        let after = ask(guest)?;
        check(&after)?;
        for name in ["crypto", "disk"] {
            let [before, after] = [&before, &after].map(|cores| cores[0].domains.get(name));
            let (before, after) = before.zip(after).with_context(|| format!("there is no {name}"))?;
            let paid = |payer: &str| after.paid_by(payer) - before.paid_by(payer);
            let [client, own] = ["disk-calls", "itself"].map(paid);
            println!("     {name}: since both attached its client paid {client} us, and {name} {own} us");
            ensure!(paid("crypto") == 0, "crypto pays for {name}, whose calls are its clients'");
            ensure!(client > 0 && own > 0, "{name} ran on its client's time {client} us, on its own {own} us");
            let is_asked_only_by_calls = name == "crypto";
            ensure!(!is_asked_only_by_calls || client >= CLIENTS_MIN * own, "{name}: {client} us against {own} us");
        }
        Ok(())
    })
}

/// All work for a request is on the bill of who asked: what both servers on the way ran on a
/// client's time is what its calls took by the clock, of instructions, as it traced them itself.
fn traced(bench: &Bench) -> Result<()> {
    let image = disk_calls::image()?;
    let words = READERS.map(|(name, times)| format!("{name}.traced={times}"));
    let words = words.each_ref().map(String::as_str);
    with_console(crypto_calls::boot_by(bench, &crypto_calls::description()?, image.path(), &words, Some(1))?, |guest| {
        for (name, times) in READERS {
            guest.heard(&format!("{name}: {times} reads took "), LIMIT)?;
        }
        let cores = ask(guest)?;
        check(&cores)?;
        let mut of_disk = Vec::new();
        for (name, times) in READERS {
            let took = disk_calls::number(guest, &format!("{name}: {times} reads took "), " ns by the clock, in ")?;
            let by_clock = took / 1000;
            let paid = |server: &str| cores[0].domains.get(server).map_or(0, |domain| domain.paid_by(name));
            let (crypto, disk) = (paid("crypto"), paid("disk"));
            println!("     {name} traced {by_clock} us; it paid {crypto} us of crypto and {disk} us of disk");
            let part = 100 * (crypto + disk) / by_clock.max(1);
            ensure!(TRACED.contains(&part), "{name} paid {part} hundredths of what it traced");
            of_disk.push(disk);
        }
        let ratio = 100 * of_disk[0] / of_disk[1].max(1);
        ensure!(OF_DISK.contains(&ratio), "the disk ran {of_disk:?} us for two who read 3 parts and 1");
        Ok(())
    })
}

/// Two programs ask the server of files, one four times as often as the other: that much more is
/// done for it. By a clock of instructions, so that nothing else on the host is in it.
fn clients(bench: &Bench, cpus: u32) -> Result<()> {
    let mut system = bench.system().clone();
    system.linux.core = Placement::Preferred(vec![cpus - 1]);
    let asks = "i=0; while [ $i -lt $1 ]; do i=$((i+1)); [ -e /etc ]; done; echo $1 asked; while :; do sleep 99; done";
    let script = format!("ask() {{ {asks}; }}; echo begins; read go; ask {ASKED} & ask {} & cat", ASKED / TIMES);
    let guest =
        bench.boot_system(&system, MachineType::Q35, cpus, &["busybox", "sh", "-c", &script], |_, machine| {
            machine.instruction_ns = Some(1);
            machine.accelerator = Accelerator::Tcg;
            Ok(())
        })?;
    with_console(guest, |guest| {
        guest.expect("begins", LIMIT)?;
        // From the first question on it is told for whom servers work.
        ask(guest)?;
        guest.tell(b"go\n")?;
        guest.expect(&format!("{} asked", ASKED / TIMES), LIMIT)?;
        guest.expect(&format!("{ASKED} asked"), LIMIT)?;
        let cores = ask(guest)?;
        let fs = cores[0].domains.get("fs").context("there is no fs")?;
        let (ran, done) = fs.done.as_ref().context("fs worked for nobody")?;
        let mut programs: Vec<_> = done.iter().filter(|(name, _)| name.starts_with("linux-")).collect();
        programs.sort_by_key(|(_, us)| std::cmp::Reverse(**us));
        println!("     fs ran {ran} us, paid by {:?}, done for {done:?}", fs.paid);
        check(&cores)?;
        let [(often, most), (seldom, less), ..] = programs[..] else { bail!("fs worked for less than two programs") };
        let ratio = 100 * most / less.max(&1);
        ensure!(RATIO.contains(&ratio), "{often} asked {TIMES} times as often as {seldom}: {ratio} hundredths as much");
        ensure!(100 * (most + less) >= FOR_BOTH_MIN * ran, "of {ran} us only {most} and {less} were done for the two");
        // On another core it pays for what it does for them, and that is seen.
        let theirs = [often, seldom].map(|name| fs.paid_by(name));
        ensure!(cpus == 1 || theirs == [0, 0], "programs of another core paid {theirs:?} us");
        Ok(())
    })
}

/// What the books say before a flood of unasked-for ARP, beside which a program computes on core 0,
/// and behind it.
fn flooded(bench: &Bench, system: &System, cpus: u32, instruction_ns: Option<u32>) -> Result<[Vec<Core>; 2]> {
    let (wire, ports) = Wire::new()?;
    let guest =
        bench.boot_system(system, MachineType::Q35, cpus, &["busybox", "sh", "-c", COMPUTES], |_, machine| {
            machine.frames = Some(ports);
            machine.instruction_ns = instruction_ns;
            machine.accelerator = Accelerator::Tcg;
            machine.command_line.push(damaged_frames::ADDRESSES.to_owned());
            Ok(())
        })?;
    let mut books = [Vec::new(), Vec::new()];
    with_console(guest, |guest| {
        guest.expect("begins", LIMIT)?;
        wire.ping(1).context("before the flood")?;
        books[0] = ask(guest)?;
        wire.flood(FLOOD)?;
        wire.ping(2).context("after the flood")?;
        books[1] = ask(guest)?;
        check(&books[1])
    })?;
    Ok(books)
}

/// A flood of unasked-for ARP is paid by the card's driver, whose interrupts have time of their
/// own, and by IP: the program that it interrupts pays nothing.
fn flood(bench: &Bench) -> Result<()> {
    let [before, after] = flooded(bench, bench.system(), 1, None)?;
    for name in ["virtio-net", "ip"] {
        let books = |cores: &[Core]| -> Result<(u64, u64)> {
            let domain = cores[0].domains.get(name).with_context(|| format!("there is no {name}"))?;
            Ok((domain.ran, ["itself", "virtio-net", "ip"].map(|payer| domain.paid_by(payer)).iter().sum()))
        };
        let (before, after) = (books(&before)?, books(&after)?);
        let (ran, own) = (after.0 - before.0, after.1 - before.1);
        println!("     {FLOOD} frames: {name} ran {ran} us, of which it and those below it paid {own} us");
        ensure!(name == "ip" || ran >= FRAME_US * FLOOD as u64, "{name} ran {ran} us for {FLOOD} frames");
        ensure!(ran.saturating_sub(own) * PART <= ran + ROUNDED * PART, "others paid for {name}: {ran} us, {own} us");
    }
    Ok(())
}

/// A driver with a budget takes no more of its core, whatever comes from the network. By a clock of
/// instructions, so that the host takes none of it away.
fn flood_within_budget(bench: &Bench) -> Result<()> {
    let mut system = bench.system().clone();
    let driver = system.components.iter_mut().find(|component| component.name == DRIVER);
    driver.context("there is no driver")?.budget = Some(BUDGET);
    let [before, after] = flooded(bench, &system, 1, Some(1))?;
    let paid = |cores: &[Core]| -> u64 {
        let by_driver =
            |(name, domain): (&String, &Domain)| domain.paid_by(if name == DRIVER { "itself" } else { DRIVER });
        cores[0].domains.iter().map(by_driver).sum()
    };
    let (clock, paid) = (after[0].clock - before[0].clock, paid(&after) - paid(&before));
    let budgets = clock / u64::from(BUDGET.period_us) + BUDGETS_MORE;
    let most = budgets * u64::from(BUDGET.slice_us) + OVERRUN_US;
    println!("     {FLOOD} frames in {clock} us: {DRIVER} had {paid} us, and may have {most} us");
    ensure!(paid > 0 && paid <= most, "{DRIVER} had {paid} us of {clock} us: its budget is {BUDGET:?}");
    Ok(())
}

/// A program on a core without the network's components has all of it, whatever comes.
fn flood_on_another_core(bench: &Bench) -> Result<()> {
    let [before, after] = flooded(bench, bench.system(), 2, None)?;
    for name in [DRIVER, "ip"] {
        ensure!(after[1].domains.contains_key(name), "{name} is not on core 1");
        ensure!(!after[0].domains.contains_key(name), "{name} is on core 0");
    }
    let [programs, idle] = [0, 3].map(|part| after[0].parts[part] - before[0].parts[part]);
    let clock = after[0].clock - before[0].clock;
    println!("     {FLOOD} frames in {clock} us: core 0 ran programs for {programs} us and idled {idle} us");
    ensure!(100 * programs >= OFFLOADED_MIN * clock, "of {clock} us programs ran {programs} us on core 0");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_are_read_and_must_balance() {
        let read = |clock: u64, paid: u64| {
            let line = format!("0    {clock} us: domains 60 us, ended 20 us, kernel 10 us, idle 9910 us, nobody 0 us");
            let mut core = core(&line).unwrap();
            let line = format!("  monitor-0   100 us, paid by itself {paid} us, some client 40 us");
            core.domains.extend(domain(&line));
            check(&[core])
        };
        assert!(read(10_000, 60).is_ok() && read(10_099, 30).is_ok());
        assert!(read(10_200, 60).is_err() && read(9800, 60).is_err());
        assert!(read(10_000, 61).is_err() && read(10_000, 19).is_err());
        assert!(domain("  fs  10 us, paid by").is_some_and(|(name, domain)| name == "fs" && domain.paid.is_empty()));
        assert!(core("0 17 us: domains 1 us, ended 2 us").is_none() && domain("fs").is_none());
        let (ran, by) = done("      12 us, done for linux-2 8 us, no task 4 us").unwrap();
        assert!(ran == 12 && by["linux-2"] == 8 && by["no task"] == 4 && done("fs 1 us, paid by").is_none());
    }
}
