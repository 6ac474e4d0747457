//! Tier 4: components are broken two by two, the second while the first is away, noticed, or being
//! started again. The system is whole afterwards, and a client of the host goes on downloading.
//!
//! The way in which each of a pair is broken and the pause between the two come from a seed, so a
//! failure can be repeated; the nightly form has other ways and pauses each time around.

use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario};
use crate::test::scenarios::random::Random;
use crate::test::scenarios::recovery_beside_network::{CONTROL_LIMIT, Clients, OF_A_CARD_THAT_IS_LOST, serve_on};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Whose death is mended: the last's by monitor 0, the others' by it.
const COMPONENTS: [&str; 6] = ["virtio-net", "ip", "names", "memory", "console", "supervisor"];
/// And that of the driver's core, at four cores, watched by its kernel and monitor 0. With those of
/// IP's core and TCP's the machine ends (`recovery-beside-network/monitor/3`, CAVEATS.md).
const MONITOR: &str = "monitor-1";
/// What ends with it.
const ON_ITS_CORE: &str = "virtio-net";
const WAYS: [&str; 4] = ["kill", "fault", "hang", "block"];
/// The longest pause between the two, milliseconds, is one less.
const PAUSES_MS: usize = 21;
const SEED: u64 = 0x5eed_0011;
/// How often the nightly form breaks each pair.
const TIMES: usize = 8;
/// How long a question may take. One that is being typed when the console is killed is lost with
/// what was read of it, and asked again.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long the system may take until it is whole.
const WHOLE_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for cpus in [1, 2] {
        all.push(Scenario::shared(4, format!("double-faults/{cpus}"), move |bench| {
            run(bench, cpus, of_components(), 1)
        }));
        all.push(Scenario::nightly(4, format!("double-faults/nightly/{cpus}"), move |bench| {
            run(bench, cpus, of_components(), TIMES)
        }));
    }
    // On cores of their own: 20 s.
    let monitor = Scenario::shared(4, "double-faults/monitor".into(), |bench| run(bench, 4, with_monitor(), 1));
    all.push(monitor.by_night(true));
    all.push(Scenario::nightly(4, "double-faults/nightly/monitor".into(), |bench| {
        run(bench, 4, with_monitor(), TIMES)
    }));
    all
}

type Pair = (&'static str, &'static str);

/// All ordered pairs of components.
fn of_components() -> Vec<Pair> {
    ordered(&COMPONENTS, |_, _| true)
}

/// All ordered pairs with the monitor among them, but for what ended with its core a moment before.
fn with_monitor() -> Vec<Pair> {
    let all = [&COMPONENTS[..], &[MONITOR]].concat();
    ordered(&all, |first, second| [first, second].contains(&MONITOR) && (first, second) != (MONITOR, ON_ITS_CORE))
}

fn ordered(all: &[&'static str], is_meant: impl Fn(&str, &str) -> bool) -> Vec<Pair> {
    let pairs = all.iter().flat_map(|first| all.iter().map(|second| (*first, *second)));
    pairs.filter(|(first, second)| first != second && is_meant(first, second)).collect()
}

fn run(bench: &Bench, cpus: u32, pairs: Vec<Pair>, times: usize) -> Result<()> {
    let mut random = Random(SEED);
    let loses_card = pairs.iter().any(|(first, second)| [first, second].contains(&&MONITOR));
    serve_on(bench, cpus, if loses_card { OF_A_CARD_THAT_IS_LOST } else { Clients::ONE }, |guest| {
        let mut whole = serving(guest)?;
        // It ends by itself, as a program runs.
        whole.retain(|name| name != "webd");
        for (first, second) in (0..times).flat_map(|_| &pairs) {
            let [way, other] = [(); 2].map(|()| WAYS[random.below(WAYS.len())]);
            let request = format!("chaos {way} {first} then {other} {second} {}", random.below(PAUSES_MS));
            let before = lives(guest, cpus)?;
            let reply = guest.control(&request, CONTROL_LIMIT).with_context(|| request.clone())?;
            ensure!(reply.starts_with("ok "), "{request}: {reply}");
            come_back(guest, cpus, [first, second], &before, &whole).with_context(|| request.clone())?;
        }
        println!("     double-faults/{cpus}: {} pairs of failures", pairs.len() * times);
        Ok(())
    })
}

/// Waits until both have had another life, and all serve that did before.
fn come_back(guest: &mut Guest, cpus: u32, victims: [&str; 2], before: &Lives, whole: &[String]) -> Result<()> {
    let end = Instant::now() + WHOLE_LIMIT;
    loop {
        // The component that would answer may be one of the two.
        let state = lives(guest, cpus).and_then(|lives| Ok((lives, serving(guest)?)));
        if let Ok((lives, serving)) = &state {
            let is_back = |victim: &&str| lives.get(*victim) > before.get(*victim);
            if victims.iter().all(is_back) && whole.iter().all(|name| serving.contains(name)) {
                return Ok(());
            }
        }
        if Instant::now() >= end {
            let told = format!("not whole after {} s: {state:?}, before {before:?}", WHOLE_LIMIT.as_secs());
            return Err(guest.late(told));
        }
        std::thread::sleep(LOOK_AGAIN);
        guest.catch_up();
    }
}

/// How many lives each component has had, and each monitor of another core.
type Lives = BTreeMap<String, u64>;

fn lives(guest: &mut Guest, cpus: u32) -> Result<Lives> {
    let lines = guest.control_lines("components", ANSWER_LIMIT)?;
    let components = lines.iter().map(|line| life(line).with_context(|| format!("`components` says {line}")));
    let mut lives = components.collect::<Result<Lives>>()?;
    for core in 1..cpus {
        let again = format!("core {core} runs again");
        let losses = guest.transcript.iter().filter(|line| line.ends_with(&again)).count();
        lives.insert(format!("monitor-{core}"), losses as u64);
    }
    Ok(lives)
}

/// From `ip           core 1     generation 2   running ...`.
fn life(line: &str) -> Option<(String, u64)> {
    let name = line.split_whitespace().next()?;
    let generation = line.split_once("generation ")?.1.split_whitespace().next()?;
    Some((name.to_owned(), generation.parse().ok()?))
}

/// The dispatchers that serve.
fn serving(guest: &mut Guest) -> Result<Vec<String>> {
    let lines = guest.control_lines("components -d", ANSWER_LIMIT)?;
    let serving = lines.iter().filter(|line| line.contains(" serving "));
    Ok(serving.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_there_once() {
        assert_eq!((of_components().len(), with_monitor().len()), (30, 11));
        assert!(with_monitor().contains(&(ON_ITS_CORE, MONITOR)) && !with_monitor().contains(&(MONITOR, ON_ITS_CORE)));
    }

    #[test]
    fn a_life_is_read() {
        let line = "ip           core 1     generation 12  running     1234 KiB        5 ms last recovery 9 us";
        assert_eq!(life(line), Some(("ip".to_owned(), 12)));
    }
}
