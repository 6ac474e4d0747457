//! Tier 4: eight clients download and upload at once while components die and hang, one soon after
//! the other: no transfer fails, no byte differs, no client waits longer than a second, and
//! where only the driver dies TCP sends nothing again.
//!
//! - `transfers/mixed/*`: any component that can be started again; `transfers/victim/NAME/*`: one
//!   of them.
//! - The next fault comes 0.3 s after the last was answered, that is after the component serves
//!   again, and not before a transfer has begun meanwhile.
//! - Victims and ways come from a seed, which is printed. `PELAGO_SEED` gives another.
//! - The servers are Debian's busybox: `httpd` gives files, and `awk` behind `nc` takes what is
//!   uploaded and compares it with what it should be.
//! - `transfers/handlers/*`: deaths of the card's driver, with one handler of its card or with two,
//!   under fewer clients.
//! - Each download has a connection of its own, and all uploads of a client have one in common,
//!   which therefore lasts through all faults.
//! - Each client has a port of its own at the emulator's network, which takes one connection at a
//!   time at each.
//!
//! How many frames reached the card and how many the driver took is not compared: the system has no
//! counters of that which outlive the driver. What was lost on the way in shows where the other
//! side sends it again; that is printed.

mod client;
mod content;
mod faults;
mod handlers;
mod lone_frame;
mod lossy;
mod stalls;

use crate::host::late::{all_well, late};
use crate::host::namespace::{GUEST, Namespace};
use crate::host::place;
use crate::host::skip::Skip;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Forward, Machine};
use crate::machine::guest::Guest;
use crate::machine::passt;
use crate::test::capture::{self, Seen};
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use client::{Board, Client, Record};
use content::Content;
use faults::{COMPONENTS, Fault, Schedule};
use lossy::{Loss, Lossy};
use stalls::STALL_MAX;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use system::Handlers;

const CLIENTS: usize = 8;
/// One that downloads and one that uploads what is short, and the same of what is long.
const FEWER_CLIENTS: usize = 4;
/// From a fault's answer to the next fault.
const PAUSE: Duration = Duration::from_millis(300);
/// A transfer has to begin within this after a fault.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);
/// Past the guest's own, so that it is the guest that says what did not come back.
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
/// A process for each connection.
const MEMORY_BYTES: u64 = 512 << 20;
const BRIEF: Duration = Duration::from_secs(10);
/// For some lives of the driver; and with that nobody waits for ever: other runs judge waits. It
/// takes up to so many times as long on a host that has little time for it.
const BRIEFER: Duration = Duration::from_secs(4);
const BRIEFER_TIMES_MAX: u32 = 15;
const BRIEFER_WAIT_MAX: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);
/// Of plain runs.
const SEED: u64 = 0x5eed_0025;
const NOBODY: &[&str] = &[];
/// With losses, the timers of TCP: a host repeats its SYN after a second, and what it uploads after
/// 0.2 s and 0.4 s more; so do we.
const LOSS_WAIT_MAX: Duration = Duration::from_secs(2);
/// Failures that are printed.
const TOLD_MAX: usize = 20;
/// The only victim whose death must not make TCP repeat anything.
const DRIVER: &str = "virtio-net";
/// Components whose death loses no frame and has none sent twice, save where the card is reset
/// (decision 25).
const LOSSLESS: [&str; 2] = [DRIVER, "ip"];

/// What leads the ports of this machine to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Passt,
    /// The emulator's own user network.
    User,
    /// A tap, on the way to which one frame in a hundred is lost.
    Lossy,
}

/// What is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Configuration {
    network: Network,
    machine: MachineType,
    cpus: u32,
}

/// Those of a plain run, and of a long one: each network, machine and number of cores is among
/// them.
const CHOSEN: [Configuration; 5] = [
    Configuration { network: Network::Passt, machine: MachineType::Q35, cpus: 2 },
    Configuration { network: Network::User, machine: MachineType::Q35, cpus: 1 },
    Configuration { network: Network::Passt, machine: MachineType::Microvm, cpus: 1 },
    Configuration { network: Network::User, machine: MachineType::Microvm, cpus: 2 },
    Configuration { network: Network::Passt, machine: MachineType::MicrovmMmio, cpus: 2 },
];

