//! What states a context goes through.

use super::World;
use crate::objects::Semaphore;
use crate::objects::context::State;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The diagram at the head of `objects/context.rs`, arrow by arrow.
#[test]
fn a_state_changes_along_the_arrows_of_the_diagram_only() {
    let mut world = World::new(4000);
    let server = world.outsider().context;
    let semaphore = world.kernel.create(world.ram, |header| Semaphore::new(header, 0)).unwrap();
    let (new, runnable, dead) = (State::New, State::Runnable, State::Dead);
    let waits = [
        State::Waiting,
        State::OnSemaphore(semaphore),
        State::Accepting,
        State::Served(server),
        State::Queued(server),
        State::Donation(server),
    ];
    let mut arrows =
        vec![(new, runnable), (new, dead), (runnable, dead), (State::Queued(server), State::Served(server))];
    arrows.extend(waits.iter().flat_map(|wait| [(runnable, *wait), (*wait, runnable), (*wait, dead)]));
    let all = [new, runnable, dead].into_iter().chain(waits).collect::<Vec<_>>();
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
        // One of its own for each: it is new, and goes to where it comes from by arrows.
        let context = world.outsider().context;
        for step in [runnable, from] {
            if from != new && context.state() != step {
                context.set_state(step);
            }
        }
        let is_changed = catch_unwind(AssertUnwindSafe(|| context.set_state(to))).is_ok();
        let number = |of| all.iter().position(|state| *state == of);
        assert_eq!(is_changed, arrows.contains(&(from, to)), "from {:?} to {:?}", number(from), number(to));
    }
}
