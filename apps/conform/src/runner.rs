//! Runs all suites on this core and says how it went.

use alloc::rc::Rc;
use core::sync::atomic::Ordering;

use abi::{Handle, Rights};
use runtime::Start;

use crate::table::{Body, Failure, Outcome, Test};
use crate::{Partner, Scene, partner, suites};

/// Between two tests the component looks at what came for it meanwhile.
const PAUSE_NS: u64 = 1;
/// Between two looks at how far others are.
const AGAIN_NS: u64 = 20_000_000;
/// Neighbours that take longer have stopped. Some hundred emulated cores share few of the host's.
const TURN_LIMIT_NS: u64 = 300_000_000_000;
/// Word of core 0's shared words: cores that are here.
const PRESENT: u64 = 2;
/// Word of a core's shared words: it has done its tests with a partner.
const DONE: u64 = 3;

/// The component.
pub async fn run(start: Start) {
    start.serving();
    runtime::spawn(partner::serve(start.clone()));
    let mut tally = Tally::default();
    if let Err(failure) = gather(&start).await {
        tally.note(&start, "runner", "gather", Err(failure));
    }
    tally.run(&start, &None, |body| matches!(body, Body::Alone(_))).await;
    if let Some(next) = Partner::next(&start) {
        match turn(&start).await {
            Ok(scene) => {
                tally.run(&start, &Some(Rc::new(next)), |body| matches!(body, Body::Paired(_))).await;
                scene.shared(scene.core(), DONE).store(1, Ordering::Release);
                tally.note(&start, "runner", "turn", scene.end(true));
            }
            Err(failure) => tally.note(&start, "runner", "turn", Err(failure)),
        }
    }
    runtime::log!("core {} done: {} ok, {} failed", start.core(), tally.passed, tally.failed);
    // The core before this one may still ask.
    core::future::pending().await
}

/// Waits until all cores are here: a machine of many emulated cores has no time to start components while others are tested.
async fn gather(start: &Start) -> Result<(), Failure> {
    let scene = Scene::new(start)?;
    let end_ns = runtime::now_ns() + TURN_LIMIT_NS;
    let present = scene.shared(0, PRESENT);
    present.fetch_add(1, Ordering::AcqRel);
    while present.load(Ordering::Acquire) < scene.cores() {
        if runtime::now_ns() > end_ns {
            return Err(Failure::new("not all cores have begun"));
        }
        runtime::sleep(AGAIN_NS).await;
    }
    scene.end(true)
}

/// Waits for its turn to have a partner: even cores at once, odd ones when both neighbours are done. So nobody's partner has one of its own,
/// and a function on the next core may wait for its test.
async fn turn(start: &Start) -> Result<Scene, Failure> {
    let scene = Scene::new(start)?;
    let end_ns = runtime::now_ns() + TURN_LIMIT_NS;
    let core = scene.core();
    let is_done = |core: u64| scene.shared(core, DONE).load(Ordering::Acquire) != 0;
    while core % 2 == 1 && !(is_done(core - 1) && is_done(scene.next_core())) {
        if runtime::now_ns() > end_ns {
            return Err(Failure::new("the neighbours do not come to an end"));
        }
        runtime::sleep(AGAIN_NS).await;
    }
    Ok(scene)
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    /// Runs the tests of a kind.
    async fn run(&mut self, start: &Start, next: &Option<Rc<Partner>>, wanted: fn(&Body) -> bool) {
        for suite in suites::ALL {
            for test in suite.tests.iter().filter(|test| wanted(&test.body)) {
                runtime::sleep(PAUSE_NS).await;
                if let Some(outcome) = one(start, test, next).await {
                    self.note(start, suite.name, test.name, outcome);
                }
            }
        }
    }

    fn note(&mut self, start: &Start, suite: &str, test: &str, outcome: Outcome) {
        let core = start.core();
        match outcome {
            Ok(()) => {
                self.passed += 1;
                runtime::log!("core {core} {suite}/{test} ok");
            }
            Err(Failure { why, line }) => {
                self.failed += 1;
                runtime::log!("core {core} {suite}/{test} FAILED: {why} (line {line})");
            }
        }
    }
}

/// Runs one test; `None` if it needs a second core and there is none.
async fn one(start: &Start, test: &Test, next: &Option<Rc<Partner>>) -> Option<Outcome> {
    let scene = match Scene::new(start) {
        Ok(scene) => Rc::new(scene),
        Err(failure) => return Some(Err(failure)),
    };
    let outcome = match (&test.body, next) {
        (Body::Alone(body), _) => keeps_slots(|| body(&scene)),
        (Body::Paired(body), Some(next)) => body(scene.clone(), next.clone()).await,
        (Body::Paired(_), None) => {
            let end = scene.end(true);
            return end.err().map(Err);
        }
    };
    let end = scene.end(outcome.is_ok());
    Some(outcome.and(end))
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
