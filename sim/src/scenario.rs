//! One seed from start to verdict: a run, a sweep that gives everything back, and, if something
//! broke, the shortest run that still breaks.

use crate::invariants::Broken;
use crate::simulation::{Options, Simulation};
use capability::Protocol;
use std::fmt::{Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a run that held did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The same for the same options.
    pub hash: u64,
    /// Steps taken.
    pub events: u64,
    /// Calls that went through.
    pub done: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Longest from a call to its answer.
    pub slowest_ns: u64,
}

/// What broke, and how to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What broke.
    pub broken: Broken,
    /// The run with the fewest calls found that breaks.
    pub options: Options,
    /// Its last actions.
    pub trace: Vec<String>,
}

impl Display for Failure {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(to, "  {line}")?;
        }
        writeln!(to, "seed {}: {}", self.options.seed, self.broken)?;
        write!(to, "{}", self.options.again())
    }
}

/// Runs a seed; on failure looks for a run with fewer calls.
pub fn run<P: Protocol>(options: &Options) -> Result<Report, Box<Failure>> {
    let mut failure = match once::<P>(options) {
        Ok(report) => return Ok(report),
        Err(failure) => failure,
    };
    // Without calls, in ever smaller groups, as long as something still breaks.
    let mut kept: Vec<u32> = (0..options.calls).collect();
    let mut group = kept.len().div_ceil(2);
    while group > 0 {
        let mut from = 0;
        while from < kept.len() {
            let rest: Vec<u32> = [&kept[..from], &kept[(from + group).min(kept.len())..]].concat();
            match once::<P>(&Options { only: Some(rest.iter().copied().collect()), ..options.clone() }) {
                Err(shorter) => (failure, kept) = (shorter, rest),
                Ok(_) => from += group,
            }
        }
        group /= 2;
    }
    Err(failure)
}

/// Runs a seed as it is.
pub fn once<P: Protocol>(options: &Options) -> Result<Report, Box<Failure>> {
    let mut simulation = Simulation::<P>::new(options);
    // A node that finds its own invariant broken panics: that is a finding like any other.
    let ended = catch_unwind(AssertUnwindSafe(|| simulation.run().and_then(|()| simulation.sweep())));
    let broken = match ended {
        Ok(Ok(())) => {
            let [done, refused] = simulation.answers;
            let (hash, events, slowest_ns) = (simulation.hash(), simulation.events, simulation.slowest_ns);
            return Ok(Report { hash, events, done, refused, slowest_ns });
        }
        Ok(Err(broken)) => broken,
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_else(|| {
            panic.downcast_ref::<&str>().map_or("a node panicked".into(), |text| (*text).to_string())
        }),
    };
    Err(Box::new(Failure { broken, options: options.clone(), trace: simulation.trace().cloned().collect() }))
}
