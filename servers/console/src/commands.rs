//! Carrying commands out: of the host tool on control lines, and of a person when no program has
//! the terminal.
//!
//! The supervisor starts after the console and may be gone: it is asked with a limit, and its
//! absence is an answer like any other.

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::Future;

use abi::ObjectType;
use contracts::lookup::{CacheCounters, LookupClient, LookupError};
use contracts::names::Named;
use contracts::storage::StorageClient;
use contracts::supervisor::{
    Chaos, ComponentLine, CoreLine, CoreRuns, DispatcherLine, DispatcherState, Place, Recovery, SupervisorClient,
    SupervisorError,
};
use runtime::timeout;

use crate::accounts::accounts;
use crate::control::{Command, HELP};
use crate::ending::put_away;
use crate::service::Console;

/// How long a command may take, in nanoseconds: the supervisor's own limit is 10 s, and the host
/// waits 15 s for all of it.
pub const LIMIT_NS: u64 = 12_000_000_000;
/// More components than any system description has.
const COMPONENTS_MAX: u32 = 256;
/// As many as a machine may have.
pub(crate) const CORES_MAX: u32 = 256;
/// How long after it was ordered the first of two is broken.
const PAIR_LEAD_NS: u64 = 100_000_000;
pub(crate) const NO_ANSWER: &str = "the supervisor does not answer";

/// What commands need.
pub struct Commands {
    /// The supervisor, if it is wired.
    pub supervisor: Box<dyn Fn() -> Option<SupervisorClient>>,
    /// This core's name cache, if it is wired.
    pub lookup: Box<dyn Fn() -> Option<LookupClient>>,
    /// Who keeps data beyond the machine's end, by name.
    pub storages: Box<dyn Fn() -> Vec<(String, StorageClient)>>,
    /// Ends the machine; returns why it does not.
    pub power_off: Box<dyn Fn() -> String>,
}

/// An answer: lines to show, and the last word.
pub type Answer = Result<(Vec<String>, String), String>;

impl Commands {
    /// Carries a line out.
    pub async fn run(&self, line: &str) -> Answer {
        match Command::parse(line)? {
            Command::Help => Ok((HELP.iter().map(|line| line.to_string()).collect(), "that is all".into())),
            Command::PowerOff => {
                put_away((self.storages)()).await.iter().for_each(|problem| runtime::log!("{problem}"));
                Err((self.power_off)())
            }
            Command::Components { dispatchers: false } => within(components(&self.supervisor()?)).await,
            Command::Components { dispatchers: true } => within(dispatchers(&self.supervisor()?)).await,
            Command::Cores => within(cores(&self.supervisor()?)).await,
            Command::Accounts => within(accounts(&self.supervisor()?)).await,
            Command::Names(contract) => within(names(&self.lookup()?, contract)).await,
            Command::ChangeCore(core, run) => within(change_core(&self.supervisor()?, core, run)).await,
            Command::Chaos(what, name) => within(chaos(&self.supervisor()?, what, name)).await,
            Command::Pair(both, ms) => within(pair(&self.supervisor()?, both, ms)).await,
        }
    }

    fn supervisor(&self) -> Result<SupervisorClient, String> {
        (self.supervisor)().ok_or_else(|| "no channel to the supervisor; see system/*.toml".into())
    }

    fn lookup(&self) -> Result<LookupClient, String> {
        (self.lookup)().ok_or_else(|| "no channel to this core's name cache; see system/*.toml".into())
    }

    /// The answer to a request that our predecessor did not live to give. What a request for its
    /// own end came to can be seen now.
    pub async fn resume(&self, line: &str) -> Answer {
        match Command::parse(line)? {
            Command::Chaos(what, name) if name == "console" => within(back(&self.supervisor()?, what, name)).await,
            _ => Err("the console was restarted meanwhile; ./pelago components shows what is, then ask again".into()),
        }
    }

    /// Answers control requests, for ever.
    pub async fn answer_requests(self: Rc<Self>, console: Rc<Console>) {
        if let Some(line) = console.unanswered() {
            tell(&console, self.resume(&line).await);
        }
        loop {
            let answer = match console.next_request().await {
                Ok(line) => self.run(&line).await,
                Err(reason) => Err(reason.into()),
            };
            tell(&console, answer);
        }
    }

    /// Carries out what a person types, for ever: for a system that runs no program.
    pub async fn answer_person(self: Rc<Self>, console: Rc<Console>) {
        loop {
            let line = console.next_line().await;
            if line.is_empty() {
                continue;
            }
            let (mut lines, last) = match self.run(&line).await {
                Ok(answer) => answer,
                Err(reason) => (Vec::new(), reason),
            };
            lines.push(last);
            lines.iter().for_each(|line| console.print(&format!("{line}\n")));
        }
    }
}

