//! The options of `./pelago bench` that the emulator's plugin serves instead of a clock:
//! instruction counts and the coherence model.

use crate::bench::{coherence, counts, plugin};
use crate::machine::accelerator;
use crate::machine::testbed::Testbed;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use std::path::Path;

/// Models there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Private caches and a directory: docs/coherence.md
    Coherence,
}

/// See the module's head.
#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Count instructions by privilege and component, on one core
    #[arg(long, conflicts_with = "model")]
    counts: bool,
    /// Count, and write the counts to docs/counts.toml, which `./pelago test counts` compares with
    #[arg(long, conflicts_with = "model")]
    keep_counts: bool,
    /// Model what this machine cannot measure
    #[arg(long, value_enum)]
    model: Option<Model>,
    /// Lengths of a core's turn in the model, in cycles; several show how far figures depend on it
    #[arg(long, value_delimiter = ',', default_value = "200", requires = "model", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    turns: Vec<u64>,
    /// Print the N functions with most instructions under each row
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub functions: usize,
}

/// What `bench` itself was asked for.
pub struct Common<'a> {
    pub names: &'a [String],
    pub cpus: &'a [u32],
    pub json: Option<&'a Path>,
}

impl Options {
    /// True if this and not a clock is what was asked for.
    pub fn chosen(&self) -> bool {
        self.counts || self.keep_counts || self.model.is_some()
    }

    /// Cycles of a core's turn in the model: the first that was given.
    pub fn turn(&self) -> u64 {
        self.turns.first().copied().unwrap_or(200)
    }

    /// Measures, and prints.
    pub fn run(&self, common: &Common) -> Result<()> {
        // Before minutes of building.
        plugin::check_emulator()?;
        let wanted =
            |name: &str| common.names.is_empty() || common.names.iter().any(|part| name.contains(part.as_str()));
        if self.model.is_none() {
            let testbed = Testbed::with_system(accelerator::AccelChoice::Tcg, counts::SYSTEM)?;
            let request = counts::Request { functions: self.functions, keep: self.keep_counts, json: common.json };
            return counts::command(&testbed, &request, wanted);
        }
        let cpus_max = ::coherence::CORES_MAX as u32 - 1;
        ensure!(
            common.cpus.iter().all(|cpus| (1..=cpus_max).contains(cpus)),
            "--cpus: the model takes 1 to {cpus_max} cores; choose others"
        );
        let request = coherence::Request {
            names: common.names,
            cpus: common.cpus,
            turns: &self.turns,
            functions: self.functions,
            json: common.json,
        };
        coherence::command(&request)
    }
}
