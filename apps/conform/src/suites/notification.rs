//! Notifications on a core and between cores.

use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::layout::counter;
use abi::layout::portal::{MAILBOX, RENDEZVOUS};
use abi::{Error, Rights};
use worker::Job;

use crate::table::Words;
use crate::{Failure, Fixture, Outcome, Partner, drop_all, refused, require, suite};

suite!("notification"; alone: bits_add_up, poll_does_not_wait, a_deadline_passes, needs_the_right, of_another_domain, slots_are_the_monitors;
    paired: wakes_another_core, partner_answers, a_call_of_another_core_is_two_wake_ups; far: await_doorbell, add, answer_doorbell);

/// Word of a core's shared words by which a far function says that it is there.
const READY: u64 = 0;
const AGAIN_NS: u64 = 200_000;

fn bits_add_up(fixture: &Fixture) -> Outcome {
    let (first, one) = fixture.doorbell(0)?;
    let (second, two) = fixture.doorbell(1)?;
    for doorbell in [first, second, first, first] {
        sys::notify(doorbell)?;
    }
    let bits = sys::wait(fixture.deadline_ns())?;
    executor::post(bits & !(one | two));
    require!(bits & (one | two) == one | two, "the bits came as {bits:#x}");
    require!(fixture.wait_for(one | two, runtime::now_ns())? == 0, "bits came twice");
    drop_all(&[first, second])
}

fn poll_does_not_wait(fixture: &Fixture) -> Outcome {
    let before_ns = runtime::now_ns();
    executor::post(sys::wait(0)?);
    let took_ns = runtime::now_ns() - before_ns;
    // A slice of others may pass in it, on a host that is busy itself.
    require!(took_ns < fixture.deadline_ns() - before_ns, "a poll took {took_ns} ns");
    Ok(())
}

fn a_deadline_passes(fixture: &Fixture) -> Outcome {
    let (doorbell, bit) = fixture.doorbell(5)?;
    let deadline_ns = fixture.soon_ns();
    let bits = fixture.wait_for(bit, deadline_ns)?;
    require!(bits == 0 && runtime::now_ns() >= deadline_ns, "{bits:#x} before the deadline");
    sys::cap_drop(doorbell)?;
    Ok(())
}

fn needs_the_right(fixture: &Fixture) -> Outcome {
    let (doorbell, _) = fixture.doorbell(0)?;
    let weak = sys::cap_copy(doorbell, Rights::READ)?;
    refused(sys::notify(weak), Error::NoRights)?;
    drop_all(&[weak, doorbell])
}

fn of_another_domain(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Notify)?;
    let (back, bit) = fixture.doorbell(2)?;
    worker.start([worker.give(back)?, 0])?;
    let there = sys::cap_mint(worker.context, Rights::ALL, 1)?;
    for round in 0..10 {
        sys::notify(there)?;
        let bits = fixture.wait_for(bit, fixture.deadline_ns())?;
        require!(bits == bit, "{bits:#x} in round {round}");
    }
    drop_all(&[there, back])
}

fn slots_are_the_monitors(fixture: &Fixture) -> Outcome {
    for pcore in [abi::Handle::PCORE, fixture.ram(), abi::Handle::SELF_DOMAIN] {
        require!(sys::wake_slot_alloc(pcore, abi::Handle::SELF_CONTEXT, 1).is_err(), "a component took a wake slot");
        require!(sys::wake_slot_import(pcore, fixture.ram(), 0, 1).is_err(), "a component may ring any core");
        require!(sys::wake_slot_free(pcore, 1).is_err(), "a component freed a wake slot");
    }
    Ok(())
}

/// The next core sleeps in `Wait` and is woken by our notification alone.
async fn wakes_another_core(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let (doorbell, _) = fixture.next_doorbell().ok_or_else(|| Failure::new("no channel to the next core"))?;
    let ready = fixture.shared(fixture.next_core(), READY);
    let before = ready.load(Ordering::Acquire);
    let sent = sys::counter_read(counter::WAKES_SENT)?;
    let answer = partner.act("notification/await_doorbell", [0; 4]);
    let asked = runtime::now_ns();
    while ready.load(Ordering::Acquire) == before {
        require!(runtime::now_ns() < asked + 20_000_000_000, "the next core does not begin");
        runtime::sleep(AGAIN_NS).await;
    }
    // It has begun; after this it sleeps.
    runtime::sleep(AGAIN_NS).await;
    sys::notify(doorbell)?;
    let [bits, taken, ..] = answer.await?;
    require!(bits != 0, "the next core was not woken");
    require!(taken > 0, "the next core took no wake-up");
    require!(sys::counter_read(counter::WAKES_SENT)? > sent, "no wake-up was sent");
    Ok(())
}