fn tell(console: &Console, answer: Answer) {
    match answer {
        Ok((lines, last)) => {
            lines.iter().for_each(|line| console.reply(&[line]));
            console.reply(&[&format!("ok {last}")]);
        }
        Err(reason) => console.reply(&[&format!("error {reason}")]),
    }
    console.answered();
}

async fn within(work: impl Future<Output = Answer>) -> Answer {
    timeout(LIMIT_NS, work).await.unwrap_or_else(|_| Err(NO_ANSWER.into()))
}

async fn components(supervisor: &SupervisorClient) -> Answer {
    let mut lines = Vec::new();
    for index in 0..COMPONENTS_MAX {
        match supervisor.component(index).await {
            Ok(Some(line)) => lines.push(shown(&line)),
            Ok(None) => break,
            Err(error) => return Err(format!("{NO_ANSWER} ({error:?})")),
        }
    }
    let count = lines.len();
    Ok((lines, format!("{count} components")))
}

async fn dispatchers(supervisor: &SupervisorClient) -> Answer {
    let mut lines = Vec::new();
    for index in 0..COMPONENTS_MAX {
        let component = supervisor.component(index).await.map_err(|error| format!("{NO_ANSWER} ({error:?})"))?;
        let Some(ComponentLine { place, .. }) = component else { break };
        let count = match place {
            Place::Core(_) => 1,
            Place::Cores(count) => count,
        };
        for number in 0..count {
            match supervisor.dispatcher(index, number).await {
                Ok(line) => lines.extend(line.as_ref().map(dispatcher_shown)),
                Err(error) => return Err(format!("{NO_ANSWER} ({error:?})")),
            }
        }
    }
    let count = lines.len();
    Ok((lines, format!("{count} dispatchers")))
}

fn dispatcher_shown(line: &DispatcherLine) -> String {
    let DispatcherLine { name, core, state, pages, cpu_ns } = line;
    let state = match state {
        DispatcherState::Starting => "starting",
        DispatcherState::Serving => "serving",
        DispatcherState::Ended => "ended",
    };
    let (kibibytes, microseconds) = (pages.saturating_mul(4), cpu_ns / 1000);
    format!("{name:<16} core {core:<3} {state:<8} {kibibytes:>8} KiB {microseconds:>10} us")
}

fn shown(line: &ComponentLine) -> String {
    let ComponentLine { name, place, generation, running, pages, cpu_ns, last_recovery_us } = line;
    let place = match place {
        Place::Core(core) => format!("core {core}"),
        Place::Cores(count) => format!("cores: {count}"),
    };
    let state = if *running { "running" } else { "stopped" };
    let (kibibytes, milliseconds) = (pages.saturating_mul(4), cpu_ns / 1_000_000);
    format!(
        "{name:<12} {place:<10} generation {generation:<3} {state} {kibibytes:>8} KiB {milliseconds:>8} ms last recovery {last_recovery_us} us"
    )
}

async fn cores(supervisor: &SupervisorClient) -> Answer {
    let mut lines = Vec::new();
    for core in 0..CORES_MAX {
        match supervisor.core(core).await {
            Ok(Some(line)) => lines.push(core_shown(core, &line)),
            Ok(None) => break,
            Err(error) => return Err(format!("{NO_ANSWER} ({error:?})")),
        }
    }
    let count = lines.len();
    Ok((lines, format!("{count} cores")))
}

async fn names(lookup: &LookupClient, contract: String) -> Answer {
    let mut lines = Vec::new();
    for index in 0..CORES_MAX {
        match lookup.find(contract.clone(), index).await {
            Ok(Named { component, core, generation, .. }) => {
                lines.push(format!("{component:<16} core {core:<3} generation {generation}"))
            }
            Err(channel::CallError::Server(LookupError::NotFound)) => break,
            Err(channel::CallError::Server(LookupError::Away)) => return Err("the name server does not answer".into()),
            Err(error) => return Err(format!("the monitor does not answer ({error:?})")),
        }
    }
    let count = lines.len();
    let CacheCounters { hits, misses, dropped } = lookup.counters().await.unwrap_or_default();
    let cache = format!("this core's name cache: {hits} hits, {misses} misses, {dropped} dropped");
    Ok((lines, format!("{count} serve {contract}; {cache}")))
}

