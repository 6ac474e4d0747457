//! Semaphore: counting, waiting, order, deadlines.

use abi::layout::counter;
use abi::{Call, Error, Handle, Rights};
use worker::{BLOCK_WORDS, BLOCKS, Job, ScriptedDomain};

use crate::{Failure, Fixture, Outcome, drop_all, refused, require, suite};

suite!("semaphore"; alone: counts, deadline_passes, count_is_bounded, wakes_who_waits, first_come_first_served, waiters_hear_of_its_end,
    a_producer_and_its_consumer_keep_the_core_busy);

fn counts(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 2)?;
    sys::semaphore_up(semaphore, 3)?;
    for _ in 0..5 {
        sys::semaphore_down(semaphore, fixture.deadline_ns())?;
    }
    refused(sys::semaphore_down(semaphore, fixture.soon_ns()), Error::Timeout)?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn deadline_passes(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 0)?;
    let deadline_ns = fixture.soon_ns();
    refused(sys::semaphore_down(semaphore, deadline_ns), Error::Timeout)?;
    require!(runtime::now_ns() >= deadline_ns, "the deadline had not passed");
    // It is as before.
    sys::semaphore_up(semaphore, 1)?;
    sys::semaphore_down(semaphore, fixture.deadline_ns())?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn count_is_bounded(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 1)?;
    refused(sys::semaphore_up(semaphore, 0), Error::BadArgument)?;
    for count in [1 << 31, u64::MAX, u64::MAX - 1] {
        refused(sys::semaphore_up(semaphore, count), Error::BadArgument)?;
    }
    sys::semaphore_down(semaphore, fixture.deadline_ns())?;
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn wakes_who_waits(fixture: &Fixture) -> Outcome {
    let (there, back) = (sys::semaphore_alloc(fixture.ram(), 0)?, sys::semaphore_alloc(fixture.ram(), 0)?);
    let worker = fixture.worker(0, Job::Pass)?;
    worker.start([worker.give(there)?, worker.give(back)?])?;
    for _ in 0..10 {
        sys::semaphore_up(there, 1)?;
        sys::semaphore_down(back, fixture.deadline_ns())?;
    }
    refused(sys::semaphore_down(back, fixture.soon_ns()), Error::Timeout)?;
    drop_all(&[there, back])
}

fn first_come_first_served(fixture: &Fixture) -> Outcome {
    let semaphore = sys::semaphore_alloc(fixture.ram(), 0)?;
    let scripted_domains = [fixture.scripted(0)?, fixture.scripted(1)?, fixture.scripted(2)?];
    for scripted in &scripted_domains {
        let there = sys::domain_grant(scripted.worker.domain, semaphore, Rights::READ)?;
        let call = Call::SemaphoreDown.number();
        scripted.begin(call, [there.0, u64::MAX, 0, 0, 0, 0], || fixture.soon_ns())?;
        // They have the least time there is: it is theirs while we sleep.
        fixture.wait_for(0, fixture.soon_ns())?;
    }
    for turn in 1..=scripted_domains.len() {
        sys::semaphore_up(semaphore, 1)?;
        let back = || scripted_domains.each_ref().map(ScriptedDomain::is_back);
        fixture.until("a waiter goes on", || back().into_iter().filter(|is_back| *is_back).count() == turn)?;
        require!(back().into_iter().take(turn).all(|is_back| is_back), "after {turn} ups those are back: {:?}", back());
    }
    sys::cap_drop(semaphore)?;
    Ok(())
}

fn waiters_hear_of_its_end(fixture: &Fixture) -> Outcome {
    let ram = sys::ram_split(fixture.ram(), 100, Handle::NONE)?;
    let semaphore = sys::semaphore_alloc(ram, 0)?;
    let scripted = fixture.scripted(0)?;
    let there = sys::domain_grant(scripted.worker.domain, semaphore, Rights::READ)?;
    scripted.begin(Call::SemaphoreDown.number(), [there.0, u64::MAX, 0, 0, 0, 0], || fixture.soon_ns())?;
    fixture.revoke(ram)?;
    fixture.until("the waiter goes on", || scripted.is_back())?;
    refused(scripted.result(), Error::PeerDead)?;
    sys::cap_drop(ram)?;
    Ok(())
}

/// Blocks that pass in a batch, and batches: another component may have had a turn in one, and the
/// core no work after it.
const PASSED: u64 = 400;
const BATCHES: u64 = 5;

/// Data through a page that two domains share, semaphores say how much of it is there: each block
/// comes once, whole and in order, and at the rate of the core, which never idles.
fn a_producer_and_its_consumer_keep_the_core_busy(fixture: &Fixture) -> Outcome {
    let (free, full) = (sys::semaphore_alloc(fixture.ram(), BLOCKS)?, sys::semaphore_alloc(fixture.ram(), 0)?);
    let producer = fixture.worker(0, Job::Produce)?;
    producer.start([producer.give(free)?, producer.give(full)?])?;
    let take = |number: u64| -> Result<(), Failure> {
        sys::semaphore_down(full, fixture.deadline_ns())?;
        let block = number % BLOCKS * BLOCK_WORDS;
        let mut words = (block..block + BLOCK_WORDS).map(|word| producer.word(word));
        require!(words.all(|word| word == number), "block {number} holds another, or parts of one");
        Ok(sys::semaphore_up(free, 1)?)
    };
    let mut fewest = u64::MAX;
    for batch in 0..BATCHES {
        let before = sys::counter_read(counter::IDLES)?;
        (batch * PASSED..(batch + 1) * PASSED).try_for_each(take)?;
        fewest = fewest.min(sys::counter_read(counter::IDLES)? - before);
    }
    require!(fewest == 0, "the core idled {fewest} times while {PASSED} blocks passed");
    // It fills what is free and then waits.
    fixture.until("all blocks are full", || producer.word((BLOCKS - 1) * BLOCK_WORDS) > BATCHES * PASSED)?;
    (0..BLOCKS).map(|more| BATCHES * PASSED + more).try_for_each(|number| {
        sys::semaphore_down(full, fixture.deadline_ns())?;
        let seen = producer.word(number % BLOCKS * BLOCK_WORDS);
        require!(seen == number, "block {number} holds {seen}");
        Ok(())
    })?;
    refused(sys::semaphore_down(full, fixture.soon_ns()), Error::Timeout)?;
    drop_all(&[free, full])
}
