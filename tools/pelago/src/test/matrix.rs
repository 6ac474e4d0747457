//! What a plain run has of a matrix. A question that is asked on several machine types and numbers
//! of cores is asked on each of them once, and not on each with each; one that is asked on 1 and 2
//! cores of one machine type is asked on one of them, the next question on the other. The rest is
//! for `--nightly`, or a scenario's whole name.

use crate::image::machine_type::MachineType;
use crate::test::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};

/// Most cores of a machine; a number above it, last in a name, is something else.
const CPUS_MAX: u32 = 255;

/// Leaves to the night what a plain run does not have. What another scenario judges stays: it needs
/// the figures of all.
pub fn thin(scenarios: &mut [Scenario]) {
    let judged: BTreeSet<String> = scenarios.iter().flat_map(|scenario| scenario.judges.iter().cloned()).collect();
    let is_plain = |scenario: &&Scenario| !scenario.nightly && !judged.contains(&scenario.name);
    let names: Vec<String> = scenarios.iter().filter(is_plain).map(|scenario| scenario.name.clone()).collect();
    let left = left_out(&names);
    for scenario in scenarios {
        scenario.nightly |= left.contains(scenario.name.as_str());
    }
}

/// A scenario, by its name: what it asks, on which machine type, on how many cores.
#[derive(Clone, Copy)]
struct Place<'n> {
    name: &'n str,
    machine: Option<&'n str>,
    cpus: Option<u32>,
}

/// Splits a name; its question is what is left without machine type and number of cores.
fn place(name: &str) -> (String, Place<'_>) {
    let is_machine = |word: &&str| MachineType::ALL.iter().any(|machine| machine.name() == *word);
    let mut words: Vec<&str> = name.split('/').collect();
    let cpus = words.last().and_then(|word| word.parse().ok()).filter(|cpus| (1..=CPUS_MAX).contains(cpus));
    words.truncate(words.len() - usize::from(cpus.is_some()));
    let machine = words.iter().copied().find(is_machine);
    words.retain(|word| !is_machine(word));
    (words.join("/"), Place { name, machine, cpus })
}

/// The names that a plain run can do without.
fn left_out(names: &[String]) -> BTreeSet<&str> {
    // In the order of the names, so that the next question is one that is like it.
    let mut questions: Vec<(String, Vec<Place>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        let (question, place) = place(name);
        let at = *known.entry(question.clone()).or_insert(questions.len());
        if at == questions.len() {
            questions.push((question, Vec::new()));
        }
        questions[at].1.push(place);
    }
    let (mut left, mut turn) = (BTreeSet::new(), 0);
    for (_, places) in questions {
        let kept = if places.iter().all(|place| place.machine.is_some()) {
            each_once(&places)
        } else if places.iter().filter_map(|place| place.cpus).eq([1, 2]) {
            turn += 1;
            BTreeSet::from([places[turn % 2].name])
        } else {
            continue;
        };
        left.extend(places.iter().map(|place| place.name).filter(|name| !kept.contains(name)));
    }
    left
}

/// Few of these, among which is each machine type and each number of cores.
fn each_once<'n>(places: &[Place<'n>]) -> BTreeSet<&'n str> {
    let mut machines: BTreeSet<_> = places.iter().map(|place| place.machine).collect();
    let mut cpus: BTreeSet<_> = places.iter().map(|place| place.cpus).collect();
    let mut kept = BTreeSet::new();
    while !machines.is_empty() || !cpus.is_empty() {
        let adds =
            |place: &&Place| usize::from(machines.contains(&place.machine)) + usize::from(cpus.contains(&place.cpus));
        // Of equals the first, which `max_by_key` gives last.
        let Some(best) = places.iter().rev().max_by_key(adds) else { break };
        machines.remove(&best.machine);
        cpus.remove(&best.cpus);
        kept.insert(best.name);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scenarios;

    fn kept(names: &[&str]) -> Vec<String> {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let left: BTreeSet<String> = left_out(&names).into_iter().map(str::to_owned).collect();
        names.retain(|name| !left.contains(name));
        names
    }

    #[test]
    fn each_machine_and_each_number_of_cores_is_there_once() {
        let all = ["web/q35/1", "web/q35/2", "web/q35/4", "web/microvm/1", "web/microvm/2", "web/microvm-mmio/1"];
        assert_eq!(kept(&all), ["web/q35/1", "web/q35/4", "web/microvm/2", "web/microvm-mmio/1"]);
    }

    #[test]
    fn questions_of_one_machine_take_turns() {
        let all = ["files/a/1", "files/a/2", "files/b/1", "files/b/2", "shell/1", "shell/2"];
        assert_eq!(kept(&all), ["files/a/2", "files/b/1", "shell/2"]);
    }

    #[test]
    fn what_is_no_number_of_cores_and_what_stands_alone_stays() {
        let all =
            ["crypto/others/512", "crypto/others/4096", "double-faults/monitor", "model/2", "model/4", "cli/page"];
        assert_eq!(kept(&all), all);
    }

    /// Of the scenarios that there are none loses its question, and no question a machine type or a
    /// number of cores that its plain run had.
    #[test]
    fn a_plain_run_asks_every_question_on_every_machine() {
        let mut all = scenarios::all();
        let of = |all: &[Scenario]| -> BTreeSet<(String, String)> {
            let plain = all.iter().filter(|scenario| !scenario.nightly);
            plain
                .flat_map(|scenario| {
                    let (question, place) = place(&scenario.name);
                    let parts =
                        [place.machine.map(str::to_owned), place.machine.and(place.cpus).map(|n| n.to_string())];
                    let rows = parts.into_iter().flatten().chain(["asked".to_owned()]);
                    rows.map(move |part| (question.clone(), part)).collect::<Vec<_>>()
                })
                .collect()
        };
        let before = of(&all);
        let count = all.iter().filter(|scenario| !scenario.nightly).count();
        thin(&mut all);
        let after = all.iter().filter(|scenario| !scenario.nightly).count();
        assert_eq!(of(&all), before);
        assert!((count / 2..count - 40).contains(&after), "{after} of {count}");
    }
}