fn core_shown(core: u32, line: &CoreLine) -> String {
    let what = match line.runs {
        CoreRuns::Nothing => "halted",
        CoreRuns::Monitor => "monitor",
        CoreRuns::Program => "program",
        CoreRuns::KernelCore => "kernel core",
    };
    let owner = if line.claimed_by.is_empty() { "nobody" } else { &line.claimed_by };
    let shown = format!("core {core:<3} {what:<11} claimed by {owner:<12} programs {:>10} us", line.programs_ns / 1000);
    if line.objects.is_empty() {
        return shown;
    }
    let [used, free] = [line.used_pages, line.free_pages].map(|pages| pages.saturating_mul(4));
    let counts: Vec<String> =
        ObjectType::ALL.iter().zip(&line.objects).map(|((_, name), count)| format!("{name} {count}")).collect();
    format!("{shown} {used:>8} KiB used {free:>8} KiB free; {}", counts.join(", "))
}

async fn change_core(supervisor: &SupervisorClient, core: u32, run: bool) -> Answer {
    match supervisor.change_core(core, run).await {
        Ok(()) => Ok((Vec::new(), format!("core {core} {}", if run { "runs" } else { "is halted" }))),
        Err(channel::CallError::Server(SupervisorError::NotFound)) => {
            Err(format!("there is no core {core} to change; core 0 is not halted"))
        }
        Err(channel::CallError::Server(SupervisorError::Busy)) => {
            Err(format!("core {core} is in use; ./pelago components shows what is there"))
        }
        Err(channel::CallError::Server(SupervisorError::TimedOut)) => Err(format!("core {core} did not do so in time")),
        Err(other) => Err(format!("{NO_ANSWER} ({other:?})")),
    }
}

fn verb(what: Chaos) -> &'static str {
    match what {
        Chaos::Kill => "killed",
        Chaos::Fault => "faulted",
        Chaos::Hang => "hung",
        Chaos::Block => "blocked",
        Chaos::Worker => "hung the workers of",
    }
}

async fn chaos(supervisor: &SupervisorClient, what: Chaos, name: String) -> Answer {
    match supervisor.chaos(what, name.clone()).await {
        Ok(Recovery { recovery_us, generation, noticed_us }) => {
            let verb = verb(what);
            let noticed = if noticed_us > 0 { format!(", noticed after {noticed_us} us") } else { String::new() };
            Ok((Vec::new(), format!("{verb} {name}; generation {generation} serves after {recovery_us} us{noticed}")))
        }
        // It did that to itself; its successor knows that it serves, not how long it was away.
        Err(channel::CallError::PeerRestarted) if name == "supervisor" => back(supervisor, what, name).await,
        Err(error) => Err(refusal(error, &name)),
    }
}

/// Both are ordered before the first is broken, and the answer is out: any may be the console.
async fn pair(supervisor: &SupervisorClient, both: [(Chaos, String); 2], ms: u64) -> Answer {
    for ((what, name), after_ns) in both.iter().zip([PAIR_LEAD_NS, PAIR_LEAD_NS + ms * 1_000_000]) {
        let ordered = supervisor.chaos_later(*what, name.clone(), after_ns).await;
        ordered.map_err(|error| refusal(error, name))?;
    }
    let [(first, a), (second, b)] = both;
    let (first, second) = (verb(first), verb(second));
    Ok((Vec::new(), format!("{a} is {first} in {} ms, {b} is {second} {ms} ms later", PAIR_LEAD_NS / 1_000_000)))
}

/// A component that took its own answer with it: who came after it.
async fn back(supervisor: &SupervisorClient, what: Chaos, name: String) -> Answer {
    let line = supervisor.serving(name.clone()).await.map_err(|error| refusal(error, &name))?;
    let after = if line.last_recovery_us > 0 { format!(" after {} us", line.last_recovery_us) } else { String::new() };
    Ok((Vec::new(), format!("{} {name}; generation {} serves{after}", verb(what), line.generation)))
}

fn refusal(error: channel::CallError<SupervisorError>, name: &str) -> String {
    match error {
        channel::CallError::Server(SupervisorError::NotFound) => {
            format!("no component {name}; ./pelago components lists them")
        }
        channel::CallError::Server(SupervisorError::NotRestartable) => {
            format!("{name} is not restarted in this version; CAVEATS.md says why")
        }
        channel::CallError::Server(SupervisorError::TimedOut) => format!("{name} did not come back in time"),
        channel::CallError::Server(SupervisorError::Busy) => format!("{name} is in use"),
        other => format!("{NO_ANSWER} ({other:?})"),
    }
}
