//! Semaphore: counting, waiting, order, deadlines.

use abi::{Call, Error, Rights};
use worker::{Job, Servant};

use crate::{Outcome, Scene, refused, require, suite};

suite!("semaphore"; alone: counts, deadline_passes, count_is_bounded, wakes_who_waits, first_come_first_served, waiters_hear_of_its_end);

fn counts(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 2)?;
    sys::semaphore_up(semaphore, 3)?;
    for _ in 0..5 {
        sys::semaphore_down(semaphore, scene.deadline_ns())?;
    }
    refused(sys::semaphore_down(semaphore, scene.soon_ns()), Error::Timeout)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn deadline_passes(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 0)?;
    let deadline_ns = scene.soon_ns();
    refused(sys::semaphore_down(semaphore, deadline_ns), Error::Timeout)?;
    require!(runtime::now_ns() >= deadline_ns, "the deadline had not passed");
    // It is as before.
    sys::semaphore_up(semaphore, 1)?;
    sys::semaphore_down(semaphore, scene.deadline_ns())?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn count_is_bounded(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 1)?;
    refused(sys::semaphore_up(semaphore, 0), Error::BadArgument)?;
    for count in [1 << 31, u64::MAX, u64::MAX - 1] {
        refused(sys::semaphore_up(semaphore, count), Error::BadArgument)?;
    }
    sys::semaphore_down(semaphore, scene.deadline_ns())?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn wakes_who_waits(scene: &Scene) -> Outcome {
    let (there, back) = (sys::semaphore_alloc(scene.ram(), 0)?, sys::semaphore_alloc(scene.ram(), 0)?);
    let worker = scene.worker(0, Job::Pass)?;
    worker.start([worker.give(there)?, worker.give(back)?])?;
    for _ in 0..10 {
        sys::semaphore_up(there, 1)?;
        sys::semaphore_down(back, scene.deadline_ns())?;
    }
    refused(sys::semaphore_down(back, scene.soon_ns()), Error::Timeout)?;
    [there, back].into_iter().try_for_each(sys::cap_drop)?;
    Ok(())
}

fn first_come_first_served(scene: &Scene) -> Outcome {
    let semaphore = sys::semaphore_alloc(scene.ram(), 0)?;
    let servants = [scene.servant(0)?, scene.servant(1)?, scene.servant(2)?];
    for servant in &servants {
        let there = sys::domain_grant(servant.worker.domain, semaphore, Rights::READ)?;
        let call = Call::SemaphoreDown.number();
        servant.begin(call, [there.0, u64::MAX, 0, 0, 0, 0], || scene.soon_ns())?;
        // They have the least time there is: it is theirs while we sleep.
        scene.wait_for(0, scene.soon_ns())?;
    }
    for turn in 1..=servants.len() {
        sys::semaphore_up(semaphore, 1)?;
        let back = || servants.each_ref().map(Servant::is_back);
        scene.until("a waiter goes on", || back().into_iter().filter(|is_back| *is_back).count() == turn)?;
        require!(back().into_iter().take(turn).all(|is_back| is_back), "after {turn} ups those are back: {:?}", back());
    }
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn waiters_hear_of_its_end(scene: &Scene) -> Outcome {
    let ram = sys::ram_split(scene.ram(), 100)?;
    let semaphore = sys::semaphore_alloc(ram, 0)?;
    let servant = scene.servant(0)?;
    let there = sys::domain_grant(servant.worker.domain, semaphore, Rights::READ)?;
    servant.begin(Call::SemaphoreDown.number(), [there.0, u64::MAX, 0, 0, 0, 0], || scene.soon_ns())?;
    // SAFETY: nothing of the account is mapped.
    while !unsafe { sys::ram_revoke(ram) }? {}
    scene.until("the waiter goes on", || servant.is_back())?;
    refused(servant.result(), Error::PeerDead)?;
    sys::cap_drop(ram)?;
    Ok(())
}
