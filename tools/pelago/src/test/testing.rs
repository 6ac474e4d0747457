//! `./pelago test`: boot scenarios in tiers, and the unit tests of every crate that runs on the
//! host.
//!
//! A higher tier stands on the lower ones, and is run all the same when one of those failed: what
//! it finds is worth knowing. Only where the system does not boot nothing else is run, and counts
//! as failed. What failed a limit in time is run once more at the end (`repeat.rs`).

use crate::host::late::Late;
use crate::host::progress::{self, Progress};
use crate::host::skip::Skip;
use crate::host::{cargo, leftovers, place};
use crate::machine::accelerator;
use crate::machine::record::Record;
use crate::machine::testbed::Testbed;
use crate::test::repeat::{self, End, Ran};
use crate::test::scenario::{Bench, Beside, CONSOLE, Scenario};
use crate::test::{matrix, quick, scenarios, times, unit};
use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Scenarios that measure nothing run this many at a time, on machines that have the cores.
const AT_ONCE: usize = 2;
/// Beside these so many run that mostly wait.
const WAITING_AT_ONCE: usize = 2;

/// Options of `test`.
#[derive(Args)]
pub struct Options {
    /// Run only scenarios of these names; a word that is no whole name selects all that contain it
    name: Vec<String>,
    /// Run only this tier: 0 boot, 1 kernel, 2 components, 3 Linux programs, 4 network and
    /// recovery, 5 applications
    #[arg(long)]
    tier: Option<u8>,
    /// Also run scenarios that take minutes; otherwise they run by their whole name only
    #[arg(long)]
    nightly: bool,
    /// Run what is worth it after each change: the unit tests of the crates that it touches, and
    /// one machine and core count of each family of scenarios
    #[arg(long, conflicts_with_all = ["nightly", "name"])]
    quick: bool,
    /// Print the names instead of running
    #[arg(long)]
    list: bool,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    accel: accelerator::AccelChoice,
}

impl Options {
    /// A run by name or at night shows each failure; any other tries late scenarios again.
    fn repeats(&self) -> bool {
        self.name.is_empty() && !self.nightly
    }
}

/// Name of all unit tests together.
const UNIT: &str = "unit";

/// Runs what was chosen.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut chosen = scenarios::all();
    // Who names a family means all of it.
    if options.name.is_empty() {
        matrix::thin(&mut chosen);
    }
    chosen.sort_by_key(|scenario| scenario.tier);
    let selection = Selection::new(&options.name, &chosen)?;
    chosen.retain(|scenario| {
        let wanted = !scenario.nightly || options.nightly || options.name.contains(&scenario.name);
        wanted && options.tier.is_none_or(|tier| tier == scenario.tier) && selection.have(&scenario.name)
    });
    if options.quick {
        quick::thin(&mut chosen);
    }
    let unit = options.tier.is_none() && selection.have(UNIT);
    if options.list {
        if unit {
            println!("- {UNIT}");
        }
        chosen.iter().for_each(|scenario| println!("{} {}", scenario.tier, scenario.name));
        return Ok(ExitCode::SUCCESS);
    }
    if chosen.is_empty() && !unit {
        bail!("no scenario has such a name; `./pelago test --list` prints them");
    }
    let (mut count, start, mut times) = (Count::default(), Instant::now(), Vec::new());
    leftovers::adopt();
    let progress = Progress::start();
    if unit {
        let _running = progress.begin("unit tests", progress::LIMIT);
        let (passed, failed) = if options.quick { unit::test_changed() } else { unit::test() }?;
        count.passed += passed;
        count.failed += failed;
    }
    if !chosen.is_empty() {
        let building = progress.begin("the guest's build", progress::LIMIT);
        let bench = Testbed::new(options.accel).map(Bench::new);
        drop(building);
        match bench {
            Ok(bench) => {
                let runner = Runner::new(&bench, &progress, options.repeats());
                runner.all(&chosen).into_iter().for_each(|(scenario, end)| count.add(&scenario.name, end));
                times = runner.times.into_inner().unwrap_or_default();
            }
            Err(error) => {
                println!("FAIL build: {error:#}");
                count.failed += chosen.len();
            }
        }
    }
    drop(progress);
    for name in leftovers::end() {
        println!("     ended {name}, which a scenario had left running");
    }
    if times.len() > 1 {
        println!("     the longest:");
        times::longest(times).iter().for_each(|line| println!("{line}"));
    }
    println!("{}", times::share(cargo::building(), start.elapsed()));
    count.skips.iter().for_each(|skip| println!("skipped: {skip}"));
    if count.flaky.len() > repeat::FLAKY_MAX {
        println!(
            "FAIL {} scenarios were flaky, more than {}: {}",
            count.flaky.len(),
            repeat::FLAKY_MAX,
            count.flaky.join(", ")
        );
        count.failed += 1;
    }
    println!("{}", count.summary());
    Ok(if count.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command line's names.
struct Selection<'o> {
    /// Of one scenario each.
    whole: Vec<&'o str>,
    /// Of all that contain it.
    parts: Vec<&'o str>,
}