/// Takes what is there, then waits for the core before this one to ring.
fn await_doorbell(fixture: &Fixture, _: Words) -> Result<Words, Failure> {
    let (_, bit) = fixture.previous_doorbell().ok_or_else(|| Failure::new("no channel from the core before"))?;
    executor::post(fixture.wait_for(bit, runtime::now_ns())?);
    let taken = sys::counter_read(counter::WAKES_TAKEN)?;
    fixture.shared(fixture.core(), READY).fetch_add(1, Ordering::AcqRel);
    let bits = fixture.wait_for(bit, fixture.deadline_ns())?;
    executor::post(bits);
    Ok([bits, sys::counter_read(counter::WAKES_TAKEN)? - taken, 0, 0])
}

async fn partner_answers(_: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    for round in 0..20 {
        let words = partner.act("notification/add", [round, 5, 6, 7]).await?;
        require!(words == [round + 5, 6, 7, 0], "the next core answers {words:?}");
    }
    Ok(())
}

fn add(_: &Fixture, words: Words) -> Result<Words, Failure> {
    Ok([words[0] + words[1], words[2], words[3], 0])
}

/// Questions of a batch; batches: another component may have notified in one.
const QUESTIONS: u64 = 20;
const BATCHES: usize = 8;
/// The shared word in which who asks says how often it has, and who answers the same.
const TURN: u64 = 1;

/// What names a context of another core is no portal and donates no time; a question and its answer
/// are a wake-up each.
async fn a_call_of_another_core_is_two_wake_ups(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let (doorbell, bits) = fixture.next_doorbell().ok_or_else(|| Failure::new("no channel to the next core"))?;
    refused(sys::portal_call(doorbell, [0; 4], fixture.deadline_ns()), Error::WrongType)?;
    refused(sys::portal_ring(doorbell), Error::WrongType)?;
    refused(sys::portal_alloc(fixture.ram(), doorbell, 0, RENDEZVOUS), Error::WrongType)?;
    refused(sys::portal_alloc(fixture.ram(), doorbell, 0, MAILBOX), Error::WrongType)?;
    let [own, next] = [fixture.core(), fixture.next_core()];
    let ready = fixture.shared(next, READY);
    let mut seen = Vec::new();
    for _ in 0..BATCHES {
        [own, next].iter().for_each(|core| fixture.shared(*core, TURN).store(0, Ordering::Release));
        let before = ready.load(Ordering::Acquire);
        let answer = partner.act("notification/answer_doorbell", [own, QUESTIONS, 0, 0]);
        let asked_ns = runtime::now_ns();
        while ready.load(Ordering::Acquire) == before {
            require!(runtime::now_ns() < asked_ns + 20_000_000_000, "the next core does not begin");
            runtime::sleep(AGAIN_NS).await;
        }
        let sent = sys::counter_read(counter::WAKES_SENT)?;
        for question in 1..=QUESTIONS {
            fixture.shared(own, TURN).store(question, Ordering::Release);
            sys::notify(doorbell)?;
            sleep_until_turn(&fixture, next, question, bits)?;
        }
        let sent = sys::counter_read(counter::WAKES_SENT)? - sent;
        executor::post(bits);
        let [answered, ..] = answer.await?;
        seen.push((sent, answered));
        if (sent, answered) == (QUESTIONS, QUESTIONS) {
            return Ok(());
        }
    }
    Err(Failure::new(format!("{QUESTIONS} questions and their answers took so many wake-ups: {seen:?}")))
}

/// Rings the core before this one as often as it is asked; how many wake-ups were sent for that.
fn answer_doorbell(fixture: &Fixture, [asker, questions, ..]: Words) -> Result<Words, Failure> {
    let (doorbell, bits) =
        fixture.previous_doorbell().ok_or_else(|| Failure::new("no channel from the core before"))?;
    let sent = sys::counter_read(counter::WAKES_SENT)?;
    fixture.shared(fixture.core(), READY).fetch_add(1, Ordering::AcqRel);
    for question in 1..=questions {
        sleep_until_turn(fixture, asker, question, bits)?;
        fixture.shared(fixture.core(), TURN).store(question, Ordering::Release);
        sys::notify(doorbell)?;
    }
    executor::post(bits);
    Ok([sys::counter_read(counter::WAKES_SENT)? - sent, 0, 0, 0])
}

/// Sleeps until the other core has had its turn; the doorbell is also that of the channel, so it
/// may ring without.
fn sleep_until_turn(fixture: &Fixture, other: u64, turn: u64, bits: u64) -> Outcome {
    let deadline_ns = fixture.deadline_ns();
    while fixture.shared(other, TURN).load(Ordering::Acquire) < turn {
        require!(fixture.wait_for(bits, deadline_ns)? != 0, "core {other} is not heard in turn {turn}");
    }
    Ok(())
}
