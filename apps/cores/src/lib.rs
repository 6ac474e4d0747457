//! Tests of cores as objects, from user mode. They run on core 0 of a system that has nothing else
//! on the other cores (`system/cores.toml`), so that these can be halted, claimed and run.
//!
//! One line per test, `NAME ok` or `NAME FAILED: why`, and a last one, `done: X ok, Y failed`; the
//! host's scenarios `cores/*` read them. Deliberately unknown here: the kernel's inside.
#![no_std]

extern crate alloc;

pub mod cards;
pub mod claim;
pub mod facts;
pub mod page;
pub mod polling;
pub mod pool;
pub mod program;

use alloc::format;
use alloc::string::String;
use contracts::monitor::MonitorClient;
use runtime::Start;

/// Word of the command line by which a program has its core for so many seconds, and nothing else
/// is tried (`tools/pelago/src/test/scenarios/cores.rs`).
const ALONE: &str = "cores.alone=";

/// Why a test failed.
pub type Outcome = Result<(), String>;

/// What tests work with.
pub struct Bench {
    /// Who this is and what it was given.
    pub start: Start,
    /// Monitor 0.
    pub monitor: MonitorClient,
    /// The right to manage cores.
    pub cores: abi::Handle,
}

impl Bench {
    /// The last core: the one that tests do things to.
    pub fn last_core(&self) -> u32 {
        self.start.cores() - 1
    }
}

/// Fails with `why` unless `holds`.
pub fn ensure(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why()) }
}

/// What went wrong in a call, by name.
pub fn refused(call: &'static str) -> impl Fn(abi::Error) -> String {
    move |error| format!("{call}: {}", error.name())
}

/// A call that must be refused, and how.
pub fn must_be<T>(result: Result<T, abi::Error>, error: abi::Error, what: &str) -> Outcome {
    match result {
        Err(found) if found == error => Ok(()),
        Err(found) => Err(format!("{what}: {} instead of {}", found.name(), error.name())),
        Ok(_) => Err(format!("{what}: done instead of {}", error.name())),
    }
}

/// Runs all tests, or the one that is asked for.
pub async fn run(start: Start) {
    start.serving();
    let Ok(monitor) = start.client::<MonitorClient>("monitor") else {
        return runtime::log!("no channel to the monitor");
    };
    let Some(cores) = start.capability("cores") else { return runtime::log!("no right to manage cores") };
    let bench = Bench { start, monitor, cores };
    let mut counts = [0, 0];
    let mut tell = |name: &str, outcome: Outcome| {
        counts[usize::from(outcome.is_err())] += 1;
        match outcome {
            Ok(()) => runtime::log!("{name} ok"),
            Err(why) => runtime::log!("{name} FAILED: {why}"),
        }
    };
    let seconds = bench.start.command_line().split(' ').find_map(|word| word.strip_prefix(ALONE)?.parse().ok());
    if let Some(seconds) = seconds {
        tell("program/alone", program::alone(&bench, seconds).await);
    } else {
        all(&bench, &mut tell).await;
    }
    runtime::log!("done: {} ok, {} failed", counts[0], counts[1]);
    loop {
        // The system may end with this component; the reader of the lines ends it instead.
        runtime::sleep(u64::MAX / 4).await;
    }
}

async fn all(bench: &Bench, tell: &mut impl FnMut(&str, Outcome)) {
    tell("objects/counts", facts::counts());
    tell("facts/cores", facts::cores(bench));
    tell("facts/locality", facts::locality(bench));
    tell("facts/memory-of-a-core", facts::memory_of_a_core(bench).await);
    tell("devices/list", facts::devices());
    tell("devices/claim", facts::claims(bench));
    tell("devices/configuration", facts::configuration(bench));
    tell("devices/capacity", facts::capacity(bench));
    tell("cards/settings", cards::settings(bench).await);
    if bench.start.cores() > 1 {
        tell("pool/claim", pool::claim(bench).await);
        tell("pool/occupied", pool::occupied(bench).await);
        tell("pool/cycles", pool::cycles(bench).await);
        tell("program/report", program::report(bench).await);
        tell("program/halt", program::halt(bench).await);
        tell("program/alone", program::alone(bench, program::ALONE_SECONDS).await);
        tell("program/cycles", program::cycles(bench).await);
        tell("program/fault", program::fault(bench).await);
        tell("program/owner-gone", program::owner_gone(bench).await);
        tell("polling/calls", polling::calls(bench).await);
        tell("polling/sleep", polling::sleep(bench).await);
        tell("polling/devices", polling::devices(bench).await);
        tell("polling/corrupt", polling::corrupt(bench).await);
        tell("cards/polled", cards::polled(bench).await);
        tell("pool/given-back", pool::serves_again(bench).await);
        tell("polling/kept", polling::kept(bench).await);
    }
}
