//! What a request costs its client, with a worker for each client and with one worker for the core
//! whom clients help (figure 5).

use super::{STUDY, system, told};
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Accelerator, Machine};
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const REQUESTS_WORD: &str = "nova.requests=";
const LIMIT: Duration = Duration::from_secs(120);
/// What a bill may differ from the most frequent by to be one request's own, in per cent.
const OWN_PERCENT: u64 = 5;

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    WorkerForEachClient,
    WorkerForTheCore,
}

impl Scheme {
    const ALL: [(Scheme, &str); 2] = [(Scheme::WorkerForEachClient, "client"), (Scheme::WorkerForTheCore, "core")];

    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            Scheme::WorkerForEachClient => "a worker for each client",
            Scheme::WorkerForTheCore => "a worker for the core, helped",
        }
    }
}

/// What requests cost, by the guest's clock, whose nanoseconds are instructions.
#[derive(Debug, PartialEq, Eq)]
pub struct Bills {
    pub scheme: Scheme,
    /// Begin of a step, and requests that cost so much, in order.
    pub steps: Vec<(u64, u64)>,
    /// From the first request's begin to the last one's end.
    pub took_ns: u64,
}

impl Bills {
    /// From what the guest told.
    fn parse(lines: &[String], scheme: Scheme, word: &str) -> Result<Bills> {
        let after = |first: &str| {
            let begin = format!("{first} {word} ");
            lines.iter().filter_map(move |line| line.strip_prefix(&begin).map(str::to_owned)).collect::<Vec<_>>()
        };
        let mut steps = Vec::new();
        for line in after("bills") {
            for text in line.split_whitespace() {
                let (ns, count) = text.split_once(':').with_context(|| format!("no step: {text}"))?;
                steps.push((ns.parse()?, count.parse()?));
            }
        }
        let took = after("took").pop().with_context(|| format!("the guest told nothing of {word}"))?;
        let words: Vec<&str> = took.split_whitespace().collect();
        let [took_ns, "ns", "for", requests, "requests"] = words[..] else { anyhow::bail!("no time: {took}") };
        let bills = Bills { scheme, steps, took_ns: took_ns.parse()? };
        ensure!(bills.requests() == requests.parse::<u64>()?, "{} bills of {requests} requests", bills.requests());
        Ok(bills)
    }

    /// How many there were.
    pub fn requests(&self) -> u64 {
        self.steps.iter().map(|(_, count)| count).sum()
    }

    /// The step of most of them: a request's own cost.
    pub fn usual(&self) -> u64 {
        self.steps.iter().max_by_key(|(_, count)| *count).map_or(0, |(ns, _)| *ns)
    }

    /// How many cost between these per cent of the usual, the first included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        let usual = self.usual();
        let is_there = |ns: u64| (usual * low..usual * high).contains(&(ns * 100));
        self.steps.iter().filter(|(ns, _)| is_there(*ns)).map(|(_, count)| count).sum()
    }

    /// Part of them that cost what a request costs.
    pub fn own(&self) -> f64 {
        self.between(100 - OWN_PERCENT, 100 + OWN_PERCENT) as f64 / self.requests() as f64
    }

    /// The dearest, in parts of the usual one.
    pub fn most(&self) -> f64 {
        self.steps.last().map_or(0.0, |(ns, _)| *ns as f64 / self.usual() as f64)
    }

    /// How many paid for a part of another's, by quarters of a request: in each the same, if slices
    /// end anywhere.
    pub fn helped(&self) -> [u64; 4] {
        [(100 + OWN_PERCENT, 125), (125, 150), (150, 175), (175, 205)].map(|(low, high)| self.between(low, high))
    }

    /// Requests in a millisecond, of all clients.
    pub fn throughput(&self) -> f64 {
        self.requests() as f64 * 1e6 / self.took_ns as f64
    }
}

/// Boots and measures both schemes, with so many requests of a client, or the program's own number.
pub fn measure(testbed: &Testbed, requests: Option<u64>) -> Result<[Bills; 2]> {
    let mut guest = testbed.boot_system(&system()?, MachineType::Q35, 1, &[], |_, machine: &mut Machine| {
        machine.is_repeatable = true;
        machine.instruction_ns = Some(1);
        machine.has_card = false;
        machine.accelerator = Accelerator::Tcg;
        machine.command_line.push(format!("{STUDY}accounting"));
        machine.command_line.extend(requests.map(|requests| format!("{REQUESTS_WORD}{requests}")));
        Ok(())
    })?;
    let lines = told(&mut guest, LIMIT).inspect_err(|_| eprint!("{}", guest.tail()))?;
    let [client, core] = Scheme::ALL.map(|(scheme, word)| Bills::parse(&lines, scheme, word));
    Ok([client?, core?])
}

/// A line for each scheme.
pub fn print(all: &[Bills; 2]) {
    println!("figure 5, 8 clients of one core, instructions by the clients' scheduling contexts");
    for bills in all {
        let [below, above] =
            [bills.between(0, 100 - OWN_PERCENT), bills.between(100 + OWN_PERCENT, u64::MAX / 1_000_000)];
        println!(
            "  {}: {:.2} % of {} requests cost about {}; {below} less, {above} more (by quarters {:?}), {:.2} times at most; {:.1} requests/ms",
            bills.scheme.label(),
            bills.own() * 100.0,
            bills.requests(),
            bills.usual(),
            bills.helped(),
            bills.most(),
            bills.throughput()
        );
    }
    println!(
        "  the paper's: more than 99 % at a request's cost; a small peak for the timer; up to twice where clients help"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bills(lines: &[&str]) -> Result<Bills> {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        Bills::parse(&lines, Scheme::WorkerForTheCore, "core")
    }

    #[test]
    fn bills_are_read_and_judged() {
        let lines = [
            "bills client 1:7",
            "bills core 2000:1 5000:95",
            "bills core 6000:2 9900:2",
            "took core 1000000 ns for 100 requests",
        ];
        let bills = bills(&lines).unwrap();
        assert_eq!((bills.requests(), bills.usual(), bills.helped()), (100, 5000, [2, 0, 0, 2]));
        assert_eq!((bills.own(), bills.most(), bills.throughput()), (0.95, 1.98, 100.0));
    }

    #[test]
    fn a_bill_that_is_missing_is_told() {
        let error = bills(&["bills core 5000:95", "took core 1000 ns for 100 requests"]).unwrap_err();
        assert!(error.to_string().contains("95 bills of 100"), "{error}");
        assert!(bills(&["bills core 5000:95"]).is_err());
    }
}
