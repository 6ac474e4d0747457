//! Tier 4: recovery on a host that others use: four busy loops run beside the emulator.
//!
//! What a guest takes for a hang, and what waits with a limit, depends on how much of the host it
//! gets; nothing may fail for want of that.

use crate::host::skip::Skip;
use crate::test::scenario::{Bench, Scenario};
use crate::test::scenarios::{keep_alive, open_connections, recovery, recovery_beside_network};
use anyhow::{Context, Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};

const LOOPS: usize = 4;
/// Rounds of the nightly form, each of the whole of both groups.
const ROUNDS: usize = 20;
/// Rounds of the one scenario at which a guest was seen to end itself with status 70, once: a
/// component that cannot be restarted was given up, and which is not known.
const HANG_ROUNDS: usize = 100;
const HANG: &str = "open-connections/hang/q35/2";
/// What the plain run tries, one of each group.
const BRIEF: [&str; 2] = ["open-connections/hang/q35/1", "recovery/hang/q35/2"];

/// Of those that run by night only, these are short enough to be run in each round.
const NIGHTLY: [&str; 3] = ["open-connections/400/q35/2", "keep-alive/user/2", "keep-alive/tap/2"];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(4, "busy-host/brief".into(), |bench| run(bench, 1, |name| BRIEF.contains(&name))),
        Scenario::nightly(4, "busy-host/rounds".into(), |bench| run(bench, ROUNDS, |_| true)),
        Scenario::nightly(4, "busy-host/hang".into(), |bench| run(bench, HANG_ROUNDS, |name| name == HANG)),
    ]
}

fn run(bench: &Bench, rounds: usize, is_meant: impl Fn(&str) -> bool) -> Result<()> {
    let groups = [
        open_connections::scenarios(),
        recovery::scenarios(),
        keep_alive::scenarios(),
        recovery_beside_network::scenarios(),
    ];
    let is_short = |scenario: &Scenario| !scenario.nightly || NIGHTLY.contains(&scenario.name.as_str());
    let chosen = groups.into_iter().flatten().filter(|scenario| is_short(scenario) && is_meant(&scenario.name));
    let chosen: Vec<Scenario> = chosen.collect();
    let is_over = AtomicBool::new(false);
    let passed = std::thread::scope(|scope| {
        for _ in 0..LOOPS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let passed = (1..=rounds).map(|round| all_pass(bench, round, &chosen)).sum::<Result<usize>>();
        is_over.store(true, Ordering::Relaxed);
        passed
    })?;
    if passed == 0 {
        bail!(Skip::Cannot(
            "it repeats scenarios of open-connections and recovery, and this machine can have none".into()
        ));
    }
    println!("     {passed} scenarios passed beside {LOOPS} busy loops");
    Ok(())
}

/// How many passed; those that this machine cannot have are left out.
fn all_pass(bench: &Bench, round: usize, chosen: &[Scenario]) -> Result<usize> {
    let mut passed = 0;
    for scenario in chosen {
        match (scenario.body)(bench) {
            Ok(()) => passed += 1,
            Err(error) if error.is::<Skip>() => {}
            Err(error) => return Err(error).with_context(|| format!("round {round}, {}", scenario.name)),
        }
    }
    Ok(passed)
}