impl<'o> Selection<'o> {
    /// An error if one of them names nothing: the others would pass without it.
    fn new(names: &'o [String], scenarios: &[Scenario]) -> Result<Selection<'o>> {
        let is_whole = |name: &&str| scenarios.iter().any(|scenario| scenario.name == *name);
        let (whole, parts): (_, Vec<&str>) = names.iter().map(String::as_str).partition(is_whole);
        for part in &parts {
            let is_known = UNIT.contains(part) || scenarios.iter().any(|scenario| scenario.name.contains(part));
            ensure!(is_known, "no scenario has `{part}` in its name; `./pelago test --list` prints them");
        }
        Ok(Selection { whole, parts })
    }

    fn have(&self, name: &str) -> bool {
        let is_all = self.whole.is_empty() && self.parts.is_empty();
        is_all || self.whole.contains(&name) || self.parts.iter().any(|part| name.contains(part))
    }
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    /// What did not run, and why.
    skips: Vec<String>,
    /// Names of those that passed the second time; they are among the passed.
    flaky: Vec<String>,
}

impl Count {
    fn summary(&self) -> String {
        let part = |what: &[String], word: &str| match what.len() {
            0 => String::new(),
            count => format!(", {count} {word}"),
        };
        let rest = part(&self.skips, "skipped") + &part(&self.flaky, "flaky");
        format!("{} passed, {} failed{rest}", self.passed, self.failed)
    }

    /// Something passed and nothing failed.
    fn is_success(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    fn add(&mut self, name: &str, end: End) {
        match end {
            End::Passed => self.passed += 1,
            End::Flaky(_) => {
                self.passed += 1;
                self.flaky.push(name.to_owned());
            }
            End::Failed | End::Late(_) => self.failed += 1,
            End::Skipped(what) => self.skips.push(what),
        }
    }
}

/// Runs scenarios.
struct Runner<'b> {
    bench: &'b Bench,
    progress: &'b Progress,
    /// What failed a limit in time is run once more.
    repeats: bool,
    /// Where consoles and captures of failures are kept: those that were run once more in `flaky`.
    kept: PathBuf,
    /// How long each took.
    times: Mutex<Vec<(String, Duration)>>,
}

impl<'b> Runner<'b> {
    fn new(bench: &'b Bench, progress: &'b Progress, repeats: bool) -> Runner<'b> {
        Runner { bench, progress, repeats, kept: place::out(), times: Mutex::default() }
    }

