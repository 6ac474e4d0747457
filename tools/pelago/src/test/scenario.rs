//! What a boot scenario is, and what it is given.
//!
//! A scenario is a name, a tier and a function; matrices over machines and cores are unrolled into
//! one scenario each, so that a name given on the command line repeats exactly one failure.

use crate::host::late::Late;
use crate::host::skip::Skip;
use crate::machine::guest::Guest;
use crate::machine::record::Record;
use crate::machine::testbed::Testbed;
use crate::test::notes::Notes;
use anyhow::Result;
use std::sync::Arc;

/// What a scenario does; an error is its failure, or a [`Skip`], or [`Late`] where nothing but a
/// limit in time was not kept.
pub type Body = Box<dyn Fn(&Bench) -> Result<()> + Send + Sync>;

/// What a scenario may run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// It has the machine for itself.
    Nothing,
    /// One other that is such: it measures times, with room for twice as long, and both cores are
    /// idle for much of its own.
    One,
    /// Others: it measures no time.
    Others,
    /// Others, and those that have both cores: most of its time is a fixed one that it waits.
    Waits,
}

/// One scenario.
pub struct Scenario {
    /// Unique, for instance `boot/q35/4`.
    pub name: String,
    pub tier: u8,
    pub beside: Beside,
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
        let (beside, nightly, judges) = (Beside::Nothing, false, Vec::new());
        Scenario { name, tier, beside, nightly, judges, body: Box::new(body) }
    }

    /// One that has the machine for itself, for minutes.
    pub fn nightly(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { nightly: true, ..Scenario::alone(tier, name, body) }
    }

    /// One that may run beside others.
    pub fn shared(tier: u8, name: String, body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static) -> Scenario {
        Scenario { beside: Beside::Others, ..Scenario::alone(tier, name, body) }
    }

    /// One that may run beside others, if `shares`; else it has the machine for itself.
    pub fn sharing(self, shares: bool) -> Scenario {
        Scenario { beside: if shares { Beside::Others } else { Beside::Nothing }, ..self }
    }

    /// One that mostly waits, beside as many others as have work for the cores.
    pub fn waiting(self) -> Scenario {
        Scenario { beside: Beside::Waits, ..self }
    }

    /// One that runs beside one other such.
    pub fn in_pairs(self) -> Scenario {
        Scenario { beside: Beside::One, ..self }
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

/// What every scenario is given: a testbed, and figures that other scenarios wrote down.
#[derive(Clone)]
pub struct Bench {
    testbed: Testbed,
    notes: Notes,
    /// Whose this is, and whom it judges.
    scenario: String,
    judges: Vec<String>,
}

impl std::ops::Deref for Bench {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

impl Bench {
    /// Nobody's yet, without notes.
    pub fn new(testbed: Testbed) -> Bench {
        Bench { testbed, notes: Notes::default(), scenario: String::new(), judges: Vec::new() }
    }

    /// The same for one scenario. What its machines say and send is recorded.
    pub fn of(&self, scenario: &Scenario) -> Result<(Bench, Arc<Record>)> {
        let (testbed, record) = self.testbed.recorded()?;
        let (name, judges) = (scenario.name.clone(), scenario.judges.clone());
        Ok((Bench { testbed, scenario: name, judges, notes: self.notes.clone() }, record))
    }

    /// Writes figures down under a name, for this scenario and those that judge it.
    pub fn note(&self, name: &str, figures: &[f64]) {
        self.notes.add(&self.scenario, name, figures);
    }

    /// Strikes out what this scenario wrote down under a name.
    pub fn discard_notes(&self, name: &str) {
        self.notes.discard(&self.scenario, Some(name));
    }

    /// Strikes out all that a scenario wrote down, before it is run again.
    pub fn discard_all_notes(&self, scenario: &Scenario) {
        self.notes.discard(&scenario.name, None);
    }

    /// All figures written down under a name by those whom this scenario judges, and by itself;
    /// sorted.
    pub fn noted(&self, name: &str) -> Vec<f64> {
        self.notes.of(|writer| writer == self.scenario || self.judges.iter().any(|judged| judged == writer), name)
    }
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