/// One of the layouts that was always there, the other on one core and on two, and where the card
/// has no message for it.
const HANDLERS: [(Handlers, MachineType, u32); 4] = [
    (Handlers::One, MachineType::Q35, 1),
    (Handlers::Two, MachineType::Q35, 1),
    (Handlers::Two, MachineType::Q35, 2),
    (Handlers::Two, MachineType::MicrovmMmio, 1),
];

impl Configuration {
    fn all() -> Vec<Configuration> {
        let mut all = Vec::new();
        for network in [Network::Passt, Network::User] {
            for machine in [MachineType::Q35, MachineType::Microvm, MachineType::MicrovmMmio] {
                all.extend([1, 2].map(|cpus| Configuration { network, machine, cpus }));
            }
        }
        all
    }

    fn name(self) -> String {
        let network = match self.network {
            Network::Passt => "passt",
            Network::User => "user",
            Network::Lossy => "tap",
        };
        format!("{network}/{}/{}", self.machine.name(), self.cpus)
    }
}

/// What is broken, and for how long.
#[derive(Clone, Copy)]
struct Plan {
    /// None: nothing is broken.
    victims: &'static [&'static str],
    lasting: Duration,
    /// A client that waits longer than this for its next byte is stalled.
    wait_max: Duration,
    /// None: another one each time.
    seed: Option<u64>,
    clients: usize,
    /// So many handlers of the card, and the driver tells who rings; `None`: as described.
    handlers: Option<Handlers>,
}

impl Plan {
    /// What is done to any component that can be started again, or to these.
    const fn of(victims: &'static [&'static str], lasting: Duration, seed: Option<u64>) -> Plan {
        Plan { victims, lasting, wait_max: STALL_MAX, seed, clients: CLIENTS, handlers: None }
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |is_nightly: bool, start: &str, configuration: Configuration, plan: Plan| {
        let name = format!("{start}/{}", configuration.name());
        let told = name.clone();
        let scenario = Scenario::alone(4, name, move |bench| run(bench, &told, configuration, plan));
        all.push(scenario.in_pairs().by_night(is_nightly));
    };
    for configuration in Configuration::all() {
        let plan = Plan::of(COMPONENTS, BRIEF, Some(SEED));
        add(!CHOSEN.contains(&configuration), "transfers/mixed", configuration, plan);
    }
    for victims in COMPONENTS.chunks(1) {
        let plan = Plan::of(victims, MINUTE, None);
        Configuration::all()
            .into_iter()
            .for_each(|one| add(true, &format!("transfers/victim/{}", victims[0]), one, plan));
    }
    for configuration in CHOSEN {
        let plan = Plan::of(COMPONENTS, LONG, None);
        add(true, "transfers/mixed/long", configuration, plan);
    }
    for (cpus, victims, lasting) in [(2, NOBODY, BRIEF), (1, NOBODY, MINUTE), (2, COMPONENTS, MINUTE)] {
        let configuration = Configuration { network: Network::Lossy, machine: MachineType::Q35, cpus };
        let start = if victims.is_empty() { "transfers/loss" } else { "transfers/loss/mixed" };
        let plan = Plan { wait_max: LOSS_WAIT_MAX, ..Plan::of(victims, lasting, Some(SEED)) };
        add(lasting > BRIEF, start, configuration, plan);
    }
    for (handlers, machine, cpus) in HANDLERS {
        let configuration = Configuration { network: Network::User, machine, cpus };
        let plan = Plan::of(&[DRIVER], BRIEFER, Some(SEED));
        let (wait_max, clients) = (BRIEFER_WAIT_MAX, FEWER_CLIENTS);
        let plan = Plan { wait_max, clients, handlers: Some(handlers), ..plan };
        let start = if handlers == Handlers::One { "transfers/handlers/one" } else { "transfers/handlers/two" };
        add(false, start, configuration, plan);
    }
    let (machine, cpus) = (MachineType::Q35, 1);
    let name = format!("transfers/loss/lone/{}/{cpus}", machine.name());
    all.push(Scenario::shared(4, name, move |bench| lone_frame::run(bench, machine, cpus)));
    let name = format!("transfers/handlers/rest/{}/{cpus}", machine.name());
    all.push(Scenario::shared(4, name, move |bench| handlers::rest(bench, machine, cpus)));
    all
}

