//! A program of several cores, for the scenarios `multicore-program/*`.
//!
//! `crew`: its first dispatcher shows a range of their pool and has the next one join, which shows
//! it at the same address, puts itself into a list there and passes the word on to its next, until
//! it is back. Then the first one walks the list, by the addresses that the others wrote, and says
//! whom it found and how many generations have used this memory. `ballast`: leaves its last core
//! too little memory for another domain, and the others no more than that.
//!
//! Deliberately unknown here: who makes, ends and lists programs.
#![no_std]

extern crate alloc;

mod ballast;
mod common;
mod ring;

use alloc::vec::Vec;

use contracts::supervisor::{Chaos, SupervisorClient};
use runtime::{Program, Start};

use crate::common::Common;

/// The name under which memory is taken away.
const BALLAST: &str = "ballast";
/// Word of the command line: the last dispatcher ends by itself, with status 0, once all have met.
const LEAVE: &str = "crew.leave";

/// Word of the command line: once all have met for the first time, the first dispatcher has the
/// name server and the supervisor killed at once.
const KILL_BOTH: &str = "crew.kill-both";

/// The component.
pub async fn run(start: Start) {
    let Some(program) = start.program() else {
        return runtime::log!("failed: it is one domain, not a program of several cores");
    };
    if program.name == BALLAST {
        ballast::hold(&start, &program);
    } else if let Err(why) = meet(&start, &program).await {
        runtime::log!("failed: {why}");
    } else if is_told(&start, LEAVE) && program.number + 1 == program.cores.len() {
        return runtime::log!("leaves");
    }
    start.serving();
    if program.number == 0 {
        runtime::spawn(ring::follow(start.clone()));
    }
    if is_told(&start, KILL_BOTH) && program.number == 0 && start.generation() == 1 {
        kill_both(&start).await;
    }
    core::future::pending().await
}

fn is_told(start: &Start, word: &str) -> bool {
    start.command_line().split(' ').any(|told| told == word)
}

/// Nobody who would start the name server again hears of its death.
async fn kill_both(start: &Start) {
    let Ok(supervisor) = start.client::<SupervisorClient>("supervisor") else {
        return runtime::log!("failed: no channel to the supervisor");
    };
    // Both are asked before one is answered; none is, as who would do it is gone.
    let killed = ["names", "supervisor"].map(|name| supervisor.chaos(Chaos::Kill, name.into()));
    for answer in killed {
        runtime::log!("of two killed at once: {:?}", answer.await);
    }
}

/// All dispatchers at one memory. The first one returns when all have been there, the others when
/// they were.
async fn meet(start: &Start, program: &Program) -> Result<(), ring::JoinError> {
    let pool = start.pool("crew").ok_or(ring::JoinError::NoPool)?;
    let joined = ring::serve(start, program, pool);
    if program.number > 0 {
        return joined.await;
    }
    let common =
        Common::first(start, pool).map_err(|error| ring::JoinError::Refused(start.core(), error.name().into()))?;
    ring::look_up(start).await?;
    common.join(program.number, start.core(), start.generation());
    let count = ring::pass_on(start, program, common.id).await? + 1;
    let met: Vec<u32> = common.walk(start.generation());
    let uses = common.uses();
    runtime::log!(
        "generation {}: {count} dispatchers met at one address, {met:?}; memory of {uses} generations",
        start.generation()
    );
    Ok(())
}
