//! What the plugin writes and the host tool reads: whole numbers only, in a fixed order, so that
//! two equal runs give equal bytes.

use crate::{Counters, StepRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// `count` or `coherence`.
    pub mode: String,
    /// Cycles of a turn.
    pub turn: u64,
    /// Marks without their other half: a measured thread moved to another core. Their stretches are
    /// not in the rows.
    pub unmatched: u64,
    /// In the order of their first stretches.
    pub rows: Vec<Row>,
    /// The longest steps of the kernel since the first mark, longest first.
    pub steps: Vec<StepRow>,
}

/// All stretches of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// As the marks have it.
    pub name: String,
    /// The component that made the first of them.
    pub begun_by: String,
    /// How many cores had such stretches.
    pub cores: u64,
    /// Sum over all stretches.
    pub operations: u64,
    /// Modelled cycles from the begin of each stretch to its end, added up: with those in which its
    /// core was halted, which are in no counter.
    pub elapsed: u64,
    /// How long of it each core was not halted, in modelled cycles.
    pub awake: Vec<u64>,
    /// How many stretches.
    pub stretches: u64,
    /// The stretch in the middle by instructions per operation.
    pub median: Sample,
    /// Sum over all stretches.
    pub total: Counters,
    /// Its parts; `kernel` is what ran at kernel privilege, for any component.
    pub components: BTreeMap<String, Counters>,
    /// And their parts, most cycles (or instructions, where cycles are not modelled) first.
    pub functions: Vec<FunctionRow>,
}

/// One stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// As its mark says.
    pub operations: u64,
    /// Of all components.
    pub instructions: u64,
    /// Instructions by component.
    pub components: BTreeMap<String, u64>,
}

/// A function's part of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionRow {
    /// Whose; `kernel` for all that ran at kernel privilege.
    pub component: String,
    /// Its name without mangling; `?` where none is known.
    pub function: String,
    /// Sums over all stretches.
    pub counters: Counters,
}