fn run(bench: &Bench, name: &str, configuration: Configuration, plan: Plan) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let content = Content::new();
    // The record of a long run has no judge, and is large.
    let record = (plan.lasting < LONG).then(|| folder.path().join("frames.pcap"));
    let seed = seed(plan)?;
    println!("     {name}: seed {seed:#x}");
    let namespace = (configuration.network == Network::Lossy).then(Namespace::create).transpose()?;
    let way = Way { configuration, namespace: namespace.as_ref(), seed, handlers: plan.handlers };
    let (guest, addresses) = boot(bench, way, &content, folder.path(), record.clone())?;
    let work = move || {
        namespace.as_ref().map_or(Ok(()), Namespace::enter)?;
        with_console(guest, |guest| {
            let mut outcome = under_faults(guest, &addresses, &content, plan, seed, record.as_deref());
            if let Some(handlers) = plan.handlers {
                let has_message = configuration.machine != MachineType::MicrovmMmio;
                outcome = outcome.and_then(|()| handlers::judge(&guest.transcript, handlers, has_message));
            }
            outcome.map_err(|error| {
                let kept = keep(name, guest, record.as_deref());
                error.context(format!("seed {seed:#x}; {kept}"))
            })
        })
    };
    // A thread stays in the namespace that it entered, so this one must not.
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|_| bail!("the clients failed")))
}

/// How clients come to the guest.
struct Way<'a> {
    configuration: Configuration,
    namespace: Option<&'a Namespace>,
    seed: u64,
    handlers: Option<Handlers>,
}

/// The plan's seed, unless the environment says another.
fn seed(plan: Plan) -> Result<u64> {
    if let Ok(text) = std::env::var("PELAGO_SEED") {
        let digits = text.strip_prefix("0x");
        let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
        let seed = number.ok().filter(|seed| *seed != 0);
        return seed.with_context(|| format!("PELAGO_SEED={text}: give a number that is not 0, for instance 0x5eed"));
    }
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(SEED, |since| since.as_nanos() as u64 | 1);
    Ok(plan.seed.unwrap_or_else(time))
}