    /// Runs all of these, which are sorted by tier.
    fn all<'s>(&self, chosen: &'s [Scenario]) -> Vec<(&'s Scenario, End)> {
        // What an earlier run kept, if one did.
        for how in ["flaky", "failed"] {
            let _ = std::fs::remove_dir_all(self.kept.join(how));
        }
        let mut ran: Vec<(&Scenario, End)> = Vec::new();
        let mut is_over = false;
        // The boot tier by itself, then all others together, so that no core waits at a tier's end.
        for tier in chosen.chunk_by(|one, next| (one.tier == repeat::BOOT_TIER) == (next.tier == repeat::BOOT_TIER)) {
            if is_over {
                let fail =
                    |scenario: &Scenario| println!("FAIL {} not run, since the system does not boot", scenario.name);
                tier.iter().for_each(fail);
                ran.extend(tier.iter().map(|scenario| (scenario, End::Failed)));
                continue;
            }
            let (alone, some): (Vec<_>, Vec<_>) = tier.iter().partition(|scenario| scenario.beside == Beside::Nothing);
            let (pairs, sharing): (Vec<_>, Vec<_>) = some.into_iter().partition(|one| one.beside == Beside::One);
            let mut ends = self.together(&sharing);
            ends.extend(self.together(&pairs));
            ends.extend(alone.iter().map(|scenario| self.one(scenario, self.repeats)));
            is_over = repeat::ends_run(tier[0].tier, &ends, self.repeats);
            ran.extend(sharing.into_iter().chain(pairs).chain(alone).zip(ends));
        }
        self.again(ran)
    }

    /// Ends in the order of the scenarios.
    fn together(&self, scenarios: &[&Scenario]) -> Vec<End> {
        let of = |waits: bool| -> VecDeque<usize> {
            (0..scenarios.len()).filter(|place| (scenarios[*place].beside == Beside::Waits) == waits).collect()
        };
        let (busy, waiting, ends) = (Mutex::new(of(false)), Mutex::new(of(true)), Mutex::new(BTreeMap::new()));
        let next = |queue: &Mutex<VecDeque<usize>>| queue.lock().ok().and_then(|mut queue| queue.pop_front());
        let work = |takes_busy: bool| {
            while let Some(place) = takes_busy.then(|| next(&busy)).flatten().or_else(|| next(&waiting)) {
                let end = self.one(scenarios[place], self.repeats);
                if let Ok(mut ends) = ends.lock() {
                    ends.insert(place, end);
                }
            }
        };
        std::thread::scope(|scope| {
            (0..AT_ONCE).for_each(|_| drop(scope.spawn(|| work(true))));
            (0..WAITING_AT_ONCE).for_each(|_| drop(scope.spawn(|| work(false))));
        });
        let mut ends = ends.into_inner().unwrap_or_default();
        (0..scenarios.len()).map(|place| ends.remove(&place).unwrap_or(End::Failed)).collect()
    }

    /// Runs once more, alone, what failed a limit in time, and whom it judges.
    fn again<'s>(&self, ran: Vec<(&'s Scenario, End)>) -> Vec<(&'s Scenario, End)> {
        let all: Vec<_> =
            ran.iter().map(|(scenario, end)| Ran { name: &scenario.name, judges: &scenario.judges, end }).collect();
        let places = if self.repeats { repeat::again(&all) } else { Vec::new() };
        places.iter().for_each(|&place| self.bench.discard_all_notes(ran[place].0));
        let mut second: BTreeMap<usize, End> = BTreeMap::new();
        for &place in &places {
            println!("     once more, alone: {}", ran[place].0.name);
            second.insert(place, self.one(ran[place].0, false));
        }
        let ends = ran.into_iter().enumerate().map(|(place, (scenario, first))| {
            let name = &scenario.name;
            let end = match (&first, second.remove(&place)) {
                (End::Late(_), None) if self.repeats => {
                    println!("FAIL {name}: too many were late for another try");
                    End::Failed
                }
                (_, again) => repeat::verdict(first, again),
            };
            if let End::Flaky(words) = &end {
                println!("flaky {name}: {words}");
            }
            (scenario, end)
        });
        ends.collect()
    }

    /// Runs one; what is late is kept if it will be run again.
    fn one(&self, scenario: &Scenario, repeats: bool) -> End {
        let start = Instant::now();
        let limit = if scenario.nightly { progress::NIGHTLY_LIMIT } else { progress::LIMIT };
        let running = self.progress.begin(&scenario.name, limit);
        let made = self.bench.of(scenario);
        let result = match &made {
            Ok((bench, _)) => catch_unwind(AssertUnwindSafe(|| (scenario.body)(bench)))
                .unwrap_or_else(|_| Err(anyhow!("the scenario itself panicked; its message is above"))),
            Err(error) => Err(anyhow!("{error:#}")),
        };
        drop(running);
        let (name, seconds) = (&scenario.name, start.elapsed().as_secs_f64());
        if let Ok(mut times) = self.times.lock() {
            times.push((name.clone(), start.elapsed()));
        }
        let Err(error) = result else {
            println!("ok   {name} ({seconds:.1} s)");
            return End::Passed;
        };
        let end = judge(name, &error);
        match &end {
            End::Late(words) if repeats => {
                let look = self.keep("flaky", name, &made, &error);
                println!("late {name} ({seconds:.1} s): {words}; {look}");
            }
            End::Skipped(what) => println!("skip {what}"),
            _ => {
                println!("FAIL {name} ({seconds:.1} s): {error:#}");
                println!("     {name}: {}", self.keep("failed", name, &made, &error));
            }
        }
        end
    }

    /// Keeps consoles and captures of a scenario that failed; tells where.
    fn keep(&self, how: &str, name: &str, made: &Result<(Bench, Arc<Record>)>, failure: &anyhow::Error) -> String {
        let kept = self.kept.join(how).join(name.replace('/', "-"));
        match made {
            Ok((_, record)) => match record.keep(&kept, &format!("{failure:#}")) {
                Ok(()) => format!("see {}", kept.display()),
                Err(error) => format!("{error:#}"),
            },
            Err(_) => "no machine was made".to_owned(),
        }
    }
}

