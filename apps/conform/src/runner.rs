//! Runs all suites on this core and says how it went.

use alloc::rc::Rc;

use abi::{Handle, Rights};
use runtime::Start;

use crate::table::{Body, Failure, Outcome, Test};
use crate::turns::{self, Phase};
use crate::{Fixture, Partner, partner, suites};

/// Between two tests the component looks at what came for it meanwhile.
const PAUSE_NS: u64 = 1;

/// Word of the command line by which one test is run alone
/// (`tools/pelago/src/test/scenarios/objects.rs`).
const ONLY: &str = "conform.only=";

/// The component.
pub async fn run(start: Start) {
    runtime::spawn(partner::serve(start.clone()));
    let mut tally = Tally::default();
    let next = Partner::next(&start).map(Rc::new);
    for phase in [Phase::Presence, Phase::Alone, Phase::Paired] {
        if let Err(failure) = tally.take(&start, &next, phase).await {
            tally.note(&start, "runner", "turn", Err(failure));
        }
    }
    runtime::log!("core {} done: {} ok, {} failed", start.core(), tally.passed, tally.failed);
    // Until now its monitor did not beat it: some tests compute for longer than a component may.
    start.serving();
    // The core before this one may still ask.
    core::future::pending().await
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    /// Takes part in a phase when it is this core's turn. Tests with a partner are absent where
    /// there is none.
    async fn take(&mut self, start: &Start, next: &Option<Rc<Partner>>, phase: Phase) -> Outcome {
        let fixture = Fixture::new(start)?;
        turns::begin(&fixture, phase).await?;
        match phase {
            Phase::Presence => {}
            Phase::Alone => self.run(start, phase, &None, |body| matches!(body, Body::Alone(_))).await,
            Phase::Paired => self.run(start, phase, next, |body| matches!(body, Body::Paired(_))).await,
        }
        turns::finish(&fixture, phase, next.as_deref());
        fixture.end(true)
    }

    /// Runs this core's tests of a kind.
    async fn run(&mut self, start: &Start, phase: Phase, next: &Option<Rc<Partner>>, wanted: fn(&Body) -> bool) {
        let (core, cores) = (start.core().into(), start.cores().into());
        let all = suites::ALL.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite.name, test)));
        let all = all.filter(|(suite, test)| wanted(&test.body) && is_asked(start, suite, test.name));
        for (number, (suite, test)) in (0..).zip(all) {
            if turns::is_elsewhere(phase, core, cores, number) {
                runtime::log!("core {core} {suite}/{} elsewhere", test.name);
                continue;
            }
            if matches!(test.body, Body::Paired(_)) && next.is_none() {
                self.note(start, suite, test.name, Err(Failure::absent("there is no second core")));
                continue;
            }
            runtime::sleep(PAUSE_NS).await;
            self.note(start, suite, test.name, one(start, test, next).await);
        }
    }

    fn note(&mut self, start: &Start, suite: &str, test: &str, outcome: Outcome) {
        let core = start.core();
        match outcome {
            Ok(()) => {
                self.passed += 1;
                runtime::log!("core {core} {suite}/{test} ok");
            }
            Err(Failure { why, is_absence: true, .. }) => runtime::log!("core {core} {suite}/{test} absent: {why}"),
            Err(Failure { why, line, .. }) => {
                self.failed += 1;
                runtime::log!("core {core} {suite}/{test} FAILED: {why} (line {line})");
            }
        }
    }
}

/// Whether the command line wants this test: it may name the one that is to run.
fn is_asked(start: &Start, suite: &str, test: &str) -> bool {
    let mut asked = start.command_line().split(' ').filter_map(|word| word.strip_prefix(ONLY));
    asked.all(|name| name.split_once('/') == Some((suite, test)))
}

async fn one(start: &Start, test: &Test, next: &Option<Rc<Partner>>) -> Outcome {
    let fixture = Rc::new(Fixture::new(start)?);
    let outcome = match (&test.body, next) {
        (Body::Alone(body), _) => keeps_slots(|| body(&fixture)),
        (Body::Paired(body), Some(next)) => body(fixture.clone(), next.clone()).await,
        (Body::Paired(_), None) => Err(Failure::new("there is no second core")),
    };
    let end = fixture.end(outcome.is_ok());
    outcome.and(end)
}

/// A test that leaves a capability behind fails.
fn keeps_slots(test: impl FnOnce() -> Outcome) -> Outcome {
    let lowest = || {
        let probe = sys::cap_copy(Handle::SELF_RAM, Rights::READ)?;
        sys::cap_drop(probe).map(|()| probe)
    };
    let before = lowest()?;
    test()?;
    let after = lowest()?;
    if before == after { Ok(()) } else { Err(Failure::new("leaves a capability")) }
}