/// Boots the server; gives each client's address. `record`: where the card's frames go.
fn boot(
    bench: &Bench,
    way: Way,
    content: &Content,
    folder: &Path,
    record: Option<PathBuf>,
) -> Result<(Guest, Vec<SocketAddr>)> {
    let Configuration { network, machine: kind, cpus } = way.configuration;
    let mut machine = Machine::new(kind, cpus, bench.accelerator());
    machine.memory_bytes += MEMORY_BYTES;
    (machine.pcap, machine.pcap_frame_bytes) = (record, Some(capture::FRAME_BYTES));
    let mut system = description::placed(bench.system().clone(), kind);
    if let Some(handlers) = way.handlers {
        handlers::describe(&mut system, handlers)?;
        machine.command_line.push(handlers::TELL_WORD.to_owned());
    }
    let mut bytes = 0;
    let archive = bench.archive(&system, &content::SERVER, |root| {
        bytes = content.fill(root);
        root.file("root/www/ready", 0o644, b"ready\n".to_vec());
        Ok(())
    })?;
    // The archive's copy, and the file system's.
    machine.memory_bytes += 2 * bytes;
    let path = folder.join("boot.archive");
    archive.write(&path)?;
    machine.archive = Some(path);
    let ports = free_ports()?;
    let lead = |(number, port): (usize, &u16)| Forward::local(*port, Client::guest_port(number));
    let forwards: Vec<Forward> = ports.iter().enumerate().map(lead).collect();
    let mut addresses: Vec<SocketAddr> = ports.iter().map(|port| (Ipv4Addr::LOCALHOST, *port).into()).collect();
    let (mut kept, mut lossy) = (None, None);
    match network {
        Network::User => machine.forwards = forwards,
        Network::Lossy => {
            let namespace = way.namespace.context("no namespace was made")?;
            lossy = Some(Lossy::connect(&mut machine, namespace, Loss::ByChance(way.seed))?);
            let guest: Ipv4Addr = GUEST.parse()?;
            addresses = (0..CLIENTS).map(|number| (guest, Client::guest_port(number)).into()).collect();
        }
        Network::Passt if crate::host::path::find(passt::PROGRAM).is_none() => {
            bail!(Skip::Package { program: passt::PROGRAM, package: passt::PROGRAM })
        }
        Network::Passt => {
            let (passt, socket) = passt::connect(&forwards)?;
            machine.socket = Some(socket.into());
            kept = Some(passt);
        }
    }
    machine.check()?;
    let mut guest = Guest::start(&machine)?;
    guest.keep(kept);
    guest.keep(lossy);
    Ok((guest, addresses))
}

/// Ports of this machine that nobody has now, one for each client. All are held until each is
/// chosen, or one might come twice.
fn free_ports() -> Result<Vec<u16>> {
    let held = (0..CLIENTS).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>();
    held.context("no free port")?.iter().map(|held| Ok(held.local_addr()?.port())).collect()
}

/// Keeps what a failure can be looked into with, and says where.
fn keep(name: &str, guest: &mut Guest, record: Option<&Path>) -> String {
    guest.catch_up();
    let path = |end: &str| place::out().join(format!("{}.{end}", name.replace('/', "-")));
    let console = crate::host::files::write(&path("console"), guest.transcript.join("\n").as_bytes());
    let frames = record.map(|record| std::fs::copy(record, path("pcap")));
    let told = |what: &str, is_kept, end| match is_kept {
        true => format!("{what} in {}", path(end).display()),
        false => format!("the {what} could not be kept"),
    };
    let frames = frames.map_or(String::new(), |copied| format!(", {}", told("frames", copied.is_ok(), "pcap")));
    format!("{}{frames}", told("console", console.is_ok(), "console"))
}

fn under_faults(
    guest: &mut Guest,
    addresses: &[SocketAddr],
    content: &Content,
    plan: Plan,
    seed: u64,
    record: Option<&Path>,
) -> Result<()> {
    guest.expect("pelago: ready", web::READY_LIMIT)?;
    let liveness = guest.liveness();
    web::fetch(&liveness, &format!("http://{}/ready", addresses[0]), web::READY_LIMIT)?;
    let client = |board, number| Client { number, address: addresses[number], content, board, liveness };
    let opening = Board::new();
    let opened: Vec<_> =
        (0..plan.clients).map(|number| client(&opening, number).open(web::READY_LIMIT)).collect::<Result<_>>()?;
    let before_load = record.map_or(0, recorded_bytes);
    let board = &Board::new();
    let mut faults = Vec::new();
    let (broken, records) = std::thread::scope(|scope| {
        let begin = |(number, kept)| scope.spawn(move || client(board, number).work(kept));
        let clients: Vec<_> = opened.into_iter().enumerate().map(begin).collect();
        let broken = break_things(guest, plan, seed, board, &mut faults);
        board.end();
        (broken, clients.into_iter().map(|client| client.join()).collect::<Vec<_>>())
    });
    let lasted = board.now();
    let records = records.into_iter().collect::<Result<Vec<Record>, _>>();
    let Ok(records) = records else { bail!("a client failed in a way of its own") };
    tell(&faults, &records, lasted);
    guest.catch_up();
    let mut problems = vec![broken, judge_transfers(&faults, &records), judge_begun(&faults, &records)];
    if let Some(record) = record {
        let was_reset = guest.transcript.iter().any(|line| line.contains("the device is reset"));
        // Without a victim it is the way that loses frames.
        let is_lossless = !plan.victims.is_empty() && plan.victims.iter().all(|victim| LOSSLESS.contains(victim));
        let is_judged = plan.victims == [DRIVER] || is_lossless && !was_reset;
        problems.push(frames(record, before_load, &faults, is_judged));
    }
    // Last: the others are not a matter of time.
    problems.push(judge_starts(&guest.transcript));
    problems.push(judge_stalls(&faults, &records, plan.wait_max));
    all_well(Ok(()), problems)
}