/// How a scenario ended that did not pass.
fn judge(name: &str, error: &anyhow::Error) -> End {
    match error.downcast_ref::<Skip>() {
        Some(skip) if !skip.could_have_run() => End::Skipped(format!("{name}: {skip}")),
        Some(_) => End::Failed,
        // Its first line; the console follows.
        None if error.is::<Late>() => {
            let words = format!("{error:#}");
            let first = words.lines().next().unwrap_or_default().trim_end_matches(':');
            End::Late(first.trim_end_matches(CONSOLE).to_owned())
        }
        None => End::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::late::late;
    use anyhow::Context;
    use std::sync::{Barrier, Condvar};

    /// So long a scenario waits for the other of its pair.
    const PAIR_LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_whole_name_is_one_scenario() {
        let scenarios =
            ["boot/q35/2", "boot/q35/255", "boot/microvm/1"].map(|name| Scenario::alone(0, name.into(), |_| Ok(())));
        let have = |wish: &str, name: &str| Selection::new(&[wish.to_owned()], &scenarios).unwrap().have(name);
        assert!(have("boot/q35/2", "boot/q35/2") && !have("boot/q35/2", "boot/q35/255"));
        assert!(have("q35", "boot/q35/2") && have("q35", "boot/q35/255") && !have("microvm", "boot/q35/2"));
        assert!(Selection::new(&[], &scenarios).unwrap().have("unit"));
    }

    #[test]
    fn a_run_that_ran_nothing_is_no_success() {
        let mut count = Count::default();
        assert!(!count.is_success());
        count.add("a", End::Skipped("a: no such card".into()));
        assert!(!count.is_success());
        count.add("b", End::Passed);
        assert_eq!((count.is_success(), count.summary()), (true, "1 passed, 0 failed, 1 skipped".into()));
        count.add("c", End::Flaky("no reply".into()));
        assert_eq!((count.is_success(), count.summary()), (true, "2 passed, 0 failed, 1 skipped, 1 flaky".into()));
        count.add("d", End::Failed);
        assert!(!count.is_success());
    }

    #[test]
    fn what_failed_otherwise_than_by_time_is_not_late() {
        let failures = ["a wrong byte", "a lost frame", "the guest ended before `ready` came", "page 3 leaks"];
        for words in failures {
            let error = Err::<(), _>(anyhow!(words)).context("round 1").unwrap_err();
            assert_eq!(judge("a", &error), End::Failed, "{words}");
        }
        // A transfer's own clock is no limit of ours.
        let transfer = anyhow::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut)).context("no answer");
        assert_eq!(judge("a", &transfer), End::Failed);
        let reply = late("no reply within 30 s; end of the console:\n    | x".into(), &[]).context("kill ip");
        assert_eq!(judge("a", &reply), End::Late("kill ip: no reply within 30 s".into()));
        assert_eq!(judge("a", &anyhow::Error::new(Skip::Cannot("no card".into()))), End::Skipped("a: no card".into()));
    }

    /// Runs scenarios that end as they are told, each time they run, and gives their ends and how
    /// many figures each has left.
    fn play(plans: Vec<(&'static str, Vec<Result<(), anyhow::Error>>)>) -> Vec<(String, End, usize)> {
        let folder = tempfile::tempdir().unwrap();
        let plays: Vec<_> = plans
            .into_iter()
            .map(|(name, ends)| {
                let ends = Mutex::new(ends.into_iter());
                Scenario::alone(4, name.into(), move |bench| {
                    bench.note("figures", &[1.0]);
                    ends.lock().unwrap().next().expect("it runs too often")
                })
            })
            .collect();
        let (bench, progress) = (Bench::new(Testbed::empty().unwrap()), Progress::start());
        let runner = Runner { kept: folder.path().to_owned(), ..Runner::new(&bench, &progress, true) };
        let ends = runner.all(&plays);
        for (scenario, _) in ends.iter().filter(|(_, end)| *end == End::Failed) {
            assert!(folder.path().join("failed").join(&scenario.name).join("failure.txt").exists());
        }
        let times = |scenario: &Scenario| bench.of(scenario).unwrap().0.noted("figures").len();
        ends.into_iter().map(|(scenario, end)| (scenario.name.clone(), end, times(scenario))).collect()
    }

    #[test]
    fn what_waits_runs_beside_two_others() {
        // Each waits until as many are under way as there may be.
        let barrier = Arc::new(Barrier::new(AT_ONCE + WAITING_AT_ONCE));
        let meets = |name: usize| {
            let barrier = barrier.clone();
            Scenario::shared(4, format!("meets/{name}"), move |_| {
                barrier.wait();
                Ok(())
            })
        };
        let busy = (0..AT_ONCE).map(meets);
        let mut all: Vec<Scenario> = (0..WAITING_AT_ONCE).map(|name| meets(AT_ONCE + name).waiting()).collect();
        all.extend(busy);
        let (bench, progress) = (Bench::new(Testbed::empty().unwrap()), Progress::start());
        let ends = Runner::new(&bench, &progress, true).together(&all.iter().collect::<Vec<_>>());
        assert_eq!(ends, [const { End::Passed }; AT_ONCE + WAITING_AT_ONCE]);
    }

    #[test]
    fn pairs_run_before_what_is_alone() {
        let arrived = Arc::new((Mutex::new(0), Condvar::new()));
        // Each waits for the other of its pair, and fails if that does not come.
        let meets = |name: usize| {
            let arrived = arrived.clone();
            let meet = move |_: &Bench| {
                let mut count = arrived.0.lock().unwrap();
                *count += 1;
                arrived.1.notify_all();
                let both = usize::next_multiple_of(*count, AT_ONCE);
                let (_count, wait) = arrived.1.wait_timeout_while(count, PAIR_LIMIT, |count| *count < both).unwrap();
                ensure!(!wait.timed_out(), "it is alone");
                Ok(())
            };
            Scenario::alone(4, format!("meets/{name}"), meet).in_pairs()
        };
        let mut all: Vec<Scenario> = (0..2 * AT_ONCE).map(meets).collect();
        let last = move |_: &Bench| (*arrived.0.lock().unwrap() == 2 * AT_ONCE).then_some(()).context("not the last");
        all.insert(0, Scenario::alone(4, "last".into(), last));
        let (bench, progress) = (Bench::new(Testbed::empty().unwrap()), Progress::start());
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner { kept: folder.path().to_owned(), ..Runner::new(&bench, &progress, true) };
        assert!(runner.all(&all).iter().all(|(_, end)| *end == End::Passed));
    }

    #[test]
    fn what_was_late_runs_once_more_and_nothing_else_does() {
        let no_reply = || Err(late("no reply".into(), &[]));
        let ends = play(vec![
            ("flaky", vec![no_reply(), Ok(())]),
            ("wrong", vec![Err(anyhow!("a wrong byte"))]),
            ("slow", vec![no_reply(), no_reply()]),
            ("broken", vec![no_reply(), Err(anyhow!("a wrong byte"))]),
            ("well", vec![Ok(())]),
        ]);
        let of = |name: &str| ends.iter().find(|(other, ..)| other == name).unwrap();
        assert_eq!(of("flaky").1, End::Flaky("no reply".into()));
        assert!(["wrong", "slow", "broken"].iter().all(|name| of(name).1 == End::Failed));
        assert_eq!(of("well").1, End::Passed);
        // Figures of the first time are forgotten.
        assert!(ends.iter().all(|(_, _, figures)| *figures == 1), "{ends:?}");
    }

    #[test]
    fn neither_names_nor_nights_repeat() {
        let options = |words: &[&str]| {
            <Options as clap::Args>::augment_args(clap::Command::new("test"))
                .try_get_matches_from([&["test"], words].concat())
                .map(|found| <Options as clap::FromArgMatches>::from_arg_matches(&found).unwrap())
                .unwrap()
        };
        assert!(options(&[]).repeats() && options(&["--tier", "4"]).repeats());
        assert!(options(&["--quick"]).repeats());
        assert!(!options(&["--nightly"]).repeats() && !options(&["boot"]).repeats());
    }

    #[test]
    fn a_name_of_nothing_is_an_error_beside_others_too() {
        let all = scenarios::all();
        let error = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            Selection::new(&names, &all).err().map(|error| error.to_string())
        };
        assert_eq!(error(&[]), None);
        assert_eq!(error(&["unit", "boot", "recovery/"]), None);
        assert!(error(&["recovery/", "recovered/"]).is_some_and(|said| said.contains("`recovered/`")));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = scenarios::all().into_iter().map(|scenario| scenario.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn judges_run_after_those_they_judge() {
        let all = scenarios::all();
        for (place, judge) in all.iter().enumerate() {
            for name in &judge.judges {
                let judged = all.iter().position(|scenario| scenario.name == *name);
                assert!(judged.is_some_and(|judged| judged < place), "{} judges {name}", judge.name);
                // Those that share a machine run before those that do not.
                assert!(judge.beside == Beside::Nothing, "{} may run before {name}", judge.name);
            }
        }
    }
}
