//! The longest steps of a kernel: from an entry to the return to a program, or to a halt. Between
//! these interrupts are off, so the longest is how long a core may serve nobody else.

use crate::BucketId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shorter steps are nobody's concern.
const INSTRUCTIONS_MIN: u64 = 2_000;
/// Functions kept of a step.
const PARTS_MAX: usize = 5;
/// Where the functions of calls are, each in the module of its family.
const CALLS: &str = "kernel::calls::";

/// The longest step of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRow {
    /// The first function of a call that ran in it; without one the function that was entered.
    pub name: String,
    /// Of the longest.
    pub instructions: u64,
    /// Steps of that kind that were at least 2,000 instructions long.
    pub times: u64,
    /// Functions with most of the longest one's instructions, and these.
    pub parts: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Step {
    instructions: u64,
    /// In the order in which they ran first.
    parts: Vec<(BucketId, u64)>,
}

/// Adds what another run saw.
pub fn merge(rows: &mut Vec<StepRow>, others: &[StepRow]) {
    for other in others {
        match rows.iter_mut().find(|row| row.name == other.name) {
            Some(row) => {
                let times = row.times + other.times;
                if row.instructions < other.instructions {
                    *row = other.clone();
                }
                row.times = times;
            }
            None => rows.push(other.clone()),
        }
    }
    sort(rows);
}

fn sort(rows: &mut [StepRow]) {
    rows.sort_by(|one, other| other.instructions.cmp(&one.instructions).then_with(|| one.name.cmp(&other.name)));
}

/// See the module's head.
#[derive(Debug)]
pub struct Steps {
    open: Vec<Step>,
    longest: BTreeMap<String, StepRow>,
}

impl Steps {
    /// None yet, on so many cores.
    pub fn new(cores: usize) -> Steps {
        Steps { open: vec![Step::default(); cores], longest: BTreeMap::new() }
    }

    /// A function of the kernel ran on `core`.
    pub fn add(&mut self, core: usize, bucket: BucketId, instructions: u64) {
        let step = &mut self.open[core];
        step.instructions += instructions;
        // The one that ran last is the likeliest to run again.
        match step.parts.iter_mut().rev().find(|(known, _)| *known == bucket) {
            Some((_, sum)) => *sum += instructions,
            None => step.parts.push((bucket, instructions)),
        }
    }

    /// The step of `core` ends; `name` names functions.
    pub fn end<'n>(&mut self, core: usize, name: impl Fn(BucketId) -> &'n str) {
        let step = &mut self.open[core];
        if step.instructions >= INSTRUCTIONS_MIN {
            let names = || step.parts.iter().map(|(bucket, _)| name(*bucket));
            let kind = names().find(|name| is_call(name)).or(names().next()).unwrap_or_default();
            let row = self.longest.entry(kind.to_owned()).or_default();
            row.times += 1;
            if row.instructions < step.instructions {
                step.parts.sort_by_key(|(_, instructions)| std::cmp::Reverse(*instructions));
                let parts = step.parts.iter().take(PARTS_MAX).map(|(bucket, sum)| (name(*bucket).to_owned(), *sum));
                (row.name, row.instructions, row.parts) = (kind.to_owned(), step.instructions, parts.collect());
            }
        }
        step.instructions = 0;
        step.parts.clear();
    }

    /// The longest of each kind, longest first.
    pub fn rows(&self) -> Vec<StepRow> {
        let mut rows: Vec<_> = self.longest.values().cloned().collect();
        sort(&mut rows);
        rows
    }
}

fn is_call(name: &str) -> bool {
    let path = name.strip_prefix(CALLS).and_then(|rest| rest.split_once("::"));
    path.is_some_and(|(family, call)| {
        !call.contains("::") && family.starts_with(|letter: char| letter.is_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, Mode, Names};

    #[test]
    fn the_longest_step_of_each_call_is_kept() {
        let names = Names::parse("image kernel\n10 10 kernel::trap::enter\n20 10 kernel::calls::Request::slot\n30 10 kernel::calls::range::unmap\n40 10 kernel::objects::free\n").unwrap();
        let mut ledger = Ledger::new(Mode::Count, 2);
        let kernel = ledger.component("kernel");
        let bucket = [0x10, 0x20, 0x30, 0x40].map(|at| ledger.bucket(kernel, names.at("kernel", at)));
        let name = |bucket| names.name(ledger.function(bucket));
        let mut steps = Steps::new(2);
        let mut run = |core, parts: &[(usize, u64)]| {
            parts.iter().for_each(|&(function, instructions)| steps.add(core, bucket[function], instructions));
            steps.end(core, name);
        };
        run(0, &[(0, 10), (1, 10), (2, 1000), (3, 5000), (2, 100)]);
        run(1, &[(0, 10), (1, 10), (2, 1000), (3, 3000)]);
        run(0, &[(0, 10), (1, 10), (2, 100)]);
        run(0, &[(0, 10), (3, 2500)]);
        let rows = steps.rows();
        let [call, other] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((call.name.as_str(), call.instructions, call.times), ("kernel::calls::range::unmap", 6120, 2));
        assert_eq!(call.parts[..2], [("kernel::objects::free".into(), 5000), (call.name.clone(), 1100)]);
        assert_eq!((other.name.as_str(), other.instructions), ("kernel::trap::enter", 2510));
        let mut all = vec![StepRow { times: 3, instructions: 7000, ..call.clone() }];
        merge(&mut all, &rows);
        assert_eq!(all, [StepRow { times: 5, instructions: 7000, ..call.clone() }, other.clone()]);
    }
}