/// Gives the orders of the seed until the time is over, and all that is to be judged has come.
fn break_things(guest: &mut Guest, plan: Plan, seed: u64, board: &Board, faults: &mut Vec<Fault>) -> Result<()> {
    if plan.victims.is_empty() {
        std::thread::sleep(plan.lasting);
        return Ok(());
    }
    let mut begun = 0;
    // Where handlers are told apart it is of deaths: to find a hang takes its time.
    let orders = Schedule::new(seed, plan.victims).filter(|order| plan.handlers.is_none() || order.way == "kill");
    for (number, order) in (1..).zip(orders) {
        std::thread::sleep(PAUSE);
        if !board.wait_for_more(begun, BEGIN_LIMIT) {
            let last = faults.last().map_or("the start".into(), Fault::to_string);
            return Err(guest.late(format!("no transfer began within {} s after {last}", BEGIN_LIMIT.as_secs())));
        }
        let is_enough = plan.handlers.is_none()
            || handlers::is_enough(&guest.transcript)
            || board.now() >= BRIEFER_TIMES_MAX * plan.lasting;
        if board.now() >= plan.lasting && is_enough {
            break;
        }
        let given = board.now();
        begun = board.begun();
        let reply = guest.control(&order.request(), CONTROL_LIMIT);
        let fault = Fault { number, order, given, answered: board.now() };
        let reply = reply.with_context(|| fault.to_string())?;
        ensure!(reply.starts_with("ok "), "{fault}: {reply}");
        faults.push(fault);
    }
    Ok(())
}

fn tell(faults: &[Fault], records: &[Record], lasted: Duration) {
    let answers = faults.iter().map(|fault| fault.answered.saturating_sub(fault.given).as_millis());
    let (sum, longest) = answers.fold((0, 0), |(sum, longest), ms| (sum + ms, longest.max(ms)));
    println!(
        "     {} faults in {:.1} s, answered after {} ms in the mean, {longest} ms at most",
        faults.len(),
        lasted.as_secs_f64(),
        sum / faults.len().max(1) as u128
    );
    for kind in ["download", "upload"] {
        let of_kind = || records.iter().filter(|record| Client::kind(record.client) == kind);
        let begun: usize = of_kind().map(|record| record.begun.len()).sum();
        let bytes: usize = of_kind().map(|record| record.bytes).sum();
        let failures: usize = of_kind().map(|record| record.failures.len()).sum();
        let stalls: usize = of_kind().map(|record| record.stalls.len()).sum();
        let longest = of_kind().map(|record| record.longest.as_millis()).max().unwrap_or_default();
        println!(
            "     {kind}s: {begun}, {:.1} MB/s; {failures} failed; {stalls} stalls above {} s, the longest wait {longest} ms",
            bytes as f64 / 1e6 / lasted.as_secs_f64(),
            STALL_MAX.as_secs()
        );
    }
}

/// Prints what went wrong, some of it, and gives the first.
fn first(problems: &[String]) -> Result<()> {
    problems.iter().take(TOLD_MAX).for_each(|problem| println!("       {problem}"));
    match problems {
        [] => Ok(()),
        [only] => bail!("{only}"),
        [first, rest @ ..] => bail!("{first}; and {} more like this", rest.len()),
    }
}

/// No transfer fails.
fn judge_transfers(faults: &[Fault], records: &[Record]) -> Result<()> {
    let mut failures: Vec<_> =
        records.iter().flat_map(|record| record.failures.iter().map(|failure| (record.client, failure))).collect();
    failures.sort_by_key(|(_, failure)| failure.at);
    let told = failures.iter().map(|(client, failure)| {
        let (kind, number, at) = (Client::kind(*client), failure.transfer, failure.at.as_secs_f64());
        let last = faults::place(faults, failure.last_byte);
        format!("client {client}, {kind} {number} failed at {at:.3} s: {:#}; its last byte moved {last}", failure.what)
    });
    first(&told.collect::<Vec<_>>())
}

/// A transfer begins after each fault, and before the next.
fn judge_begun(faults: &[Fault], records: &[Record]) -> Result<()> {
    let begun: Vec<Duration> = records.iter().flat_map(|record| record.begun.iter().copied()).collect();
    let until = |fault: &Fault| faults.get(fault.number).map_or(Duration::MAX, |next| next.given);
    let is_missed = |fault: &&Fault| !begun.iter().any(|at| *at >= fault.given && *at <= until(fault));
    first(&faults.iter().filter(is_missed).map(|fault| format!("no transfer began after {fault}")).collect::<Vec<_>>())
}

/// Each victim served for longer than is brief before its fault, so each is started at once.
fn judge_starts(transcript: &[String]) -> Result<()> {
    let waits = transcript.iter().filter(|line| line.contains("tried again in")).cloned();
    first(&waits.collect::<Vec<_>>())
        .map_err(|error| late(format!("a component was not started at once: {error:#}"), &[]))
}

/// No client waits too long. That, and what was served, is a limit in time; all else that is judged
/// is not.
fn judge_stalls(faults: &[Fault], records: &[Record], wait_max: Duration) -> Result<()> {
    let mut stalls: Vec<_> =
        records.iter().flat_map(|record| record.stalls.iter().map(|stall| (record.client, *stall))).collect();
    stalls.retain(|(_, stall)| stall.to - stall.from > wait_max);
    stalls.sort_by_key(|(_, stall)| stall.from);
    let told = stalls.iter().map(|(client, stall)| {
        let (ms, when) = ((stall.to - stall.from).as_millis(), faults::place(faults, stall.from));
        format!("client {client} ({}) waited {ms} ms for a byte, from {when}", Client::kind(*client))
    });
    // Nothing but time was lost.
    first(&told.collect::<Vec<_>>()).map_err(|error| late(format!("{error:#}"), &[]))
}

/// How much of the record there is; the emulator writes each frame at once.
fn recorded_bytes(record: &Path) -> usize {
    record.metadata().map_or(0, |data| data.len() as usize)
}

/// Tells what the record of frames shows, and if `is_judged` judges that nothing was sent again, by
/// TCP or by the card.
/// `before_load`: its length when the load began, by which the emulator's clock is put right.
fn frames(record: &Path, before_load: usize, faults: &[Fault], is_judged: bool) -> Result<()> {
    let bytes = crate::host::files::read(record)?;
    let frames = capture::frames(&bytes)?;
    let seen = capture::look(&frames);
    let earlier = capture::frames(&bytes[..before_load.min(bytes.len())]).map_or(0, |earlier| earlier.len());
    let start_us = frames.get(earlier).map_or(0, |frame| frame.at_us);
    let at = |us: u64| Duration::from_micros(us.saturating_sub(start_us));
    let Seen { from_guest, to_guest, again, duplicates, probes, peer_again, last_from_us, last_to_us } = &seen;
    println!(
        "     {from_guest} frames from the guest, the last at {:.1} s, {to_guest} to it, the last at {:.1} s; segments sent again: {} by its TCP, {duplicates} twice by the card, {probes} probes; {peer_again} by the other side",
        at(*last_from_us).as_secs_f64(),
        at(*last_to_us).as_secs_f64(),
        again.len()
    );
    ensure!(*from_guest > 0 && *to_guest > 0, "the record of frames is empty");
    if !is_judged {
        return Ok(());
    }
    ensure!(*duplicates == 0, "the card sent {duplicates} frames twice");
    // What stood still was not lost: its answers came late.
    let (late_ones, lost): (Vec<_>, Vec<_>) =
        again.iter().partition(|again| capture::stood_still(&frames, again.at_us));
    let told =
        |again: &&capture::Again| format!("TCP sent again, {} ({again})", faults::place(faults, at(again.at_us)));
    first(&lost.iter().map(told).collect::<Vec<_>>())?;
    first(&late_ones.iter().map(told).collect::<Vec<_>>())
        .map_err(|error| late(format!("frames stood still: {error:#}"), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scenarios::transfers::faults::Order;
    use crate::test::scenarios::transfers::stalls::Stall;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn fault(number: usize, ms: u64) -> Fault {
        Fault { number, order: Order { way: "kill", victim: "ip" }, given: at(ms), answered: at(ms + 9) }
    }

    fn record(client: usize, begun: &[u64]) -> Record {
        let begun = begun.iter().map(|ms| at(*ms)).collect();
        Record { client, begun, bytes: 0, failures: Vec::new(), stalls: Vec::new(), longest: Duration::ZERO }
    }

    #[test]
    fn a_long_run_has_each_network_machine_and_number_of_cores() {
        for one in Configuration::all() {
            assert!(CHOSEN.iter().any(|long| long.network == one.network));
            assert!(CHOSEN.iter().any(|long| long.machine == one.machine));
            assert!(CHOSEN.iter().any(|long| long.cpus == one.cpus));
        }
        let (nightly, plain): (Vec<_>, Vec<_>) = scenarios().into_iter().partition(|scenario| scenario.nightly);
        assert_eq!((plain.len(), nightly.len()), (5 + 3 + HANDLERS.len(), 7 + 6 * 12 + 5 + 2));
    }

    #[test]
    fn a_fault_without_a_transfer_after_it_is_told() {
        let faults = [fault(1, 300), fault(2, 600)];
        let judged = |begun: &[u64]| judge_begun(&faults, &[record(0, &[0]), record(1, begun)]);
        judged(&[310, 650]).unwrap();
        assert!(judged(&[650]).unwrap_err().to_string().contains("after fault 1 "));
        assert!(judged(&[310]).unwrap_err().to_string().contains("after fault 2 "));
    }

    #[test]
    fn the_first_stall_is_told_with_its_client_and_fault() {
        let (mut one, mut other) = (record(3, &[]), record(4, &[]));
        one.stalls.push(Stall { from: at(2000), to: at(4000) });
        other.stalls.push(Stall { from: at(700), to: at(1800) });
        let told = judge_stalls(&[fault(1, 300), fault(2, 600)], &[one, other], STALL_MAX).unwrap_err().to_string();
        assert!(
            told.starts_with("client 4 (download) waited 1100 ms for a byte, from at 0.700 s, 100 ms after fault 2 ")
        );
        assert!(told.ends_with("and 1 more like this"), "{told}");
        judge_stalls(&[], &[], STALL_MAX).unwrap();
    }

    #[test]
    fn a_failure_is_told_with_its_client_time_and_fault() {
        let mut failed = record(5, &[]);
        let what = anyhow::anyhow!("reset");
        failed.failures.push(client::Failure { at: at(900), last_byte: at(500), transfer: 7, what });
        let told = judge_transfers(&[fault(1, 300)], &[failed]).unwrap_err().to_string();
        let expected = "client 5, upload 7 failed at 0.900 s: reset; its last byte moved at 0.500 s, \
            200 ms after fault 1 (kill ip at 0.300 s, answered after 9 ms)";
        assert_eq!(told, expected);
    }
}
